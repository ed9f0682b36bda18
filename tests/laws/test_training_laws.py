"""The laws that concern training, each seen from outside: through whole runs and what they release.

Most runs train a `Ballot`: one number for each record, whose loss is that number. A record's gradient is then 1 at its
own place and 0 elsewhere, so that the released parameters show which records were in which lot, and by how much they
count. The same run with noise shows the noise itself, because the gradients do not depend on the parameters.
"""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from dpnlp.accounting import pld
from dpnlp.accounting.accountant import Accountant
from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.checks import BadInput
from dpnlp.data.arrays import Arrays
from dpnlp.guarantee import NoiseSource, Unit
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.models.layers import LSTM, Embedding, Linear
from dpnlp.training.clipping import Clipping
from dpnlp.training.loop import Options, train
from dpnlp.training.plan import Plan
from dpnlp.training.rounding import ROUNDING
from dpnlp.training.secret import Secret
from dpnlp.training.sharding import Placement

from ..training.networks import Zoo, cross_entropy, squared_error, tagger_case
from ..training.oracle import assert_same, flat

SECRET = Secret.drawn(FixedSeed(11))
DESCENT = optax.sgd(1.0)


class Ballot(nnx.Module):
    """A number for each record."""

    def __init__(self, records):
        self.numbers = Embedding(records, 1, rngs=nnx.Rngs(0))
        self.numbers.table.set_value(jnp.zeros((records, 1)))

    def __call__(self, record):
        return self.numbers(record)[:, 0]


def vote(model, record):
    return 3 * model(record)


def planned(schedule, clip_norm=1.0, noise_multiplier=0.0, unit=Unit.EXAMPLE, how=Accountant.RDP):
    neighbours = schedule.sampling.adjacencies[0]
    return Plan(schedule, Clipping(clip_norm), noise_multiplier, 1e-6, neighbours, how, unit)


def moves(model, loss, data, plan, physical=16, trains=nnx.Param, **more):
    """How each parameter moved at each step, {name: [steps, *shape]}, and the outcome of the run."""
    path = [flat(model, trains)]
    outcome = train(
        model,
        loss,
        data,
        plan,
        DESCENT,
        Options(physical_batch=physical, evaluate_every=1, placement=more.pop("placement", Placement())),
        trains=trains,
        evaluate=lambda model: path.append(flat(model, trains)) or {},
        **{"secret": SECRET, **more},
    )
    pairs = list(itertools.pairwise(path))
    return {name: np.stack([after[name] - before[name] for before, after in pairs]) for name in path[0]}, outcome


def votes(schedule, noise_multiplier=0.0, clip_norm=1.0, **more):
    """The moves of a ballot, [steps, records]."""
    records = len(more["owners"]) if "owners" in more else schedule.records
    plan = planned(schedule, clip_norm, noise_multiplier)
    found, outcome = moves(Ballot(records), vote, Arrays(np.arange(records)), plan, **more)
    return found["numbers.table"][..., 0], outcome


def assert_deviation(values, stddev):
    """Mean and deviation are those of N(0, stddev²), up to five deviations of their estimates."""
    assert abs(values.mean()) < 5 * stddev / math.sqrt(values.size)
    assert abs(values.std() / stddev - 1) < 5 / math.sqrt(2 * values.size)


