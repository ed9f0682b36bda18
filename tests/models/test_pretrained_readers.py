"""Folders of readers: logits are those of transformers for each head and family, and what is saved opens there."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import transformers
from flax import nnx
from safetensors.numpy import load_file

from dpnlp.checks import BadInput
from dpnlp.models import bert, word_vectors
from dpnlp.models.lora import adapted
from dpnlp.models.pretrained import load_encoder, load_reader, save_encoder, save_reader, word_reader
from dpnlp.models.readers import Head, Strategy

from .agreement import moved, our_drops, their_drops
from .hugging_face import change_config, change_tensors
from .real_weights import minilm
from .test_bert import BERT, DISTILBERT, ROBERTA, VOCABULARY

torch = pytest.importorskip("torch")

LABELS = ("no", "perhaps", "yes")
ENDINGS = {
    Head.SEQUENCES: "ForSequenceClassification",
    Head.TOKENS: "ForTokenClassification",
    Head.SPANS: "ForQuestionAnswering",
}
FAMILIES = {"Bert": BERT, "Roberta": ROBERTA, "XLMRoberta": ROBERTA, "DistilBert": DISTILBERT}
RATES = {
    "Bert": {"classifier_dropout": 0.3},
    "Roberta": {"classifier_dropout": 0.3},
    "XLMRoberta": {},
    "DistilBert": {"seq_classif_dropout": 0.3, "qa_dropout": 0.4},
}


def made(family, head, **options):
    """A micro model of transformers with random values everywhere."""
    model = getattr(transformers, family + ENDINGS[head])
    named = {} if head is Head.SPANS else {"id2label": dict(enumerate(LABELS))}
    named |= {"label2id": {label: place for place, label in enumerate(LABELS)}} if named else {}
    return moved(model(model.config_class(**FAMILIES[family], **RATES[family], **named | options)))


def bare(family):
    model = getattr(transformers, f"{family}Model")
    return moved(model(model.config_class(**FAMILIES[family])))


def texts(family, size=7):
    """Three texts: without padding, with padding after, with one token of padding before."""
    mask = np.ones((3, size), int)
    mask[1, 4:], mask[2, :1] = 0, 0
    ids = np.random.default_rng(0).integers(3, VOCABULARY, mask.shape)
    given = {"ids": np.where(mask > 0, ids, 1 if "Roberta" in family else 0), "mask": mask}
    return given | ({"types": np.array([[0, 0, 0, 1, 1, 1, 1]] * 3)} if family == "Bert" else {})


def their_logits(theirs, given):
    names = {"ids": "input_ids", "mask": "attention_mask", "types": "token_type_ids"}
    with torch.no_grad():
        found = theirs(**{names[name]: torch.tensor(side) for name, side in given.items()})
    if "logits" in found:
        return found.logits.numpy()
    return torch.stack([found.start_logits, found.end_logits], dim=-1).numpy()


def our_logits(model, given):
    return np.asarray(nnx.jit(lambda model, given: model(given))(model, given))


def assert_same_logits(model, theirs, family):
    given = texts(family)
    found, expected = our_logits(model, given), their_logits(theirs, given)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def opened_by_transformers(folder, head):
    return getattr(transformers, f"AutoModel{ENDINGS[head]}").from_pretrained(folder).eval()


EACH = [(family, head) for family in FAMILIES for head in Head]


@pytest.mark.parametrize(("family", "head"), EACH)
def test_a_reader_is_that_of_transformers_and_goes_back_to_it_bit_for_bit(tmp_path, family, head):
    theirs = made(family, head)
    theirs.save_pretrained(tmp_path / "theirs")
    reader = load_reader(tmp_path / "theirs", head)
    assert reader.labels == (("start", "end") if head is Head.SPANS else LABELS)
    assert reader.name == "theirs"
    assert_same_logits(reader.model, theirs, family)
    save_reader(reader, tmp_path / "ours")
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "ours"))
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert tensor.tobytes() == after[name].tobytes(), name
    again = opened_by_transformers(tmp_path / "ours", head)
    assert type(again) is type(theirs)
    assert again.config.id2label == theirs.config.id2label
    np.testing.assert_array_equal(their_logits(again, texts(family)), their_logits(theirs, texts(family)))


@pytest.mark.parametrize(("family", "head"), EACH)
def test_an_encoder_gets_a_fresh_head_that_transformers_opens(tmp_path, family, head):
    theirs = bare(family)
    theirs.save_pretrained(tmp_path / "theirs")
    labels = None if head is Head.SPANS else LABELS
    reader = load_reader(tmp_path / "theirs", head, labels=labels, seed=3)
    save_reader(reader, tmp_path / "ours")
    again = opened_by_transformers(tmp_path / "ours", head)
    assert_same_logits(reader.model, again, family)
    if labels:
        assert again.config.id2label == dict(enumerate(LABELS))
        assert again.config.label2id == {label: place for place, label in enumerate(LABELS)}
    reloaded = load_reader(tmp_path / "ours", head)
    np.testing.assert_array_equal(our_logits(reloaded.model, texts(family)), our_logits(reader.model, texts(family)))
    other = load_reader(tmp_path / "theirs", head, labels=labels, seed=4)
    assert not np.array_equal(other.model.head.kernel[...], reader.model.head.kernel[...])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pooler_that_is_there_is_taken_and_else_it_is_fresh(tmp_path, family):
    theirs = bare(family)
    theirs.save_pretrained(tmp_path / "theirs")
    reader = load_reader(tmp_path / "theirs", Head.SEQUENCES, labels=LABELS, strategy=Strategy.TR_NO).model
    assert reader.fresh_pooler == (family == "DistilBert")
    assert reader.trains == (("pooler", "head") if family == "DistilBert" else ("head",))
    if family != "DistilBert":
        np.testing.assert_array_equal(reader.pooler.kernel[...].T, theirs.pooler.dense.weight.detach())
    assert load_reader(tmp_path / "theirs", Head.TOKENS, labels=LABELS).model.pooler is None


@pytest.mark.parametrize(("family", "head"), EACH)
def test_dropout_is_where_theirs_is(tmp_path, family, head):
    """The same rates on arrays of the same shapes in the same order."""
    theirs = made(family, head)
    theirs.save_pretrained(tmp_path)
    given, reader = texts(family), load_reader(tmp_path, head)
    expected = their_drops(theirs, lambda: their_logits(theirs, given))
    assert expected
    assert our_drops(lambda: reader.model(given), 3) == expected
    reader = load_reader(tmp_path, head, dropout=0.0)
    assert (reader.model.dropout.rate, reader.model.pooler_dropout.rate) == (0, 0)


def test_adapters_are_folded_in_when_a_reader_is_saved(tmp_path):
    bare("Bert").save_pretrained(tmp_path / "theirs")
    reader = load_reader(tmp_path / "theirs", Head.TOKENS, labels=LABELS, strategy=Strategy.LORA, rank=2, alpha=4)
    assert len(adapted(reader.model)) == 6
    for layer in adapted(reader.model).values():
        assert (layer.rank, layer.alpha) == (2, 4)
        layer.B.set_value(jax.random.normal(jax.random.key(0), layer.B.shape))
    assert refusal(save_reader, reader, tmp_path / "no").startswith("merge = False: the model has adapters")
    save_reader(reader, tmp_path / "ours", merge=True)
    assert_same_logits(reader.model, opened_by_transformers(tmp_path / "ours", Head.TOKENS), "Bert")


def same_parameters(one, other):
    first, second = (dict(nnx.to_flat_state(nnx.state(model))) for model in (one, other))
    assert first.keys() == second.keys()
    for path, variable in first.items():
        np.testing.assert_array_equal(variable[...], second[path][...], err_msg=str(path))


@pytest.mark.parametrize("head", Head)
def test_a_reader_with_an_lstm_comes_back_bit_for_bit(tmp_path, head):
    bare("Roberta").save_pretrained(tmp_path / "theirs")
    labels = None if head is Head.SPANS else LABELS
    reader = load_reader(tmp_path / "theirs", head, labels=labels, strategy=Strategy.TR_NO_LSTM, hidden=5)
    save_reader(reader, tmp_path / "ours")
    again = load_reader(tmp_path / "ours", head)
    same_parameters(reader.model, again.model)
    assert (again.labels, again.model.config) == (reader.labels, reader.model.config)
    assert again.model.encoder.config == reader.model.encoder.config
    given = texts("Roberta")
    np.testing.assert_array_equal(our_logits(again.model, given), our_logits(reader.model, given))


def test_a_reader_of_word_vectors_comes_back_bit_for_bit_with_its_tokenizer(tmp_path):
    words = tuple(f"w{number}" for number in range(9))
    vectors = word_vectors.Vectors(words, np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32))
    reader = word_reader(vectors.entrance(), vectors.tokenizer(), Head.SEQUENCES, LABELS, hidden=3, seed=1)
    assert reader.model.trains == ("lstm", "head")
    save_reader(reader, tmp_path / "ours", shard_bytes=200)
    assert len(list((tmp_path / "ours").glob("*.safetensors"))) > 1
    again = load_reader(tmp_path / "ours", Head.SEQUENCES, labels=("yes", "no", "perhaps"))
    same_parameters(reader.model, again.model)
    assert again.labels == LABELS
    assert again.model.trains == ("lstm", "head")
    given = reader.tokenizer(["w1 w2", "W3 other w4."], padding=True)
    assert again.tokenizer(["w1 w2", "W3 other w4."], padding=True) == given
    batch = {"ids": np.array(given["input_ids"]), "mask": np.array(given["attention_mask"])}
    assert our_logits(again.model, batch).shape == (2, 3)


def test_all_is_loaded_and_computed_in_the_type_that_is_asked_for(tmp_path):
    made("Roberta", Head.SEQUENCES).save_pretrained(tmp_path / "theirs")
    half = load_reader(tmp_path / "theirs", Head.SEQUENCES, dtype="bfloat16")
    assert {variable.dtype for _, variable in nnx.to_flat_state(nnx.state(half.model))} == {jnp.dtype("bfloat16")}
    mixed = load_reader(tmp_path / "theirs", Head.SEQUENCES, computes="bfloat16").model
    assert mixed.head.kernel.dtype == jnp.float32
    assert mixed.encoder.dtype == jnp.bfloat16
    save_reader(half, tmp_path / "ours")
    assert opened_by_transformers(tmp_path / "ours", Head.SEQUENCES).dtype == torch.bfloat16


def test_labels_keep_the_order_of_the_folder_unless_it_has_only_numbers(tmp_path):
    made("Bert", Head.TOKENS).save_pretrained(tmp_path / "named")
    assert load_reader(tmp_path / "named", Head.TOKENS, labels=("yes", "no", "perhaps")).labels == LABELS
    nameless = {"id2label": {0: "LABEL_0", 1: "LABEL_1"}, "label2id": {"LABEL_0": 0, "LABEL_1": 1}}
    made("Bert", Head.TOKENS, **nameless).save_pretrained(tmp_path / "nameless")
    assert load_reader(tmp_path / "nameless", Head.TOKENS).labels == ("LABEL_0", "LABEL_1")
    assert load_reader(tmp_path / "nameless", Head.TOKENS, labels=("yes", "no")).labels == ("yes", "no")


def test_a_real_minilm_gets_a_head_that_transformers_opens(tmp_path):
    reader = load_reader(minilm(), Head.SEQUENCES, labels=LABELS)
    assert not reader.model.fresh_pooler
    save_reader(reader, tmp_path / "ours")
    again = opened_by_transformers(tmp_path / "ours", Head.SEQUENCES)
    pairs = [("It rained all day.", "It was dry."), ("A longer text, with odd words: zyzzyva!", "Is it?")]
    given = reader.tokenizer(*zip(*pairs, strict=True), padding=True)
    batch = {"ids": given["input_ids"], "mask": given["attention_mask"], "types": given["token_type_ids"]}
    batch = {name: np.array(side) for name, side in batch.items()}
    np.testing.assert_allclose(our_logits(reader.model, batch), their_logits(again, batch), rtol=1e-4, atol=1e-4)
    assert again.config.vocab_size == len(transformers.AutoTokenizer.from_pretrained(tmp_path / "ours"))


def refusal(call, *given, **options):
    with pytest.raises(BadInput) as refused:
        call(*given, **options)
    assert re.fullmatch(r"[^\n]*\S\.", str(refused.value))
    return str(refused.value)


def test_heads_and_labels_that_do_not_fit_are_refused_in_one_sentence(tmp_path):
    made("Bert", Head.TOKENS).save_pretrained(tmp_path / "tokens")
    folder = tmp_path / "tokens"
    sentence = refusal(load_reader, folder, Head.SEQUENCES, labels=LABELS)
    assert "architectures = BertForTokenClassification: its head is for tokens, which must be sequences;" in sentence
    assert "has the labels no, perhaps, yes; give these" in refusal(load_reader, folder, "tokens", labels=("a", "b"))
    assert "has the labels no, perhaps, yes; give" in refusal(load_reader, folder, "tokens", labels=("no", "yes", "x"))
    assert "one is there twice" in refusal(load_reader, folder, "tokens", labels=("no", "no", "x"))
    assert refusal(load_reader, folder, "words").startswith("head = 'words': it must be one of sequences, tokens,")
    assert refusal(load_reader, folder, "tokens", strategy="all").startswith("strategy = 'all': it must be one of bi")
    assert "reads with word vectors" in refusal(load_reader, folder, "tokens", strategy="bilstm", labels=LABELS)
    change_tensors(folder, lambda tensors: tensors.pop("classifier.bias"))
    assert "the tensor classifier.bias is missing; check" in refusal(load_reader, folder, Head.TOKENS)
    made("Bert", Head.SEQUENCES).save_pretrained(tmp_path / "sequences")
    change_tensors(
        tmp_path / "sequences", lambda tensors: [tensors.pop(f"bert.pooler.dense.{w}") for w in ("weight", "bias")]
    )
    sentence = refusal(load_reader, tmp_path / "sequences", Head.SEQUENCES)
    assert "the tensor bert.pooler.dense.weight is missing;" in sentence
    bare("Bert").save_pretrained(tmp_path / "bare")
    assert refusal(load_reader, tmp_path / "bare", Head.TOKENS).endswith(
        "bare has none of its own; name those that are to be learned."
    )
    assert "labels = a, b: spans have no labels" in refusal(load_reader, tmp_path / "bare", "spans", labels=("a", "b"))
    config = {name: value for name, value in BERT.items() if name != "num_hidden_layers"}
    moved(transformers.BertModel(transformers.BertConfig(**config, num_hidden_layers=1))).save_pretrained(
        tmp_path / "shallow"
    )
    assert "the encoder has 1 layer, and must have at least 2; choose tr-all." in refusal(
        load_reader, tmp_path / "shallow", Head.TOKENS, labels=LABELS, strategy=Strategy.TR_LAST2
    )
    vectors = word_vectors.WordVectors(word_vectors.Config(5, 4), rngs=nnx.Rngs(0))
    sentence = refusal(word_reader, vectors, word_vectors.tokenizer(("a", "b")), Head.TOKENS, LABELS)
    assert sentence.startswith("tokenizer: it has 6 tokens, and there are 5 vectors;")


def test_a_folder_of_ours_that_does_not_fit_is_refused_in_one_sentence(tmp_path):
    words = word_vectors.WordVectors(word_vectors.Config(6, 4), rngs=nnx.Rngs(0))
    folder = tmp_path / "ours"
    save_reader(word_reader(words, word_vectors.tokenizer(("a", "b")), Head.TOKENS, LABELS, hidden=3), folder)
    assert "head = spans: the reader in" in refusal(load_reader, folder, Head.SPANS)
    assert "is for bilstm; give that" in refusal(load_reader, folder, Head.TOKENS, strategy=Strategy.TR_ALL)
    assert "has the labels no, perhaps, yes" in refusal(load_reader, folder, Head.TOKENS, labels=("a", "b"))
    assert "dtype = 'int8': it must be float32 or" in refusal(load_reader, folder, Head.TOKENS, dtype="int8")
    said = json.loads((folder / "config.json").read_text())
    change_config(folder, labels=["a"])
    assert "it names 1 labels, and the reader has 3;" in refusal(load_reader, folder, Head.TOKENS)
    change_config(folder, labels=said["labels"], entrance="pictures")
    assert "config.json: it cannot be read ('pictures' is missing)" in refusal(load_reader, folder, Head.TOKENS)
    change_config(folder, entrance="word-vectors", encoder={**said["encoder"], "vocabulary": 5})
    assert "the tensor encoder.tokens.table has the shape [6, 4]" in refusal(load_reader, folder, Head.TOKENS)
    change_config(folder, encoder=said["encoder"])
    change_tensors(folder, lambda tensors: tensors.pop("head.kernel"))
    assert "the tensor head.kernel is missing" in refusal(load_reader, folder, Head.TOKENS)


def test_an_encoder_that_was_saved_alone_is_read(tmp_path):
    made("Bert", Head.SPANS).save_pretrained(tmp_path / "theirs")
    save_encoder(load_encoder(tmp_path / "theirs"), tmp_path / "alone")
    reader = load_reader(tmp_path / "alone", Head.TOKENS, labels=LABELS)
    assert isinstance(reader.model.encoder, bert.BERT)
