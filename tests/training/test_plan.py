"""One plan: what it promises is computed from the event of what it does, and from nothing else (law 1)."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp import events
from dpnlp.accounting import accountant, pld
from dpnlp.accounting.accountant import Accountant
from dpnlp.accounting.ledger import Ledger
from dpnlp.accounting.planning import Question
from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.checks import BadInput
from dpnlp.events import Composed, Gaussian, NonPrivate, PoissonSampled, Repeated, SharedPoissonSampled
from dpnlp.guarantee import Adjacency, Exposure, NoiseSource, Unit
from dpnlp.training.clipping import Clipping, Rule
from dpnlp.training.noise import Banded, Independent
from dpnlp.training.plan import Plan
from dpnlp.training.rounding import ROUNDING

FAST = Accountant.RDP


def planned(steps=200, noise_multiplier=1.0, sampling=Sampling.POISSON, how=FAST, bands=1):
    schedule = Schedule(1000, 50, steps, sampling, bands=bands)
    return Plan(schedule, Clipping(0.5), noise_multiplier, 1e-5, sampling.adjacencies[0], how)


@pytest.mark.parametrize("sampling", list(Sampling))
def test_law_1_the_guarantee_is_that_of_the_event_which_the_ledger_gets(sampling, tmp_path):
    plan = planned(40, sampling=sampling, how=Accountant.PLD, bands=4 if sampling is Sampling.CYCLIC_POISSON else 1)
    promised = plan.guarantee(NoiseSource.OS_ENTROPY)
    direct = pld.epsilon(plan.event, 1e-5, plan.adjacency)
    assert direct <= promised.epsilon <= direct * (1 + 1e-4)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.charge("a run", plan.event, plan.unit, plan.adjacency, "0" * 64, "run")
    assert ledger.spent(1e-5).epsilon == pytest.approx(direct, rel=1e-3)


def test_law_1_the_event_of_a_poisson_plan_has_its_rate_its_noise_and_its_steps():
    assert planned().event == Repeated(PoissonSampled(0.05, Gaussian(1.0)), 200)
    promised = planned().guarantee(NoiseSource.OS_ENTROPY)
    assert (promised.steps, str(promised.sampler)) == (200, "poisson(q=0.05)")
    assert str(promised.mechanism) == "gaussian(noise_multiplier=1.0,rounding=0.01)"


def test_law_8_shuffled_lots_cost_as_many_gaussians_as_there_are_epochs():
    plan = planned(41, sampling=Sampling.SHUFFLED)
    assert plan.event == Repeated(Gaussian(1.0), 3)
    assert plan.guarantee(NoiseSource.OS_ENTROPY).epsilon > planned(41).guarantee(NoiseSource.OS_ENTROPY).epsilon


def test_epsilon_grows_with_the_steps_and_is_the_accountants():
    plan, spent = planned(), 0.0
    assert plan.epsilon(0) == 0
    for steps in (1, 2, 19, 20, 21, 199, 200):
        event = Repeated(PoissonSampled(0.05, Gaussian(1.0)), steps)
        assert plan.epsilon(steps) == accountant.epsilon(event, 1e-5, Adjacency.ADD_REMOVE, FAST)
        assert plan.epsilon(steps) > spent
        spent = plan.epsilon(steps)
    assert spent <= plan.guarantee(NoiseSource.OS_ENTROPY).epsilon


@pytest.mark.parametrize("total", [1, 7, 250])
def test_what_is_shown_during_a_run_is_never_too_little_and_ends_with_the_whole(total):
    plan = planned(total)
    for steps in {1, total // 3 + 1, total - 1, total} - {0}:
        shown = plan.epsilon_at_most(steps)
        assert plan.epsilon(steps) <= shown
        assert shown <= plan.epsilon(min(total, steps + total // 100 + 1)) * (1 + 1e-3)
    assert plan.epsilon_at_most(total) == pytest.approx(plan.epsilon(total), rel=1e-3)


def test_what_is_shown_is_computed_in_few_places_of_a_long_run(monkeypatch):
    plan, asked = planned(100_000), set()
    monkeypatch.setattr(Plan, "epsilon", lambda self, steps: asked.add(steps) or float(steps))
    for steps in range(1, 100_001, 7):
        assert plan.epsilon_at_most(steps) >= steps
    assert len(asked) <= 100
    assert max(asked) == 100_000


def test_within_an_epsilon_a_plan_has_the_largest_number_of_steps():
    plan = planned(500)
    for target in (2.0, 3.0, 4.5):
        ended = plan.within(target)
        assert ended == replace(plan, schedule=replace(plan.schedule, steps=ended.schedule.steps), target=target)
        assert 1 <= ended.schedule.steps < 500
        assert plan.epsilon(ended.schedule.steps) <= target < plan.epsilon(ended.schedule.steps + 1)
    assert plan.within(math.inf) == plan.within(100.0) == plan


@pytest.mark.parametrize(
    ("left_open", "given"),
    [
        ("epsilon", {"lot_size": 50, "steps": 100, "noise_multiplier": 1.1}),
        ("noise_multiplier", {"lot_size": 50, "epochs": 2.5, "epsilon": 2.0}),
        ("steps", {"lot_size": 50, "noise_multiplier": 1.1, "epsilon": 2.0}),
        ("lot_size", {"steps": 100, "noise_multiplier": 1.1, "epsilon": 2.0}),
    ],
)
def test_the_answer_to_a_question_is_a_plan_that_promises_the_same(left_open, given):
    question = Question(1000, 1e-5, accountant=FAST, unit=Unit.DOCUMENT, **given)
    answer, plan = question.answer(), Plan.of(question, Clipping(0.5))
    assert answer.solved_for == left_open
    assert (plan.schedule, plan.noise_multiplier) == (answer.schedule, answer.noise_multiplier)
    promised = plan.guarantee(NoiseSource.OS_ENTROPY)
    assert replace(promised, mechanism=answer.guarantee.mechanism) == answer.guarantee
    assert (promised.unit, promised.adjacency, promised.delta) == (Unit.DOCUMENT, Adjacency.ADD_REMOVE, 1e-5)


def test_a_plan_states_no_more_than_was_asked_for():
    target = 1.2345678
    question = Question(1000, 1e-5, lot_size=50, steps=100, epsilon=target, accountant=FAST)
    assert question.answer().guarantee.epsilon <= target
    assert Plan.of(question, Clipping(0.5)).guarantee(NoiseSource.OS_ENTROPY).epsilon <= target


def test_the_source_of_noise_and_what_is_not_covered_are_named():
    promised = planned().guarantee(NoiseSource.FIXED_SEED, Exposure.DIAGNOSTICS, Exposure.VOCABULARY)
    assert promised.noise_source is NoiseSource.FIXED_SEED
    assert promised.not_covered == (Exposure.DIAGNOSTICS, Exposure.VOCABULARY)
    assert planned().guarantee(NoiseSource.OS_ENTROPY).not_covered == ()


def test_the_noise_is_measured_in_clip_norms_and_has_the_bands_of_the_schedule():
    assert planned(noise_multiplier=3.0).stddev == 1.5 * (1 + ROUNDING)
    assert planned().noise == Independent()
    assert planned(sampling=Sampling.CYCLIC_POISSON, bands=4).noise == Banded(4, 200)


@pytest.mark.parametrize("sampling", list(Sampling))
def test_a_plan_without_privacy_promises_nothing(sampling):
    plan = Plan.without_privacy(Schedule(1000, 50, 7, sampling))
    assert (plan.clips, plan.stddev, plan.event) == (False, 0.0, NonPrivate())
    promised = plan.guarantee(NoiseSource.OS_ENTROPY)
    assert (promised.is_private, promised.steps) == (False, 7)


def test_no_noise_promises_nothing_although_gradients_are_clipped():
    plan = planned(noise_multiplier=0.0)
    assert (plan.clips, plan.stddev, plan.epsilon(1)) == (True, 0.0, math.inf)
    assert not plan.guarantee(NoiseSource.OS_ENTROPY).is_private


@pytest.mark.parametrize("plan", [planned(), Plan.without_privacy(Schedule(1000, 50, 7, Sampling.SHUFFLED))])
def test_a_plan_is_written_as_json_with_all_that_it_decides(plan):
    entry = plan.to_json()
    assert json.loads(json.dumps(entry, allow_nan=False)) == entry
    assert entry["schedule"]["sampling"] == plan.schedule.sampling.value
    assert [replace(plan, target=target).to_json()["target"] for target in (3.0, math.inf)] == [3.0, "inf"]
    changed = [
        replace(plan, delta=1e-7),
        replace(plan, clipping=Clipping(0.25)),
        replace(plan, clipping=Clipping(0.5, Rule.PER_LAYER)),
        replace(plan, schedule=replace(plan.schedule, steps=9)),
        replace(plan, schedule=replace(plan.schedule, aggregations=(1.5, 2.0))),
        replace(plan, accountant=Accountant.MOMENTS),
        replace(plan, unit=Unit.USER),
    ]
    assert all(other.to_json() != entry for other in changed)
    assert all(json.loads(json.dumps(other.to_json(), allow_nan=False)) == other.to_json() for other in changed)


def test_what_is_released_before_the_first_step_is_spent_at_step_0():
    plan = planned(50)
    with_aggregations = replace(plan, schedule=replace(plan.schedule, aggregations=(1.5, 2.0)))
    for how in Accountant:
        before = accountant.epsilon(Composed((Gaussian(1.5), Gaussian(2.0))), 1e-5, Adjacency.ADD_REMOVE, how)
        begun = replace(with_aggregations, accountant=how)
        assert begun.epsilon(0) == before > 1
        assert before <= begun.epsilon_at_most(0) <= before * (1 + 1e-3)
        assert begun.epsilon(0) < begun.epsilon(1) < begun.epsilon(50)
    assert plan.epsilon(0) == plan.epsilon_at_most(0) == 0
    assert replace(with_aggregations, noise_multiplier=0.0).epsilon(0) == math.inf


def test_a_question_hands_a_plan_its_sharing_and_its_aggregations():
    question = Question(
        1000, 1e-5, lot_size=50, steps=100, epsilon=2.0, sharing=3, aggregations=(2.0,), accountant=FAST, unit=Unit.NODE
    )
    plan = Plan.of(question, Clipping(0.5))
    z = plan.noise_multiplier
    assert plan.event == Composed((Gaussian(2 * z), Repeated(SharedPoissonSampled(0.05, 3, Gaussian(z)), 100)))
    promised = plan.guarantee(NoiseSource.OS_ENTROPY, Exposure.HUBS)
    assert (promised.steps, promised.unit, promised.not_covered) == (101, Unit.NODE, (Exposure.HUBS,))
    assert 1.99 < promised.epsilon <= 2


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            lambda: planned(noise_multiplier=-1.0),
            "noise_multiplier = -1.0: it must be a finite number of at least 0.",
        ),
        (lambda: replace(planned(), delta=0.0), "delta = 0.0: it must lie strictly between 0 and 1."),
        (
            lambda: replace(planned(sampling=Sampling.SHUFFLED), adjacency=Adjacency.ADD_REMOVE),
            "adjacency = add-remove: shuffled sampling has no proved ε for it, so none is given; use zero-out or "
            "replace.",
        ),
        (
            lambda: replace(planned(), clipping=Clipping(math.inf)),
            "clip_norm = inf: noise of 1.0 clip norms needs a finite one; give one, or no noise for a run without "
            "privacy.",
        ),
        (
            lambda: planned(noise_multiplier=1e-10),
            "noise_multiplier = 1e-10: it must lie between 1e-09 and 1e+09, far from the ends of float32, where noise "
            "vanishes; choose another ε.",
        ),
        (
            lambda: replace(planned(), schedule=Schedule(1000, 50, 20, aggregations=(1.0, 1e-12))),
            "noise_multiplier = 1e-12: it must lie between 1e-09 and 1e+09, far from the ends of float32, where noise "
            "vanishes; choose another ε.",
        ),
        (lambda: planned().within(0.0), "epsilon = 0.0: it must be a number above 0; inf stands for no privacy."),
    ],
)
def test_what_cannot_be_planned_is_refused(wrong, sentence):
    with pytest.raises(BadInput) as refusal:
        wrong()
    assert str(refusal.value) == sentence


def test_an_epsilon_below_one_step_is_refused():
    with pytest.raises(BadInput, match="step"):
        planned().within(1e-6)


def test_the_event_is_one_that_a_ledger_can_write():
    for sampling in Sampling:
        event = planned(sampling=sampling).event
        assert events.from_json(json.loads(json.dumps(events.to_json(event)))) == event


@settings(max_examples=15)
@given(noise=st.floats(0.6, 3.0), lot=st.integers(1, 500), steps=st.integers(2, 400), shorter=st.integers(1, 400))
def test_fewer_steps_never_cost_more(noise, lot, steps, shorter):
    plan = Plan(Schedule(500, lot, steps), Clipping(1.0), noise, 1e-5, Adjacency.ADD_REMOVE, FAST)
    shorter = min(shorter, steps)
    assert plan.epsilon(shorter) <= plan.epsilon_at_most(shorter) <= plan.epsilon_at_most(steps)
    assert plan.epsilon(steps) <= plan.guarantee(NoiseSource.OS_ENTROPY).epsilon
