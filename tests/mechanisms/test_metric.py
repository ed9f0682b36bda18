"""Metric noise: its distribution, the grid that it lies on, what it promises, and how far apart vectors are."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.stats import gamma, kstest, laplace, uniform

from dpnlp import events
from dpnlp.checks import BadInput
from dpnlp.guarantee import Adjacency, Guarantee, NoiseSource, Trust, Unit
from dpnlp.mechanisms import Metric, metric, spherical
from dpnlp.mechanisms.metric import diameter
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.mechanisms.spherical import _drawn, _exactly, near, rounded

from .audit import FALSE_ALARM, epsilon_lower_bound

DRAWS = 100_000


class Endless:
    """The same random byte again and again."""

    kind = NoiseSource.FIXED_SEED

    def __init__(self, byte: bytes) -> None:
        self.byte = byte

    def bytes(self, count: int) -> bytes:
        return self.byte * count


@pytest.mark.parametrize("d", [1, 2, 3, 7, 50])
def test_the_radius_is_gamma_and_the_direction_uniform(d: int) -> None:
    z = near(_drawn(FixedSeed(d), DRAWS // d, d), d).vectors
    radius = np.linalg.norm(z, axis=1)
    assert kstest(radius, gamma(d).cdf).pvalue > FALSE_ALARM
    direction = z / radius[:, None]
    # Any entry of a uniform direction has the law of Beta((d − 1)/2, (d − 1)/2), here by its first two moments.
    assert np.abs(direction.mean(axis=0)).max() < 6 / math.sqrt(len(z) * d)
    assert np.abs(np.cov(direction.T).reshape(d, d) * d - np.eye(d)).max() < 6 * d / math.sqrt(len(z) * d)
    # How far out it goes does not depend on where to.
    assert np.abs(np.corrcoef(radius, direction[:, 0])[0, 1]) < 6 / math.sqrt(len(z))
    if d == 2:
        assert kstest(np.arctan2(*z.T), uniform(-math.pi, 2 * math.pi).cdf).pvalue > FALSE_ALARM
    if d == 3:  # Archimedes: the height on a sphere is uniform
        assert all(kstest(entry, uniform(-1, 2).cdf).pvalue > FALSE_ALARM for entry in direction.T)


def test_one_number_has_laplace_noise_around_it() -> None:
    mechanism = Metric(4.0, 6.0, FixedSeed(1))
    out = mechanism.release(np.full((DRAWS, 1), 10.0))[:, 0]
    assert mechanism.eta == 1.5
    assert kstest(out, laplace(10, 1 / 1.5).cdf).statistic < 6 / math.sqrt(DRAWS) / 2 + 1 / 64


def public_step(mechanism: Metric, d: int) -> Fraction:
    """The largest power of two that is at most 1/(64 η √d), by halving and doubling."""
    step, size = Fraction(1), Fraction(1 / (64 * mechanism.eta * math.sqrt(d)))
    while step > size:
        step /= 2
    while 2 * step <= size:
        step *= 2
    return step


VECTORS = st.integers(1, 9).flatmap(lambda d: arrays.arrays(np.float64, (2, d), elements=st.floats(-50, 50)))


@given(VECTORS, st.floats(0.1, 1000), st.floats(0.01, 100), st.integers(0, 2**32))
def test_what_comes_out_lies_on_a_public_grid(vectors: np.ndarray, size: float, epsilon: float, seed: int) -> None:
    mechanism = Metric(size, epsilon, FixedSeed(seed))
    step = public_step(mechanism, vectors.shape[1])
    assert all((Fraction(entry) / step).denominator == 1 for entry in mechanism.release(vectors).ravel().tolist())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(VECTORS, st.floats(0.01, 100))
def test_rounding_to_the_grid_is_made_up_for(
    monkeypatch: pytest.MonkeyPatch, vectors: np.ndarray, epsilon: float
) -> None:
    """Whatever was rounded, two answers are no more than ε apart in units of the noise, and hardly less noise is used.

    The density of the noise changes by e^{η‖v‖} along v, so what counts is η, as it is used, times how far the places
    on the grid are apart.
    """
    apart = float(np.linalg.norm(vectors[0] - vectors[1]))
    mechanism = Metric(max(apart, 1e-3), epsilon)
    scale = 2.0**40
    monkeypatch.setattr(metric, "rounded", lambda source, count, d, scale: np.zeros((count, d), np.int64))
    places = mechanism.release(vectors)
    drawn = lambda source, count, d, steps: np.full((count, d), round(scale * steps))  # noqa: E731
    monkeypatch.setattr(metric, "rounded", drawn)
    eta = scale / float(np.median(mechanism.release(np.zeros((1, vectors.shape[1])))))
    assert eta * float(np.linalg.norm(places[0] - places[1])) <= epsilon * (1 + 1e-9)
    assert eta >= mechanism.eta * epsilon / (epsilon + 1 / 64) * (1 - 1e-9)


@pytest.mark.parametrize("d", [1, 2, 5, 40])
def test_where_float64_is_certain_intervals_with_more_bits_agree(d: int) -> None:
    """And what it is in doubt about is in the interval, and no wider than it has to be."""
    words, scale = _drawn(FixedSeed(d), 60, d), 64 * d**1.5
    vectors, doubt = (scale * part for part in near(words, d))
    certain = np.all(np.abs(vectors - np.floor(vectors) - 0.5) > doubt, axis=1)
    assert certain.all()
    fine = 2.0**20
    for own, row, off in zip(words, vectors, doubt, strict=True):
        exact = np.array(_exactly(own.tolist(), d, scale * fine, FixedSeed(9)), np.float64) / fine
        assert (np.rint(exact) == np.rint(row)).all()
        assert (np.abs(exact - row) <= off + 1 / fine).all()
    assert np.median(doubt / np.abs(vectors)) < 2.0**-38


@pytest.mark.parametrize("angle", [1, 3])
@pytest.mark.parametrize("size", [2**40, 2**50, 2**52 - 2**45])
def test_an_entry_near_zero_is_in_doubt_by_as_much_as_its_direction_is(angle: int, size: int) -> None:
    """Its sign follows from bits that are not drawn yet, at both ends of what they may be, however long the vector."""
    scale = 2.0**70
    just_below_one = round(math.exp(-0.5) * 2**52) + 1
    for radius in (2**20, 2**49, 2**51, just_below_one, 2**52 - 2**50):
        words = np.array([[radius, radius, size, angle * 2**50]], np.int64)
        vectors, doubt = near(words, 2)
        for rest in (b"\x00", b"\x80", b"\xff"):
            exact = np.array(_exactly(words[0].tolist(), 2, scale, Endless(rest)), np.float64) / scale
            assert (np.abs(exact - vectors[0]) <= doubt[0]).all()
        assert abs(vectors[0, 0]) < doubt[0, 0] < 2.0**-30 * abs(vectors[0, 1])


def test_a_number_that_tells_too_little_is_in_doubt_and_is_then_drawn_to_the_end() -> None:
    """The smallest words, of which the logarithm depends on bits that are not drawn yet, and those at an edge."""
    words = np.full((1, 2 * 2), 2**51, np.int64)
    words[0, 0] = 0
    assert near(words, 2).doubt[0, 0] * 64 > 1
    drawn = {tuple(_exactly(words[0].tolist(), 2, 64.0, FixedSeed(seed))) for seed in range(40)}
    assert len(drawn) > 5


class Repeating:
    """Random bits that put each number in the middle of what is known of it, and count how many were asked for."""

    kind, asked = NoiseSource.FIXED_SEED, 0

    def bytes(self, count: int) -> bytes:
        self.asked += count
        return bytes([0x80, *[0] * 15]) * (count // 16)


def test_what_lies_at_an_edge_of_the_grid_gets_more_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attacker looks where float64 would have to guess: there the place follows from further bits."""
    words = _drawn(FixedSeed(1), 1, 3)
    monkeypatch.setattr(spherical, "_drawn", lambda *given: words)
    value, source = near(words, 3).vectors[0, 0], Repeating()
    edge = (np.floor(1e4 * abs(value)) + 0.5) / abs(value)  # this scale puts the first entry at an edge
    found = rounded(source, 1, 3, float(edge))
    assert source.asked > 0
    assert abs(abs(found[0, 0]) - edge * abs(value)) <= 0.5 + 1e-9
    quiet = Repeating()
    rounded(quiet, 1, 3, float(edge * (1 + 1e-6)))
    assert quiet.asked == 0


