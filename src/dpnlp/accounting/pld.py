"""Privacy loss distributions: the tightest accountant, and the default.

Every release has a privacy profile in closed form (`profiles`); it is put on a grid so that ε only ever comes out too
large, and composition is convolution (`losses`). dp-accounting does the same and is the oracle in the tests. Ours
exists for speed and accuracy at many steps, which calibration needs, and for the events that dp-accounting lacks:
fixed-size lots, units with a part in several records, arbitrary (ε, δ) releases, and randomized response more than
once.
"""

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from dp_accounting import get_epsilon_gaussian

from dpnlp import checks
from dpnlp.accounting import composition, profiles
from dpnlp.accounting.losses import Losses, Overlong, compose
from dpnlp.accounting.profiles import Profile
from dpnlp.accounting.rdp import no_bound
from dpnlp.accounting.subsampling import amplified
from dpnlp.events import (
    ApproximateDP,
    Atom,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    RandomizedResponse,
    SharedPoissonSampled,
    TruncatedPoissonSampled,
    atoms,
)
from dpnlp.guarantee import Adjacency

_CERTAIN = 20.0
"""A pure ε above this is lost with all but e^−20 certainty: it is simply added to the ε of the rest."""


_MUCH = 1e9
"""So much noise costs less than 4e-8 at any δ, and nothing where δ is 0.4/z: two densities 1/z apart differ by less."""


def epsilon(event: Event, delta: float, adjacency: Adjacency) -> float:
    """The smallest ε, up to the grid's cautious rounding, for which the event is (ε, δ)-DP; δ may be 0."""
    if delta != 0:
        checks.probability("delta", delta)
    if any(isinstance(atom, NonPrivate) for atom in atoms(event)):
        return math.inf
    parts = _simplify(event, adjacency)
    left = composition.left(delta, parts.failure)
    if left < 0 or (left == 0 and parts.failure):
        return math.inf
    most = parts.certain + _largest_loss(parts.atoms, adjacency)
    if left == 0:
        return _up(most)
    if not parts.atoms:
        return _up(_within(most, left))
    if len(parts.atoms) == 1 and isinstance(gaussian := next(iter(parts.atoms)), Gaussian):
        return _up(parts.certain + Fraction(_rounded_up(_of_one(gaussian, left))))
    composed = _rounded_up(max(losses.epsilon(left) for losses in _compose(parts.atoms, left, adjacency)))
    finite = Fraction(composed) if math.isfinite(composed) else math.inf
    return _up(min(parts.certain + finite, _within(most, left)))


def _within(most: Fraction | float, delta: float) -> Fraction | float:
    """The ε of a loss that is never above E: δ(ε) = 𝔼[1 − e^(ε − loss)]₊ ≤ 1 − e^(ε − E), and so E + ln(1 − δ)."""
    return max(Fraction(0), most + Fraction(math.log1p(-delta) * (1 - 1e-9)))


def _up(exact: Fraction | float) -> float:
    """The smallest float that is no less."""
    near = float(exact)
    return near if near >= exact else math.nextafter(near, math.inf)


def _of_one(gaussian: Gaussian, delta: float) -> float:
    """The ε of one Gaussian release, or a bound where there is so much noise that float64 has no digits for it.

    That is the classical one (Dwork and Roth 2014, Theorem A.1), which holds for every ε below 1.
    """
    if (z := gaussian.noise_multiplier) >= _MUCH:
        return 0.0 if delta >= 0.4 / z else math.sqrt(2 * math.log(1.25 / delta)) / z
    with np.errstate(divide="ignore"):  # For a lot of noise it meets a δ of 0 on its way.
        return float(get_epsilon_gaussian(z, delta))


def _rounded_up(epsilon: float) -> float:
    """More than float64, and a search that ends at 1e-12, may have taken from an ε. Where δ alone is enough it is 0."""
    return epsilon * (1 + 1e-10) + 2e-12 if epsilon else 0.0


def losses(event: Event, delta: float, adjacency: Adjacency) -> Losses:
    """The privacy loss distribution that decides ε at this δ, for a picture; a δ near ½ shows the bulk of it."""
    composed = _compose(_simplify(event, adjacency).atoms, delta, adjacency)
    return max(composed, key=lambda candidate: candidate.epsilon(delta))


@dataclass(frozen=True)
class _Parts:
    """An event taken apart: what is lost for certain, how likely everything is lost, and what is convolved."""

    certain: Fraction
    failure: float
    atoms: dict[Atom, int]


