"""Book-keeping against the gradients themselves, one example at a time, and against jax-privacy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.models.layers import Embedding, LayerNorm, Linear, RMSNorm
from dpnlp.training import clipping


class Tagger(nnx.Module):
    """A small network over vectors, with a bias, a norm and one weight that is used twice."""

    def __init__(self, width, hidden, rngs):
        self.up = Linear(width, hidden, rngs=rngs)
        self.norm = LayerNorm(hidden)
        self.down = Linear(hidden, width, rngs=rngs)

    def __call__(self, x):
        return self.down(self.norm(jax.nn.gelu(self.up(self.down(self.norm(jax.nn.gelu(self.up(x))))))))


class Tied(nnx.Module):
    """One attention layer whose table is both embedding and output, keys and values being one weight."""

    def __init__(self, tokens, width, rngs):
        self.table = Embedding(tokens, width, rngs=rngs)
        self.norm = RMSNorm(width)
        self.query = Linear(width, (2, width // 2), rngs=rngs)
        self.key = Linear(width, (2, width // 2), bias=False, rngs=rngs)

    def __call__(self, ids):
        x = self.norm(self.table(ids))
        scores = jnp.einsum("bthd,bshd->bhts", self.query(x), self.key(x))
        mixed = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), self.key(x))
        return self.table.attend(self.norm(x + mixed.reshape(x.shape)))


def squared_error(model, batch):
    x, y = batch
    return jnp.sum((model(x) - y) ** 2, axis=(1, 2))


def next_token(model, batch):
    ids, mask = batch
    logs = jax.nn.log_softmax(model(ids[:, :-1]))
    picked = jnp.take_along_axis(logs, ids[:, 1:, None], axis=-1)[..., 0] * mask
    return -picked.sum(axis=1) / jnp.maximum(mask.sum(axis=1), 1)


def tagger_case(batch, positions, width, hidden, seed):
    rng = np.random.default_rng(seed)
    model = Tagger(width, hidden, nnx.Rngs(seed))
    x, y = (jnp.asarray(rng.normal(size=(batch, positions, width)), jnp.float32) for _ in range(2))
    return model, squared_error, (x, y)


def tied_case(batch, positions, width, tokens, seed):
    rng = np.random.default_rng(seed)
    model = Tied(tokens, width, nnx.Rngs(seed))
    ids = jnp.asarray(rng.integers(0, tokens, (batch, positions + 1)))
    mask = jnp.asarray(rng.random((batch, positions)) < 0.8, jnp.float32)
    return model, next_token, (ids, mask)


def clipped_sum(loss, model, batch, weights, clip_norm, trains=nnx.Param, examples_per_record=1):
    """Compiled as a whole, which is how it is used, and ten times faster than operation by operation."""

    @jax.jit
    def compiled(batch, weights, clip_norm):
        return clipping.clipped_sum(loss, model, batch, weights, clip_norm, trains, examples_per_record)

    return compiled(batch, weights, clip_norm)


def reference(loss, model, batch, weights, clip_norm, trains=nnx.Param, examples_per_record=1):
    """The definition: a gradient for each record by vmap, its norm, its clipped value, their sum."""
    structure, trained, rest = nnx.split(model, trains, ...)
    grouped = jax.tree.map(lambda a: a.reshape(-1, examples_per_record, *a.shape[1:]), batch)

    def total(state, record):
        return loss(nnx.merge(structure, state, rest), record).sum()

    gradients = jax.jit(jax.vmap(jax.grad(total), in_axes=(None, 0)))(trained, grouped)
    flat = {path: value[...] for path, value in nnx.to_flat_state(gradients)}
    norms = jnp.sqrt(sum((g.reshape(len(g), -1) ** 2).sum(axis=1) for g in flat.values()))
    factors = weights * jnp.minimum(1, clip_norm / norms)
    return {path: jnp.tensordot(factors, g, axes=1) for path, g in flat.items()}, norms


def assert_equal(clipped, expected, norms):
    np.testing.assert_allclose(clipped.norms, norms, rtol=1e-5)
    assert clipped.gradients.keys() == expected.keys()
    scale = max(float(jnp.abs(g).max()) for g in expected.values())
    for path, gradient in expected.items():
        np.testing.assert_allclose(clipped.gradients[path], gradient, rtol=1e-5, atol=1e-5 * scale, err_msg=str(path))


@pytest.mark.parametrize("case", [tagger_case, tied_case])
@pytest.mark.parametrize("examples", [1, 3])
def test_a_record_of_several_examples_is_clipped_as_one(case, examples):
    model, loss, data = case(6, 3, 8, 30, 1)
    weights = jnp.ones(6 // examples)
    clipped = clipped_sum(loss, model, data, weights, 0.5, examples_per_record=examples)
    assert_equal(clipped, *reference(loss, model, data, weights, 0.5, examples_per_record=examples))


def test_frozen_weights_are_neither_noted_nor_counted():
    model, loss, data = tied_case(4, 5, 4, 9, 2)

    def trains(path, value):
        return isinstance(value, nnx.Param) and path[0] != "table"

    clipped = clipped_sum(loss, model, data, jnp.ones(4), 0.5, trains)
    assert_equal(clipped, *reference(loss, model, data, jnp.ones(4), 0.5, trains))
    assert all(path[0] != "table" for path in clipped.gradients)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_sum_agrees_with_jax_privacy():
    privacy = pytest.importorskip("jax_privacy", reason="jax-privacy is not installed")
    model, loss, data = tied_case(5, 6, 4, 11, 3)
    structure, trained, rest = nnx.split(model, nnx.Param, ...)

    def total(state, batch):
        return loss(nnx.merge(structure, state, rest), batch).sum()

    theirs = jax.jit(privacy.clipped_grad(total, l2_clip_norm=0.3, batch_argnums=1))(trained, data)
    ours = clipped_sum(loss, model, data, jnp.ones(5), 0.3).gradients
    for path, value in nnx.to_flat_state(theirs):
        np.testing.assert_allclose(ours[path], value[...], rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_no_record_contributes_more_than_the_clip_norm(dtype):
    """Law 5: whatever it holds and whatever the model computes in, one record moves the sum by at most C."""
    model, loss, data = tagger_case(4, 12, 6, 9, 4)
    data = jax.tree.map(lambda a: (100 * a).astype(dtype), data)
    moved = [
        sum(float(jnp.sum(g**2)) for g in clipped_sum(loss, model, data, jnp.eye(4)[one], 0.25).gradients.values())
        for one in range(4)
    ]
    assert max(moved) ** 0.5 <= 0.25 * (1 + 1e-6)
    assert min(moved) ** 0.5 > 0.25 * 0.9


def test_padding_and_batchmates_change_nothing():
    model, loss, data = tied_case(4, 5, 4, 9, 5)
    alone = clipped_sum(loss, model, jax.tree.map(lambda a: a[:2], data), jnp.ones(2), 0.3)
    padded = clipped_sum(loss, model, data, jnp.array([1.0, 1.0, 0.0, 0.0]), 0.3)
    np.testing.assert_allclose(padded.norms[:2], alone.norms, rtol=1e-5)
    for path in alone.gradients:
        np.testing.assert_allclose(padded.gradients[path], alone.gradients[path], rtol=1e-5, atol=1e-7)


def test_a_gradient_that_is_no_number_counts_as_zero():
    model, loss, (x, y) = tagger_case(3, 5, 4, 9, 6)
    broken = (x.at[1, 0, 0].set(jnp.nan), y)
    clipped = clipped_sum(loss, model, broken, jnp.ones(3), 0.3)
    silent = clipped_sum(loss, model, (x, y), jnp.array([1.0, 0.0, 1.0]), 0.3)
    assert not np.isfinite(clipped.norms[1])
    for path in silent.gradients:
        np.testing.assert_allclose(clipped.gradients[path], silent.gradients[path], rtol=1e-5, atol=1e-7)


def test_an_infinite_clip_norm_is_the_ordinary_gradient():
    model, loss, data = tied_case(4, 5, 4, 9, 7)
    ordinary = nnx.jit(nnx.grad(lambda m: loss(m, data).sum()))(model)
    clipped = clipped_sum(loss, model, data, jnp.ones(4), jnp.inf).gradients
    for path, value in nnx.to_flat_state(ordinary):
        np.testing.assert_allclose(clipped[path], value[...], rtol=2e-5, atol=1e-6)


def test_a_weight_that_no_layer_notes_is_refused():
    class Stray(Tagger):
        def __init__(self, rngs):
            super().__init__(4, 5, rngs)
            self.stray = nnx.Param(jnp.ones(4))

        def __call__(self, x):
            return super().__call__(x) * self.stray[...]

    x = jnp.ones((2, 3, 4))
    with pytest.raises(BadInput, match=r"stray: no layer noted a use of this weight, so it cannot be clipped"):
        clipped_sum(squared_error, Stray(nnx.Rngs(0)), (x, x), jnp.ones(2), 1.0)


@settings(max_examples=8)
@given(
    case=st.sampled_from([tagger_case, tied_case]),
    batch=st.sampled_from([1, 4]),
    positions=st.sampled_from([1, 5, 12]),
    width=st.sampled_from([2, 6]),
    other=st.sampled_from([3, 40]),
    clip_norm=st.sampled_from([0.05, 1.0, 1e6]),
    seed=st.integers(0, 3),
)
def test_book_keeping_is_the_definition(case, batch, positions, width, other, clip_norm, seed):
    model, loss, data = case(batch, positions, width, other, seed)
    weights = jnp.ones(batch)
    assert_equal(clipped_sum(loss, model, data, weights, clip_norm), *reference(loss, model, data, weights, clip_norm))
