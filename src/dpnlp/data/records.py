"""Streams of records: what pairs, labelled texts, tagged sentences and questions have in common.

A stream reads its files anew each time, a few rows at once, so that millions of records need little memory. Whatever is
wrong with a row is said in one sentence, with its line.
"""

import difflib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.data import hub
from dpnlp.data.formats import PACKED, Aligned, Delimited, Json, Parquet, Table

FORMATS = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
"""How the name of a table ends; all but the last may be packed (.gz or .xz)."""

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?(:[\w.-]+)?")
"""An id of the hub, as in wmt16:de-en: the name, and the configuration after a colon."""
_HALF = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair, which JSON can write and UTF-8 cannot."""

_NUMBER = re.compile("0|[1-9][0-9]{,9}")
"""The number of a label."""

R = TypeVar("R")
"""A record: a named tuple whose last field is its owner, a text or None."""


class HasLabels(Protocol):
    """A record with labels that a model is to tell."""

    @property
    def labels(self) -> tuple[str, ...]:
        """All of its labels, one or one for each word."""


class Bound(Protocol):
    """What decides which records are kept."""

    def __contains__(self, record: Any, /) -> bool: ...


@dataclass(frozen=True)
class ColumnNames:
    """Which fields of a row are what. A dotted name reaches inside: `translation.de` is `de` of `translation`."""

    @property
    def names(self) -> list[str]:
        """Those that every row must have."""
        return [name for name in astuple(self) if name is not None]

    @property
    def tops(self) -> tuple[str, ...]:
        """The same without what lies inside of others."""
        return tuple(dict.fromkeys(name.partition(".")[0] for name in self.names))


class Fields(NamedTuple):
    """One row of a table, whose fields are looked up by what they are for and by the name of their column."""

    table: Table
    number: int
    row: Mapping[str, Any]
    noun: str  # what the row is: a pair, a text

    def value(self, role: str, column: str) -> Any:
        """What stands in the column."""
        if column in self.row:
            return self.row[column]
        found: Any = self.row
        above = ""
        for name in column.split("."):
            if not isinstance(found, Mapping) or name not in found:
                names = [f"{above}{known}" for known in found] if isinstance(found, Mapping) else []
                nearest = difflib.get_close_matches(column, names, n=8, cutoff=0)
                there = (
                    f"there are {', '.join(nearest)}" if nearest else f"{above.rstrip('.') or 'the row'} has no fields"
                )
                raise self.wrong(role, column, f"is missing; {there}")
            found, above = found[name], f"{above}{name}."
        return found

    def text(self, role: str, column: str, remedy: str = "", blank: bool = False) -> str:
        """A text, which may be blank only where that is said."""
        text = self.value(role, column)
        text = "" if text is None else text
        if not isinstance(text, str):
            raise self.wrong(role, column, f"is {kind(text)}, and must be a text")
        if not blank and not text.strip():
            raise self.wrong(role, column, f"is empty; correct the {self.noun}{remedy}")
        return self.whole(role, column, text)

    def owner(self, column: str | None) -> str | None:
        """Whose the row is; nobody's only where no column says it."""
        if column is None:
            return None
        owner = self.value("owner", column)
        if owner is None or not str(owner).strip():
            raise self.wrong("owner", column, f"is empty; every {self.noun} must have an owner, if any has one")
        if isinstance(owner, bool) or not isinstance(owner, (str, int)):
            raise self.wrong("owner", column, f"is {kind(owner)}, and must be a text or a whole number")
        return str(owner)

    def label(self, role: str, column: str, value: object, names: Sequence[str], unnamed: Container[str] = ()) -> str:
        """A value as a label: its text or, where there are names, the one that it is or that has its number.

        Those that are `unnamed` need have no name.
        """
        value = "" if value is None else value
        if not isinstance(value, (str, int)):
            raise self.wrong(role, column, f"cannot be {kind(value)}, but a text or a whole number")
        text = value.strip() if isinstance(value, str) else json.dumps(value)
        if text in unnamed:
            return text
        if not text:
            raise self.wrong(role, column, f"cannot be empty; correct the {self.noun}")
        if not names or (isinstance(value, str) and text in names):
            return self.whole(role, column, text)
        if (number := _NUMBER.fullmatch(text)) and int(number[0]) < len(names):
            return names[int(number[0])]
        nearest = difflib.get_close_matches(text, names, n=8, cutoff=0)
        raise self.wrong(role, column, f"cannot be {text}; there are {', '.join(nearest)}, or their numbers from 0 on")

    def whole(self, role: str, column: str, text: str) -> str:
        """The text, if it can be written as UTF-8."""
        if _HALF.search(text):
            raise self.wrong(role, column, "holds half of a surrogate pair; write the whole character")
        return text

    def wrong(self, role: str, column: str, what: str) -> BadInput:
        """The refusal of one field."""
        return BadInput(f"{self.table.where(self.number, role)}: the {role} ({column}) {what}.")


@dataclass(frozen=True)
class Part:
    """A share of the records, or else all others. What is in it is told by a checksum of the owner, or of the record.

    So no owner is in both parts, who is in which depends on nobody else, and a larger share holds a smaller one. Parts
    of different names are independent of each other.
    """

    share: float
    others: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        checks.probability("share", self.share)

    def __contains__(self, record: Any) -> bool:
        whose = repr(record[:-1] if record.owner is None else record.owner)
        return (place_of(self.name + whose) < self.share) != self.others


