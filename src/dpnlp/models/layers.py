"""Layers that serve book-keeping: every use of a weight is handed to `bookkeeping`, so that clipping is exact.

All inputs have the batch first: x is [batch, …, width]. A layer never looks across the batch (law 4).
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from dpnlp import bookkeeping, dropout
from dpnlp.bookkeeping import Array, Kind
from dpnlp.checks import BadInput


def relu(x: Array) -> Array:
    """max(x, 0). Its gradient is known from what comes out: what went in need not be kept."""
    return bookkeeping.made_finite(_relu, x)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _relu(guard: bool, x: Array) -> Array:
    y = jnp.maximum(x, 0)
    return bookkeeping.finite(y) if guard else y


@_relu.defjvp
def _(guard: bool, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    y = _relu(guard, *primals)
    return y, jnp.where(y > 0, tangents[0], 0)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": relu,
    "silu": jax.nn.silu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
}


class Linear(nnx.Module):
    """y = xW + b. `outputs` may have several axes, such as (heads, width of a head)."""

    def __init__(self, inputs: int, outputs: int | tuple[int, ...], *, bias: bool = True, rngs: nnx.Rngs) -> None:
        self.shape = (outputs,) if isinstance(outputs, int) else tuple(outputs)
        size = math.prod(self.shape)
        self.kernel = nnx.Param(jax.random.normal(rngs.params(), (inputs, size)) / math.sqrt(inputs))
        self.bias = Bias(size) if bias else None

    def __call__(self, x: Array) -> Array:  # [batch, …, inputs] -> [batch, …, *outputs]
        y = times(x, self.kernel)
        if self.bias is not None:
            y = self.bias(y)
        return y.reshape(*x.shape[:-1], *self.shape)


class Bias(nnx.Module):
    """y = x + b, on the last axis."""

    def __init__(self, width: int) -> None:
        self.value = nnx.Param(jnp.zeros(width))

    def __call__(self, x: Array) -> Array:  # [batch, …, width] -> the same
        return x + _per_example(self.value, x)


class Embedding(nnx.Module):
    """A row for each token. `attend` uses the same table as the output layer, so that the two are one weight."""

    def __init__(self, tokens: int, width: int, *, rngs: nnx.Rngs) -> None:
        self.table = nnx.Param(jax.random.normal(rngs.params(), (tokens, width)))

    def __call__(self, ids: Array, dtype: Any = "float32") -> Array:  # [batch, …] -> [batch, …, width]
        def look_up(ids: Array, table: Array) -> Array:
            return jnp.take(table, ids, axis=0).astype(dtype)

        return bookkeeping.note(self.table, Kind.ROWS, ids, look_up)

    def attend(self, x: Array) -> Array:  # [batch, …, width] -> [batch, …, tokens]
        return bookkeeping.note(self.table, Kind.OUTPUT, x, lambda x, table: _product(x, table.T))


def small_table(rows: int, width: int, *, rngs: nnx.Rngs) -> Embedding:
    """Rows of length about 1, so that the logits start out of the size of the states."""
    embedding = Embedding(rows, width, rngs=rngs)
    embedding.table[...] *= width**-0.5
    return embedding


def refuse_longer(length: int, positions: int) -> None:
    """Refuses a text that a model has too few positions for; a lookup beyond a table would go unnoticed."""
    if length > positions:
        raise BadInput(
            f"A text of {length} tokens: this model has positions for at most {positions}; lower the maximum length."
        )


class PositionBuckets(nnx.Module):
    """T5's relative positions: a number for each head and each bucket of distances, added to the attention scores."""

    def __init__(self, buckets: int, heads: int, *, rngs: nnx.Rngs) -> None:
        self.table = nnx.Param(jax.random.normal(rngs.params(), (buckets, heads)))

    def __call__(self, bucket: Array, batch: int, dtype: Any = "float32") -> Array:
        """[queries, keys] -> [batch or 1, heads, queries, keys], for one layer; `dtype` is what the layer computes in.

        Each layer is to ask for itself. What flows back is large, and becomes a gradient of the table at once; where
        all layers share what they add, book-keeping would have to hold and add it up for each example.
        """
        tables = bookkeeping.direct(self.table, batch)
        # A product with zeros and ones: its gradient is one too, where that of a lookup would be a slow scatter.
        return _looked_up(dtype, jax.nn.one_hot(bucket, tables.shape[1], dtype=tables.dtype), tables)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _looked_up(dtype: Any, chosen: Array, tables: Array) -> Array:  # [q, k, n], [b, n, h] -> [b, h, q, k]
    """The tables are copies of one, so that one product is enough; only the gradient has one for each."""
    one = jnp.einsum("qkn,nh->hqk", chosen, tables[0])
    return jnp.broadcast_to(one, (tables.shape[0], *one.shape))


