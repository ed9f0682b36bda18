"""Lots have exactly the distribution their event was proved for, and cutting them loses nothing."""

import math
import threading
import time
import tracemalloc
from collections import Counter
from itertools import combinations, islice
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.checks import BadInput
from dpnlp.events import FixedSizeSampled, Gaussian, PoissonSampled, Repeated, TruncatedPoissonSampled
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.training import sampling
from dpnlp.training.sampling import Layout, Lots, Owners, Shape, cut, prefetch
from dpnlp.training.secret import Secret

EVERY = [pytest.param(sampling, id=sampling) for sampling in Sampling]


def secret(seed=7):
    return Secret.drawn(FixedSeed(seed))


def lots(sampling, records, lot_size, steps=1, seed=7, **more):
    return Lots(Schedule(records, lot_size, steps, sampling, **more), secret(seed))


def places(seed=7, step=0):
    return lots(Sampling.POISSON, 4, 2, seed=seed).places(step)


PLACES = places()


def membership(drawn, steps, records):
    """Which record is in which lot, [steps, records]."""
    found = np.zeros((steps, records))
    for step in range(steps):
        lot = drawn.draw(step)
        assert len(set(lot.tolist())) == len(lot)
        found[step, lot] = 1
    return found


def subsets(largest, records=4):
    return [subset for size in range(largest + 1) for subset in combinations(range(records), size)]


TRUNCATED = {subset: 1 / 16 if len(subset) < 2 else 11 / 16 / 6 for subset in subsets(2)}
PAIRS = dict.fromkeys(combinations(range(4), 2), 1 / 6)


@pytest.mark.parametrize(
    ("sampling", "more", "expected"),
    [
        (Sampling.POISSON, {}, dict.fromkeys(subsets(4), 1 / 16)),
        (Sampling.TRUNCATED_POISSON, {"largest_lot": 2}, TRUNCATED),
        (Sampling.TRUNCATED_POISSON, {}, dict.fromkeys(subsets(4), 1 / 16)),
        (Sampling.FIXED_SIZE, {}, PAIRS),
        (Sampling.SHUFFLED, {}, PAIRS),
        (Sampling.CYCLIC_POISSON, {}, dict.fromkeys(subsets(4), 1 / 16)),
    ],
)
def test_every_possible_lot_is_as_likely_as_it_should_be(sampling, more, expected):
    steps = 6000
    drawn = lots(sampling, 4, 2, steps, **more)
    seen = Counter(tuple(drawn.draw(step).tolist()) for step in range(steps))
    assert set(seen) == set(expected)
    for lot, share in expected.items():
        assert abs(seen[lot] - steps * share) < 5 * np.sqrt(steps * share * (1 - share))


def test_poisson_draws_each_record_independently_with_q():
    steps, records, q = 4000, 40, 0.25
    found = membership(lots(Sampling.POISSON, records, 10, steps), steps, records)
    variance = q * (1 - q)
    assert np.abs(found.mean(axis=0) - q).max() < 5 * np.sqrt(variance / steps)
    assert found.sum(axis=1).var() == pytest.approx(records * variance, rel=0.12)
    together = np.cov(found.T)
    assert np.abs(together[~np.eye(records, dtype=bool)]).max() < 5 * variance / np.sqrt(steps)
    from_lot_to_lot = (found[1:] - q).ravel() @ (found[:-1] - q).ravel() / found[1:].size
    assert abs(from_lot_to_lot) < 5 * variance / np.sqrt(found.size)


