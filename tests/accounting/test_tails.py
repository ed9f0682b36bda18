"""What lies beyond the grid and the chance that all is lost are never left out of ε, and no cache mixes up answers."""

import itertools
import math
from dataclasses import fields, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp.accounting import accountant, pld, rdp
from dpnlp.accounting.accountant import Accountant
from dpnlp.accounting.losses import Losses, compose
from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.checks import BadInput
from dpnlp.events import (
    ApproximateDP,
    Composed,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
    SharedPoissonSampled,
    TruncatedPoissonSampled,
)
from dpnlp.guarantee import Adjacency

ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE
PARTS = st.lists(st.tuples(st.floats(0.05, 3), st.floats(1e-7, 0.02)), min_size=1, max_size=3)


def exact_delta(parts, epsilon):
    """By all outcomes of each (ε, δ) at its worst: everything is lost, or one of two answers comes out."""
    total = 0.0
    for signs in itertools.product((1, -1), repeat=len(parts)):
        p = math.prod((1 - d) / (1 + math.exp(-s * e)) for s, (e, d) in zip(signs, parts, strict=True))
        loss = sum(s * e for s, (e, _) in zip(signs, parts, strict=True))
        total += max(0.0, p * (1 - math.exp(epsilon - loss)))
    return 1 - math.prod(1 - d for _, d in parts) + total


@settings(max_examples=15)
@given(parts=PARTS, delta=st.floats(1e-3, 0.2))
def test_releases_with_a_chance_of_failure_cost_what_all_their_outcomes_say(parts, delta):
    event = Composed(tuple(ApproximateDP(e, d) for e, d in parts))
    ours = pld.epsilon(event, delta, ADD)
    failing = exact_delta(parts, 60.0)
    if failing > delta * (1 - 1e-5):
        assert failing < delta * (1 + 1e-9) or ours == math.inf
        return
    low, high = 0.0, 60.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if exact_delta(parts, middle) <= delta else (middle, high)
    assert high * (1 - 1e-9) - 1e-9 <= ours <= sum(e for e, _ in parts) * (1 + 1e-6)  # coarse for so few


@pytest.mark.parametrize("accountant_of", [pld.epsilon, rdp.epsilon, rdp.moments_epsilon])
@pytest.mark.parametrize("count", [1, 3, 10])
def test_a_delta_that_the_failures_use_up_leaves_no_epsilon(accountant_of, count):
    failing = 1 - (1 - 1e-4) ** count
    event = Composed((Repeated(ApproximateDP(0.0, 1e-4), count), Gaussian(2.0)))
    assert accountant_of(event, failing * 0.999, ADD) == math.inf
    left = (2 * failing - failing) / (1 - failing)
    assert accountant_of(event, 2 * failing, ADD) >= accountant_of(Gaussian(2.0), left, ADD) * (1 - 1e-6)
    assert accountant_of(event, 2 * failing, ADD) < math.inf


@pytest.mark.parametrize("accountant_of", [pld.epsilon, rdp.epsilon, rdp.moments_epsilon])
def test_failures_that_are_above_delta_by_less_than_float64_shows_leave_no_epsilon(accountant_of):
    """Their sum came out a last bit below δ, and what was left of it was taken for a δ of 10⁻²⁰."""
    rng = np.random.default_rng(4)
    for _ in range(200):
        delta = 10 ** rng.uniform(-12, -0.3)
        first = delta * rng.random()
        kept = 1 - Fraction(first)
        last = float(1 - (1 - Fraction(delta)) / kept)
        while 1 - kept * (1 - Fraction(last)) <= Fraction(delta):
            last = math.nextafter(last, 1)
        event = Composed((Gaussian(1.0), ApproximateDP(0.0, first), ApproximateDP(0.0, last)))
        assert accountant_of(event, delta, ADD) == math.inf


@pytest.mark.parametrize("delta", [0.0, 1e-25])
@given(e=st.floats(1e-3, 30.0), times=st.integers(1, 50), z=st.floats(0.01, 100.0))
def test_the_largest_loss_of_all_is_never_rounded_down(delta, e, times, z):
    """Where δ is far below the chance of the largest loss, no ε below it will do, not even by a last bit."""
    responses = pld.epsilon(Repeated(RandomizedResponse(e, 3), times), delta, REPLACE)
    assert Fraction(responses) >= times * Fraction(e) or responses < times * e * (1 - 1e-15)
    if delta == 0:
        assert Fraction(pld.epsilon(Repeated(Laplace(z), times), 0.0, REPLACE)) >= times * 2 / Fraction(z)
        mixed = Composed((Repeated(ApproximateDP(e + 20), times), RandomizedResponse(e), Laplace(z)))
        assert Fraction(pld.epsilon(mixed, 0.0, REPLACE)) >= times * Fraction(e + 20) + Fraction(e) + 2 / Fraction(z)


