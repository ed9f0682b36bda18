"""Adapters: what they add, where they go, and that a model from which they were taken out computes the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dpnlp.checks import BadInput
from dpnlp.models.layers import Linear
from dpnlp.models.lora import ADAPTERS, LoRA, adapt, merge
from dpnlp.models.t5 import T5, Config
from dpnlp.training.parameters import apart

RNG = np.random.default_rng(0)
IDS, INPUTS = (RNG.integers(1, 31, (2, length)) for length in (5, 4))


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def called(layer, x):
    return np.asarray(jax.jit(lambda x: layer(x))(x), np.float64)


def small(**options):
    return T5(Config(31, 8, 2, 4, 16, 2, 2, **options), rngs=nnx.Rngs(0))


def logits(model):
    return np.asarray(nnx.jit(lambda m: m(IDS, np.ones(IDS.shape), INPUTS))(model))


def names(model, trains=nnx.Param):
    return sorted(apart(model, trains).parameters)


@pytest.mark.parametrize("outputs", [4, (2, 3)])
def test_adapters_change_nothing_at_first_and_then_add_their_product(outputs):
    base = Linear(5, outputs, rngs=nnx.Rngs(0))
    layer, x = LoRA(base, 2, alpha=8.0, rngs=nnx.Rngs(1)), normal(2, 3, 5)
    np.testing.assert_array_equal(called(layer, x), called(base, x))
    assert not (layer.A[...] == 0).any()
    layer.B.set_value(jnp.asarray(normal(*layer.B.shape)))
    more = x @ np.asarray(layer.A[...]) @ np.asarray(layer.B[...]) * (8 / 2)
    before = called(base, x)
    np.testing.assert_allclose(called(layer, x), before + more.reshape(before.shape), rtol=1e-4, atol=1e-5)
    assert {type(layer.A), type(layer.B)} == {nnx.LoRAParam}


def test_queries_and_values_are_adapted_unless_others_are_named():
    model = small()
    adapted = adapt(model, 2, rngs=nnx.Rngs(1))
    layers = ["encoder.0.self", "encoder.1.self", "decoder.0.self", "decoder.1.self", "decoder.0.cross"]
    layers.append("decoder.1.cross")
    assert adapted == sorted(f"{layer}_attention.{one}" for layer in layers for one in ("query", "value"))
    assert names(model, ADAPTERS) == sorted(f"{name}.{side}" for name in adapted for side in "AB")
    assert isinstance(model.decoder[1].cross_attention.value, LoRA)
    assert isinstance(model.decoder[1].cross_attention.key, Linear)


@pytest.mark.parametrize(
    ("where", "count"),
    [("feed_forward", 8), (["decoder.last:1.cross_attention"], 4), (["head", "*.down"], 5), ("*", 33)],
)
def test_a_pattern_says_which_layers_are_adapted(where, count):
    assert len(adapt(small(tied=False), 2, where=where, rngs=nnx.Rngs(1))) == count


def test_new_adapters_change_nothing():
    model = small()
    before = logits(model)
    adapt(model, 2, rngs=nnx.Rngs(1))
    np.testing.assert_array_equal(logits(model), before)


@pytest.mark.parametrize("where", ["query", "*"])
def test_a_merged_model_is_an_ordinary_one_that_computes_the_same(where):
    model = small(tied=False)
    plain, ordinary = logits(model), names(model)
    adapt(model, 2, alpha=4.0, where=where, rngs=nnx.Rngs(1))
    for _, node in nnx.graph.iter_graph(model):
        if isinstance(node, LoRA):
            node.B.set_value(jnp.asarray(0.1 * normal(*node.B.shape)))
    adapted = logits(model)
    merge(model)
    assert names(model) == ordinary
    scale = np.abs(adapted).max()
    np.testing.assert_allclose(logits(model) / scale, adapted / scale, atol=1e-6)
    assert np.abs(adapted - plain).max() > 0.01 * scale


class Shared(nnx.Module):
    """One layer in two places, once in a list."""

    def __init__(self):
        self.first = Linear(3, 3, rngs=nnx.Rngs(0))
        self.rest = nnx.List([Linear(3, 3, rngs=nnx.Rngs(1)), self.first])

    def __call__(self, x):
        return self.rest[1](self.rest[0](self.first(x)))


def test_a_shared_layer_is_adapted_and_merged_in_all_its_places():
    model, x = Shared(), normal(2, 3)
    assert len(adapt(model, 1, where="*", rngs=nnx.Rngs(2))) == 2
    assert model.first is model.rest[1]
    assert all(isinstance(layer, LoRA) for layer in model.rest)
    model.first.B.set_value(jnp.asarray(normal(1, 3)))
    adapted = called(model, x)
    merge(model)
    assert model.first is model.rest[1]
    assert all(isinstance(layer, Linear) for layer in model.rest)
    np.testing.assert_allclose(called(model, x), adapted, rtol=1e-5, atol=1e-6)


def adapted_twice():
    model = small()
    for seed in range(2):
        adapt(model, 2, rngs=nnx.Rngs(seed))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (adapted_twice, "adapters: the model has some already; merge them before it gets others."),
        (lambda: adapt(small(), 0, rngs=nnx.Rngs(0)), "rank = 0: it must be a whole number of at least 1."),
        (lambda: adapt(small(), 2, alpha=0.0, rngs=nnx.Rngs(0)), "alpha = 0.0: it must be a finite number above 0."),
        (
            lambda: adapt(small(), 2, where=["querry"], rngs=nnx.Rngs(0)),
            "where = 'querry': nothing in the model is named so; the nearest are query, key, value.",
        ),
    ],
)
def test_what_cannot_be_adapted_is_refused(wrong, sentence):
    with pytest.raises(BadInput) as refusal:
        wrong()
    assert str(refusal.value) == sentence
