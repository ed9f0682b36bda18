"""Drawing one of many by their scores, so that what is improbable is not impossible.

`jax.random.categorical` makes each Gumbel number from 23 random bits: none is above 16, none below −4.5. A token that
is 21 nats behind the best is never drawn, and one of a probability below 2^−24 is drawn too often or not at all. Where
the scores are private, that tells about them.
"""

import jax
import jax.numpy as jnp

from dpnlp.bookkeeping import Array

_BLOCK = 128
"""Scores are drawn from in two turns, first a block of so many, then one of it."""


def categorical(key: Array, scores: Array) -> Array:
    """One of the scores [n], with a probability ∝ exp(score), of which the logarithm is right to some 10⁻⁴.

    A block is drawn by the logarithm of its sum, which has a small relative error however small its terms are, and then
    one of its scores: that takes n/128 + 128 Gumbel numbers instead of n.
    """
    blocks = jnp.pad(scores, (0, -scores.size % _BLOCK), constant_values=-jnp.inf).reshape(-1, _BLOCK)
    first, second = jax.random.split(key)
    block = _largest(first, jax.nn.logsumexp(blocks, axis=1))
    return block * _BLOCK + _largest(second, blocks[block])


def _largest(key: Array, scores: Array) -> Array:
    """Where score + Gumbel is largest, which is at i with a probability ∝ exp(score i) (Gumbel 1954)."""
    return jnp.argmax(scores + gumbel(jax.random.bits(key, (3, *scores.shape), jnp.uint32)))


def gumbel(words: Array) -> Array:
    """Gumbel numbers −ln(−ln u) in float32 from 96 random bits each, of words [3, ...]: from −4.3 to 67.3.

    u = (w₀ + (w₁ + (w₂ + ½)/2^32)/2^32)/2^32. Float32 is fine near 0 only, so above a half the logarithm is that of
    1 − (1 − u), with 1 − u from the complements of the words. Thus −ln u goes down to 2^−97 with all its digits.
    """
    u, rest = _uniform(words), _uniform(~words)
    return -jnp.log(-jnp.where(u < 0.5, jnp.log(u), jnp.log1p(-rest)))


def _uniform(words: Array) -> Array:
    first, second, third = words.astype(jnp.float32)
    uniform: Array = (first + (second + (third + 0.5) * 2.0**-32) * 2.0**-32) * 2.0**-32
    return uniform
