"""Partition selection: what one unit can move, how the threshold is set, and attacks that the promise must outlast."""

import math
import re
from dataclasses import FrozenInstanceError, fields

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import common, privacy_loss_distribution
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from dpnlp.accounting import pld, rdp
from dpnlp.checks import BadInput
from dpnlp.events import ApproximateDP, Composed, Gaussian, PoissonSampled, Repeated
from dpnlp.guarantee import Adjacency, NoiseSource, Unit
from dpnlp.mechanisms import PartitionSelection, analytic_sigma, partition_selection
from dpnlp.mechanisms.randomness import FixedSeed

from .audit import FALSE_ALARM, epsilon_lower_bound

ADD = Adjacency.ADD_REMOVE
NAMED = st.lists(st.sampled_from("abcdefgh"), max_size=12)


def total(selection, people):
    sums = {}
    for named in people:
        for item, weight in selection.contribution(named).items():
            sums[item] = sums.get(item, 0) + weight
    return sums


# What one unit can move


@given(st.lists(NAMED, max_size=6), NAMED, st.integers(1, 9), st.floats(0.01, 50))
def test_one_unit_more_or_less_moves_the_sums_by_at_most_one(people, another, items, epsilon):
    """Exactly: the weights are whole numbers of grid steps."""
    selection = PartitionSelection(items, epsilon, 1e-6)
    without, with_it = total(selection, people), total(selection, [*people, another])
    moved = [with_it.get(item, 0) - without.get(item, 0) for item in {*without, *with_it}]
    one = math.floor(1 / selection.noise.step)
    assert sum(step * step for step in moved) <= one * one
    assert sum(step != 0 for step in moved) <= items


@given(NAMED.filter(bool), st.integers(1, 9))
def test_a_unit_has_the_same_say_in_each_of_the_first_items_that_it_names(named, items):
    selection = PartitionSelection(items, 1.0, 1e-6)
    found = selection.contribution(named)
    assert list(found) == list(dict.fromkeys(named))[:items]
    for weight in found.values():
        assert weight * selection.noise.step == pytest.approx(1 / math.sqrt(len(found)), rel=1e-6)


def test_a_unit_that_names_nothing_adds_nothing():
    assert PartitionSelection(3, 1.0, 1e-6).contribution([]) == {}


# The threshold


@pytest.mark.parametrize("items", [1, 2, 40, 1000])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-10), (1.0, 1e-6), (4.0, 0.2), (30.0, 1e-3)])
def test_the_threshold_is_that_of_the_formula(items, epsilon, delta):
    """ρ = max over t of 1/√t + σ Φ⁻¹((1 − δ/2)^{1/t}), evaluated with fifty digits."""
    selection = PartitionSelection(items, epsilon, delta)
    assert selection.noise.sigma == analytic_sigma(epsilon, delta / 2, 1.0)
    with mpmath.workdps(50):

        def needed(t):
            slip = 1 - (1 - mpmath.mpf(delta) / 2) ** (mpmath.mpf(1) / t)
            return 1 / mpmath.sqrt(t) + selection.noise.sigma * mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * slip)

        rho = float(max(needed(t) for t in (*range(1, min(items, 50)), items)))
    assert rho <= selection.threshold <= rho * (1 + 1e-5)


def strangers_seen(selection, t, trials):
    """How often anything comes out of a unit that alone names t items, and nothing else."""
    weight = selection.contribution(map(str, range(t)))["0"]
    released = selection.release({f"{trial} {item}": weight for trial in range(trials) for item in range(t)})
    return len({item.split()[0] for item in released})


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_what_one_unit_alone_names_comes_out_with_a_chance_of_half_of_delta_at_most(epsilon):
    """And hardly less in the worst case, or more words would be lost than need be."""
    delta, trials, rates = 0.2, 20_000, []
    for t in (1, 2, 3, 8):
        selection = PartitionSelection(8, epsilon, delta, FixedSeed(t))
        seen = strangers_seen(selection, t, trials)
        assert beta.ppf(FALSE_ALARM, seen, trials - seen + 1) <= delta / 2
        rates.append(seen / trials)
    assert max(rates) >= 0.9 * delta / 2


@pytest.mark.parametrize("defect", ["threshold", "noise"])
def test_the_check_on_strangers_sees_a_defect(defect, monkeypatch):
    selection = PartitionSelection(8, 1.0, 0.2, FixedSeed(1))
    if defect == "threshold":
        selection.__dict__["_threshold"] = math.floor(0.9 * selection._threshold)
    else:
        drawn = partition_selection.discrete_gaussian
        monkeypatch.setattr(
            partition_selection, "discrete_gaussian", lambda source, scale, n: drawn(source, round(scale * 1.2), n)
        )
    seen = strangers_seen(selection, 8, 20_000)
    assert beta.ppf(FALSE_ALARM, seen, 20_000 - seen + 1) > 0.1


# Attacks


def bound(selection, trials=100_000, units=60):
    """A lower bound on ε from an item that so many units name, or one more: is its noisy sum above a line?

    Each trial is an item of its own, with independent noise. The line is best for a Gaussian of half the variance.
    """
    one = selection.contribution(["x"])["x"]
    line = units + 0.5 + selection.noise.sigma**2 / 2 * selection.epsilon
    hits = [
        sum(noisy > line for noisy in selection.release({f"{n}": one * many for n in range(trials)}).values())
        for many in (units + 1, units)
    ]
    return epsilon_lower_bound(*hits, trials, selection.delta / 2)


def test_the_noisy_sums_tell_neighbours_apart_no_better_than_promised():
    selection = PartitionSelection(1, 0.9, 0.04, FixedSeed(0))
    assert selection.threshold < 30
    assert bound(selection) <= 0.9


