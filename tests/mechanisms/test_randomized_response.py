import math
from dataclasses import replace
from itertools import product

import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import binom

from dpnlp import events
from dpnlp.checks import BadInput
from dpnlp.guarantee import Adjacency, NoiseSource, Trust, Unit
from dpnlp.mechanisms import RandomizedResponse
from dpnlp.mechanisms.randomness import FixedSeed

from .audit import FALSE_ALARM, chi_square


class Word:
    """Gives out one 62-bit number wherever eight bytes are asked for, and zeros otherwise."""

    kind = NoiseSource.FIXED_SEED

    def __init__(self, word: int) -> None:
        self.word = word

    def bytes(self, count: int) -> bytes:
        return self.word.to_bytes(8, "little") if count == 8 else bytes(count)


def numbers(categories: int) -> int:
    """How many there are: as many for each category."""
    return 2**62 // categories * categories


def truthful_words(mechanism: RandomizedResponse) -> int:
    """How many of the numbers of 62 bits keep the truth, found by bisection from outside."""
    low, high = 0, numbers(mechanism.categories)
    while low < high:
        middle = (low + high) // 2
        if replace(mechanism, source=Word(middle)).release([0])[0] == 0:
            low = middle + 1
        else:
            high = middle
    return low


def test_fair_coins() -> None:
    """Heads: the truth; tails: a second coin decides. The truth is told with probability 3/4, and ε = ln 3."""
    fair = RandomizedResponse(math.log(3))
    assert fair.theta == pytest.approx(3 / 4, rel=1e-15)
    assert fair.gamma == pytest.approx(1 / 4, rel=1e-15)
    assert RandomizedResponse.from_theta(3 / 4).epsilon == pytest.approx(math.log(3), rel=1e-15)
    assert RandomizedResponse.from_gamma(1 / 4) == RandomizedResponse.from_theta(3 / 4)


@given(st.floats(1e-6, 30), st.integers(2, 1000))
def test_theta(epsilon: float, categories: int) -> None:
    theta = RandomizedResponse(epsilon, categories).theta
    exact = mpmath.exp(epsilon) / (mpmath.exp(epsilon) + categories - 1)
    assert theta == pytest.approx(float(exact), rel=1e-14)


@given(st.floats(1e-6, 12))
def test_theta_and_gamma_lead_back_to_epsilon(epsilon: float) -> None:
    mechanism = RandomizedResponse(epsilon)
    assert RandomizedResponse.from_theta(mechanism.theta).epsilon == pytest.approx(epsilon, rel=1e-9)
    assert RandomizedResponse.from_gamma(mechanism.gamma).epsilon == pytest.approx(epsilon, rel=1e-9)


@given(st.floats(1e-6, 800), st.integers(2, 64))
@example(1e-300, 2)
@example(1e-300, 3)
@example(1e-300, 50)
@example(1e-300, 64)
@example(1e-16, 3)
@example(1e-16, 50)
@example(18.671767055102315, 2)
@example(28.91, 50)
@example(36.0, 2)
@example(43.0, 2)
@example(60.0, 2)
@example(800.0, 64)
def test_the_truth_is_never_more_likely_than_epsilon_allows(epsilon: float, categories: int) -> None:
    """Exactly, in whole numbers: P(truth)/P(any other) ≤ e^ε, and up to ε = 20 not much below it either."""
    kept = truthful_words(RandomizedResponse(epsilon, categories))
    whole = numbers(categories)
    assert 0 < kept < whole
    with mpmath.workdps(60):
        ratio = mpmath.log(mpmath.mpf(kept) * (categories - 1) / (whole - kept))
        assert 0 <= ratio <= epsilon
        if epsilon <= 20:
            assert ratio > epsilon * (1 - 1e-9) - 1e-12


@pytest.mark.parametrize(("epsilon", "categories"), [(math.log(3), 2), (0.3, 2), (1.0, 5), (4.0, 66), (2.0, 300)])
def test_every_answer_has_its_probability(epsilon: float, categories: int) -> None:
    people, truth = 200_000, categories // 2
    reported = RandomizedResponse(epsilon, categories, FixedSeed(categories)).release(np.full(people, truth))
    weights = np.ones(categories)
    weights[truth] = math.exp(epsilon)
    assert chi_square(np.bincount(reported, minlength=categories), weights / weights.sum()) > FALSE_ALARM


def test_answers_are_randomized_one_by_one() -> None:
    mechanism = RandomizedResponse(1.0)
    truth = np.tile([0, 1], 100_000)
    wrong = (replace(mechanism, source=FixedSeed(2)).release(truth) != truth).astype(int)
    lie = 1 - mechanism.theta
    pairs = np.bincount(2 * wrong[:-1:2] + wrong[1::2], minlength=4)
    assert chi_square(pairs, np.outer([1 - lie, lie], [1 - lie, lie]).ravel()) > FALSE_ALARM


@pytest.mark.parametrize("answers", [1, [], [True, False], [[0, 1], [1, 1]], np.array([1, 0], dtype=np.uint8)])
def test_the_shape_of_the_answers_is_kept(answers) -> None:
    reported = RandomizedResponse(1.0).release(answers)
    assert reported.shape == np.shape(answers)
    assert reported.dtype == np.int64


PEOPLE = 60
CASES = list(product([0.0, 0.1, 0.5, 0.9, 1.0], [(math.log(3), 2), (0.5, 2), (1.0, 4), (3.0, 20)]))


