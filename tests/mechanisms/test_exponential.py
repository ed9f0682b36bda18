import math
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from dpnlp import events
from dpnlp.checks import BadInput
from dpnlp.guarantee import Adjacency, NoiseSource, Trust, Unit
from dpnlp.mechanisms import Exponential, exponential
from dpnlp.mechanisms.randomness import FixedSeed

from .audit import FALSE_ALARM, chi_square


@pytest.fixture
def gammas(monkeypatch: pytest.MonkeyPatch):
    """The exact γ of every candidate's coin exp(−γ), as `noisy_max` tosses them."""
    seen = []

    def toss(_source: object, numerator: np.ndarray, denominator: int) -> np.ndarray:
        seen.append([Fraction(int(n), denominator) for n in numerator])
        return np.ones(numerator.size, dtype=np.bool_)

    monkeypatch.setattr(exponential, "bernoulli_exp", toss)

    def read(mechanism: Exponential, scores: list[float]) -> list[Fraction]:
        mechanism.noisy_max(scores)
        return seen[-1]

    return read


def weighted(gammas: list[Fraction]) -> list[mpmath.mpf]:
    """The exponential mechanism's probabilities."""
    weights = [mpmath.exp(-mpmath.mpf(g.numerator) / g.denominator) for g in gammas]
    return [weight / sum(weights) for weight in weights]


def first_kept(gammas: list[Fraction]) -> list[mpmath.mpf]:
    """Permute-and-flip's probabilities: r's coin comes up, and r is first among all whose coins do."""
    coins = [mpmath.exp(-mpmath.mpf(g.numerator) / g.denominator) for g in gammas]
    chances = []
    for r, coin in enumerate(coins):
        others = [mpmath.mpf(1)]  # How likely it is that so many others come up
        for p in coins[:r] + coins[r + 1 :]:
            others = [
                (others[i] * (1 - p) if i < len(others) else 0) + (others[i - 1] * p if i else 0)
                for i in range(len(others) + 1)
            ]
        chances.append(coin * sum(chance / (i + 1) for i, chance in enumerate(others)))
    return chances


MOVES = st.lists(st.tuples(st.floats(-20, 20), st.floats(-1, 1)), min_size=1, max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(MOVES, st.floats(1e-9, 1e9), st.floats(-5, 2).map(lambda power: 10**power), st.booleans())
@example([(0.0, 1.0)] + [(1.0, -1.0)] * 8, 1.0, 0.1, False)
@example([(0.0, 1.0)] + [(0.0, 0.0)] * 8, 1.0, 3.0, True)
def test_neighbours_are_within_epsilon(gammas, moves: list, sensitivity: float, epsilon: float, monotone: bool) -> None:
    """Exactly, for the coins as they are tossed, whatever the rounding of scores and of ε did to them."""
    scores = [sensitivity * score for score, _ in moves]
    moved = [
        score + sensitivity * (abs(move) if monotone else move) for score, (_, move) in zip(scores, moves, strict=True)
    ]
    apart = [abs(Fraction(a) - Fraction(b)) for a, b in zip(scores, moved, strict=True)]
    assume(max(apart) <= Fraction(sensitivity))
    mechanism = Exponential(sensitivity, epsilon, monotone)
    one, other = gammas(mechanism, scores), gammas(mechanism, moved)
    assert all(abs(a - b) <= Fraction(epsilon) for a, b in zip(one, other, strict=True))
    with mpmath.workdps(50):
        for law in (weighted, first_kept):
            assert abs(sum(law(one)) - 1) < 1e-40
            for p, q in zip(law(one), law(other), strict=True):
                assert abs(mpmath.log(p / q)) <= epsilon + mpmath.mpf(10) ** -40


@pytest.mark.parametrize("epsilon", [1.0, 1 / 3, 0.7, 1e-5, 12.3])
@pytest.mark.parametrize("monotone", [False, True])
def test_the_worst_move_costs_epsilon(gammas, epsilon: float, monotone: bool) -> None:
    """Half a step above a line of the grid of 2^−15, a move of Δ passes ⌊Δ/step⌋ + 1 lines, and so may the best score.

    The candidate's γ then moves by ε, or by so little less as ε is rounded down.
    """
    sensitivity, low, high = 0.75 - 2.0**-17, 2.0**-16, 100 + 2.0**-16
    scores = [low, high + sensitivity]
    moved = [low, high] if monotone else [low + sensitivity, high]
    mechanism = Exponential(sensitivity, epsilon, monotone)
    cost = gammas(mechanism, scores)[0] - gammas(mechanism, moved)[0]
    assert Fraction(epsilon) * (1 - Fraction(1, 2**15)) < cost <= Fraction(epsilon)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.floats(-20, 20), min_size=1, max_size=6),
    st.floats(1e-9, 1e9),
    st.floats(-5, 5).map(lambda power: 10**power),
    st.booleans(),
)
@example([0.0, 1e12], 1.0, 1e-5, False)
@example([0.0, 1e12], 0.3, 1e-5, True)
@example([0.0, 1e12], 1.0, 1.1e-5, False)
@example([0.0, 1e12], 1.0, 1e5, False)
def test_little_is_lost_to_the_grid(gammas, units: list, sensitivity: float, epsilon: float, monotone: bool) -> None:
    """γ is ε (max u − u)/2Δ, or twice that where scores are monotone, to a ten-thousandth of it and of ε."""
    scores = [sensitivity * unit for unit in units]
    factor = epsilon / sensitivity / (1 if monotone else 2)
    for gamma, score in zip(gammas(Exponential(sensitivity, epsilon, monotone), scores), scores, strict=True):
        wanted = min(factor * (max(scores) - score), 4096)
        assert float(gamma) == pytest.approx(wanted, rel=1.5e-4, abs=1.5e-4 * epsilon)
        assert gamma <= 4097


