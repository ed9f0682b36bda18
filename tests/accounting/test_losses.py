"""Privacy losses on a grid: convolution and the reading of ε, against loops."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from dpnlp.accounting import losses as grid
from dpnlp.accounting.losses import Losses, Overlong, compose


@st.composite
def distributions(draw):
    """A few losses that satisfy E[e^−L] ≤ 1, as every privacy loss does, and perhaps an infinite one."""
    weights = np.array(draw(st.lists(st.floats(0.01, 1), min_size=2, max_size=9)))
    step, infinite = draw(st.floats(0.05, 0.5)), draw(st.sampled_from([0.0, 1e-3]))
    masses = weights / weights.sum() * (1 - infinite)
    lowest = 0
    while np.sum(masses * np.exp(-step * (lowest + np.arange(len(masses))))) > 1:
        lowest += 1
    return Losses(step, lowest, masses, infinite)


def naive_delta(losses, epsilon):
    return losses.infinite + sum(
        mass * max(0.0, 1 - math.exp(epsilon - loss)) for loss, mass in zip(losses.values(), losses.masses, strict=True)
    )


@given(losses=distributions(), epsilon=st.floats(0, 3))
def test_delta_is_its_definition(losses, epsilon):
    assert losses.delta(np.array([epsilon]))[0] == pytest.approx(naive_delta(losses, epsilon), abs=1e-12)


@given(losses=distributions(), delta=st.floats(0.002, 0.5))
def test_epsilon_inverts_delta_from_the_safe_side(losses, delta):
    epsilon = losses.epsilon(delta)
    assert naive_delta(losses, epsilon) <= delta * (1 + 1e-9)
    assert epsilon == 0 or naive_delta(losses, epsilon - 1e-4) > delta * (1 - 2e-6)


@settings(max_examples=40)
@given(first=distributions(), second=distributions(), times=st.integers(1, 6), delta=st.floats(0.02, 0.3))
def test_composition_is_convolution(first, second, times, delta):
    second = Losses(first.step, second.lowest, second.masses, second.infinite)
    masses = second.masses
    for _ in range(times):
        masses = np.convolve(masses, first.masses)
    infinite = 1 - (1 - first.infinite) ** times * (1 - second.infinite)
    loop = Losses(first.step, times * first.lowest + second.lowest, masses, infinite)
    assert compose([(first, times), (second, 1)], delta).epsilon(delta) == pytest.approx(loop.epsilon(delta), abs=1e-6)


def test_an_infinite_loss_is_counted_every_time():
    once = Losses(0.1, 0, np.array([0.5, 0.4999]), 1e-4)
    assert math.isfinite(compose([(once, 3)], 4e-4).epsilon(4e-4))
    assert compose([(once, 3)], 2.9e-4).epsilon(2.9e-4) == math.inf
    assert compose([(once, 1), (once, 2)], 2.9e-4).epsilon(2.9e-4) == math.inf


def test_losses_of_thousands_of_nats_neither_overflow_nor_vanish():
    far = Losses(0.5, 3000, np.full(4000, 1 / 4000), 0.0)
    assert far.epsilon(1e-3) == pytest.approx(0.5 * 6999 + math.log1p(-1e-3 * 4000 / 8), rel=0.01)
    assert np.all(np.isfinite(far.delta(np.linspace(0, 4000, 50))))


PLACES = np.arange(2001) - 1000.0
SHAPES = {
    "normal": np.exp(-(PLACES**2) / 2e4),
    "with rare large losses": np.exp(-(PLACES**2) / 50) + 1e-6 * (np.abs(PLACES - 900) < 5),
    "of two values": 1e-9 + 0.9 * (PLACES == -300) + 0.1 * (PLACES == 700),
    "of Laplace": np.exp(-np.abs(PLACES) / 30),
}


@pytest.mark.parametrize("times", [2, 10, 1000, 100_000])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_window_is_near_the_best_of_chernoffs_bounds(shape, times):
    """A wider one would cost time; none is narrower than the bound of an order that is tried allows."""
    masses = SHAPES[shape] / SHAPES[shape].sum()
    first, last = grid._window(masses, times)
    logs = grid._logs(masses)
    index, allowance = np.arange(len(masses)), math.log(2 / grid._CUT)
    mean, best = float(masses @ index), [0, times * (len(masses) - 1)]
    for order in np.geomspace(1e-6, 10, 600):
        up, down = (logsumexp(logs + sign * order * (index - mean)) for sign in (1, -1))
        best = [
            max(best[0], math.floor(times * mean - (times * down + allowance) / order)),
            min(best[1], math.ceil(times * mean + (times * up + allowance) / order)),
        ]
    assert 0.99 <= (last - first) / (best[1] - best[0]) <= 1.1


def test_a_window_of_more_points_than_are_kept_is_refused(monkeypatch):
    masses = SHAPES["normal"] / SHAPES["normal"].sum()
    first, last = grid._window(masses, 10)
    monkeypatch.setattr(grid, "_LONGEST", last - first)
    assert grid._window(masses, 10) == (first, last)
    monkeypatch.setattr(grid, "_LONGEST", last - first - 7)
    with pytest.raises(Overlong):
        grid._window(masses, 10)


def test_what_happens_once_is_left_as_it_is():
    once = Losses(0.1, 0, np.array([0.5, 0.5]), 0.0)
    assert grid._repeat(once, 1) is once


@given(first=distributions(), second=distributions(), theta=st.floats(0.01, 5), times=st.integers(1, 9))
def test_cumulants_are_those_of_all_parts_together(first, second, theta, times):
    K, mean, order = grid._cumulants([(first, times), (second, 2)], theta)

    def cumulant(at):
        parts = ((first, times), (second, 2))
        return sum(
            n * math.log(sum(p * math.exp(at * x) for x, p in zip(one.values(), one.masses, strict=True)))
            for one, n in parts
        )

    assert order == theta
    assert cumulant(theta) == pytest.approx(K, rel=1e-9, abs=1e-9)
    assert (cumulant(theta + 1e-5) - cumulant(theta - 1e-5)) / 2e-5 == pytest.approx(mean, rel=1e-4, abs=1e-4)
