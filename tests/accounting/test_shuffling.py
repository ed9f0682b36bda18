"""Shuffled lots: the proved bound, the bound from below and the figure that is none, in the right order."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from dpnlp.accounting import pld, shuffling
from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.guarantee import Adjacency


@settings(max_examples=20)
@given(
    noise=st.floats(0.3, 10),
    lots=st.integers(1, 2000),
    epochs=st.integers(1, 20),
    log_delta=st.floats(-8, -2),
    same_order=st.booleans(),
)
def test_the_lower_bound_never_exceeds_the_proved_one(noise, lots, epochs, log_delta, same_order):
    delta = 10**log_delta
    schedule = Schedule(10 * lots, 10, epochs * lots, Sampling.SHUFFLED)
    proved = pld.epsilon(schedule.event(noise), delta, Adjacency.ZERO_OUT)
    assert shuffling.lower_bound(noise, lots, epochs, delta, same_order) <= proved * (1 + 1e-4) + 1e-6


@pytest.mark.parametrize(("lots", "epochs", "same_order"), [(5, 1, False), (5, 3, False), (5, 3, True)])
def test_the_lower_bound_is_attained_by_a_real_attack(lots, epochs, same_order):
    """Shuffled lots simulated on the pair of the docstring; the attacker thresholds the likelihood ratio of maxima."""
    rng = np.random.default_rng(5)
    noise, delta, n = 1.5, 0.05, 200_000

    def maxima(mean):
        outputs = rng.normal(0, noise, (n, epochs, lots))
        if same_order:
            outputs[:, :, 0] += mean
            return outputs.mean(axis=1).max(axis=1)
        outputs[:, :, 0] += mean
        return outputs.max(axis=2)

    first, second = maxima(2.0), maxima(1.0)
    bound = shuffling.lower_bound(noise, lots, epochs, delta, same_order)
    if not same_order and epochs > 1:
        grid = np.linspace(-4 * noise, 2 + 6 * noise, 81)
        p = np.histogram(first.ravel(), grid)[0] + 1.0
        q = np.histogram(second.ravel(), grid)[0] + 1.0
        ratio = np.log(p / q)
        first, second = (ratio[np.clip(np.digitize(sample, grid) - 1, 0, 79)].sum(axis=1) for sample in (first, second))
    thresholds = np.quantile(first, np.linspace(0.02, 0.98, 97))
    found = max(math.log(max((first >= c).mean() - delta, 1e-9) / max((second >= c).mean(), 1e-9)) for c in thresholds)
    assert found == pytest.approx(bound, abs=0.12)


def test_fresh_orders_leak_less_than_a_kept_one():
    assert shuffling.lower_bound(2.0, 100, 10, 1e-6) < shuffling.lower_bound(2.0, 100, 10, 1e-6, same_order=True)


@pytest.mark.parametrize("noise", [0.3, 1.0, 3.0, 10.0, 30.0])
def test_one_lot_is_the_gaussian_itself(noise):
    """With a single lot nothing is shuffled, and the bound from below meets the proved one."""
    proved = pld.epsilon(Schedule(10, 10, 1, Sampling.SHUFFLED).event(noise), 1e-5, Adjacency.ZERO_OUT)
    assert shuffling.lower_bound(noise, 1, 1, 1e-5) == pytest.approx(proved, rel=0.05)


@pytest.mark.parametrize("epochs", [1, 2, 4])
@pytest.mark.parametrize("seed", range(30))
def test_the_evidence_of_several_epochs_is_hardly_rounded_and_only_down(epochs, seed):
    """Against all outcomes of a few looks at a number with two values, of which one speaks against the record."""
    p, q = np.random.default_rng(seed).dirichlet(np.ones(2), 2)
    each, delta = np.log(p / q), 0.2
    chances = np.array([math.prod(outcome) for outcome in product(p, repeat=epochs)])
    losses = np.array([math.fsum(outcome) for outcome in product(each, repeat=epochs)])

    def excess(epsilon):
        return float(chances @ np.maximum(0, -np.expm1(epsilon - losses))) - delta

    exact = brentq(excess, 0, losses.max()) if excess(0) > 0 else 0.0
    found = shuffling._repeated(p[::-1].cumsum()[::-1], q[::-1].cumsum()[::-1], epochs, delta)
    deviation = math.sqrt(p @ (each - p @ each) ** 2)
    assert exact - max(deviation / 100, epochs * np.ptp(each) / 20_000) <= found <= exact + 1e-5