# What it promises


def attack(mechanism: Metric, d: int, trials: int) -> float:
    """0 and D along the first axis; the event is a cone beyond D, where the density differs the most."""
    far = np.zeros((trials, d))
    far[:, 0] = mechanism.diameter

    def hits(vectors: np.ndarray) -> int:
        beyond = mechanism.release(vectors) - far
        return int(np.sum(beyond[:, 0] > 0.7 * np.linalg.norm(beyond, axis=1)))

    return epsilon_lower_bound(hits(far), hits(np.zeros((trials, d))), trials)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_noise_keeps_the_promise(d: int) -> None:
    bound = attack(Metric(3.0, 2.0, FixedSeed(11)), d, DRAWS)
    assert 1.6 < bound < 2


@pytest.mark.parametrize("d", [1, 2, 3])
def test_noise_divided_by_root_two_is_found_out(monkeypatch: pytest.MonkeyPatch, d: int) -> None:
    monkeypatch.setattr(metric, "rounded", lambda *given: rounded(*given[:3], given[3] / math.sqrt(2)))
    assert attack(Metric(3.0, 2.0, FixedSeed(12)), d, DRAWS) > 2


def test_vectors_have_noise_of_their_own() -> None:
    out = Metric(1.0, 1.0, FixedSeed(5)).release(np.zeros((DRAWS, 2)))
    assert abs(np.corrcoef(out[:-1, 0], out[1:, 0])[0, 1]) < 6 / math.sqrt(DRAWS)
    assert len(np.unique(out[:1000], axis=0)) > 990


