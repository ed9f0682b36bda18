"""What the statistical tests share: a lower bound on ε from samples, and a chi-square test against exact probabilities.

Both are given so little room for a false alarm that a failure means a defect.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from dpnlp.audit import black_box

FALSE_ALARM = 1e-7


def epsilon_lower_bound(hits: int, other_hits: int, trials: int, delta: float = 0.0) -> float:
    """A bound that ε exceeds, but for a chance of 1e-7, if an event was hit so often on two neighbouring inputs."""
    return float(black_box.epsilon_lower_bound(hits, other_hits, trials, delta, FALSE_ALARM))


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
