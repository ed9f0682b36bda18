"""Randomized response (Warner 1965): everyone answers for themselves, truthfully with a known probability."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpnlp import checks, events
from dpnlp.checks import BadInput
from dpnlp.guarantee import Adjacency, Guarantee, Term, Trust, Unit
from dpnlp.mechanisms.base import Mechanism
from dpnlp.mechanisms.confidence import at_least, at_most
from dpnlp.mechanisms.randomness import OS_ENTROPY, Coins, Integers, Source, below

_RESOLUTION = 2**62
"""The probability of the truth is rounded down to a multiple of one in about so many."""


def honest(source: Source, epsilon: float, preferred: int, categories: int, count: int) -> Coins:
    """Coins that come up where one of m preferred categories is told, each e^ε times as likely as any other of k.

    That is with θ = m e^ε/(m e^ε + k − m): a number of 62 bits lies below it. θ is rounded towards pure chance, which
    is m/k exactly, by way of 1 − θ, which keeps its digits when ε is large.
    """
    others = (categories - preferred) / preferred * math.exp(-epsilon)
    each = _RESOLUTION // categories
    whole = each * categories
    lies = max(1, math.ceil(others / (1 + others) * (1 + 2.0**-50) * whole))
    return below(source, whole, count) < max(whole - lies, each * preferred)


@dataclass(frozen=True)
class Estimate:
    """A share in the population, estimated without bias from randomized answers, and its confidence interval."""

    share: float
    low: float
    high: float


@dataclass(frozen=True)
class RandomizedResponse(Mechanism):
    """One of k categories: the true one is reported with probability e^ε/(e^ε + k − 1), every other one with the rest.

    With two categories θ = e^ε/(1 + e^ε) is the lecture's probability of the truth, and γ = θ − ½ the thesis's p.
    """

    epsilon: float
    categories: int = 2
    source: Source = OS_ENTROPY

    def __post_init__(self) -> None:
        checks.positive("epsilon", self.epsilon)
        object.__setattr__(self, "categories", checks.count("categories", self.categories, least=2))

    @classmethod
    def from_theta(cls, theta: float) -> "RandomizedResponse":
        """Two categories with the truth told with probability θ: ε = ln(θ/(1 − θ))."""
        if checks.probability("theta", theta) <= 0.5:
            raise BadInput(f"theta = {theta}: it must lie strictly between 0.5, pure chance, and 1, the plain truth.")
        return cls(math.log(theta / (1 - theta)))

    @classmethod
    def from_gamma(cls, gamma: float) -> "RandomizedResponse":
        """Two categories with the truth told with probability ½ + γ: ε = ln((½ + γ)/(½ − γ))."""
        if not 0 < gamma < 0.5:
            raise BadInput(f"gamma = {gamma}: it must lie strictly between 0, pure chance, and 0.5, the plain truth.")
        return cls.from_theta(0.5 + gamma)

    @property
    def theta(self) -> float:
        """The probability of reporting the true category."""
        return 1 / (1 + (self.categories - 1) * math.exp(-self.epsilon))

    @property
    def gamma(self) -> float:
        """For two categories, how far the probability of the truth lies above one half."""
        if self.categories != 2:
            raise BadInput(f"categories = {self.categories}: γ is defined for two of them.")
        return self.theta - 0.5

    def release(self, answers: npt.ArrayLike) -> Integers:
        """Randomized answers, as whole numbers 0 … k − 1.

        Where the truth does not survive, another answer is drawn.
        """
        truth = self._checked(answers)
        kept = honest(self.source, self.epsilon, 1, self.categories, truth.size)
        other = (truth + 1 + below(self.source, self.categories - 1, truth.size)) % self.categories
        return np.where(kept, truth, other).reshape(np.shape(answers))

    def estimate(self, answers: npt.ArrayLike, category: int = 1, confidence: float = 0.95) -> Estimate:
        """The share of `category` in the truth behind randomized answers."""
        if category not in range(self.categories):
            raise BadInput(f"category = {category}: it must be a whole number from 0 to {self.categories - 1}.")
        reported = self._checked(answers)
        return self.estimate_from_counts(int(np.sum(reported == category)), reported.size, confidence)

    def estimate_from_counts(self, hits: int, people: int, confidence: float = 0.95) -> Estimate:
        """The same from how many of the people reported the category (thesis Eqn 2.19, for k categories).

        A share f is reported with r = f θ + (1 − f)(1 − θ)/(k − 1); the observed share is put in for r, without bias.
        The interval is Clopper and Pearson's for r, carried over; it is never too short.
        """
        checks.probability("confidence", confidence)
        n = checks.count("people", people)
        if checks.count("hits", hits, least=0) > n:
            raise BadInput(f"hits = {hits}: it must not exceed the {n} people.")
        tail = (1 - confidence) / 2
        low, high = float(at_least(hits, n, tail)), float(at_most(hits, n, tail))
        wrong = (1 - self.theta) / (self.categories - 1)

        def corrected(r: float) -> float:
            return (r - wrong) / (self.theta - wrong)

        low, high = (min(1.0, max(0.0, corrected(r))) for r in (low, high))
        return Estimate(corrected(hits / n), low, high)

    def _checked(self, answers: npt.ArrayLike) -> Integers:
        given = np.asarray(answers).ravel()
        if not (np.issubdtype(given.dtype, np.integer) or given.dtype == np.bool_ or given.size == 0):
            raise BadInput(f"answers: they must be whole numbers from 0 to {self.categories - 1}, not {given.dtype}.")
        whole = given.astype(np.int64)
        if np.any((whole < 0) | (whole >= self.categories)):
            raise BadInput(f"answers: they must be whole numbers from 0 to {self.categories - 1}.")
        return whole

    def event(self) -> events.RandomizedResponse:
        """What an accountant sees for one person's one answer."""
        return events.RandomizedResponse(self.epsilon, self.categories)

    @property
    def term(self) -> Term:
        """The name and the public parameters."""
        return Term.of("randomized-response", theta=self.theta, categories=self.categories)

    def guarantee(
        self, unit: Unit = Unit.EXAMPLE, adjacency: Adjacency = Adjacency.REPLACE, trust: Trust = Trust.LOCAL
    ) -> Guarantee:
        """What one answer promises: by nature local, with any two true answers as neighbours."""
        return super().guarantee(unit, adjacency, trust)