def test_the_attack_sees_noise_that_is_too_small(monkeypatch):
    drawn = partition_selection.discrete_gaussian
    monkeypatch.setattr(
        partition_selection,
        "discrete_gaussian",
        lambda source, scale, n: drawn(source, round(scale / math.sqrt(2)), n),
    )
    assert bound(PartitionSelection(1, 0.9, 0.04, FixedSeed(0))) > 0.9


# What comes out


def test_items_come_out_by_their_noisy_sums_and_only_such_as_occur():
    selection = PartitionSelection(4, 20.0, 1e-6, FixedSeed(3))
    people = [["the", "of", f"name{n}"] for n in range(300)] + [["the"]] * 100
    released = selection.release(total(selection, people))
    assert list(released) == ["the", "of"]
    assert released["the"] == pytest.approx(100 + 300 / math.sqrt(3), abs=5)
    assert released["of"] == pytest.approx(300 / math.sqrt(3), abs=5)
    assert selection.release({}) == {}


def test_items_of_equal_noisy_sums_come_out_by_name_however_they_were_counted(monkeypatch):
    silent = lambda source, scale, count: np.zeros(count, dtype=np.int64)  # noqa: E731
    monkeypatch.setattr(partition_selection, "discrete_gaussian", silent)
    sums = {name: 2**30 + place % 2 for place, name in enumerate("hcfadgbe")}
    for ordered in (sorted(sums), sorted(sums, reverse=True), sums):
        released = PartitionSelection(1, 1.0, 0.1).release({name: sums[name] for name in ordered})
        assert "".join(released) == "acegbdfh"


def test_a_seed_makes_the_same_choice_again_and_none_makes_another():
    def released(*source):
        return PartitionSelection(1, 1.0, 0.1, *source).release({f"{n}": 2**30 for n in range(20)})

    assert released(FixedSeed(5)) == released(FixedSeed(5)) != released(FixedSeed(6))
    assert released() != released()


def test_the_noise_does_not_depend_on_how_many_items_there_are(monkeypatch):
    scales = []

    def remembered(source, scale, count):
        scales.append(scale)
        return np.zeros(count, dtype=np.int64)

    monkeypatch.setattr(partition_selection, "discrete_gaussian", remembered)
    selection = PartitionSelection(4, 1.0, 1e-6)
    for many in (1, 10, 10_000):
        selection.release({f"{n}": 1 for n in range(many)})
    assert len(set(scales)) == 1
    assert scales[0] * selection.noise.step >= selection.noise.sigma


# The promise


def test_the_guarantee_names_the_mechanism_and_where_the_noise_came_from():
    promised = PartitionSelection(50, 1.0, 1e-7, FixedSeed(0)).guarantee(Unit.USER, ADD)
    assert (promised.epsilon, promised.delta, promised.unit) == (1.0, 1e-7, Unit.USER)
    assert promised.noise_source is NoiseSource.FIXED_SEED
    assert re.fullmatch(r"partition-selection\(sigma=[\d.]+,threshold=[\d.]+,items=50\)", str(promised.mechanism))


def test_what_was_promised_cannot_be_changed():
    selection = PartitionSelection(50, 1.0, 1e-7)
    for field in fields(selection):
        with pytest.raises(FrozenInstanceError):
            setattr(selection, field.name, getattr(selection, field.name))


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_the_event_costs_what_is_promised_and_no_accountant_forgets_the_threshold(epsilon):
    event = PartitionSelection(100, epsilon, 1e-6).event()
    assert pld.epsilon(event, 1e-6, ADD) <= epsilon
    assert pld.epsilon(event, 1e-6, ADD) == pytest.approx(epsilon, rel=1e-4)
    assert epsilon <= rdp.epsilon(event, 1e-6, ADD) < 1.2 * epsilon
    for accountant in (pld, rdp):
        assert accountant.epsilon(event, 5e-7, ADD) == math.inf


def test_the_event_composes_as_dp_accounting_composes_it():
    selection = PartitionSelection(100, 1.0, 1e-7)
    steps = Repeated(PoissonSampled(0.02, Gaussian(1.5)), 200)
    theirs = (
        privacy_loss_distribution.from_gaussian_mechanism(selection.noise.sigma)
        .compose(privacy_loss_distribution.from_privacy_parameters(common.DifferentialPrivacyParameters(0.0, 1e-7 / 2)))
        .compose(privacy_loss_distribution.from_gaussian_mechanism(1.5, sampling_prob=0.02).self_compose(200))
    )
    ours = pld.epsilon(Composed((selection.event(), steps)), 1e-6, ADD)
    assert ours == pytest.approx(theirs.get_epsilon_for_delta(1e-6), rel=2e-3)
    assert ours > pld.epsilon(Composed((selection.noise.event(ADD), steps)), 1e-6, ADD)


def test_the_event_is_the_noise_and_the_failure_of_the_threshold():
    selection = PartitionSelection(7, 1.0, 1e-6)
    assert selection.event() == Composed((Gaussian(selection.noise.sigma), ApproximateDP(0.0, 5e-7)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((0, 1.0, 1e-6), "items = 0: it must be a whole number of at least 1"),
        ((5, 0.0, 1e-6), "epsilon = 0.0: it must be a finite number above 0"),
        ((5, math.inf, 1e-6), "epsilon = inf: it must be a finite number above 0"),
        ((5, 1.0, 0.0), "delta = 0.0: it must lie strictly between 0 and 1"),
        ((5, 1.0, 1.0), "delta = 1.0: it must lie strictly between 0 and 1"),
    ],
)
def test_what_cannot_be_promised_is_refused(given, message):
    with pytest.raises(BadInput, match=f"^{re.escape(message)}"):
        PartitionSelection(*given)
