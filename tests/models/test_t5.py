"""T5 under book-keeping is the definition of clipping; its dropout, adapters and frozen parts; and its buckets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dpnlp import dropout
from dpnlp.models import freezing, lora
from dpnlp.models.cross_entropy import losses
from dpnlp.models.seq2seq import shifted
from dpnlp.models.t5 import T5, Config, buckets
from dpnlp.training import clipping
from dpnlp.training.clipping import Clipping
from dpnlp.training.parameters import apart

from ..training.test_clipping import assert_equal, assert_same_sum, clipped_sum, length, reference


def case(seed=0, batch=3, source=5, target=4, **options):
    """A micro T5 and texts of different lengths."""
    rng = np.random.default_rng(seed)
    model = T5(Config(29, 8, 2, 4, 12, 2, 1, buckets=4, furthest=6, **options), rngs=nnx.Rngs(seed))

    def texts(most):
        lengths = np.maximum(most - np.arange(batch), 1)
        return jnp.asarray(rng.integers(1, 29, (batch, most))), jnp.arange(most) < lengths[:, None]

    (ids, mask), (targets, target_mask) = texts(source), texts(target)
    inputs = shifted(targets, 0)
    return model, {"ids": ids, "mask": mask, "inputs": inputs, "targets": targets, "target_mask": target_mask}


@pytest.mark.parametrize(
    ("options", "chunk"),
    [
        ({}, None),
        ({}, 8),
        ({"tied": False, "scaled_output": False, "gated": True, "activation": "gelu_tanh"}, None),
        ({"tied": False, "gated": True, "rematerialise": True}, 8),
    ],
    ids=["1.0", "1.0 by chunks", "1.1", "rematerialised by chunks"],
)
def test_book_keeping_is_the_definition(options, chunk):
    model, batch = case(**options)

    def loss(model, batch):
        return losses(model, batch, smoothing=0.1, chunk=chunk)

    clipped = clipped_sum(loss, model, batch, jnp.ones(3), 0.5)
    assert_equal(clipped, *reference(loss, model, batch, jnp.ones(3), 0.5))
    assert min(clipped.norms) > 0.5


@pytest.mark.parametrize(
    ("trains", "frozen"),
    [(["decoder", "decoder_norm"], []), (["*"], ["encoder*", "tokens"]), (["last:1"], ["cross_attention"])],
)
def test_what_is_frozen_is_not_in_the_clipped_sum(trains, frozen):
    model, batch = case()
    chosen = freezing.trained(model, trains, frozen)
    clipped = clipped_sum(losses, model, batch, jnp.ones(3), 0.3, chosen)
    assert_equal(clipped, *reference(losses, model, batch, jnp.ones(3), 0.3, chosen))
    assert set(clipped.gradients) == {one.name for one in freezing.summary(model, chosen) if one.trained}


def test_adapters_alone_are_trained_exactly():
    model, batch = case()
    lora.adapt(model, 2, where=["query", "value", "feed_forward"], rngs=nnx.Rngs(1))
    for path, variable in nnx.to_flat_state(nnx.state(model, lora.ADAPTERS)):
        if path[-1] == "B":
            variable.set_value(0.1 * jax.random.normal(jax.random.key(0), variable.shape))
    clipped = clipped_sum(losses, model, batch, jnp.ones(3), 0.05, lora.ADAPTERS)
    assert_equal(clipped, *reference(losses, model, batch, jnp.ones(3), 0.05, lora.ADAPTERS))
    assert {name.rpartition(".")[2] for name in clipped.gradients} == {"A", "B"}


@pytest.mark.parametrize("rematerialise", [False, True])
def test_dropout_belongs_to_the_example(rematerialise):
    model, batch = case(dropout=0.3, rematerialise=rematerialise)
    keys = jax.random.split(jax.random.key(0), 3)

    def dropped(model, batch):
        with dropout.dropping(batch[0]):
            return losses(model, batch[1])

    clipped = clipped_sum(dropped, model, (keys, batch), jnp.ones(3), 0.3)
    assert_equal(clipped, *reference(dropped, model, (keys, batch), jnp.ones(3), 0.3))
    calm = nnx.jit(losses)(model, batch)
    assert not np.allclose(clipped.losses, calm, rtol=1e-2)


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_computing_the_scores_again_changes_nothing(rate):
    def found(rematerialise):
        model, batch = case(dropout=rate, rematerialise=rematerialise)
        keys = jax.random.split(jax.random.key(0), 3)

        @nnx.jit
        def gradient(model, keys, batch):
            def total(model):
                with dropout.dropping(keys):
                    return losses(model, batch).sum()

            return nnx.grad(total)(model)

        return {str(path): value[...] for path, value in nnx.to_flat_state(gradient(model, keys, batch))}

    assert_same_sum(found(True), found(False))


@pytest.mark.parametrize("tied", [True, False])
def test_law_5_holds_in_sixteen_bits(tied):
    model, batch = case(dtype="bfloat16", tied=tied)
    parts = apart(model)
    alone = jax.jit(lambda weights: clipping.clipped_sum(losses, parts, batch, weights, Clipping(0.1)).gradients)
    for one in jnp.eye(3):
        assert 0.1 * 0.9 < length(alone(one)) <= 0.1 * (1 + 1e-6)


def test_the_decoder_does_not_see_what_comes_later():
    model, batch = case()
    states = nnx.jit(lambda m, inputs: m.states(batch["ids"], batch["mask"], inputs))
    before, after = (states(model, batch["inputs"].at[:, 2:].set(token)) for token in (3, 4))
    np.testing.assert_array_equal(before[:, :2], after[:, :2])
    assert not np.allclose(before[:, 2:], after[:, 2:])


@pytest.mark.parametrize(("both_ways", "half"), [(True, 16), (False, 32)])
def test_buckets_are_exact_when_near_and_logarithmic_when_far(both_ways, half):
    """By the definition in the paper, one distance at a time."""
    aways, exact = range(-200, 201), half // 2
    found = jax.jit(lambda away: buckets(away, 32, 128, both_ways=both_ways))(jnp.array(aways))
    for away, bucket in zip(aways, found.tolist(), strict=True):
        distance = abs(away) if both_ways else max(-away, 0)
        far = exact + np.log(max(distance, 1) / exact) / np.log(128 / exact) * (half - exact)
        own = distance if distance < exact else min(int(far + 1e-6), half - 1)
        assert bucket == own + (half if both_ways and away > 0 else 0), away
