"""BART and mBART against transformers' models with the same weights, and against per-example clipping."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dpnlp.checks import BadInput
from dpnlp.models import bart, pretrained
from dpnlp.models.cross_entropy import losses

from . import agreement
from .agreement import RATES, SHAPE, VOCABULARY, logits, moved, texts, their_logits

transformers = pytest.importorskip("transformers")

KINDS = {
    "BART": ("Bart", {}),
    "BART untied": ("Bart", {"tie_word_embeddings": False}),
    "mBART": ("MBart", {"scale_embedding": True}),
}


def made(kind, **changes):
    name, options = KINDS[kind]
    config = getattr(transformers, f"{name}Config")(**SHAPE | options | changes)
    return moved(getattr(transformers, f"{name}ForConditionalGeneration")(config))


pair = agreement.pairs(made, KINDS)


def test_the_logits_are_those_of_transformers(pair):
    ours, theirs = pair
    agreement.assert_same_logits(logits(ours.model, *texts()), their_logits(theirs, *texts()))


@pytest.mark.parametrize("pair", ["BART", "mBART"], indirect=True)
def test_one_token_at_a_time_gives_the_same_logits(pair):
    agreement.assert_steps_agree(pair[0].model)


def test_a_saved_folder_is_one_of_transformers_and_loads_unchanged(pair, tmp_path):
    agreement.assert_folder_is_theirs(*pair, tmp_path / "ours")


@pytest.mark.parametrize("kind", ["BART", "mBART"])
def test_the_clipped_sum_is_exact_and_every_parameter_is_noted(kind, tmp_path):
    agreement.assert_clipped_sum_is_exact(agreement.loaded(made(kind, decoder_layers=1), tmp_path).model)


def test_long_texts_are_refused(pair):
    agreement.assert_refuses_long_texts(pair[0].model)


@pytest.mark.parametrize("kind", ["BART", "mBART"])
def test_dropout_is_where_transformers_has_it(kind, tmp_path):
    theirs = made(kind, **RATES)
    agreement.assert_drops_where_they_do(agreement.loaded(theirs, tmp_path).model, theirs)


def test_the_bias_of_the_output_is_loaded_but_never_trained(pair):
    ours, theirs = pair
    np.testing.assert_array_equal(ours.model.output_bias[...], theirs.final_logits_bias.numpy())
    trained = nnx.to_flat_state(nnx.state(ours.model, nnx.Param))
    assert not any("output_bias" in path for path, _ in trained)
    assert np.abs(theirs.final_logits_bias.numpy()).min() > 0


@pytest.mark.parametrize("pair", ["BART", "BART untied"], indirect=True)
def test_the_loss_of_a_large_vocabulary_has_the_bias_of_the_output_too(pair):
    """Where the logits are never held as a whole, the loss is still that of the logits."""
    ids, mask, inputs = map(jnp.asarray, texts())
    targets = jnp.roll(inputs, -1, axis=1)
    batch = {"ids": ids, "mask": mask, "inputs": inputs, "targets": targets, "target_mask": jnp.ones_like(inputs)}
    chunked, whole = jax.jit(
        lambda: (losses(pair[0].model, batch, chunk=16), agreement.loss(pair[0].model, (ids, mask, inputs, targets)))
    )()
    np.testing.assert_allclose(chunked, whole, rtol=1e-5)


def test_a_file_without_an_output_layer_is_loaded_as_transformers_does(tmp_path):
    """Its names lack their first word, and there is no bias of the output."""
    made("BART").model.save_pretrained(tmp_path)
    theirs = transformers.BartForConditionalGeneration.from_pretrained(tmp_path).eval()
    ours = pretrained.load(tmp_path).model
    assert ours.output_bias is None
    agreement.assert_same_logits(logits(ours, *texts()), their_logits(theirs, *texts()))


def micro(**changes):
    shape = {
        "vocabulary": VOCABULARY,
        "width": 16,
        "encoder_layers": 1,
        "encoder_heads": 2,
        "encoder_hidden": 8,
        "decoder_layers": 1,
        "decoder_heads": 4,
        "decoder_hidden": 12,
        "positions": 9,
    }
    return bart.BART(bart.Config(**shape | changes), rngs=nnx.Rngs(0))


def test_scores_can_be_computed_again_for_the_gradient():
    ids, mask, inputs = map(jnp.asarray, texts())
    batch = ids, mask, inputs, jnp.roll(inputs, -1, axis=1)

    def gradient(model):
        structure, state = nnx.split(model)
        return jax.jit(jax.grad(lambda state: agreement.loss(nnx.merge(structure, state), batch).sum()))(state)

    kept, again = (gradient(micro(rematerialise=choice)) for choice in (False, True))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), kept, again)


def test_it_computes_in_the_type_it_is_told():
    wide, narrow = micro(), micro(dtype="bfloat16")
    found = jax.jit(lambda *batch: narrow(*batch))(*texts())
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(found.astype(jnp.float32), logits(wide, *texts()), atol=0.1)
    assert {variable.dtype for variable in jax.tree.leaves(nnx.state(narrow))} == {jnp.dtype("float32")}


def test_the_first_logits_are_of_the_size_of_the_states():
    assert logits(micro(vocabulary=100, width=64, scaled=True), *texts()).std() == pytest.approx(1, rel=0.3)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"encoder_heads": 3}, "encoder_heads = 3: it must divide the width 16; choose another number of heads."),
        ({"decoder_heads": 5}, "decoder_heads = 5: it must divide the width 16; choose another number of heads."),
        ({"positions": 0}, "positions = 0: it must be a whole number of at least 1."),
    ],
)
def test_a_shape_that_cannot_be_is_refused(changes, sentence):
    with pytest.raises(BadInput) as refusal:
        micro(**changes)
    assert str(refusal.value) == sentence
