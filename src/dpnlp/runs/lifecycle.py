"""The life of a run: absent, begun, published, finished. Wherever a process ends, another goes on.

It is begun once its settings are there, and published once all that it leaves is on the disk. Then the secret goes,
with the checkpoints, and only then it is finished. `.stage` says which of them it is, and is the last to go.
"""

import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum

from dpnlp.atomic import alone, fsync_path, refusals, sweep, write
from dpnlp.checks import BadInput
from dpnlp.runs.files import read
from dpnlp.runs.folder import CONFIG, PRIVACY, Run

_STAGE = ".stage"


class Stage(StrEnum):
    """How far a run is."""

    ABSENT = "absent"
    BEGUN = "begun"
    PUBLISHED = "published"
    FINISHED = "finished"


def stage_of(run: Run) -> Stage:
    """How far a run is."""
    if not (run.path / CONFIG).exists():
        return Stage.ABSENT
    if (run.path / _STAGE).exists():
        said = read(run.path / _STAGE).strip()
        return Stage.PUBLISHED if said == Stage.PUBLISHED else Stage.BEGUN
    # A run that an earlier version made or stopped says nothing. Its report came last, before the secret went.
    published = run.report.exists() and (run.model.exists() or bool(run.rewritten_splits()))
    if run.checkpoints.exists() and not run.config.get("keep_checkpoints"):
        return Stage.PUBLISHED if published else Stage.BEGUN
    return Stage.FINISHED if published or run.model.exists() else Stage.BEGUN


@contextmanager
def attended(run: Run, resume: bool, command: str) -> Iterator[Stage]:
    """A run in the hands of this process alone, and how far it is: absent, or what `command` goes on with.

    What is refused before anything is begun leaves nothing, and what is interrupted says how to go on.
    """
    _refuse(run, resume, command)
    around = next((one for one in [*run.path.resolve().parents][:3] if (one / PRIVACY).is_file()), None)
    if around and not resume:
        raise BadInput(f"runs = {run.path.parent}: it lies in the run {around}; choose another folder for runs.")
    missing = [folder for folder in (run.path, *run.path.parents) if not folder.exists()]
    with refusals(run.path):
        run.path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with alone(run.path, f"name = {run.name}: another process is at the run in {run.path}; wait until it ends."):
            stage = _refuse(run, resume, command)  # The other one may just have ended.
            for folder in (run.path, *(path.parent for path in run.path.glob("*/.*"))):
                if folder.is_dir():
                    sweep(folder)
            try:
                yield stage
            except (BadInput, OSError):
                if not resume and stage_of(run) is Stage.BEGUN and not _has_drawn(run):
                    run.remove()
                raise
    except KeyboardInterrupt:
        if stage_of(run) in (Stage.BEGUN, Stage.PUBLISHED):
            raise KeyboardInterrupt(f"interrupted; what is done is kept. Go on with: {command} --resume") from None
        raise
    finally:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()  # if nothing is in it


def _has_drawn(run: Run) -> bool:
    """Whether anything random was drawn for a run, so that it may have cost something."""
    return run.checkpoints.exists() or (run.path / "rewritten").exists()


def command_of(verb: str, run: Run) -> str:
    """The command that makes a run, or goes on with it by --resume."""
    return f"dpnlp {verb} {shlex.quote(str(run.path / CONFIG))}"


def begin(run: Run) -> None:
    """From here on the run is gone on with, whoever looks at it in the meantime."""
    write(run.path / _STAGE, Stage.BEGUN)


def finish(run: Run, keep_checkpoints: bool) -> None:
    """All that the run leaves is there: its secret goes, and it is finished."""
    write(run.path / _STAGE, Stage.PUBLISHED)
    with refusals(run.checkpoints):
        if not keep_checkpoints and run.checkpoints.exists():
            shutil.rmtree(run.checkpoints)
            fsync_path(run.path)
        (run.path / _STAGE).unlink(missing_ok=True)
        fsync_path(run.path)


def _refuse(run: Run, resume: bool, command: str) -> Stage:
    """How far the run is, if it can be begun, or gone on with."""
    stage = stage_of(run)
    if not resume and stage is not Stage.ABSENT:
        raise BadInput(
            f"name = {run.name}: there is a run in {run.path} already; choose another name, or go on with it by "
            f"{command} --resume"
        )
    if resume and stage is Stage.ABSENT:
        raise BadInput(f"name = {run.name}: there is no run in {run.path} to go on with; leave out --resume.")
    if resume and stage is Stage.FINISHED:
        sweep(run.path.parent)
        raise BadInput(
            f"name = {run.name}: the run in {run.path} is finished; begin another one, which may start from its model "
            f"by --model.start {run.path}."
        )
    return stage
