"""Marian's transformer (Junczys-Dowmunt et al. 2018), as in the translators of OPUS-MT: a BART with fixed positions.

Positions are sines and cosines, which are computed, and the sum of token and position is not normed.
"""

from dataclasses import dataclass
from functools import cache

import jax.numpy as jnp
import numpy as np
from flax import nnx

from dpnlp.bookkeeping import Array
from dpnlp.models import bart


@dataclass(frozen=True)
class Config(bart.Config):
    """The shape of a BART, with what OPUS-MT chooses."""

    activation: str = "silu"
    scaled: bool = True


class Sinusoids(nnx.Module):
    """Adds sin(p/10000^(2i/width)), for i = 0, 1, …, width/2 − 1, and then the cosines, at position p."""

    def __init__(self, config: bart.Config, *, rngs: nnx.Rngs) -> None:
        self.count = config.positions

    def __call__(self, x: Array, ids: Array, positions: Array) -> Array:  # [batch, length, width] -> the same
        return x + jnp.asarray(sinusoids(self.count, x.shape[-1], x.shape[-1] // 2), x.dtype)[positions]


class Marian(bart.BART):
    """A translator of one language, or of several, into others."""

    entrance = Sinusoids


@cache
def sinusoids(count: int, width: int, steps: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Sines, then cosines, of position/10000^(i/steps) for each i up to half of the width: [count, width]."""
    angles = np.arange(count)[:, None] * 10000.0 ** (-np.arange(width // 2) / steps)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
