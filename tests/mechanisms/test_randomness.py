import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from dpnlp.guarantee import NoiseSource
from dpnlp.mechanisms.randomness import (
    OS_ENTROPY,
    FixedSeed,
    OSEntropy,
    below,
    bernoulli_exp,
    bernoulli_exp_fraction,
)

from .audit import FALSE_ALARM, chi_square


class Script:
    """Gives out prepared bytes, one string for each request."""

    kind = NoiseSource.FIXED_SEED

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)

    def bytes(self, count: int) -> bytes:
        answer = self.answers.pop(0)
        assert len(answer) == count
        return answer


@pytest.mark.parametrize("limit", range(1, 65))
def test_below_is_exactly_uniform_over_all_bytes(limit: int) -> None:
    """All 256 bytes once, and zeros for those drawn again: every number must come out ⌊256/limit⌋ times."""
    excess = 256 % limit
    drawn = below(Script(bytes(range(256)), bytes(excess)), limit, 256)
    expected = np.full(limit, 256 // limit)
    expected[0] += excess
    assert np.bincount(drawn, minlength=limit).tolist() == expected.tolist()


@pytest.mark.parametrize("limit", [65, 100, 255, 256, 257, 12_000, 16_383, 16_384])
def test_below_is_exactly_uniform_over_all_words(limit: int) -> None:
    every = np.arange(2**16, dtype="<u2")
    excess = 2**16 % limit
    drawn = below(Script(every.tobytes(), bytes(2 * excess)), limit, every.size)
    expected = np.full(limit, 2**16 // limit)
    expected[0] += excess
    assert np.bincount(drawn, minlength=limit).tolist() == expected.tolist()


def test_below_draws_again_until_a_word_fits() -> None:
    assert below(Script(bytes([255, 3, 240]), bytes([250, 254]), bytes([241, 59]), bytes([7])), 60, 3).tolist() == [
        7,
        3,
        59,
    ]


@pytest.mark.parametrize("limit", [1, 2, 3, 10, 50, 60, 64, 65, 100, 255, 256, 257, 1000])
def test_below_by_chi_square(limit: int) -> None:
    counts = np.bincount(below(FixedSeed(limit), limit, 200_000), minlength=limit)
    assert len(counts) == limit
    assert chi_square(counts, np.full(limit, 1 / limit)) > FALSE_ALARM


@pytest.mark.parametrize(
    "limit", [12_000, 16_385, 900_000_000, 2**30, 2**30 + 1, 5 * 2**40 + 1, 4 * 10**18, 2**62 - 1, 2**62]
)
def test_below_with_a_large_limit(limit: int) -> None:
    """The leading part and the last digits, each against the exact number of values in every cell."""
    drawn = below(FixedSeed(limit), limit, 200_000)
    assert drawn.dtype == np.int64
    assert drawn.min() >= 0
    assert drawn.max() < limit
    width = -(-limit // 64)
    sizes = [max(0, min(limit, (cell + 1) * width) - cell * width) for cell in range(64)]
    assert chi_square(np.bincount(drawn // width, minlength=64), [size / limit for size in sizes]) > FALSE_ALARM
    sizes = [(limit - digit + 15) // 16 for digit in range(16)]
    assert chi_square(np.bincount(drawn % 16, minlength=16), [size / limit for size in sizes]) > FALSE_ALARM


@pytest.mark.parametrize("limit", [2, 7, 300, 2**40])
def test_successive_draws_are_independent(limit: int) -> None:
    drawn = (below(FixedSeed(5), limit, 200_001) * 2) // limit
    shares = np.array([-(-limit // 2), limit // 2]) / limit
    pairs = np.bincount(2 * drawn[:-1] + drawn[1:], minlength=4)
    assert chi_square(pairs, np.outer(shares, shares).ravel()) > FALSE_ALARM


GAMMAS = [
    (0, 1),
    (0, 7),
    (1, 10**6),
    (1, 3),
    (10**12, 3 * 10**12 + 1),
    (1, 1),
    (2**40, 2**40),
    (5, 2),
    (2, 1),
    (5 * 2**49, 2**50),
    (40, 1),
    (40 * 2**50, 2**50),
]


@pytest.mark.parametrize(("numerator", "denominator"), GAMMAS)
def test_coins_of_exp(numerator: int, denominator: int) -> None:
    tosses = 300_000
    coins = bernoulli_exp(FixedSeed(17), np.full(tosses, numerator, dtype=np.int64), denominator)
    assert coins.shape == (tosses,)
    assert coins.dtype == np.bool_
    assert binomtest(int(coins.sum()), tosses, math.exp(-numerator / denominator)).pvalue > FALSE_ALARM


@pytest.mark.parametrize(("numerator", "denominator"), [g for g in GAMMAS if g[0] <= g[1]])
def test_coins_of_exp_of_a_fraction(numerator: int, denominator: int) -> None:
    tosses = 300_000
    coins = bernoulli_exp_fraction(FixedSeed(18), np.full(tosses, numerator, dtype=np.int64), denominator)
    assert binomtest(int(coins.sum()), tosses, math.exp(-numerator / denominator)).pvalue > FALSE_ALARM


def test_different_coins_in_one_toss() -> None:
    """Each coin keeps its own γ; mixing up the places would show."""
    gammas = np.tile(np.array([0, 1, 4, 10, 25, 200]), 60_000)
    coins = bernoulli_exp(FixedSeed(19), gammas, 10).reshape(-1, 6)
    for column, gamma in zip(coins.T, [0, 0.1, 0.4, 1, 2.5, 20], strict=True):
        assert binomtest(int(column.sum()), len(column), math.exp(-gamma)).pvalue > FALSE_ALARM
    agree = int(np.sum(coins[:, 2] & coins[:, 3]))
    assert binomtest(agree, len(coins), math.exp(-1.4)).pvalue > FALSE_ALARM


def test_tossing_leaves_its_arguments_alone() -> None:
    numerator = np.array([25, 0, 100])
    bernoulli_exp(FixedSeed(1), numerator, 10)
    assert numerator.tolist() == [25, 0, 100]


@given(
    st.integers(0, 2**32), st.lists(st.integers(0, 2**55), max_size=20), st.integers(1, 2**50), st.integers(1, 2**62)
)
def test_any_request_is_met(seed: int, numerators: list[int], denominator: int, limit: int) -> None:
    coins = bernoulli_exp(FixedSeed(seed), np.array(numerators, dtype=np.int64), denominator)
    assert coins.shape == (len(numerators),)
    drawn = below(FixedSeed(seed), limit, len(numerators))
    assert drawn.shape == (len(numerators),)
    assert np.all((drawn >= 0) & (drawn < limit))


def test_a_fixed_seed_repeats_and_the_system_does_not() -> None:
    assert FixedSeed(3).bytes(64) == FixedSeed(3).bytes(64)
    assert FixedSeed(3).bytes(64) != FixedSeed(4).bytes(64)
    assert OS_ENTROPY.bytes(64) != OS_ENTROPY.bytes(64)
    assert len(OS_ENTROPY.bytes(5)) == 5


def test_a_source_says_what_it_is() -> None:
    assert OSEntropy().kind is NoiseSource.OS_ENTROPY
    assert FixedSeed(0).kind is NoiseSource.FIXED_SEED
