"""One of many candidates, where m of them suit an answer: each of these is e^ε times as likely as any other.

Randomized response has m = 1. No ε-DP way of choosing has a better mean utility among those that treat all answers
alike: P(i) lies between a floor and e^ε times that floor, and all of the weight that is free goes to the best (the
staircase mechanisms of Kairouz, Oh and Viswanath 2016).
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpnlp import checks, events
from dpnlp.checks import BadInput
from dpnlp.guarantee import Adjacency, Guarantee, Term, Trust, Unit
from dpnlp.mechanisms.base import Mechanism
from dpnlp.mechanisms.randomized_response import honest
from dpnlp.mechanisms.randomness import OS_ENTROPY, Integers, Source, below


@dataclass(frozen=True)
class SubsetResponse(Mechanism):
    """A choice among `candidates`, of which every answer prefers as many, `preferred`, whatever it is."""

    epsilon: float
    candidates: int
    preferred: int = 1
    source: Source = OS_ENTROPY

    def __post_init__(self) -> None:
        checks.positive("epsilon", self.epsilon)
        object.__setattr__(self, "candidates", checks.count("candidates", self.candidates, least=2))
        object.__setattr__(self, "preferred", checks.count("preferred", self.preferred))
        if self.preferred >= self.candidates:
            raise BadInput(
                f"preferred = {self.preferred}: it must be below the number of candidates, {self.candidates}; "
                "where all are preferred, nothing is said."
            )

    @property
    def theta(self) -> float:
        """The probability that the choice is a preferred candidate, m e^ε/(m e^ε + k − m)."""
        return 1 / (1 + (self.candidates - self.preferred) / self.preferred * math.exp(-self.epsilon))

    def release(self, preferred: npt.ArrayLike) -> Integers:
        """For each row of m different candidates one of all k: [answers, m] -> [answers]."""
        rows = self._checked(preferred)
        kept = honest(self.source, self.epsilon, self.preferred, self.candidates, len(rows))
        inside = rows[np.arange(len(rows)), below(self.source, self.preferred, len(rows))]
        outside = below(self.source, self.candidates - self.preferred, len(rows))
        lies = np.flatnonzero(~kept)
        # The r-th of those not preferred: r, and one further for each preferred one that lies before it.
        gaps = np.sort(rows[lies], axis=1) - np.arange(self.preferred)
        outside[lies] += np.sum(gaps <= outside[lies, None], axis=1)
        return np.where(kept, inside, outside)

    def _checked(self, preferred: npt.ArrayLike) -> Integers:
        rows = np.asarray(preferred)
        if rows.ndim != 2 or rows.shape[1] != self.preferred or not np.issubdtype(rows.dtype, np.integer):
            raise BadInput(f"preferred: it must have rows of {self.preferred} whole numbers, one row for each answer.")
        ordered = np.sort(rows.astype(np.int64), axis=1)
        if np.any(ordered[:, 1:] == ordered[:, :-1]) or np.any((ordered < 0) | (ordered >= self.candidates)):
            raise BadInput(f"preferred: a row must have different numbers from 0 to {self.candidates - 1}.")
        return rows.astype(np.int64)

    def event(self) -> events.RandomizedResponse:
        """What an accountant sees: randomized response among ⌊k/m⌋ categories, which tells no less.

        Of two answers that share no preferred candidate, the first one's come up with θ against θ e^−ε, the second
        one's the other way round, and all others alike; so do the true and one other of k/m categories. Fewer
        categories, or a common preferred candidate, make θ or what is alike larger.
        """
        return events.RandomizedResponse(self.epsilon, max(2, self.candidates // self.preferred))

    @property
    def term(self) -> Term:
        """The name and the public parameters."""
        return Term.of("subset-response", candidates=self.candidates, preferred=self.preferred)

    def guarantee(
        self, unit: Unit = Unit.TEXT, adjacency: Adjacency = Adjacency.REPLACE, trust: Trust = Trust.LOCAL
    ) -> Guarantee:
        """What one choice promises: by nature local, with any two answers as neighbours."""
        return super().guarantee(unit, adjacency, trust)