def test_a_rare_draw_is_as_rare_at_the_end_as_at_the_beginning():
    steps, records = 2000, 100_000
    drawn = lots(Sampling.POISSON, records, 50, steps)
    found = np.concatenate([drawn.draw(step) for step in range(steps)])
    tenths = np.bincount(found * 10 // records, minlength=10)
    assert len(tenths) == 10
    assert np.abs(tenths - steps * 5).max() < 5 * np.sqrt(steps * 5)


def test_not_even_the_unlikeliest_draws_lose_or_repeat_a_record(monkeypatch):
    unlikely = SimpleNamespace(geometric=lambda q, size: np.arange(size) % 2)
    monkeypatch.setattr(Secret, "generator", lambda *_: unlikely)
    assert lots(Sampling.POISSON, 1000, 10).draw(0).tolist() == list(range(1000))


def test_truncation_never_exceeds_the_cap_and_favours_no_record():
    steps, records = 4000, 30
    drawn = lots(Sampling.TRUNCATED_POISSON, records, 10, steps, largest_lot=10)
    found = membership(drawn, steps, records)
    sizes, share = found.sum(axis=1), found.mean()
    assert sizes.max() == 10
    assert sizes.min() < 8
    assert 0.45 < (sizes == 10).mean() < 0.7
    assert np.abs(found.mean(axis=0) - share).max() < 5 * np.sqrt(share / steps)


def test_the_usual_cap_is_the_one_that_is_accounted_for():
    drawn = lots(Sampling.TRUNCATED_POISSON, 10_000, 1, 3000)
    assert max(len(drawn.draw(step)) for step in range(3000)) <= drawn.schedule.cap == 7


def test_a_fixed_size_lot_is_uniform_and_fresh_each_step():
    steps, records = 4000, 40
    found = membership(lots(Sampling.FIXED_SIZE, records, 10, steps), steps, records)
    assert set(found.sum(axis=1)) == {10}
    assert np.abs(found.mean(axis=0) - 0.25).max() < 5 * np.sqrt(0.1875 / steps)
    assert (found[1:] * found[:-1]).sum(axis=1).mean() == pytest.approx(2.5, abs=0.1)


def test_an_epoch_of_shuffled_lots_holds_each_record_once_and_ends_with_a_short_lot():
    drawn = lots(Sampling.SHUFFLED, 103, 10, 33)
    for epoch in range(3):
        of_epoch = [drawn.draw(step) for step in range(11 * epoch, 11 * epoch + 11)]
        assert [len(lot) for lot in of_epoch] == [10] * 10 + [3]
        assert sorted(np.concatenate(of_epoch).tolist()) == list(range(103))


def test_every_epoch_has_a_new_order():
    drawn = lots(Sampling.SHUFFLED, 100, 10, 200)
    assert len({tuple(drawn.draw(step).tolist()) for step in range(0, 200, 10)}) == 20


def test_the_order_of_an_epoch_is_made_once(monkeypatch):
    made = []
    generator = Secret.generator
    monkeypatch.setattr(Secret, "generator", lambda *args: made.append(args[1]) or generator(*args))
    drawn = lots(Sampling.SHUFFLED, 100, 10, 20)
    for step in range(20):
        drawn.draw(step)
    assert made.count("epoch") == 2


def test_a_record_of_cyclic_lots_is_drawn_only_in_its_groups_steps():
    steps, records, bands = 900, 60, 3
    found = membership(lots(Sampling.CYCLIC_POISSON, records, 5, steps, bands=bands), steps, records)
    rates = found.reshape(steps // bands, bands, records).mean(axis=0)  # [bands, records]
    assert ((rates > 0).sum(axis=0) == 1).all()
    assert np.abs(rates.max(axis=0) - 0.25).max() < 5 * np.sqrt(0.1875 / (steps // bands))


def test_cyclic_groups_are_independent_and_uniform():
    # Three lots of 2 from 6 records have a rate of 1 within the groups, so that a lot is a whole group.
    secrets, groups = 1500, []
    for seed in range(secrets):
        drawn = lots(Sampling.CYCLIC_POISSON, 6, 2, 3, seed=seed, bands=3)
        groups.append(membership(drawn, 3, 6))
    found = np.array(groups)  # [secrets, bands, records]
    assert (found.sum(axis=1) == 1).all()
    assert np.abs(found.mean(axis=0) - 1 / 3).max() < 5 * np.sqrt(2 / 9 / secrets)
    together = np.einsum("sbi,sbj->ij", found, found)[~np.eye(6, dtype=bool)] / secrets
    assert np.abs(together - 1 / 3).max() < 5 * np.sqrt(2 / 9 / secrets)


def test_cyclic_lots_are_whole_groups_that_take_turns():
    """Every record has one turn in a round of them, the same in every round, and at least as far apart as bands."""
    records, groups, steps = 103, 11, 35
    found = membership(lots(Sampling.CYCLIC, records, 10, steps), steps, records)
    for first in range(groups, steps):
        np.testing.assert_array_equal(found[first], found[first - groups])
    assert (found[:groups].sum(axis=0) == 1).all()
    assert len(set(found[:groups].sum(axis=1))) > 3  # as sizes of groups that are drawn independently


def test_whole_groups_are_independent_and_uniform():
    """No record's group says anything of another's."""
    secrets = 1500
    found = np.array([membership(lots(Sampling.CYCLIC, 6, 2, 3, seed=seed), 3, 6) for seed in range(secrets)])
    assert np.abs(found.mean(axis=0) - 1 / 3).max() < 5 * np.sqrt(2 / 9 / secrets)
    together = np.einsum("sbi,sbj->ij", found, found)[~np.eye(6, dtype=bool)] / secrets
    assert np.abs(together - 1 / 3).max() < 5 * np.sqrt(2 / 9 / secrets)


def test_with_many_groups_some_stay_empty_and_give_empty_lots():
    drawn = lots(Sampling.CYCLIC_POISSON, 40, 1, 40, bands=40)
    found = [drawn.draw(step) for step in range(40)]
    assert min(map(len, found)) == 0
    assert sorted(np.concatenate(found).tolist()) == list(range(40))


@pytest.mark.parametrize("sampling", EVERY)
def test_a_lot_of_all_records_has_all_of_them(sampling):
    drawn = lots(sampling, 57, 57, 3)
    for step in range(3):
        assert drawn.draw(step).tolist() == list(range(57))


@pytest.mark.parametrize("sampling", EVERY)
def test_a_lot_is_ascending_record_numbers(sampling):
    lot = lots(sampling, 1000, 100).draw(0)
    assert lot.dtype == np.int64
    assert (np.diff(lot) > 0).all()
    assert lot[0] >= 0
    assert lot[-1] < 1000


@pytest.mark.parametrize("sampling", EVERY)
def test_a_run_that_goes_on_draws_what_it_would_have_drawn(sampling):
    fresh, used = (lots(sampling, 100, 20, 12) for _ in range(2))
    for step in range(7):
        used.draw(step)
    assert fresh.draw(7).tolist() == used.draw(7).tolist()
    assert fresh.draw(11).tolist() == used.draw(11).tolist()
    assert fresh.draw(7).tolist() == used.draw(7).tolist()


@pytest.mark.parametrize("sampling", EVERY)
def test_different_secrets_and_steps_draw_different_lots(sampling):
    drawn = [lots(sampling, 1000, 100, 10, seed=seed) for seed in range(10)]
    assert len({tuple(each.draw(step).tolist()) for each in drawn for step in range(10)}) == 100


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        (3, "step = 3: only 3 steps are planned and paid for; plan more."),
        (-1, "step = -1: it must be a whole number of at least 0."),
    ],
)
def test_a_step_outside_the_plan_is_refused(step, sentence):
    with pytest.raises(BadInput) as refusal:
        lots(Sampling.POISSON, 10, 2, 3).draw(step)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize(
    ("sampling", "bands", "most"),
    [
        (Sampling.POISSON, 1, 0.1),
        (Sampling.TRUNCATED_POISSON, 1, 0.1),
        (Sampling.FIXED_SIZE, 1, 0.2),
        (Sampling.SHUFFLED, 1, 4.5),
        (Sampling.CYCLIC_POISSON, 16, 4.5),
    ],
)
def test_five_million_records_cost_few_bytes_each(sampling, bands, most):
    records, per_epoch = 5_000_000, 1000
    tracemalloc.start()
    try:
        drawn = lots(sampling, records, 5000, 2 * per_epoch, bands=bands)
        for step in (0, 1, per_epoch):
            drawn.draw(step)
        assert tracemalloc.get_traced_memory()[1] < most * records
    finally:
        tracemalloc.stop()


# Owners

OF = np.repeat(["ann", "bob", "cem", "dot"], [1, 2, 3, 9])


def test_owners_are_counted_and_hold_their_own_examples():
    for names in (OF, OF.astype("S3"), np.repeat([-5, 9, 70, 2**40], [1, 2, 3, 9])):
        owners = Owners(names, 20, secret())
        assert len(owners) == 4
        assert owners.counts(np.arange(4)).tolist() == [1, 2, 3, 9]
        assert sorted(owners.examples(np.array([2]), 3)[0].tolist()) == [3, 4, 5]
        assert sorted(owners.members.tolist()) == list(range(15))
        assert owners.members.dtype == owners.offsets.dtype == np.int32


def test_an_owner_keeps_at_most_so_many_examples():
    owners = Owners(OF, 2, secret())
    assert owners.counts(np.arange(4)).tolist() == [1, 2, 2, 2]
    for owner, kept in enumerate(owners.examples(np.arange(4), 2)):
        assert set(OF[kept]) == {np.unique(OF)[owner]}
    assert len(set(owners.members.tolist())) == 7


def test_what_an_owner_keeps_is_the_same_all_run_and_uniform_over_runs():
    first, second = (Owners(OF, 2, secret(3)) for _ in range(2))
    assert first.members.tolist() == second.members.tolist()
    runs = 2000
    kept = Counter(example for seed in range(runs) for example in Owners(OF, 2, secret(seed)).members.tolist())
    shares = np.array([kept[example] / runs for example in range(15)])
    expected = np.repeat([1, 1, 2 / 3, 2 / 9], [1, 2, 3, 9])
    assert np.abs(shares - expected).max() < 5 * np.sqrt(0.25 / runs)


def test_an_owners_examples_stay_together_and_weigh_its_mean():
    generator = np.random.default_rng(0)
    of = generator.integers(300, size=1000)
    owners = Owners(of, 6, secret())
    names = np.unique(of)
    lot = np.arange(len(owners))
    seen = []
    for batch in cut(lot, Layout(16, (8, 32)), generator.integers(1, 33, size=1000), PLACES, owners):
        rows, weights = (each.reshape(batch.shape.records, -1) for each in (batch.rows, batch.weights))
        assert rows.shape[1] == batch.shape.examples
        assert rows.size <= 16
        for examples, shares in zip(rows, weights, strict=True):
            assert len(set(of[examples])) == 1
            if not shares.any():
                continue
            (owner,) = np.flatnonzero(names == of[examples[0]])
            count = owners.counts(np.array([owner]))[0]
            own = examples[shares > 0]
            assert sorted(own.tolist()) == sorted(owners.examples(np.array([owner]), count)[0].tolist())
            assert shares[shares > 0].tolist() == [np.float32(1 / count)] * count
            assert count <= batch.shape.examples
            seen.append(owner)
    assert sorted(seen) == lot.tolist()


def test_owners_of_one_example_each_are_cut_like_examples():
    lengths = np.random.default_rng(0).integers(1, 33, size=50)
    layout, lot = Layout(8, (8, 32)), np.arange(0, 50, 2)
    plain, owned = (
        cut(lot, layout, lengths, PLACES),
        cut(lot, layout, lengths, PLACES, Owners(np.arange(50), 1, secret())),
    )
    for first, second in zip(plain, owned, strict=True):
        assert first.shape == second.shape
        assert first.rows.tolist() == second.rows.tolist()
        assert first.weights.tolist() == second.weights.tolist()


def test_an_owners_shape_follows_from_its_own_examples():
    """The power of two that holds them, and the longest of them, whoever else is in the lot."""
    generator, layout = np.random.default_rng(1), Layout(32, (8, 16, 32))
    of = generator.zipf(1.5, size=4000) % 900
    owners, lengths = Owners(of, 16, secret()), generator.integers(1, 33, size=4000)
    names, shapes = np.unique(of), {}
    for step in range(50):
        lot = np.flatnonzero(generator.random(len(owners)) < 0.3)
        for shape, rows, weights in cut(lot, layout, lengths, places(step=step), owners):
            examples, shares = rows.reshape(-1, shape.examples), weights.reshape(-1, shape.examples)
            for own, counted in zip(examples, shares, strict=True):
                owner = np.flatnonzero(names == of[own[0]])[0]
                if counted.any():
                    assert shapes.setdefault(owner, shape) == shape
                    assert shape.examples == min(16, 2 ** math.ceil(math.log2(owners.counts(np.array([owner]))[0])))
    assert len(shapes) > 200


def test_an_owner_that_does_not_fit_on_the_device_is_never_split():
    (batch,) = cut(
        np.array([0]), Layout(4, (8,), multiple=2), np.ones(9, int), PLACES, Owners(np.zeros(9, int), 9, secret())
    )
    assert batch.shape == Shape(2, 9, 8)
    assert batch.weights.tolist() == [np.float32(1 / 9)] * 9 + [0] * 9


@pytest.mark.parametrize(
    ("of", "most", "sentence"),
    [
        (OF, 0, "most = 0: it must be a whole number of at least 1."),
        (
            np.array([1.0, np.nan]),
            1,
            "owners = float64 of shape (2,): it must be one whole number or one text for each example; "
            "give every example an owner.",
        ),
        (
            np.array(["ann", None]),
            1,
            "owners = object of shape (2,): it must be one whole number or one text for each example; "
            "give every example an owner.",
        ),
        (
            np.zeros((2, 2), int),
            1,
            "owners = int64 of shape (2, 2): it must be one whole number or one text for each example; "
            "give every example an owner.",
        ),
        (
            np.zeros(0, int),
            1,
            "owners = int64 of shape (0,): it must be one whole number or one text for each example; "
            "give every example an owner.",
        ),
    ],
)
def test_owners_that_cannot_be_told_apart_are_refused(of, most, sentence):
    with pytest.raises(BadInput) as refusal:
        Owners(of, most, secret())
    assert str(refusal.value) == sentence


# Cutting


def test_records_of_one_length_go_together_and_the_longest_first():
    lengths = np.array([5, 30, 7, 9, 12, 8, 3, 20, 16, 6, 1], np.uint16)
    batches = cut(np.arange(11), Layout(4, (8, 16, 32)), lengths, PLACES)
    assert [batch.shape for batch in batches] == [Shape(4, 1, 32), Shape(4, 1, 16), Shape(4, 1, 8), Shape(4, 1, 8)]
    own = [set(batch.rows.tolist()) for batch in batches]
    assert (own[0], own[1], own[2] | own[3]) == ({1, 7}, {3, 4, 8}, {0, 2, 5, 6, 9, 10})
    assert [sorted(batch.weights.tolist()) for batch in batches] == [[0, 0, 1, 1], [0, 1, 1, 1], [1] * 4, [0, 0, 1, 1]]
    assert all(batch.rows.dtype == np.int64 and batch.weights.dtype == np.float32 for batch in batches)


def test_padding_repeats_a_row_of_its_batch_and_weighs_nothing():
    (batch,) = cut(np.array([3, 5, 9]), Layout(4, (8,), multiple=4), np.full(10, 8), PLACES)
    assert batch.shape == Shape(4, 1, 8)
    assert sorted(batch.rows[:3].tolist()) == [3, 5, 9]
    assert batch.rows[3] == batch.rows[2]
    assert batch.weights.tolist() == [1, 1, 1, 0]


@given(st.sets(st.integers(0, 300), max_size=120), st.integers(1, 40), st.integers(0, 50))
def test_one_record_more_changes_its_own_batch_and_the_last_ones_of_its_shape(lot, size, step):
    """That is why the sum of all other batches has the same bits with it and without it (`rounding`)."""
    lengths = np.random.default_rng(0).integers(1, 33, size=302)
    layout, own_places = Layout(size, (8, 16, 32)), places(1, step)
    before = cut(np.array(sorted(lot), int), layout, lengths, own_places)
    after = cut(np.array([*sorted(lot), 301]), layout, lengths, own_places)

    def contents(batches):
        return Counter((batch.shape, tuple(batch.rows[batch.weights > 0].tolist())) for batch in batches)

    gone, come = contents(before) - contents(after), contents(after) - contents(before)
    own = int(layout.padded(lengths[[301]])[0])
    assert all(shape.length == own for shape, _ in [*gone, *come])
    assert max(gone.total(), come.total()) <= 2


def test_every_order_of_a_batch_is_as_likely():
    orders = Counter(
        tuple(cut(np.arange(3), Layout(4, (8,)), np.ones(3, int), places(seed))[0].rows[:3].tolist())
        for seed in range(6000)
    )
    assert len(orders) == 6
    assert max(abs(count - 1000) for count in orders.values()) < 5 * math.sqrt(1000)


def test_an_empty_lot_has_no_batches():
    nobody, lengths = np.zeros(0, np.int64), np.ones(15, np.uint8)
    assert cut(nobody, Layout(8, (8,)), lengths, PLACES) == []
    assert cut(nobody, Layout(8, (8,)), lengths, PLACES, Owners(OF, 4, secret())) == []


def test_an_example_that_is_too_long_goes_to_the_largest_length():
    (batch,) = cut(np.array([0]), Layout(1, (8, 16)), np.array([1000]), PLACES)
    assert batch.shape == Shape(1, 1, 16)


@pytest.mark.parametrize(
    ("physical_batch", "multiple", "examples", "size"),
    [
        (64, 1, 1, 64),
        (64, 16, 1, 64),
        (24, 8, 1, 24),
        (100, 1, 1, 100),
        (1, 1, 1, 1),
        (64, 1, 16, 4),
        (60, 1, 16, 3),
        (64, 4, 32, 4),
        (8, 2, 100, 2),
    ],
)
def test_batches_have_one_size_that_the_devices_can_share(physical_batch, multiple, examples, size):
    assert Layout(physical_batch, (8,), multiple).size(examples) == size


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ((0, (8,)), "physical_batch = 0: it must be a whole number of at least 1."),
        ((8, (8,), 0), "multiple = 0: it must be a whole number of at least 1."),
        ((9, (8,), 4), "physical_batch = 9: it must be a multiple of the 4 devices that share it; use 12."),
        ((8, ()), "lengths = (): it must be one or more lengths in ascending order; sort them."),
        ((8, (8, 4)), "lengths = (8, 4): it must be one or more lengths in ascending order; sort them."),
        ((8, (8, 8)), "lengths = (8, 8): it must be one or more lengths in ascending order; sort them."),
        ((8, (4, 4, 8)), "lengths = (4, 4, 8): it must be one or more lengths in ascending order; sort them."),
        ((8, (0, 8)), "lengths = 0: it must be a whole number of at least 1."),
    ],
)
def test_a_layout_that_no_device_can_take_is_refused(settings, sentence):
    with pytest.raises(BadInput) as refusal:
        Layout(*settings)
    assert str(refusal.value) == sentence


