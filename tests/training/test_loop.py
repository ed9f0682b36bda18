"""Whole runs: what they do against a loop by hand, what they release, when they stop, and what they refuse."""

import itertools
import json
import logging
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from dpnlp.accounting.accountant import Accountant
from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.checks import BadInput
from dpnlp.data.arrays import Arrays
from dpnlp.guarantee import Adjacency, Exposure, NoiseSource, Unit
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.training import loop
from dpnlp.training.clipping import Clipping
from dpnlp.training.loop import Options, train
from dpnlp.training.optimizers import Optimizer
from dpnlp.training.plan import Plan
from dpnlp.training.progress import Progress
from dpnlp.training.sampling import Lots, Owners
from dpnlp.training.secret import Secret
from dpnlp.training.sharding import Placement

from .networks import Line, line_case, recurrent_case, tagger_case, translator_case
from .oracle import assert_same, flat, follow

SECRET = Secret.drawn(FixedSeed(3))
SGD = optax.sgd(0.05)


def planned(schedule, clip_norm=0.5, noise_multiplier=1.0):
    neighbours = schedule.sampling.adjacencies[0]
    return Plan(schedule, Clipping(clip_norm), noise_multiplier, 1e-6, neighbours, Accountant.RDP)


def run(case, plan, optimizer=SGD, physical=8, **more):
    """A run with a fixed secret, unless told otherwise, on what a case of `networks` gave."""
    model, loss, arrays = case
    given = {field: more.pop(field) for field in list(more) if field in Options.__dataclass_fields__}
    more = {"secret": SECRET, **more}
    return train(model, loss, Arrays(arrays), plan, optimizer, Options(physical_batch=physical, **given), **more)


def lots_of(schedule, secret=SECRET):
    lots = Lots(schedule, secret)
    return [lots.draw(step) for step in range(schedule.steps)]


@pytest.mark.parametrize(
    ("case", "private", "optimizer"),
    [
        (tagger_case, False, optax.sgd(0.01, momentum=0.5)),
        (tagger_case, True, optax.adam(0.01, eps=1e-3)),
        (translator_case, False, optax.adam(0.01, eps=1e-3)),
        (translator_case, True, optax.sgd(0.01)),
        (recurrent_case, True, optax.adam(0.01, eps=1e-3)),
    ],
)
def test_no_noise_and_an_infinite_clip_norm_are_ordinary_training(case, private, optimizer):
    """Without clipping at all, and by book-keeping with a clip norm that nothing reaches; one lot is short."""
    model, loss, arrays = case(20, 4, 4, 5, 0)
    schedule = Schedule(20, 8, 4, Sampling.SHUFFLED)
    plan = planned(schedule, 1e6, 0.0) if private else Plan.without_privacy(schedule)
    found = run((model, loss, arrays), plan, optimizer, physical=4)
    lots = lots_of(schedule)
    assert [len(lot) for lot in lots] == [8, 8, 4, 8]
    assert_same(flat(found.model), follow(model, loss, Arrays(arrays), lots, optimizer, 8)[-1])
    assert found.guarantee.epsilon == math.inf


@pytest.mark.parametrize("sampling", list(Sampling))
def test_law_2_clipped_sums_are_divided_by_the_planned_lot_size_whatever_the_sampler_draws(sampling):
    model, loss, arrays = line_case(32, 0)
    schedule = Schedule(32, 7, 6, sampling, bands=2 if sampling is Sampling.CYCLIC_POISSON else 1)
    found = run((model, loss, arrays), planned(schedule, 2.0, 0.0))
    expected = follow(model, loss, Arrays(arrays), lots_of(schedule), SGD, 7, clip_norm=2.0)
    assert_same(flat(found.model), expected[-1])


