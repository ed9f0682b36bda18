"""What counts say for certain about a probability: the exact one-sided bounds of Clopper and Pearson (1934).

Each is wrong with at most the given chance, whatever the probability is and however few the trials are.
"""

import numpy as np
import numpy.typing as npt
from scipy.special import betainccinv, betaincinv

Numbers = npt.NDArray[np.float64]


def at_least(hits: npt.ArrayLike, trials: npt.ArrayLike, chance: float) -> Numbers:
    """The smallest p for which so many hits, or more, have a chance of at least this; 0 without hits."""
    k, n = np.asarray(hits, np.float64), np.asarray(trials, np.float64)
    return np.where(k > 0, betaincinv(np.maximum(k, 1e-9), n - k + 1, chance), 0.0)


def at_most(hits: npt.ArrayLike, trials: npt.ArrayLike, chance: float) -> Numbers:
    """The largest p for which so many hits, or fewer, have a chance of at least this; 1 where all are hits."""
    k, n = np.asarray(hits, np.float64), np.asarray(trials, np.float64)
    return np.where(k < n, betainccinv(k + 1, np.maximum(n - k, 1e-9), chance), 1.0)