def _looked_up_backward(dtype: Any, chosen: Array, upstream: Array) -> tuple[None, Array]:
    sides = chosen.astype(dtype), upstream.astype(dtype)
    # On a CPU one example after the other: in one product the bits of an example depend on how many others there are.
    return None, jax.lax.platform_dependent(*sides, cpu=_each_looked_up, default=_all_looked_up)


def _all_looked_up(chosen: Array, upstream: Array) -> Array:
    return jnp.einsum("qkn,bhqk->bnh", chosen, upstream, preferred_element_type=jnp.float32)


def _each_looked_up(chosen: Array, upstream: Array) -> Array:
    each: Array = jax.lax.map(lambda own: _all_looked_up(chosen, own[None])[0], upstream)
    return each


_looked_up.defvjp(lambda dtype, chosen, tables: (_looked_up(dtype, chosen, tables), chosen), _looked_up_backward)


class RMSNorm(nnx.Module):
    """T5's norm: x / √(mean of x²) times a scale, in float32."""

    def __init__(self, width: int, *, epsilon: float = 1e-6) -> None:
        self.scale = nnx.Param(jnp.ones(width))
        self.epsilon = epsilon

    def __call__(self, x: Array) -> Array:  # [batch, …, width] -> the same
        wide = x.astype(jnp.float32)
        wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + self.epsilon)
        return wide.astype(x.dtype) * _per_example(self.scale, x)


class LayerNorm(nnx.Module):
    """(x − mean)/deviation times a scale plus a bias, in float32."""

    def __init__(self, width: int, *, epsilon: float = 1e-5) -> None:
        self.scale = nnx.Param(jnp.ones(width))
        self.bias = Bias(width)
        self.epsilon = epsilon

    def __call__(self, x: Array) -> Array:  # [batch, …, width] -> the same
        wide = x.astype(jnp.float32)
        wide = wide - jnp.mean(wide, axis=-1, keepdims=True)
        wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + self.epsilon)
        return self.bias(wide.astype(x.dtype) * _per_example(self.scale, x))


class State(NamedTuple):
    """What an LSTM knows at one time: its hidden and its cell state, [batch, hidden] each."""

    h: Array
    c: Array