def test_two_hundred_lots_have_few_shapes_and_little_padding():
    generator = np.random.default_rng(0)
    lengths = np.clip(generator.lognormal(3.3, 0.6, 50_000), 1, 200).astype(np.uint16)
    layout, drawn = Layout(16, (16, 32, 64, 128)), lots(Sampling.POISSON, 50_000, 512, 200)
    batches = [batch for step in range(200) for batch in cut(drawn.draw(step), layout, lengths, drawn.places(step))]
    assert len({batch.shape for batch in batches}) <= len(layout.lengths)
    weights = np.concatenate([batch.weights for batch in batches])
    assert (weights == 0).mean() < 0.06
    tokens = sum(batch.shape.records * batch.shape.length for batch in batches)
    needed = sum(np.minimum(lengths[batch.rows[batch.weights > 0]], 128).sum() for batch in batches)
    assert tokens < 1.75 * needed


# Preparing ahead


def running():
    return [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]


def test_items_come_in_order_from_another_thread():
    items = list(prefetch((number, threading.current_thread().name) for number in range(50)))
    assert [number for number, _ in items] == list(range(50))
    assert {name[:8] for _, name in items} == {"prefetch"}
    assert not running()
    assert list(prefetch([])) == []


def test_no_more_is_prepared_than_asked_for():
    prepared = []
    items = prefetch((prepared.append(number) or number for number in range(100)), depth=3)
    assert next(items) == 0
    for _ in range(200):
        if len(prepared) == 4:
            break
        time.sleep(0.01)
    time.sleep(0.05)
    assert prepared == [0, 1, 2, 3]
    items.close()
    assert not running()