def _simplify(event: Event, adjacency: Adjacency) -> _Parts:
    """Takes out what needs no convolution.

    Gaussian releases compose exactly: their 1/z² add up. The merged one is relative to the distance between
    neighbours, so that the adjacency no longer matters to it. An (ε, δ) release is an ε-DP one except with probability
    δ (Kairouz, Oh and Viswanath 2015).
    """
    apart = adjacency.distance
    precision, certain, log_kept, rest = 0.0, Fraction(0), 0.0, Counter[Atom]()
    for atom, times in atoms(event).items():
        if isinstance(atom, PoissonSampled) and isinstance(atom.event, ApproximateDP):
            if adjacency is Adjacency.REPLACE:
                raise no_bound(atom, adjacency, "pld")
            atom = ApproximateDP(*amplified(atom.event.epsilon, atom.event.delta, atom.q))
        match atom:
            case Gaussian(z):
                precision += times * (apart / z) ** 2
            case RandomizedResponse(e) if e > _CERTAIN and adjacency is Adjacency.REPLACE:
                certain += times * Fraction(e)
            case ApproximateDP(e, failure):
                log_kept += times * math.log1p(-failure)
                if e > _CERTAIN:
                    certain += times * Fraction(e)
                elif e > 0:
                    rest[ApproximateDP(e)] += times
            case _:
                rest[atom] += times
    if precision:
        rest[Gaussian(1 / math.sqrt(precision))] = 1
    return _Parts(certain, -math.expm1(log_kept), dict(rest))


def _largest_loss(parts: dict[Atom, int], adjacency: Adjacency) -> Fraction | float:
    """What pure releases cost by basic composition: a bound that the grid's rounding should not exceed. It is exact."""
    total = Fraction(0)
    for atom, times in parts.items():
        match atom:
            case Laplace(z):
                total += times * Fraction(adjacency.distance) / Fraction(z)
            case RandomizedResponse(e) | ApproximateDP(e):
                total += times * Fraction(e)
            case _:
                return math.inf
    return total


def _compose(parts: dict[Atom, int], delta: float, adjacency: Adjacency) -> tuple[Losses, ...]:
    """The losses of all parts together: under P against Q, and where that differs under Q against P."""
    releases = sum(parts.values())
    deviations = math.sqrt(2 * (math.log(releases / delta) + 20))
    forward = [(_profile(atom, adjacency, deviations), times) for atom, times in parts.items()]
    backward = [(profile.reverse(), times) for profile, times in forward]
    ways = [forward] if all(profile.above is profile.below for profile, _ in forward) else [forward, backward]
    step = _grid_step(forward)
    while True:
        try:
            return tuple(compose([(profile.losses(step), times) for profile, times in way], delta) for way in ways)
        except Overlong:
            step *= 4


def _grid_step(parts: list[tuple[Profile, int]]) -> float:
    """The width h of the grid for losses.

    Connecting the dots adds at most about h²/4 to the variance of each of N convolved parts, whose variances sum up to
    S². So h = S/(25√N) keeps the excess of ε near 1e-4 of it however many steps there are. A finer grid is taken where
    it is cheap, a coarser one, whose ε is larger, where a part would have millions of points. Where a part has a
    largest loss, as randomized response has, the grid is made to meet it.
    """
    variance, releases = 0.0, sum(times for _, times in parts)
    for profile, times in parts:
        variance += times * profile.losses(profile.top / 2000).variance()
    spread, longest = math.sqrt(variance), max(profile.top for profile, _ in parts)
    step = min(spread / (25 * math.sqrt(releases)), max(spread / 4000, longest / 1e5), 0.05)
    return longest / math.ceil(longest / max(step, longest / 2e6))


def _profile(atom: Atom, adjacency: Adjacency, deviations: float) -> Profile:
    """The privacy profile of one release between two neighbours, cut so many deviations out where it has no end."""
    apart = adjacency.distance
    match atom:
        case Gaussian(z):
            return profiles.gaussian(1 / z, deviations)
        case Laplace(z):
            return profiles.laplace(apart / z)
        case RandomizedResponse(e, categories) if adjacency is Adjacency.REPLACE:
            return profiles.response(e, categories)
        case ApproximateDP(e, 0):
            return profiles.response(e)
        case PoissonSampled(q, Gaussian(z)) if adjacency is Adjacency.REPLACE:
            return profiles.poisson_sampled_gaussian_replace(z, q, deviations)
        case PoissonSampled(q, inner) if adjacency is not Adjacency.REPLACE:
            return profiles.poisson_sampled(_profile(inner, adjacency, deviations), q)
        case SharedPoissonSampled(q, sharing, Gaussian(z)) if adjacency is Adjacency.ADD_REMOVE:
            return profiles.shared_poisson_sampled_gaussian(z, q, sharing, deviations)
        case TruncatedPoissonSampled(records, q, largest_lot, Gaussian(z)):
            plain = _profile(PoissonSampled(q, Gaussian(z)), adjacency, deviations)
            more = adjacency is Adjacency.ADD_REMOVE  # There may be one more, and then lots are cut more often.
            return profiles.truncated_poisson_sampled_gaussian(plain, z, q, records + more, largest_lot, deviations)
        case FixedSizeSampled(records, lot_size, Gaussian(z)) if adjacency is Adjacency.REPLACE:
            return profiles.fixed_size_sampled(profiles.gaussian(apart / z, deviations), lot_size / records)
        case _:
            raise no_bound(atom, adjacency, "pld")
