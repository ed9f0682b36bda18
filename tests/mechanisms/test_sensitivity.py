import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dpnlp.guarantee import Adjacency
from dpnlp.mechanisms.sensitivity import (
    Contribution,
    Sensitivity,
    clip_by_norm,
    clip_by_value,
    of_histogram,
    of_mean,
    of_range,
    of_sum,
)

ADD_REMOVE, REPLACE, ZERO_OUT = Adjacency.ADD_REMOVE, Adjacency.REPLACE, Adjacency.ZERO_OUT
ADJACENCIES = st.sampled_from(Adjacency)


def neighbour(records: np.ndarray, other: np.ndarray, adjacency: Adjacency) -> np.ndarray:
    """The data set with its first record left out, exchanged for another one, or blanked out."""
    if adjacency is ADD_REMOVE:
        return records[1:]
    return np.concatenate(([other if adjacency is REPLACE else np.zeros_like(other)], records[1:]))


def moves(one: np.ndarray, other: np.ndarray) -> Sensitivity:
    apart = np.atleast_1d(one - other)
    return Sensitivity(np.abs(apart).sum(), math.sqrt((apart**2).sum()))


def within(found: Sensitivity, stated: Sensitivity) -> bool:
    return found.l1 <= stated.l1 * (1 + 1e-9) and found.l2 <= stated.l2 * (1 + 1e-9)


def reaches(found: Sensitivity, stated: Sensitivity) -> bool:
    return found.l1 == pytest.approx(stated.l1, rel=1e-9) and found.l2 == pytest.approx(stated.l2, rel=1e-9)


# Sums, means and histograms

DATA = arrays.arrays(np.float64, st.tuples(st.integers(2, 6), st.integers(1, 5)), elements=st.floats(-10, 10))
CLIPPINGS = {
    "l1": (lambda rows, bound: clip_by_norm(rows, bound, 1), lambda c, n: Contribution.clipped_by_norm(c, n, 1)),
    "l2": (lambda rows, bound: clip_by_norm(rows, bound, 2), lambda c, n: Contribution.clipped_by_norm(c, n, 2)),
    "value": (clip_by_value, Contribution.clipped_by_value),
}


@pytest.mark.parametrize("clipping", CLIPPINGS)
@given(DATA, st.floats(0.1, 20), ADJACENCIES)
def test_sums_and_means_of_clipped_vectors(clipping: str, data: np.ndarray, bound: float, adjacency: Adjacency) -> None:
    clip, contribution = CLIPPINGS[clipping]
    other, *records = clip(data, bound)
    records = np.array(records)
    near = neighbour(records, other, adjacency)
    stated = of_sum(contribution(bound, data.shape[1]), adjacency)
    assert within(moves(records.sum(axis=0), near.sum(axis=0)), stated)
    if adjacency is not ADD_REMOVE:
        assert within(moves(records.mean(axis=0), near.mean(axis=0)), of_mean(stated, len(records), adjacency))


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_the_worst_vectors_reach_it(clipping: str, adjacency: Adjacency) -> None:
    """The diagonal has the largest ℓ1 norm of all vectors within an ℓ2 norm, an axis the largest ℓ2 norm within ℓ1."""
    clip, contribution = CLIPPINGS[clipping]
    dimension, bound, count = 6, 3.0, 4
    worst = np.eye(dimension)[0] if clipping == "l1" else np.ones(dimension)
    vector = clip(1000 * worst, bound)
    records = np.array([vector] * count)
    near = neighbour(records, -vector, adjacency)
    stated = of_sum(contribution(bound, dimension), adjacency)
    assert reaches(moves(records.sum(axis=0), near.sum(axis=0)), stated)
    if adjacency is not ADD_REMOVE:
        assert reaches(moves(records.mean(axis=0), near.mean(axis=0)), of_mean(stated, count, adjacency))


def test_the_error_of_ADePT() -> None:
    """Clipped to an ℓ2 norm of C, a replaced vector of n entries can move by 2C√n in ℓ1, not by 2C (Habernal 2021)."""
    bound, dimension = 5.0, 1024
    stated = of_sum(Contribution.clipped_by_norm(bound, dimension, 2), REPLACE)
    assert stated == Sensitivity(2 * bound * 32, 2 * bound)
    vector = clip_by_norm(np.ones(dimension), bound)
    assert moves(vector, -vector).l1 == pytest.approx(2 * bound * 32)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8), st.floats(-50, 50), st.floats(0, 50), ADJACENCIES)
def test_sums_and_means_of_a_range(units: list[float], low: float, width: float, adjacency: Adjacency) -> None:
    high = low + width
    other, *records = np.clip(low + width * np.array(units), low, high)
    near = neighbour(np.array(records), other, adjacency)
    stated = of_range(low, high, adjacency)
    assert moves(sum(records), near.sum()).l1 <= stated.l1 + 1e-9
    assert stated.l1 == stated.l2
    if adjacency is not ADD_REMOVE:
        mean = of_mean(stated, len(records), adjacency)
        assert moves(np.mean(records), near.mean()).l1 <= mean.l1 + 1e-9


@pytest.mark.parametrize(
    ("low", "high", "replaced", "added"),
    [(0, 1, 1, 1), (-1, 1, 2, 1), (2, 5, 3, 5), (-5, -2, 3, 5), (-1, 4, 5, 4), (3, 3, 0, 3)],
)
def test_ranges(low: float, high: float, replaced: float, added: float) -> None:
    """The ends themselves reach both."""
    assert of_range(low, high, REPLACE) == Sensitivity(replaced, replaced)
    assert of_range(low, high, ADD_REMOVE) == of_range(low, high, ZERO_OUT) == Sensitivity(added, added)
    assert of_mean(of_range(low, high, REPLACE), 10, REPLACE) == Sensitivity(replaced / 10, replaced / 10)


