"""Releases before the first step: paid for first, made of the run's own secret, and all that is learned from."""

import numpy as np
import optax
import pytest

from dpnlp.accounting.ledger import BudgetExceeded, Ledger
from dpnlp.accounting.subsampling import Schedule
from dpnlp.checks import BadInput
from dpnlp.data.arrays import Arrays
from dpnlp.guarantee import Adjacency, Unit
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.training.clipping import Clipping
from dpnlp.training.loop import Charge, Options, train
from dpnlp.training.plan import Plan
from dpnlp.training.secret import Secret

from .networks import line_case
from .oracle import flat

SECRET = Secret.drawn(FixedSeed(3))
RECORDS, STEPS, RATIO = 12, 4, 2.5
MODEL, LOSS, ARRAYS = line_case(RECORDS, 0)


def planned(aggregations=(RATIO,)):
    schedule = Schedule(RECORDS, 6, STEPS, aggregations=aggregations)
    return Plan(schedule, Clipping(0.5), 1.5, 1e-6, Adjacency.ADD_REMOVE, unit=Unit.NODE)


def noisy(secret):
    """The data, with noise that follows from the secret."""
    x, y = ARRAYS
    return Arrays((x + secret.generator("aggregation").normal(size=x.shape).astype(np.float32), y))


def run(aggregate=noisy, plan=None, arrays=ARRAYS, **more):
    more = {"secret": SECRET, **more}
    options = Options(physical_batch=8)
    return train(MODEL, LOSS, Arrays(arrays), plan or planned(), optax.sgd(0.1), options, aggregate=aggregate, **more)


def assert_same_bits(one, other):
    for (name, found), expected in zip(flat(one.model).items(), flat(other.model).values(), strict=True):
        np.testing.assert_array_equal(found, expected, err_msg=name)


def test_it_is_called_once_with_the_secret_of_the_run():
    secrets = []
    run(lambda secret: secrets.append(secret) or noisy(secret))
    assert secrets == [SECRET]


def test_it_is_called_after_the_charge(tmp_path):
    ledger, seen = Ledger(tmp_path / "texts.ledger"), []

    def aggregate(secret):
        seen.append([release.event for release in ledger.read().releases])
        return noisy(secret)

    run(aggregate, charge=Charge(ledger.enter, "a run"))
    assert seen == [[planned().event]]


def test_nothing_is_released_where_the_budget_does_not_allow_it(tmp_path):
    ledger, called = Ledger(tmp_path / "texts.ledger"), []
    ledger.set_budget(0.01, 1e-6, Unit.NODE, Adjacency.ADD_REMOVE)
    with pytest.raises(BudgetExceeded):
        run(called.append, charge=Charge(ledger.enter, "a run"), folder=tmp_path / "checkpoints")
    assert called == []
    assert not (tmp_path / "checkpoints").exists()


def test_nothing_is_learned_from_the_data_without_noise():
    x, y = ARRAYS
    assert_same_bits(run(), run(arrays=(100 * x[::-1], 7 - y)))
    other = run(lambda secret: Arrays((x, y)))
    assert not np.array_equal(flat(run().model)["dense.kernel"], flat(other.model)["dense.kernel"])


def test_a_run_that_goes_on_gets_the_same_noise_and_ends_with_the_same_bits(tmp_path):
    secrets = []

    def aggregate(secret):
        secrets.append(secret)
        return noisy(secret)

    given = {"folder": tmp_path / "checkpoints", "aggregate": aggregate}
    with pytest.raises(KeyboardInterrupt):
        run(**given, interrupted=iter([False, True]).__next__)
    again = run(**given, secret=Secret.drawn(FixedSeed(4)), resume=True)
    assert secrets == [SECRET, SECRET]
    assert_same_bits(again, run())


@pytest.mark.parametrize(
    ("aggregate", "aggregations", "message"),
    [
        (
            None,
            (RATIO,),
            "aggregations = 1: that many .* are paid for, and this run makes none; plan for what is made",
        ),
        (noisy, (), "aggregations = 0: that many .* are paid for, and this run makes some; plan for what is made"),
        (
            lambda secret: Arrays(tuple(array[1:] for array in ARRAYS)),
            (RATIO,),
            "records = 12: the data has 11 examples; plan for as many.",
        ),
    ],
)
def test_what_is_released_is_what_was_planned(aggregate, aggregations, message):
    with pytest.raises(BadInput, match=f"^{message}"):
        run(aggregate, planned(aggregations))


@pytest.mark.parametrize("sensitivity", [1.0, 3.0])
def test_its_noise_is_that_of_the_plan_times_what_a_unit_moves(sensitivity):
    """The event is that of noise by as much as one unit moves: the accountant knows of no sensitivity."""
    plan = planned((RATIO, 7.0))
    releases = plan.event.events[:2]
    for number, release in enumerate(releases):
        expected = release.noise_multiplier * sensitivity
        assert plan.aggregation_stddev(number, sensitivity) == pytest.approx(expected)
