"""A unit that has a part in several records: Daigavane et al. (2021) with Poisson lots, against integrals and sums."""

import json
import math
from itertools import product

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom, norm

from dpnlp import events
from dpnlp.accounting import calibration, pld, profiles, rdp
from dpnlp.accounting.accountant import Accountant, epsilon, guarantee
from dpnlp.accounting.ledger import Ledger
from dpnlp.accounting.planning import Question
from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.checks import BadInput
from dpnlp.events import Gaussian, PoissonSampled, Repeated, SharedPoissonSampled
from dpnlp.guarantee import Adjacency, Guarantee, Unit

ADD, ZERO, REPLACE = Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT, Adjacency.REPLACE


def hockey_stick(p, q, x, points):
    """∫ [p − e^x q]₊ for two densities on a grid."""
    return np.trapezoid(np.maximum(p - math.exp(x) * q, 0), points)


# The bound is what it says


@settings(max_examples=25, deadline=None)
@given(q=st.floats(1e-3, 1.0), sharing=st.integers(1, 5), z=st.floats(0.5, 20), x=st.floats(0, 5))
def test_the_profile_is_the_integral_of_the_pair_that_is_told_who_is_drawn(q, sharing, z, x):
    profile = profiles.shared_poisson_sampled_gaussian(z, q, sharing, 10)
    t = np.linspace(-12 * z, 2 * sharing + 12 * z, 50_001)
    without = norm.pdf(t, 0, z)
    for divergence, way in ((profile.above, 1), (profile.below, -1)):
        expected = sum(
            binom.pmf(rho, sharing, q) * hockey_stick(*(norm.pdf(t, 2 * rho, z), without)[::way], x, t)
            for rho in range(sharing + 1)
        )
        assert divergence(np.array([x]))[0] == pytest.approx(expected, rel=1e-3, abs=1e-9)


def exact_epsilon(q, sharing, z, steps, delta):
    """ε of many steps without a grid: told who is drawn, they are one Gaussian with μ² = 4 Σρ²/z², Σρ² being random."""
    one = np.zeros(sharing**2 + 1)
    one[np.arange(sharing + 1) ** 2] = binom.pmf(np.arange(sharing + 1), sharing, q)
    total = np.ones(1)
    for _ in range(steps):
        total = np.convolve(total, one)
    squares = np.flatnonzero(total > 1e-25)
    squares = squares[squares > 0]
    mu, weights = 2 * np.sqrt(squares) / z, total[squares]

    def excess(x):
        return np.sum(weights * (norm.cdf(mu / 2 - x / mu) - math.exp(x) * norm.cdf(-mu / 2 - x / mu))) - delta

    return brentq(excess, 0, 60, xtol=1e-9)


@pytest.mark.parametrize(
    ("q", "sharing", "z", "steps", "delta"),
    [(0.1, 2, 4.0, 1, 1e-5), (0.1, 2, 4.0, 5, 1e-5), (0.01, 4, 3.0, 50, 1e-6), (0.3, 9, 20.0, 10, 1e-8)],
)
def test_many_steps_cost_what_the_sum_of_squares_says(q, sharing, z, steps, delta):
    ours = pld.epsilon(Repeated(SharedPoissonSampled(q, sharing, Gaussian(z)), steps), delta, ADD)
    exact = exact_epsilon(q, sharing, z, steps, delta)
    assert exact <= ours <= exact * (1 + 1e-5)


def test_hardly_any_noise_costs_millions():
    """One draw in four moves the sum by 4, which is 2000 deviations; other draws do not come near."""
    ours = pld.epsilon(SharedPoissonSampled(0.5, 2, Gaussian(0.002)), 1e-5, ADD)
    assert ours == pytest.approx(dp_accounting.get_epsilon_gaussian(1 / 2000, 4e-5), rel=1e-3)


@pytest.mark.parametrize(
    ("q", "sharing", "z", "order"), [(0.01, 4, 5.0, 2), (0.3, 9, 20.0, 7), (0.5, 2, 3.0, 2.25), (1e-6, 33, 40.0, 512)]
)
def test_the_renyi_divergence_by_many_digits(q, sharing, z, order):
    """RDP(α) = (1/(α−1)) ln Σ_ρ Binomial(ρ; M, q) exp(2α(α−1)ρ²/z²)."""
    with mpmath.workdps(60):
        a, q_, z_ = mpmath.mpf(order), mpmath.mpf(q), mpmath.mpf(z)
        moment = mpmath.fsum(
            mpmath.binomial(sharing, rho)
            * q_**rho
            * (1 - q_) ** (sharing - rho)
            * mpmath.exp(2 * a * (a - 1) * rho**2 / z_**2)
            for rho in range(sharing + 1)
        )
        expected = float(mpmath.log(moment) / (a - 1))
    atom = SharedPoissonSampled(q, sharing, Gaussian(z))
    assert rdp._of_atom(atom, ADD, [order])[0][0] == pytest.approx(expected, rel=1e-9)


