"""Every mechanism is attacked: how far apart do two neighbours come out, and is that more than was promised?

With the noise cut, the same attack must go beyond the promise; a check that could not fail would prove nothing.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from dpnlp.mechanisms import Exponential, Gaussian, Laplace, RandomizedResponse, exponential, gaussian, laplace
from dpnlp.mechanisms.gaussian import Calibration
from dpnlp.mechanisms.grid import discrete_gaussian, discrete_laplace
from dpnlp.mechanisms.randomness import FixedSeed, bernoulli_exp

from .audit import epsilon_lower_bound

Mechanism = Laplace | Gaussian | Exponential


@dataclass(frozen=True)
class Attack:
    """A mechanism's promise, one release for either neighbour, and the event that gives the first one away."""

    epsilon: float
    mechanism: Mechanism
    release: Callable[[Mechanism, bool], object]
    event: Callable[[object], bool]
    delta: float = 0.0

    def bound(self, seed: int, trials: int) -> float:
        seeded = replace(self.mechanism, source=FixedSeed(seed))
        hits, others = (sum(self.event(self.release(seeded, first)) for _ in range(trials)) for first in (True, False))
        return epsilon_lower_bound(hits, others, trials, self.delta)


CUTS = {Calibration.ANALYTIC: 2, Calibration.CLASSICAL: 3}
"""At the δ of these attacks half the noise of the classical formula breaks the promise by too little to be seen."""


def laplace_attack(entries: int) -> Attack:
    """The answers 0 and Δ/n in each entry; the event is that all the evidence points to the second one."""
    mechanism = Laplace(2.0, 1.5)
    answers = {True: np.full(entries, 2.0 / entries), False: np.zeros(entries)}

    def event(output: object) -> bool:
        return float(np.sum(np.abs(output) - np.abs(output - answers[True]))) > 2.0 * (1 - 1e-6)

    if entries == 1:
        answers = {True: 2.0, False: 0.0}
    return Attack(1.5, mechanism, lambda seeded, first: seeded.release(answers[first]), event)


def gaussian_attack(calibration: Calibration, entries: int) -> Attack:
    """The answers 0 and Δ along the diagonal; the event is the one that is best where the noise is cut."""
    mechanism = Gaussian(2.0, 0.9, 0.02, calibration)
    direction = np.full(entries, 1 / math.sqrt(entries)) if entries > 1 else 1.0
    threshold = (mechanism.sigma / CUTS[calibration]) ** 2 * 0.9 / 2.0 + 1.0
    return Attack(
        0.9,
        mechanism,
        lambda seeded, first: seeded.release(2.0 * first * direction),
        lambda output: float(np.sum(output * direction)) > threshold,
        0.02,
    )


def choice_attack(method: str, monotone: bool) -> Attack:
    """One candidate gains all it can on 40 others, which lose all they can, or stay where scores move one way only."""
    mechanism = Exponential(0.5, 2.0, monotone)
    scores = {True: [0.5] + [0.0] * 40, False: [0.0] * 41 if monotone else [0.0] + [0.5] * 40}
    return Attack(
        2.0, mechanism, lambda seeded, first: getattr(seeded, method)(scores[first]), lambda chosen: chosen == 0
    )


NUMERIC = {
    "laplace": laplace_attack(1),
    "laplace vector": laplace_attack(3),
    "gaussian analytic": gaussian_attack(Calibration.ANALYTIC, 1),
    "gaussian analytic vector": gaussian_attack(Calibration.ANALYTIC, 4),
    "gaussian classical": gaussian_attack(Calibration.CLASSICAL, 1),
    "gaussian classical vector": gaussian_attack(Calibration.CLASSICAL, 4),
}
CHOICES = {
    "exponential": choice_attack("choose", False),
    "exponential monotone": choice_attack("choose", True),
    "noisy max": choice_attack("noisy_max", False),
    "noisy max monotone": choice_attack("noisy_max", True),
}


