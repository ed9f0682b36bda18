"""A split is decided once: no training record is taken for a held-out one, in whatever file it lies."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dpnlp.checks import BadInput
from dpnlp.cli.config import warn
from dpnlp.cli.sections import Files
from dpnlp.cli.start import data_of
from dpnlp.cli.tasks import USUAL, verb_of
from dpnlp.guarantee import Unit
from dpnlp.runs.files import understood
from dpnlp.runs.folder import CONFIG, PRIVACY, Run
from dpnlp.runs.provenance import Door, run_of

if TYPE_CHECKING:
    from dpnlp.data.identity import Seen
    from dpnlp.data.learned import Learned

R = TypeVar("R")


def listed(**splits: Any) -> dict[str, list[Any]]:
    """The records of those splits that there are."""
    return {name: list(records) for name, records in splits.items() if records}


def apart(what: str, records: Iterable[R], has: Callable[[R], bool], use: str = "trained on") -> list[R]:
    """The records without those that a use already has. How many these are is private, and said nowhere."""
    every = list(records)
    others = [record for record in every if not has(record)]
    refuse_shared(what, bool(others), len(others) < len(every), use)
    return others


def refuse_shared(what: str, some_left: bool, some_shared: bool, use: str) -> None:
    """Says that records are left out, and refuses where none is left."""
    if not some_left:
        raise BadInput(
            f"{what}: all its records are {use}, so that none is left; give others, or keep a share apart by "
            "--data.held-out, with --data.owner where the records of a document share texts."
        )
    if some_shared:
        warn(f"{what}: records that are {use} are left out.")


def remembered(door: Door) -> "Learned":
    """What all runs behind what was opened learned from, as this machine remembers it; else their data are read again.

    Where they cannot be, a note says so.
    """
    from dpnlp.data.learned import Learned

    found = Learned.nothing()
    for run in door.provenance.learned_from:
        found |= Learned.recall(run) or _read_again(run, door)
    return found


def _read_again(behind: str, door: Door) -> "Learned":
    """What the run of this id learned from, if it lies where what was opened, or the settings of that, say."""
    from dpnlp.data.learned import Learned

    try:
        for run in _runs_behind(door):
            if run.id == behind:
                return Learned(_trained_on(run))
        said = "its folder is not where the settings of what came of it say."
    except BadInput as error:
        said = str(error)
    whats = {origin.run: f"{behind} ({origin.what})" for origin in door.provenance.origins}
    warn(
        f"run {whats.get(behind, behind)}: what it was trained on is not known on this machine, and would not be "
        f"recognised: {said}"
    )
    return Learned.nothing()


def _runs_behind(door: Door) -> Iterator[Run]:
    """The runs that were opened, and those that their settings name, and theirs."""
    waiting, met = [*door.sources], set[Path]()
    while waiting:
        run = run_of(waiting.pop())
        if run is not None and run.path.resolve() not in met:
            met.add(run.path.resolve())
            yield run
            for section in (run.config.get("model"), run.config.get("data")):
                named = section.values() if isinstance(section, Mapping) else ()
                waiting += [value for value in named if isinstance(value, str)]


def _trained_on(run: Run) -> "Seen":
    """The fingerprints of a run's training data, as its settings name them, unless these are others by now."""
    task = str(run.config.get("task", USUAL))
    data = data_of(run, task, type(verb_of("Train", task).data))
    if isinstance(data, Files):
        refuse_another_number(run, list(data.splits().train or ()))
    found: Seen = data.seen()
    return found


def refuse_another_number(run: Run, training: Sequence[Any]) -> None:
    """Without a ledger it is still known how many records there were, up to canaries that were planted."""
    with understood(run.path / PRIVACY):
        planned = run.privacy.plan.get("schedule", {}).get("records")
        planned = planned if planned is None else int(planned)
    each = run.privacy.own.promised.unit is Unit.EXAMPLE
    found = len(training) if each else len({record.owner for record in training})
    with understood(run.path / CONFIG):
        planted = int(run.config.get("audit", {}).get("canaries", 0))
    if planned is not None and not 0 <= planned - found <= planted:
        raise BadInput(
            f"{run.path}: it learned from {planned} records, and its data have {found} by now; put back the files that "
            "they were."
        )