def test_an_error_reaches_the_consumer_after_what_came_before_it():
    def failing():
        yield 1
        yield 2
        raise BadInput("row = 3: it cannot be read.")

    items = prefetch(failing())
    assert list(islice(items, 2)) == [1, 2]
    with pytest.raises(BadInput, match="row = 3"):
        next(items)
    assert not running()


def test_stopping_early_ends_the_thread():
    for number in prefetch(iter(range(10**9)), depth=5):
        if number == 3:
            break
    assert not running()


def test_preparing_nothing_ahead_is_refused():
    with pytest.raises(BadInput, match=r"^depth = 0: it must be a whole number of at least 1\.$"):
        next(prefetch([1], depth=0))


# Whatever the lot


layouts = st.builds(
    lambda share, multiple, lengths: Layout(share * multiple, tuple(sorted(lengths)), multiple),
    st.integers(1, 24),
    st.integers(1, 4),
    st.sets(st.integers(1, 40), min_size=1, max_size=4),
)


@given(layouts, st.lists(st.integers(0, 50), min_size=1, max_size=150), st.integers(0, 100))
def test_cutting_keeps_every_record_once_and_pads_with_nothing(layout, lengths, seed):
    tokens = np.array(lengths, np.uint8)
    lot = np.flatnonzero(np.random.default_rng(seed).random(len(lengths)) < 0.8)
    batches = cut(lot, layout, tokens, PLACES)
    size = layout.size(1)
    kept = []
    for shape, rows, weights in batches:
        assert shape.examples == 1
        assert shape.records == size
        assert shape.length in layout.lengths
        assert len(rows) == len(weights) == shape.records
        assert set(weights.tolist()) <= {0.0, 1.0}
        real = rows[weights > 0]
        assert set(rows.tolist()) == set(real.tolist())
        assert (np.minimum(tokens[real], layout.lengths[-1]) <= shape.length).all()
        kept += real.tolist()
    assert sorted(kept) == lot.tolist()
    assert sum(len(batch.rows) for batch in batches) - len(lot) < size * len(layout.lengths)