def use_noise(monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    """Noise of a scale so many times too small. It is drawn in advance, thousands at once, to save time."""
    for module, name, draw in (
        (laplace, "discrete_laplace", discrete_laplace),
        (gaussian, "discrete_gaussian", discrete_gaussian),
    ):
        stores: dict[tuple[int, int], list[np.ndarray]] = {}

        def next_noise(source, scale, count, draw=draw, stores=stores) -> np.ndarray:
            store = stores.setdefault((scale, count), [])
            if not store:
                store.extend(draw(source, scale // cut, 10_000 * count).reshape(10_000, count))
            return store.pop()

        monkeypatch.setattr(module, name, next_noise)


@pytest.mark.parametrize("name", NUMERIC)
def test_noise_keeps_the_promise(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    use_noise(monkeypatch, 1)
    assert NUMERIC[name].bound(11, 20_000) < NUMERIC[name].epsilon


@pytest.mark.parametrize("name", NUMERIC)
def test_too_little_noise_is_found_out(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    use_noise(monkeypatch, CUTS[Calibration.CLASSICAL if "classical" in name else Calibration.ANALYTIC])
    assert NUMERIC[name].bound(12, 20_000) > NUMERIC[name].epsilon


def test_noise_drawn_release_by_release_keeps_the_promise() -> None:
    """Once without any store, so that the whole of a release is attacked as it is."""
    assert NUMERIC["laplace"].bound(13, 2500) < 1.5


@pytest.mark.parametrize("name", CHOICES)
def test_choices_keep_the_promise(name: str) -> None:
    assert CHOICES[name].bound(14, 3000) < CHOICES[name].epsilon


@pytest.mark.parametrize("name", CHOICES)
def test_too_sharp_choices_are_found_out(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(exponential, "bernoulli_exp", lambda source, n, d: bernoulli_exp(source, 2 * n, d))
    assert CHOICES[name].bound(15, 3000) > CHOICES[name].epsilon


def test_taking_scores_for_monotone_that_are_not_is_found_out() -> None:
    """The promise of ε holds for counts only; here it is broken by up to 2ε."""
    right = CHOICES["exponential"]
    scores = {True: [0.5] + [0.0] * 40, False: [0.0] + [0.5] * 40}
    wrong = Exponential(0.5, 2.0, monotone=True)
    attack = Attack(2.0, wrong, lambda seeded, first: seeded.choose(scores[first]), right.event)
    assert attack.bound(16, 3000) > 2.0


def response_bound(mechanism: RandomizedResponse, seed: int) -> float:
    """One answer, asked again and again: how often 1 is reported where it is the truth, and where 0 is."""
    seeded, trials = replace(mechanism, source=FixedSeed(seed)), 200_000
    hits, others = (int(np.sum(seeded.release(np.full(trials, truth)) == 1)) for truth in (1, 0))
    return epsilon_lower_bound(hits, others, trials)


@pytest.mark.parametrize("categories", [2, 3, 10, 100])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_randomized_response_keeps_the_promise(epsilon: float, categories: int) -> None:
    """And as the attack is the best there is, and a cheap one, it comes close."""
    bound = response_bound(RandomizedResponse(epsilon, categories), 17)
    assert bound < epsilon
    if categories <= 10 and epsilon >= 1:
        assert bound > 0.8 * epsilon


@pytest.mark.parametrize("categories", [2, 3, 10])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_twice_the_epsilon_is_found_out(epsilon: float, categories: int) -> None:
    assert response_bound(RandomizedResponse(2 * epsilon, categories), 18) > epsilon


# The bound itself


@pytest.mark.parametrize(("p", "q", "delta"), [(0.5, 0.2, 0.0), (0.3, 0.01, 0.05), (0.9, 0.9, 0.0)])
def test_the_bound_comes_close_from_below(p: float, q: float, delta: float) -> None:
    exact = math.log((p - delta) / q)
    trials = 10**8
    bound = epsilon_lower_bound(round(p * trials), round(q * trials), trials, delta)
    assert exact - 0.01 < bound < exact
    assert epsilon_lower_bound(round(p * 1000), round(q * 1000), 1000, delta) < bound


def test_the_bound_without_hits() -> None:
    """No hits prove nothing; all of n against none prove that q is below about ln(2·10^7)/n."""
    assert epsilon_lower_bound(0, 100, 100) == -math.inf
    assert epsilon_lower_bound(4, 0, 100, 0.05) == -math.inf
    assert 0 < epsilon_lower_bound(100, 0, 100) < math.log(100)
    assert epsilon_lower_bound(100, 100, 100) < 0
