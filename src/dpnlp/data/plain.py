"""Texts without labels: `plain` opens a stream of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from dpnlp.checks import BadInput
from dpnlp.data.formats import Row, Table, lines
from dpnlp.data.records import FORMATS, ColumnNames, Fields, Records, suffix_of, table_of


class Text(NamedTuple):
    """A text, and whose it is, where that is known."""

    text: str
    owner: str | None

    @property
    def texts(self) -> tuple[str, ...]:
        """The text."""
        return (self.text,)


@dataclass(frozen=True)
class Columns(ColumnNames):
    """Which fields of a row are text and owner."""

    text: str = "text"
    owner: str | None = None


_USUAL = Columns()


@dataclass(frozen=True)
class Lines(Table):
    """A text a line; blank lines are none."""

    def rows(self) -> Iterator[Row]:
        for number, line in lines(self.files[0]):
            if text := line.strip():
                yield number, {"text": text}


@dataclass(frozen=True)
class Texts(Records[Text]):
    """The texts of a table."""

    columns: Columns

    noun: ClassVar[str] = "text"

    def record(self, row: Fields) -> Text:
        return Text(row.text("text", self.columns.text), row.owner(self.columns.owner))


def plain(source: str | Path, columns: Columns = _USUAL, split: str | None = None) -> Texts:
    """The texts in a table, of which `table_of` has the forms, or in any other file, a text a line."""
    path = Path(source)
    if suffix_of(path) not in FORMATS and (path.is_file() or suffix_of(path) == ".txt"):
        table = Lines((path,))
        table.present()
        if columns.owner is not None:
            raise BadInput(f"{path}: it has a text a line and no column {columns.owner}; give a table, such as .jsonl.")
        return Texts(table, Columns())
    return Texts(table_of(source, columns, split, "text"), columns)
