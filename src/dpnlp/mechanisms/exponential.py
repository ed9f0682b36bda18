"""Choosing one of several candidates by a score: the exponential mechanism and report-noisy-max.

Scores are rounded down to a grid, so that both are decided by exact coins of exp(−γ) with a rational γ: a weight
computed in floating point would vanish for a poor candidate and give away that it was poor.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpnlp import checks, events
from dpnlp.checks import BadInput
from dpnlp.guarantee import Adjacency, Guarantee, Term, Trust, Unit
from dpnlp.mechanisms.base import Mechanism
from dpnlp.mechanisms.grid import exact, step_below
from dpnlp.mechanisms.randomness import OS_ENTROPY, Integers, Source, below, bernoulli_exp

_FINENESS = 2**14
"""At least so many grid steps fit into the scores' sensitivity."""

_EPSILON_BITS = 16
"""ε is rounded down to so many binary digits."""

_HOPELESS = 4096
"""A candidate so many nats below the best counts as just so far below; its chance is e^−4096 either way."""

_FARTHEST = 2.0**1000
"""Scores are clamped to so many grid steps on either side, where they could not be told apart anyway."""


@dataclass(frozen=True)
class Exponential(Mechanism):
    """Scores u(D, r) that move by at most `sensitivity` when a record changes, at a chosen ε.

    `monotone`: a record that comes or goes moves all scores the same way, as counts do; then half the noise is enough.
    """

    sensitivity: float
    epsilon: float
    monotone: bool = False
    source: Source = OS_ENTROPY

    def __post_init__(self) -> None:
        checks.positive("sensitivity", self.sensitivity, "the most that one record can change a score by")
        if not 1e-5 <= checks.positive("epsilon", self.epsilon) <= 1e5:
            raise BadInput(f"epsilon = {self.epsilon}: it must lie between 1e-5 and 1e5 for a choice among candidates.")

    def choose(self, scores: npt.ArrayLike) -> int:
        """The exponential mechanism (McSherry and Talwar 2007): r with probability ∝ exp(ε u(D, r)/2Δ).

        A candidate is drawn uniformly and kept with probability exp(−ε (max u − u)/2Δ), until one is kept.
        """
        behind, denominator = self._behind(scores)
        tries = min(behind.size, 4096)
        while True:
            drawn = below(self.source, behind.size, tries)
            kept = bernoulli_exp(self.source, behind[drawn], denominator)
            if kept.any():
                return int(drawn[np.argmax(kept)])

    def noisy_max(self, scores: npt.ArrayLike) -> int:
        """Report-noisy-max with exponential noise of scale 2Δ/ε, by permute-and-flip, which has the same distribution.

        In random order, the first candidate whose coin of exp(−ε (max u − u)/2Δ) comes up (McKenna and Sheldon 2020;
        Ding et al. 2021). Never worse in expectation than the exponential mechanism.
        """
        behind, denominator = self._behind(scores)
        kept = np.flatnonzero(bernoulli_exp(self.source, behind, denominator))
        return int(kept[below(self.source, kept.size, 1)[0]])

    def _behind(self, scores: npt.ArrayLike) -> tuple[Integers, int]:
        """How far each candidate is behind the best, as γ's numerators, and their denominator.

        In steps of the grid a record moves a rounded score by at most k = ⌊Δ/step⌋ + 1.
        """
        score = exact("scores", scores).ravel()
        if score.size == 0 or not np.all(np.isfinite(score)):
            raise BadInput("scores: there must be at least one, and all must be finite numbers.")
        step = step_below(self.sensitivity / _FINENESS)
        k = math.floor(self.sensitivity / step) + 1
        bits = _EPSILON_BITS - math.floor(math.log2(self.epsilon))
        rate = math.floor(math.ldexp(self.epsilon, bits))  # ε is about rate / 2^bits
        denominator = (1 if self.monotone else 2) * k << max(bits, 0)
        numerator = rate << max(-bits, 0)
        limit = _HOPELESS * denominator // numerator
        with np.errstate(over="ignore"):
            floor = np.floor(np.clip(score / step, -_FARTHEST, _FARTHEST))
        steps = np.minimum(floor.max() - floor, limit).astype(np.int64)
        shared = math.gcd(numerator, denominator)
        return steps * (numerator // shared), denominator // shared

    def guarantee(self, unit: Unit, adjacency: Adjacency, trust: Trust = Trust.CENTRAL) -> Guarantee:
        """What one choice promises. A record that is exchanged takes counts away and adds others."""
        if self.monotone and adjacency is Adjacency.REPLACE:
            raise BadInput(
                "monotone = True: a record that is exchanged does not move all scores the same way; leave it out, or "
                "choose add-remove."
            )
        return super().guarantee(unit, adjacency, trust)

    def event(self) -> events.ApproximateDP:
        """What an accountant sees: ε-DP, and no more is known."""
        return events.ApproximateDP(self.epsilon)

    @property
    def term(self) -> Term:
        """The name and the public parameters."""
        return Term.of("monotone-exponential" if self.monotone else "exponential", sensitivity=self.sensitivity)
