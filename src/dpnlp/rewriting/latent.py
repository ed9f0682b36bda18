"""Rewriting by way of a vector: z = ENC(x) is clipped, z' = z + η, and the text is ŷ = DEC(z').

The thesis's Eqns 5.1 to 5.3 and 6.1 to 6.8. ADePT and DP-BART are of this form, each with its own encoder, decoder and
rule of clipping.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.events import Event, NonPrivate
from dpnlp.guarantee import Adjacency
from dpnlp.mechanisms import Gaussian, Laplace
from dpnlp.mechanisms.randomness import OS_ENTROPY, Source
from dpnlp.mechanisms.sensitivity import Contribution, Sensitivity, clip_by_norm, clip_by_value, of_sum
from dpnlp.rewriting.base import Rewriter

Latents = npt.NDArray[np.float64]
"""[texts, n]"""


class Rule(StrEnum):
    """What of a latent is bounded by C: its ℓ1 norm, its ℓ2 norm, or each of its entries."""

    L1 = "l1"
    L2 = "l2"
    VALUE = "value"


_ORDERS = {Rule.L1: 1, Rule.L2: 2}
"""The p of the ℓp norm that is bounded."""


@dataclass(frozen=True)
class Clip:
    """Latents of n entries, brought within C."""

    rule: Rule
    bound: float
    dimension: int

    def __call__(self, latents: npt.ArrayLike) -> Latents:
        """The latents, clipped: [texts, n] -> the same."""
        rows = np.asarray(latents, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.dimension:
            raise BadInput(
                f"latents of shape {rows.shape}: each must have {self.dimension} entries, as was planned for."
            )
        if self.rule is Rule.VALUE:
            return clip_by_value(rows, self.bound)
        return clip_by_norm(rows, self.bound, _ORDERS[self.rule])

    @property
    def sensitivity(self) -> Sensitivity:
        """How far apart the latents of any two texts can be.

        Δ₁ = 2C and Δ₂ = 2C by the ℓ1 norm, 2C√n and 2C by the ℓ2 norm (Habernal 2021, Theorem 5.1), 2Cn and 2C√n by
        value (thesis Eqns 6.5 and 6.7).
        """
        if self.rule is Rule.VALUE:
            bounds = Contribution.clipped_by_value(self.bound, self.dimension)
        else:
            bounds = Contribution.clipped_by_norm(self.bound, self.dimension, _ORDERS[self.rule])
        return of_sum(bounds, Adjacency.REPLACE)


def noise(clip: Clip, epsilon: float, delta: float, source: Source = OS_ENTROPY) -> Laplace | Gaussian | None:
    """The noise for clipped latents: analytic Gaussian, or Laplace where δ = 0; none where ε is infinite."""
    if checks.budget("epsilon", epsilon) == float("inf"):
        return None
    if delta == 0:
        return Laplace(clip.sensitivity.l1, epsilon, source=source)
    return Gaussian(clip.sensitivity.l2, epsilon, delta, source=source)


class LatentRewriter(Rewriter):
    """An encoder, a rule of clipping, noise and a decoder. Without noise the latents are clipped all the same."""

    clip: Clip
    mechanism: Laplace | Gaussian | None

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> npt.ArrayLike:
        """z = ENC(x): [texts, n]."""

    @abstractmethod
    def decode(self, latents: Latents) -> list[str]:
        """ŷ = DEC(z'). It sees nothing of a text but its noisy latent."""

    def rewrite(self, texts: Sequence[str]) -> list[str]:
        return self.decode(self.latents(texts))

    def latents(self, texts: Sequence[str]) -> Latents:
        """z': the clipped latents with their noise. Drawn for all texts at once, each has at least its own."""
        clipped = self.clip(self.encode(texts))
        return clipped if self.mechanism is None else self.mechanism.release(clipped)

    @property
    def event(self) -> Event:
        return NonPrivate() if self.mechanism is None else self.mechanism.event(Adjacency.REPLACE)
