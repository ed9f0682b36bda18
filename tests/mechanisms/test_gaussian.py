import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from dpnlp import events
from dpnlp.checks import BadInput
from dpnlp.guarantee import Adjacency, NoiseSource, Trust, Unit
from dpnlp.mechanisms import Gaussian, analytic_epsilon, analytic_sigma, classical_sigma, gaussian
from dpnlp.mechanisms.gaussian import Calibration
from dpnlp.mechanisms.randomness import FixedSeed

from .audit import FALSE_ALARM

EPSILONS = st.floats(-6, 3).map(lambda power: 10**power)
DELTAS = st.floats(-30, -0.01).map(lambda power: 10**power)


def exact_delta(epsilon: float, sigma: float, digits: int = 80) -> mpmath.mpf:
    """δ of a standard deviation σ at sensitivity 1, from the normal distribution function to so many digits."""
    with mpmath.workdps(digits):
        epsilon, sigma = mpmath.mpf(epsilon), mpmath.mpf(sigma)
        a, b = 1 / (2 * sigma), epsilon * sigma
        return mpmath.ncdf(a - b) - mpmath.exp(epsilon) * mpmath.ncdf(-a - b)


# The formulas


@pytest.mark.parametrize(("sensitivity", "sigma"), [(24.79, 0.8957), (12.07, 0.4360)])
def test_analytic_values_of_the_thesis(sensitivity: float, sigma: float) -> None:
    """§6.6.1, ε = 500 and δ = 10^−5, where they are printed as σ². Its sensitivities are rounded to 0.005."""
    smallest, largest = (analytic_sigma(500, 1e-5, sensitivity + error) for error in (-0.005, 0.005))
    assert smallest < sigma < largest
    assert analytic_sigma(500, 1e-5, sensitivity) == pytest.approx(0.0361358989 * sensitivity, rel=1e-8)


def test_a_classical_value_of_the_thesis() -> None:
    """k = 200, ε = 0.999, δ = 10^−5 and Δ₂ = √200; the 166.0 in print is a slip."""
    assert round(classical_sigma(0.999, 1e-5, math.sqrt(200)), 1) == 68.6


@given(EPSILONS, DELTAS)
@example(1e-6, 1e-30)
@example(1e6, 1e-10)
@example(1.0, 1e-250)
@example(0.5, 0.9999)
def test_delta_holds_at_the_analytic_sigma(epsilon: float, delta: float) -> None:
    """And a little less noise would be too little, so that none is wasted."""
    sigma = analytic_sigma(epsilon, delta, 1.0)
    assert exact_delta(epsilon, sigma) <= delta
    assert exact_delta(epsilon, sigma * (1 - 1e-6)) > delta


@given(st.floats(-15, -3).map(lambda power: 10**power), st.floats(-300, -6).map(lambda power: 10**power))
@example(1e-12, 1e-100)
@example(5e-12, 2.2e-58)
@example(3e-7, 6e-231)
def test_delta_holds_where_two_probabilities_are_nearly_the_same(epsilon: float, delta: float) -> None:
    """There a difference of float64 has no digits left, and was smaller than the δ that it stood for by 200 of them."""
    with mpmath.workdps(400):
        sigma = analytic_sigma(epsilon, delta, 1.0)
        assert exact_delta(epsilon, sigma, 400) <= delta
        assert exact_delta(analytic_epsilon(sigma, delta, 1.0), sigma, 400) <= delta
        assert exact_delta(epsilon, sigma * (1 - 1e-6), 400) > delta


@pytest.mark.parametrize("epsilon", [1e-15, 1e-300, 5e-324])
@pytest.mark.parametrize("delta", [0.5, 1e-2, 1e-6, 1e-13])
def test_where_epsilon_is_hardly_more_than_0_delta_alone_is_enough(epsilon: float, delta: float) -> None:
    sigma = analytic_sigma(epsilon, delta, 1.0)
    assert exact_delta(0.0, sigma) == pytest.approx(delta, rel=1e-2)
    assert exact_delta(epsilon, sigma) <= delta


def test_noise_that_no_number_is_large_enough_for() -> None:
    with pytest.raises(BadInput, match="delta = 1e-320: no noise is large enough"):
        analytic_sigma(5e-324, 1e-320, 1.0)


