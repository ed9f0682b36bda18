"""Checkpoints bring back every bit, refuse what does not fit, survive whatever a kill leaves, and keep the secret."""

import gc
import itertools
import json
import logging
import re
import resource
import shutil
import stat
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from dpnlp.accounting.ledger import BudgetExceeded, Ledger
from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.checks import BadInput
from dpnlp.data.arrays import Arrays
from dpnlp.guarantee import Adjacency, NoiseSource, Unit
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.models.layers import Dropout, Linear
from dpnlp.training import checkpoints as checkpoints_module
from dpnlp.training.checkpoints import Checkpoints, Evaluation, Record
from dpnlp.training.clipping import Clipping
from dpnlp.training.loop import Charge, Options, train
from dpnlp.training.parameters import apart
from dpnlp.training.plan import Plan
from dpnlp.training.secret import Secret
from dpnlp.training.sharding import Placement
from dpnlp.training.step import Step

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""Orbax leaves its coroutines lying about when it comes upon a damaged file."""

SECRET = Secret(bytes(range(7, 39)), NoiseSource.OS_ENTROPY)
PLAN = {"noise_multiplier": 1.0, "schedule": {"records": 60, "sampling": Sampling.POISSON, "largest_lot": None}}
RECORD = Record("0123456789abcdef", SECRET, PLAN, (Evaluation(3, {"loss": 0.1 + 0.2}),))


@pytest.fixture(autouse=True, scope="module")
def left_tidy():
    """No other module sees those coroutines."""
    yield
    gc.collect()


class Net(nnx.Module):
    """16 numbers to 8 to 1; the devices can share the wide axis of `up` evenly."""

    def __init__(self, hidden=8):
        rngs = nnx.Rngs(0)
        self.up = Linear(16, hidden, rngs=rngs)
        self.dropout = Dropout(0.2)
        self.down = Linear(hidden, 1, rngs=rngs)

    def __call__(self, x):
        return self.down(self.dropout(jnp.tanh(self.up(x))))


def loss(model, batch):
    x, y = batch
    return jnp.sum((model(x) - y) ** 2, axis=-1)


def planned(**changes):
    schedule = {"records": 24, "lot_size": 4, "steps": 4, "sampling": Sampling.CYCLIC_POISSON, "bands": 3} | changes
    return Plan(Schedule(**schedule), Clipping(1.0), 1.0, 1e-5, Adjacency.ADD_REMOVE)


def started(optimizer=None, placement=None, decay=0.9, hidden=8, dtype=jnp.float32, seed=0):
    """A state as in the middle of a run: every leaf full of random bits, of which some are no numbers or not normal."""
    parts = apart(Net(hidden))
    parameters = {name: value.astype(dtype) for name, value in parts.parameters.items()}
    optimizer, placement = optimizer or optax.adam(0.1), placement or Placement()
    state = Step(loss, parts.frame, parts.rest, planned(), optimizer, placement, decay).start(parameters)
    rng = np.random.default_rng(seed)

    def filled(leaf):
        return jax.device_put(np.frombuffer(rng.bytes(leaf.nbytes), leaf.dtype).reshape(leaf.shape), leaf.sharding)

    return jax.tree.map(filled, state)


def assert_identical(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (one.dtype, one.shape, one.sharding) == (other.dtype, other.shape, other.sharding)
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run" / "checkpoints"


def saved(folder, *steps, **options):
    """A folder as another process left it, with a checkpoint of each step, the state of which is made from its step."""
    checkpoints = Checkpoints(folder)
    for step in steps:
        checkpoints.save(step, started(seed=step, **options), RECORD)
    checkpoints.close()


def loaded(folder, like=None, plan=PLAN):
    checkpoints = Checkpoints(folder)
    try:
        return checkpoints.load(started(seed=99) if like is None else like, plan)
    finally:
        checkpoints.close()


# What is saved is what is loaded


@pytest.mark.parametrize("placement", [Placement(), Placement(8), Placement(8, shard_parameters=True)], ids=repr)
def test_every_bit_comes_back_where_it_was(folder, placement):
    saved(folder, 3, placement=placement)
    state = started(seed=3, placement=placement)
    assert len(state.optimizer[0].mu) == len(state.average) == len(state.noise.past) == 4
    assert state.parameters["up.kernel"].sharding.is_fully_replicated is not placement.shard_parameters
    step, found, record = loaded(folder, started(seed=99, placement=placement))
    assert (step, record) == (3, RECORD)
    assert_identical(found, state)


def test_a_run_may_go_on_on_other_devices(folder):
    saved(folder, 3)
    there = Placement(8, shard_parameters=True)
    assert_identical(loaded(folder, started(seed=99, placement=there))[1], started(seed=3, placement=there))


def test_the_last_one_is_loaded_and_the_last_two_are_kept(folder):
    saved(folder, 0, 3, 6, 20, 100)
    assert sorted(path.name for path in folder.iterdir()) == ["100", "20"]
    step, state, _ = loaded(folder)
    assert step == 100
    assert_identical(state, started(seed=100))


def test_the_same_step_is_not_saved_twice(folder):
    saved(folder, 3)
    with pytest.raises(BadInput, match=r"the checkpoint of step 3 could not be written \(.*already exists"):
        saved(folder, 3)


@pytest.mark.parametrize("kind", [float, np.float32, np.float64, jnp.float32])
def test_scores_of_any_kind_are_written(folder, kind):
    record = RECORD.evaluated(6, {"loss": kind(0.5), "worst": kind(float("inf"))})
    assert record.history[1] == Evaluation(6, {"loss": 0.5, "worst": float("inf")})
    checkpoints = Checkpoints(folder)
    checkpoints.save(6, started(), record)
    checkpoints.close()
    assert loaded(folder)[2] == record


# What does not fit is refused


def refusal(folder, like=None, plan=PLAN):
    with pytest.raises(BadInput) as refused:
        loaded(folder, like, plan)
    return str(refused.value)


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        (PLAN | {"noise_multiplier": 0.5}, "noise_multiplier = 0.5: the run in {} was planned with 1.0"),
        (PLAN | {"schedule": PLAN["schedule"] | {"records": 61}}, "schedule.records = 61: {} 60"),
        (PLAN | {"schedule": PLAN["schedule"] | {"sampling": "shuffled"}}, "schedule.sampling = shuffled: {} poisson"),
        (PLAN | {"schedule": PLAN["schedule"] | {"largest_lot": 9}}, "schedule.largest_lot = 9: {} None"),
        (PLAN | {"diagnostics": True}, "diagnostics = True: {} None"),
    ],
)
def test_another_plan_is_refused_by_the_field_that_differs(folder, changed, name):
    saved(folder, 3)
    planned_with = name.format(folder if "the run in" in name else f"the run in {folder} was planned with")
    assert refusal(folder, plan=changed) == (
        f"{planned_with}; a plan cannot change once it is charged. Resume with the same one, or start another run in "
        "another folder."
    )
    assert loaded(folder)[0] == 3, "a refusal leaves the checkpoint as it is"


@pytest.mark.parametrize(
    ("like", "differs"),
    [
        ({"hidden": 16}, ("average/down.kernel", "float32[8, 1]", "float32[16, 1]")),
        ({"dtype": jnp.bfloat16}, ("average/down.bias.value", "float32[1]", "bfloat16[1]")),
        ({"decay": 0.0}, ("average/down.bias.value", "float32[1]", "nothing")),
        ({"optimizer": optax.sgd(0.1)}, ("optimizer/0/count", "int32[]", "nothing")),
        ({"optimizer": optax.sgd(0.1, momentum=0.9)}, ("optimizer/0/count", "int32[]", "nothing")),
        (
            {"optimizer": optax.chain(optax.scale_by_adam(), optax.scale_by_schedule(lambda step: 1.0))},
            ("optimizer/1/count", "nothing", "int32[]"),
        ),
    ],
    ids=["model", "type", "average", "optimizer", "momentum", "schedule"],
)
def test_another_model_or_optimizer_is_refused_by_the_array_that_differs(folder, like, differs):
    saved(folder, 3)
    name, was, now = differs
    assert refusal(folder, started(**like)) == (
        f"{name}: the checkpoint in {folder} has {was} where the model and its optimizer have {now}; resume with the "
        "model, optimizer and average of its start."
    )
    assert loaded(folder)[0] == 3


def test_an_empty_folder_has_nothing_to_resume(folder):
    assert Checkpoints(folder).last is None
    assert refusal(folder) == f"resume: there is no checkpoint in {folder}; start the run without resuming."


# What a kill or a broken disk leaves


def test_what_was_not_committed_is_cleared_away(folder):
    saved(folder, 0, 3)
    for unfinished in ("6.orbax-checkpoint-tmp", "6.orbax-checkpoint-tmp-1700000000"):
        shutil.copytree(folder / "3", folder / unfinished)
    (folder / "6.orbax-checkpoint-tmp" / "record" / "metadata").unlink()
    step, state, _ = loaded(folder)
    assert step == 3
    assert_identical(state, started(seed=3))
    saved(folder, 6)
    assert sorted(path.name for path in folder.iterdir()) == ["3", "6"], "with them a secret would stay"


def spoiled(path, how):
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: {"empty": 0, "half": path.stat().st_size // 2}[how]])


@pytest.mark.parametrize("how", ["gone", "empty", "half"])
def test_a_damaged_file_is_survived_whichever_it_is(folder, caplog, how):
    """From here or from the one before, but exactly; then the run saves this step anew."""
    saved(folder, 3, 6)
    whole = folder.with_name("whole")
    shutil.copytree(folder, whole)
    passed_over = set()
    for file in sorted(path.relative_to(whole) for path in whole.glob("6/**/*") if path.is_file()):
        shutil.rmtree(folder)
        shutil.copytree(whole, folder)
        spoiled(folder / file, how)
        caplog.clear()
        step, state, record = loaded(folder)
        assert_identical(state, started(seed=step))
        assert record == RECORD
        passed_over.add(file.parts[1])
        assert step == 3
        if (file.name, how) == ("seal.json", "gone"):
            assert not caplog.records, "it was never finished"
        else:
            (said,) = (entry.getMessage() for entry in caplog.records if entry.name == "dpnlp.training.checkpoints")
            pattern = (
                rf"{folder}: the checkpoint of step 6 is damaged \(.+\), so that the run goes on from that of step 3; "
                r"leave data and settings as they were, for what was published of the steps between will come with the "
                r"same noise again\."
            )
            assert re.fullmatch(pattern, said)
    saved(folder, 6)
    assert loaded(folder)[0] == 6
    assert passed_over >= {"record", "state", "seal.json"}


def spots(file, rng, many):
    """Places of bits in a file: the first and the last, and some between."""
    bits = 8 * file.stat().st_size
    return sorted({0, bits - 1, *rng.integers(bits, size=many).tolist()}) if bits else []


def test_a_bit_that_flips_is_found_wherever_it_is(folder, caplog):
    """TensorStore reads most of them without a word, and gives another model."""
    saved(folder, 3, 6)
    rng, files = np.random.default_rng(0), sorted(path for path in folder.glob("6/**/*") if path.is_file())
    assert any("seal" in file.name for file in files)
    wrong = 0
    for file in files:
        whole = file.read_bytes()
        for bit in spots(file, rng, 1):
            flipped = bytearray(whole)
            flipped[bit // 8] ^= 1 << bit % 8
            file.write_bytes(flipped)
            checkpoints = Checkpoints(folder)
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(checkpoints._manager, "delete", lambda step: None)
                step, state, record = checkpoints.load(started(), PLAN)
            checkpoints.close()
            assert step == 3, f"{file}, bit {bit}"
            assert record == RECORD
            wrong += 1
        file.write_bytes(whole)
    assert wrong > len(files)
    assert_identical(state, started(seed=3))
    assert loaded(folder)[0] == 6


def test_a_file_more_or_less_is_damage_too(folder):
    saved(folder, 3, 6)
    (folder / "6" / "more").touch()
    assert loaded(folder)[0] == 3
    saved(folder, 6)
    next((folder / "6" / "state").rglob("manifest*")).unlink()
    assert loaded(folder)[0] == 3


def test_what_was_never_sealed_was_never_finished(folder, caplog):
    saved(folder, 3, 6)
    (folder / "6" / "seal.json").unlink()
    checkpoints = Checkpoints(folder)
    assert checkpoints.last == 3
    checkpoints.close()
    assert loaded(folder)[0] == 3
    assert not caplog.records
    assert not (folder / "6").exists()
    saved(folder, 6)
    assert loaded(folder)[0] == 6


def test_a_first_checkpoint_that_was_never_sealed_is_none(folder):
    saved(folder, 0)
    (folder / "0" / "seal.json").unlink()
    assert Checkpoints(folder).last is None
    assert list(folder.iterdir()) == []


def test_a_folder_without_its_commit_is_passed_over(folder):
    saved(folder, 3)
    (folder / "6").mkdir()
    assert loaded(folder)[0] == 3
    shutil.copytree(folder / "3" / "state", folder / "9" / "state")
    assert loaded(folder)[0] == 3


def test_nothing_is_deleted_while_nothing_can_be_read(folder):
    saved(folder, 3, 6)
    for step in (3, 6):
        spoiled(folder / f"{step}" / "record" / "metadata", "half")
    before = sorted(folder.rglob("*"))
    sentence = refusal(folder)
    assert re.fullmatch(
        rf"{folder}: every checkpoint is damaged, that of step 6 too \(.+\); restore a copy of the folder, or start "
        r"another run in another one, which costs its ε once more\.",
        sentence,
    )
    assert sorted(folder.rglob("*")) == before


def test_all_of_a_checkpoint_is_on_the_disk_before_it_is_sealed(folder, monkeypatch):
    """Each file, each folder, and the folder that names the checkpoint: a power failure takes none of them back."""
    synced, sealed = set(), []

    def write(file, content, **how):
        there = set((folder / "6").rglob("*"))
        assert {folder, folder / "6", *there} == synced
        sealed.append((file, len(there)))

    saved(folder, 3)
    monkeypatch.setattr(checkpoints_module, "fsync_path", synced.add)
    monkeypatch.setattr(checkpoints_module, "write", write)
    saved(folder, 6)
    ((seal, files),) = sealed
    assert seal == folder / "6" / "seal.json"
    assert files > 5


def test_a_full_disk_is_one_sentence_and_leaves_the_last_good_one(folder):
    saved(folder, 3)
    checkpoints = Checkpoints(folder)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, limits[1]))
    try:
        with pytest.raises(BadInput) as refused:
            checkpoints.save(6, started(seed=6), RECORD)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        checkpoints.close()
    assert re.fullmatch(
        rf"{folder}: the checkpoint of step 6 could not be written \(.+\); make room on the disk, or whatever else it "
        r"lacks, and resume the run\.",
        str(refused.value),
    )
    step, state, _ = loaded(folder)
    assert step == 3
    assert_identical(state, started(seed=3))
    saved(folder, 6)
    assert loaded(folder)[0] == 6


# Who may see it, and who may use it


@pytest.mark.parametrize("before", [None, 0o755, 0o777])
def test_nobody_else_may_read_the_folder(folder, before):
    if before is not None:
        folder.mkdir(parents=True)
        folder.chmod(before)
    saved(folder, 3)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_others_may_read_whatever_we_do_is_refused(folder, monkeypatch):
    folder.mkdir(parents=True, mode=0o755)
    monkeypatch.setattr(type(folder), "chmod", lambda path, mode: None)
    with pytest.raises(BadInput) as refused:
        Checkpoints(folder)
    assert str(refused.value) == (
        f"folder = {folder}: others may read it, and with the secret in it they could take the noise off; choose one "
        "that belongs to you, on a disk that keeps permissions."
    )


def test_a_folder_with_other_things_is_refused_and_left_alone(folder):
    folder.mkdir(parents=True, mode=0o755)
    (folder / "thesis.tex").touch()
    with pytest.raises(BadInput) as refused:
        Checkpoints(folder)
    assert str(refused.value) == (
        f"folder = {folder}: there are other things in it, such as thesis.tex; give the checkpoints a folder of their "
        "own."
    )
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


_CLAIMS = """
import sys
from pathlib import Path
from dpnlp.atomic import alone
from dpnlp.checks import BadInput
try:
    with alone(Path(sys.argv[1]), "taken"):
        print("mine", flush=True)
        sys.stdin.read()
