"""A schedule is the one place where a sampler becomes an event (law 1)."""

import pytest

from dpnlp.accounting.accountant import delta_warning, epsilon, guarantee
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
    ],
)
def test_bad_input(fields, sentence):
    with pytest.raises(BadInput) as error:
        Schedule(*fields)
    assert str(error.value) == sentence
