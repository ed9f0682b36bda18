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


class Kept(NamedTuple):
    """The same for many looks, one after the other: [batch, heads, positions, width of a head], as products want it.

    The beams of an input look at them together.
    """

    keys: Array
    values: Array

    @classmethod
    def of(cls, seen: "KeysValues | Kept") -> "Kept":
        return seen if isinstance(seen, Kept) else cls(*(jnp.swapaxes(side, 1, 2) for side in seen))

    def at(self, position: Array, new: KeysValues) -> "Kept":
        """The same with those of one token of each beam put in; these are [batch · beams, 1, heads, width]."""
        batch, heads, _, width = self.keys.shape
        zero, put = jnp.zeros_like(position), []
        for old, one in zip(self, new, strict=True):
            beams = jnp.swapaxes(one.reshape(batch, -1, heads, width), 1, 2).astype(old.dtype)
            put.append(jax.lax.dynamic_update_slice(old, beams, (zero, zero, position * beams.shape[2], zero)))
        return Kept(*put)

    def mixed(self, query: Array, mask: Array, bias: Array | None, scale: float, dropout: Dropout) -> Array:
        """The values, by how much each query [batch, queries, heads, width], or [batch · beams, …], looks at them."""
        batch, heads, _, width = self.keys.shape
        queries = jnp.swapaxes(query.reshape(batch, -1, heads, width), 1, 2)
        scores = jnp.einsum("bhqd,bhkd->bhqk", queries, self.keys, preferred_element_type=jnp.float32) * scale
        if bias is not None:
            scores += bias
        shares = dropout.of_scores(jax.nn.softmax(jnp.where(mask, scores, -1e30), axis=-1).astype(self.values.dtype))
        return jnp.swapaxes(jnp.einsum("bhqk,bhkd->bhqd", shares, self.values), 1, 2).reshape(query.shape)


Seen = KeysValues | Kept


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

    def __call__(self, x: Array, seen: Seen, mask: Array, bias: Array | None = None) -> Array:
        """x is [batch, queries, width]; mask (what may be seen) and bias broadcast to [batch, heads, queries, keys]."""
        return self.attend(self.query(x), seen, mask, bias)

    def attend(self, query: Array, seen: Seen, mask: Array, bias: Array | None = None) -> Array:
        """The same for queries that are there already, [batch, queries, heads, width of a head]."""

        def mixed(query: Array, seen: Seen, bias: Array | None) -> Array:
            if isinstance(seen, Kept) or self.dropout.active:  # for neither is there a library function
                return Kept.of(seen).mixed(query, mask, bias, self.scale, self.dropout)
            if fused(query, seen.keys, bias):
                whole = jnp.broadcast_to(mask, (*mask.shape[:2], query.shape[1], seen.keys.shape[1]))
                return jax.nn.dot_product_attention(query, *seen, mask=whole, scale=self.scale, implementation="cudnn")
            return jax.nn.dot_product_attention(query, *seen, bias, mask, scale=self.scale)

        mix = jax.checkpoint(mixed) if self.rematerialise else mixed
        found = mix(query, seen, bias)
        return self.output(found.reshape(*query.shape[:-2], -1))


def fused(query: Array, keys: Array, bias: Array | None) -> bool:
    """Whether cuDNN's fused kernel is to be used: where it can be, and from the length on from which it is faster.

    On one H200 in bfloat16 it takes 1.4 times XLA's time at 64 positions, 0.7 at 128 and 0.35 at 1,024, and it never
    holds the scores. It has no gradient for a bias that differs between examples, so T5 goes without it.
    """
    lengths, width = (query.shape[1], keys.shape[1]), query.shape[-1]
    return (
        jax.devices()[0].device_kind.startswith("NVIDIA")
        and bias is None
        and query.dtype in (jnp.bfloat16, jnp.float16)
        and min(lengths) >= 128
        and not any(length % 2 for length in lengths)
        and width % 8 == 0
        and width <= 128
    )


def real(mask: Array) -> Array:
    """Each query may see the keys that are no padding: [batch, keys] -> [batch, 1, 1, keys]."""
    return mask[:, None, None, :] > 0


def past(queries: Array, keys: int) -> Array:
    """Each query, by its position, may see the keys up to itself: [queries] -> [1, 1, queries, keys]."""
    return (jnp.arange(keys)[None, :] <= queries[:, None])[None, None]


def scaled(head_width: int) -> float:
    """1/√d, the usual scale of the scores."""
    return 1 / math.sqrt(head_width)
