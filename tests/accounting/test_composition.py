"""Composition theorems against the exact composition of randomized response."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.accounting import composition, pld
from dpnlp.accounting.subsampling import amplified
from dpnlp.checks import BadInput
from dpnlp.events import ApproximateDP, Gaussian, PoissonSampled, Repeated
from dpnlp.guarantee import Adjacency


def test_basic_adds_up():
    assert composition.basic([(0.5, 1e-6), (1.0, 0.0), (0.25, 2e-6)]) == (1.75, pytest.approx(3e-6))


@pytest.mark.parametrize(
    ("adjacency", "expected"),
    [(Adjacency.ADD_REMOVE, (2.0, 3e-6)), (Adjacency.ZERO_OUT, (2.0, 3e-6)), (Adjacency.REPLACE, (3.0, 4e-6))],
)
def test_parallel_counts_the_parts_that_one_record_touches(adjacency, expected):
    """A replaced record may leave one part and enter another, so two parts count."""
    total = composition.parallel([(0.5, 3e-6), (2.0, 0.0), (1.0, 1e-6)], adjacency)
    assert total == (expected[0], pytest.approx(expected[1]))


@given(e=st.floats(0.01, 0.5), k=st.integers(1, 400), slack=st.floats(1e-9, 1e-2))
def test_advanced_composition_is_never_below_the_exact_one(e, k, slack):
    total, delta = composition.advanced(e, 0.0, k, slack)
    assert delta == slack
    assert pld.epsilon(Repeated(ApproximateDP(e), k), slack, Adjacency.ADD_REMOVE) <= total * (1 + 1e-3)


@given(e=st.floats(0.001, 2.0), delta=st.floats(0, 1e-3), k=st.integers(1, 10))
def test_group_privacy_is_the_definition_used_k_times(e, delta, k):
    """P₀ ≤ e^ε P₁ + δ ≤ e^ε (e^ε P₂ + δ) + δ ≤ …"""
    total = 0.0
    for _ in range(k):
        total = math.exp(e) * total + delta
    assert composition.group(e, delta, k) == (pytest.approx(k * e), pytest.approx(min(total, 1.0)))


def test_group_privacy_holds_for_a_gaussian():
    """k records move the answer k times as far: the exact ε at the group's δ must not exceed the group bound."""
    z, delta, k = 3.0, 1e-8, 4
    one = pld.epsilon(Gaussian(z), delta, Adjacency.ADD_REMOVE)
    e, group_delta = composition.group(one, delta, k)
    assert pld.epsilon(Gaussian(z / k), group_delta, Adjacency.ADD_REMOVE) <= e


def test_group_privacy_at_the_edges():
    assert composition.group(0.0, 1e-6, 5) == (0.0, pytest.approx(5e-6))
    assert composition.group(400.0, 1e-6, 2) == (800.0, 1.0)
    assert composition.group(400.0, 0.0, 2) == (800.0, 0.0)


@given(e=st.floats(0.01, 5.0), q=st.floats(0.001, 1.0))
def test_amplification_is_exact_for_randomized_response(e, q):
    """The mixture (1−q)Q + qP of the worst ε-DP pair has the loss ln(1 + q(e^ε − 1)) and no larger one."""
    true, wrong = 1 / (1 + math.exp(-e)), 1 / (1 + math.exp(e))
    assert amplified(e, 0.0, q)[0] == pytest.approx(math.log(((1 - q) * wrong + q * true) / wrong))
    assert pld.epsilon(PoissonSampled(q, ApproximateDP(e)), 1e-12, Adjacency.ADD_REMOVE) <= amplified(e, 0, q)[0] + 1e-9


def test_amplification_at_the_edges():
    assert amplified(1.0, 1e-5, 1.0) == (pytest.approx(1.0), pytest.approx(1e-5))
    assert amplified(1000.0, 0.0, 0.5)[0] == pytest.approx(1000 + math.log(0.5))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: composition.advanced(0.1, 0, 0, 1e-5), "count = 0: it must be a whole number of at least 1."),
        (lambda: composition.advanced(0.1, 0, 5, 0.0), "slack = 0.0: it must lie strictly between 0 and 1."),
        (lambda: composition.group(0.1, 0, 0), "size = 0: it must be a whole number of at least 1."),
        (lambda: amplified(0.1, 0, 1.5), "q = 1.5: it must lie above 0 and be at most 1."),
    ],
)
def test_bad_input(call, sentence):
    with pytest.raises(BadInput) as error:
        call()
    assert str(error.value) == sentence
