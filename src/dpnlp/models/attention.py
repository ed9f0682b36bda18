"""Multi-head attention (Vaswani et al. 2017), split so that keys and values can be kept while a text is generated."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from dpnlp.bookkeeping import Array
from dpnlp.models.layers import Dropout, Linear


class KeysValues(NamedTuple):
    """What attention looks at: [batch, positions, heads, width of a head] each."""

    keys: Array
    values: Array

    def at(self, position: Array, new: "KeysValues") -> "KeysValues":
        """The same with those of one position put in."""
        zero = jnp.zeros_like(position)
        put = [
            jax.lax.dynamic_update_slice(old, one.astype(old.dtype), (zero, position, zero, zero))
            for old, one in zip(self, new, strict=True)
        ]
        return KeysValues(*put)


class Attention(nnx.Module):
    """softmax(QKᵀ·scale + bias) V, for each head. `rematerialise` computes the scores again for the gradient.

    No weight lies inside what is rematerialised, so that book-keeping does not notice.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        head_width: int,
        *,
        bias: bool,
        scale: float,
        dropout: float = 0.0,
        rematerialise: bool = False,
        rngs: nnx.Rngs,
    ) -> None:
        self.query, self.key, self.value = (Linear(width, (heads, head_width), bias=bias, rngs=rngs) for _ in range(3))
        self.output = Linear(heads * head_width, width, bias=bias, rngs=rngs)
        self.dropout = Dropout(dropout)
        self.scale, self.rematerialise = scale, rematerialise

    def keys_values(self, y: Array) -> KeysValues:  # [batch, keys, width]
        return KeysValues(self.key(y), self.value(y))

    def __call__(self, x: Array, seen: KeysValues, mask: Array, bias: Array | None = None) -> Array:
        """x is [batch, queries, width]; mask (what may be seen) and bias broadcast to [batch, heads, queries, keys]."""

        def mixed(query: Array, keys: Array, values: Array, bias: Array | None) -> Array:
            if self.dropout.active:
                return self._dropped(query, keys, values, mask, bias)
            return jax.nn.dot_product_attention(query, keys, values, bias, mask, scale=self.scale)

        mix = jax.checkpoint(mixed) if self.rematerialise else mixed
        found = mix(self.query(x), *seen, bias)
        return self.output(found.reshape(*x.shape[:-1], -1))

    def _dropped(self, query: Array, keys: Array, values: Array, mask: Array, bias: Array | None) -> Array:
        """The same with some of the looks dropped, for which there is no library function."""
        scores = jnp.einsum("bqhd,bkhd->bhqk", query, keys, preferred_element_type=jnp.float32) * self.scale
        if bias is not None:
            scores += bias
        shares = jax.nn.softmax(jnp.where(mask, scores, -1e30), axis=-1)
        return jnp.einsum("bhqk,bkhd->bqhd", self.dropout(shares.astype(values.dtype)), values)


def real(mask: Array) -> Array:
    """Each query may see the keys that are no padding: [batch, keys] -> [batch, 1, 1, keys]."""
    return mask[:, None, None, :] > 0


def past(queries: Array, keys: int) -> Array:
    """Each query, by its position, may see the keys up to itself: [queries] -> [1, 1, queries, keys]."""
    return (jnp.arange(keys)[None, :] <= queries[:, None])[None, None]


def scaled(head_width: int) -> float:
    """1/√d, the usual scale of the scores."""
    return 1 / math.sqrt(head_width)