def test_law_1_the_run_does_what_the_event_of_its_guarantee_says():
    """Rate, independence of the draws, noise, steps: all measured on what the run released."""
    schedule = Schedule(330, 40, 60)
    drawn, _ = votes(schedule, clip_norm=0.5)
    noisy, outcome = votes(schedule, 1.5, clip_norm=0.5)
    promised = outcome.guarantee
    q, z = dict(promised.sampler.parameters)["q"], dict(promised.mechanism.parameters)["noise_multiplier"]
    assert promised.steps == len(noisy) == outcome.steps == 60
    inside = drawn < -0.25 * 0.5 / 40
    assert inside.mean() == pytest.approx(q, abs=4 * math.sqrt(q * (1 - q) / inside.size))
    assert abs(inside.mean() - 1 / math.ceil(330 / 40)) > 0.002  # what a number of records rounded up would give
    assert inside.sum(axis=1).var() == pytest.approx(330 * q * (1 - q), rel=4 * math.sqrt(2 / 60))
    assert inside.sum(axis=0).var() == pytest.approx(60 * q * (1 - q), rel=4 * math.sqrt(2 / 330))
    assert_deviation((noisy - drawn) * 40 / 0.5, z * (1 + ROUNDING))
    plan = planned(schedule, 0.5, 1.5)
    assert plan.epsilon(60) <= promised.epsilon
    assert pld.epsilon(plan.event, 1e-6, plan.adjacency) <= promised.epsilon


def test_law_1_a_sampler_has_its_own_event_in_the_guarantee():
    found = {
        sampling: votes(Schedule(40, 10, 5, sampling), 1.0)[1].guarantee
        for sampling in (Sampling.POISSON, Sampling.SHUFFLED, Sampling.FIXED_SIZE)
    }
    assert [str(promised.sampler) for promised in found.values()] == [
        "poisson(q=0.25)",
        "shuffled(epochs=2)",
        "fixed-size(lot=10,records=40)",
    ]
    assert len({promised.epsilon for promised in found.values()}) == 3


def test_law_2_what_a_record_adds_does_not_depend_on_how_many_were_drawn():
    drawn, _ = votes(Schedule(330, 40, 20), clip_norm=0.5)
    sizes = (drawn != 0).sum(axis=1)
    assert len(set(sizes)) > 5
    shares = drawn[drawn != 0] / (-0.5 / 40)
    np.testing.assert_allclose(shares, shares[0], rtol=1e-6)
    assert 1 - 2e-5 < shares.min() <= shares.max() <= 1  # less by what the norm may be off by


@pytest.mark.parametrize("devices", [1, 8])
def test_law_3_noise_falls_once_per_lot_on_every_parameter_on_all_devices_together(devices):
    """A network with a layer of each kind and an unnoted parameter; lots of 16 in batches of 8."""
    ids = np.random.default_rng(0).integers(0, 7, (24, 3))
    targets = np.zeros((24, 3, 4), np.float32)
    plan = planned(Schedule(24, 16, 40, Sampling.FIXED_SIZE), 1e-4, 16e4)
    model = Zoo(4, nnx.Rngs(0))
    found, _ = moves(model, squared_error, Arrays((ids, targets)), plan, 8, placement=Placement(devices))
    assert found.keys() == flat(model).keys()
    for steps in found.values():
        assert_deviation(steps.astype(np.float64), 1 + ROUNDING)


def test_law_3_an_empty_lot_is_a_step_with_noise():
    drawn, _ = votes(Schedule(60, 1, 25))
    noisy, outcome = votes(Schedule(60, 1, 25), 2.0)
    empty = (drawn == 0).all(axis=1)
    assert 3 < empty.sum() < 25
    assert_deviation(noisy[empty], 2.0 * (1 + ROUNDING))
    assert outcome.steps == outcome.guarantee.steps == 25


def test_law_3_no_noise_is_used_twice():
    """Neither at two steps nor in two runs; one that is used again is taken off by a difference."""
    schedule = Schedule(60, 6, 12)
    runs = [votes(schedule, 1e4, 1e-4, secret=secret)[0] for secret in (SECRET, None, None)]
    rows = np.concatenate(runs)
    correlation = np.corrcoef(rows) - np.eye(len(rows))
    assert np.abs(correlation).max() < 6 / math.sqrt(60)


