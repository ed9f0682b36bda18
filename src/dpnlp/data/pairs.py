"""Parallel corpora as streams of pairs: `pairs` opens one, `kept` leaves out what is too short, long or uneven."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, NamedTuple

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.data.records import ColumnNames, Fields, Records, aligned, table_of


class Pair(NamedTuple):
    """A text, its translation, and the one whose privacy is at stake, where that is known."""

    source: str
    target: str
    owner: str | None

    @property
    def texts(self) -> tuple[str, ...]:
        """Both sides."""
        return (self.source, self.target)


@dataclass(frozen=True)
class Columns(ColumnNames):
    """Which fields of a row are source, target and owner."""

    source: str = "source"
    target: str = "target"
    owner: str | None = None


_USUAL = Columns()


@dataclass(frozen=True)
class Bounds:
    """What is kept: texts of `shortest` to `longest` words, neither with more than `ratio` times those of the other.

    Words are what stands between spaces; a Japanese sentence is one.
    """

    shortest: int = 1
    longest: int | None = None
    ratio: float | None = None

    def __post_init__(self) -> None:
        checks.count("shortest", self.shortest)
        if self.longest is not None:
            checks.count("longest", self.longest, least=self.shortest)
        if self.ratio is not None and not 1 <= self.ratio < math.inf:
            raise BadInput(f"ratio = {self.ratio}: it must be a finite number of at least 1.")

    def __contains__(self, pair: Pair) -> bool:
        few, many = sorted((len(pair.source.split()), len(pair.target.split())))
        within = self.shortest <= few and (self.longest is None or many <= self.longest)
        return within and (self.ratio is None or many <= self.ratio * few)


@dataclass(frozen=True)
class Pairs(Records[Pair]):
    """The pairs of a table. A pair without a text on either side is refused, or is left out where there are bounds."""

    columns: Columns

    noun: ClassVar[str] = "pair"

    def record(self, row: Fields) -> Pair:
        remedy = ", or leave out all such with `kept`"
        bounded = any(isinstance(bounds, Bounds) for bounds in self.bounds)
        return Pair(
            row.text("source", self.columns.source, remedy, blank=bounded),
            row.text("target", self.columns.target, remedy, blank=bounded),
            row.owner(self.columns.owner),
        )


def pairs(source: str | Path | Sequence[str | Path], columns: Columns = _USUAL, split: str | None = None) -> Pairs:
    """The pairs in a table, of which `table_of` has the forms, or in two aligned text files.

    Of two paths line n of the second is the translation of line n of the first, and the columns do not matter.
    """
    if not isinstance(source, (str, Path)):
        return Pairs(aligned(source, ("source", "target")), Columns(owner=columns.owner))
    otherwise = ", or give two paths if it is one side of aligned texts"
    return Pairs(table_of(source, columns, split, "pair", otherwise), columns)


def kept(pairs: Pairs, shortest: int = 1, longest: int | None = None, ratio: float | None = None) -> Pairs:
    """The pairs within these `Bounds`; how many are not, `left_out` counts."""
    return replace(pairs, bounds=(*pairs.bounds, Bounds(shortest, longest, ratio)))