except BadInput as error:
    print(error)
"""


def test_two_processes_do_not_train_in_one_folder(folder):
    said = f"folder = {folder}: another process is training in it; wait for it, or choose another folder."

    def other():
        arguments = [sys.executable, "-c", _CLAIMS, folder]
        return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    checkpoints = Checkpoints(folder)
    with other() as process:
        assert process.stdout.readline() == "taken\n"
    checkpoints.close()
    with other() as process:
        assert process.stdout.readline() == "mine\n"
        (folder / "3.orbax-checkpoint-tmp").mkdir()
        with pytest.raises(BadInput) as refused:
            Checkpoints(folder)
        assert (folder / "3.orbax-checkpoint-tmp").exists(), "what the other one is just writing"
        process.kill()
    assert str(refused.value) == said
    saved(folder, 3)


def test_remove_leaves_nothing_and_closing_twice_does_no_harm(folder):
    saved(folder, 3, 6)
    shutil.copytree(folder / "3", folder / "9.orbax-checkpoint-tmp")
    checkpoints = Checkpoints(folder)
    checkpoints.close()
    checkpoints.remove()
    checkpoints.close()
    assert list(folder.parent.iterdir()) == []


# In a run


def run(folder, plan=None, options=(), **others):
    rng = np.random.default_rng(0)
    data = Arrays((rng.normal(size=(24, 16)).astype(np.float32), rng.normal(size=(24, 1)).astype(np.float32)))
    plan = plan or planned(sampling=Sampling.POISSON, bands=1)
    settings = Options(**{"physical_batch": 3, "checkpoint_every": 2, "average": 0.9} | dict(options))
    return train(Net(), loss, data, plan, optax.adam(0.1), settings, folder=folder, **others)


def weights(outcome):
    return {name: np.asarray(value).tobytes() for name, value in apart(outcome.model).parameters.items()}


def test_a_run_that_never_came_to_its_first_checkpoint_starts_anew(folder):
    whole = run(None, secret=Secret.drawn(FixedSeed(1)))
    folder.mkdir(parents=True)
    (folder / "0.orbax-checkpoint-tmp").mkdir()
    outcome = run(folder, secret=Secret.drawn(FixedSeed(1)), resume=True)
    assert (outcome.steps, weights(outcome)) == (4, weights(whole))


def test_a_run_goes_on_with_its_own_secret(folder):
    whole = run(folder, planned(), secret=SECRET)
    shutil.rmtree(folder / "4")
    again = run(folder, planned(), secret=Secret.drawn(FixedSeed(1)), resume=True)
    assert weights(again) == weights(whole)
    assert again.guarantee.noise_source is NoiseSource.OS_ENTROPY


class Crash(BaseException):
    """The end of a process, as far as one can have it without a process."""


def crashing(number, function):
    """Crashes when it is called for the `number`th time; 0 is never."""
    calls = itertools.count(1)

    def called(*arguments):
        if next(calls) == number:
            raise Crash
        return function(*arguments)

    return called


def test_a_run_that_crashes_again_and_again_goes_on_and_pays_once(tmp_path):
    def run_in(place, evaluate=0, publish=0):
        def published(history):
            assert (tmp_path / place / "checkpoints" / str(history[-1].step)).exists(), "on the disk before it is told"
            told.append(history)

        return run(
            tmp_path / place / "checkpoints",
            options={"evaluate_every": 2},
            secret=Secret.drawn(FixedSeed(1)),
            charge=Charge(ledger.enter, "run"),
            evaluate=crashing(evaluate, lambda model: {"sum": model.up.kernel[...].sum()}),
            publish=crashing(publish, published),
            resume=True,
        )

    told, ledger = [], Ledger(tmp_path / "whole.ledger")
    whole = run_in("whole")
    assert told == [whole.history[:1], whole.history]
    told, ledger = [], Ledger(tmp_path / "broken.ledger")
    ledger.set_budget(whole.guarantee.epsilon, 1e-5, Unit.EXAMPLE, Adjacency.ADD_REMOVE)
    for crash in ({"evaluate": 1}, {"publish": 1}, {"evaluate": 1}, {"evaluate": 1}):
        with pytest.raises(Crash):
            run_in("broken", **crash)
    again = run_in("broken")
    assert (weights(again), again.history, again.guarantee) == (weights(whole), whole.history, whole.guarantee)
    assert told[-1] == whole.history
    assert all(history == whole.history[: len(history)] for history in told), "what was published never changes"
    assert len(ledger.read().releases) == 1


def test_a_run_that_is_over_can_be_asked_for_its_outcome_again(folder):
    def score(model):
        return {"length": sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(nnx.state(model)))}

    whole = run(folder, evaluate=score)
    again = run(folder, evaluate=score, resume=True)
    assert (again.steps, again.history, again.guarantee) == (4, whole.history, whole.guarantee)
    assert weights(again) == weights(whole)


def test_what_was_saved_but_not_published_is_published_when_the_run_goes_on(folder):
    whole = run(folder, evaluate=lambda model: {"one": 1.0})
    told = []
    run(folder, evaluate=lambda model: {"one": 1.0}, publish=told.append, resume=True)
    assert told == [whole.history]


def test_a_run_that_was_to_stop_stops_also_if_it_crashed_before_it_did(folder):
    settings = {"options": {"evaluate_every": 2}, "evaluate": lambda model: {"one": 1.0}, "resume": True}
    with pytest.raises(Crash):
        run(folder, stop=crashing(1, lambda history: True), **settings)
    assert run(folder, stop=lambda history: True, **settings).steps == 2


def test_a_run_is_not_overwritten_by_another(folder):
    run(folder)
    with pytest.raises(BadInput) as refused:
        run(folder)
    assert str(refused.value) == (
        f"folder = {folder}: there is a run in it already; resume it, or choose another folder."
    )


def test_a_run_with_other_steps_or_diagnostics_is_not_the_same(folder):
    run(folder)
    with pytest.raises(BadInput, match=r"^schedule\.steps = 5: the run in .* was planned with 4; a plan cannot change"):
        run(folder, planned(sampling=Sampling.POISSON, bands=1, steps=5), resume=True)
    with pytest.raises(BadInput, match=r"^diagnostics = True: the run in .* was planned with False; a plan cannot"):
        run(folder, resume=True, diagnose=lambda step, seen: None)


def test_a_run_that_the_budget_refuses_leaves_no_secret(folder, tmp_path):
    ledger = Ledger(tmp_path / "data.ledger")
    ledger.set_budget(0.1, 1e-5, Unit.EXAMPLE, Adjacency.ADD_REMOVE)
    with pytest.raises(BudgetExceeded):
        run(folder, charge=Charge(ledger.enter, "run"))
    assert not folder.exists()


def test_a_run_that_fails_lets_go_of_its_folder(folder):
    """Also where somebody still looks at what went wrong."""

    def fails(model):
        raise RuntimeError("the disk is full")

    whole = run(folder.with_name("whole"))
    with pytest.raises(RuntimeError, match="the disk is full") as failed:
        run(folder, evaluate=fails)
    assert run(folder, resume=True).steps == whole.steps
    assert failed.traceback


def test_the_secret_is_in_the_checkpoints_alone(folder, tmp_path, caplog, capfd):
    ledger, metrics = Ledger(tmp_path / "data.ledger"), tmp_path / "metrics.jsonl"
    caplog.set_level(logging.DEBUG)
    published = []
    outcome = run(
        folder,
        secret=SECRET,
        charge=Charge(ledger.enter, "run"),
        evaluate=lambda model: {"sum": model.up.kernel[...].sum()},
        publish=lambda history: metrics.write_text(repr(published.append(history) or history)),
        diagnose=lambda step, seen: published.append(seen),
    )
    value = SECRET.value
    shown = (value, value.hex().encode(), repr(value).encode(), repr(list(value)).encode(), repr(tuple(value)).encode())

    def gives_away(data):
        return any(form in data for form in shown)

    files = {path.relative_to(tmp_path).parts for path in tmp_path.rglob("*") if path.is_file()}
    telling = {parts for parts in files if gives_away(tmp_path.joinpath(*parts).read_bytes())}
    assert len(files) > len(telling) > 0
    assert {parts[:2] + parts[3:] for parts in telling} == {("run", "checkpoints", "record", "metadata")}
    printed = "".join(capfd.readouterr())
    for text in (repr(outcome), repr(published), repr(RECORD), str(RECORD), f"{SECRET}", caplog.text, printed):
        assert not gives_away(text.encode())
    assert gives_away(json.dumps(RECORD.to_json()).encode()), "the test would notice"
