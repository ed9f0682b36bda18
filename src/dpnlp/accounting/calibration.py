"""Calibration: the noise, the number of steps or the lot size that a target ε allows.

Every answer is checked by the accountant itself: its ε is at most the target, and a little more would exceed it.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from dp_accounting import get_sigma_gaussian
from scipy.optimize import brentq

from dpnlp import checks
from dpnlp.accounting.accountant import DIGITS, Accountant, epsilon, epsilon_after
from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.checks import BadInput
from dpnlp.guarantee import Adjacency, round_up

_PRECISION = 1e-5
"""How closely, relative to the answer, the search for it ends."""

_MOST_NOISE = 1e12
"""More noise would not help."""


def noise_multiplier(
    target: float, schedule: Schedule, delta: float, adjacency: Adjacency, accountant: Accountant = Accountant.PLD
) -> float:
    """The smallest noise multiplier, to five digits, whose ε does not exceed the target; 0 for an infinite target."""
    if checks.budget("epsilon", target) == math.inf:
        return 0.0
    schedule.check(adjacency)
    if accountant is Accountant.PLD:
        _refuse_idle(schedule, delta)

    def cost(z: float) -> float:
        return epsilon(schedule.event(z), delta, adjacency, accountant)

    guess = _noise_guess(target, schedule, delta, adjacency)
    z = round_up(_solve(cost, target, guess, falling=True), DIGITS)
    while cost(z) > target:
        if z > _MOST_NOISE:
            least = f"with any noise the {accountant} accountant gives at least {cost(z):.4g} at delta = {delta}"
            raise BadInput(f"epsilon = {target}: {least}; raise ε or δ, or use the pld accountant.")
        z = round_up(z * (1 + _PRECISION), DIGITS)
    return z


def steps(
    target: float,
    schedule: Schedule,
    noise: float,
    delta: float,
    adjacency: Adjacency,
    accountant: Accountant = Accountant.PLD,
) -> int:
    """The largest number of steps whose ε does not exceed the target; the schedule's own number is not looked at."""
    checks.positive("epsilon", target, "an infinite ε allows any number of steps")
    checks.positive("noise_multiplier", noise, "without noise not even one step is private")
    schedule.check(adjacency)

    def cost(count: int) -> float:
        return epsilon_after(count, schedule, noise, delta, adjacency, accountant)

    if cost(1) > target:
        first = f"a single step{_after(schedule)} costs {cost(1):.4g} already"
        raise BadInput(f"epsilon = {target}: {first}; raise the noise or ε.")
    if schedule.sharing > 1:
        per_step = _squared_move(schedule) / noise**2
    else:
        per_step = schedule.q**2 * math.expm1(min(1 / noise**2, 700.0))
    left = _gaussian_precision(target, delta) - _aggregated(schedule, adjacency) / noise**2
    guess = max(1.0, left / per_step)
    return _largest_whole(cost, target, guess, most=10**12)


def lot_size(
    target: float,
    schedule: Callable[[int], Schedule],
    noise: float,
    delta: float,
    adjacency: Adjacency,
    accountant: Accountant = Accountant.PLD,
) -> int:
    """The largest lot whose ε does not exceed the target; `schedule` says what a lot size means for the steps."""
    checks.positive("epsilon", target, "an infinite ε allows any lot")
    checks.positive("noise_multiplier", noise, "without noise no lot is private")
    smallest = schedule(1)
    smallest.check(adjacency)

    def cost(size: int) -> float:
        return epsilon(schedule(size).event(noise), delta, adjacency, accountant)

    if cost(1) > target:
        first = f"lots of one record{_after(smallest)} cost {cost(1):.4g} already"
        raise BadInput(f"epsilon = {target}: {first}; raise the noise or ε.")
    most = smallest.largest_lot or smallest.records // smallest.bands
    if smallest.sharing > 1 and cost(most) <= target:
        return most  # Of shared records all may cost less than all but one, since their bound is another.
    return _largest_whole(cost, target, math.sqrt(smallest.records), most)