def test_what_is_stated() -> None:
    mechanism = Metric(4.0, 6.0, FixedSeed(1))
    promised = mechanism.guarantee()
    assert (promised.epsilon, promised.delta, promised.unit) == (6.0, 0.0, Unit.WORD)
    assert (promised.adjacency, promised.trust) == (Adjacency.REPLACE, Trust.LOCAL)
    assert promised.noise_source is NoiseSource.FIXED_SEED
    assert str(promised.mechanism) == "metric(eta=1.5,diameter=4.0)"
    assert Guarantee.parse(promised.signature()) == promised
    assert mechanism.event() == events.ApproximateDP(6.0)
    assert replace(mechanism, source=FixedSeed(1)).release([[1.0]]) == Metric(4.0, 6.0, FixedSeed(1)).release([[1.0]])


# How far apart vectors are


SHAPES = st.tuples(st.integers(1, 12), st.integers(1, 4))
CLOUDS = st.builds(lambda shape, seed: np.random.default_rng(seed).normal(size=shape), SHAPES, st.integers(0, 10**6))
ROWS = SHAPES.flatmap(lambda shape: arrays.arrays(np.float64, shape, elements=st.floats(-100, 100)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CLOUDS | ROWS, st.integers(1, 5))
def test_the_diameter_is_that_of_the_farthest_pair(
    monkeypatch: pytest.MonkeyPatch, rows: np.ndarray, block: int
) -> None:
    monkeypatch.setattr(metric, "_BLOCK", block)
    naive = max(math.dist(one, other) for one in rows for other in rows)
    assert naive <= diameter(rows) <= naive * (1 + 1e-8)


def test_few_pairs_are_compared_where_some_vectors_are_far_out() -> None:
    rows = np.random.default_rng(0).normal(size=(5000, 3))
    rows[17], rows[4000] = 40, -40
    assert math.isclose(diameter(rows), math.dist(rows[17], rows[4000]), rel_tol=1e-8)


@pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf, "1"])
def test_a_wrong_setting_is_refused(wrong: float) -> None:
    with pytest.raises(BadInput, match=r"^diameter = .*: it must be a finite number above 0; the largest ℓ2 distance"):
        Metric(wrong, 1.0)
    with pytest.raises(BadInput, match=r"^epsilon = .*: it must be a finite number above 0\.$"):
        Metric(1.0, wrong)


def test_what_are_no_vectors_is_refused() -> None:
    for wrong in ([1.0, 2.0], 3.0, [[]], np.zeros((2, 2, 2))):
        with pytest.raises(BadInput, match=r"^vectors of shape \(.*\): there must be one row of numbers for each\.$"):
            Metric(1.0, 1.0).release(wrong)
    with pytest.raises(BadInput, match=r"^value: it has entries that are NaN or infinite"):
        Metric(1.0, 1.0).release([[math.nan]])
    for wrong in ([1.0], [[math.inf]], [[math.nan, 1.0]]):
        with pytest.raises(BadInput, match=r"^vectors: there must be one row of finite numbers for each\.$"):
            diameter(wrong)