@given(layouts, st.lists(st.integers(0, 12), min_size=1, max_size=100), st.integers(1, 9))
def test_cutting_keeps_every_owner_whole(layout, of, most):
    owners = Owners(np.array(of), most, secret())
    lot = np.arange(0, len(owners), 2)
    shares = np.zeros(len(of))
    for shape, rows, weights in cut(lot, layout, np.arange(len(of)), PLACES, owners):
        assert shape.records % layout.multiple == 0
        assert shape.examples <= most
        records = np.array(of)[rows].reshape(shape.records, shape.examples)
        assert (records == records[:, :1]).all()
        np.add.at(shares, rows, weights)
    sums = np.bincount(np.unique(of, return_inverse=True)[1], shares)
    np.testing.assert_allclose(sums, np.isin(np.arange(len(owners)), lot), atol=1e-6)


@given(layouts, st.integers(0, 10**6))
@settings(max_examples=10)
def test_no_choice_of_lots_has_many_shapes(layout, seed):
    generator = np.random.default_rng(seed)
    lengths = generator.integers(0, 50, size=500)
    shapes = set()
    for _ in range(200):
        lot = np.flatnonzero(generator.random(500) < generator.random() ** 2)
        tokens = np.sort(lengths) if generator.random() < 0.5 else lengths
        shapes |= {batch.shape for batch in cut(lot, layout, tokens, PLACES)}
    assert len(shapes) <= len(layout.lengths)