def _refuse_idle(schedule: Schedule, delta: float) -> None:
    """Where a unit is hardly ever drawn, δ alone may cover that it is, and there is no smallest noise to be found."""
    if schedule.sampling is not Sampling.POISSON or schedule.q == 1 or schedule.aggregations:
        return
    drawn = -math.expm1(schedule.steps * schedule.sharing * math.log1p(-schedule.q))
    if drawn <= delta:
        raise BadInput(
            f"delta = {delta}: the whole run draws a unit with a probability of only {drawn:.2g}, so that any noise "
            "would do; choose a smaller delta."
        )


def _after(schedule: Schedule) -> str:
    return ", after the aggregations," if schedule.aggregations else ""


def _noise_guess(target: float, schedule: Schedule, delta: float, adjacency: Adjacency) -> float:
    """By the central limit theorem a run is near one Gaussian, μ² = q²T(e^{1/z²} − 1) (Dong, Roth and Su 2022).

    Where records are shared, μ² = T E[(2ρ)²]/z², but for runs in which hardly any of them is drawn.
    """
    precision = _gaussian_precision(target, delta)
    apart = adjacency.distance
    if schedule.sampling in (Sampling.SHUFFLED, Sampling.CYCLIC):
        lots = apart * math.sqrt(schedule.epochs / precision)
    elif schedule.sharing > 1:
        lots = math.sqrt(max(1.0, schedule.steps * _squared_move(schedule)) / precision)
    else:
        lots = apart / math.sqrt(math.log1p(precision / (schedule.q**2 * schedule.steps)))
    return math.hypot(lots, math.sqrt(_aggregated(schedule, adjacency) / precision)) if schedule.aggregations else lots


def _squared_move(schedule: Schedule) -> float:
    """E[(2ρ)²] with ρ ~ Binomial(M, q), for records that are shared."""
    M, q = schedule.sharing, schedule.q
    return 4 * M * q * (1 - q + M * q)


def _aggregated(schedule: Schedule, adjacency: Adjacency) -> float:
    """z²μ² of the releases before the first step."""
    return math.fsum((adjacency.distance / ratio) ** 2 for ratio in schedule.aggregations)


def _gaussian_precision(target: float, delta: float) -> float:
    """1/σ² of the one Gaussian release that has this ε and δ."""
    checks.probability("delta", delta)
    with np.errstate(divide="ignore"):  # For a tiny ε it meets a δ of 0 on its way.
        return float(get_sigma_gaussian(target, delta)) ** -2


def _solve(cost: Callable[[float], float], target: float, guess: float, falling: bool, most: float = math.inf) -> float:
    """Where a cost that falls, or grows, crosses the target, searched from a good guess outwards, at most to `most`."""

    @cache
    def gap(log_x: float) -> float:
        return math.log(max(cost(math.exp(log_x)), 1e-12) / target)

    near = math.log(min(guess, most))
    outwards = 1 if (gap(near) > 0) is falling else -1
    width = 0.05
    far = near + outwards * width
    while gap(far) * gap(near) > 0:
        if far >= math.log(most) or width > 100:
            return math.exp(far)
        near, width = far, 2 * width
        far = min(near + outwards * width, math.log(most))
    return math.exp(brentq(gap, near, far, xtol=_PRECISION))


def _largest_whole(cost: Callable[[int], float], target: float, guess: float, most: int) -> int:
    """The largest whole number up to `most` whose cost does not exceed the target, given that 1 does not."""
    cost = cache(cost)
    root = _solve(lambda x: cost(min(max(1, round(x)), most)), target, guess, falling=False, most=most)
    good, stride = max(1, min(most, math.floor(root))), 1
    while cost(good) > target:
        good, stride = max(1, good - stride), 2 * stride
    stride = 1
    while good < most:
        if cost(min(good + stride, most)) <= target:
            good, stride = min(good + stride, most), 2 * stride
        elif stride == 1:
            break
        else:
            stride = max(1, stride // 4)
    return good
