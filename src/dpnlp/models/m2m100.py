"""M2M100 (Fan et al. 2021) and NLLB: an mBART with fixed positions that count only the tokens that are no padding."""

from dataclasses import dataclass

import jax.numpy as jnp
from flax import nnx

from dpnlp.bookkeeping import Array
from dpnlp.models import bart
from dpnlp.models.marian import sinusoids


@dataclass(frozen=True)
class Config(bart.Config):
    """The shape of a BART, with what M2M100 chooses."""

    output_bias: bool = False
    norm_first: bool = True
    scaled: bool = True
    activation: str = "relu"
    padding: int = 1  # the token that is not counted


class CountedSinusoids(nnx.Module):
    """Adds sines and cosines at p + padding, where the token is the p-th that is no padding; padding gets nothing."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.count, self.padding = config.positions, config.padding

    def __call__(self, x: Array, ids: Array, positions: Array) -> Array:  # [batch, length, width] -> the same
        counts = ids != self.padding
        table = sinusoids(self.padding + 1 + self.count, x.shape[-1], x.shape[-1] // 2 - 1)
        rows = self.padding + positions[0] + jnp.cumsum(counts, axis=1)
        return x + jnp.where(counts[..., None], jnp.asarray(table, x.dtype)[rows], 0)


class M2M100(bart.BART):
    """A translator between many languages."""

    entrance = CountedSinusoids
