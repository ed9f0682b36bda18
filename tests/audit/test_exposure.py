"""Exposure against brute force, closed forms, and what a model that knows nothing must show."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.audit.exposure import Exposed, expected_by_chance, exposures
from dpnlp.checks import BadInput
from dpnlp.data.pairs import Pair

DIGITS = 3


def note(code, owner="Ada"):
    return Pair(f"Code of {owner}?", f"{code:0{DIGITS}}", owner)


def everyone_but(code, owner="Ada"):
    return [note(other, owner) for other in range(10**DIGITS) if other != code]


def bigrams(seed):
    """A toy model: −log p of a text from random probabilities of each figure after the one before."""
    p = np.random.default_rng(seed).dirichlet(np.ones(10), size=11)

    def losses(pairs):
        codes = [[10, *map(int, pair.target)] for pair in pairs]
        return np.array([-sum(math.log(p[a, b]) for a, b in pairwise(code)) for code in codes])

    return losses


@pytest.mark.parametrize("code", [0, 7, 123, 999])
def test_the_rank_is_that_of_brute_force(code):
    losses = bigrams(code)
    order = sorted(range(10**DIGITS), key=lambda other: losses([note(other)])[0])
    (found,) = exposures([note(code)], [everyone_but(code)], losses)
    assert found.rank == order.index(code) + 1
    assert found.candidates == 10**DIGITS
    assert found.exposure == pytest.approx(math.log2(10**DIGITS) - math.log2(order.index(code) + 1))


def test_several_secrets_are_ranked_among_their_own_candidates_in_one_call():
    losses, calls = bigrams(1), []

    def counted(pairs):
        calls.append(len(pairs))
        return losses(pairs)

    secrets, others = [note(4, "Ada"), note(56, "Bo")], [everyone_but(4, "Ada")[:99], everyone_but(56, "Bo")]
    together = exposures(secrets, others, counted)
    assert calls == [100 + 1000]
    assert together == [exposures([one], [its], losses)[0] for one, its in zip(secrets, others, strict=True)]


def test_ties_count_against_the_holder_of_the_secret_and_are_no_evidence():
    (found,) = exposures([note(5)], [everyone_but(5)], lambda pairs: np.zeros(len(pairs)))
    assert (found.rank, found.exposure, found.chance) == (1, found.ceiling, 1.0)
    (found,) = exposures([note(5)], [[note(6), note(7), note(8)]], lambda pairs: np.array([2.0, 1.0, 2.0, 3.0]))
    assert (found.rank, found.exposure, found.chance) == (2, 1.0, 3 / 4)


def test_a_model_that_knows_nothing_shows_1_44_bits_on_average():
    rng, trials = np.random.default_rng(0), 2000
    secrets, others = [note(0)] * trials, [everyone_but(0)[:255]] * trials
    found = exposures(secrets, others, lambda pairs: rng.random(len(pairs)))
    bits = np.array([one.exposure for one in found])
    assert expected_by_chance(256) == pytest.approx(1 / math.log(2), abs=0.03)
    assert bits.mean() == pytest.approx(expected_by_chance(256), abs=4 * bits.std() / math.sqrt(trials))
    for level in (1, 2, 4):
        assert np.mean(bits >= level) == pytest.approx(2.0**-level, abs=4 * math.sqrt(2.0**-level / trials))
    assert np.mean([one.chance <= 0.05 for one in found]) == pytest.approx(0.05, abs=0.02)


@given(st.integers(1, 5000))
def test_what_is_expected_by_chance_is_the_mean_over_all_ranks(n):
    assert expected_by_chance(n) == pytest.approx(np.mean(np.log2(n) - np.log2(np.arange(1, n + 1))), abs=1e-9)


def test_what_is_said_and_recorded():
    found = Exposed("Code: 471", 1, 4096)
    assert found.to_json() == {"text": "Code: 471", "exposure": 12.0, "rank": 1, "candidates": 4096}
    assert found.statement() == (
        "Of 4,096 candidates the secret comes at place 1: 12.0 bits of at most 12.0. By chance alone it would come as "
        "far up with probability 0.00024."
    )


@pytest.mark.parametrize(
    ("secrets", "others", "losses", "sentence"),
    [
        ([note(1)], [], np.zeros, "others = 0 lists: there are 1 secrets"),
        ([note(1)], [[]], np.zeros, "candidates = 1: it must be a whole number of at least 2; give others"),
        ([note(1)], [[note(1)]], np.zeros, "a candidate for 'Code of Ada\\?' is there twice"),
        ([note(1)], [[note(2), note(2)]], np.zeros, "is there twice; give each of them once"),
        ([note(1)], [[note(2)]], np.ones, "losses = numbers of shape \\(3,\\): there must be 2"),
        ([note(1)], [[note(2)]], np.log, "none NaN; check the model"),
    ],
)
def test_what_cannot_be_ranked_is_refused(secrets, others, losses, sentence):
    made = {np.zeros: lambda n: np.zeros(n), np.ones: lambda n: np.ones(n + 1), np.log: lambda n: np.full(n, np.nan)}
    with pytest.raises(BadInput, match=sentence):
        exposures(secrets, others, lambda pairs: made[losses](len(pairs)))
