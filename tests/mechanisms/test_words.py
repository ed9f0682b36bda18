"""No random word serves twice: what one answer is hidden by says nothing of what hides another."""

import numpy as np
import pytest

from dpnlp.guarantee import NoiseSource
from dpnlp.mechanisms import Gaussian, Laplace, Metric, RandomizedResponse, SubsetResponse
from dpnlp.mechanisms.randomness import FixedSeed, below
from dpnlp.mechanisms.spherical import rounded

ANSWERS = 12


class Script:
    """Words that were written down before, of which one may be another."""

    kind = NoiseSource.OS_ENTROPY

    def __init__(self, seed, changed=None):
        self.generator, self.changed, self.given = np.random.default_rng(seed), changed, 0

    def bytes(self, count):
        drawn = bytearray(self.generator.bytes(count))
        if self.changed is not None and self.given <= self.changed < self.given + count:
            drawn[self.changed - self.given] ^= 0xA5
        self.given += count
        return bytes(drawn)


RELEASES = {
    # As many categories as make every word fit, so that none is drawn again and no later word moves up.
    "randomized response": lambda source: RandomizedResponse(0.3, 5, source).release([2] * ANSWERS),
    "subset response": lambda source: SubsetResponse(0.3, 8, 4, source).release([[1, 3, 4, 6]] * ANSWERS),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("release", RELEASES)
def test_a_word_moves_the_answer_of_one_person_and_no_other(release, seed):
    source = Script(seed)
    expected = RELEASES[release](source)
    seen = np.zeros(ANSWERS, bool)
    for changed in range(source.given):
        different = np.flatnonzero(
            np.any((RELEASES[release](Script(seed, changed)) != expected).reshape(ANSWERS, -1), 1)
        )
        assert len(different) <= 1
        seen[different] = True
    assert seen.all()


def codes(values, parts=4):
    """In which of four parts of the distribution each value lies."""
    return np.searchsorted(np.quantile(values, np.arange(1, parts) / parts), values, side="right")


def assert_independent(one, other):
    """By the chi-square of a table: it is normal-ish with mean 9 and deviation √18."""
    table = np.histogram2d(codes(one), codes(other), bins=[range(5), range(5)])[0]
    expected = table.sum(1, keepdims=True) * table.sum(0) / table.sum()
    assert np.sum((table - expected) ** 2 / np.maximum(expected, 1e-9)) < 9 + 7 * np.sqrt(18)


NOISES = {
    "laplace": lambda source, shape: Laplace(1.0, 1.0, source).release(np.zeros(shape)),
    "gaussian": lambda source, shape: Gaussian(1.0, 1.0, 1e-5, source=source).release(np.zeros(shape)),
    "metric": lambda source, shape: Metric(1.0, 1.0, source).release(np.zeros(shape)),
}


@pytest.mark.parametrize("noise", NOISES)
def test_the_noise_of_one_entry_tells_nothing_of_that_of_another(noise):
    """Of an entry of the same row, of the row before, of half of all rows before, and of another release."""
    source = FixedSeed(5)
    values, more = (NOISES[noise](source, (4096, 2)) for _ in range(2))
    for size in (np.asarray, np.abs, np.sign) if noise != "metric" else (np.asarray,):
        pairs = [(values[:-1], values[1:]), (values[:2048], values[2048:]), (values, more)]
        pairs += [(values[:, :1], values[:, 1:])] if noise != "metric" else []
        for one, other in pairs:
            assert_independent(size(one).ravel(), size(other).ravel())


def test_the_length_of_a_vector_of_noise_tells_nothing_of_its_direction():
    vectors = rounded(FixedSeed(1), 8192, 3, 1e4).astype(float)
    lengths = np.linalg.norm(vectors, axis=1)
    for entry in range(3):
        assert_independent(lengths, vectors[:, entry] / lengths)
        assert_independent(lengths, np.abs(vectors[:, entry]) / lengths)


def test_words_that_are_drawn_again_are_drawn_for_each_place():
    """A third of all bytes is drawn again for 171 = 256 − 85; together they are as uniform as the others."""
    drawn = below(FixedSeed(2), 43_690, 60_000)  # two bytes, a third of which does not fit
    counts = np.bincount(drawn // 437, minlength=100)[:99]
    assert np.sum((counts - counts.mean()) ** 2 / counts.mean()) < 99 + 6 * np.sqrt(198)
    assert len({*drawn.tolist()}) > 30_000


def test_who_lies_says_nothing_of_the_lie():
    """Randomized response draws whether it lies and what it says then apart."""
    answers = RandomizedResponse(0.2, 9, FixedSeed(3)).release([0] * 40_000)
    lies = answers[answers != 0]
    counts = np.bincount(lies, minlength=9)[1:]
    assert np.sum((counts - counts.mean()) ** 2 / counts.mean()) < 7 + 7 * np.sqrt(14)
