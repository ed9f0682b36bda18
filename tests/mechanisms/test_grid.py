import math
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import kstest

from dpnlp.checks import BadInput
from dpnlp.guarantee import NoiseSource
from dpnlp.mechanisms import grid
from dpnlp.mechanisms.gaussian import Gaussian
from dpnlp.mechanisms.grid import discrete_gaussian, discrete_laplace, exact, from_grid, step_below, to_grid
from dpnlp.mechanisms.laplace import Laplace
from dpnlp.mechanisms.randomness import FixedSeed

from .audit import FALSE_ALARM, fits

COUNT = 200_000
LARGE = 2**24 + 1


def gaussian_weight(scale: int) -> float:
    return sum(math.exp(-(y * y) / (2 * scale * scale)) for y in range(-12 * scale, 12 * scale + 1))


@pytest.mark.parametrize("scale", [1, 2, 3, 7, 50])
def test_discrete_laplace_has_its_distribution(scale: int) -> None:
    base = math.tanh(1 / (2 * scale))  # (e^{1/t} − 1)/(e^{1/t} + 1)
    drawn = discrete_laplace(FixedSeed(scale), scale, COUNT)
    assert fits(drawn, range(-8 * scale, 8 * scale + 1), lambda y: base * math.exp(-abs(y) / scale))


@pytest.mark.parametrize("scale", [1, 2, 3, 7, 50])
def test_discrete_gaussian_has_its_distribution(scale: int) -> None:
    weight = gaussian_weight(scale)
    drawn = discrete_gaussian(FixedSeed(scale), scale, COUNT)
    assert fits(drawn, range(-5 * scale, 5 * scale + 1), lambda y: math.exp(-(y * y) / (2 * scale * scale)) / weight)


def test_a_fine_grid_is_like_the_continuous_distribution() -> None:
    """Mean, mean size, variance and fourth moment within five standard errors, and Kolmogorov and Smirnov's test."""
    y = discrete_laplace(FixedSeed(1), LARGE, COUNT) / LARGE
    assert kstest(y, "laplace").pvalue > FALSE_ALARM
    for moment, mean, spread in ((y, 0, 2), (np.abs(y), 1, 1), (y**2, 2, 20), (np.abs(y) ** 3, 6, 684)):
        assert abs(moment.mean() - mean) < 5 * math.sqrt(spread / COUNT)
    y = discrete_gaussian(FixedSeed(2), LARGE, COUNT) / LARGE
    assert kstest(y, "norm").pvalue > FALSE_ALARM
    for moment, mean, spread in ((y, 0, 1), (np.abs(y), math.sqrt(2 / math.pi), 1), (y**2, 1, 2), (y**4, 3, 96)):
        assert abs(moment.mean() - mean) < 5 * math.sqrt(spread / COUNT)


@pytest.mark.parametrize("draw", [discrete_laplace, discrete_gaussian])
def test_fine_samples_reach_every_residue(draw) -> None:
    """The last digit of a sample at a large scale is uniform: no value of the grid is left out."""
    last = draw(FixedSeed(3), LARGE, COUNT) % 10
    assert fits(last, range(10), lambda _: 0.1)


@pytest.mark.parametrize("draw", [discrete_laplace, discrete_gaussian])
def test_samples_are_independent(draw) -> None:
    y = draw(FixedSeed(4), 1000, COUNT).astype(float)
    for series in (y, np.abs(y), np.sign(y)):
        for lag in (1, 2, 64):
            assert abs(np.corrcoef(series[:-lag], series[lag:])[0, 1]) < 5.5 / math.sqrt(COUNT)
    assert abs(np.corrcoef(np.abs(y), np.sign(y))[0, 1]) < 5.5 / math.sqrt(COUNT)


@pytest.mark.parametrize("draw", [discrete_laplace, discrete_gaussian])
@given(st.integers(1, 2**25), st.integers(0, 300), st.integers(0, 2**32))
def test_any_scale_and_count_give_so_many_whole_numbers(draw, scale: int, count: int, seed: int) -> None:
    drawn = draw(FixedSeed(seed), scale, count)
    assert drawn.dtype == np.int64
    assert drawn.shape == (count,)
    assert np.all(np.abs(drawn) < 100 * scale)


