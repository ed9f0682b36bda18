"""A split is decided once: no training record is taken for a held-out one, in whatever file it lies."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from dpnlp.checks import BadInput
from dpnlp.cli.config import warn
from dpnlp.runs.folder import Run
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
    """What all runs behind what was opened learned from, as far as this machine remembers it."""
    from dpnlp.data.learned import Learned

    found = Learned.nothing()
    for origin in door.provenance.origins:
        found |= Learned.recall(origin.run) or Learned.nothing()
    return found


def learned_by(model: str, door: Door, read: "Callable[[Run], Seen]") -> "Learned":
    """What a model that was opened by this door learned from.

    Where this machine does not remember it of a run, the run's own training data are read again.
    """
    from dpnlp.data.learned import Learned

    found, run = remembered(door), run_of(model)
    if run is not None and Learned.recall(run.id) is None:
        try:
            return found | Learned(read(run))
        except BadInput as error:
            warn(f"MODEL = {model}: its training data are not there, and would not be recognised: {error}")
    elif run is None and door.provenance.origins and not found.seen.records:
        warn(f"MODEL = {model}: what it was trained on is not known on this machine, and would not be recognised.")
    return found
