"""What every corpus with a name has: its splits, its kind and its labels, and where they come from."""

import difflib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from dpnlp.checks import BadInput
from dpnlp.data.formats import PACKED

S = TypeVar("S")


@dataclass(frozen=True)
class Corpus(Generic[S]):
    """The stream of each split, or None where there is no such split.

    Labels that the corpus fixes are public: nobody's text has to be looked at for them.
    """

    train: S | None = None
    validation: S | None = None
    test: S | None = None
    kind: str = field(default="translation", kw_only=True)
    labels: tuple[str, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class Published:
    """What is known of everything that lies in a folder as its authors publish it: its name in full."""

    title: str

    def within(self, folder: Path | None) -> Path:
        """The folder, if it is one."""
        if folder is None or not folder.is_dir():
            raise BadInput(f"folder = {folder}: it must be a folder with the files of {self.title}.")
        return folder

    def remedy(self, files: Sequence[str], folder: Path) -> str:
        """What to do where one of the files is missing."""
        return f"put {' and '.join(files)} of {self.title} into {folder}"


@dataclass(frozen=True)
class Source(Published, ABC):
    """What is known of a corpus besides: whose its records may be, and the column that says so."""

    owners: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    kind: str = field(default="translation", kw_only=True)

    @abstractmethod
    def corpus(
        self, folder: Path | None, owner: str | None, *, source: str | None, target: str | None, test: str | None
    ) -> Corpus[Any]:
        """All of its splits; `owner` is a column."""


def packed(path: Path) -> Path:
    """The file, or a packed one (.gz or .xz) where only that is there."""
    forms = [path, *(path.with_name(f"{path.name}{end}") for end in PACKED)]
    return next((form for form in forms if form.exists()), path)


def one_of(what: str, value: str, allowed: Sequence[str]) -> str:
    """The value, if it is allowed."""
    if not allowed:
        raise BadInput(f"{what} = {value}: there is none in this corpus; leave it out.")
    if value not in allowed:
        nearest = difflib.get_close_matches(value, allowed, n=len(allowed), cutoff=0)
        raise BadInput(f"{what} = {value}: it must be one of {', '.join(nearest)}.")
    return value
