"""OpenDP, an independent implementation, states the same ε for the same noise, and draws the same distributions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, ks_2samp

from dpnlp.mechanisms import Exponential, Gaussian, Laplace, RandomizedResponse, analytic_epsilon
from dpnlp.mechanisms.gaussian import Calibration
from dpnlp.mechanisms.grid import discrete_gaussian, discrete_laplace
from dpnlp.mechanisms.randomness import OS_ENTROPY

dp = pytest.importorskip("opendp.prelude")
dp.enable_features("contrib")

FALSE_ALARM = 1e-8
DRAWS = 20_000
NUMBER = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)


def vectors(entries: int, norm: object) -> tuple:
    return dp.vector_domain(dp.atom_domain(T=float, nan=False), size=entries), norm(T=float)


def same_counts(one: list[int], other: list[int]) -> bool:
    """Two samples of whole numbers, by chi-square; what either has seldom is put together."""
    values, counts = np.unique(np.concatenate((one, other)), return_counts=True)
    often = values[counts >= 40]
    table = np.array([[np.sum(np.array(sample) == value) for value in often] for sample in (one, other)])
    rest = [[len(one)], [len(other)]] - table.sum(axis=1, keepdims=True)
    table = np.hstack((table, rest)) if rest.sum() >= 40 else table
    return chi2_contingency(table).pvalue > FALSE_ALARM


# Privacy maps


@settings(deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(1e-3, 100))
def test_laplace_costs_the_same(sensitivity: float, epsilon: float) -> None:
    """Its map is exact: Δ/b, rounded up."""
    scale = Laplace(sensitivity, epsilon).scale
    assert dp.m.make_laplace(*NUMBER, scale=scale).map(sensitivity) == pytest.approx(epsilon, rel=1e-9)
    vector = dp.m.make_laplace(*vectors(5, dp.l1_distance), scale=scale)
    assert vector.map(sensitivity) == pytest.approx(epsilon, rel=1e-9)


@settings(deadline=None, max_examples=50)
@given(st.floats(1e-3, 1e3), st.floats(0.01, 20), st.floats(-12, -1).map(lambda power: 10**power))
def test_gaussian_costs_no_more(sensitivity: float, epsilon: float, delta: float) -> None:
    """Its ρ is Δ²/2σ² exactly; from ρ alone ε comes out larger than from the whole distribution, but not by much.

    Canonne, Kamath and Steinke's conversion from ρ, which it uses, stays within √(4ρ ln(1/δ)) + ρ.
    """
    sigma = Gaussian(sensitivity, epsilon, delta).sigma
    for space in (NUMBER, vectors(3, dp.l2_distance)):
        measurement = dp.m.make_gaussian(*space, scale=sigma)
        rho = measurement.map(sensitivity)
        assert rho == pytest.approx((sensitivity / sigma) ** 2 / 2, rel=1e-9)
        theirs = dp.c.make_zCDP_to_approxDP(measurement).map(sensitivity).epsilon(delta)
        ours = analytic_epsilon(sigma, delta, sensitivity)
        assert ours == pytest.approx(epsilon, rel=1e-6)
        assert ours * (1 - 1e-6) <= theirs <= rho + math.sqrt(4 * rho * math.log(1 / delta)) + 1e-9


@settings(deadline=None, max_examples=50)
@given(st.floats(0.05, 0.99), st.floats(-12, -2).map(lambda power: 10**power))
def test_the_classical_formula_is_on_the_safe_side_of_it(epsilon: float, delta: float) -> None:
    sigma = Gaussian(1.0, epsilon, delta, Calibration.CLASSICAL).sigma
    assert analytic_epsilon(sigma, delta, 1.0) <= epsilon
    profile = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*NUMBER, scale=sigma)).map(1.0)
    assert profile.epsilon(delta) <= epsilon * (1 + 1e-6)


@settings(deadline=None)
@given(st.floats(0.01, 10), st.integers(2, 20))
def test_randomized_response_costs_the_same(epsilon: float, categories: int) -> None:
    mechanism = RandomizedResponse(epsilon, categories)
    theirs = dp.m.make_randomized_response(list(range(categories)), mechanism.theta)
    assert theirs.map(1) == pytest.approx(epsilon, rel=1e-9)
    if categories == 2:
        assert dp.m.make_randomized_response_bool(mechanism.theta).map(1) == pytest.approx(epsilon, rel=1e-9)


@settings(deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(1e-3, 100), st.booleans())
def test_choices_cost_the_same(sensitivity: float, epsilon: float, monotone: bool) -> None:
    """Its scale is that of the noise on a score: 2Δ/ε, or Δ/ε where scores move one way only."""
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.linf_distance(T=float, monotonic=monotone)
    scale = (1 if monotone else 2) * sensitivity / epsilon
    assert Exponential(sensitivity, epsilon, monotone).epsilon == epsilon
    theirs = dp.m.make_noisy_max(*space, dp.max_divergence(), scale=scale)
    assert theirs.map(sensitivity) == pytest.approx(epsilon, rel=1e-9)


# Distributions


@pytest.mark.parametrize("scale", [1, 3, 20])
def test_the_same_discrete_noise(scale: int) -> None:
    for ours, make, norm in (
        (discrete_laplace, dp.m.make_laplace, dp.l1_distance(T=int)),
        (discrete_gaussian, dp.m.make_gaussian, dp.l2_distance(T=float)),
    ):
        theirs = make(dp.vector_domain(dp.atom_domain(T=int), size=DRAWS), norm, scale=float(scale))
        assert same_counts(ours(OS_ENTROPY, scale, DRAWS), theirs([0] * DRAWS))


def test_the_same_noise_on_an_answer() -> None:
    gaussian = Gaussian(2.0, 0.5, 1e-5)
    for ours, theirs in (
        (Laplace(2.0, 0.5), dp.m.make_laplace(*vectors(DRAWS, dp.l1_distance), scale=4.0)),
        (gaussian, dp.m.make_gaussian(*vectors(DRAWS, dp.l2_distance), scale=gaussian.sigma)),
    ):
        answer = np.full(DRAWS, 0.3)
        assert ks_2samp(ours.release(answer), theirs(answer.tolist())).pvalue > FALSE_ALARM


@pytest.mark.parametrize("categories", [2, 5])
def test_the_same_answers(categories: int) -> None:
    mechanism = RandomizedResponse(1.0, categories)
    theirs = dp.m.make_randomized_response(list(range(categories)), mechanism.theta)
    assert same_counts(mechanism.release(np.ones(5000, dtype=int)), [theirs(1) for _ in range(5000)])


@pytest.mark.parametrize("monotone", [False, True])
def test_the_same_choices(monotone: bool) -> None:
    """Ours by permute-and-flip and by weights, its own by the largest of scores with exponential and Gumbel noise."""
    scores, mechanism = [0.0, 1.5, *[0.0] * 6, 0.5], Exponential(1.0, 2.0, monotone)
    scale = (1 if monotone else 2) / 2.0
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.linf_distance(T=float, monotonic=monotone)
    exponential = dp.m.make_noisy_max(*space, dp.max_divergence(), scale=scale)
    gumbel = dp.m.make_noisy_max(*space, dp.zero_concentrated_divergence(), scale=scale)
    for ours, theirs in ((mechanism.noisy_max, exponential), (mechanism.choose, gumbel)):
        assert same_counts([ours(scores) for _ in range(4000)], [theirs(scores) for _ in range(4000)])
