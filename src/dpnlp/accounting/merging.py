"""Many releases that are nearly alike are counted as alike, so that a ledger of thousands is composed in a moment.

Each is taken for one with a little less noise, a little larger sampling rate or a little larger ε. That one costs no
less: less noise adds to every loss, and a record that is drawn more often is found more easily, since the smaller rate
is a mixture of the larger one and of not being drawn (the divergence is jointly convex). So ε only comes out too large.
"""

import math
from collections import Counter

from dpnlp.events import (
    ApproximateDP,
    Atom,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponse,
    SharedPoissonSampled,
    TruncatedPoissonSampled,
)

EXACT, MOST = 24, 10
"""Up to so many unlike releases are composed as they are; of more of them so many are made at most, or twice as many as
there are of kinds that are never taken for alike."""
_FINEST, _COARSEST = 2.0**-10, 1.0
"""By how much, as a power of e, releases may differ that are taken for alike: first, and at most."""


def merged(atoms: Counter[Atom]) -> Counter[Atom]:
    """Few unlike releases that cost no less than these together."""
    if len(atoms) <= EXACT:
        return atoms
    atoms = _joined(atoms)
    least = len({costlier(atom, _COARSEST) for atom in atoms})  # Some are of kinds that are never taken for alike.
    most, width = max(MOST, 2 * least), _FINEST
    some = list(atoms)[:: max(1, len(atoms) // (4 * most))]
    while width < _COARSEST and len({costlier(atom, width) for atom in some}) > most:
        width *= 1.2
    while True:
        found = Counter[Atom]()
        for atom, times in atoms.items():
            found[costlier(atom, width)] += times
        if len(found) <= most or width >= _COARSEST:
            return found
        width *= 1.2


def _joined(atoms: Counter[Atom]) -> Counter[Atom]:
    """The same with all normal noise as one: it composes exactly, to 1/z² = Σ 1/z_i², of which float64 takes little."""
    normal = {atom: times for atom, times in atoms.items() if isinstance(atom, Gaussian)}
    precision = math.fsum(times * (1 / atom.noise_multiplier) ** 2 for atom, times in normal.items())
    if not 0 < precision < math.inf:
        return atoms
    others = Counter({atom: times for atom, times in atoms.items() if atom not in normal})
    return others + Counter({Gaussian((1 - 1e-12) / math.sqrt(precision)): 1})


def costlier(atom: Atom, width: float) -> Atom:
    """A release that costs no less, the same for all of about the same size. All normal noise is one already."""
    match atom:
        case Laplace(z):
            return Laplace(_down(z, width))
        case RandomizedResponse(epsilon, categories):
            return RandomizedResponse(_up(epsilon, width), categories)
        case ApproximateDP(epsilon, delta):
            return ApproximateDP(_up(epsilon, width), min(_up(delta, width), math.nextafter(1, 0)))
        case PoissonSampled(q, inner):
            less = costlier(inner, width) if not isinstance(inner, Gaussian) else _less_noise(inner, width)
            return PoissonSampled(min(1.0, _up(q, width)), less)  # type: ignore[arg-type]
        case SharedPoissonSampled(q, sharing, inner):
            return SharedPoissonSampled(q, sharing, _less_noise(inner, width))
        case TruncatedPoissonSampled(records, q, largest_lot, inner):
            return TruncatedPoissonSampled(records, q, largest_lot, _less_noise(inner, width))
        case FixedSizeSampled(records, lot_size, inner):
            return FixedSizeSampled(records, lot_size, _less_noise(inner, width))
        case _:
            return atom


def _less_noise(noise: Gaussian, width: float) -> Gaussian:
    return Gaussian(_down(noise.noise_multiplier, width))


def _down(value: float, width: float) -> float:
    """The largest power of e^width that is not above the value."""
    return min(value, math.exp(math.floor(math.log(value) / width) * width))


def _up(value: float, width: float) -> float:
    """The smallest power of e^width that is not below the value."""
    return max(value, math.exp(math.ceil(math.log(value) / width) * width)) if value else value
