"""Adapters in PEFT's format, with PEFT itself as the oracle: what it reads, what it writes, and what it computes."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForSeq2SeqLM

from dpnlp.checks import BadInput
from dpnlp.models import lora, pretrained

from .hugging_face import random_model, t5_folder, torch

peft = pytest.importorskip("peft")
# PEFT says so of an output layer with adapters, also where the weights have one of their own.
pytestmark = pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning")

BART = {"model_type": "bart", "vocab_size": 40, "d_model": 16, "max_position_embeddings": 32}
BART |= {f"{side}_{part}": 2 for side in ("encoder", "decoder") for part in ("layers", "attention_heads")}
BART |= {f"{side}_ffn_dim": 24 for side in ("encoder", "decoder")}
RNG = np.random.default_rng(0)
IDS, INPUTS = RNG.integers(3, 40, (3, 9)), RNG.integers(3, 40, (3, 7))
MASK = np.ones((3, 9), int)
MASK[1, 5:] = 0
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    random_model(BART).save_pretrained(root / "BART")
    return {
        "T5": t5_folder(root / "T5"),
        "T5 1.1": t5_folder(root / "T5 1.1", feed_forward_proj="gated-gelu", tie_word_embeddings=False),
        "BART": root / "BART",
    }


def adapted(folder, where=("query", "value"), rank=3, alpha=4.5, **options):
    """A model from a folder, with adapters that change what it computes."""
    loaded = pretrained.load(folder, **options)
    lora.adapt(loaded.model, rank, alpha=alpha, where=where, rngs=nnx.Rngs(1))
    for layer in lora.adapted(loaded.model).values():
        layer.B.set_value(0.2 * jax.random.normal(jax.random.key(layer.B.size), layer.B.shape))
    return loaded


def our_logits(loaded):
    return np.asarray(jax.jit(lambda *batch: loaded.model(*batch))(IDS, MASK, INPUTS).astype(jnp.float32))


def their_logits(model):
    ids, mask, inputs = map(torch.tensor, (IDS, MASK, INPUTS))
    with torch.no_grad():
        return model.eval()(input_ids=ids, attention_mask=mask, decoder_input_ids=inputs).logits.numpy()


def opened(folder, adapters=None):
    """A model of transformers, with adapters of PEFT."""
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    return model if adapters is None else peft.PeftModel.from_pretrained(model, adapters)


def made_by_peft(folder, saved, **options):
    """The logits of a model with random adapters of PEFT, which are saved."""
    torch.manual_seed(1)
    options = {"r": 2, "lora_alpha": 3, "init_lora_weights": False} | options
    config = peft.LoraConfig(task_type="SEQ_2_SEQ_LM", **options)
    model = peft.get_peft_model(opened(folder), config)
    model.save_pretrained(saved)
    return their_logits(model)


def assert_close(found, expected, base):
    """The logits agree to 1e-4, and the adapters change them by far more."""
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert np.abs(expected - base).max() > 0.1


def values(loaded):
    return {path: np.asarray(value[...]) for path, value in nnx.to_flat_state(nnx.state(loaded.model))}


def refusal(call, *args, **options):
    """The sentence with which a call is refused."""
    with pytest.raises(BadInput) as refused:
        call(*args, **options)
    sentence = str(refused.value)
    assert re.fullmatch(r"[^\n]*\S\.", sentence)
    return sentence


CASES = [
    ("T5", ("query", "value")),
    ("T5", "decoder.last:1.cross_attention"),
    ("T5 1.1", "*"),
    ("BART", ("query", "value")),
    ("BART", "*"),
]


@pytest.mark.parametrize(("name", "where"), CASES)
def test_peft_opens_what_was_saved_and_computes_the_same(folders, name, where, tmp_path):
    loaded = adapted(folders[name], where)
    pretrained.save_adapters(loaded, tmp_path / "saved", str(folders[name]))
    theirs = opened(folders[name], tmp_path / "saved")
    assert_close(our_logits(loaded), their_logits(theirs), their_logits(opened(folders[name])))
    tuned = [module for module in theirs.modules() if isinstance(module, peft.tuners.lora.Linear)]
    assert len(tuned) == len(lora.adapted(loaded.model))


def test_the_config_is_read_by_peft_and_says_which_model_it_is_for(folders, tmp_path):
    for alpha in (8.0, 4.5):
        saved = tmp_path / str(alpha)
        pretrained.save_adapters(adapted(folders["BART"], "decoder.1.*.key", alpha=alpha), saved, "some/model")
        config = peft.PeftConfig.from_pretrained(saved)
        assert isinstance(config, peft.LoraConfig)
        assert (config.task_type, config.base_model_name_or_path) == ("SEQ_2_SEQ_LM", "some/model")
        assert (config.r, config.lora_alpha, config.inference_mode, config.bias) == (3, alpha, True, "none")
        attention = "model.decoder.layers.1.{}.k_proj"
        assert config.target_modules == {attention.format(one) for one in ("self_attn", "encoder_attn")}
    assert '"lora_alpha": 8,' in (tmp_path / "8.0" / CONFIG).read_text()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("T5", {"target_modules": ["q", "v", "wi_0"]}),
        ("T5", {"target_modules": ["o"]}),  # and not wo
        ("T5", {"target_modules": r".*decoder.*EncDecAttention.(k|o)", "lora_alpha": 2.5}),
        ("T5 1.1", {"target_modules": "all-linear", "lora_dropout": 0.1}),
        ("BART", {"target_modules": ["q_proj", "fc1", "decoder.layers.0.fc2"]}),
        ("BART", {"target_modules": ["out_proj", "fc2"], "exclude_modules": r".*\.encoder\..*"}),
        ("BART", {}),
    ],
)
def test_adapters_that_peft_made_are_loaded(folders, name, options, tmp_path):
    expected = made_by_peft(folders[name], tmp_path / "saved", **options)
    loaded = pretrained.load(folders[name])
    chosen = pretrained.load_adapters(loaded, tmp_path / "saved")
    assert chosen == sorted(lora.adapted(loaded.model))
    assert 2 * len(chosen) == len(load_file(tmp_path / "saved" / WEIGHTS))
    assert_close(our_logits(loaded), expected, their_logits(opened(folders[name])))


@pytest.mark.parametrize(("name", "where"), CASES)
def test_a_round_trip_changes_nothing(folders, name, where, tmp_path):
    before = adapted(folders[name], where)
    pretrained.save_adapters(before, tmp_path / "saved", "some/model")
    after = pretrained.load(folders[name])
    pretrained.load_adapters(after, tmp_path / "saved")
    assert [(one.rank, one.alpha) for one in lora.adapted(after.model).values()] == [(3, 4.5)] * len(
        lora.adapted(before.model)
    )
    expected, found = values(before), values(after)
    assert found.keys() == expected.keys()
    for path, value in expected.items():
        np.testing.assert_array_equal(found[path], value)


@pytest.mark.parametrize(("name", "where"), CASES)
def test_a_merged_folder_is_an_ordinary_model_that_computes_the_same(folders, name, where, tmp_path):
    loaded = adapted(folders[name], where)
    before = values(loaded)
    pretrained.save(loaded, tmp_path / "saved", merge=True, shard_bytes=9000)
    assert_close(their_logits(opened(tmp_path / "saved")), our_logits(loaded), their_logits(opened(folders[name])))
    assert lora.adapted(pretrained.load(tmp_path / "saved").model) == {}
    after = values(loaded)
    assert after.keys() == before.keys()
    assert all((after[path] == before[path]).all() for path in before)


def test_what_is_merged_when_it_is_saved_is_what_lora_merges(folders, tmp_path):
    loaded = adapted(folders["T5"], "*", dtype="bfloat16")
    pretrained.save(loaded, tmp_path / "one", merge=True)
    lora.merge(loaded.model)
    pretrained.save(loaded, tmp_path / "other")
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "other"))
    assert one.keys() == other.keys()
    assert {tensor.dtype for tensor in one.values()} == {jnp.dtype("bfloat16")}
    assert all((one[name] == other[name]).all() for name in one)


def test_weights_are_merged_one_at_a_time_when_they_are_written(folders, tmp_path, monkeypatch):
    events, merge, write = [], lora.LoRA.weight, f"{pretrained.__name__}.weights.save_file"
    monkeypatch.setattr(lora.LoRA, "weight", lambda layer: events.append("merged") or merge(layer))
    monkeypatch.setattr(write, lambda tensors, *rest, **more: events.append("written") or save_file(tensors, *rest))
    pretrained.save(adapted(folders["T5"], "*"), tmp_path / "saved", merge=True, shard_bytes=1)
    assert events.count("merged") == 32
    assert "merged merged" not in " ".join(events)


def test_merge_without_adapters_saves_the_model(folders, tmp_path):
    pretrained.save(pretrained.load(folders["T5"]), tmp_path / "saved", merge=True)
    np.testing.assert_array_equal(their_logits(opened(tmp_path / "saved")), their_logits(opened(folders["T5"])))


def test_adapters_of_another_type_are_read_exactly(folders, tmp_path):
    expected = made_by_peft(folders["T5"], tmp_path / "saved", target_modules=["q"])
    change_tensors(tmp_path / "saved", lambda tensors: tensors.update({n: t.astype("f2") for n, t in tensors.items()}))
    loaded = pretrained.load(folders["T5"])
    pretrained.load_adapters(loaded, tmp_path / "saved")
    assert {layer.A.dtype for layer in lora.adapted(loaded.model).values()} == {jnp.dtype("float32")}
    np.testing.assert_allclose(our_logits(loaded), expected, rtol=0.01, atol=0.01)


def change_tensors(folder, change):
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def change_config(folder, **changes):
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | changes))


@pytest.fixture
def saved(folders, tmp_path):
    """Adapters of PEFT in their folder."""
    made_by_peft(folders["T5"], tmp_path / "adapters", target_modules=["q", "v"])
    return tmp_path / "adapters"


Q = "base_model.model.encoder.block.1.layer.0.SelfAttention.q"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tensors: tensors.pop(f"{Q}.lora_A.weight"), f"the tensor {Q}.lora_A.weight is missing; check that"),
        (lambda tensors: tensors.pop(f"{Q}.lora_B.weight"), f"the tensor {Q}.lora_B.weight is missing; check that"),
        (
            lambda tensors: [tensors.pop(f"{Q}.lora_{side}.weight") for side in "AB"],
            f"the tensor {Q}.lora_A.weight is missing; check that",
        ),
        (
            lambda tensors: tensors.update({f"{Q}.lora_A.weight": tensors[f"{Q}.lora_B.weight"]}),
            f"the tensor {Q}.lora_A.weight has the shape [24, 2], and by the model and r it is [2, 24]; check that",
        ),
        (
            lambda tensors: tensors.update({f"{Q}.lora_magnitude_vector": np.ones(24, "f4")}),
            f"the tensor {Q}.lora_magnitude_vector is no adapter of a linear layer that the model has and",
        ),
        (
            lambda tensors: tensors.update({"base_model.model.shared.lora_A.weight": np.ones((2, 40), "f4")}),
            "the tensor base_model.model.shared.lora_A.weight is no adapter of a linear layer that the model has and",
        ),
        (
            lambda tensors: tensors.update({f"{Q}.lora_A.weight": np.ones((2, 24), np.int8)}),
            f"the tensor {Q}.lora_A.weight is of type I8, which must be F32, F16 or BF16",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused_and_the_model_stays_as_it_is(folders, saved, change, said):
    change_tensors(saved, change)
    loaded = pretrained.load(folders["T5"])
    sentence = refusal(pretrained.load_adapters, loaded, saved)
    assert sentence.startswith(f"{saved / WEIGHTS}: {said}")
    assert lora.adapted(loaded.model) == {}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"peft_type": "IA3"}, "peft_type = 'IA3': it must be 'LORA'; take such adapters."),
        ({"r": 0}, "r = 0: it must be a whole number of at least 1."),
        ({"r": None}, "r = None: it must be a whole number of at least 1."),
        ({"lora_alpha": -1}, "lora_alpha = -1: it must be a finite number above 0."),
        ({"use_rslora": True}, "use_rslora = True is not supported; take adapters that were made without it, or "),
        ({"use_dora": True}, "use_dora = True is not supported; "),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save = ['lm_head'] is not supported; "),
        ({"bias": "lora_only"}, "bias = 'lora_only' is not supported; "),
        ({"rank_pattern": {"q": 4}}, "rank_pattern = {'q': 4} is not supported; "),
        ({"init_lora_weights": "pissa"}, "init_lora_weights = 'pissa' is not supported; "),
        ({"layers_to_transform": [1]}, "layers_to_transform = [1] is not supported; "),
        ({"something_new": {"a": 1}}, "something_new = {'a': 1} is not supported; "),
        ({"target_modules": ["q_proj"]}, "target_modules = ['q_proj'] names no linear layer of this t5; take the"),
        ({"target_modules": "shared"}, "target_modules = 'shared' names no linear layer of this t5; take the"),
        ({"target_modules": None}, "target_modules = None names no linear layer of this t5; take the"),
        ({"target_modules": "(q"}, "it cannot be read ("),
        ({"target_modules": 3}, "it cannot be read ("),
    ],
)
def test_adapters_that_compute_otherwise_are_refused(folders, saved, changes, said):
    change_config(saved, **changes)
    loaded = pretrained.load(folders["T5"])
    assert refusal(pretrained.load_adapters, loaded, saved).startswith(f"{saved / CONFIG}: {said}")
    assert lora.adapted(loaded.model) == {}


@pytest.mark.parametrize("options", [{"use_rslora": True}, {"use_dora": True}, {"init_lora_weights": "olora"}])
def test_what_peft_makes_of_another_kind_is_refused(folders, options, tmp_path):
    made_by_peft(folders["BART"], tmp_path / "saved", **options)
    ((name, value),) = options.items()
    said = refusal(pretrained.load_adapters, pretrained.load(folders["BART"]), tmp_path / "saved")
    assert said.startswith(f"{tmp_path / 'saved' / CONFIG}: {name} = {value!r} is not supported; ")


@pytest.mark.filterwarnings("ignore:Setting `save_embedding_layers`:UserWarning")
@pytest.mark.parametrize("name", ["T5", "T5 1.1"])
def test_the_output_layer_is_refused_where_it_is_a_table_or_saved_with_its_weights(folders, name, tmp_path):
    made_by_peft(folders[name], tmp_path / "saved", target_modules=["q", "lm_head"])
    sentence = refusal(pretrained.load_adapters, pretrained.load(folders[name]), tmp_path / "saved")
    assert "the tensor base_model.model.lm_head." in sentence
    assert sentence.endswith("leave such layers out, and save with save_embedding_layers=False.")


@pytest.mark.parametrize("file", [CONFIG, WEIGHTS])
def test_a_folder_without_adapters_is_refused(folders, saved, file):
    (saved / file).unlink()
    assert refusal(pretrained.load_adapters, pretrained.load(folders["T5"]), saved) == (
        f"{saved}: there is no {file} in it; give a folder of adapters that PEFT can read."
    )


@pytest.mark.parametrize("file", [CONFIG, WEIGHTS])
def test_a_damaged_file_is_refused(folders, saved, file):
    (saved / file).write_bytes((saved / file).read_bytes()[:-100])
    sentence = refusal(pretrained.load_adapters, pretrained.load(folders["T5"]), saved)
    assert sentence.startswith(f"{saved / file}: it cannot be read (")


def test_adapters_of_another_model_are_refused(folders, saved):
    assert refusal(pretrained.load_adapters, pretrained.load(folders["BART"]), saved) == (
        f"{saved / CONFIG}: target_modules = {json.loads((saved / CONFIG).read_text())['target_modules']} "
        "names no linear layer of this bart; take the model that the adapters were made for."
    )


def test_a_model_that_has_adapters_gets_no_others(folders, saved):
    loaded = adapted(folders["T5"])
    assert refusal(pretrained.load_adapters, loaded, saved) == (
        "adapters: the model has some already; merge them before it gets others."
    )


def test_a_model_with_adapters_is_saved_one_way_or_the_other(folders, tmp_path):
    assert refusal(pretrained.save, adapted(folders["T5"]), tmp_path / "saved") == (
        "merge = False: the model has adapters, which have no place in its folder; save it with merge=True, or the "
        "adapters alone with `save_adapters`."
    )
    assert list(tmp_path.iterdir()) == []


def test_no_adapters_or_different_ones_are_not_saved(folders, tmp_path):
    assert refusal(pretrained.save_adapters, pretrained.load(folders["T5"]), tmp_path / "saved", "some/model") == (
        "adapters: the model has none; put some in with `lora.adapt`, or save the model with `save`."
    )
    loaded = adapted(folders["T5"])
    loaded.model.encoder[0].self_attention.query.alpha = 2.0
    assert refusal(pretrained.save_adapters, loaded, tmp_path / "saved", "some/model") == (
        "(rank, alpha) = (3, 2), (3, 4.5): all adapters must have the same; save the model with merge=True."
    )
    assert list(tmp_path.iterdir()) == []


def test_adapters_are_saved_whole_or_not_at_all_and_overwrite_nothing(folders, tmp_path, monkeypatch):
    loaded = adapted(folders["T5"])
    assert refusal(pretrained.save_adapters, loaded, folders["T5"], "some/model").startswith(
        f"folder = {folders['T5']}: there is something in it already; "
    )

    def full(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(f"{pretrained.__name__}.weights.save_file", full)
    with pytest.raises(OSError, match="no space left"):
        pretrained.save_adapters(loaded, tmp_path / "new" / "saved", "some/model")
    assert list((tmp_path / "new").iterdir()) == []
