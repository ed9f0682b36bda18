"""Each layer against its formula in NumPy, written anew here, and recurrent ones against Flax's cell too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp import dropout
from dpnlp.models.layers import (
    LSTM,
    Bias,
    Dropout,
    Embedding,
    LayerNorm,
    Linear,
    PositionBuckets,
    RMSNorm,
)

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def called(layer, *inputs):
    """Compiled, with the layer as part of the program, and in float64 for comparing."""
    return np.asarray(jax.jit(lambda *inputs: layer(*inputs))(*inputs), np.float64)


def with_values(layer):
    """The layer with random parameters everywhere, so that none is hidden by being 0 or 1 at first."""
    for _, variable in nnx.to_flat_state(nnx.state(layer, nnx.Param)):
        variable.set_value(jnp.asarray(normal(*variable.shape)))
    return layer


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("outputs", [4, (2, 3)])
@pytest.mark.parametrize("shape", [(2, 5), (2, 3, 5), (2, 3, 4, 5)])
def test_linear_is_a_product_and_a_bias(shape, outputs, bias):
    layer = Linear(5, outputs, bias=bias, rngs=nnx.Rngs(0))
    if bias:
        layer.bias.value.set_value(jnp.asarray(normal(*layer.bias.value.shape)))
    x = normal(*shape)
    expected = x @ np.asarray(layer.kernel[...]) + (np.asarray(layer.bias.value[...]) if bias else 0)
    sizes = (outputs,) if isinstance(outputs, int) else outputs
    np.testing.assert_allclose(called(layer, x), expected.reshape(*shape[:-1], *sizes), rtol=1e-5, atol=1e-6)
    assert (layer.bias is None) is not bias


def test_linear_starts_with_outputs_of_about_the_size_of_the_inputs():
    layer = Linear(400, 300, rngs=nnx.Rngs(0))
    assert called(layer, normal(20, 400)).std() == pytest.approx(1, rel=0.05)
    assert (layer.bias.value[...] == 0).all()


def test_a_bias_is_added_on_the_last_axis():
    layer = Bias(4)
    layer.value.set_value(jnp.arange(4.0))
    x = normal(2, 3, 4)
    np.testing.assert_allclose(called(layer, x), x + np.arange(4), rtol=1e-6)


def test_an_embedding_looks_up_rows_and_attends_to_the_same_ones():
    layer = Embedding(7, 4, rngs=nnx.Rngs(0))
    table = np.asarray(layer.table[...])
    ids, x = RNG.integers(0, 7, (2, 3)), normal(2, 3, 4)
    np.testing.assert_array_equal(called(layer, ids), table[ids])
    np.testing.assert_allclose(called(layer.attend, x), x @ table.T, rtol=1e-5, atol=1e-6)


def test_position_buckets_are_a_lookup():
    layer = PositionBuckets(4, 3, rngs=nnx.Rngs(0))
    buckets = RNG.integers(0, 4, (5, 6))
    found = np.asarray(jax.jit(lambda b: layer(b, 2))(buckets))
    expected = np.asarray(layer.table[...])[buckets].transpose(2, 0, 1)
    assert found.shape in ((1, 3, 5, 6), (2, 3, 5, 6))
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), rtol=1e-6)


@pytest.mark.parametrize("shape", [(2, 8), (2, 3, 8)])
def test_norms_are_their_formulas(shape):
    x = 3 * normal(*shape) + 1
    rms, norm = with_values(RMSNorm(8)), with_values(LayerNorm(8))
    root = np.sqrt((x.astype(np.float64) ** 2).mean(axis=-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(called(rms, x), x / root * np.asarray(rms.scale[...]), rtol=1e-5, atol=1e-6)
    centred = x - x.mean(axis=-1, keepdims=True, dtype=np.float64)
    deviation = np.sqrt(x.astype(np.float64).var(axis=-1, keepdims=True) + 1e-5)
    expected = centred / deviation * np.asarray(norm.scale[...]) + np.asarray(norm.bias.value[...])
    np.testing.assert_allclose(called(norm, x), expected, rtol=1e-5, atol=1e-6)


def test_norms_are_computed_in_float32_and_keep_the_type():
    x = jnp.asarray(300 + normal(2, 64), jnp.bfloat16)
    for layer in (RMSNorm(64), LayerNorm(64)):
        found = jax.jit(layer)(x)
        wide = jax.jit(layer)(x.astype(jnp.float32))
        assert found.dtype == jnp.bfloat16
        np.testing.assert_allclose(found.astype(jnp.float32), wide, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("layer", [Linear(4, 3, rngs=nnx.Rngs(0)), Embedding(5, 4, rngs=nnx.Rngs(0)).attend])
def test_layers_compute_in_the_type_of_their_inputs(layer):
    assert jax.jit(layer)(jnp.ones((2, 4), jnp.bfloat16)).dtype == jnp.bfloat16


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_by_hand(layer, x, mask, reverse=False):
    """One example and one time step after the other; where the mask is 0 nothing happens."""
    W, b, U = (np.asarray(v[...], np.float64) for v in (layer.input.kernel, layer.input.bias.value, layer.recurrent))
    hidden = U.shape[0]
    out = np.zeros((*x.shape[:2], hidden))
    for example in range(x.shape[0]):
        h, c = np.zeros(hidden), np.zeros(hidden)
        times = range(x.shape[1])
        for t in reversed(times) if reverse else times:
            if mask[example, t]:
                i, f, g, o = np.split(x[example, t] @ W + h @ U + b, 4)
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
                h = sigmoid(o) * np.tanh(c)
            out[example, t] = h
    return out


@pytest.mark.parametrize("reverse", [False, True])
def test_an_lstm_is_a_loop_over_time(reverse):
    layer = with_values(LSTM(3, 4, reverse=reverse, rngs=nnx.Rngs(0)))
    x, mask = normal(3, 5, 3), np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 1, 0, 1, 0]])
    np.testing.assert_allclose(called(layer, x, mask), lstm_by_hand(layer, x, mask, reverse), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cut", [0, 2, 5])
def test_an_lstm_goes_on_from_the_state_that_it_gave_back(cut):
    """The state after some tokens, and what comes of the rest when it starts from there, are those of one run."""
    layer = with_values(LSTM(3, 4, rngs=nnx.Rngs(0)))
    x, mask = normal(3, 5, 3), np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 1, 0, 1, 0]])
    run = nnx.jit(lambda layer, x, mask, start=None: layer.run(x, mask, start))
    _, state = run(layer, x[:, :cut], mask[:, :cut])
    after, last = run(layer, x[:, cut:], mask[:, cut:], state)
    whole, end = run(layer, x, mask)
    np.testing.assert_allclose(after, whole[:, cut:], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last, end, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(end.h, lstm_by_hand(layer, x, mask)[:, -1], rtol=1e-4, atol=1e-5)


def test_an_lstm_is_that_of_flax():
    layer = with_values(LSTM(3, 4, rngs=nnx.Rngs(0)))
    cell = nnx.OptimizedLSTMCell(3, 4, rngs=nnx.Rngs(1))
    cell.dense_i.kernel.set_value(layer.input.kernel[...])
    cell.dense_h.kernel.set_value(layer.recurrent[...])
    cell.dense_h.bias.set_value(layer.input.bias.value[...])
    x = normal(2, 5, 3)

    @jax.jit
    def theirs(x):
        carry, found = (jnp.zeros((2, 4)), jnp.zeros((2, 4))), []
        for t in range(5):
            carry, h = cell(carry, x[:, t])
            found.append(h)
        return jnp.stack(found, axis=1)

    np.testing.assert_allclose(called(layer, x, np.ones((2, 5))), theirs(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("side", ["before", "after"])
def test_padding_of_a_text_changes_nothing_of_an_lstm_from_either_side(reverse, side):
    layer = with_values(LSTM(3, 4, reverse=reverse, rngs=nnx.Rngs(0)))
    x, junk = normal(2, 4, 3), 100 * normal(2, 3, 3)
    ones, zeros = np.ones((2, 4)), np.zeros((2, 3))
    order = (junk, x) if side == "before" else (x, junk)
    mask = (zeros, ones) if side == "before" else (ones, zeros)
    found = called(layer, np.concatenate(order, axis=1), np.concatenate(mask, axis=1))
    real = found[:, 3:] if side == "before" else found[:, :4]
    alone = called(layer, x, ones)
    np.testing.assert_allclose(real, alone, rtol=1e-5, atol=1e-6)
    padding = found[:, :3] if side == "before" else found[:, 4:]
    comes_last = (side == "after") is not reverse
    end = alone[:, 0] if reverse else alone[:, -1]
    np.testing.assert_allclose(padding, (end if comes_last else 0 * end)[:, None].repeat(3, axis=1), atol=1e-6)


def dropped(layer, x, keys, uses=1):
    """What `uses` uses of a layer in one forward pass give."""

    @jax.jit
    def forward(keys, x):
        with dropout.dropping(keys):
            return [layer(x) for _ in range(uses)]

    return [np.asarray(found) for found in forward(keys, x)]


def test_dropout_drops_its_rate_and_scales_up_the_rest():
    x = 2 * np.ones((4, 50, 50), np.float32)
    (found,) = dropped(Dropout(0.3), x, jax.random.split(jax.random.key(0), 4))
    assert set(np.unique(found)) == {0.0, np.float32(2) / np.float32(0.7)}
    for example in found:
        assert np.mean(example == 0) == pytest.approx(0.3, abs=5 * np.sqrt(0.3 * 0.7 / 2500))


def test_dropout_is_drawn_for_each_example_and_each_use():
    keys, x = jax.random.split(jax.random.key(0), 4), np.ones((4, 200), np.float32)
    first, second = dropped(Dropout(0.5), x, keys, uses=2)
    for one, other in ((first[0], first[1]), (first[2], first[3]), (first[0], second[0])):
        assert 0.3 < np.mean(one == other) < 0.7


def test_dropout_goes_with_the_example_wherever_it_stands():
    keys, x = jax.random.split(jax.random.key(0), 4), normal(4, 20)
    (together,) = dropped(Dropout(0.5), x, keys)
    order = np.array([3, 1])
    (apart,) = dropped(Dropout(0.5), x[order], keys[order])
    np.testing.assert_array_equal(apart, together[order])


def test_what_is_dropped_does_not_depend_on_how_far_an_example_is_padded():
    """Neither of what lies at positions nor of what lies between pairs of them."""
    keys, layer = jax.random.split(jax.random.key(0), 4), Dropout(0.5)
    x, scores = normal(4, 16, 6), normal(4, 2, 16, 12)
    (states,), (shares,) = dropped(layer, x, keys), dropped(layer.of_scores, scores, keys)
    for queries, seen in ((5, 3), (16, 1), (1, 12), (7, 11)):
        np.testing.assert_array_equal(dropped(layer, x[:, :queries], keys)[0], states[:, :queries])
        found = dropped(layer.of_scores, scores[:, :, :queries, :seen], keys)[0]
        np.testing.assert_array_equal(found, shares[:, :, :queries, :seen])


def test_each_pair_of_positions_is_dropped_by_itself_in_each_head():
    """With a probability of the rate; and no two pairs, heads, examples or uses are dropped together."""
    keys, x = jax.random.split(jax.random.key(0), 4), np.ones((4, 3, 24, 25), np.float32)
    first, second = dropped(Dropout(0.5).of_scores, x, keys, uses=2)
    assert set(np.unique(first)) == {0.0, 2.0}
    for axis in range(4):
        lines = np.moveaxis(first, axis, 0).reshape(x.shape[axis], -1) - 1
        together = np.corrcoef(lines) - np.eye(len(lines))
        assert np.abs(together).max() < 6 / np.sqrt(lines.shape[1])
        assert np.abs(lines.mean(axis=1)).max() < 5 / np.sqrt(lines.shape[1])
    assert np.mean(first == second) == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(x.size))


def test_nothing_is_dropped_without_keys_or_without_a_rate():
    x, keys = normal(4, 20), jax.random.split(jax.random.key(0), 4)
    np.testing.assert_array_equal(Dropout(0.5)(x), x)
    np.testing.assert_array_equal(dropped(Dropout(0.0).of_scores, x[:, None, None], keys)[0], x[:, None, None])
    np.testing.assert_array_equal(dropped(Dropout(0.0), x, keys)[0], x)
    with dropout.dropping(keys):
        assert dropout.next_keys() is not None
    assert dropout.next_keys() is None


def test_a_dropped_entry_that_is_no_number_is_gone():
    x = np.full((2, 100), np.nan, np.float32)
    (found,) = dropped(Dropout(0.5), x, jax.random.split(jax.random.key(0), 2))
    assert (found == 0).any()
    assert np.isnan(found).any()


@settings(max_examples=8)
@given(lengths=st.lists(st.integers(1, 6), min_size=3, max_size=3), reverse=st.booleans())
def test_an_lstm_gives_each_example_what_it_gives_to_it_alone(lengths, reverse):
    layer = LSTM(3, 4, reverse=reverse, rngs=nnx.Rngs(0))
    x, mask = normal(3, 6, 3), np.arange(6) < np.array(lengths)[:, None]
    together = called(layer, x, mask)
    for example, length in enumerate(lengths):
        alone = lstm_by_hand(layer, x[example : example + 1, :length], np.ones((1, length)), reverse)
        np.testing.assert_allclose(together[example, :length], alone[0], rtol=1e-4, atol=1e-5)
