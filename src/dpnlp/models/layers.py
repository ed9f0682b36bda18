"""Layers that serve book-keeping: every use of a weight is handed to `bookkeeping`, so that clipping is exact.

All inputs have the batch first: x is [batch, …, width]. A layer never looks across the batch (law 4).
"""

import math

import jax
import jax.numpy as jnp
from flax import nnx

from dpnlp import bookkeeping
from dpnlp.bookkeeping import Array, Kind


class Linear(nnx.Module):
    """y = xW + b. `outputs` may have several axes, such as (heads, width of a head)."""

    def __init__(self, inputs: int, outputs: int | tuple[int, ...], *, bias: bool = True, rngs: nnx.Rngs) -> None:
        self.shape = (outputs,) if isinstance(outputs, int) else tuple(outputs)
        size = math.prod(self.shape)
        self.kernel = nnx.Param(jax.random.normal(rngs.params(), (inputs, size)) / math.sqrt(inputs))
        self.bias = Bias(size) if bias else None

    def __call__(self, x: Array) -> Array:  # [batch, …, inputs] -> [batch, …, *outputs]
        y = bookkeeping.note(self.kernel, Kind.INPUT, x, x @ self.kernel[...].astype(x.dtype))
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

    def __call__(self, ids: Array) -> Array:  # [batch, …] -> [batch, …, width]
        return bookkeeping.note(self.table, Kind.ROWS, ids, jnp.take(self.table[...], ids, axis=0))

    def attend(self, x: Array) -> Array:  # [batch, …, width] -> [batch, …, tokens]
        return bookkeeping.note(self.table, Kind.OUTPUT, x, x @ self.table[...].astype(x.dtype).T)


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


def _per_example(weight: nnx.Param[Array], x: Array) -> Array:
    """A weight of shape [width], ready to meet x [batch, …, width]."""
    value = bookkeeping.direct(weight, x.shape[0]).astype(x.dtype)
    return value.reshape(value.shape[0], *(1,) * (x.ndim - 2), value.shape[-1])
