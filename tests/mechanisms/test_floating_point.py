"""The attack of Mironov (2012): what comes out of floating-point noise betrays, by its last bits, what went in.

Here every output must be a multiple of a step that is known without the answer, and no multiple may be missing.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpnlp.mechanisms import Gaussian, Laplace, gaussian, laplace
from dpnlp.mechanisms.randomness import FixedSeed

MECHANISMS = [Laplace(1.0, 1.0), Laplace(0.3, 7.0), Gaussian(1.0, 1.0, 1e-5), Gaussian(0.3, 7.0, 0.01)]
ANSWERS = st.floats(-1e6, 1e6)


def public_step(mechanism: Laplace | Gaussian, entries: int) -> Fraction:
    """The largest power of two that is at most b/(2^20 n) or σ/2^24, by halving and doubling."""
    finest = 2**20 * entries if isinstance(mechanism, Laplace) else 2**24
    size = Fraction(mechanism.scale if isinstance(mechanism, Laplace) else mechanism.sigma) / finest
    step = Fraction(1)
    while step > size:
        step /= 2
    while 2 * step <= size:
        step *= 2
    return step


def on_grid(outputs: np.ndarray, step: Fraction) -> bool:
    return all((Fraction(output) / step).denominator == 1 for output in np.ravel(outputs).tolist())


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@given(st.lists(ANSWERS, min_size=1, max_size=20), st.integers(0, 2**32))
def test_outputs_lie_on_a_public_grid(mechanism: Laplace | Gaussian, answers: list[float], seed: int) -> None:
    """For an answer and for its neighbour, as one number each and as a vector."""
    moved = np.array(answers) + mechanism.sensitivity / len(answers)
    for answer in (answers, moved):
        assert on_grid(replace(mechanism, source=FixedSeed(seed)).release(answer), public_step(mechanism, len(answers)))
        assert on_grid(replace(mechanism, source=FixedSeed(seed)).release(answer[0]), public_step(mechanism, 1))


def test_floating_point_noise_is_found_out() -> None:
    """The same check on what one would write without care."""
    noise = np.random.default_rng(1)
    for mechanism in MECHANISMS:
        draw, size = (
            (noise.laplace, mechanism.scale) if isinstance(mechanism, Laplace) else (noise.normal, mechanism.sigma)
        )
        assert not on_grid(0.1 + draw(0, size, 20), public_step(mechanism, 20))


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(-1000, 1000))
def test_the_same_outputs_are_reachable_from_neighbours(
    monkeypatch: pytest.MonkeyPatch, mechanism: Laplace | Gaussian, answer: float
) -> None:
    """With all noises from −w to w in turn, the outputs are consecutive multiples of the step, none left out."""
    window = np.arange(-500, 501)
    for module, name in ((laplace, "discrete_laplace"), (gaussian, "discrete_gaussian")):
        monkeypatch.setattr(module, name, lambda *_: window)
    step = public_step(mechanism, window.size)
    near = answer + 40 * float(step)
    one, other = (
        [Fraction(output) / step for output in mechanism.release(np.full(window.size, value)).tolist()]
        for value in (answer, near)
    )
    for reached in (one, other):
        assert reached == list(range(int(reached[0]), int(reached[0]) + window.size))
    assert len(set(one) & set(other)) >= window.size - 41


def test_floating_point_noise_leaves_gaps() -> None:
    """The same noises, added to two neighbours without a grid, reach sets that hardly meet."""
    noise = np.random.default_rng(2).laplace(size=2000)
    fine = np.concatenate([noise, noise - 1.0])  # Whatever reaches 0.1 + y from 0.1 reaches it from 1.1 by y − 1
    one, other = set((0.1 + fine).tolist()), set((1.1 + fine).tolist())
    assert len(one & other) < 0.9 * noise.size


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@pytest.mark.parametrize("answer", [1e300, -1e300, 1e18, 5e-324, -0.0])
def test_extreme_answers_are_released_in_silence(mechanism: Laplace | Gaussian, answer: float) -> None:
    released = replace(mechanism, source=FixedSeed(3)).release(answer)
    assert math.isfinite(released)
    assert on_grid(released, public_step(mechanism, 1))