def test_an_owner_with_all_its_examples_is_one_record():
    model, loss, arrays = line_case(32, 0)
    of = np.repeat(["ann", "bob", "cem", "dan", "eve", "fay"], [1, 2, 4, 9, 10, 6])
    schedule = Schedule(6, 3, 5)
    found = run((model, loss, arrays), planned(schedule, 2.0, 0.0), owners=of, examples_per_owner=4)
    owners = Owners(of, 4, SECRET)
    members = [
        owners.examples(np.array([owner]), 4)[0][: min(4, np.sum(of == name))].tolist()
        for owner, name in enumerate(np.unique(of))
    ]
    lots = [[members[owner] for owner in lot] for lot in lots_of(schedule)]
    assert {len(record) for lot in lots for record in lot} == {1, 2, 4}
    assert_same(flat(found.model), follow(model, loss, Arrays(arrays), lots, SGD, 3, clip_norm=2.0)[-1])


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_law_4_the_physical_batch_changes_nothing_of_a_noisy_run(rate):
    case, plan = line_case(32, 1, dropout=rate), planned(Schedule(32, 12, 4))
    results = [flat(run(case, plan, physical=physical).model) for physical in (4, 8, 32)]
    assert_same(results[1], results[0])
    assert_same(results[2], results[0])
    if rate:
        assert not np.allclose(
            results[0]["dense.kernel"], flat(run(line_case(32, 1), plan).model)["dense.kernel"], rtol=1e-3
        )


def test_other_entries_are_dropped_at_every_step():
    """All records are in every lot and nothing is learned, so that only dropout can change the loss."""
    shown = {}
    plan = planned(Schedule(8, 8, 4, Sampling.SHUFFLED), 2.0, 0.0)
    run(line_case(8, 1, dropout=0.5), plan, optax.sgd(0.0), diagnose=shown.__setitem__)
    assert len({seen["loss"] for seen in shown.values()}) == 4


@pytest.mark.parametrize("sharded", [False, True])
def test_eight_devices_give_the_noisy_run_of_one(sharded):
    rng = np.random.default_rng(2)
    arrays = tuple(np.asarray(rng.normal(size=(32, width)), np.float32) for width in (3, 8))
    case, plan = (Line(3, 8, nnx.Rngs(0)), line_case(1, 0)[1], arrays), planned(Schedule(32, 12, 3))
    alone = run(case, plan, optax.adam(0.1), physical=8, average=0.5)
    together = run(case, plan, optax.adam(0.1), physical=16, average=0.5, placement=Placement(8, sharded))
    assert_same(flat(together.model), flat(alone.model))
    bias = together.model.dense.bias.value[...]
    assert len(bias.sharding.device_set) == 8
    assert {shard.data.shape for shard in bias.addressable_shards} == ({(1,)} if sharded else {(8,)})
    of = np.arange(32) // 3
    plan = planned(Schedule(11, 5, 3), 2.0)
    results = [run(case, plan, physical=16, owners=of, placement=Placement(n, sharded and n > 1)) for n in (1, 8)]
    assert_same(flat(results[1].model), flat(results[0].model))


def path_of(case, plan, **more):
    """The parameters after each step, as an evaluation sees them."""
    seen = []

    def evaluate(model):
        seen.append(flat(model))
        return {}

    outcome = run(case, plan, evaluate=evaluate, evaluate_every=1, **more)
    return seen, outcome


def test_law_3_an_empty_lot_gets_noise_and_counts_as_a_step():
    case, schedule = line_case(500, 2), Schedule(500, 1, 14)
    sizes = [len(lot) for lot in lots_of(schedule)]
    assert 0 in sizes[1:]
    seen, outcome = path_of(case, planned(schedule))
    assert outcome.steps == len(seen) == outcome.guarantee.steps == 14
    for before, now in itertools.pairwise([flat(case[0]), *seen]):
        assert all((now[name] != before[name]).all() for name in now)


