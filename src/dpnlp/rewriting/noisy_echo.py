"""Echo with noise on the vector, to be compared with: the nearest public sentence to a clipped and noisy vector.

The vector of a text, less the mean of the bank's, is taken along the first n principal directions of the bank, clipped
in ℓ2 to C, the length that nine of ten sentences of the bank stay within, and gets analytic Gaussian noise for Δ₂ = 2C.
All of that but the text is public.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dpnlp.mechanisms import Gaussian, Laplace
from dpnlp.mechanisms.randomness import OS_ENTROPY, Source
from dpnlp.models.sentence_vectors import SentenceEncoder
from dpnlp.rewriting.directions import Directions, Places
from dpnlp.rewriting.echo import Bank, opened
from dpnlp.rewriting.latent import Clip, LatentRewriter, Latents, noise

DIRECTIONS = 128
"""n, unless told otherwise, or as many as a vector has entries."""

_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class NoisyEcho(LatentRewriter):
    """The method with noise for ε and δ: Gaussian, or Laplace where δ = 0; none where ε is infinite."""

    bank: Bank
    encoder: SentenceEncoder
    epsilon: float
    delta: float
    directions: int = DIRECTIONS
    source: Source = OS_ENTROPY
    clip: Clip = field(init=False)
    mechanism: Laplace | Gaussian | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip", self._along.clip)
        object.__setattr__(self, "mechanism", noise(self.clip, self.epsilon, self.delta, self.source))

    @cached_property
    def _along(self) -> Directions:
        return Directions.of(self.bank.vectors, self.directions)

    @cached_property
    def _places(self) -> Places:
        """The sentences of the bank along the directions, [K, n]."""
        return self._along(self.bank.vectors)

    @cached_property
    def _clipped(self) -> Places:
        """The same, clipped like texts."""
        return self.clip(self._places).astype(np.float32)

    def encode(self, texts: Sequence[str]) -> npt.ArrayLike:
        return self._along(self.encoder(texts))

    def decode(self, latents: Latents) -> list[str]:
        """The sentence whose place is nearest to the noisy one."""
        places = self._clipped
        half = np.sum(places**2, axis=1) / 2
        found = []
        for start in range(0, len(latents), _AT_ONCE):
            some = latents[start : start + _AT_ONCE].astype(np.float32)
            found += [self.bank.sentences[one] for one in np.argmax(some @ places.T - half, axis=1)]
        return found


def load(folder: Path, epsilon: float, delta: float = 0.0, source: Source = OS_ENTROPY) -> NoisyEcho:
    """The one in the folder of a rewriter, which is like that of an `Echo`."""
    bank, encoder = opened(folder)
    return NoisyEcho(bank, encoder, epsilon, delta, min(DIRECTIONS, bank.vectors.shape[1]), source)