@given(st.floats(-14, 0).map(lambda power: 10**power), st.floats(-300, -0.01).map(lambda power: 10**power))
@example(2.76e-13, 1.87e-298)
@example(1e-9, 0.5)
@example(1.36e-4, 1.27e-278)
def test_delta_holds_where_the_equation_of_the_analytic_sigma_cancels(epsilon: float, delta: float) -> None:
    """In float64 nothing was left of it: the true δ was above the stated one by more than 200 powers of ten."""
    assert exact_delta(epsilon, analytic_sigma(epsilon, delta, 1.0)) <= delta


@given(st.floats(-2, 4).map(lambda power: 10**power), DELTAS)
def test_delta_holds_at_the_analytic_epsilon(sigma: float, delta: float) -> None:
    epsilon = analytic_epsilon(sigma, delta, 1.0)
    assert exact_delta(epsilon, sigma) <= delta
    assert epsilon < 1e-11 or exact_delta(epsilon * (1 - 1e-6) - 1e-11, sigma) > delta


@given(st.floats(1e-3, 1e3), DELTAS, st.floats(1e-3, 1e3))
def test_analytic_epsilon_inverts_analytic_sigma(epsilon: float, delta: float, sensitivity: float) -> None:
    sigma = analytic_sigma(epsilon, delta, sensitivity)
    assert analytic_epsilon(sigma, delta, sensitivity) == pytest.approx(epsilon, rel=1e-5)


@given(st.floats(1e-5, 0.9999), st.floats(-30, -0.001).map(lambda power: 10**power), st.floats(1e-3, 1e3))
def test_the_analytic_sigma_is_never_the_larger_one(epsilon: float, delta: float, sensitivity: float) -> None:
    assert analytic_sigma(epsilon, delta, sensitivity) <= classical_sigma(epsilon, delta, sensitivity)


@given(st.floats(0.01, 0.9999), st.floats(1e-12, 0.9), st.floats(1e-3, 1e3))
def test_the_classical_sigma(epsilon: float, delta: float, sensitivity: float) -> None:
    """By its definition (Dwork and Roth 2014): σ ε/Δ = c with c² = 2 ln(1.25/δ)."""
    c = classical_sigma(epsilon, delta, sensitivity) * epsilon / sensitivity
    assert 1.25 * math.exp(-(c**2) / 2) == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize("epsilon", [1.0, 1.5, 500.0])
def test_the_classical_formula_ends_at_one(epsilon: float) -> None:
    with pytest.raises(BadInput, match=f"epsilon = {epsilon}: the classical formula is proved for ε < 1 only"):
        classical_sigma(epsilon, 1e-5, 1.0)
    with pytest.raises(BadInput, match="use the analytic one"):
        Gaussian(1.0, epsilon, 1e-5, Calibration.CLASSICAL)


def test_the_formula_may_be_named_in_words() -> None:
    for name in Calibration:
        assert Gaussian(1.0, 0.5, 1e-5, str(name)).sigma == Gaussian(1.0, 0.5, 1e-5, name).sigma
    with pytest.raises(ValueError, match="'analytical' is not a valid Calibration"):
        Gaussian(1.0, 0.5, 1e-5, "analytical")


# The release


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(1e-9, 1e9), st.floats(1e-3, 100), st.floats(1e-12, 0.5), st.integers(1, 3000), st.booleans())
def test_the_noise_in_steps_is_enough(
    monkeypatch: pytest.MonkeyPatch, sensitivity: float, epsilon: float, delta: float, entries: int, classical: bool
) -> None:
    """A discrete Gaussian of s steps hides what a continuous one of √(s² − 16) does (Peikert 2010).

    Rounded neighbours are at most Δ/step + √n steps apart; for that distance the continuous one must have the δ.
    """
    scales = []

    def no_noise(_source: object, scale: int, count: int) -> np.ndarray:
        scales.append(scale)
        return np.eye(1, count, dtype=np.int64).ravel()

    monkeypatch.setattr(gaussian, "discrete_gaussian", no_noise)
    calibration = Calibration.CLASSICAL if classical and epsilon < 1 else Calibration.ANALYTIC
    mechanism = Gaussian(sensitivity, epsilon, delta, calibration)
    step = float(mechanism.release(np.zeros(entries))[0])
    with mpmath.workdps(40):
        continuous = mpmath.sqrt(mpmath.mpf(scales[0]) ** 2 - 16)
        ratio = continuous / (mpmath.mpf(sensitivity) / step + mpmath.sqrt(entries))
    assert exact_delta(epsilon, ratio) <= delta
    assert scales[0] * step <= mechanism.sigma * (1 + 1e-6) + math.sqrt(entries) * step * mechanism.sigma / sensitivity