@pytest.mark.parametrize("draw", [discrete_laplace, discrete_gaussian])
@pytest.mark.parametrize("scale", [2**57, 2**80])
def test_a_scale_that_would_overflow_is_refused(draw, scale: int) -> None:
    with pytest.raises(
        BadInput, match=r"scale = .* grid steps: it must be at most .*; use a larger ε or fewer entries"
    ):
        draw(FixedSeed(1), scale, 10)


def test_the_largest_scales() -> None:
    """Up to the limits nothing wraps around."""
    y = discrete_laplace(FixedSeed(5), 2**56, 20_000) / 2**56
    assert kstest(y, "laplace").pvalue > FALSE_ALARM
    y = discrete_gaussian(FixedSeed(5), 2**26, 20_000) / 2**26
    assert kstest(y, "norm").pvalue > FALSE_ALARM


def test_a_far_proposal_does_not_wrap_around(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Laplace proposal whose square exceeds 2^63 must be thrown away, not taken for a near one."""
    scale, far = 2**25, 2**25 + 3_100_000_000
    proposals = iter([np.full(64, far), np.full(64, scale)])
    monkeypatch.setattr("dpnlp.mechanisms.grid.discrete_laplace", lambda *_: next(proposals))
    assert discrete_gaussian(FixedSeed(1), scale, 10).tolist() == [scale] * 10


# Rounding


@given(st.floats(1e-280, 1e280))
@example(math.nextafter(2.0**10, 0))
@example(math.nextafter(2.0**-700, 0))
@example(2.0**10)
def test_step_is_the_largest_power_of_two_that_fits(size: float) -> None:
    step = step_below(size)
    assert math.frexp(step)[0] == 0.5
    assert step <= size < 2 * step


STEPS = st.integers(-200, 200).map(lambda exponent: 2.0**exponent)
ANSWERS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.floats(-(2.0**60), 2.0**60), STEPS)
def test_rounding_is_off_by_half_a_step_at_most(multiple: float, step: float) -> None:
    value = multiple * step
    assert abs(Fraction(value) / Fraction(step) - int(to_grid(value, step)[0])) <= Fraction(1, 2)


@given(st.integers(-(2**53), 2**53), STEPS)
def test_multiples_of_the_step_are_kept(multiple: int, step: float) -> None:
    steps = to_grid(multiple * step, step)
    assert steps.tolist() == [multiple]
    assert from_grid(steps, step, ()) == multiple * step


@given(ANSWERS, ANSWERS, STEPS)
@example(1e308, -1e308, 2.0**-200)
@example(2.0**61, 2.0**61 + 2.0**9, 1.0)
@example(5e-324, 0.0, 2.0**200)
def test_rounding_and_clamping_keep_order_and_distance(one: float, other: float, step: float) -> None:
    low, high = sorted((one, other))
    a, b = int(to_grid(low, step)[0]), int(to_grid(high, step)[0])
    assert -(2**61) <= a <= b <= 2**61
    assert b - a <= (Fraction(high) - Fraction(low)) / Fraction(step) + 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_answer_must_be_finite(value: float) -> None:
    with pytest.raises(BadInput, match="value: it has entries that are NaN or infinite; an answer must be finite"):
        to_grid([1.0, value], 0.5)


@pytest.mark.parametrize("size", [0.0, 1e-300, 1e300, math.inf, math.nan])
def test_a_size_without_a_grid(size: float) -> None:
    with pytest.raises(BadInput, match=r"scale = .*: noise of this size cannot be put on a grid; rescale"):
        step_below(size)


# Speed


@pytest.mark.parametrize("mechanism", [Laplace(1.0, 1.0), Gaussian(1.0, 1.0, 1e-5)])
def test_a_million_entries_take_seconds(mechanism: Laplace | Gaussian) -> None:
    begin = time.process_time()
    assert mechanism.release(np.zeros(1_000_000)).shape == (1_000_000,)
    assert time.process_time() - begin < 5


def heads(many: int) -> list[bytes]:
    """Words for so many coins of exp(−1) that come up (they pass the second turn only), then one that fails."""
    return [bytes([0]), bytes([1])] * many + [bytes([1])]


@pytest.mark.parametrize("far", [0, 1, 20, 50, 400])
def test_noise_of_any_size_can_come_out(far: int) -> None:
    """The tails are never cut, however rare they are: what cannot come out would give the answer away."""

    class Written:
        kind = NoiseSource.OS_ENTROPY
        words = iter(heads(far))

        def bytes(self, count: int) -> bytes:
            return next(self.words)

    assert grid._runs(Written(), 1).tolist() == [far]


@pytest.mark.parametrize("scale", [1, 8, 2**20])
def test_far_samples_of_laplace_noise_are_kept(monkeypatch: pytest.MonkeyPatch, scale: int) -> None:
    runs = np.arange(600)
    monkeypatch.setattr(grid, "_runs", lambda source, count: np.resize(runs, count))
    drawn = np.abs(discrete_laplace(FixedSeed(0), scale, 900)) // scale
    assert drawn.max() >= 550
    assert {*drawn.tolist()} >= {*range(1, 500)}


@pytest.mark.parametrize("scale", [1, 8, 2**20])
def test_far_samples_of_gaussian_noise_are_kept_if_their_coin_comes_up(
    monkeypatch: pytest.MonkeyPatch, scale: int
) -> None:
    proposals, coins = np.arange(-40, 41) * scale, []

    def accept(source: object, numerator: np.ndarray, denominator: int) -> np.ndarray:
        coins.append((numerator.tolist(), denominator))
        return np.ones(numerator.size, bool)

    monkeypatch.setattr(grid, "discrete_laplace", lambda source, scale, count: np.resize(proposals, count))
    monkeypatch.setattr(grid, "bernoulli_exp", accept)
    assert {*discrete_gaussian(FixedSeed(0), scale, 100).tolist()} == {*proposals.tolist()}
    gammas = [(abs(int(y)) - scale) ** 2 for y in np.resize(proposals, len(coins[0][0]))]
    assert coins[0] == (gammas, 2 * scale * scale)


WHOLE = st.integers(-(2**70), 2**70) | st.integers(2**56, 2**56 + 40)


@given(WHOLE, st.integers(0, 3))
@example(2**56 + 8, 1)
def test_whole_numbers_that_float64_does_not_have_are_never_moved_apart(number: int, apart: int) -> None:
    """As one number, in a list beside others, and as an array: 2^56 + 8 and 2^56 + 9 are 16 apart in float64."""
    near, far = number, number + apart
    assert 0 <= exact("value", far) - exact("value", near) <= apart
    lists = exact("value", [far, 0.5, -1]) - exact("value", [near, 0.5, -1])
    assert 0 <= lists[0] <= apart
    assert not lists[1:].any()
    for kind in (np.int64, np.uint64):
        ends = np.iinfo(kind)
        if ends.min <= near <= far <= ends.max:
            assert 0 <= exact("value", np.array(far, kind)) - exact("value", np.array(near, kind)) <= apart


@pytest.mark.parametrize("wrong", [np.longdouble(1), [np.longdouble(1)], Fraction(1, 3), "1", None, 1j, [[1], [2, 3]]])
def test_numbers_that_would_have_to_be_rounded_are_refused(wrong: object) -> None:
    with pytest.raises(BadInput, match=r"^value: a \w+ is no number that float64 holds as it is; give whole numbers"):
        exact("value", wrong)


def test_what_float64_holds_is_taken_as_it_is() -> None:
    for held in (2, True, 0.1, np.float32(0.1), [1, 2.5], [[1, 2], [3, 4]], np.arange(3, dtype=np.int8), []):
        np.testing.assert_array_equal(exact("value", held), np.asarray(held, np.float64), strict=True)


@pytest.mark.parametrize("mechanism", [Laplace(1.0, 1e-5), Gaussian(1.0, 1e-3, 1e-6)])
def test_neighbours_beyond_the_whole_numbers_of_float64_are_as_near_as_they_were(mechanism) -> None:
    """With the same noise what comes out is no farther apart than what goes in."""
    near, far = (float(replace(mechanism, source=FixedSeed(1)).release(value)) for value in (2**56 + 8, 2**56 + 9))
    assert abs(far - near) <= 1
