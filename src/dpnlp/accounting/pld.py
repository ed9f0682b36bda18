"""Privacy loss distributions: the tightest accountant, and the default.

Every release has a privacy profile in closed form (`profiles`); it is put on a grid so that ε only ever comes out too
large, and composition is convolution (`losses`). dp-accounting does the same and is the oracle in the tests; this
exists because calibration needs dozens of evaluations (0.1 s each here, 1 to 3 s there at a million steps), because of
the events it lacks (fixed-size lots, arbitrary (ε, δ) releases, repeated randomized response), and because its ε comes
out too small where many steps meet a small δ.
"""

import math

from dp_accounting import get_epsilon_gaussian

from dpnlp import checks
from dpnlp.accounting import profiles
from dpnlp.accounting.losses import Losses, compose
from dpnlp.accounting.profiles import Profile
from dpnlp.accounting.rdp import no_bound
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
    TruncatedPoissonSampled,
    atoms,
)
from dpnlp.guarantee import Adjacency

_CERTAIN = 20.0
"""A pure ε above this is lost with all but e^−20 certainty: it is simply added to the ε of the rest."""


def epsilon(event: Event, delta: float, adjacency: Adjacency) -> float:
    """The smallest ε, up to the grid's cautious rounding, for which the event is (ε, δ)-DP."""
    checks.probability("delta", delta)
    if any(isinstance(atom, NonPrivate) for atom in atoms(event)):
        return math.inf
    certain, parts = _simplify(event, adjacency)
    if not parts:
        return certain
    if len(parts) == 1 and isinstance(gaussian := next(iter(parts)), Gaussian):
        return certain + float(get_epsilon_gaussian(gaussian.noise_multiplier, delta))
    return certain + max(losses.epsilon(delta) for losses in _compose(parts, delta, adjacency))


def losses(event: Event, delta: float, adjacency: Adjacency) -> Losses:
    """The privacy loss distribution that decides ε at this δ, for a picture; a δ near ½ shows the bulk of it."""
    _, parts = _simplify(event, adjacency)
    return max(_compose(parts, delta, adjacency), key=lambda candidate: candidate.epsilon(delta))


def _simplify(event: Event, adjacency: Adjacency) -> tuple[float, dict[Atom, int]]:
    """What is lost for certain, and the other atoms with their counts, all plain Gaussians made one.

    Gaussian releases compose exactly: their 1/z² add up. The merged one is relative to the distance between
    neighbours, so that the adjacency no longer matters to it.
    """
    apart = _apart(adjacency)
    precision, certain, parts = 0.0, 0.0, dict[Atom, int]()
    for atom, times in atoms(event).items():
        match atom:
            case Gaussian(z):
                precision += times * (apart / z) ** 2
            case RandomizedResponse(e) if e > _CERTAIN and adjacency is Adjacency.REPLACE:
                certain += times * e
            case ApproximateDP(e, failure) if e > _CERTAIN:
                certain += times * e
                if failure:
                    parts[ApproximateDP(0.0, failure)] = times
            case _:
                parts[atom] = times
    if precision:
        parts[Gaussian(1 / math.sqrt(precision))] = 1
    return certain, parts


def _compose(parts: dict[Atom, int], delta: float, adjacency: Adjacency) -> tuple[Losses, ...]:
    """The losses of all parts together: under P against Q, and where that differs under Q against P."""
    releases = sum(parts.values())
    deviations = math.sqrt(2 * (math.log(releases / delta) + 20))
    worst = {atom: _profile(atom, adjacency, deviations) for atom in parts}
    step = _grid_step([(profile, parts[atom]) for atom, profile in worst.items()])
    above = [(p.losses(step), parts[atom]) for atom, p in worst.items()]
    if all(p.above is p.below for p in worst.values()):
        return (compose(above, delta),)
    return compose(above, delta), compose([(p.reverse().losses(step), parts[atom]) for atom, p in worst.items()], delta)


def _grid_step(parts: list[tuple[Profile, int]]) -> float:
    """The width h of the grid for losses.

    Connecting the dots adds at most about h²/4 to the variance of each of N convolved parts, whose variances sum up to
    S². So h = S/(25√N) keeps the excess of ε near 1e-4 of it however many steps there are; S/4000 is for few steps.
    Where a part has a largest loss, as randomized response has, the grid is made to meet it.
    """
    total, releases = 0.0, sum(times for _, times in parts)
    for profile, times in parts:
        total += times * profile.losses(profile.top / 2000).variance()
    step = min(math.sqrt(total) * min(1 / 4000, 1 / (25 * math.sqrt(releases))), 0.05)
    meet = max(profile.top for profile, _ in parts)
    return meet / math.ceil(meet / step)


def _profile(atom: Atom, adjacency: Adjacency, deviations: float) -> Profile:
    """The privacy profile of one release between two neighbours, cut so many deviations out where it has no end."""
    apart = _apart(adjacency)
    match atom:
        case Gaussian(z):
            return profiles.gaussian(1 / z, deviations)
        case Laplace(z):
            return profiles.laplace(apart / z)
        case RandomizedResponse(e, categories) if adjacency is Adjacency.REPLACE:
            return profiles.response(e, categories)
        case ApproximateDP(e, failure):
            return profiles.response(e, failure=failure)
        case PoissonSampled(q, Gaussian(z)) if adjacency is Adjacency.REPLACE:
            return profiles.poisson_sampled_gaussian_replace(z, q, deviations)
        case PoissonSampled(q, inner) if adjacency is not Adjacency.REPLACE:
            return profiles.poisson_sampled(_profile(inner, adjacency, deviations), q)
        case TruncatedPoissonSampled(records, q, largest_lot, Gaussian(z)):
            plain = _profile(PoissonSampled(q, Gaussian(z)), adjacency, deviations)
            return profiles.truncated_poisson_sampled_gaussian(plain, z, q, records, largest_lot, deviations)
        case FixedSizeSampled(records, lot_size, Gaussian(z)) if adjacency is Adjacency.REPLACE:
            return profiles.fixed_size_sampled(profiles.gaussian(apart / z, deviations), lot_size / records)
        case _:
            raise no_bound(atom, adjacency, "pld")


def _apart(adjacency: Adjacency) -> int:
    """How many contribution bounds C two neighbours are apart."""
    return 2 if adjacency is Adjacency.REPLACE else 1