@given(st.lists(st.sets(st.integers(0, 9), max_size=4), min_size=2, max_size=8), ADJACENCIES)
def test_histograms(bins: list[set[int]], adjacency: Adjacency) -> None:
    other, *records = (np.isin(np.arange(10), list(record)).astype(float) for record in bins)
    near = neighbour(np.array(records), other, adjacency)
    assert within(moves(sum(records), near.sum(axis=0)), of_histogram(adjacency, 4))


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("adjacency", Adjacency)
def test_the_worst_histogram_reaches_it(adjacency: Adjacency, count: int) -> None:
    """A record leaves all its bins, and another one enters as many that were empty."""
    here, there = np.repeat([1.0, 0.0], count), np.repeat([0.0, 1.0], count)
    records = np.array([here, here])
    found = moves(records.sum(axis=0), neighbour(records, there, adjacency).sum(axis=0))
    assert reaches(found, of_histogram(adjacency, count))


def test_adjacency_may_be_given_as_a_word() -> None:
    """A word that is not the enum's member must not pass for add-remove, which needs half the noise."""
    one = Contribution.counted(1)
    for adjacency in Adjacency:
        assert of_sum(one, adjacency.value) == of_sum(one, adjacency)
        assert of_range(-1, 3, adjacency.value) == of_range(-1, 3, adjacency)
        assert of_histogram(adjacency.value) == of_histogram(adjacency)
    for function in (lambda word: of_sum(one, word), lambda word: of_range(0, 1, word), of_histogram):
        with pytest.raises(ValueError, match="'substitute' is not a valid Adjacency"):
            function("substitute")


# Clipping

ENTRIES = st.one_of(
    st.floats(-100, 100),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-1e-307, 1e-307),
    st.sampled_from([0.0, 5e-324, -5e-324, 2.3e-308, 1.7976931348623157e308, -1.7976931348623157e308]),
)
ROWS = st.lists(ENTRIES, min_size=1, max_size=8)
BOUNDS = st.one_of(st.floats(0.01, 100), st.floats(1e-280, 1e300))


def power_of_norm(row: np.ndarray, order: int) -> Fraction:
    """‖row‖ or ‖row‖², exactly."""
    return sum((abs(Fraction(entry)) ** order for entry in row.tolist()), Fraction(0))


@pytest.mark.parametrize("order", [1, 2])
@given(ROWS, BOUNDS)
@example([1e308, 1e308], 1e-10)
@example([1e308, 1.0], 1e-16)
@example([0.0, 0.0], 10.0)
@example([5e-324, 5e-324], 1e300)
@example([3.0, 4.0], 5.0)
@example([0.1] * 7, 0.1)
def test_the_clipped_norm_is_within_the_bound(order: int, row: list[float], bound: float) -> None:
    """Exactly, in rational numbers; a row inside by a margin stays as it is, and any other keeps its direction."""
    clipped = clip_by_norm(row, bound, order)
    assert power_of_norm(clipped, order) <= Fraction(bound) ** order
    before = power_of_norm(np.array(row), order)
    if before <= Fraction(bound * (1 - 1e-13)) ** order:
        assert clipped.tolist() == row
    elif before > Fraction(bound) ** order:
        with mpmath.workdps(40):
            norm = mpmath.root(mpmath.mpf(before.numerator) / before.denominator, order)
            wanted = [float(mpmath.mpf(entry) / norm * bound) for entry in row]
        assert clipped.tolist() == pytest.approx(wanted, rel=1e-13, abs=max(1e-320, 1e-300 * bound))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("value", [1e-3, 0.1, 1 / 3, 1e200])
@pytest.mark.parametrize("dimension", [3, 1000, 1_000_000])
def test_long_vectors_are_within_the_bound(dimension: int, value: float, order: int) -> None:
    clipped = clip_by_norm(np.full(dimension, value), 0.1, order)
    assert len(set(clipped.tolist())) == 1
    exact = dimension * Fraction(clipped[0]) ** order
    assert exact <= Fraction(0.1) ** order
    assert clipped[0] == value or exact >= (Fraction(0.1) * (1 - Fraction(1, 10**9))) ** order


@given(arrays.arrays(np.float64, (3, 2, 4), elements=st.floats(-1e3, 1e3)), st.floats(0.1, 100))
def test_rows_are_clipped_one_by_one(rows: np.ndarray, bound: float) -> None:
    together = clip_by_norm(rows, bound)
    assert together.shape == rows.shape
    for place in np.ndindex(3, 2):
        assert together[place].tolist() == clip_by_norm(rows[place], bound).tolist()


def test_rows_without_entries_and_no_rows() -> None:
    assert clip_by_norm(np.zeros((3, 0)), 1.0).shape == (3, 0)
    assert clip_by_norm(np.zeros((0, 3)), 1.0).shape == (0, 3)


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=8), st.floats(1e-300, 1e300))
def test_clipping_by_value(row: list[float], bound: float) -> None:
    clipped = clip_by_value(row, bound)
    for before, after in zip(row, clipped.tolist(), strict=True):
        assert after == (before if abs(before) <= bound else math.copysign(bound, before))


def test_clipping_leaves_its_argument_alone() -> None:
    rows = np.array([[3.0, 4.0]])
    clip_by_norm(rows, 1.0)
    clip_by_value(rows, 1.0)
    assert rows.tolist() == [[3.0, 4.0]]
