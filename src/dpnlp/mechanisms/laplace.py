"""The Laplace mechanism (Dwork et al. 2006): f(D) + Lap(Δ₁/ε) on every coordinate is ε-DP."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dpnlp import checks, events
from dpnlp.guarantee import Adjacency, Term
from dpnlp.mechanisms.base import Mechanism
from dpnlp.mechanisms.grid import discrete_laplace, from_grid, step_below, to_grid
from dpnlp.mechanisms.randomness import OS_ENTROPY, Source

_FINENESS = 2**20
"""At least so many grid steps for each coordinate fit into the noise's scale."""


@dataclass(frozen=True)
class Laplace(Mechanism):
    """Noise for an answer whose ℓ1 sensitivity Δ₁ is known, at a chosen ε."""

    sensitivity: float
    epsilon: float
    source: Source = OS_ENTROPY

    def __post_init__(self) -> None:
        checks.positive("sensitivity", self.sensitivity, "the ℓ1 distance between the answers on two neighbours")
        checks.positive("epsilon", self.epsilon)

    @property
    def scale(self) -> float:
        """b = Δ₁/ε, by the definition; on the grid it is larger by less than a millionth of 1 + 1/ε."""
        return self.sensitivity / self.epsilon

    def release(self, value: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """The answer with noise, on a grid of at most b/(2^20 n) for n coordinates; n is public.

        Rounding to the grid moves neighbours apart by up to a step in every coordinate, for which the noise makes up.
        """
        shape, n = np.shape(value), max(1, np.size(value))
        step = step_below(self.scale / (_FINENESS * n))
        scale = math.ceil((Fraction(float(self.sensitivity)) / Fraction(step) + n) / Fraction(float(self.epsilon)))
        noisy = to_grid(value, step) + discrete_laplace(self.source, scale, n)
        return from_grid(noisy, step, shape)

    def event(self, adjacency: Adjacency) -> events.Laplace:
        """What an accountant sees, if the sensitivity is the one for this adjacency."""
        return events.Laplace(Adjacency(adjacency).distance / self.epsilon)

    @property
    def term(self) -> Term:
        """The name and the public parameters."""
        return Term.of("laplace", scale=self.scale, sensitivity=self.sensitivity)