def test_law_6_only_a_fixed_seed_gives_the_same_run_again():
    case, plan = line_case(32, 3), planned(Schedule(32, 8, 3), 1e-3, 1e3)
    fixed = [run(case, plan) for _ in range(2)]
    fresh = [run(case, plan, secret=None) for _ in range(2)]
    for name, value in flat(fixed[0].model).items():
        np.testing.assert_array_equal(value, flat(fixed[1].model)[name])
    kernels = [flat(outcome.model)["dense.kernel"] for outcome in (fixed[0], *fresh)]
    assert all((one != other).all() for one, other in itertools.combinations(kernels, 2))
    assert [outcome.guarantee.noise_source for outcome in (fixed[0], fresh[0])] == [
        NoiseSource.FIXED_SEED,
        NoiseSource.OS_ENTROPY,
    ]
    assert "whoever knows the seed" in fixed[0].guarantee.statement()
    assert "whoever knows the seed" not in fresh[0].guarantee.statement()


def test_noise_is_another_at_every_step():
    case, plan = line_case(32, 3), planned(Schedule(32, 8, 4), 1e-6, 1e6)
    seen, _ = path_of(case, plan)
    moves = [now["dense.kernel"] - before["dense.kernel"] for before, now in itertools.pairwise(seen)]
    assert all(np.abs(one - other).min() > 1e-6 for one, other in itertools.combinations(moves, 2))


def test_evaluation_is_made_when_due_and_sees_the_average():
    case, plan = line_case(32, 4), planned(Schedule(32, 8, 5))
    plain, _ = path_of(case, plan)
    averaged, outcome = path_of(case, plan, average=0.8)
    mean = flat(case[0])
    for now, found in zip(plain, averaged, strict=True):
        mean = {name: 0.8 * mean[name] + 0.2 * now[name] for name in mean}
        assert_same(found, mean)
    assert_same(flat(outcome.model), mean)
    calls = []
    outcome = run(
        case, plan, evaluate=lambda model: calls.append(flat(model)) or {"score": len(calls)}, evaluate_every=2
    )
    assert [(entry.step, entry.scores) for entry in outcome.history] == [
        (2, {"score": 1}),
        (4, {"score": 2}),
        (5, {"score": 3}),
    ]
    for found, step in zip(calls, (1, 3, 4), strict=True):
        assert_same(found, plain[step])


def test_an_evaluated_model_can_be_kept_while_the_run_goes_on():
    """As one does who keeps the best one."""
    kept, copies = [], []
    run(
        line_case(32, 4),
        planned(Schedule(32, 8, 3)),
        evaluate=lambda model: kept.append(model) or copies.append(flat(model)) or {},
        evaluate_every=1,
    )
    for model, copy in zip(kept, copies, strict=True):
        assert_same(flat(model), copy)


def test_stopping_early_is_decided_by_evaluations_and_the_guarantee_is_still_the_whole_plans():
    case, plan = line_case(32, 4), planned(Schedule(32, 8, 6))
    asked, published = [], []
    outcome = run(
        case,
        plan,
        evaluate=lambda model: {"score": 1.0},
        evaluate_every=2,
        stop=lambda history: asked.append(len(history)) or len(history) == 2,
        publish=lambda history: published.append([entry.step for entry in history]),
    )
    whole = run(case, plan)
    assert (outcome.steps, asked) == (4, [1, 2])
    assert published == [[2], [2, 4]]
    assert outcome.guarantee == whole.guarantee.with_exposures(Exposure.VALIDATION)
    assert (outcome.guarantee.steps, outcome.guarantee.epsilon) == (6, pytest.approx(plan.epsilon(6), rel=1e-4))
    assert plan.epsilon(4) < 0.95 * outcome.guarantee.epsilon


def test_what_is_evaluated_and_published_is_on_the_disk_before(tmp_path):
    folder, seen, published = tmp_path / "run", [], []

    def kept():
        return max(int(path.name) for path in folder.iterdir() if path.name.isdigit())

    def evaluate(model):
        seen.append(kept())
        return {"score": 1.0}

    def publish(history):
        published.append(([entry.step for entry in history], kept()))

    run(
        line_case(32, 4),
        planned(Schedule(32, 8, 4)),
        folder=folder,
        evaluate=evaluate,
        evaluate_every=2,
        checkpoint_every=3,
        publish=publish,
    )
    assert (seen, published) == ([2, 4], [([2], 2), ([2, 4], 4)])


