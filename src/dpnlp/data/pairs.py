"""Parallel corpora as streams of pairs: `pairs` opens one, `kept` leaves out what is too short, too long or too uneven.

A stream reads its files anew each time, a few rows at once, so that millions of pairs need little memory.
"""

import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.data import hub
from dpnlp.data.formats import Aligned, Delimited, Json, Parquet, Table

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?(:[\w.-]+)?")
"""An id of the hub, as in wmt16:de-en: the name, and the configuration after a colon."""
_HALF = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair, which JSON can write and UTF-8 cannot."""
_FORMATS = (".jsonl", ".json", ".csv", ".tsv", ".parquet")


class Pair(NamedTuple):
    """A text, its translation, and the one whose privacy is at stake, where that is known."""

    source: str
    target: str
    owner: str | None


@dataclass(frozen=True)
class Columns:
    """Which fields of a row are what. A dotted name reaches inside: `translation.de` is `de` of `translation`."""

    source: str = "source"
    target: str = "target"
    owner: str | None = None

    @property
    def names(self) -> list[str]:
        """Those that every row must have."""
        return [name for name in astuple(self) if name is not None]


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
class Part:
    """A share of the pairs, or else all others. What is in it is told by a checksum of the owner, or of the pair.

    So no owner is in both parts, and who is in which depends on nobody else.
    """

    share: float
    others: bool = False

    def __post_init__(self) -> None:
        checks.probability("share", self.share)

    def __contains__(self, pair: Pair) -> bool:
        whose = repr(pair[:2] if pair.owner is None else pair.owner).encode()
        place = int.from_bytes(blake2b(whose, digest_size=8).digest()) / 2**64
        return (place < self.share) != self.others


@dataclass(frozen=True)
class Pairs:
    """The pairs of a table. A pair without a text on either side is refused, or is left out where there are bounds."""

    table: Table
    columns: Columns
    bounds: tuple[Bounds | Part, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """Where the pairs are read from, all of which is there."""
        return self.table.present()

    @property
    def reading(self) -> str:
        """How the bytes of the files become pairs: the same bytes read in the same way are the same pairs."""
        return repr((self.table.reading, self.columns, self.bounds))

    def __iter__(self) -> Iterator[Pair]:
        count = 0
        for pair in self._all():
            if all(pair in bounds for bounds in self.bounds):
                count += 1
                yield pair
        if not count:
            why = "none of its pairs is within the bounds; widen them" if self.bounds else "it has no pairs; fill it"
            raise BadInput(f"{self.table.files[0]}: {why}, or give another file.")

    def left_out(self) -> int:
        """How many pairs are out of bounds, counted by reading all. The count is private: it must not be released."""
        return sum(any(pair not in bounds for bounds in self.bounds) for pair in self._all())

    def _all(self) -> Iterator[Pair]:
        source, target, owner = self.columns.source, self.columns.target, self.columns.owner
        self.table.present()
        for number, row in self.table.rows():
            if not isinstance(row, Mapping):
                raise BadInput(
                    f"{self.table.where(number)}: it is {_kind(row)}, and must be an object with the fields "
                    f"{' and '.join(self.columns.names)}."
                )
            yield Pair(
                self._text(number, row, "source", source),
                self._text(number, row, "target", target),
                None if owner is None else self._owner(number, row, owner),
            )

    def _text(self, number: int, row: Mapping[str, Any], side: str, column: str) -> str:
        text = self._field(number, row, side, column)
        text = "" if text is None else text
        if not isinstance(text, str):
            raise self._wrong(number, side, column, f"is {_kind(text)}, and must be a text")
        bounded = any(isinstance(bounds, Bounds) for bounds in self.bounds)
        if not bounded and not text.strip():
            raise self._wrong(number, side, column, "is empty; correct the pair, or leave out all such with `kept`")
        if _HALF.search(text):
            raise self._wrong(number, side, column, "holds half of a surrogate pair; write the whole character")
        return text

    def _owner(self, number: int, row: Mapping[str, Any], column: str) -> str:
        owner = self._field(number, row, "owner", column)
        if owner is None or not str(owner).strip():
            raise self._wrong(number, "owner", column, "is empty; every pair must have an owner, if any has one")
        if isinstance(owner, bool) or not isinstance(owner, (str, int)):
            raise self._wrong(number, "owner", column, f"is {_kind(owner)}, and must be a text or a whole number")
        return str(owner)

    def _field(self, number: int, row: Mapping[str, Any], side: str, column: str) -> Any:
        if column in row:
            return row[column]
        found: Any = row
        above = ""
        for name in column.split("."):
            if not isinstance(found, Mapping) or name not in found:
                names = [f"{above}{known}" for known in found] if isinstance(found, Mapping) else []
                nearest = difflib.get_close_matches(column, names, n=8, cutoff=0)
                there = (
                    f"there are {', '.join(nearest)}" if nearest else f"{above.rstrip('.') or 'the row'} has no fields"
                )
                raise self._wrong(number, side, column, f"is missing; {there}")
            found, above = found[name], f"{above}{name}."
        return found

    def _wrong(self, number: int, side: str, column: str, what: str) -> BadInput:
        return BadInput(f"{self.table.where(number, side)}: the {side} ({column}) {what}.")


def pairs(source: str | Path | Sequence[str | Path], columns: Columns = _USUAL, split: str | None = None) -> Pairs:
    """The pairs in a file, in two aligned text files, in a folder saved by `datasets`, or in a dataset of the hub.

    A file is .jsonl or .json (JSON lines, or one array), .csv or .tsv (without a header where the columns are numbers),
    all of which may be packed (.gz), or .parquet. Two paths are texts, of which line n belongs to line n. An id such as
    `wmt16:de-en` is a dataset of the hub and its configuration. `split` chooses one of those in a folder or on the hub;
    a file is one by itself.
    """
    if not isinstance(source, (str, Path)):
        files = tuple(map(Path, source))
        for path in files:
            if _suffix(path) in _FORMATS:
                raise BadInput(
                    f"{path}: two files are read as aligned lines of text, not as {_suffix(path)}; give one."
                )
        return _opened(Aligned(files), Columns(owner=columns.owner))
    path = Path(source)
    tops = tuple(dict.fromkeys(name.partition(".")[0] for name in columns.names))
    if path.is_dir():
        return _opened(hub.saved(path, tops, split), columns)
    suffix = _suffix(path)
    if suffix not in _FORMATS and isinstance(source, str) and not path.exists() and _HUB_ID.fullmatch(source):
        return _opened(hub.downloaded(source, tops, split), columns)
    return _opened(_table(path, suffix, columns, tops), columns)


def kept(pairs: Pairs, shortest: int = 1, longest: int | None = None, ratio: float | None = None) -> Pairs:
    """The pairs within these `Bounds`; how many are not, `left_out` counts."""
    return replace(pairs, bounds=(*pairs.bounds, Bounds(shortest, longest, ratio)))


def divided(pairs: Pairs, share: float) -> tuple[Pairs, Pairs]:
    """The pairs without a share of them, and that share."""
    most, few = (replace(pairs, bounds=(*pairs.bounds, Part(share, others))) for others in (True, False))
    return most, few


def _table(path: Path, suffix: str, columns: Columns, tops: tuple[str, ...]) -> Table:
    match suffix:
        case ".json" | ".jsonl":
            return Json((path,))
        case ".csv" | ".tsv":
            header = not all(map(str.isdigit, columns.names))
            return Delimited((path,), "," if suffix == ".csv" else "\t", header)
        case ".parquet":
            return Parquet((path,), tops)
    raise BadInput(
        f"{path}: a file of pairs must end in {', '.join(_FORMATS)}, with or without .gz; "
        "rename it, or give two paths if it is one side of aligned texts."
    )


def _suffix(path: Path) -> str:
    """What kind of file it is by its name, packed or not."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def _opened(table: Table, columns: Columns) -> Pairs:
    table.present()
    return Pairs(table, columns)


def _kind(value: object) -> str:
    names = {bool: "a truth value", int: "a number", float: "a number", str: "a text", type(None): "empty"}
    return names.get(type(value), "a list" if isinstance(value, Sequence) else "an object")