RELEASES = [
    Gaussian(0.7),
    Laplace(0.8),
    RandomizedResponse(2.0, 3),
    ApproximateDP(1.5),
    PoissonSampled(0.1, Gaussian(0.6)),
    PoissonSampled(0.3, Laplace(0.5)),
    SharedPoissonSampled(0.05, 4, Gaussian(3.0)),
    TruncatedPoissonSampled(100, 0.1, 12, Gaussian(0.8)),
    FixedSizeSampled(100, 10, Gaussian(0.8)),
]


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: type(release).__name__)
@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
def test_on_the_grid_a_release_is_nowhere_more_private_than_its_profile(release, adjacency):
    """Up to the last grid point and beyond, in both directions, however few deviations the grid reaches out."""
    try:
        profiles = [pld._profile(release, adjacency, deviations) for deviations in (2.0, 9.0)]
    except BadInput as error:
        pytest.skip(str(error))
    for profile in profiles:
        for way in (profile, profile.reverse()):
            x = np.linspace(0, 1.5 * way.top, 200)
            for step in (way.top / 7, way.top / 400):
                rounded = way.losses(step).delta(x)
                true = np.asarray(profiles[1].above(x) if way is profile else profiles[1].below(x), float)
                assert np.all(rounded >= true * (1 - 1e-9) - 1e-13)


@settings(max_examples=30)
@given(
    st.lists(st.floats(0.0, 0.3), min_size=1, max_size=4),
    st.lists(st.integers(1, 50), min_size=4, max_size=4),
    st.floats(1e-9, 0.1),
)
def test_infinite_losses_of_all_parts_add_up_as_chances_do(infinite, times, delta):
    parts = [(Losses(0.5, 0, np.array([1 - lost]), lost), n) for lost, n in zip(infinite, times, strict=False)]
    kept = math.prod((1 - lost) ** n for lost, n in zip(infinite, times, strict=False))
    found = compose(parts, delta).infinite
    assert 1 - kept <= found * (1 + 1e-12) + 1e-300
    assert found <= 1 - kept + 1e-12


# What is kept of earlier answers


def variants(event):
    """The same event with each of its fields changed."""
    for field in fields(event):
        value = getattr(event, field.name)
        if isinstance(value, (int, float)):
            other = value * 2 if value >= 1 else value / 2 + 0.1
            yield replace(event, **{field.name: type(value)(other)})
        elif isinstance(value, Gaussian):
            yield replace(event, **{field.name: Gaussian(value.noise_multiplier * 1.5)})


EVENTS = [
    *(PoissonSampled(0.1, Gaussian(1.0)), SharedPoissonSampled(0.1, 2, Gaussian(5.0))),
    *(TruncatedPoissonSampled(50, 0.1, 12, Gaussian(1.0)), FixedSizeSampled(60, 10, Gaussian(1.0))),
    *(ApproximateDP(0.5, 1e-7), RandomizedResponse(0.7, 4), Repeated(Gaussian(2.0), 3), Gaussian(1.0), Laplace(1.0)),
]


@pytest.mark.parametrize("event", [EVENTS[0], *EVENTS[4:7]], ids=lambda event: type(event).__name__)
def test_what_was_computed_for_one_question_is_never_the_answer_to_another(event):
    """Asked one after the other, through the one door, and by the accountants themselves."""
    own = {Accountant.PLD: pld.epsilon, Accountant.RDP: rdp.epsilon, Accountant.MOMENTS: rdp.moments_epsilon}
    questions = [*itertools.product([event], (1e-5, 1e-3), (ADD, REPLACE), Accountant)]
    questions += [(other, 1e-5, ADD, Accountant.PLD) for other in variants(event)]
    answers = set()
    for asked, delta, adjacency, by in questions:
        try:
            expected = own[by](asked, delta, adjacency)
        except BadInput:
            with pytest.raises(BadInput):
                accountant.epsilon(asked, delta, adjacency, by)
            continue
        assert accountant.epsilon(asked, delta, adjacency, by) == expected
        answers.add(expected)
    assert len(answers) > 2


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_that_differ_are_not_equal(event):
    assert all(other != event for other in variants(event))
    assert len({event, *variants(event)}) == 1 + len(list(variants(event)))


def test_the_epsilon_of_a_run_is_that_of_its_own_schedule_after_all_others_were_asked_for():
    base = Schedule(100, 10, 20, Sampling.CYCLIC_POISSON, bands=2)
    others = [replace(base, records=200), replace(base, lot_size=20), replace(base, steps=40), replace(base, bands=1)]
    found = {}
    for schedule in (base, *others, base):
        for noise in (1.0, 2.0):
            spent = accountant.guarantee(schedule, noise, 1e-5, ADD).epsilon
            assert found.setdefault((schedule, noise), spent) == spent
            assert spent >= pld.epsilon(schedule.event(noise), 1e-5, ADD)
    assert len({*found.values()}) == len(found)
