"""Checkpoints: all that a run needs to go on as if it had never stopped, in one commit (law 7).

Orbax writes beside the last one and renames when all is written, so that a kill at any moment leaves the last good one.
A seal, written last, has the hash of every file: one without it was never finished, and one that does not fit it was
damaged. Either is passed over for the one before it, from which the same steps are made again, with the same lots and
the same noise. The secret lies in it, by which the noise could be taken off: nobody but the user may read
the folder, and it has to go when the run is done.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import jax
import orbax.checkpoint as ocp

from dpnlp.atomic import alone, fsync_path, write
from dpnlp.checks import BadInput
from dpnlp.foreign import text_in
from dpnlp.guarantee import NoiseSource
from dpnlp.training.secret import Secret

Tree = TypeVar("Tree")

_UNFINISHED = ".orbax-checkpoint-tmp"
"""In the name of what Orbax has not committed yet."""
_SEAL = "seal.json"


@dataclass(frozen=True)
class Evaluation:
    """What was measured after a step."""

    step: int
    scores: Mapping[str, float]


@dataclass(frozen=True)
class Record:
    """What a checkpoint holds besides arrays. `run` is the id under which the ledger has charged the run."""

    run: str
    secret: Secret
    plan: Mapping[str, Any]
    history: tuple[Evaluation, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The record as Orbax writes it."""
        secret = {"value": self.secret.value.hex(), "kind": self.secret.kind}
        history = [asdict(evaluation) for evaluation in self.history]
        return {**asdict(self), "secret": secret, "history": history}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "Record":
        """What `to_json` wrote."""
        secret = Secret(bytes.fromhex(entry["secret"]["value"]), NoiseSource(entry["secret"]["kind"]))
        history = tuple(Evaluation(**evaluation) for evaluation in entry["history"])
        return cls(entry["run"], secret, entry["plan"], history)

    def evaluated(self, step: int, scores: Mapping[str, float]) -> "Record":
        """The record with one more evaluation. A score may be a number of NumPy or JAX; JSON takes Python's alone."""
        plain = {name: float(score) for name, score in scores.items()}
        return replace(self, history=(*self.history, Evaluation(step, plain)))