class Reader(nnx.Module):
    """Masked self-attention that sorts texts into two classes."""

    def __init__(self, tokens, width, rngs, masked=True):
        self.table = Embedding(tokens, width, rngs=rngs)
        self.query = Linear(width, width, rngs=rngs)
        self.head = Linear(width, 2, rngs=rngs)
        self.masked = masked

    def __call__(self, ids, mask):
        x = self.table(ids)
        scores = jnp.einsum("btd,bsd->bts", self.query(x), x)
        if self.masked:
            scores = jnp.where(mask[:, None, :] > 0, scores, -1e9)
        mixed = jnp.einsum("bts,bsd->btd", jax.nn.softmax(scores), x)
        return self.head((mixed * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True))


class Texts:
    """Texts of 1 to 8 tokens with labels, padded to whatever is asked for."""

    def __init__(self, examples, seed=0):
        rng = np.random.default_rng(seed)
        self.lengths = rng.integers(1, 9, examples)
        mask = np.arange(8) < self.lengths[:, None]
        self._tokens = Arrays((rng.integers(1, 9, (examples, 8)) * mask, mask.astype(np.float32)), self.lengths)
        self._labels = rng.integers(0, 2, examples)

    def __len__(self):
        return len(self.lengths)

    def batch(self, rows, length):
        return (*self._tokens.batch(rows, length), self._labels[rows])


def padded_to(lengths, masked=True, physical=8):
    plan = planned(Schedule(24, 8, 3, Sampling.SHUFFLED), 0.5, 1.0)
    options = Options(physical_batch=physical, lengths=lengths)
    model = Reader(9, 4, nnx.Rngs(0), masked)
    return flat(train(model, cross_entropy, Texts(24), plan, DESCENT, options, secret=SECRET).model)


def test_law_4_padding_and_batchmates_change_nothing():
    first = padded_to((8,))
    for lengths, physical in (((16,), 8), ((2, 8), 4)):
        assert_same(padded_to(lengths, physical=physical), first)


def test_law_4_without_a_mask_the_comparison_would_notice():
    found, first = padded_to((16,), masked=False), padded_to((8,), masked=False)
    assert not np.allclose(found["query.kernel"], first["query.kernel"], rtol=1e-3)


def test_law_4_a_network_for_which_padding_matters_is_refused():
    """To how many tokens a text is padded depends on who else was drawn."""
    with pytest.raises(BadInput, match="padding"):
        padded_to((8, 16), masked=False)


class TimeMajor(nnx.Module):
    """A recurrent network that takes the batch for time."""

    def __init__(self, width, rngs, reverse):
        self.recurrent = LSTM(width, width, reverse=reverse, rngs=rngs)

    def __call__(self, x):
        return jnp.swapaxes(self.recurrent(jnp.swapaxes(x, 0, 1), jnp.ones(x.shape[1::-1])), 0, 1)


@pytest.mark.parametrize("reverse", [False, True])
def test_law_4_time_taken_for_the_batch_is_refused_before_the_run(reverse):
    _, loss, arrays = tagger_case(8, 4, 4, 5, 0)
    model = TimeMajor(4, nnx.Rngs(0), reverse)
    with pytest.raises(BadInput, match="keep the batch on the first axis of every layer"):
        moves(model, loss, Arrays(arrays), planned(Schedule(8, 4, 1, Sampling.SHUFFLED)), 4)


def test_law_4_a_mean_over_the_tokens_of_a_batch_is_refused_before_the_run():
    def token_mean(model, batch):
        mask = batch[1]
        return cross_entropy(model, batch) * mask.sum(axis=1) / mask.sum()

    with pytest.raises(BadInput, match="normalise it by the example's own tokens"):
        train(
            Reader(9, 4, nnx.Rngs(0)),
            token_mean,
            Texts(24),
            planned(Schedule(24, 8, 1)),
            DESCENT,
            Options(physical_batch=8),
        )


