"""A schedule is the one place where a sampler becomes an event (law 1)."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.accounting.accountant import delta_warning, epsilon, guarantee
from dpnlp.accounting.planning import Question
from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.checks import BadInput
from dpnlp.events import (
    FixedSizeSampled,
    Gaussian,
    NonPrivate,
    PoissonSampled,
    Repeated,
    TruncatedPoissonSampled,
)
from dpnlp.guarantee import Adjacency, Guarantee, Unit


@pytest.mark.parametrize(
    ("sampling", "event"),
    [
        (Sampling.POISSON, Repeated(PoissonSampled(256 / 1065, Gaussian(2.0)), 12)),
        (Sampling.TRUNCATED_POISSON, Repeated(TruncatedPoissonSampled(1065, 256 / 1065, 352, Gaussian(2.0)), 12)),
        (Sampling.FIXED_SIZE, Repeated(FixedSizeSampled(1065, 256, Gaussian(2.0)), 12)),
        # 5 lots an epoch, so 12 steps are in the third epoch: a record was used at most three times.
        (Sampling.SHUFFLED, Repeated(Gaussian(2.0), 3)),
    ],
)
def test_every_sampler_has_its_own_event(sampling, event):
    assert Schedule(1065, 256, 12, sampling).event(2.0) == event


@pytest.mark.parametrize("sampling", Sampling)
def test_no_noise_is_no_privacy(sampling):
    assert Schedule(100, 10, 5, sampling).event(0.0) == NonPrivate()


def test_a_lot_of_everything_is_no_sampling():
    assert Schedule(100, 100, 5).event(2.0) == Repeated(Gaussian(2.0), 5)


@pytest.mark.parametrize(
    ("sampling", "adjacency"),
    [(Sampling.FIXED_SIZE, Adjacency.ADD_REMOVE), (Sampling.SHUFFLED, Adjacency.ADD_REMOVE)],
)
def test_law_1_a_sampler_without_an_event_yields_no_epsilon(sampling, adjacency):
    with pytest.raises(BadInput, match=f"adjacency = {adjacency}: {sampling} sampling has no proved ε for it"):
        guarantee(Schedule(100, 10, 5, sampling), 1.0, 1e-5, adjacency)


def test_law_8_shuffled_lots_are_not_accounted_as_poisson():
    """Planted in a predecessor: shuffled lots with Poisson's ε. The proved one is many times larger."""
    poisson = guarantee(Schedule(60_000, 600, 1000), 1.0, 1e-6, Adjacency.ADD_REMOVE)
    shuffled = guarantee(Schedule(60_000, 600, 1000, Sampling.SHUFFLED), 1.0, 1e-6, Adjacency.ZERO_OUT)
    assert shuffled.epsilon > 5 * poisson.epsilon


def test_the_number_of_records_is_not_rounded_up_to_whole_lots():
    """Planted in a predecessor: N rounded up to a multiple of L makes q, and so ε, too small."""
    true = epsilon(Schedule(1065, 256, 25).event(1.0), 1e-8, Adjacency.ADD_REMOVE)
    rounded = epsilon(Schedule(1280, 256, 25).event(1.0), 1e-8, Adjacency.ADD_REMOVE)
    assert true > 1.1 * rounded


def test_the_guarantee_names_everything():
    promised = guarantee(
        Schedule(5000, 50, 300, Sampling.TRUNCATED_POISSON, 90), 1.5, 1e-6, Adjacency.REPLACE, unit=Unit.USER
    )
    assert Guarantee.parse(promised.signature()) == promised
    assert (promised.unit, promised.adjacency, promised.steps) == (Unit.USER, Adjacency.REPLACE, 300)
    assert str(promised.sampler) == "truncated-poisson(q=0.01,largest_lot=90)"
    assert str(promised.mechanism) == "gaussian(noise_multiplier=1.5)"
    assert str(promised.accountant) == "pld"


def test_a_stated_epsilon_is_rounded_up():
    schedule = Schedule(60_000, 600, 10_000)
    exact = epsilon(schedule.event(4.0), 1e-5, Adjacency.ADD_REMOVE)
    stated = guarantee(schedule, 4.0, 1e-5, Adjacency.ADD_REMOVE).epsilon
    assert exact <= stated <= exact * (1 + 1e-4)


def test_delta_of_one_record_or_more_is_warned_about():
    assert delta_warning(1e-5, 1000) is None
    assert delta_warning(1e-3, 1000) == (
        "delta = 0.001 is not below 1/1000 = 0.001: publishing one record in clear, drawn at random, would also be "
        "(0, 0.001)-private. Choose at most 1e-04."
    )


