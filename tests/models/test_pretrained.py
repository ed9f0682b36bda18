"""Folders of Hugging Face, with transformers itself as the oracle: what it computes, and what it opens."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.numpy import load_file
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    MBart50Tokenizer,
    MBartTokenizer,
    NllbTokenizer,
)

from dpnlp.checks import BadInput
from dpnlp.models import pretrained, t5
from dpnlp.models.generation import generate

from .hugging_face import T5_VARIANTS, change_config, change_tensors, random_model, t5_folder, tokenizer, torch

LENGTH, TARGET = 15, 14


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {name: t5_folder(tmp_path_factory.mktemp("t5"), **options) for name, options in T5_VARIANTS.items()}


@pytest.fixture
def folder(tmp_path):
    return t5_folder(tmp_path / "model")


def texts():
    """Inputs without padding, with padding after and with padding before; what the decoder is given, padded too."""
    rng = np.random.default_rng(0)
    mask = np.ones((3, LENGTH), int)
    mask[1, 5:], mask[2, :4] = 0, 0
    ids, inputs = rng.integers(3, 40, (3, LENGTH)) * mask, rng.integers(3, 40, (3, TARGET))
    inputs[:, 0], inputs[1, 6:] = 0, 0
    return ids, mask, inputs


def their_logits(folder, **options):
    ids, mask, inputs = map(torch.tensor, texts())
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, **options).eval()
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=mask, decoder_input_ids=inputs).logits.float().numpy()


def our_logits(loaded):
    return np.asarray(jax.jit(lambda *batch: loaded.model(*batch))(*texts()).astype(jnp.float32))


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=3e-5, atol=3e-5)


def tensors(folder):
    """All tensors of a folder, by their name."""
    files = [load_file(path) for path in sorted(folder.glob("*.safetensors"))]
    assert sum(map(len, files)) == len({name for file in files for name in file})
    return {name: tensor for file in files for name, tensor in file.items()}


def assert_same_bits(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].tobytes() == tensor.tobytes(), name


def refusal(call, *args, **options):
    """The sentence with which a call is refused."""
    with pytest.raises(BadInput) as refused:
        call(*args, **options)
    sentence = str(refused.value)
    assert re.fullmatch(r"[^\n]*\S\.", sentence)
    assert not re.search(r"\. [A-Z]", sentence)
    return sentence


@pytest.mark.parametrize("variant", T5_VARIANTS)
def test_logits_are_those_of_transformers(folders, variant):
    assert_close(our_logits(pretrained.load(folders[variant])), their_logits(folders[variant]))


@pytest.mark.parametrize("variant", T5_VARIANTS)
def test_transformers_opens_what_was_saved_and_computes_the_same(folders, variant, tmp_path):
    pretrained.save(pretrained.load(folders[variant]), tmp_path / "saved")
    np.testing.assert_array_equal(their_logits(tmp_path / "saved"), their_logits(folders[variant]))
    written = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert written["tie_word_embeddings"] is T5_VARIANTS[variant].get("tie_word_embeddings", True)


@pytest.mark.parametrize("variant", T5_VARIANTS)
def test_a_round_trip_changes_no_tensor(folders, variant, tmp_path):
    pretrained.save(pretrained.load(folders[variant]), tmp_path / "saved")
    assert_same_bits(tensors(tmp_path / "saved"), tensors(folders[variant]))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("scaled", [True, False])
def test_the_output_is_scaled_by_the_config_and_tied_by_the_weights(tmp_path, scaled, tied):
    folder = t5_folder(tmp_path / "model", tied=tied, tie_word_embeddings=scaled)
    loaded = pretrained.load(folder)
    assert (loaded.model.config.scaled_output, loaded.model.config.tied) == (scaled, tied)
    expected = their_logits(folder)
    assert_close(our_logits(loaded), expected)
    pretrained.save(loaded, tmp_path / "saved")
    np.testing.assert_array_equal(their_logits(tmp_path / "saved"), expected)
    again = pretrained.load(tmp_path / "saved").model.config
    assert again == loaded.model.config


def test_a_trained_model_is_saved_as_it_is_now(folder, tmp_path):
    loaded = pretrained.load(folder)
    for _, variable in nnx.to_flat_state(nnx.state(loaded.model)):
        variable.set_value(variable[...] * 1.25)
    pretrained.save(loaded, tmp_path / "saved")
    assert_same_bits(
        tensors(tmp_path / "saved"), {name: tensor * np.float32(1.25) for name, tensor in tensors(folder).items()}
    )
    assert_close(our_logits(loaded), their_logits(tmp_path / "saved"))


def test_shards_are_read(folder, tmp_path):
    sharded = t5_folder(tmp_path / "sharded", shards="9KB")
    assert len(list(sharded.glob("*.safetensors"))) > 2
    np.testing.assert_array_equal(our_logits(pretrained.load(sharded)), our_logits(pretrained.load(folder)))


def test_shards_are_written_and_none_is_larger_than_asked_or_without_need(folder, tmp_path):
    saved, limit = tmp_path / "saved", 9000
    pretrained.save(pretrained.load(folder), saved, shard_bytes=limit)
    files = sorted(saved.glob("*.safetensors"))
    assert [path.name for path in files] == [
        f"model-{n:05}-of-{len(files):05}.safetensors" for n in range(1, 1 + len(files))
    ]
    sizes = [sum(tensor.nbytes for tensor in load_file(path).values()) for path in files]
    assert len(sizes) > 2
    assert max(sizes) <= limit
    assert all(one + following > limit for one, following in pairwise(sizes))
    index = json.loads((saved / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(sizes)
    assert index["weight_map"] == {name: path.name for path in files for name in load_file(path)}
    assert_same_bits(tensors(saved), tensors(folder))
    np.testing.assert_array_equal(their_logits(saved), their_logits(folder))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_files_of_half_the_width_are_read_exactly(tmp_path, dtype):
    folder = t5_folder(tmp_path / "model", dtype=dtype)
    change_config(folder, dtype=dtype)
    expected = their_logits(folder, dtype="float32")
    loaded = pretrained.load(folder)
    assert_close(our_logits(loaded), expected)
    pretrained.save(loaded, tmp_path / "saved")
    np.testing.assert_array_equal(their_logits(tmp_path / "saved"), expected)


def test_parameters_of_type_bfloat16_make_a_round_trip_too(tmp_path):
    folder = t5_folder(tmp_path / "model", dtype="bfloat16")
    loaded = pretrained.load(folder, dtype="bfloat16")
    assert {variable.dtype for _, variable in nnx.to_flat_state(nnx.state(loaded.model))} == {jnp.dtype("bfloat16")}
    pretrained.save(loaded, tmp_path / "saved")
    assert_same_bits(tensors(tmp_path / "saved"), tensors(folder))
    assert AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "saved").dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("options", "stored", "computes"),
    [
        ({}, "float32", "float32"),
        ({"dtype": "bfloat16"}, "bfloat16", "bfloat16"),
        ({"computes": "bfloat16"}, "float32", "bfloat16"),
        ({"dtype": "bfloat16", "computes": "float32"}, "bfloat16", "float32"),
    ],
)
def test_types_of_parameters_and_of_computing_are_chosen_apart(folder, options, stored, computes):
    model = pretrained.load(folder, **options).model
    assert model.tokens.table.dtype == stored
    assert model.config.dtype == computes
    assert jax.eval_shape(lambda: model(*texts())).dtype == computes


def test_options_replace_what_the_config_says(folder):
    config = pretrained.load(folder).model.config
    assert (config.dropout, config.rematerialise) == (0.1, False)
    changed = pretrained.load(folder, dropout=0.0, rematerialise=True).model.config
    assert changed == replace(config, dropout=0.0, rematerialise=True)


def test_every_parameter_has_its_place_in_the_file():
    shape = {"vocabulary": 7, "width": 4, "heads": 2, "head_width": 3, "hidden": 5}
    for tied, gated in ((True, False), (False, True)):
        config = t5.Config(**shape, encoder_layers=1, decoder_layers=2, tied=tied, gated=gated)
        model = nnx.eval_shape(lambda config=config: t5.T5(config, rngs=nnx.Rngs(0)))
        paths = {".".join(map(str, path)) for path, _ in nnx.to_flat_state(nnx.state(model))}
        assert pretrained.FAMILIES["t5"].names(config).keys() == paths


def test_copies_of_a_tensor_and_remains_of_old_versions_are_no_extra_tensors(folder):
    expected = our_logits(pretrained.load(folder))

    def old(tensors):
        for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"):
            tensors[name] = tensors["shared.weight"].copy()
        tensors["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = np.ones((8, 3), np.float32)

    change_tensors(folder, old)
    loaded = pretrained.load(folder)
    assert loaded.model.config.tied
    np.testing.assert_array_equal(our_logits(loaded), expected)


@pytest.mark.parametrize("name", ["encoder.embed_tokens.weight", "lm_head.weight"])
def test_the_table_is_found_under_another_name(folder, name):
    expected = our_logits(pretrained.load(folder))
    change_tensors(folder, lambda tensors: tensors.update({name: tensors.pop("shared.weight")}))
    np.testing.assert_array_equal(our_logits(pretrained.load(folder)), expected)


def test_generation_is_read_where_it_is_written_and_else_made_from_the_config(folder, tmp_path):
    GenerationConfig(num_beams=3, decoder_start_token_id=5).save_pretrained(folder)
    loaded = pretrained.load(folder)
    assert (loaded.generation.num_beams, loaded.generation.decoder_start_token_id) == (3, 5)
    pretrained.save(loaded, tmp_path / "saved")
    again = GenerationConfig.from_pretrained(tmp_path / "saved")
    assert (again.num_beams, again.decoder_start_token_id) == (3, 5)
    (folder / "generation_config.json").unlink()
    assert pretrained.load(folder).generation.decoder_start_token_id == 0


def test_a_tokenizer_goes_with_the_model(folder, tmp_path):
    assert pretrained.load(folder).tokenizer is None
    tokenizer().save_pretrained(folder)
    loaded = pretrained.load(folder)
    assert loaded.tokenizer("w5 w7 other").input_ids == [5, 7, 2, 1]
    pretrained.save(loaded, tmp_path / "saved")
    for again in (AutoTokenizer.from_pretrained(tmp_path / "saved"), pretrained.load(tmp_path / "saved").tokenizer):
        assert again("w5 w7 other").input_ids == [5, 7, 2, 1]


def test_a_model_of_the_hub_is_downloaded(folder, monkeypatch):
    asked = []
    monkeypatch.setattr(
        f"{pretrained.__name__}.opening.snapshot_download", lambda name, **options: asked.append(name) or str(folder)
    )
    np.testing.assert_array_equal(our_logits(pretrained.load("some/model")), our_logits(pretrained.load(folder)))
    assert asked == ["some/model"]


def test_nothing_of_the_library_needs_torch(folder, tmp_path):
    tokenizer().save_pretrained(folder)
    code = (
        "import sys; sys.modules['torch'] = None; from dpnlp.models import pretrained; "
        "pretrained.save(pretrained.load(sys.argv[1]), sys.argv[2])"
    )
    subprocess.run([sys.executable, "-c", code, folder, tmp_path / "saved"], check=True, capture_output=True)
    np.testing.assert_array_equal(their_logits(tmp_path / "saved"), their_logits(folder))


@pytest.mark.parametrize("answer", [LocalEntryNotFoundError("No route.\nAnd more."), OSError("no network")])
def test_a_hub_that_has_no_answer_is_one_sentence(monkeypatch, answer):
    def refuse(*_, **__):
        raise answer

    monkeypatch.setattr(f"{pretrained.__name__}.opening.snapshot_download", refuse)
    sentence = refusal(pretrained.load, "some/model")
    assert sentence.startswith("source = some/model: there is no such folder, and the Hugging Face hub does not")
    assert "give the path of its folder" in sentence


def test_a_path_that_is_none_is_refused(tmp_path):
    missing = tmp_path / "missing"
    assert refusal(pretrained.load, missing) == (
        f"source = {missing}: there is no such folder; give one that holds a config.json."
    )


def test_a_folder_without_a_config_is_refused(folder):
    (folder / "config.json").unlink()
    assert refusal(pretrained.load, folder).startswith(f"{folder}: there is no config.json in it; ")


def test_a_folder_of_another_framework_is_refused_with_the_conversion(folder, tmp_path, monkeypatch):
    tokenizer().save_pretrained(folder)
    torch.save(AutoModelForSeq2SeqLM.from_pretrained(folder).state_dict(), folder / "pytorch_model.bin")
    expected = their_logits(folder)
    (folder / "model.safetensors").unlink()
    sentence = refusal(pretrained.load, folder)
    assert sentence.startswith(f"{folder}: there is no model.safetensors in it; convert other weights with python -c ")
    code = re.search(r'python -c "(.*)"\.$', sentence)[1]
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert_close(our_logits(pretrained.load("model-safetensors")), expected)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "umt5"}, r"config\.json: model_type = 'umt5' is not one of t5, mt5"),
        ({"model_type": None}, r"config\.json: model_type = None is not one of t5, mt5"),
        ({"num_heads": 0}, r"config\.json: heads = 0: it must be a whole number of at least 1\."),
        ({"num_heads": -3}, r"config\.json: heads = -3: "),
        ({"num_heads": "eight"}, r"config\.json: it cannot be read \(.*'num_heads' expected int.*'eight'"),
        ({"d_model": 0}, r"config\.json: width = 0: "),
        ({"num_decoder_layers": 0}, r"config\.json: decoder_layers = 0: "),
        ({"vocab_size": -1}, r"config\.json: vocabulary = -1: "),
        ({"relative_attention_num_buckets": 3}, r"config\.json: buckets = 3: .*at least 4"),
        ({"relative_attention_max_distance": 4}, r"config\.json: furthest = 4: .*at least 5"),
        ({"layer_norm_epsilon": 0.0}, r"config\.json: epsilon = 0\.0: "),
        ({"feed_forward_proj": "tanh"}, r"config\.json: feed_forward_proj = 'tanh': .*relu, silu"),
        ({"dropout_rate": 1.5}, r"dropout = 1\.5: it must be at least 0 and below 1"),
    ],
)
def test_a_config_of_nonsense_is_refused(folder, changes, said):
    change_config(folder, **changes)
    assert re.search(said, refusal(pretrained.load, folder))


def test_a_config_that_is_no_json_is_refused(folder):
    (folder / "config.json").write_text("{")
    assert refusal(pretrained.load, folder).startswith(
        f"{folder / 'config.json'}: it cannot be read (Expecting property name"
    )


NORM = "decoder.final_layer_norm.weight"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tensors: tensors.pop(NORM), f"the tensor {NORM} is missing; check that config.json"),
        (lambda tensors: tensors.update(pooler=np.ones(3, np.float32)), "the tensor pooler has no place in the model"),
        (
            lambda tensors: tensors.update({NORM: np.ones(25, np.float32)}),
            f"the tensor {NORM} has the shape [25], and by config.json it is [24]",
        ),
        (
            lambda tensors: tensors.update(
                {"encoder.block.1.layer.1.DenseReluDense.wi.weight": np.ones((24, 20), "f4")}
            ),
            "DenseReluDense.wi.weight has the shape [24, 20], and by config.json it is [20, 24]",
        ),
        (
            lambda tensors: tensors.update({"encoder.embed_tokens.weight": tensors["shared.weight"] + 1}),
            "the tensors shared.weight and encoder.embed_tokens.weight differ, and the model has one",
        ),
        (
            lambda tensors: tensors.update({"lm_head.weight": np.ones((41, 24), np.float32)}),
            "the tensor lm_head.weight has the shape [41, 24], and by config.json it is [40, 24]",
        ),
        (
            lambda tensors: tensors.update({NORM: np.ones(24, np.int8)}),
            f"the tensor {NORM} is of type I8, which must be F32, F16 or BF16",
        ),
    ],
)
def test_weights_of_another_model_are_refused(folder, change, said):
    change_tensors(folder, change)
    sentence = refusal(pretrained.load, folder)
    assert sentence.startswith(str(folder))
    assert said in sentence


def test_a_damaged_file_is_refused(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    assert refusal(pretrained.load, folder).startswith(f"{path}: it cannot be read (Error while deserializing header")


def test_a_damaged_tokenizer_is_refused(folder):
    (folder / "tokenizer.json").write_text("{")
    assert refusal(pretrained.load, folder).startswith(f"the tokenizer in {folder}: it cannot be read (")


def test_a_lost_shard_is_refused(tmp_path):
    folder = t5_folder(tmp_path / "model", shards="9KB")
    lost = sorted(folder.glob("*.safetensors"))[1]
    lost.unlink()
    assert refusal(pretrained.load, folder).startswith(f"{lost}: it is named in model.safetensors.index.json and does")


@pytest.mark.parametrize("text", ["{", "{}", '{"weight_map": 3}'])
def test_a_damaged_index_is_refused(folder, text):
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(text)
    assert refusal(pretrained.load, folder).startswith(f"{index}: it cannot be read (")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"words": 41}, "the tokenizer has 41 tokens, and the model's vocab_size is 40; take the tokenizer that"),
        ({"pad": "w3"}, "pad_token_id is 3 in the tokenizer and 0 in config.json; take the tokenizer that"),
        ({"eos": "w4"}, "eos_token_id is 4 in the tokenizer and 1 in config.json; take the tokenizer that"),
    ],
)
def test_a_tokenizer_of_another_model_is_refused(folder, given, said):
    tokenizer(**given).save_pretrained(folder)
    assert said in refusal(pretrained.load, folder)


def test_a_model_may_have_more_rows_than_the_tokenizer_has_tokens_and_several_ends(folder):
    tokenizer(words=40).save_pretrained(folder)
    change_config(folder, eos_token_id=[7, 1])
    assert len(pretrained.load(folder).tokenizer) == 40


@pytest.mark.parametrize("name", ["dtype", "computes"])
def test_another_type_is_refused(folder, name):
    assert refusal(pretrained.load, folder, **{name: "float16"}) == (
        f"{name} = 'float16': it must be float32 or bfloat16."
    )


def test_a_rate_of_one_is_refused(folder):
    assert refusal(pretrained.load, folder, dropout=1.0) == "dropout = 1.0: it must be at least 0 and below 1."


def test_shards_of_no_size_are_refused(folder, tmp_path):
    sentence = refusal(pretrained.save, pretrained.load(folder), tmp_path / "saved", shard_bytes=0)
    assert sentence == "shard_bytes = 0: it must be a whole number of at least 1."


def test_nothing_is_overwritten(folder, tmp_path):
    loaded, before = pretrained.load(folder), tensors(folder)
    assert refusal(pretrained.save, loaded, folder).startswith(f"folder = {folder}: there is something in it already; ")
    assert_same_bits(tensors(folder), before)
    file = tmp_path / "file"
    file.write_text("mine")
    refusal(pretrained.save, loaded, file)
    assert file.read_text() == "mine"
    (tmp_path / "empty").mkdir()
    pretrained.save(loaded, tmp_path / "empty")
    assert_same_bits(tensors(tmp_path / "empty"), before)


def test_a_save_that_breaks_off_leaves_nothing(folder, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(f"{pretrained.__name__}.weights.save_file", full)
    with pytest.raises(OSError, match="no space left"):
        pretrained.save(pretrained.load(folder), tmp_path / "new" / "saved")
    assert list((tmp_path / "new").iterdir()) == []


def test_what_is_saved_may_be_read_by_whoever_may_read_the_folder(folder, tmp_path):
    pretrained.save(pretrained.load(folder), tmp_path / "saved")
    allowed = (tmp_path / "saved").stat().st_mode & 0o666
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "saved").iterdir()} == {allowed}


def test_a_model_with_other_parameters_is_not_saved(folder, tmp_path):
    loaded = pretrained.load(folder)
    loaded.model.adapter = nnx.Param(jnp.ones(3))
    assert refusal(pretrained.save, loaded, tmp_path / "saved").startswith("adapter: a t5 has no such parameter; take")
    assert not (tmp_path / "saved").exists()


BART = {"d_model": 16, "max_position_embeddings": 32, "scale_embedding": True, "init_std": 0.5}
BART |= {f"{side}_{part}": 2 for side in ("encoder", "decoder") for part in ("layers", "attention_heads")}
BART |= {f"{side}_ffn_dim": 24 for side in ("encoder", "decoder")}


def many_languages(folder, kind, made, **options):
    """A micro model that writes several languages, with its tokenizer."""
    config = {"model_type": kind, "vocab_size": len(made), "pad_token_id": made.pad_token_id, **BART, **options}
    random_model(config | {"eos_token_id": made.eos_token_id}).save_pretrained(folder)
    made.save_pretrained(folder)
    return folder


def their_texts(folder, ids, **options):
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    found = model.generate(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)).long(), **options)
    return found[0, 1:].tolist()


def ended(tokens, end, *marks):
    """Up to the end, without what only marks a text."""
    whole = tokens[: tokens.index(end)] if end in tokens else tokens
    return [token for token in whole if token not in marks]


@pytest.mark.parametrize(
    ("kind", "made", "code", "option"),
    [
        pytest.param("mbart", MBartTokenizer, "ro_RO", "decoder_start_token_id", id="mBART-25"),
        pytest.param("mbart", MBart50Tokenizer, "fr_XX", "forced_bos_token_id", id="mBART-50"),
        pytest.param("m2m_100", NllbTokenizer, "fra_Latn", "forced_bos_token_id", id="NLLB"),
    ],
)
def test_a_language_is_written_where_the_model_expects_it(tmp_path, kind, made, code, option):
    made = made()
    folder = many_languages(tmp_path / "model", kind, made, decoder_start_token_id=made.eos_token_id)
    loaded = pretrained.load(folder)
    token = made.convert_tokens_to_ids(code)
    options = loaded.options(language=code, max_length=6, beams=3)
    expected = their_texts(folder, [5, 9, 7, 11], max_new_tokens=6, num_beams=3, **{option: token})
    (found,) = generate(loaded.model, [[5, 9, 7, 11]], options)
    assert found == ended(expected, made.eos_token_id, options.start, options.pad)


def test_texts_are_generated_as_the_folder_says(folder):
    said = GenerationConfig(
        max_length=9, num_beams=3, length_penalty=0.5, no_repeat_ngram_size=2, suppress_tokens=[4, 6]
    )
    said.bad_words_ids, said.pad_token_id, said.eos_token_id, said.decoder_start_token_id = [[8]], 0, 1, 0
    said.save_pretrained(folder)
    loaded = pretrained.load(folder)
    options = loaded.options()
    assert (options.max_length, options.beams, options.suppressed) == (8, 3, (4, 6, 8))
    assert generate(loaded.model, [[5, 9, 7]], options) == [ended(their_texts(folder, [5, 9, 7]), 1, 0)]
    assert loaded.options(beams=1, max_length=3).beams == 1


def test_what_we_do_not_generate_with_is_refused(folder):
    loaded = pretrained.load(folder)
    loaded.generation.repetition_penalty = 1.3
    assert refusal(loaded.options) == (
        "generation_config.json: repetition_penalty = 1.3 is not supported; remove it, or set it to 1.0."
    )
    loaded.generation.repetition_penalty, loaded.generation.bad_words_ids = 1.0, [[4, 5]]
    assert refusal(loaded.options).startswith("generation_config.json: bad_words_ids has words of several tokens")


def test_a_language_that_the_model_cannot_be_told_is_refused(folder, tmp_path):
    assert refusal(pretrained.load(folder).options, language="fr") == (
        "language: a t5 is told the language in its input, if at all; leave it out."
    )
    loaded = pretrained.load(many_languages(tmp_path / "many", "mbart", MBart50Tokenizer()))
    assert refusal(loaded.options, language="fr_FR").startswith(
        "language = 'fr_FR': the tokenizer has no such code among its 52; it has fr_XX."
    )
    loaded.tokenizer = None
    assert refusal(loaded.options, language="fr_XX") == (
        "language: a folder without a tokenizer knows no languages; add the files of the tokenizer."
    )


def test_an_mbart_that_starts_with_a_language_has_to_be_told_which(tmp_path):
    folder = many_languages(tmp_path / "model", "mbart", MBartTokenizer(), decoder_start_token_id=None)
    loaded = pretrained.load(folder)
    loaded.generation.decoder_start_token_id = loaded.config.decoder_start_token_id = None
    assert refusal(loaded.options) == (
        "language = None: the model starts its texts with their language; give its code."
    )


def test_the_decoder_is_given_what_transformers_gives_it(folder, tmp_path):
    targets, mask = np.array([[7, 8, 9, 4], [5, 6, 4, 0]]), np.array([[1, 1, 1, 1], [1, 1, 1, 0]])
    np.testing.assert_array_equal(pretrained.load(folder).decoder_inputs(targets, mask), [[0, 7, 8, 9], [0, 5, 6, 4]])
    many = many_languages(tmp_path / "many", "mbart", MBart50Tokenizer())
    theirs = AutoModelForSeq2SeqLM.from_pretrained(many).prepare_decoder_input_ids_from_labels
    padded = np.where(mask > 0, targets, MBart50Tokenizer().pad_token_id)
    found = np.asarray(pretrained.load(many).decoder_inputs(targets, mask))
    np.testing.assert_array_equal(np.where(mask > 0, found, 0), np.where(mask > 0, theirs(torch.tensor(padded)), 0))