def bag(model, batch):
    """A line over the mean of the vectors of a text."""
    x, mask, y = batch
    mean = (x * mask[..., None]).sum(axis=1) / jnp.maximum(mask.sum(axis=1, keepdims=True), 1)
    return jnp.sum((model(mean) - y) ** 2, axis=1)


class Texts:
    """Texts of 1 to 16 vectors, each with a vector to be predicted."""

    def __init__(self, examples):
        rng = np.random.default_rng(5)
        self.lengths = rng.integers(1, 17, examples)
        x = np.asarray(rng.normal(size=(examples, 16, 3)), np.float32)
        mask = np.asarray(np.arange(16) < self.lengths[:, None], np.float32)
        self._tokens = Arrays((x, mask), self.lengths)
        self._y = np.asarray(rng.normal(size=(examples, 2)), np.float32)

    def __len__(self):
        return len(self.lengths)

    def batch(self, rows, length):
        return (*self._tokens.batch(rows, length), self._y[rows])


def test_lots_of_random_sizes_and_lengths_are_compiled_a_few_times():
    model, schedule = Line(3, 2, nnx.Rngs(0)), Schedule(300, 30, 40)
    assert len({len(lot) for lot in lots_of(schedule)}) > 10
    options = Options(physical_batch=8, lengths=(4, 8, 16))
    outcome = train(model, bag, Texts(300), planned(schedule), SGD, options, secret=SECRET)
    assert outcome.compilations <= len(options.lengths) + 4 + 1
    assert outcome.steps == 40


def test_the_model_that_was_handed_in_stays_as_it_is():
    case = line_case(32, 6)
    before, model = flat(case[0]), case[0]
    outcome = run(case, planned(Schedule(32, 8, 3)), average=0.5)
    assert outcome.model is not model
    for name, value in flat(model).items():
        np.testing.assert_array_equal(value, before[name])
        assert (flat(outcome.model)[name] != value).all()


def test_only_what_is_chosen_is_trained():
    model, loss, arrays = line_case(32, 6)

    def trains(path, value):
        return isinstance(value, nnx.Param) and path[-1] == "kernel"

    outcome = run((model, loss, arrays), planned(Schedule(32, 8, 3)), trains=trains)
    np.testing.assert_array_equal(outcome.model.dense.bias.value[...], model.dense.bias.value[...])
    assert (outcome.model.dense.kernel[...] != model.dense.kernel[...]).all()


def test_diagnostics_show_the_lots_and_the_guarantee_names_them():
    model, loss, (x, y) = line_case(32, 7)
    schedule, shown = Schedule(32, 8, 4), {}
    outcome = run((model, loss, (x, y)), planned(schedule), diagnose=shown.__setitem__, optimizer=optax.sgd(0.0))
    losses = np.asarray(loss(model, (x, y)))
    for step, lot in enumerate(lots_of(schedule)):
        assert shown[step + 1]["records"] == len(lot)
        assert shown[step + 1]["loss"] == pytest.approx(losses[lot].mean(), rel=1e-5)
        assert shown[step + 1]["not_finite"] == 0
    assert outcome.guarantee.not_covered == (Exposure.DIAGNOSTICS,)
    assert "lot sizes" in outcome.guarantee.statement()
    assert run((model, loss, (x, y)), planned(schedule)).guarantee.not_covered == ()


def test_law_9_without_diagnostics_a_run_shows_nothing_of_its_lots(tmp_path, capfd, caplog):
    """Standard output and error, the log, what is published and what lies in the folder, whose arrays are the state."""
    case, schedule, shown, published = line_case(300, 7), Schedule(300, 100, 3), {}, []
    twin = run(case, planned(schedule), diagnose=shown.__setitem__)
    capfd.readouterr()
    caplog.clear()
    with caplog.at_level(logging.DEBUG):
        outcome = run(
            case,
            planned(schedule),
            folder=tmp_path / "run",
            evaluate=lambda model: {"score": 0.5},
            evaluate_every=1,
            publish=lambda history: published.append(history),
        )
    assert_same(flat(outcome.model), flat(twin.model))
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")
    assert not [record for record in caplog.records if record.name.startswith("dpnlp")]
    files = [path.read_text() for path in (tmp_path / "run").rglob("*") if path.is_file() and _is_json(path)]
    assert any('"score"' in text for text in files)
    text = "\n".join([caplog.text, repr(published), repr(outcome), *files])
    for seen in shown.values():
        for value in (seen["loss"], seen["loss"] * seen["records"]):
            assert f"{value:.4f}"[:-1] not in text
        assert seen["clipped"] > 0
        size = rf"(?<![\w.]){seen['records']:g}(?:\.0)?(?![\w.])"
        assert not re.search(size, repr(published) + repr(outcome.guarantee) + repr(outcome.history))
    record = next(json.loads(text) for text in files if '"secret"' in text)
    assert sorted(record) == ["history", "plan", "run", "secret"]


