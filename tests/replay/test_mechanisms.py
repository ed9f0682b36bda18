"""Every mechanism, given two neighbouring answers and the same random words: only the answer itself may differ."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dpnlp.mechanisms import (
    Exponential,
    Gaussian,
    Laplace,
    Metric,
    PartitionSelection,
    RandomizedResponse,
    SubsetResponse,
    exponential,
)
from dpnlp.mechanisms.randomness import FixedSeed

from .tape import Tape

NUMBERS = st.floats(-2, 2) | st.floats(-1e3, 1e3)
WORDS = ("ant", "bee", "cat", "dog", "eel")


def released_alike(release, one, other):
    """What comes out of one answer and of another one with the same words, of which the same number is drawn."""
    first = Tape()
    found = release(first, one)
    second = Tape(first)
    again = release(second, other)
    assert len(first.words) == len(second.words), "how many words are drawn depends on the answer"
    return found, again


@st.composite
def vectors(draw, norm):
    """Two vectors that are at most 1 apart in this norm."""
    size = draw(st.integers(1, 6))
    one = draw(arrays.arrays(np.float64, size, elements=NUMBERS))
    way = draw(arrays.arrays(np.float64, size, elements=st.floats(-1, 1)))
    length = np.linalg.norm(way, norm)
    return one, one + (way / length if length > 1 else way)


@given(vectors(1), st.floats(0.05, 20))
@settings(max_examples=40)
def test_laplace_noise_is_the_same_for_neighbours(pair, epsilon):
    found, again = released_alike(lambda tape, value: Laplace(1.0, epsilon, tape).release(value), *pair)
    _assert_moved_like_the_answers(found, again, *pair, grid=1 / (epsilon * 2**20))


@given(vectors(2), st.floats(0.05, 20))
@settings(max_examples=40)
def test_gaussian_noise_is_the_same_for_neighbours(pair, epsilon):
    found, again = released_alike(lambda tape, value: Gaussian(1.0, epsilon, 1e-6, source=tape).release(value), *pair)
    _assert_moved_like_the_answers(found, again, *pair, grid=Gaussian(1.0, epsilon, 1e-6).step)


@given(vectors(2), st.floats(0.05, 20))
@settings(max_examples=40)
def test_metric_noise_is_the_same_for_neighbours(pair, epsilon):
    one, other = (vector[None] for vector in pair)
    found, again = released_alike(lambda tape, value: Metric(1.0, epsilon, tape).release(value), one, other)
    _assert_moved_like_the_answers(found, again, one, other, grid=1 / (64 * epsilon * math.sqrt(one.size)))


def _assert_moved_like_the_answers(found, again, one, other, grid):
    """But for the grid, on which an answer is rounded before it gets noise."""
    assert np.max(np.abs((found - again) - (one - other))) <= grid * (1 + 1e-6)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.integers(0, 7), st.integers(0, 4), st.floats(0.1, 8))
@settings(max_examples=40)
def test_the_answers_of_others_come_out_the_same(answers, place, other, epsilon):
    changed = list(answers)
    changed[place % len(answers)] = other
    release = lambda tape, given: RandomizedResponse(epsilon, 5, tape).release(given)  # noqa: E731
    found, again = released_alike(release, answers, changed)
    apart = np.flatnonzero(found != again)
    assert set(apart) <= {place % len(answers)}


@given(st.integers(0, 2**16), st.integers(0, 5), st.floats(0.1, 8))
@settings(max_examples=40)
def test_the_choices_of_others_come_out_the_same(seed, place, epsilon):
    rng = np.random.default_rng(seed)
    rows = np.array([rng.choice(9, 3, replace=False) for _ in range(6)])
    changed = rows.copy()
    changed[place] = rng.choice(9, 3, replace=False)
    found, again = released_alike(lambda tape, given: SubsetResponse(epsilon, 9, 3, tape).release(given), rows, changed)
    assert set(np.flatnonzero(found != again)) <= {place}


@given(arrays.arrays(np.float64, 6, elements=NUMBERS), st.integers(0, 2**16), st.floats(0.05, 20), st.booleans())
@settings(max_examples=40)
@pytest.mark.parametrize("choose", [Exponential.choose, Exponential.noisy_max])
def test_scores_tell_of_a_record_by_their_coins_alone(choose, scores, seed, epsilon, monotone):
    """Coins are what hides it, and one of them may move by ε at most; given their outcome the choice is the same."""
    rng = np.random.default_rng(seed)
    moved = scores + (rng.random(6) if monotone else rng.uniform(-1, 1, 6))
    ordinary, tossed = exponential.bernoulli_exp, []

    def release(tape, given):
        def toss(source, numerator, denominator):
            if tape.before is None:
                coins = ordinary(FixedSeed(seed), numerator, denominator)
                tossed.append((numerator / denominator, coins))
                return coins
            was, coins = tossed.pop(0)
            assert np.max(np.abs(numerator / denominator - was)) <= epsilon * (1 + 1e-3)
            return coins

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(exponential, "bernoulli_exp", toss)
            return choose(Exponential(1.0, epsilon, monotone, tape), given)

    found, again = released_alike(release, scores, moved)
    assert found == again
    assert not tossed


@given(st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4), min_size=6, max_size=12), st.data())
@settings(max_examples=30)
def test_a_user_of_words_that_others_say_moves_their_sums_by_one_at_most(users, data):
    def release(tape, users):
        selection = PartitionSelection(3, 5.0, 0.01, tape)
        total = Counter()
        for words in [*([word] for word in WORDS), *users]:
            total.update(selection.contribution(words))
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(selection.__dict__, "_threshold", -(2**40))
            return selection.release(total)

    left = data.draw(st.integers(0, len(users) - 1))
    found, again = released_alike(release, users, users[:left] + users[left + 1 :])
    assert found.keys() == again.keys() == set(WORDS)
    assert math.sqrt(sum((found[word] - again[word]) ** 2 for word in WORDS)) <= 1
