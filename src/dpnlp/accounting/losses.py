"""The distribution of a privacy loss ln(P/Q) on a grid, and the convolution that composition is.

dp-accounting composes such distributions too. This file exists for two measured reasons (`python -m
benchmarks.accounting`). Speed: its window follows a Chernoff bound at the right order and ε is read off by sums, so a
million steps cost a tenth of a second instead of one. Accuracy: the n-th power of a Fourier transform magnifies
rounding by n, and at a million steps and δ = 1e-12 a plain transform errs by percents to either side. Here the
distribution is tilted towards the losses that decide δ before it is transformed, so that rounding stays small against
δ however small that is.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy import fft
from scipy.optimize import brentq
from scipy.signal import oaconvolve
from scipy.special import logsumexp

Array = npt.NDArray[np.float64]
Divergence = Callable[[Array], Array]

_CUT = 1e-18
"""Tilted mass that a convolution may leave outside its window; folded back into it by the FFT, it only adds."""

_ROUNDING = 1e-6
"""Share of δ that is given away to the rounding of FFTs, which is about 1e-16 of it times the number of steps."""


_LEAST = 1e-6
"""The least θ that losses are tilted by."""

_MAGNIFIED = 1e6
"""How much rounding may be magnified against δ."""

_LONGEST = 2**23
"""Grid points that a convolution may have; beyond it the grid has to be coarser."""


class Overlong(Exception):
    """The grid is too fine for the range of losses."""


@dataclass(frozen=True)
class Losses:
    """Loss (lowest + i)·step with probability masses[i] under P, and an infinite loss with probability `infinite`."""

    step: float
    lowest: int
    masses: Array
    infinite: float

    @classmethod
    def connect_dots(
        cls, above: Divergence, below: Divergence, top: float, bottom: float, bounded: bool, step: float
    ) -> "Losses":
        """The smallest distribution on the grid that is as private as the profile says at every grid point.

        Between grid points δ is taken linear in e^x (Connect the Dots, Doroshenko et al. 2022), which is never below a
        profile, since those are convex in e^x. Losses below zero come from the reverse profile: where the pair (Q, P)
        has the loss x with probability p, the pair (P, Q) has −x with p e^−x. So every mass keeps its digits.
        """
        positive, infinite = _masses(above, top, bounded, step)
        negative, _ = _masses(below, bottom, bounded, step)
        negative = (negative * np.exp(-step * np.arange(1, len(negative) + 1)))[::-1]
        zero = max(0.0, 1.0 - math.fsum(positive) - math.fsum(negative) - infinite)
        return cls(step, -len(negative), np.concatenate((negative, [zero], positive)), infinite)

    def variance(self) -> float:
        """The variance of the finite losses."""
        losses, total = self.values(), float(self.masses.sum())
        mean = _sum(self.masses, losses) / total
        return _sum(self.masses, (losses - mean) ** 2) / total

    def values(self) -> Array:
        """The losses that the masses belong to."""
        return np.asarray((self.lowest + np.arange(len(self.masses))) * self.step, dtype=np.float64)

    def delta(self, epsilons: Array) -> Array:
        """The hockey-stick divergence δ(ε) = infinite + Σ over losses l > ε of p (1 − e^{ε−l})."""
        losses = self.values()
        mass, shrunk = self._tails(losses)
        index = np.searchsorted(losses, epsilons, side="right")
        nearest = losses[np.minimum(index, len(losses) - 1)]
        return self.infinite + mass[index] - np.exp(np.minimum(epsilons - nearest, 0.0)) * shrunk[index]

    def epsilon(self, delta: float) -> float:
        """The smallest ε ≥ 0 with δ(ε) ≤ delta; infinite where the infinite loss alone is likelier."""
        allowed = delta * (1 - _ROUNDING) - self.infinite
        if allowed <= 0:
            return math.inf
        losses = self.values()
        mass, shrunk = self._tails(losses)
        beyond = mass[1:] - shrunk[1:] * math.exp(-self.step)  # δ(ε) − infinite at each loss; it decreases
        index = int(np.argmax(beyond <= allowed))
        if mass[index] <= allowed:
            return 0.0
        # Just below losses[index], δ(ε) = infinite + mass − e^{ε − l} shrunk, which is solved for ε.
        return max(0.0, float(losses[index] + math.log((mass[index] - allowed) / shrunk[index])))

    def _tails(self, losses: Array) -> tuple[Array, Array]:
        """For each index i the mass at and above it, and Σ_{j ≥ i} p_j e^{l_i − l_j}; both end with a zero.

        The second sum is taken in blocks of 100 nats, within which powers of e neither overflow nor make a mass vanish.
        """
        mass = np.append(np.cumsum(self.masses[::-1])[::-1], 0.0)
        shrunk = np.zeros(len(losses) + 1)
        block = max(1, int(100 / self.step))
        for start in reversed(range(0, len(losses), block)):
            end = min(start + block, len(losses))
            above = losses[start:end] - losses[start]
            inner = np.cumsum((self.masses[start:end] * np.exp(-above))[::-1])[::-1]
            carried = shrunk[end] * math.exp(-self.step * (end - start))
            shrunk[start:end] = (inner + carried) * np.exp(above)
        return mass, shrunk


def _masses(divergence: Divergence, top: float, bounded: bool, step: float) -> tuple[Array, float]:
    """The masses at step, 2·step, … up to the first grid point at or above `top`, and the mass beyond.

    A bounded loss has no mass beyond; what rounding leaves there is put on one more grid point instead.
    """
    count = max(1, math.ceil(top / step)) + bounded
    deltas = divergence(np.asarray(step * np.arange(count + 1), dtype=np.float64))
    if bounded:
        deltas[-1] = 0.0
    falls = np.maximum(-np.diff(deltas), 0.0)  # δ(x_{i−1}) − δ(x_i)
    masses = falls / -math.expm1(-step)
    masses[:-1] -= falls[1:] / math.expm1(min(step, 700.0))
    return np.maximum(masses, 0.0), float(deltas[-1])


def compose(parts: Sequence[tuple[Losses, int]], delta: float) -> Losses:
    """The loss of all parts together, each repeated so many times, exact to rounding around the ε that belongs to δ.

    With K(θ) = Σ n ln E[e^{θL}], the parts are tilted by e^{θL} so that their mean K'(θ) falls on the losses that
    decide δ: ln(1/δ) = θK'(θ) − K(θ), Chernoff's bound at its best order. Losses far below are left out.

    At ε rounding is magnified by e^{K − θε} against δ. Where that is much, as where few values of the loss are
    possible and δ lies between their probabilities, ε itself is made the mean, K'(θ) = ε, until θ falls no more.
    """
    theta, found = _tilt(parts, delta), list[Losses]()
    while True:
        total, K = _tilted(parts, theta, delta)
        found.append(total)
        epsilon = total.epsilon(delta)
        if epsilon == math.inf or K - theta * epsilon <= math.log(_MAGNIFIED * delta):
            return total
        before, theta = theta, _order(parts, partial(_beyond, epsilon))
        if theta > 0.9 * before or before == 0:
            return max(found, key=lambda losses: losses.epsilon(delta))


def _tilted(parts: Sequence[tuple[Losses, int]], theta: float, delta: float) -> tuple[Losses, float]:
    """The loss of all parts together by way of their tilted losses, and K(θ)."""
    step = parts[0][0].step
    total, log_scale, infinite = Losses(step, 0, np.ones(1), 0.0), 0.0, 0.0
    for part, times in parts:
        logs = _logs(part.masses) + theta * part.values()
        log_sum = float(logsumexp(logs))
        repeated = _repeat(Losses(step, part.lowest, np.exp(logs - log_sum), 0.0), times)
        masses = oaconvolve(total.masses, repeated.masses) if len(total.masses) > 1 else repeated.masses
        total = Losses(step, total.lowest + repeated.lowest, masses, 0.0)
        log_scale += times * log_sum
        infinite = 1 - (1 - infinite) * math.exp(times * math.log1p(-part.infinite))
    untilted = np.maximum(total.masses, 0.0) * np.exp(np.minimum(log_scale - theta * total.values(), 700.0))
    return Losses(step, total.lowest, untilted, infinite + _CUT * delta), log_scale


def _tilt(parts: Sequence[tuple[Losses, int]], delta: float) -> float:
    """The θ that `compose` begins with.

    Where there is a largest loss, and it is likelier than δ, θK' − K never gets to ln(1/δ). Nine tenths of its limit
    are enough then; a θ beyond all bounds would magnify rounding.
    """
    limit = _chernoff(*_cumulants(parts, _most(parts)))
    aim = min(-math.log(delta), 0.9 * limit)
    return _order(parts, lambda K, mean, theta: _chernoff(K, mean, theta) - aim)


def _chernoff(K: float, mean: float, theta: float) -> float:
    """θK'(θ) − K(θ), which grows with θ."""
    return theta * mean - K


