"""How far an answer can move when one record changes: the sensitivities that noise is scaled to, and clipping.

A bound on one record's own vector (`Contribution`) comes from clipping; what that makes of a sum, a mean or a histogram
depends on which data sets are neighbours.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.guarantee import Adjacency

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sensitivity:
    """Δ₁ and Δ₂: the largest ℓ1 and ℓ2 distance between the answers on two neighbours."""

    l1: float
    l2: float


@dataclass(frozen=True)
class Contribution:
    """Bounds on the ℓ1 and ℓ2 norm of what one record contributes."""

    l1: float
    l2: float

    @classmethod
    def clipped_by_norm(cls, bound: float, dimension: int, order: int) -> "Contribution":
        """Vectors of `dimension` entries whose ℓ1 or ℓ2 norm (`order` 1 or 2) is at most C.

        Clipped in ℓ2, the ℓ1 norm can still be C√n: the factor that ADePT left out (Habernal 2021).
        """
        checks.positive("bound", bound)
        checks.count("dimension", dimension)
        _check_order(order)
        return cls(bound, bound) if order == 1 else cls(bound * math.sqrt(dimension), bound)

    @classmethod
    def clipped_by_value(cls, bound: float, dimension: int) -> "Contribution":
        """Vectors whose entries all lie in [−C, C]: norms of at most Cn and C√n (the CLV of DP-BART)."""
        checks.positive("bound", bound)
        n = checks.count("dimension", dimension)
        return cls(bound * n, bound * math.sqrt(n))

    @classmethod
    def counted(cls, bins: int = 1) -> "Contribution":
        """A record that adds one to at most so many different bins of a histogram."""
        m = checks.count("bins", bins)
        return cls(m, math.sqrt(m))


def of_sum(contribution: Contribution, adjacency: Adjacency) -> Sensitivity:
    """Sums, and whatever is released per record: a record that is replaced moves the answer twice."""
    apart = Adjacency(adjacency).distance
    return Sensitivity(apart * contribution.l1, apart * contribution.l2)


def of_range(low: float, high: float, adjacency: Adjacency) -> Sensitivity:
    """Sums of numbers in [low, high]: high − low when one is replaced, the larger magnitude when one is added."""
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise BadInput(f"range = [{low}, {high}]: it must be two finite numbers, the lower one first.")
    width = high - low if Adjacency(adjacency) is Adjacency.REPLACE else max(abs(low), abs(high))
    return Sensitivity(width, width)


def of_mean(total: Sensitivity, records: int, adjacency: Adjacency) -> Sensitivity:
    """Means over a public number of records, from the sensitivity of their sum."""
    if Adjacency(adjacency) is Adjacency.ADD_REMOVE:
        raise BadInput(
            "adjacency = add-remove: a mean divides by the number of records, which is then private; release a noisy "
            "sum and a noisy count, or use replace."
        )
    n = checks.count("records", records)
    return Sensitivity(total.l1 / n, total.l2 / n)


def of_histogram(adjacency: Adjacency, bins_per_record: int = 1) -> Sensitivity:
    """Counts. A replaced record leaves its bins and enters others: ℓ1 doubles, ℓ2 grows by √2 only."""
    counted = Contribution.counted(bins_per_record)
    if Adjacency(adjacency) is Adjacency.REPLACE:
        return Sensitivity(2 * counted.l1, math.sqrt(2) * counted.l2)
    return Sensitivity(counted.l1, counted.l2)


def clip_by_norm(vectors: npt.ArrayLike, bound: float, order: int = 2) -> Array:
    """Each row scaled to an ℓ1 or ℓ2 norm of at most C, x/max(1, ‖x‖/C), rounded so that the bound really holds."""
    checks.positive("bound", bound)
    _check_order(order)
    rows = np.asarray(vectors, dtype=np.float64)
    if not np.all(np.isfinite(rows)):
        raise BadInput("vectors: they have entries that are NaN or infinite; such a record has no clipped value.")
    # Relative to its largest entry a row's norm neither overflows nor vanishes: it is at least 1, or 0 for no entries.
    largest = np.max(np.abs(rows), axis=-1, keepdims=True, initial=0.0)
    largest = np.where(largest > 0, largest, 1.0)
    relative = rows / largest
    norms = np.linalg.norm(relative, ord=order, axis=-1, keepdims=True)
    allowed = bound * (1 - 2.0**-52 * (rows.shape[-1] + 8))
    with np.errstate(over="ignore"):  # Next to a row of almost 0 the bound is as good as infinite.
        outside = norms > allowed / largest
    return np.where(outside, relative * (allowed / np.maximum(norms, 1.0)), rows)


def clip_by_value(vectors: npt.ArrayLike, bound: float) -> Array:
    """Every entry moved into [−C, C]; NaN is refused."""
    checks.positive("bound", bound)
    rows = np.asarray(vectors, dtype=np.float64)
    if np.any(np.isnan(rows)):
        raise BadInput("vectors: they have entries that are NaN; such a record has no clipped value.")
    return np.clip(rows, -bound, bound)


def _check_order(order: int) -> None:
    if order not in (1, 2):
        raise BadInput(f"order = {order}: it must be 1 or 2, the norm that is clipped.")
