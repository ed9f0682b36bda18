"""Clopper and Pearson's bounds against SciPy's, their definition, and the true coverage of a binomial."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from dpnlp.mechanisms.confidence import at_least, at_most


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.sampled_from([0.2, 1e-3]))
def test_bounds_are_those_of_scipy(counts, chance):
    hits, trials = counts
    interval = binomtest(hits, trials).proportion_ci(1 - 2 * chance, method="exact")
    assert at_least(hits, trials, chance) == pytest.approx(interval.low, abs=1e-9)
    assert at_most(hits, trials, chance) == pytest.approx(interval.high, abs=1e-9)


@pytest.mark.parametrize("chance", [0.05, 1e-7])
def test_each_bound_is_wrong_with_at_most_its_chance(chance):
    """By summing over all that can come out; and for some p it is nearly as much."""
    n = 60
    hits = np.arange(n + 1)
    low, high = at_least(hits, n, chance), at_most(hits, n, chance)
    shares = np.linspace(0.001, 0.999, 997)
    wrong = [
        [binom.pmf(hits, n, p)[missed].sum() for p, missed in ((p, low > p), (p, high < p))]  # one for either side
        for p in shares
    ]
    assert np.max(wrong, axis=0).max() <= chance * (1 + 1e-9)
    assert np.max(wrong, axis=0).min() > chance / 3


def test_many_counts_are_bounded_at_once():
    hits = np.array([[0, 3], [7, 10]])
    for bound in (at_least, at_most):
        assert bound(hits, 10, 0.01).tolist() == [[float(bound(k, 10, 0.01)) for k in row] for row in hits]
    assert at_least(0, 10, 0.01) == 0
    assert at_most(10, 10, 0.01) == 1