def _beyond(epsilon: float, K: float, mean: float, theta: float) -> float:
    """K'(θ) − ε."""
    return mean - epsilon


def _order(parts: Sequence[tuple[Losses, int]], gap: Callable[[float, float, float], float]) -> float:
    """The θ at which a gap that grows with it, made of K, K' and θ, is closed; 0 where it is so from the start."""
    low, high = math.log(_LEAST), math.log(_most(parts))

    def at(log_theta: float) -> float:
        return gap(*_cumulants(parts, math.exp(log_theta)))

    if at(low) >= 0:
        return 0.0
    return math.exp(brentq(at, low, high, xtol=0.02) if at(high) > 0 else high)


def _most(parts: Sequence[tuple[Losses, int]]) -> float:
    """The largest θ: a larger one would tell neighbouring points of the grid apart, and nothing else."""
    return max(0.3 / parts[0][0].step, 2 * _LEAST)


def _cumulants(parts: Sequence[tuple[Losses, int]], theta: float) -> tuple[float, float, float]:
    """K(θ), its derivative, which is the mean of all tilted losses, and θ."""
    K = mean = 0.0
    for part, times in parts:
        losses = part.values()
        logs = _logs(part.masses) + theta * losses
        log_sum = float(logsumexp(logs))
        K, mean = K + times * log_sum, mean + times * _sum(np.exp(logs - log_sum), losses)
    return K, mean, theta