def _is_json(path):
    try:
        json.loads(path.read_text())
    except (UnicodeDecodeError, json.JSONDecodeError):
        return False
    return True


def test_a_broken_example_is_survived_counted_and_left_out():
    model, loss, (x, y) = line_case(32, 8)
    schedule, shown = Schedule(32, 16, 4), {}
    broken = x.copy()
    broken[5] = np.nan
    found = run((model, loss, (broken, y)), planned(schedule, 2.0, 0.0), diagnose=shown.__setitem__)
    lots = lots_of(schedule)
    assert [shown[step + 1]["not_finite"] for step in range(4)] == [int(5 in lot) for lot in lots]
    assert any(5 in lot for lot in lots)
    without = [lot[lot != 5] for lot in lots]
    assert_same(flat(found.model), follow(model, loss, Arrays((x, y)), without, SGD, 16, clip_norm=2.0)[-1])


def test_the_progress_bar_is_quiet_where_nobody_watches(capfd, monkeypatch):
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    with Progress(3) as bar:
        assert not bar.shown
        bar.advance(1.0)
    assert capfd.readouterr() == ("", "")


def test_the_progress_bar_shows_steps_and_epsilon_on_a_terminal(capfd, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    with Progress(3, 1) as bar:
        assert bar.shown
        bar.advance(1.25)
    out, err = capfd.readouterr()
    assert out == ""
    assert "2/3" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", err)
    assert "ε ≤ 1.25" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", err)


def test_a_folder_that_has_a_run_is_refused(tmp_path):
    case, plan = line_case(32, 9), planned(Schedule(32, 8, 1))
    run(case, plan, folder=tmp_path / "run")
    with pytest.raises(BadInput) as refusal:
        run(case, plan, folder=tmp_path / "run")
    assert str(refusal.value) == (
        f"folder = {tmp_path / 'run'}: there is a run in it already; resume it, or choose another folder."
    )


class Batchwise(nnx.Module):
    """A line behind a norm over the batch."""

    def __init__(self, rngs):
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.dense = nnx.Linear(3, 2, rngs=rngs)

    def __call__(self, x):
        return self.dense(self.norm(x))


def token_mean(model, batch):
    x, y = batch
    return jnp.sum((model(x) - y) ** 2, axis=1) / jnp.sum(jnp.abs(x))


CASE, SCHEDULE = line_case(32, 9), Schedule(32, 8, 2)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            lambda: run(CASE, planned(Schedule(32, 40, 2))),
            "lot_size = 40: it must not exceed the 32 records; choose a smaller lot.",
        ),
        (
            lambda: run(CASE, planned(SCHEDULE), physical=0),
            "physical_batch = 0: it must be a whole number of at least 1.",
        ),
        (
            lambda: run(CASE, planned(SCHEDULE), physical=12, placement=Placement(8)),
            "physical_batch = 12: it must be a multiple of the 8 devices that share it; use 16.",
        ),
        (
            lambda: run(CASE, planned(Schedule(30, 8, 2))),
            "records = 30: the data has 32 examples; plan for as many.",
        ),
        (
            lambda: run(CASE, planned(SCHEDULE), owners=np.arange(32) // 4),
            "records = 32: the data has 8 owners; plan for as many.",
        ),
        (
            lambda: run(CASE, planned(SCHEDULE, math.inf)),
            "clip_norm = inf: noise of 1.0 clip norms needs a finite one; give one, or no noise for a run without "
            "privacy.",
        ),
        (
            lambda: run(CASE, planned(SCHEDULE), trains=nnx.LoRAParam),
            "trains = LoRAParam: the model has no such parameter, so that nothing would be trained.",
        ),
        (
            lambda: run(CASE, planned(SCHEDULE), average=1.0),
            "average = 1.0: it must be at least 0 and below 1; 0.99 is usual, 0 takes none.",
        ),
        (
            lambda: run(CASE, planned(SCHEDULE), evaluate_every=-1),
            "evaluate_every = -1: it must be a whole number of at least 0.",
        ),
        (
            lambda: run(CASE, planned(SCHEDULE), checkpoint_every=0.5),
            "checkpoint_every = 0.5: it must be a whole number of at least 0.",
        ),
        (
            lambda: run(CASE, planned(SCHEDULE), lengths=(8, 4)),
            "lengths = (8, 4): it must be one or more lengths in ascending order; sort them.",
        ),
        (
            lambda: run(CASE, planned(SCHEDULE), optimizer=Optimizer(0.1, warmup_steps=2).build(2)),
            "warmup_steps = 2: it must be below the 2 steps; warm up faster.",
        ),
        (
            lambda: run((Batchwise(nnx.Rngs(0)), *CASE[1:]), planned(SCHEDULE)),
            "norm.mean: batch statistics mix the examples of a batch, so that no gradient is one example's alone; use "
            "a layer norm instead.",
        ),
        (
            lambda: run((CASE[0], lambda model, batch: CASE[1](model, batch).mean(), CASE[2]), planned(SCHEDULE)),
            "loss: it has the shape () for a batch of 4 examples, and must have a value for each; do not sum or "
            "average over the batch.",
        ),
        (
            lambda: run((CASE[0], token_mean, CASE[2]), planned(SCHEDULE)),
            "loss: the loss of an example changes with what else is in its batch; normalise it by the example's own "
            "tokens, and keep the batch on the first axis of every layer.",
        ),
    ],
)
def test_what_cannot_be_run_is_refused(wrong, sentence):
    with pytest.raises(BadInput) as refusal:
        wrong()
    assert str(refusal.value) == sentence


