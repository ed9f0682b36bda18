"""Releases before the first step, as GAP has them (Sajadmanesh et al. 2023): they are in every ε from step 0 on."""

import math
from dataclasses import replace

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp.accounting import calibration
from dpnlp.accounting.accountant import Accountant, epsilon, epsilon_after, guarantee
from dpnlp.accounting.planning import Question
from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.checks import BadInput
from dpnlp.events import Composed, Gaussian, NonPrivate, PoissonSampled, Repeated
from dpnlp.guarantee import Adjacency, Guarantee

ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE
RATIOS = (1.5, 4.0)


def test_the_event_has_them_before_the_steps():
    schedule = Schedule(1000, 50, 20, aggregations=RATIOS)
    steps = Repeated(PoissonSampled(0.05, Gaussian(2.0)), 20)
    assert schedule.event(2.0) == Composed((Gaussian(3.0), Gaussian(8.0), steps))
    assert schedule.before(2.0) == Composed((Gaussian(3.0), Gaussian(8.0)))
    assert schedule.event(0.0) == schedule.before(0.0) == NonPrivate()
    assert replace(schedule, aggregations=()).event(2.0) == steps


@pytest.mark.parametrize("sampling", Sampling)
def test_dp_accounting_composes_the_same(sampling):
    """Every sampler's steps, with two Gaussians more."""
    schedule, adjacency = Schedule(1000, 50, 20, sampling, aggregations=RATIOS), sampling.adjacencies[0]
    alone = replace(schedule, aggregations=())
    both = epsilon(schedule.event(3.0), 1e-5, adjacency)
    assert epsilon(alone.event(3.0), 1e-5, adjacency) < both
    assert both == epsilon(Composed((alone.event(3.0), Gaussian(4.5), Gaussian(12.0))), 1e-5, adjacency)
    if sampling is Sampling.POISSON:
        theirs = PLDAccountant().compose(
            dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(3)), 20
        )
        for ratio in RATIOS:
            theirs.compose(dp_accounting.GaussianDpEvent(3 * ratio))
        assert both == pytest.approx(theirs.get_epsilon(1e-5), rel=1e-3)


def test_where_nothing_is_sampled_they_are_one_gaussian():
    """1/z² of all releases add up: 20 steps, and two that have 1/r² of a step's."""
    spent = epsilon(Schedule(100, 100, 20, aggregations=RATIOS).event(9.0), 1e-6, ADD)
    z = 9 / math.sqrt(20 + 1 / 1.5**2 + 1 / 4.0**2)
    assert spent == pytest.approx(dp_accounting.get_epsilon_gaussian(z, 1e-6), rel=1e-6)


@pytest.mark.parametrize("accountant", Accountant)
def test_they_are_spent_before_the_first_step(accountant):
    how = (2.0, 1e-5, ADD, accountant)
    schedule = Schedule(1000, 50, 20, aggregations=RATIOS)
    spent = [epsilon_after(steps, schedule, *how) for steps in (0, 1, 7, 20)]
    assert spent[0] == epsilon(Composed((Gaussian(3.0), Gaussian(8.0))), 1e-5, ADD, accountant) > 0.5
    assert spent == sorted(spent)
    assert spent[-1] == epsilon(schedule.event(2.0), 1e-5, ADD, accountant)
    assert epsilon_after(0, replace(schedule, aggregations=()), *how) == 0


def test_the_guarantee_names_and_counts_them():
    promised = guarantee(Schedule(1000, 50, 20, aggregations=RATIOS), 2.0, 1e-5, ADD)
    assert Guarantee.parse(promised.signature()) == promised
    assert str(promised.mechanism) == "gaussian(noise_multiplier=2.0,aggregations=2)"
    assert promised.steps == 22
    assert "used 22 times" in promised.statement()


@settings(max_examples=6, deadline=None)
@given(
    ratios=st.lists(st.floats(0.05, 20), max_size=3).map(tuple),
    lot=st.integers(1, 200),
    target=st.floats(0.3, 10),
    adjacency=st.sampled_from([ADD, REPLACE]),
)
def test_the_noise_for_a_target(ratios, lot, target, adjacency):
    schedule = Schedule(200, lot, 30, aggregations=ratios)
    z = calibration.noise_multiplier(target, schedule, 1e-5, adjacency)
    spent, saved = (epsilon(schedule.event(noise), 1e-5, adjacency) for noise in (z, 0.999 * z))
    assert spent <= target < saved


@pytest.mark.parametrize("ratios", [(1.0,), RATIOS, (1.2, 1.2, 1.2)])
def test_the_steps_and_the_lot_for_a_target(ratios):
    known = {"records": 1000, "delta": 1e-5, "noise_multiplier": 7.0, "epsilon": 1.2, "aggregations": ratios}
    steps = Question(**known, lot_size=100).answer()
    assert steps.guarantee.epsilon <= 1.2 < spent(replace(steps.schedule, steps=steps.schedule.steps + 1))
    lot = Question(**known, steps=20).answer()
    assert lot.guarantee.epsilon <= 1.2 < spent(replace(lot.schedule, lot_size=lot.schedule.lot_size + 1))
    assert steps.schedule.aggregations == lot.schedule.aggregations == ratios


def spent(schedule):
    return epsilon(schedule.event(7.0), 1e-5, ADD)


@pytest.mark.parametrize(
    ("left_out", "sentence"),
    [
        ("steps", r"a single step, after the aggregations, costs [\d.]+ already; raise the noise or ε\."),
        ("lot_size", r"lots of one record, after the aggregations, cost [\d.]+ already; raise the noise or ε\."),
    ],
)
def test_aggregations_that_cost_more_than_the_target(left_out, sentence):
    known = {"lot_size": 10, "steps": 10} | {left_out: None}
    with pytest.raises(BadInput, match=rf"^epsilon = 0\.5: {sentence}$"):
        Question(1000, 1e-5, noise_multiplier=4.0, epsilon=0.5, aggregations=(0.5,), **known).answer()


@pytest.mark.parametrize("ratio", [0.0, -1.0, math.inf, math.nan])
def test_an_aggregation_without_noise_is_refused(ratio):
    with pytest.raises(BadInput, match=rf"^aggregations = {ratio}: it must be a finite number above 0\.$"):
        Schedule(100, 10, 5, aggregations=(1.0, ratio))