def chances_of_hits(share: float, mechanism: RandomizedResponse, fixed: bool) -> np.ndarray:
    """How likely each number of hits is, where the share is that of the people asked (fixed) or of a population."""
    lie = (1 - mechanism.theta) / (mechanism.categories - 1)
    hits = np.arange(PEOPLE + 1)
    if not fixed:
        return binom.pmf(hits, PEOPLE, share * mechanism.theta + (1 - share) * lie)
    true = round(share * PEOPLE)
    return np.convolve(
        binom.pmf(np.arange(true + 1), true, mechanism.theta),
        binom.pmf(np.arange(PEOPLE - true + 1), PEOPLE - true, lie),
    )


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize(("share", "parameters"), CASES)
def test_estimates_are_unbiased_and_intervals_cover(share: float, parameters: tuple, fixed: bool) -> None:
    """Exactly, by adding up over every number of hits."""
    mechanism = RandomizedResponse(*parameters)
    chances = chances_of_hits(share, mechanism, fixed)
    estimates = [mechanism.estimate_from_counts(hits, PEOPLE) for hits in range(PEOPLE + 1)]
    mean = math.fsum(chance * estimate.share for chance, estimate in zip(chances, estimates, strict=True))
    assert mean == pytest.approx(share, abs=1e-11)
    cover = [estimate.low - 1e-12 <= share <= estimate.high + 1e-12 for estimate in estimates]
    assert math.fsum(chances[cover]) >= 0.95
    assert all(0 <= estimate.low <= estimate.high <= 1 for estimate in estimates)


@pytest.mark.parametrize("theta", [0.6, 0.75, 0.99])
def test_the_estimate_of_the_thesis(theta: float) -> None:
    """Eqn 2.19 with p = θ − ½: the observed share less ½ − p, over 2p."""
    p = theta - 0.5
    estimate = RandomizedResponse.from_theta(theta).estimate([1, 0, 0, 1, 1])
    assert estimate.share == pytest.approx((3 / 5 - (0.5 - p)) / (2 * p), rel=1e-12)


@pytest.mark.parametrize(("epsilon", "categories", "category"), [(1.0, 2, 1), (1.0, 2, 0), (2.0, 5, 3)])
def test_polls(epsilon: float, categories: int, category: int) -> None:
    """Many whole polls: estimates centre on the truth, and at least 95 % of the intervals hold it."""
    mechanism, source, polls, people = RandomizedResponse(epsilon, categories), FixedSeed(6), 1500, 400
    truth = np.arange(people) % (categories + 3) % categories
    share = np.mean(truth == category)
    estimates = [mechanism.estimate(replace(mechanism, source=source).release(truth), category) for _ in range(polls)]
    shares = np.array([estimate.share for estimate in estimates])
    assert abs(shares.mean() - share) < 5.5 * shares.std() / math.sqrt(polls)
    assert np.mean([estimate.low <= share <= estimate.high for estimate in estimates]) > 0.95 - 0.01


@pytest.mark.parametrize("confidence", [0.5, 0.99])
def test_more_confidence_takes_a_wider_interval(confidence: float) -> None:
    mechanism = RandomizedResponse(1.0)
    usual, other = (mechanism.estimate_from_counts(40, 100, level) for level in (0.95, confidence))
    assert (other.high - other.low > usual.high - usual.low) == (confidence > 0.95)
    assert other.share == usual.share


def test_what_is_promised() -> None:
    mechanism = RandomizedResponse(1.5, 3, FixedSeed(1))
    promise = mechanism.guarantee()
    assert (promise.epsilon, promise.delta) == (1.5, 0)
    assert (promise.adjacency, promise.trust, promise.unit) == (Adjacency.REPLACE, Trust.LOCAL, Unit.EXAMPLE)
    assert promise.noise_source is NoiseSource.FIXED_SEED
    assert dict(promise.mechanism.parameters) == {"theta": mechanism.theta, "categories": 3}
    assert mechanism.event() == events.RandomizedResponse(1.5, 3)


@pytest.mark.parametrize("categories", [2, 3, 66])
def test_the_last_category_is_one_less_than_there_are_and_a_refusal_says_so(categories: int) -> None:
    mechanism, last = RandomizedResponse(1.0, categories), categories - 1
    for fine in (0, last):
        assert mechanism.release([fine]).shape == (1,)
        assert mechanism.estimate([fine], fine).low <= mechanism.estimate([fine], fine).high
    for wrong in (-1, categories, categories + 7):
        with pytest.raises(BadInput) as refusal:
            mechanism.estimate([0], wrong)
        assert str(refusal.value) == f"category = {wrong}: it must be a whole number from 0 to {last}."
        for call in (mechanism.release, mechanism.estimate):
            with pytest.raises(BadInput) as refusal:
                call([0, wrong])
            assert str(refusal.value) == f"answers: they must be whole numbers from 0 to {last}."
    with pytest.raises(BadInput) as refusal:
        mechanism.release([0.5])
    assert str(refusal.value) == f"answers: they must be whole numbers from 0 to {last}, not float64."


def test_categories_may_be_any_whole_number() -> None:
    for three in (3.0, np.int64(3)):
        assert replace(RandomizedResponse(1.0, three), source=FixedSeed(1)).release([2]).shape == (1,)