@pytest.mark.parametrize(
    ("bands", "event"),
    [
        (1, Repeated(PoissonSampled(256 / 1065, Gaussian(2.0)), 13)),
        (2, Repeated(PoissonSampled(512 / 1065, Gaussian(2.0)), 7)),
        (4, Repeated(PoissonSampled(1024 / 1065, Gaussian(2.0)), 4)),
    ],
)
def test_cyclic_poisson_has_fewer_turns_at_a_higher_rate(bands, event):
    assert Schedule(1065, 256, 13, Sampling.CYCLIC_POISSON, bands=bands).event(2.0) == event


def test_a_group_that_is_the_whole_lot_is_no_sampling():
    assert Schedule(1000, 250, 9, Sampling.CYCLIC_POISSON, bands=4).event(2.0) == Repeated(Gaussian(2.0), 3)


@pytest.mark.parametrize("adjacency", Adjacency)
def test_one_group_is_poisson_sampling(adjacency):
    cyclic = guarantee(Schedule(1000, 50, 20, Sampling.CYCLIC_POISSON), 2.0, 1e-5, adjacency)
    assert cyclic.epsilon == guarantee(Schedule(1000, 50, 20), 2.0, 1e-5, adjacency).epsilon
    assert str(cyclic.sampler) == "cyclic-poisson(q=0.05,bands=1)"


def test_cyclic_poisson_agrees_with_dp_accounting():
    schedule = Schedule(10_000, 100, 1001, Sampling.CYCLIC_POISSON, bands=10)
    turn = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(3.0))
    oracle = PLDAccountant().compose(turn, 101).get_epsilon(1e-6)
    assert epsilon(schedule.event(3.0), 1e-6, Adjacency.ADD_REMOVE) == pytest.approx(oracle, rel=1e-3)


def strategy(*diagonals):
    """A lower triangular matrix of four rows with these diagonals, its columns divided by their norms."""
    C = sum(np.diag(np.full(4 - k, c), -k) for k, c in enumerate(diagonals))
    return C / np.linalg.norm(C, axis=0)


def hockey_stick(C, groups, rate, sigma, epsilon):
    """δ at ε of four steps of Cx + z, by Monte Carlo, for a record that adds 1 at its turns, against none; both ways.

    It takes the turns of one of the groups, which is drawn at random, each with probability `rate`.
    """
    rng = np.random.default_rng(5)
    ways = [
        (rate ** sum(took) * (1 - rate) ** (len(group) - sum(took)) / len(groups), C[:, group] @ took)
        for group in groups
        for took in np.array(np.meshgrid(*[[0, 1]] * len(group))).reshape(len(group), -1).T
    ]
    weights, means = np.array([weight for weight, _ in ways]), np.array([mean for _, mean in ways])

    def log_ratio(y):
        exponents = (y @ means.T - (means**2).sum(axis=1) / 2) / sigma**2
        return np.log(np.exp(exponents) @ weights)

    z = sigma * rng.standard_normal((400_000, 4))
    with_it = log_ratio(z + means[rng.choice(len(ways), size=len(z), p=weights)])
    without = log_ratio(z)
    return max(np.maximum(0, 1 - np.exp(epsilon - loss)).mean() for loss in (with_it, -without))


def test_the_theorem_of_cyclic_poisson_sampling_in_a_small_case():
    """Four steps in two groups, each turn taken with probability ½: either group meets the bound and no more."""
    sigma, delta = 1.0, 0.05
    schedule = Schedule(100, 25, 4, Sampling.CYCLIC_POISSON, bands=2)
    bound = epsilon(schedule.event(sigma), delta, Adjacency.ADD_REMOVE)
    for C in (strategy(1.0, 0.7), strategy(1.0)):
        for group in ([0, 2], [1, 3]):
            assert hockey_stick(C, [group], 0.5, sigma, bound) == pytest.approx(delta, rel=0.03)
        assert hockey_stick(C, [[0, 2], [1, 3]], 0.5, sigma, bound) < 0.97 * delta
    # A third diagonal reaches into the record's next turn, and the bound no longer holds.
    assert hockey_stick(strategy(1.0, 0.7, 0.5), [[0, 2]], 0.5, sigma, bound) > 1.2 * delta


@given(records=st.integers(1, 400), share=st.floats(0.01, 1), steps=st.integers(1, 200), bands=st.integers(1, 8))
def test_a_cyclic_record_costs_a_gaussian_for_each_of_its_turns(records, share, steps, bands):
    """The most turns that any group has, counted one by one; bands change nothing of it."""
    lot = max(1, round(share * records))
    groups = math.ceil(records / lot)
    schedule = Schedule(records, lot, steps, Sampling.CYCLIC, bands=min(bands, groups))
    turns = max(sum(step % groups == group for step in range(steps)) for group in range(groups))
    assert schedule.groups == groups
    assert schedule.event(2.0) == Repeated(Gaussian(2.0), turns)