SCORES = [0.0, 1.0, 2.5, 2.0, -30.0, 2.5]
DRAWS = 6000


def draws(method: str, mechanism: Exponential, seed: int) -> np.ndarray:
    choose = getattr(replace(mechanism, source=FixedSeed(seed)), method)
    return np.bincount([choose(SCORES) for _ in range(DRAWS)], minlength=len(SCORES))


@pytest.mark.parametrize("monotone", [False, True])
def test_the_exponential_mechanism_has_its_distribution(monotone: bool) -> None:
    mechanism = Exponential(1.5, 2.0, monotone)
    weights = np.exp(2.0 * np.array(SCORES) / (1.5 if monotone else 3.0))
    assert chi_square(draws("choose", mechanism, 21), weights / weights.sum()) > FALSE_ALARM


@pytest.mark.parametrize("monotone", [False, True])
def test_noisy_max_is_the_largest_of_noisy_scores(monotone: bool) -> None:
    """Against a simulation of its definition: exponential noise of scale 2Δ/ε on every score, a million times."""
    scale = (1.5 if monotone else 3.0) / 2.0
    noise = np.random.default_rng(22).exponential(scale, (1_000_000, len(SCORES)))
    simulated = np.bincount(np.argmax(noise + SCORES, axis=1), minlength=len(SCORES)) / len(noise)
    assert chi_square(draws("noisy_max", Exponential(1.5, 2.0, monotone), 23), simulated) > FALSE_ALARM


@pytest.mark.parametrize("method", ["choose", "noisy_max"])
@pytest.mark.parametrize(
    ("scores", "best"),
    [([5.0], 0), ([1e300, -1e300, 0.0], 0), ([-1e308, 1e308], 1), ([0.0, 1e9, 1.0], 1), ([[0.0], [1e9]], 1)],
)
def test_a_hopeless_candidate_is_not_chosen(method: str, scores: list, best: int) -> None:
    """In silence, however large the scores are; a warning would tell how large."""
    assert getattr(Exponential(1e-6, 1.0), method)(scores) == best


@pytest.mark.parametrize("method", ["choose", "noisy_max"])
@pytest.mark.parametrize("epsilon", [1e-5, 1e5])
def test_the_extremes_of_epsilon(method: str, epsilon: float) -> None:
    """Almost nothing is told apart by the smallest ε, and the best candidate of ten is certain at the largest."""
    choose = getattr(Exponential(1.0, epsilon, source=FixedSeed(24)), method)
    counts = np.bincount([choose(np.arange(10.0)) for _ in range(2000)], minlength=10)
    expected = np.full(10, 0.1) if epsilon < 1 else np.eye(10)[9]
    assert chi_square(counts, expected) > FALSE_ALARM


def test_many_candidates() -> None:
    """A vocabulary's worth: the only good word is found, and equally good ones are all found equally often."""
    scores = np.zeros(50_000)
    scores[31_415] = 100.0
    mechanism = Exponential(1.0, 1.0)
    assert [mechanism.choose(scores), mechanism.noisy_max(scores)] == [31_415] * 2
    seeded = replace(mechanism, source=FixedSeed(25))
    for choose in (seeded.choose, seeded.noisy_max):
        chosen = np.array([choose(np.zeros(50_000)) for _ in range(400)])
        assert chi_square(np.bincount(chosen // 5000, minlength=10), np.full(10, 0.1)) > FALSE_ALARM


def test_what_is_promised() -> None:
    mechanism = Exponential(2.0, 0.5, source=FixedSeed(1))
    promise = mechanism.guarantee(Unit.TEXT, Adjacency.REPLACE, Trust.LOCAL)
    assert (promise.epsilon, promise.delta) == (0.5, 0)
    assert (promise.unit, promise.adjacency, promise.trust) == (Unit.TEXT, Adjacency.REPLACE, Trust.LOCAL)
    assert promise.noise_source is NoiseSource.FIXED_SEED
    assert mechanism.event() == events.ApproximateDP(0.5)
    assert math.isclose(dict(promise.mechanism.parameters)["sensitivity"], 2.0)


def test_scores_that_move_the_same_way_when_a_record_comes_promise_nothing_for_one_that_is_exchanged():
    """A count that falls while ten others rise: with half the noise the odds change by almost e^2ε."""
    mechanism = Exponential(1.0, 1.0, monotone=True)
    assert mechanism.guarantee(Unit.EXAMPLE, Adjacency.ADD_REMOVE).epsilon == 1.0
    with pytest.raises(BadInput, match="monotone = True: a record that is exchanged does not move all scores"):
        mechanism.guarantee(Unit.EXAMPLE, Adjacency.REPLACE)
    assert Exponential(1.0, 1.0).guarantee(Unit.EXAMPLE, Adjacency.REPLACE).epsilon == 1.0


def test_scores_beyond_the_whole_numbers_of_float64_move_no_farther_than_a_record_moves_them(gammas) -> None:
    """In float64 2^60 + 128 is 2^60, and 2^60 + 129 is 2^60 + 256."""
    mechanism = Exponential(1.0, 1.0)
    for scores in ([2**60, 2**60 + 128], np.array([2**60, 2**60 + 128])):
        before, after = gammas(mechanism, scores), gammas(mechanism, [scores[0], scores[1] + 1])
        assert max(abs(one - other) for one, other in zip(before, after, strict=True)) <= Fraction(1, 2)
