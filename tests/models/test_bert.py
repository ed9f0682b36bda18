"""BERT and its relatives: the states of every layer are those of transformers, and book-keeping is exact on them."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import transformers
from flax import nnx
from safetensors.numpy import load_file, save_file

from dpnlp.checks import BadInput
from dpnlp.models import bert, pretrained
from dpnlp.training import clipping
from dpnlp.training.clipping import Clipping
from dpnlp.training.parameters import apart

from ..training.test_clipping import assert_equal, clipped_sum, length, reference
from .agreement import moved, our_drops, their_drops
from .hugging_face import change_config
from .real_weights import minilm

torch = pytest.importorskip("torch")

VOCABULARY, LONGEST = 40, 12
BERT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": LONGEST,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.2,
}
ROBERTA = BERT | {"max_position_embeddings": LONGEST + 2, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
DISTILBERT = {"vocab_size": VOCABULARY, "dim": 24, "n_layers": 3, "n_heads": 2, "hidden_dim": 20}
DISTILBERT |= {"max_position_embeddings": LONGEST, "dropout": 0.1, "attention_dropout": 0.2}

KINDS = {
    "BertModel": BERT,
    "BertForMaskedLM": BERT | {"hidden_act": "gelu_new"},
    "BertForPreTraining": BERT | {"layer_norm_eps": 0.1},
    "BertForSequenceClassification": BERT,
    "RobertaModel": ROBERTA,
    "RobertaForMaskedLM": ROBERTA,
    "RobertaForSequenceClassification": ROBERTA,
    "XLMRobertaModel": ROBERTA | {"hidden_act": "relu"},
    "XLMRobertaForMaskedLM": ROBERTA,
    "DistilBertModel": DISTILBERT,
    "DistilBertForMaskedLM": DISTILBERT,
    "DistilBertForSequenceClassification": DISTILBERT,
}
"""Which class of transformers saved the folder, and the config."""


def made(kind):
    """A micro model of this class, with random values everywhere."""
    model = getattr(transformers, kind)
    return moved(model(model.config_class(**KINDS[kind])))


def bare(theirs):
    """The encoder in a model that may have more."""
    return getattr(theirs, theirs.base_model_prefix, theirs)


def texts(pad=1, size=7):
    """Three texts: without padding, with padding after, with padding before."""
    mask = np.ones((3, size), int)
    mask[1, 4:], mask[2, :3] = 0, 0
    return np.where(mask > 0, np.random.default_rng(0).integers(3, VOCABULARY, mask.shape), pad), mask


def their_states(theirs, ids, mask, types=None):
    given = {} if types is None else {"token_type_ids": torch.tensor(types)}
    with torch.no_grad():
        found = bare(theirs)(torch.tensor(ids), torch.tensor(mask), output_hidden_states=True, **given)
    return [state.numpy() for state in found.hidden_states]


def our_states(model, *batch, **options):
    return jax.jit(lambda *batch: model.hidden(*batch, **options))(*batch)


def assert_same_states(found, expected):
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module", params=KINDS)
def pair(request, tmp_path_factory):
    """A model of transformers, and ours by way of its folder."""
    folder, theirs = tmp_path_factory.mktemp("theirs"), made(request.param)
    theirs.save_pretrained(folder)
    return theirs, pretrained.load_encoder(folder), folder


def test_the_states_of_all_layers_are_those_of_transformers(pair):
    theirs, ours, _ = pair
    ids, mask = texts(theirs.config.pad_token_id)
    expected = their_states(theirs, ids, mask)
    assert len(expected) == 4
    assert_same_states(our_states(ours.model, ids, mask), expected)
    np.testing.assert_array_equal(our_states(ours.model, ids, mask, layers=1)[-1], our_states(ours.model, ids, mask)[1])


def test_the_heads_are_left_aside_by_name(pair):
    theirs, ours, folder = pair
    prefix = f"{theirs.base_model_prefix}."
    heads = {name for name in load_file(folder / "model.safetensors") if not name.startswith(prefix)}
    assert set(ours.left_aside) == (heads if hasattr(theirs, theirs.base_model_prefix) else set())
    assert ours.name == folder.name


def test_transformers_opens_what_was_saved_and_computes_the_same(pair, tmp_path):
    theirs, ours, folder = pair
    pretrained.save_encoder(ours, tmp_path / "saved")
    again = transformers.AutoModel.from_pretrained(tmp_path / "saved").eval()
    ids, mask = texts(theirs.config.pad_token_id)
    for found, expected in zip(their_states(again, ids, mask), their_states(theirs, ids, mask), strict=True):
        np.testing.assert_array_equal(found, expected)
    before, after = (load_file(place / "model.safetensors") for place in (folder, tmp_path / "saved"))
    names = {name.removeprefix(f"{theirs.base_model_prefix}."): name for name in before if name not in ours.left_aside}
    assert after.keys() == names.keys()
    for name, tensor in after.items():
        assert tensor.tobytes() == before[names[name]].tobytes(), name


@pytest.mark.parametrize("kind", ["BertModel", "BertForSequenceClassification", "RobertaModel"])
def test_the_pooled_state_is_that_of_transformers(tmp_path, kind):
    theirs = made(kind)
    theirs.save_pretrained(tmp_path)
    types = np.array([[0, 0, 0, 1, 1, 1, 1]] * 3) if kind.startswith("Bert") else None
    model, (ids, mask) = pretrained.load_encoder(tmp_path).model, texts(theirs.config.pad_token_id)
    given = {} if types is None else {"token_type_ids": torch.tensor(types)}
    with torch.no_grad():
        expected = bare(theirs)(torch.tensor(ids), torch.tensor(mask), **given).pooler_output
    found = jax.jit(lambda *batch: model.pooled(model(*batch, types)))(ids, mask)
    np.testing.assert_allclose(found[:2], expected[:2], rtol=1e-4, atol=1e-4)
    if types is not None:
        assert_same_states(our_states(model, ids, mask, types), their_states(theirs, ids, mask, types))


def test_an_old_file_is_read(tmp_path):
    """Norms with gamma and beta, and the buffers that were saved once."""
    theirs = made("BertForMaskedLM")
    theirs.save_pretrained(tmp_path)
    old = {}
    for name, tensor in load_file(tmp_path / "model.safetensors").items():
        old[re.sub("(LayerNorm.)bias", r"\1beta", re.sub("(LayerNorm.)weight", r"\1gamma", name))] = tensor
    assert any(name.endswith("gamma") for name in old)
    old["bert.embeddings.position_ids"] = np.arange(LONGEST)[None]
    save_file(old, tmp_path / "model.safetensors", metadata={"format": "pt"})
    ids, mask = texts(0)
    loaded = pretrained.load_encoder(tmp_path)
    assert_same_states(our_states(loaded.model, ids, mask), their_states(theirs, ids, mask))
    assert "bert.embeddings.position_ids" in loaded.left_aside


@pytest.mark.parametrize("kind", ["BertModel", "RobertaModel", "DistilBertModel"])
def test_dropout_is_where_theirs_is(tmp_path, kind):
    """The same rates on arrays of the same shapes in the same order."""
    theirs = made(kind)
    theirs.save_pretrained(tmp_path)
    model, (ids, mask) = pretrained.load_encoder(tmp_path).model, texts(1)
    expected = their_drops(theirs, lambda: their_states(theirs, ids, mask))
    assert len({rate for _, rate in expected}) == 2
    assert our_drops(lambda: model(ids, mask), 3) == expected


class Classifier(nnx.Module):
    """Two labels for a text, from the pooled state or from that of the first token."""

    def __init__(self, **options):
        shape = {"vocabulary": VOCABULARY, "width": 8, "layers": 2, "heads": 2, "hidden": 12, "positions": LONGEST}
        self.bert = bert.BERT(bert.Config(**shape | options), rngs=nnx.Rngs(0))

    def losses(self, ids, mask):  # [batch]
        states = self.bert(ids, mask)
        top = states[:, 0] if self.bert.pooler is None else self.bert.pooled(states)
        logs = jax.nn.log_softmax(8 * top.astype(jnp.float32))
        return -logs[:, 1]


def losses(model, batch):
    return model.losses(*batch)


SHAPES = {
    "BERT": {},
    "RoBERTa": {"padding": 1, "types": 1, "epsilon": 1e-5},
    "DistilBERT": {"types": 0, "pooler": False, "rematerialise": True},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_book_keeping_is_the_definition(shape):
    model, batch = Classifier(**SHAPES[shape]), jax.tree.map(jnp.asarray, texts())
    found = clipped_sum(losses, model, batch, jnp.ones(3), 0.1)
    assert_equal(found, *reference(losses, model, batch, jnp.ones(3), 0.1))
    assert min(found.norms) > 0.1


def test_law_5_holds_in_sixteen_bits():
    parts, batch = apart(Classifier(dtype="bfloat16")), jax.tree.map(jnp.asarray, texts())
    alone = jax.jit(lambda weights: clipping.clipped_sum(losses, parts, batch, weights, Clipping(0.1)).gradients)
    for one in jnp.eye(3):
        assert 0.1 * 0.9 < length(alone(one)) <= 0.1 * (1 + 1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_law_4_batchmates_and_padding_change_nothing(shape):
    model, (ids, mask) = Classifier(**SHAPES[shape]), texts()
    computed = nnx.jit(Classifier.losses)
    together = computed(model, ids, mask)
    assert len(set(map(float, together))) == 3
    junk = np.pad(ids, ((0, 0), (0, 3)), constant_values=7), np.pad(mask, ((0, 0), (0, 3)))
    np.testing.assert_allclose(computed(model, *junk), together, rtol=1e-5)
    np.testing.assert_allclose(computed(model, ids[1:2], mask[1:2])[0], together[1], rtol=1e-5)


def test_a_real_minilm_is_read_as_transformers_reads_it():
    ours, theirs = pretrained.load_encoder(minilm()), transformers.AutoModel.from_pretrained(minilm()).eval()
    given = ours.tokenizer(["It rained all day.", "A much longer text, with odd words: zyzzyva!"], padding=True)
    ids, mask = np.array(given["input_ids"]), np.array(given["attention_mask"])
    ids, mask = (np.concatenate([side, side[:, ::-1]]) for side in (ids, mask))  # padding before, too
    assert mask.min() == 0
    assert_same_states(our_states(ours.model, ids, mask), their_states(theirs, ids, mask))
    assert ours.left_aside == ("embeddings.position_ids",)


def refusal(call, *given, **options):
    with pytest.raises(BadInput) as refused:
        call(*given, **options)
    assert re.fullmatch(r"[^\n]*\S\.", str(refused.value))
    return str(refused.value)


def test_what_is_no_encoder_is_refused_in_one_sentence(tmp_path):
    made("BertModel").save_pretrained(tmp_path)
    known = "bert, roberta, xlm-roberta, distilbert"
    assert "model_type = 'bert' is not one of t5, mt5" in refusal(pretrained.load, tmp_path)
    change_config(tmp_path, is_decoder=True)
    assert "config.json: is_decoder = True: it must be False; choose" in refusal(pretrained.load_encoder, tmp_path)
    change_config(tmp_path, is_decoder=False, position_embedding_type="relative_key")
    assert "position_embedding_type = 'relative_key': it must be" in refusal(pretrained.load_encoder, tmp_path)
    change_config(tmp_path, position_embedding_type="absolute", hidden_act="tanh")
    assert "hidden_act = 'tanh': the activation must be one of" in refusal(pretrained.load_encoder, tmp_path)
    change_config(tmp_path, hidden_act="gelu", num_hidden_layers=2)
    assert "layer.2." in refusal(pretrained.load_encoder, tmp_path)
    change_config(tmp_path, model_type="t5")
    assert f"model_type = 't5' is not one of {known}; choose another" in refusal(pretrained.load_encoder, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    change_config(tmp_path, model_type="bert")
    assert "from transformers import AutoModel as M" in refusal(pretrained.load_encoder, tmp_path)


def test_what_does_not_fit_is_refused_in_one_sentence():
    shape = {"vocabulary": VOCABULARY, "width": 8, "layers": 1, "heads": 2, "hidden": 12, "positions": LONGEST}
    assert refusal(bert.Config, **shape | {"heads": 3}).startswith("heads = 3: it must divide the width 8;")
    assert refusal(bert.Config, **shape | {"types": -1}).startswith("types = -1: it must be a whole number")
    model = bert.BERT(bert.Config(**shape, pooler=False), rngs=nnx.Rngs(0))
    assert jax.eval_shape(lambda: model(*texts(size=LONGEST))).shape == (3, LONGEST, 8)
    assert refusal(model, *texts(size=LONGEST + 1)).startswith(f"A text of {LONGEST + 1} tokens: this model has")
    assert refusal(model.pooled, jnp.ones((1, 1, 8))).startswith("pooler = False: this model has no state")
