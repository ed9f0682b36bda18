"""What the statistical tests share: a lower bound on ε from samples, and a chi-square test against exact probabilities.

Both are given so little room for a false alarm that a failure means a defect.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.stats import beta, chi2

FALSE_ALARM = 1e-7


def epsilon_lower_bound(hits: int, other_hits: int, trials: int, delta: float = 0.0) -> float:
    """A bound that ε exceeds, but for a chance of 1e-7, if an event was hit so often on two neighbouring inputs.

    (ε, δ)-DP demands p ≤ e^ε q + δ, so that ε ≥ ln((p − δ)/q). Clopper and Pearson's one-sided bounds stand in for
    the probabilities: p from below, q from above, each wrong with at most half the chance. The event has to be fixed
    before the samples are seen.
    """
    p = float(beta.ppf(FALSE_ALARM / 2, hits, trials - hits + 1)) if hits else 0.0
    q = float(beta.isf(FALSE_ALARM / 2, other_hits + 1, trials - other_hits)) if other_hits < trials else 1.0
    return math.log((p - delta) / q) if p > delta else -math.inf


def chi_square(observed: npt.ArrayLike, probabilities: npt.ArrayLike) -> float:
    """The p-value of counts against the probabilities of their cells; no cell may expect fewer than 10 by itself."""
    counts, expected = np.asarray(observed, float), np.asarray(probabilities, float)
    assert math.isclose(expected.sum(), 1, rel_tol=1e-9)
    if np.any(counts[expected == 0]):
        return 0.0
    order = np.argsort(-expected)
    counts, expected = counts[order], expected[order] * counts.sum()
    cells = max(1, int(np.sum(expected >= 10)))
    if expected[cells:].sum() >= 10:
        cells += 1
    counts, expected = (np.append(part[: cells - 1], part[cells - 1 :].sum()) for part in (counts, expected))
    return float(chi2.sf(np.sum((counts - expected) ** 2 / expected), cells - 1)) if cells > 1 else 1.0


def fits(samples: npt.NDArray[np.int64], values: Sequence[int], pmf: Callable[[int], float]) -> bool:
    """True unless the samples contradict a probability mass function on the values; what lies outside is one cell."""
    counts = [int(np.sum(samples == value)) for value in values]
    chances = [pmf(value) for value in values]
    counts.append(len(samples) - sum(counts))
    chances.append(max(0.0, 1 - sum(chances)))
    return chi_square(counts, chances) > FALSE_ALARM
