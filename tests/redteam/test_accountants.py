"""Accountants (laws 1 and 8): is there a release whose exact cost is above the ε that one of them states?"""

import math

import numpy as np
import pytest
from mpmath import mp, mpf

from dpnlp.accounting.accountant import Accountant, epsilon
from dpnlp.events import Gaussian, PoissonSampled, RandomizedResponse, Repeated
from dpnlp.guarantee import Adjacency


def exact_delta(q, z, stated):
    """δ(ε) of a Gaussian on a sampled sum, in 60 digits: the worse of both directions, at the best threshold x."""
    with mp.workdps(60):
        q, z, stated = mpf(q), mpf(z), mpf(stated)

        def beyond(x):
            return mp.erfc(x / mp.sqrt(2)) / 2

        x = z**2 * mp.log((mp.expm1(stated) + q) / q) + mpf(1) / 2
        removed = (1 - q) * beyond(x / z) + q * beyond((x - 1) / z) - mp.exp(stated) * beyond(x / z)
        if mp.exp(-stated) <= 1 - q:
            return max(removed, mpf(0))
        x = z**2 * mp.log((mp.expm1(-stated) + q) / q) + mpf(1) / 2
        added = beyond(-x / z) - mp.exp(stated) * ((1 - q) * beyond(-x / z) + q * beyond((1 - x) / z))
        return max(removed, added)


FAINT = (7.532e-09, 451_439.6, 6.322e-242)
"""q, z and δ of a release whose ε is about as small as what rounding takes from it."""


def any_release(rng):
    """The logarithms of q, z and δ, some of them far from what anybody would choose."""
    rate = rng.choice([0.0, rng.uniform(-0.5, 0), rng.uniform(-12, 0)])
    return np.array([rate, rng.uniform(-1.5, 6), rng.choice([rng.uniform(-12, -0.5), rng.uniform(-250, -10)])])


@pytest.mark.parametrize("accountant", Accountant)
def test_no_release_costs_more_than_is_stated(accountant, tries, report):
    """The most that is found is the true δ at the stated ε, over the δ of the statement."""
    rng, most, best = np.random.default_rng(3), 0.0, np.log10(FAINT)
    for turn in range(tries(12)):
        near = best + rng.normal(size=3) * rng.choice([0.01, 0.3, 3]) * (turn > 0)
        logs = near if turn == 0 or rng.random() < 0.5 else any_release(rng)
        q, z, delta = (float(10**log) for log in np.minimum(logs, [0, 6, -0.1]))
        event = Gaussian(z) if q == 1 else PoissonSampled(q, Gaussian(z))
        stated = epsilon(event, delta, Adjacency.ADD_REMOVE, accountant)
        if stated == math.inf:
            continue
        found = float(exact_delta(q, z, stated) / mpf(delta))
        if found > most:
            most, best = found, logs
    report(f"a release counted by {accountant}, δ", 1.0, most)


@pytest.mark.parametrize("accountant", [Accountant.RDP, Accountant.MOMENTS])
def test_a_unit_that_is_hardly_ever_drawn_costs_something(accountant):
    """A Rényi divergence that rounding made negative was once taken for no loss at all."""
    event = PoissonSampled(0.01, Gaussian(2.659e6))
    assert exact_delta(0.01, 2.659e6, 0) > 1e-10
    assert epsilon(event, 1e-30, Adjacency.ADD_REMOVE, accountant) > 1e-8


@pytest.mark.parametrize("categories", [2, 4, 64])
@pytest.mark.parametrize("accountant", [Accountant.RDP, Accountant.MOMENTS])
def test_billions_of_answers_that_each_cost_hardly_anything_cost_something(accountant, categories):
    """No less than the normal limit of their losses, whose mean is half of their variance."""
    e, times, delta = 1e-7, 4 * 10**9, 1e-12
    stated = epsilon(Repeated(RandomizedResponse(e, categories), times), delta, Adjacency.REPLACE, accountant)
    variance = times * 2 * e**2 / categories
    assert exact_delta(1.0, variance**-0.5, stated) <= delta
