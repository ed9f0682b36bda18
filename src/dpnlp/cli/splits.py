"""A split is decided once: no training record is taken for a held-out one, in whatever file it lies."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from dpnlp.checks import BadInput
from dpnlp.cli.config import warn

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
