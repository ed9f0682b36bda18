import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpnlp import events
from dpnlp.accounting import pld
from dpnlp.checks import BadInput
from dpnlp.events import Repeated
from dpnlp.guarantee import Adjacency, Trust, Unit
from dpnlp.mechanisms import RandomizedResponse, SubsetResponse
from dpnlp.mechanisms.randomized_response import honest
from dpnlp.mechanisms.randomness import FixedSeed

from .audit import FALSE_ALARM, chi_square, epsilon_lower_bound
from .test_randomized_response import Word, numbers

shapes = st.integers(2, 500).flatmap(lambda k: st.tuples(st.just(k), st.integers(1, k - 1)))


def exact(mechanism, preferred):
    """The probability of each candidate, by the definition."""
    weights = np.ones(mechanism.candidates)
    weights[list(preferred)] = math.exp(mechanism.epsilon)
    return weights / weights.sum()


@given(st.floats(1e-6, 30), shapes)
def test_theta_is_the_share_of_the_preferred(epsilon, shape):
    k, m = shape
    mechanism = SubsetResponse(epsilon, k, m)
    with mpmath.workdps(40):
        weight = m * mpmath.exp(epsilon)
        assert mechanism.theta == pytest.approx(float(weight / (weight + k - m)), rel=1e-13)
    assert mechanism.theta == pytest.approx(exact(mechanism, range(m))[:m].sum(), rel=1e-12)


@given(st.floats(1e-6, 800), shapes)
@example(1e-300, (7, 3))
def test_no_candidate_is_more_likely_than_epsilon_allows(epsilon, shape):
    """Exactly, in whole numbers: with so many of them for the preferred, P(one)/P(another) ≤ e^ε."""
    k, m = shape
    low, high = 0, (whole := numbers(k))
    while low < high:
        middle = (low + high) // 2
        if honest(Word(middle), epsilon, m, k, 1)[0]:
            low = middle + 1
        else:
            high = middle
    assert 0 < low < whole
    with mpmath.workdps(60):
        ratio = mpmath.log(mpmath.mpf(low) / m * (k - m) / (whole - low))
        assert 0 <= ratio <= epsilon
        assert epsilon > 20 or ratio >= epsilon - 1e-9


@pytest.mark.parametrize(("k", "preferred"), [(7, (2,)), (7, (6, 0, 3)), (3, (1, 2)), (12, (0, 1, 2, 3, 4, 5))])
def test_the_choice_has_the_probabilities_of_the_definition(k, preferred):
    mechanism = SubsetResponse(1.3, k, len(preferred), source=FixedSeed(0))
    chosen = mechanism.release(np.tile(preferred, (40_000, 1)))
    assert chi_square(np.bincount(chosen, minlength=k), exact(mechanism, preferred)) > FALSE_ALARM


def test_with_one_preferred_candidate_it_is_randomized_response():
    assert SubsetResponse(2.0, 9).theta == RandomizedResponse(2.0, 9).theta
    assert SubsetResponse(2.0, 9).event() == RandomizedResponse(2.0, 9).event()


def test_rows_are_answered_each_by_itself():
    rows = np.array([[0, 1], [8, 9]])
    chosen = SubsetResponse(60.0, 10, 2, source=FixedSeed(1)).release(np.repeat(rows, 50, axis=0))
    assert {*chosen[:50]} == {0, 1}
    assert {*chosen[50:]} == {8, 9}
    assert SubsetResponse(1.0, 10, 2).release(np.zeros((0, 2), int)).shape == (0,)


def test_an_audit_finds_no_more_than_is_claimed_and_nearly_all_of_it():
    """Two answers that share no preferred candidate; the event is that one of the first answer's comes up."""
    mechanism, trials = SubsetResponse(1.0, 10, 3, source=FixedSeed(2)), 200_000
    first, second = (mechanism.release(np.tile(row, (trials, 1))) for row in ((0, 1, 2), (3, 4, 5)))
    found = epsilon_lower_bound(int(np.sum(first < 3)), int(np.sum(second < 3)), trials)
    assert 0.95 < found <= mechanism.epsilon
    halved = replace(mechanism, epsilon=math.sqrt(2) * mechanism.epsilon)
    first, second = (halved.release(np.tile(row, (trials, 1))) for row in ((0, 1, 2), (3, 4, 5)))
    assert epsilon_lower_bound(int(np.sum(first < 3)), int(np.sum(second < 3)), trials) > mechanism.epsilon


@given(st.floats(0.05, 4), st.integers(2, 40).flatmap(lambda k: st.tuples(st.just(k), st.integers(1, k - 1))))
def test_the_event_dominates_every_pair_of_answers(epsilon, shape):
    """δ(ε') of the two output distributions, for any overlap of what is preferred, is within that of the event."""
    k, m = shape
    mechanism = SubsetResponse(epsilon, k, m)
    event = mechanism.event()
    wrong = 1 / (math.exp(epsilon) + event.categories - 1)
    right = math.exp(epsilon) * wrong
    for shared in {0, m // 2, m - 1} & set(range(max(0, 2 * m - k), m)):
        p = exact(mechanism, range(m))
        q = exact(mechanism, [*range(shared), *range(m, 2 * m - shared)])
        for share in (0.0, 0.3, 0.9, 1.0):
            delta = np.maximum(p - math.exp(share * epsilon) * q, 0).sum()
            assert delta <= max(0.0, right - math.exp(share * epsilon) * wrong) + 1e-12


def test_several_choices_are_composed():
    event = SubsetResponse(0.5, 1000, 100).event()
    assert event == events.RandomizedResponse(0.5, 10)
    assert pld.epsilon(Repeated(event, 20), 1e-5, Adjacency.REPLACE) < 20 * 0.5


def test_what_it_promises():
    promised = SubsetResponse(3.0, 60_000, 7000).guarantee()
    assert (promised.epsilon, promised.delta) == (3.0, 0.0)
    assert (promised.unit, promised.adjacency, promised.trust) == (Unit.TEXT, Adjacency.REPLACE, Trust.LOCAL)
    assert str(promised.mechanism) == "subset-response(candidates=60000,preferred=7000)"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: SubsetResponse(0.0, 5), "epsilon = 0.0: it must be a finite number above 0"),
        (lambda: SubsetResponse(math.inf, 5), "epsilon = inf: it must be a finite number above 0"),
        (lambda: SubsetResponse(1.0, 1), "candidates = 1: it must be a whole number of at least 2"),
        (lambda: SubsetResponse(1.0, 5, 5), "preferred = 5: it must be below the number of candidates, 5"),
        (lambda: SubsetResponse(1.0, 5, 2).release([[1]]), "it must have rows of 2 whole numbers"),
        (lambda: SubsetResponse(1.0, 5, 2).release([[1.5, 2.0]]), "it must have rows of 2 whole numbers"),
        (lambda: SubsetResponse(1.0, 5, 2).release([[1, 1]]), "a row must have different numbers from 0 to 4"),
        (lambda: SubsetResponse(1.0, 5, 2).release([[1, 5]]), "a row must have different numbers from 0 to 4"),
    ],
)
def test_refusals(call, said):
    with pytest.raises(BadInput, match=said):
        call()