def _repeat(part: Losses, times: int) -> Losses:
    """The masses convolved with themselves by one FFT, on a window that holds all but _CUT of them."""
    if times == 1:
        return part
    first, last = _window(part.masses, times)
    size = fft.next_fast_len(max(last - first + 1, len(part.masses)), real=True)
    cyclic = fft.irfft(fft.rfft(part.masses, size) ** times, size)
    return Losses(part.step, part.lowest * times + first, np.roll(cyclic, -first)[: last - first + 1], 0.0)


def _window(masses: Array, times: int) -> tuple[int, int]:
    """First and last index of the `times`-fold sum between which all but _CUT of its mass lies (Chernoff's bound)."""
    index = np.arange(len(masses), dtype=np.float64)
    mean = _sum(masses, index)
    deviation = math.sqrt(max(_sum(masses, (index - mean) ** 2), 1e-9))
    allowance = math.log(2 / _CUT)
    first, last = 0, (len(masses) - 1) * times
    logs = _logs(masses)
    # The best order for a normal sum, and the orders of a sum that is ruled by its rare large terms.
    normal, rare = math.sqrt(2 * allowance / times) / deviation, allowance / len(masses)
    for order in np.geomspace(min(normal / 4, rare / 16), max(2 * normal, rare), 13):
        up = float(logsumexp(logs + order * (index - mean)))
        down = float(logsumexp(logs - order * (index - mean)))
        last = min(last, math.ceil(times * mean + (times * up + allowance) / order))
        first = max(first, math.floor(times * mean - (times * down + allowance) / order))
    if last - first > _LONGEST:
        raise Overlong
    return first, last


def _logs(masses: Array) -> Array:
    """The logarithms of masses, −∞ where there is none; rounding may have left some a little below 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(masses, 0.0)))


def _sum(weights: Array, values: Array) -> float:
    """Σ w v. Not `@`, whose threads wait for each other when the machine is busy."""
    return float(np.sum(weights * values))
