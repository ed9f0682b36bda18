"""Marian against transformers' model with the same weights, against the formula of its positions, and clipping."""

import numpy as np
import pytest
from flax import nnx

from dpnlp.models import pretrained
from dpnlp.models.marian import sinusoids

from . import agreement
from .agreement import LONGEST, RATES, SHAPE, logits, moved, texts, their_logits
from .hugging_face import change_tensors

transformers = pytest.importorskip("transformers")

TWO = {"share_encoder_decoder_embeddings": False, "vocab_size": 50, "decoder_vocab_size": 40}
KINDS = {
    "shared": {},
    "two vocabularies": TWO,
    "untied": TWO | {"tie_word_embeddings": False},
}


def made(kind, **changes):
    usual = {"scale_embedding": True, "activation_function": "swish"}
    config = transformers.MarianConfig(**SHAPE | usual | KINDS[kind] | changes)
    return moved(transformers.MarianMTModel(config))


pair = agreement.pairs(made, KINDS)


def test_the_logits_are_those_of_transformers(pair):
    ours, theirs = pair
    ids, mask, inputs = texts()
    ids = np.where(ids == 5, theirs.config.vocab_size - 1, ids)  # a token that only the larger vocabulary has
    agreement.assert_same_logits(logits(ours.model, ids, mask, inputs), their_logits(theirs, ids, mask, inputs))


@pytest.mark.parametrize("pair", ["two vocabularies"], indirect=True)
def test_one_token_at_a_time_gives_the_same_logits(pair):
    agreement.assert_steps_agree(pair[0].model)


def test_a_saved_folder_is_one_of_transformers_and_loads_unchanged(pair, tmp_path):
    agreement.assert_folder_is_theirs(*pair, tmp_path / "ours")


@pytest.mark.parametrize("kind", KINDS)
def test_the_clipped_sum_is_exact_and_every_parameter_is_noted(kind, tmp_path):
    agreement.assert_clipped_sum_is_exact(agreement.loaded(made(kind, decoder_layers=1), tmp_path).model)


def test_long_texts_are_refused(pair):
    agreement.assert_refuses_long_texts(pair[0].model)


def test_dropout_is_where_transformers_has_it(tmp_path):
    theirs = made("shared", **RATES)
    agreement.assert_drops_where_they_do(agreement.loaded(theirs, tmp_path).model, theirs)


def test_positions_are_sines_and_then_cosines():
    table = sinusoids(600, 6, 3)
    for p, i in [(0, 0), (1, 0), (7, 2), (599, 1)]:
        angle = p / 10000 ** (2 * i / 6)
        np.testing.assert_allclose(table[p, [i, 3 + i]], [np.sin(angle), np.cos(angle)], rtol=1e-12)


def test_positions_are_no_state_of_the_model(pair):
    assert not any("encoder_entrance" in path for path, _ in nnx.to_flat_state(nnx.state(pair[0].model)))


def test_copies_of_the_table_and_positions_in_old_files_are_no_extra_tensors(tmp_path):
    theirs = made("shared")
    expected = logits(agreement.loaded(theirs, tmp_path).model, *texts())

    def old(tensors):
        for name in ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"):
            tensors[name] = tensors["model.shared.weight"].copy()
        for side in ("encoder", "decoder"):
            tensors[f"model.{side}.embed_positions.weight"] = np.zeros((LONGEST, 24), np.float32)

    change_tensors(tmp_path, old)
    np.testing.assert_array_equal(logits(pretrained.load(tmp_path).model, *texts()), expected)