def test_more_devices_than_there_are_is_refused():
    assert jax.device_count() == 8
    with pytest.raises(BadInput, match="devices"):
        run(CASE, planned(SCHEDULE), physical=16, placement=Placement(16))


def test_a_plan_that_has_no_epsilon_is_refused_before_anything_is_spent():
    steps = []
    with pytest.raises(BadInput, match="rdp knows no bound for PoissonSampled"):
        run(
            CASE,
            Plan(SCHEDULE, Clipping(0.5), 1.0, 1e-6, Adjacency.REPLACE, Accountant.RDP),
            evaluate=lambda model: steps.append(1) or {},
            evaluate_every=1,
        )
    assert steps == []


def test_the_unit_of_a_run_is_the_plans():
    plan = Plan(SCHEDULE, Clipping(0.5), 1.0, 1e-6, Adjacency.REPLACE, unit=Unit.USER)
    guarantee = run(CASE, plan).guarantee
    assert (guarantee.unit, guarantee.adjacency, guarantee.delta) == (Unit.USER, Adjacency.REPLACE, 1e-6)


# What hosts and versions have in common


def test_hosts_with_secrets_of_their_own_agree_on_those_of_the_first(monkeypatch):
    """All hosts would otherwise draw other lots and other noise, of which nobody has accounted for the sum."""
    first = {}

    def broadcast(value):
        """As the first host sends it: each thing is told by its length."""
        return first.setdefault(len(value), np.array(value))

    monkeypatch.setattr(loop.jax, "process_count", lambda: 3)
    monkeypatch.setattr(loop, "broadcast_one_to_all", broadcast)
    plan = planned(Schedule(32, 8, 2))
    records = [loop._fresh(plan, Secret.drawn(FixedSeed(host)), False, False, None, ()) for host in range(3)]
    assert len({record.secret for record in records}) == 1
    assert len({record.run for record in records}) == 1
    assert records[0].secret == Secret.drawn(FixedSeed(0))
    assert len({Secret.drawn(FixedSeed(host)) for host in range(3)}) == 3
    fresh = [loop._fresh(plan, None, False, False, None, ()) for _ in range(3)]
    assert len({record.secret.value for record in fresh}) == 1