def test_a_discrete_gaussian_is_wider_than_the_continuous_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where σ + σ/Δ for the rounding are 2^24 + 1 steps exactly, √(s² − 16) reaches that at one step more."""
    scales = []
    monkeypatch.setattr(gaussian, "discrete_gaussian", lambda _, scale, count: scales.append(scale) or np.zeros(count))
    monkeypatch.setattr(Gaussian, "sigma", 1.0)
    Gaussian(1.0, 1.0, 0.1).release(0.0)
    assert scales == [2**24 + 2]


@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 3), (0,)])
def test_the_shape_of_the_answer_is_kept(shape: tuple[int, ...]) -> None:
    released = Gaussian(1.0, 1.0, 1e-5).release(np.zeros(shape))
    assert released.shape == shape
    assert released.dtype == np.float64


@pytest.mark.parametrize("calibration", Calibration)
@pytest.mark.parametrize(("sensitivity", "epsilon"), [(1.0, 0.9), (1e-3, 0.2)])
def test_the_noise_is_normal(sensitivity: float, epsilon: float, calibration: Calibration) -> None:
    mechanism = Gaussian(sensitivity, epsilon, 1e-5, calibration, FixedSeed(9))
    answer = np.linspace(-3, 3, 100_000)
    assert kstest((mechanism.release(answer) - answer) / mechanism.sigma, "norm").pvalue > FALSE_ALARM


def test_noise_that_does_not_fit_the_grid_is_refused() -> None:
    """At a tiny ε and many entries the rounding alone would ask for more steps than can be drawn exactly."""
    mechanism = Gaussian(1.0, 1e-7, 1e-10)
    with pytest.raises(
        BadInput, match=r"scale = .* grid steps: it must be at most .*; use a larger ε or fewer entries"
    ):
        mechanism.release(np.zeros(1000))


def test_a_seed_repeats_the_noise_and_the_default_does_not() -> None:
    mechanism = Gaussian(1.0, 1.0, 1e-5)
    assert replace(mechanism, source=FixedSeed(1)).release(0.5) == replace(mechanism, source=FixedSeed(1)).release(0.5)
    assert mechanism.release([0.5] * 4).tolist() != mechanism.release([0.5] * 4).tolist()


@pytest.mark.parametrize(
    ("adjacency", "apart"), [(Adjacency.ADD_REMOVE, 1), (Adjacency.REPLACE, 2), (Adjacency.ZERO_OUT, 1)]
)
def test_what_an_accountant_sees(adjacency: Adjacency, apart: int) -> None:
    """C is Δ, or Δ/2 where a record is replaced."""
    mechanism = Gaussian(3.0, 0.5, 1e-5)
    for given_as in (adjacency, adjacency.value):
        event = mechanism.event(given_as)
        assert isinstance(event, events.Gaussian)
        assert event.noise_multiplier == pytest.approx(mechanism.sigma / (3.0 / apart), rel=1e-15)


def test_what_is_promised() -> None:
    mechanism = Gaussian(3.0, 0.5, 1e-5, source=FixedSeed(1))
    promise = mechanism.guarantee(Unit.USER, Adjacency.ADD_REMOVE, Trust.LOCAL)
    assert (promise.epsilon, promise.delta) == (0.5, 1e-5)
    assert (promise.unit, promise.adjacency, promise.trust) == (Unit.USER, Adjacency.ADD_REMOVE, Trust.LOCAL)
    assert promise.noise_source is NoiseSource.FIXED_SEED
    parameters = {"sigma": mechanism.sigma, "sensitivity": 3.0, "formula": "analytic"}
    assert dict(promise.mechanism.parameters) == parameters