def neighbours_apart(loss, width, plan, owners=None):
    """How far the releases are apart of data with a huge record and of data where it counts as none."""
    model, _, (x, y) = tagger_case(8, 3, width, 5, 0)
    released = []
    touched = slice(3, 4) if owners is None else np.flatnonzero(owners == owners[3])
    for value in (1e4, np.nan):
        changed = np.array(x)
        changed[touched] *= value
        found, _ = moves(model, loss, Arrays((changed, np.asarray(y))), plan, 8, owners=owners)
        released.append(np.concatenate([steps[0].ravel() for steps in found.values()]))
    return float(np.linalg.norm(released[0] - released[1]))


def test_law_5_a_record_moves_the_whole_release_by_at_most_the_clip_norm():
    """By C/L over all parameters together: clipping each of them by itself would let it move √m times as far."""
    distance = neighbours_apart(squared_error, 4, planned(Schedule(8, 8, 1, Sampling.SHUFFLED), 0.5))
    assert 0.9 * 0.5 / 8 < distance <= 0.5 / 8 * (1 + 1e-4)


def test_law_5_the_windows_of_a_document_move_it_by_at_most_one_clip_norm_together():
    owners = np.array([0, 1, 1, 2, 2, 2, 2, 3])
    schedule = Schedule(4, 4, 1, Sampling.SHUFFLED)
    distance = neighbours_apart(squared_error, 4, planned(schedule, 0.5, unit=Unit.DOCUMENT), owners)
    assert 0.9 * 0.5 / 4 < distance <= 0.5 / 4 * (1 + 1e-4)


def test_law_6_lots_and_noise_come_from_the_systems_entropy_unless_a_seed_is_named():
    schedule = Schedule(60, 20, 2)
    fresh = [votes(schedule, secret=None) for _ in range(2)]
    assert (fresh[0][0] != fresh[1][0]).any()
    assert {outcome.guarantee.noise_source for _, outcome in fresh} == {NoiseSource.OS_ENTROPY}
    seeded = [votes(schedule, 1.0) for _ in range(2)]
    np.testing.assert_array_equal(seeded[0][0], seeded[1][0])
    assert seeded[0][1].guarantee.noise_source is NoiseSource.FIXED_SEED


def test_law_8_shuffled_lots_hold_each_record_once_an_epoch_and_nothing_is_filled_up():
    """23 records in lots of 5: the fifth lot of an epoch holds 3, and each counts 1/5 there too."""
    drawn, outcome = votes(Schedule(23, 5, 12, Sampling.SHUFFLED), physical=4)
    assert (drawn != 0).sum(axis=1).tolist() == [5, 5, 5, 5, 3] * 2 + [5, 5]
    for epoch in (drawn[:5], drawn[5:10]):
        np.testing.assert_allclose(epoch.sum(axis=0), -1 / 5, rtol=1e-5)
    assert (drawn[:5] != drawn[5:10]).any()
    assert str(outcome.guarantee.sampler) == "shuffled(epochs=3)"


def test_law_9_a_run_gives_nothing_but_the_model_its_promise_and_the_callers_scores():
    _, outcome = votes(Schedule(60, 20, 2), 1.0)
    assert sorted(vars(outcome)) == ["compilations", "guarantee", "history", "model", "steps"]
    assert [dict(entry.scores) for entry in outcome.history] == [{}, {}]


def test_law_11_owners_are_the_unit_that_is_drawn_and_counted():
    """Each owner is in or out with all of its records, and they share what one record adds."""
    owners = np.repeat(np.arange(12), 5)
    schedule = Schedule(12, 4, 10)
    drawn, outcome = votes(schedule, owners=owners, clip_norm=10.0)
    by_owner = drawn.reshape(10, 12, 5)
    assert ((by_owner != 0).all(axis=2) == (by_owner != 0).any(axis=2)).all()
    np.testing.assert_allclose(by_owner[by_owner != 0], -3 / 5 / 4, rtol=1e-5)
    assert dict(outcome.guarantee.sampler.parameters)["q"] == 4 / 12
