"""The Gaussian mechanism: f(D) + N(0, σ²) on every coordinate is (ε, δ)-DP for the right σ (law 12)."""

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt
from dp_accounting import get_epsilon_gaussian, get_sigma_gaussian
from mpmath import mp, mpf

from dpnlp import checks, events
from dpnlp.checks import BadInput
from dpnlp.guarantee import Adjacency, Term
from dpnlp.mechanisms.base import Mechanism
from dpnlp.mechanisms.grid import discrete_gaussian, from_grid, step_below, to_grid
from dpnlp.mechanisms.randomness import OS_ENTROPY, Source

_FINENESS = 2**24
"""At least so many grid steps fit into σ."""


class Calibration(StrEnum):
    """Which formula σ comes from."""

    ANALYTIC = "analytic"
    CLASSICAL = "classical"


def analytic_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """The smallest σ for which δ = Φ(Δ/2σ − εσ/Δ) − e^ε Φ(−Δ/2σ − εσ/Δ) (Balle and Wang 2018, Algorithm 1)."""
    checks.positive("epsilon", epsilon)
    checks.probability("delta", delta)
    checks.positive("sensitivity", sensitivity, "the ℓ2 distance between the answers on two neighbours")
    with np.errstate(divide="ignore"):  # For a tiny ε it meets a δ of 0 on its way.
        root = float(get_sigma_gaussian(epsilon, delta))
    # It is exact to 1e-12, and to 1e-14/ε of itself by cancellation; the additions keep it on the private side.
    # Where more cancels, it grows until the equation itself, with digits enough, says that it is large enough.
    sigma, more = root * (1 + 1e-10 + 1e-13 / epsilon) + 1e-11, 1e-10
    while epsilon < 1 and _exact_delta(sigma, epsilon) > delta:
        sigma, more = sigma * (1 + more), 2 * more
    return sensitivity * sigma


def _exact_delta(sigma: float, epsilon: float) -> mpf:
    """Φ(1/2σ − εσ) − e^ε Φ(−1/2σ − εσ), with twice as many digits as may cancel."""
    with mp.workdps(40 + 2 * math.ceil(-math.log10(min(epsilon, 1 / sigma, 1.0)))):
        half, e = 1 / (2 * mpf(sigma)), mpf(epsilon)
        return mp.ncdf(half - e * sigma) - mp.exp(e) * mp.ncdf(-half - e * sigma)


def analytic_epsilon(sigma: float, delta: float, sensitivity: float) -> float:
    """The smallest ε that a given σ has at δ, by the same equation."""
    checks.positive("sigma", sigma)
    checks.probability("delta", delta)
    checks.positive("sensitivity", sensitivity)
    with np.errstate(divide="ignore"):
        root = float(get_epsilon_gaussian(sigma / sensitivity, delta))
    return root * (1 + 1e-10) + 1e-12


def classical_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """σ = √(2 ln(1.25/δ)) Δ₂/ε (Dwork and Roth 2014, Theorem A.1), which is proved for ε < 1 only."""
    checks.positive("epsilon", epsilon)
    checks.probability("delta", delta)
    checks.positive("sensitivity", sensitivity, "the ℓ2 distance between the answers on two neighbours")
    if epsilon >= 1:
        raise BadInput(f"epsilon = {epsilon}: the classical formula is proved for ε < 1 only; use the analytic one.")
    return math.sqrt(2 * math.log(1.25 / delta)) * sensitivity / epsilon


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Noise for an answer whose ℓ2 sensitivity Δ₂ is known, at a chosen (ε, δ)."""

    sensitivity: float
    epsilon: float
    delta: float
    calibration: Calibration = Calibration.ANALYTIC
    source: Source = OS_ENTROPY

    def __post_init__(self) -> None:
        self.sigma  # noqa: B018  (a wrong field is refused here, not at the first release)

    @cached_property
    def sigma(self) -> float:
        """The standard deviation of the noise."""
        formula = analytic_sigma if Calibration(self.calibration) is Calibration.ANALYTIC else classical_sigma
        return formula(self.epsilon, self.delta, self.sensitivity)

    @property
    def step(self) -> float:
        """The width of the grid that noise is drawn on: a power of two of at most σ/2^24."""
        return step_below(self.sigma / _FINENESS)

    def scale(self, rounding: float = 0.0) -> int:
        """The scale of a discrete Gaussian, in grid steps, for an answer that rounding to the grid has moved.

        `rounding` is by how much it can move neighbours apart, in ℓ2, for which σ makes up. A discrete Gaussian of s
        steps is a randomized rounding of a continuous one of √(s² − 16) steps, up to a factor of 1 ± e^{−300} (Peikert
        2010, Theorem 3.1), hence the last term: the analytic guarantee is that of the continuous.
        """
        sigma = self.sigma / self.sensitivity * (self.sensitivity + rounding) / self.step
        return math.ceil(math.sqrt(sigma * sigma + 16))

    def release(self, value: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """The answer with noise, on the grid: rounding moves each coordinate of neighbours apart by up to a step."""
        shape, n, step = np.shape(value), max(1, np.size(value)), self.step
        noisy = to_grid(value, step) + discrete_gaussian(self.source, self.scale(math.sqrt(n) * step), n)
        return from_grid(noisy, step, shape)

    def event(self, adjacency: Adjacency) -> events.Gaussian:
        """What an accountant sees, if the sensitivity is the one for this adjacency."""
        return events.Gaussian(Adjacency(adjacency).distance * self.sigma / self.sensitivity)

    @property
    def term(self) -> Term:
        """The name and the public parameters."""
        return Term.of("gaussian", sigma=self.sigma, sensitivity=self.sensitivity, formula=str(self.calibration))