@pytest.mark.parametrize("adjacency", Adjacency)
def test_cyclic_lots_have_a_bound_for_all_neighbours_and_say_what_they_are(adjacency):
    found = guarantee(Schedule(1000, 50, 41, Sampling.CYCLIC, bands=4), 2.0, 1e-5, adjacency)
    assert str(found.sampler) == "cyclic(groups=20,bands=4)"
    turns = Repeated(Gaussian(2.0), 3)
    assert found.epsilon == pytest.approx(epsilon(turns, 1e-5, adjacency), rel=1e-4)
    assert "Sampler: cyclic(groups=20,bands=4)." in found.statement()


def test_the_bound_of_cyclic_lots_in_a_small_case():
    """Four steps, two groups, every turn taken: either group meets the bound, and a third diagonal breaks it."""
    sigma, delta = 1.5, 0.05
    schedule = Schedule(100, 50, 4, Sampling.CYCLIC, bands=2)
    bound = epsilon(schedule.event(sigma), delta, Adjacency.ADD_REMOVE)
    for C in (strategy(1.0, 0.7), strategy(1.0)):
        for group in ([0, 2], [1, 3]):
            assert hockey_stick(C, [group], 1.0, sigma, bound) == pytest.approx(delta, rel=0.03)
    assert hockey_stick(strategy(1.0, 0.7, 0.5), [[0, 2]], 1.0, sigma, bound) > 1.2 * delta


def test_whatever_is_left_open_is_found_for_cyclic_lots_too():
    known = {"records": 2000, "delta": 1e-6, "sampling": Sampling.CYCLIC, "bands": 4}
    noise = Question(**known, lot_size=100, steps=50, epsilon=2.0).answer()
    assert 1.99 < noise.guarantee.epsilon <= 2
    steps = Question(**known, lot_size=100, noise_multiplier=9.0, epsilon=2.0).answer()
    assert steps.schedule.steps % 20 == 0  # the last round of turns is used up
    lot = Question(**known, steps=10, noise_multiplier=9.0, epsilon=2.0).answer()
    assert lot.schedule.lot_size == 500


def test_whatever_is_left_open_is_found_for_cyclic_poisson_too():
    known = {"records": 2000, "delta": 1e-6, "sampling": Sampling.CYCLIC_POISSON, "bands": 4}
    noise = Question(**known, lot_size=100, steps=50, epsilon=2.0).answer()
    assert noise.schedule == Schedule(2000, 100, 50, Sampling.CYCLIC_POISSON, bands=4)
    assert 1.99 < noise.guarantee.epsilon <= 2
    steps = Question(**known, lot_size=100, noise_multiplier=3.0, epsilon=2.0).answer()
    assert steps.schedule.steps % 4 == 0  # the last round of turns is used up
    lot = Question(**known, steps=10, noise_multiplier=9.0, epsilon=2.0).answer()
    assert lot.schedule.lot_size == 500  # a whole group


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ((10, 11, 1), "lot_size = 11: it must not exceed the 10 records; choose a smaller lot."),
        ((0, 1, 1), "records = 0: it must be a whole number of at least 1."),
        ((10, 0, 1), "lot_size = 0: it must be a whole number of at least 1."),
        ((10, 2.5, 1), "lot_size = 2.5: it must be a whole number of at least 1."),
        ((10, 1, float("nan")), "steps = nan: it must be a whole number of at least 1."),
        ((10, 5, 1, Sampling.POISSON, 7), "largest_lot = 7: only truncated-poisson sampling has one."),
        (
            (10, 5, 1, Sampling.TRUNCATED_POISSON, 3),
            "largest_lot = 3: it must be at least the lot size 5.",
        ),
        (
            (10, 5, 1, Sampling.POISSON, None, 2),
            "bands = 2: only cyclic-poisson and cyclic sampling have more than one; choose one of them, or 1.",
        ),
        ((10, 5, 1, Sampling.CYCLIC_POISSON, None, 0), "bands = 0: it must be a whole number of at least 1."),
        (
            (1000, 150, 1, Sampling.CYCLIC_POISSON, None, 7),
            "bands = 7: a lot of 150 does not fit into one of as many groups of the 1000 records; use at most 6, or "
            "smaller lots.",
        ),
        (
            (1000, 150, 1, Sampling.CYCLIC, None, 8),
            "bands = 8: a record has its turn every 7 lots, and noise in more bands would reach into the next one; use "
            "at most 7, or smaller lots.",
        ),
    ],
)
def test_bad_input(fields, sentence):
    with pytest.raises(BadInput) as error:
        Schedule(*fields)
    assert str(error.value) == sentence