def test_the_accountants_keep_their_order():
    event = Repeated(SharedPoissonSampled(0.02, 5, Gaussian(20.0)), 200)
    costs = [epsilon(event, 1e-5, ADD, accountant) for accountant in Accountant]
    assert costs == sorted(costs)
    assert costs[0] > 0.5 * costs[2]


# The bound holds for what is done

contribution = st.floats(-1, 1)


@settings(max_examples=40, deadline=None)
@given(
    q=st.floats(0.01, 0.99),
    z=st.floats(0.4, 5),
    own=contribution,
    shared=contribution,
    changed=contribution,
    bystander=contribution,
    x=st.floats(0, 4),
)
def test_no_node_in_two_records_shows_more_than_is_claimed(q, z, own, shared, changed, bystander, x):
    """A node comes with its own record and changes another; a third is not its own. All are drawn by Poisson."""
    assert_claimed(q, z, (own, shared, bystander), (0.0, changed, bystander), x)


@pytest.mark.parametrize("q", [0.9, 0.999])
def test_the_claim_would_not_hold_with_half_the_move(q):
    """Two records that turn over move the sum by 4 when both are drawn, and all but certainly that is what is seen."""
    assert_claimed(q, 4.0, (1.0, 1.0), (-1.0, -1.0), 0.2)
    t = np.linspace(-30, 30, 20_001)
    true = hockey_stick(mixture(q, 4.0, (1.0, 1.0), t), mixture(q, 4.0, (-1.0, -1.0), t), 0.2, t)
    halved = profiles.shared_poisson_sampled_gaussian(8.0, q, 2, 10).above(np.array([0.2]))[0]
    assert true > 1.2 * halved


def mixture(q, z, contributions, t):
    """The density of the noisy sum over a Poisson lot of records that contribute so much."""
    total = np.zeros_like(t)
    for drawn in product((0, 1), repeat=len(contributions)):
        weight = q ** sum(drawn) * (1 - q) ** (len(drawn) - sum(drawn))
        total += weight * norm.pdf(t, np.dot(drawn, contributions), z)
    return total


def assert_claimed(q, z, before, after, x):
    t = np.linspace(-4 - 10 * z, 4 + 10 * z, 8001)
    first, second = mixture(q, z, before, t), mixture(q, z, after, t)
    profile = profiles.shared_poisson_sampled_gaussian(z, q, 2, 10)
    assert hockey_stick(first, second, x, t) <= profile.above(np.array([x]))[0] + 1e-9
    assert hockey_stick(second, first, x, t) <= profile.below(np.array([x]))[0] + 1e-9


# The schedule


def test_a_schedule_of_shared_records_has_an_event_of_its_own():
    assert Schedule(1000, 50, 20, sharing=4).event(3.0) == Repeated(SharedPoissonSampled(0.05, 4, Gaussian(3.0)), 20)
    assert Schedule(1000, 50, 20, sharing=1).event(3.0) == Repeated(PoissonSampled(0.05, Gaussian(3.0)), 20)
    assert str(Schedule(1000, 50, 20, sharing=4).term) == "poisson(q=0.05,sharing=4)"
    assert str(Schedule(1000, 50, 20).term) == "poisson(q=0.05)"


@pytest.mark.parametrize("sharing", [2, 9])
def test_lots_of_everything_are_gaussians_that_dp_accounting_composes(sharing):
    """One record comes or goes, the others turn over: 2M − 1 clip norms."""
    ours = guarantee(Schedule(300, 300, 40, sharing=sharing), 100.0, 1e-6, ADD)
    theirs = PLDAccountant().compose(dp_accounting.GaussianDpEvent(100 / (2 * sharing - 1)), 40)
    assert ours.epsilon == pytest.approx(theirs.get_epsilon(1e-6), rel=1e-3)


@settings(max_examples=12, deadline=None)
@given(lot=st.integers(1, 199), sharing=st.integers(1, 12), z=st.floats(2, 60), steps=st.integers(1, 50))
def test_a_larger_share_costs_more(lot, sharing, z, steps):
    def cost(lot, sharing):
        return epsilon(Schedule(200, lot, steps, sharing=sharing).event(z), 1e-6, ADD, Accountant.RDP)

    assert cost(lot, sharing) <= cost(lot, sharing + 1) * (1 + 1e-9)
    assert cost(lot, sharing) <= cost(min(199, lot + 1), sharing) * (1 + 1e-9)


def test_a_guarantee_for_shared_records_names_them():
    promised = guarantee(Schedule(1000, 50, 20, sharing=4), 30.0, 1e-5, ADD, unit=Unit.NODE)
    assert Guarantee.parse(promised.signature()) == promised
    assert (str(promised.sampler), promised.unit) == ("poisson(q=0.05,sharing=4)", Unit.NODE)


