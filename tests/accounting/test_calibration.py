"""Calibration both ways: every answer is within its target, and a little more would not be."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp.accounting import calibration
from dpnlp.accounting.accountant import Accountant, epsilon
from dpnlp.accounting.planning import Question
from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.checks import BadInput
from dpnlp.guarantee import Adjacency

ADD = Adjacency.ADD_REMOVE


@pytest.mark.parametrize("sampling", Sampling)
@pytest.mark.parametrize("target", [0.3, 5.0, 200.0])
def test_noise_meets_its_target(sampling, target):
    schedule, adjacency = Schedule(22_051, 2048, 275, sampling), sampling.adjacencies[0]
    z = calibration.noise_multiplier(target, schedule, 1e-8, adjacency)
    assert target * 0.999 < epsilon(schedule.event(z), 1e-8, adjacency) <= target


@pytest.mark.parametrize("accountant", Accountant)
def test_noise_meets_its_target_for_every_accountant(accountant):
    schedule = Schedule(60_000, 600, 10_000)
    z = calibration.noise_multiplier(1.2586, schedule, 1e-5, ADD, accountant)
    assert 1.257 < epsilon(schedule.event(z), 1e-5, ADD, accountant) <= 1.2586
    assert (z == pytest.approx(4, abs=0.001)) is (accountant is Accountant.MOMENTS)


@settings(max_examples=15)
@given(
    target=st.floats(0.05, 50),
    lot=st.integers(1, 2000),
    steps=st.integers(1, 2000),
    log_delta=st.floats(-10, -3),
)
def test_noise_meets_any_target(target, lot, steps, log_delta):
    schedule, delta = Schedule(2000, lot, steps), 10**log_delta
    z = calibration.noise_multiplier(target, schedule, delta, ADD)
    assert target * 0.99 < epsilon(schedule.event(z), delta, ADD) <= target


@pytest.mark.parametrize(
    ("sampling", "noise", "target"),
    [(Sampling.POISSON, 4.0, 1.0), (Sampling.FIXED_SIZE, 8.0, 2.0), (Sampling.SHUFFLED, 40.0, 1.0)],
)
def test_steps_are_the_most_that_the_target_allows(sampling, noise, target):
    schedule, adjacency = Schedule(60_000, 600, 1, sampling), sampling.adjacencies[0]
    most = calibration.steps(target, schedule, noise, 1e-5, adjacency)

    def cost(count):
        return epsilon(Schedule(60_000, 600, count, sampling).event(noise), 1e-5, adjacency)

    assert cost(most) <= target < cost(most + 1)
    assert sampling is not Sampling.SHUFFLED or most % 100 == 0  # whole epochs


@pytest.mark.parametrize(
    ("schedule", "near", "most"),
    [
        (Schedule(22_051, 2048, 275), 0.02, 6),
        (Schedule(22_051, 2048, 275, Sampling.SHUFFLED), 0.001, 4),
        (Schedule(22_051, 2048, 275, Sampling.CYCLIC), 0.001, 4),
        (Schedule(22_051, 2048, 275, sharing=8), 0.03, 6),
        (Schedule(22_051, 2048, 275, aggregations=(0.5, 0.5)), 0.01, 5),
    ],
)
def test_the_search_begins_near_its_end(schedule, near, most, monkeypatch):
    """A planner that asks the accountant often is slow, though what it answers is right."""
    adjacency, target, asked = schedule.sampling.adjacencies[0], 1.0, []
    for name in ("epsilon", "epsilon_after"):
        ask = getattr(calibration, name)
        monkeypatch.setattr(calibration, name, lambda *question, ask=ask: asked.append(question) or ask(*question))
    z = calibration.noise_multiplier(target, schedule, 1e-6, adjacency)
    assert calibration._noise_guess(target, schedule, 1e-6, adjacency) == pytest.approx(z, rel=near)
    assert len(asked) <= most
    asked.clear()
    calibration.steps(target, schedule, 1.01 * z, 1e-6, adjacency)
    assert len(asked) <= (13 if schedule.sampling in (Sampling.SHUFFLED, Sampling.CYCLIC) else 6)  # whole epochs


@given(
    cost=st.floats(1e-9, 1.0),
    power=st.sampled_from([0.5, 1.0, 2.0]),
    target=st.floats(1.0, 1e6),
    off=st.floats(0.01, 100),
    most=st.integers(2, 10**12),
)
def test_the_largest_whole_number_is_found_from_any_guess(cost, power, target, off, most):
    asked = []
    best = calibration._largest_whole(
        lambda n: asked.append(n) or cost * n**power, target, off * (target / cost) ** (1 / power), most
    )
    assert 1 <= best <= most
    assert cost * best**power <= target
    assert best == most or cost * (best + 1) ** power > target
    assert len(asked) <= 50


@pytest.mark.parametrize("lots", [7, 1000, 10**6])
@pytest.mark.parametrize("epochs", [3, 1000, 100_001])
@pytest.mark.parametrize("left", [0, 0.1, 0.9])
@pytest.mark.parametrize("off", [0.1, 0.999, 30.0])
def test_the_largest_whole_number_is_found_where_the_cost_jumps(lots, epochs, left, off):
    """Where whole epochs are paid for, the search for the jump may end thousands of steps before or behind it."""
    asked, most = [], lots * epochs
    found = calibration._largest_whole(
        lambda n: asked.append(n) or math.ceil(n / lots), epochs + left, off * most, most=10**12
    )
    assert found == most
    assert len(asked) <= 100


@pytest.mark.parametrize("falling", [True, False])
@pytest.mark.parametrize("guess", [0.96, 0.99, 1.01, 1.04])
def test_nothing_is_asked_far_from_a_good_guess(falling, guess):
    """There an answer may take much longer, or there may be none."""
    asked = []
    found = calibration._solve(lambda x: asked.append(x) or (1 / x if falling else x), 1.0, guess, falling)
    assert found == pytest.approx(1, rel=1e-4)
    assert all(0.9 < x < 1.1 for x in asked)


def test_a_guess_far_off_costs_few_questions_more(monkeypatch):
    asked = []
    monkeypatch.setattr(calibration, "epsilon", lambda *question: asked.append(question) or epsilon(*question))
    calibration.noise_multiplier(50.0, Schedule(60_000, 60, 3000), 1e-6, ADD)
    assert len(asked) <= 10


def test_lot_size_is_the_largest_that_the_target_allows():
    most = calibration.lot_size(1.0, lambda lot: Schedule(60_000, lot, 10_000), 4.0, 1e-5, ADD)
    assert epsilon(Schedule(60_000, most, 10_000).event(4.0), 1e-5, ADD) <= 1.0
    assert epsilon(Schedule(60_000, most + 1, 10_000).event(4.0), 1e-5, ADD) > 1.0


def test_noise_where_the_first_guess_costs_nothing():
    """At so large a δ even little noise has ε = 0, and the search has to come down to where ε is above it."""
    schedule = Schedule(100, 50, 3)
    z = calibration.noise_multiplier(0.001, schedule, 0.3, ADD)
    assert epsilon(schedule.event(z), 0.3, ADD) <= 0.001 < epsilon(schedule.event(0.99 * z), 0.3, ADD)


def test_a_lot_is_not_larger_than_where_it_is_cut():
    question = {"records": 1000, "delta": 1e-5, "steps": 10, "noise_multiplier": 4.0, "epsilon": 5.0}
    plan = Question(**question, sampling=Sampling.TRUNCATED_POISSON, largest_lot=90).answer()
    assert plan.schedule.lot_size <= 90
    assert plan.guarantee.epsilon <= 5.0


def test_the_whole_data_set_where_the_target_is_generous():
    assert calibration.lot_size(1000.0, lambda lot: Schedule(500, lot, 10), 4.0, 1e-5, ADD) == 500


@pytest.mark.parametrize("left_out", ["epsilon", "noise_multiplier", "steps", "lot_size"])
def test_the_planner_finds_what_is_left_out(left_out):
    """One consistent run, each of its quantities left out in turn and found again."""
    run = {"epsilon": 0.94693, "noise_multiplier": 4.0, "steps": 10_000, "lot_size": 600}
    known = {name: value for name, value in run.items() if name != left_out}
    plan = Question(records=60_000, delta=1e-5, **known).answer()
    found = {
        "epsilon": plan.guarantee.epsilon,
        "noise_multiplier": plan.noise_multiplier,
        "steps": plan.schedule.steps,
        "lot_size": plan.schedule.lot_size,
    }
    assert plan.solved_for == left_out
    assert found[left_out] == pytest.approx(run[left_out], rel=1e-3)
    assert plan.guarantee.epsilon <= run["epsilon"] * (1 + 1e-9)


def test_a_plan_never_states_more_than_its_target():
    """Rounding ε up to five digits would lift it above a target that has more of them."""
    target = 1.23456789
    assert (
        Question(records=1000, delta=1e-5, lot_size=10, steps=50, epsilon=target).answer().guarantee.epsilon <= target
    )


def test_epochs_are_of_whole_lots():
    plan = Question(records=22_051, delta=1e-8, lot_size=2048, epochs=25, noise_multiplier=2.0).answer()
    assert plan.schedule.steps == 275
    half = Question(records=100, delta=1e-4, lot_size=10, epochs=0.25, noise_multiplier=2.0).answer()
    assert half.schedule.steps == 3


def test_no_privacy_needs_no_noise():
    plan = Question(records=100, delta=1e-4, lot_size=10, steps=5, epsilon=math.inf).answer()
    assert plan.noise_multiplier == 0
    assert not plan.guarantee.is_private


BASE = {"records": 1000, "delta": 1e-5, "lot_size": 10, "steps": 10, "epsilon": 1.0}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"epsilon": 0.0}, "epsilon = 0.0: it must be a number above 0; inf stands for no privacy."),
        ({"epsilon": -1.0}, "epsilon = -1.0: it must be a number above 0; inf stands for no privacy."),
        ({"epsilon": math.nan}, "epsilon = nan: it must be a number above 0; inf stands for no privacy."),
        (
            {"delta": 0.0},
            "delta = 0.0: it must lie strictly between 0 and 1; a usual choice is 1e-04, a tenth of one record.",
        ),
        (
            {"delta": 1.0},
            "delta = 1.0: it must lie strictly between 0 and 1; a usual choice is 1e-04, a tenth of one record.",
        ),
        ({"lot_size": 1001}, "lot_size = 1001: it must not exceed the 1000 records; choose a smaller lot."),
        (
            {"noise_multiplier": 0.0, "steps": None},
            "noise_multiplier = 0: no finite ε, such as 1.0, can hold without noise.",
        ),
        (
            {"noise_multiplier": math.nan, "steps": None},
            "noise_multiplier = nan: it must be a finite number of at least 0.",
        ),
        ({"epochs": 3.0}, "epochs = 3.0: steps = 10 is given too; give one of the two."),
        (
            {"epsilon": None},
            "epsilon and noise_multiplier are not given; "
            "give all but one of epsilon, noise_multiplier, steps, lot_size.",
        ),
        (
            {"noise_multiplier": 1.0},
            "epsilon, noise_multiplier, steps, lot_size are all given; leave out the one that is to be computed.",
        ),
        (
            {"adjacency": Adjacency.ADD_REMOVE, "sampling": Sampling.SHUFFLED},
            "adjacency = add-remove: shuffled sampling has no proved ε for it, so none is given; "
            "use zero-out or replace.",
        ),
    ],
)
def test_bad_input(change, sentence):
    with pytest.raises(BadInput) as error:
        Question(**(BASE | change)).answer()
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("left_out", "sentence"),
    [
        ("steps", r"epsilon = 0\.1: a single step costs [\d.]+ already; raise the noise or ε\."),
        ("lot_size", r"epsilon = 0\.1: lots of one record cost [\d.]+ already; raise the noise or ε\."),
    ],
)
def test_a_target_that_nothing_meets(left_out, sentence):
    with pytest.raises(BadInput, match=sentence):
        Question(**(BASE | {"noise_multiplier": 0.3, "epsilon": 0.1, left_out: None})).answer()


@pytest.mark.parametrize("accountant", [Accountant.RDP, Accountant.MOMENTS])
def test_no_noise_is_sought_for_an_epsilon_that_an_accountant_never_gives(accountant):
    """The search once went on for ever."""
    schedule = Schedule(1_000_000, 10_000, 1)
    sentence = r"epsilon = 1e-15: with any noise the \w+ accountant gives at least [\d.e-]+ at delta = 1e-300; raise ε"
    with pytest.raises(BadInput, match=sentence):
        calibration.noise_multiplier(1e-15, schedule, 1e-300, schedule.sampling.adjacencies[0], accountant)


def test_where_the_search_ends_too_early_noise_is_raised_until_the_target_is_met(monkeypatch):
    schedule, solve = Schedule(1000, 10, 100), calibration._solve
    z = calibration.noise_multiplier(1.0, schedule, 1e-5, Adjacency.ADD_REMOVE)
    monkeypatch.setattr(calibration, "_solve", lambda *given, **more: solve(*given, **more) * (1 - 2e-4))
    assert calibration.noise_multiplier(1.0, schedule, 1e-5, Adjacency.ADD_REMOVE) == pytest.approx(z, rel=2e-5)
    assert epsilon(schedule.event(z), 1e-5, Adjacency.ADD_REMOVE) <= 1.0