def place_of(key: str) -> float:
    """Where between 0 and 1 its checksum puts the key: the same always, whatever other keys there are."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest()) / 2**64


@dataclass(frozen=True)
class Records(ABC, Generic[R]):
    """The records of a table that are within all bounds."""

    table: Table
    columns: ColumnNames
    bounds: tuple[Bound, ...] = ()

    noun: ClassVar[str]  # what one record is called

    @property
    def files(self) -> tuple[Path, ...]:
        """Where the records are read from, all of which is there."""
        return self.table.present()

    @property
    def places(self) -> tuple[Path, ...]:
        """What ledgers of these records lie beside."""
        return self.table.places

    @property
    def reading(self) -> str:
        """How the bytes of the files become records: the same bytes read in the same way are the same records."""
        return repr((self.table.reading, *(getattr(self, field.name) for field in fields(self)[1:])))

    def __iter__(self) -> Iterator[R]:
        inside = outside = 0
        for record in self._all():
            if self.keeps(record):
                inside += 1
                yield record
            else:
                outside += 1
        if not inside:
            nouns = f"{self.noun}s"
            why = f"none of its {nouns} is within the bounds; widen them" if outside else f"it has no {nouns}; fill it"
            raise BadInput(f"{self.table.files[0]}: {why}, or give another file.")

    def left_out(self) -> int:
        """How many records are out of bounds, counted by reading all. The count is private: it must not be released."""
        return sum(not self.keeps(record) for record in self._all())

    def keeps(self, record: R) -> bool:
        """Whether the record is within all bounds."""
        return all(record in bounds for bounds in self.bounds)

    @abstractmethod
    def record(self, row: Fields) -> R:
        """The record that a row is."""

    def _all(self) -> Iterator[R]:
        yield from map(self.record, fields_of(self.table, self.columns, self.noun))


def fields_of(table: Table, columns: ColumnNames, noun: str) -> Iterator[Fields]:
    """The rows of a table, each of which must have fields."""
    table.present()
    for number, row in table.rows():
        if not isinstance(row, Mapping):
            needed = " and ".join(columns.names)
            raise BadInput(f"{table.where(number)}: it is {kind(row)}, and must be an object with the fields {needed}.")
        yield Fields(table, number, row, noun)


S = TypeVar("S", bound=Records[Any])


def divided(stream: S, share: float) -> tuple[S, S]:
    """The records without a share of them, and that share."""
    most, few = (replace(stream, bounds=(*stream.bounds, Part(share, others))) for others in (True, False))
    return most, few


def fewer(stream: S, share: float) -> S:
    """A share of the records, of those that `divided` leaves as of all."""
    return replace(stream, bounds=(*stream.bounds, Part(share, name="fewer ")))


def labels_of(records: Iterable[HasLabels]) -> tuple[str, ...]:
    """The labels that occur, sorted.

    Those of private texts are private, too. Where it is known beforehand what labels there can be, take that.
    """
    return tuple(sorted({label for record in records for label in record.labels}))


def table_of(source: str | Path, columns: ColumnNames, split: str | None, noun: str, otherwise: str = "") -> Table:
    """The table in a file, in a folder saved by `datasets`, or in a dataset of the hub.

    A file is .jsonl or .json (JSON lines, or one array), .csv or .tsv (without a header where the columns are numbers),
    all of which may be packed (.gz or .xz), or .parquet. An id such as `wmt16:de-en` is a dataset of the hub and its
    configuration. `split` chooses one of those in a folder or on the hub; a file is one by itself. What is no such file
    is refused, with what to do otherwise.
    """
    path = Path(source)
    if path.is_dir():
        return hub.saved(path, columns.tops, split)
    if is_hub_id(source):
        return hub.downloaded(str(source), columns.tops, split)
    table: Table
    match suffix := suffix_of(path):
        case ".json" | ".jsonl":
            table = Json((path,))
        case ".csv" | ".tsv":
            header = not all(map(str.isdigit, columns.names))
            table = Delimited((path,), "," if suffix == ".csv" else "\t", header)
        case ".parquet":
            table = Parquet((path,), columns.tops)
        case _:
            ends = f"{', '.join(FORMATS)}, with or without .gz or .xz"
            raise BadInput(f"{path}: a file of {noun}s must end in {ends}; rename it{otherwise}.")
    table.present()
    return table


def aligned(source: Sequence[str | Path], sides: tuple[str, str]) -> Aligned:
    """Two text files, of which line n belongs to line n."""
    files = tuple(map(Path, source))
    for path in files:
        if suffix_of(path) in FORMATS:
            raise BadInput(f"{path}: two files are read as aligned lines of text, not as {suffix_of(path)}; give one.")
    table = Aligned(files, sides=sides)
    table.present()
    return table


def is_hub_id(source: str | Path) -> bool:
    """Whether this can only be a dataset of the hub, since it is no file and not called like one."""
    path = Path(source)
    there = path.exists() or path.is_symlink()
    named = isinstance(source, str) and suffix_of(path) not in FORMATS and not there
    return named and _HUB_ID.fullmatch(str(source)) is not None


def suffix_of(path: Path) -> str:
    """What kind of file it is by its name, packed or not."""
    name = Path(path.name.lower())
    return Path(name.stem).suffix if name.suffix in PACKED else name.suffix


def kind(value: object) -> str:
    """What a value of JSON is, as an error calls it."""
    names = {bool: "a truth value", int: "a number", float: "a number", str: "a text", type(None): "empty"}
    return names.get(type(value), "a list" if isinstance(value, Sequence) else "an object")