def rate_of(event):
    """With which probability a record is drawn where it can be, as the accountant is told."""
    match event.event if isinstance(event, Repeated) else event:
        case PoissonSampled(q, _) | TruncatedPoissonSampled(_, q, _, _):
            return q
        case FixedSizeSampled(records, lot_size, _):
            return lot_size / records
        case Gaussian():
            return 1.0
    raise AssertionError(event)


@pytest.mark.parametrize(("records", "lot_size"), [(3, 2), (5, 3), (11, 7), (13, 6), (20, 19)])
@pytest.mark.parametrize(
    ("sampling", "bands"), [("poisson", 1), ("truncated-poisson", 1), ("fixed-size", 1), ("cyclic-poisson", 2)]
)
def test_law_1_records_are_drawn_as_often_as_is_accounted_for_where_n_is_no_multiple_of_l(
    sampling, bands, records, lot_size
):
    """By the event itself, which knows nothing of how lots are drawn."""
    if bands * lot_size > records:
        lot_size = records // bands
    most = {"largest_lot": records} if sampling == "truncated-poisson" else {}
    plan, turns = Schedule(records, lot_size, 1200, Sampling(sampling), bands=bands, **most), 1200 // bands
    drawn = Lots(plan, secret())
    counts = np.bincount(np.concatenate([drawn.draw(step) for step in range(1200)]), minlength=records)
    q = rate_of(plan.event(1.0))
    assert np.all(np.abs(counts - turns * q) <= 5 * np.sqrt(turns * q * (1 - q)) + 1e-9)
    assert abs(counts.sum() - records * turns * q) <= 5 * np.sqrt(records * turns * q * (1 - q)) + 1e-9


@pytest.mark.parametrize(("records", "lot_size"), [(3, 2), (11, 7), (13, 6)])
@pytest.mark.parametrize("sampling", ["shuffled", "cyclic"])
def test_law_1_records_have_as_many_turns_as_are_accounted_for_where_n_is_no_multiple_of_l(sampling, records, lot_size):
    plan = Schedule(records, lot_size, 17, Sampling(sampling))
    drawn = Lots(plan, secret())
    counts = np.bincount(np.concatenate([drawn.draw(step) for step in range(17)]), minlength=records)
    event = plan.event(1.0)
    assert counts.max() <= (event.count if isinstance(event, Repeated) else 1)


def test_places_of_records_have_four_bytes_as_long_as_they_are_enough():
    assert [sampling._index_type(count) for count in (1, 2**31 - 1, 2**31, 2**40)] == [np.int32] * 2 + [np.int64] * 2