class Checkpoints:
    """The checkpoints of one run, in a folder of their own, for one process at a time. Only the last two are kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._first = jax.process_index() == 0  # of the processes of a run on many hosts, which share the folder
        self._alone = ExitStack()
        if self._first:
            self._claim()
        self._manager = ocp.CheckpointManager(
            self.folder,
            item_handlers={"state": ocp.StandardCheckpointHandler(), "record": ocp.JsonCheckpointHandler()},
            options=ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False),
        )

    @property
    def last(self) -> int | None:
        """The step of the last one that was finished."""
        return max(filter(self._is_sealed, self._manager.all_steps()), default=None)

    def save(self, step: int, state: Any, record: Record) -> None:
        """Commits the state after `step` steps; when this returns, it is on the disk."""
        arrays, entry = ocp.args.StandardSave(_named(state)), ocp.args.JsonSave(record.to_json())
        try:
            self._manager.save(step, args=ocp.args.Composite(state=arrays, record=entry), force=True)
            if self._first:
                written = self.folder / str(step)
                for path in (*written.rglob("*"), written, self.folder):
                    fsync_path(path)
                write(written / _SEAL, json.dumps(_hashes(written)), mode=0o600)
        except (OSError, ValueError, BadInput) as error:
            raise BadInput(
                f"{self.folder}: the checkpoint of step {step} could not be written ({_short(error)}); make room on "
                "the disk, or whatever else it lacks, and resume the run."
            ) from error

    def load(self, like: Tree, plan: Mapping[str, Any]) -> tuple[int, Tree, Record]:
        """The last good one: its step, a state like the one given, and its record. Another model or plan is refused."""
        damaged: dict[int, Exception] = {}
        steps = sorted(self._manager.all_steps(), reverse=True)
        unfinished = [step for step in steps if not self._is_sealed(step)]
        for step in steps:
            if step in unfinished:
                continue
            try:
                state, record = self._read(step, like, plan)
            except BadInput:
                raise
            except Exception as error:  # Orbax and TensorStore raise nearly anything for a damaged file.
                damaged[step] = error
                continue
            for later in unfinished:
                self._manager.delete(later)
            for later, why in damaged.items():
                self._manager.delete(later)
                logging.getLogger(__name__).warning(
                    f"{self.folder}: the checkpoint of step {later} is damaged ({_short(why)}), so that the run goes "
                    f"on from that of step {step}; leave data and settings as they were, for what was published of the "
                    "steps between will come with the same noise again."
                )
            return step, state, record
        damaged |= {step: ValueError(f"it has no {_SEAL}") for step in unfinished}
        if not damaged:
            raise BadInput(f"resume: there is no checkpoint in {self.folder}; start the run without resuming.")
        newest = max(damaged)
        raise BadInput(
            f"{self.folder}: every checkpoint is damaged, that of step {newest} too ({_short(damaged[newest])}); "
            "restore a copy of the folder, or start another run in another one, which costs its ε once more."
        )

    def remove(self) -> None:
        """Deletes all of them, and with them the secret."""
        self._manager.close()
        if self._first:
            shutil.rmtree(self.folder)
        self._alone.close()

    def close(self) -> None:
        """Ends what runs in the background, and lets another process have the folder."""
        self._manager.close()
        self._alone.close()

    def _claim(self) -> None:
        """Makes the folder the user's and this process's alone."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        others = [path.name for path in self.folder.iterdir() if not _ours(path.name)]
        if others:
            raise BadInput(
                f"folder = {self.folder}: there are other things in it, such as {min(others)}; give the checkpoints a "
                "folder of their own."
            )
        try:
            self.folder.chmod(0o700)
            private = self.folder.stat().st_mode & 0o077 == 0
        except PermissionError:
            private = False
        if not private:
            raise BadInput(
                f"folder = {self.folder}: others may read it, and with the secret in it they could take the noise off; "
                "choose one that belongs to you, on a disk that keeps permissions."
            )
        busy = f"folder = {self.folder}: another process is training in it; wait for it, or choose another folder."
        self._alone.enter_context(alone(self.folder, busy))
        unfinished = [*self.folder.glob(f"*{_UNFINISHED}*")]
        if [path.name for path in self.folder.iterdir() if path.name.isdecimal()] == ["0"] and not self._is_sealed(0):
            unfinished.append(self.folder / "0")  # The first one was never finished, so that nothing began.
        for path in unfinished:
            shutil.rmtree(path, ignore_errors=True)

    def _is_sealed(self, step: int) -> bool:
        return (self.folder / str(step) / _SEAL).exists()

    def _read(self, step: int, like: Tree, plan: Mapping[str, Any]) -> tuple[Tree, Record]:
        _refuse_damaged(self.folder / str(step))
        items = self._manager.restore(step, args=ocp.args.Composite(record=ocp.args.JsonRestore()))
        record = Record.from_json(items.record)
        self._refuse_other_plan(record.plan, plan)
        expected = _named(like)
        self._refuse_other_model(step, expected)
        abstract = {
            name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)  # type: ignore[no-untyped-call]
            for name, leaf in expected.items()
        }
        found = self._manager.restore(step, args=ocp.args.Composite(state=ocp.args.StandardRestore(abstract))).state
        return jax.tree.unflatten(jax.tree.structure(like), [found[name] for name in expected]), record

    def _refuse_other_plan(self, found: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
        for name, was, now in _differences(found, plan):
            raise BadInput(
                f"{name} = {now}: the run in {self.folder} was planned with {was}; a plan cannot change once it is "
                "charged. Resume with the same one, or start another run in another folder."
            )

    def _refuse_other_model(self, step: int, expected: Mapping[str, Any]) -> None:
        tree = self._manager.item_metadata(step)["state"].tree
        found = {name: _kind(leaf) for name, leaf in tree.items()}
        for name, was, now in _differences(found, {name: _kind(leaf) for name, leaf in expected.items()}):
            raise BadInput(
                f"{name}: the checkpoint in {self.folder} has {was or 'nothing'} where the model and its optimizer "
                f"have {now or 'nothing'}; resume with the model, optimizer and average of its start."
            )


def _hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file in a checkpoint, by its place."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != _SEAL:
            with path.open("rb") as file:
                found[path.relative_to(folder).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _refuse_damaged(folder: Path) -> None:
    """Refuses a checkpoint that is not what it was when it was sealed."""
    sealed = json.loads(text_in(folder / _SEAL))
    if changed := sorted(dict(_hashes(folder).items() ^ sealed.items())):
        raise ValueError(f"{changed[0]} is not what was written")


def _ours(name: str) -> bool:
    return name.isdecimal() or _UNFINISHED in name or name.startswith(".")


def _kind(leaf: Any) -> str:
    """The type and shape of an array, in words."""
    return f"{leaf.dtype}{list(leaf.shape)}"


def _short(error: Exception) -> str:
    """What an error says, in one line; the cause stands at the end of what Orbax and TensorStore write."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"…{text[-200:]}"


def _named(tree: Any) -> dict[str, Any]:
    """The leaves of a tree by where they stand in it."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in jax.tree.leaves_with_path(tree)
    }


def _differences(first: Any, second: Any, name: str = "") -> list[tuple[str, Any, Any]]:
    """The places where two nested dictionaries differ, with both values; None where one has nothing there."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        keys = sorted(first.keys() | second.keys())
        inner = (_differences(first.get(key), second.get(key), f"{name}.{key}".lstrip(".")) for key in keys)
        return [difference for differences in inner for difference in differences]
    return [] if first == second else [(name, first, second)]
