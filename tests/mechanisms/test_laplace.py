import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from dpnlp import events
from dpnlp.guarantee import Adjacency, NoiseSource, Trust, Unit
from dpnlp.mechanisms import Laplace, laplace
from dpnlp.mechanisms.randomness import FixedSeed

from .audit import FALSE_ALARM


@pytest.mark.parametrize(("sensitivity", "epsilon", "scale"), [(1, 1, 1), (2, 0.5, 4), (24.79, 500, 0.04958)])
def test_the_scale(sensitivity: float, epsilon: float, scale: float) -> None:
    assert Laplace(sensitivity, epsilon).scale == pytest.approx(scale, rel=1e-15)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(1e-12, 1e12), st.floats(1e-6, 1e6), st.integers(1, 2000))
@example(3.0, 1 / 3, 3)
@example(0.1, 0.7, 1000)
def test_the_noise_in_steps_is_enough(
    monkeypatch: pytest.MonkeyPatch, sensitivity: float, epsilon: float, entries: int
) -> None:
    """In rational numbers: rounded neighbours are at most Δ/step + n steps apart, and that over the scale is ε.

    The step is read off from an answer of 0 with a noise of one step. What the grid costs is noise, not privacy, and
    little of it.
    """
    scales = []

    def no_noise(_source: object, scale: int, count: int) -> np.ndarray:
        scales.append(scale)
        return np.eye(1, count, dtype=np.int64).ravel()  # One step in the first entry

    monkeypatch.setattr(laplace, "discrete_laplace", no_noise)
    step = Fraction(float(Laplace(sensitivity, epsilon).release(np.zeros(entries))[0]))
    exact = (Fraction(sensitivity) / step + entries) / Fraction(epsilon)
    assert exact <= scales[0]
    assert scales[0] < exact + 1
    larger = scales[0] * step * Fraction(epsilon) / Fraction(sensitivity) - 1
    assert larger < Fraction(1, 10**6) * (1 + 1 / Fraction(epsilon))


@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 3), (0,)])
def test_the_shape_of_the_answer_is_kept(shape: tuple[int, ...]) -> None:
    released = Laplace(1.0, 1.0).release(np.zeros(shape))
    assert released.shape == shape
    assert released.dtype == np.float64


@pytest.mark.parametrize(("sensitivity", "epsilon"), [(1.0, 1.0), (5.0, 0.1), (1e-3, 20.0)])
def test_the_noise_is_laplacian(sensitivity: float, epsilon: float) -> None:
    answer = np.linspace(-3, 3, 100_000)
    noise = replace(Laplace(sensitivity, epsilon), source=FixedSeed(8)).release(answer) - answer
    assert kstest(noise, "laplace", (0, sensitivity / epsilon)).pvalue > FALSE_ALARM


def test_a_seed_repeats_the_noise_and_the_default_does_not() -> None:
    mechanism = Laplace(1.0, 1.0)
    assert replace(mechanism, source=FixedSeed(1)).release(0.5) == replace(mechanism, source=FixedSeed(1)).release(0.5)
    assert mechanism.release([0.5] * 4).tolist() != mechanism.release([0.5] * 4).tolist()


@pytest.mark.parametrize(
    ("adjacency", "multiplier"), [(Adjacency.ADD_REMOVE, 4), (Adjacency.REPLACE, 8), (Adjacency.ZERO_OUT, 4)]
)
def test_what_an_accountant_sees(adjacency: Adjacency, multiplier: float) -> None:
    """The noise's scale is Δ/ε = 12, and C is Δ = 3, or Δ/2 where a record is replaced."""
    assert Laplace(3.0, 0.25).event(adjacency) == events.Laplace(multiplier)
    assert Laplace(3.0, 0.25).event(adjacency.value) == events.Laplace(multiplier)


def test_what_is_promised() -> None:
    promise = Laplace(3.0, 0.25, FixedSeed(1)).guarantee(Unit.USER, Adjacency.REPLACE)
    assert (promise.epsilon, promise.delta) == (0.25, 0)
    assert (promise.unit, promise.adjacency, promise.trust) == (Unit.USER, Adjacency.REPLACE, Trust.CENTRAL)
    assert promise.noise_source is NoiseSource.FIXED_SEED
    assert dict(promise.mechanism.parameters) == {"scale": 12.0, "sensitivity": 3.0}
    assert Laplace(3.0, 0.25).guarantee(Unit.TEXT, Adjacency.REPLACE).noise_source is NoiseSource.OS_ENTROPY
    assert math.isclose(promise.attack_success(), math.exp(0.25) / (1 + math.exp(0.25)))