@pytest.mark.parametrize("library", [np, jax], ids=["numpy", "jax"])
def test_a_run_goes_on_only_with_the_libraries_that_draw_what_they_drew(tmp_path, monkeypatch, library):
    case, plan = line_case(32, 0), planned(Schedule(32, 8, 4))
    stop = iter([False, True])
    with pytest.raises(KeyboardInterrupt):
        run(case, plan, folder=tmp_path / "kept", checkpoint_every=1, interrupted=lambda: next(stop))
    monkeypatch.setattr(library, "__version__", "0.0.1")
    with pytest.raises(BadInput, match=rf"{library.__name__} = 0.0.1: the run in .* was planned with"):
        run(case, plan, folder=tmp_path / "kept", resume=True)


def test_law_9_what_a_run_publishes_is_the_evaluation_and_nothing_that_its_lots_showed():
    """Where nothing is learned and the evaluation always says the same, no coin may be seen."""
    case, plan, shown = line_case(32, 0), planned(Schedule(32, 8, 4)), []
    for seed in range(3):
        history = []
        found = run(
            case,
            plan,
            optax.sgd(0.0),
            secret=Secret.drawn(FixedSeed(seed)),
            evaluate_every=1,
            evaluate=lambda model: {"score": 1.0},
            publish=history.append,
        )
        shown.append((history, found.history, found.guarantee, found.steps))
    assert shown[0] == shown[1] == shown[2]
    assert [entry.scores for entry in shown[0][1]] == [{"score": 1.0}] * 4


@pytest.mark.parametrize(
    ("needed", "lengths"),
    [(1, (16,)), (16, (16,)), (17, (16, 32)), (33, (16, 32, 64)), (64, (16, 32, 64)), (65, (16, 32, 64, 128))],
)
def test_texts_are_padded_to_powers_of_two_as_far_as_any_needs_them(needed, lengths):
    data = Arrays(np.zeros((2, needed), np.float32), np.array([1, needed]))
    assert Options(4).layout(data, planned(Schedule(2, 2, 1))).lengths == lengths


@pytest.mark.parametrize(
    ("physical", "lot", "devices", "size"),
    [(16, 5, 1, 5), (16, 5, 4, 8), (31, 99, 1, 31), (32, 99, 1, 8), (39, 99, 1, 9), (72, 99, 2, 18)],
)
def test_no_batch_is_larger_than_a_lot_and_on_a_cpu_large_ones_are_quartered(physical, lot, devices, size):
    options = Options(physical, placement=Placement(devices))
    layout = options.layout(Arrays(np.zeros((99, 1), np.float32)), planned(Schedule(99, lot, 1)))
    assert layout.physical_batch == size


def test_rounding_is_bounded_for_every_width_of_an_owner_and_for_twice_the_lot(monkeypatch):
    asked, widths = [], []
    monkeypatch.setattr(loop.rounding, "of_lot", lambda batches, records: asked.append((batches, records)) or 0.0)
    contribution = type("", (), {"rounding": lambda self, *given: widths.append(given[-2:]) or 0.0})()
    plan = planned(Schedule(4000, 100, 1))
    object.__setattr__(plan, "contribution", contribution)
    data, owners = Arrays(np.zeros((4000, 1), np.float32)), Owners(np.arange(4000), 5, SECRET)
    loop._refuse_rounding(None, None, data, plan, loop.Layout(16, (8, 32)), owners)
    assert widths == [(16, 1), (8, 2), (4, 4), (3, 5)]
    lot = 2 * 100 + 64
    assert asked == [(sum(lot / count + 2 for count, _ in widths), lot)]