class LSTM(nnx.Module):
    """A layer of LSTM cells (Hochreiter and Schmidhuber 1997, with a forget gate), over the time axis of x.

    [i, f, g, o] = x_t W + h_{t−1} U + b, c_t = σ(f) c_{t−1} + σ(i) tanh(g), h_t = σ(o) tanh(c_t). Where the mask is 0
    the state stays as it is, so that padding changes nothing, from whichever side the layer reads.
    """

    def __init__(self, inputs: int, hidden: int, *, reverse: bool = False, rngs: nnx.Rngs) -> None:
        self.input = Linear(inputs, 4 * hidden, rngs=rngs)
        self.recurrent = nnx.Param(jax.random.normal(rngs.params(), (hidden, 4 * hidden)) / math.sqrt(hidden))
        self.reverse = reverse

    def __call__(self, x: Array, mask: Array) -> Array:  # [batch, time, inputs], [batch, time] -> [batch, time, hidden]
        return self.run(x, mask)[0]

    def run(self, x: Array, mask: Array, start: State | None = None) -> tuple[Array, State]:
        """h after each token, [batch, time, hidden], and the state after the last one read; it starts from zeros."""
        U = bookkeeping.read(self.recurrent).astype(x.dtype)
        # ∂loss/∂(h_{t−1} U) is ∂loss/∂(x_t W): the tap can be added before the recurrence, h is known after it.
        gates, use = bookkeeping.tap(self.recurrent, Kind.INPUT, self.input(x))

        def cell(state: State, now: tuple[Array, Array]) -> tuple[State, tuple[Array, Array]]:
            (h, c), (gate, real) = state, now
            i, f, g, o = jnp.split(gate + h @ U, 4, axis=-1)
            c_next = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h_next = jax.nn.sigmoid(o) * jnp.tanh(c_next)
            following = State(jnp.where(real, h_next, h), jnp.where(real, c_next, c))
            return following, (h, following.h)

        if start is None:
            start = State(*(jnp.zeros((x.shape[0], U.shape[0]), x.dtype) for _ in range(2)))
        over_time = jnp.swapaxes(gates, 0, 1), jnp.swapaxes(mask, 0, 1)[..., None] > 0
        last, (before, after) = jax.lax.scan(cell, start, over_time, reverse=self.reverse)
        use.note = jnp.swapaxes(before, 0, 1)
        return jnp.swapaxes(after, 0, 1), last


class Dropout(nnx.Module):
    """Sets entries to zero with probability `rate` and scales up the others, in training only.

    What is dropped is drawn for each example by itself (`dropout`) and for each of its positions by itself, so that it
    depends neither on where in which batch an example stands nor on how far it is padded.
    """

    def __init__(self, rate: float) -> None:
        if not 0 <= rate < 1:
            raise BadInput(f"dropout = {rate}: it must be at least 0 and below 1.")
        self.rate = rate

    @property
    def active(self) -> bool:
        """Whether anything is dropped here and now."""
        return self.rate > 0 and dropout.is_on()

    def __call__(self, x: Array) -> Array:  # [batch, positions, …] or [batch, width] -> the same
        if self.rate == 0 or (keys := dropout.next_keys()) is None:
            return x
        return self._dropped(x, jax.vmap(lambda key: self._kept(key, x.shape[1:]))(keys))

    def of_scores(self, x: Array) -> Array:  # [batch, heads, queries, keys] -> the same
        """The same for what lies between pairs of positions."""
        if self.rate == 0 or (keys := dropout.next_keys()) is None:
            return x
        heads, queries, seen = x.shape[1:]

        def of_query(key: Array, query: Array) -> Array:  # [keys, heads]
            return self._kept(jax.random.fold_in(key, query), (seen, heads))

        kept = jax.vmap(jax.vmap(of_query, (None, 0)), (0, None))(keys, jnp.arange(queries))
        return self._dropped(x, jnp.transpose(kept, (0, 3, 1, 2)))

    def _kept(self, key: Array, shape: tuple[int, ...]) -> Array:
        """What is kept: where an entry of the first axis lies is all that it depends on, not how many there are."""
        return jax.random.bernoulli(key, 1 - self.rate, shape)

    def _dropped(self, x: Array, kept: Array) -> Array:
        return jnp.where(kept, x / (1 - self.rate), 0).astype(x.dtype)


def times(x: Array, weight: nnx.Param[Array]) -> Array:  # [batch, …, inputs] -> [batch, …, outputs]
    """xW, noted."""
    return bookkeeping.note(weight, Kind.INPUT, x, _product)


def _product(x: Array, matrix: Array) -> Array:
    """x times a matrix, in the type of x. With all positions on one axis: on a CPU the gradient is faster that way."""
    flat = x.reshape(-1, x.shape[-1]) @ matrix.astype(x.dtype)
    return flat.reshape(*x.shape[:-1], matrix.shape[-1])


def _per_example(weight: nnx.Param[Array], x: Array) -> Array:
    """A weight of shape [width], ready to meet x [batch, …, width]."""
    value = bookkeeping.direct(weight, x.shape[0]).astype(x.dtype)
    return value.reshape(value.shape[0], *(1,) * (x.ndim - 2), value.shape[-1])