@pytest.mark.parametrize("sharing", [1, 4, 9, 33])
@pytest.mark.parametrize("target", [1.0, 8.0])
@pytest.mark.parametrize(("lot", "steps"), [(27, 500), (1500, 50), (2708, 100)])
def test_the_noise_for_a_target(sharing, target, lot, steps):
    schedule = Schedule(2708, lot, steps, sharing=sharing)
    z = calibration.noise_multiplier(target, schedule, 1e-5, ADD)
    assert epsilon(schedule.event(z), 1e-5, ADD) <= target < epsilon(schedule.event(0.999 * z), 1e-5, ADD)


def test_the_noise_where_hardly_any_record_is_drawn():
    schedule = Schedule(10_000, 10, 5, sharing=33)
    z = calibration.noise_multiplier(8.0, schedule, 1e-5, ADD)
    assert epsilon(schedule.event(z), 1e-5, ADD) <= 8 < epsilon(schedule.event(0.999 * z), 1e-5, ADD)


@pytest.mark.parametrize("sharing", [1, 4])
def test_where_delta_covers_that_a_unit_is_drawn_no_noise_is_the_smallest(sharing):
    with pytest.raises(BadInput, match=r"delta = 0\.001: the whole run draws a unit with a probability of only"):
        calibration.noise_multiplier(1.0, Schedule(10**6, 1, 1, sharing=sharing), 1e-3, ADD)


@pytest.mark.parametrize("left_out", ["epsilon", "noise_multiplier", "steps", "lot_size"])
def test_the_planner_finds_what_is_left_out(left_out):
    run = {"epsilon": 1.0, "noise_multiplier": 54.128, "steps": 500, "lot_size": 27}
    known = {name: value for name, value in run.items() if name != left_out}
    plan = Question(records=2708, delta=1e-5, sharing=9, unit=Unit.NODE, **known).answer()
    found = {
        "epsilon": plan.guarantee.epsilon,
        "noise_multiplier": plan.noise_multiplier,
        "steps": plan.schedule.steps,
        "lot_size": plan.schedule.lot_size,
    }
    assert found[left_out] == pytest.approx(run[left_out], rel=1e-3)
    assert plan.schedule.sharing == 9


def test_all_of_the_records_where_that_costs_less_than_all_but_one():
    """At q = 1 a node's own record is known to move the sum by C alone."""

    def schedule(lot):
        return Schedule(50, lot, 10, sharing=3)

    everything, all_but_one = (epsilon(schedule(lot).event(50.0), 1e-5, ADD) for lot in (50, 49))
    assert everything < all_but_one
    assert calibration.lot_size((everything + all_but_one) / 2, schedule, 50.0, 1e-5, ADD) == 50


# What is not proved is refused


@pytest.mark.parametrize("sampling", [sampling for sampling in Sampling if sampling is not Sampling.POISSON])
def test_law_1_other_samplers_know_nothing_of_shared_records(sampling):
    with pytest.raises(BadInput) as error:
        Schedule(100, 10, 5, sampling, sharing=2)
    assert str(error.value) == (
        f"sharing = 2: {sampling} sampling has no proved ε for a unit that has a part in several records, so none is "
        "given; use poisson, or 1."
    )
    assert Schedule(100, 10, 5, sampling, sharing=1).sharing == 1


@pytest.mark.parametrize("adjacency", [ZERO, REPLACE])
@pytest.mark.parametrize("lot", [10, 100])
def test_law_1_other_neighbours_are_refused(adjacency, lot):
    with pytest.raises(BadInput) as error:
        guarantee(Schedule(100, lot, 5, sharing=2), 1.0, 1e-5, adjacency)
    assert str(error.value) == (
        f"adjacency = {adjacency}: a unit that has a part in 2 records has no proved ε for it, so none is given; use "
        "add-remove."
    )
    for name, accountant in (("pld", pld.epsilon), ("rdp", rdp.epsilon), ("rdp", rdp.moments_epsilon)):
        with pytest.raises(
            BadInput, match=f"{name} knows no bound for SharedPoissonSampled.* under {adjacency}, so no"
        ):
            accountant(SharedPoissonSampled(0.1, 2, Gaussian(1.0)), 1e-5, adjacency)


@pytest.mark.parametrize("sharing", [0, 1.5, -2, math.nan])
def test_a_share_that_makes_no_sense_is_refused(sharing):
    with pytest.raises(BadInput, match=rf"^sharing = {sharing}: it must be a whole number of at least 1\.$"):
        Schedule(100, 10, 5, sharing=sharing)


def test_a_ledger_keeps_and_composes_it(tmp_path):
    event = Schedule(1000, 50, 20, sharing=4).event(30.0)
    assert events.from_json(json.loads(json.dumps(events.to_json(event)))) == event
    ledger = Ledger(tmp_path / "graph.ledger")
    ledger.charge("a run", event, Unit.NODE, ADD, "0" * 64)
    assert ledger.spent(1e-5).epsilon == pytest.approx(pld.epsilon(event, 1e-5, ADD))
    ledger.charge("another", Gaussian(5.0), Unit.NODE, REPLACE, "0" * 64)
    spent = ledger.spent(1e-5)
    assert spent.epsilon == math.inf
    assert "knows no bound for SharedPoissonSampled" in spent.reasons[0]
