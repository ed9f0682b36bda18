"""Files that hold a table of texts, read a few rows at a time: JSON, delimited text, aligned lines, Parquet.

A row is a number and the fields by name. The number is that of the line, for whoever has to find it in the file.
"""

import codecs
import csv
import gzip
import importlib
import json
import lzma
import os
import re
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar

from dpnlp.checks import BadInput, short
from dpnlp.foreign import Repeated, once, opened

Row = tuple[int, Any]

_PIECE = 1 << 16
"""How many bytes of a long line are read at once."""
LONGEST = 1 << 26
"""Bytes of a line."""
_ROWS = 1024
"""How many rows of a Parquet file are read at once."""
_MARKS = {
    "[]": re.compile(r"\s*(\[\s*\]|[\[,\]])\s*"),
    "{}": re.compile(r"\s*(\{\s*\}|[{,}])\s*"),
}
"""What stands before an element of a JSON array or a member of an object, or ends it, by its brackets."""
_DECODER = json.JSONDecoder(object_pairs_hook=once)
_COLON = re.compile(r"\s*:\s*")
PACKED: Mapping[str, Callable[[Any], Any]] = {".gz": gzip.open, ".xz": lzma.open}
"""How the name of a file ends that is packed, and what opens it."""


@dataclass(frozen=True)
class Table(ABC):
    """Rows that can be read as often as one likes, none of which stays in memory."""

    files: tuple[Path, ...]
    remedy: str = field(default="check the path", kw_only=True)  # where a file is missing

    counted: ClassVar[str] = "line"

    def present(self) -> tuple[Path, ...]:
        """The files, all of which are there."""
        for path in self.files:
            if not path.is_file():
                raise missing(path, self.remedy)
        return self.files

    @property
    def places(self) -> tuple[Path, ...]:
        """What ledgers of these texts lie beside."""
        return places_of(self.files)

    @property
    def reading(self) -> str:
        """How the bytes of the files become rows: the same bytes read in the same way are the same rows."""
        return type(self).__name__

    def where(self, number: int, side: str = "") -> str:
        """The place of a row, or of one side of it, as an error names it."""
        return f"{self.files[0]}, {self.counted} {number}"

    def names(self, column: str) -> tuple[str, ...]:
        """What the numbers in a column stand for, from 0 on, where the files say so."""
        return ()

    @abstractmethod
    def rows(self) -> Iterator[Row]:
        """All rows from the first to the last."""


@dataclass(frozen=True)
class Json(Table):
    """JSON lines, or one JSON array; an array of millions is not held in memory either."""

    def rows(self) -> Iterator[Row]:
        start = next((text for _, line in lines(self.files[0], _PIECE) if (text := line.lstrip())), "")
        return self.elements() if start.startswith("[") else self._lines()

    def _lines(self) -> Iterator[Row]:
        for number, line in lines(self.files[0]):
            if line.strip():
                try:
                    yield number, _DECODER.decode(line)
                except (ValueError, RecursionError) as error:
                    raise self._malformed(number, error) from None

    def elements(self, brackets: str = "[]") -> Iterator[Row]:
        """Decodes one element after the other; where the text at hand does not suffice, twice as much is taken.

        With {} for brackets these are the members of one object, each as its name and its value.
        """
        pieces = (piece for _, piece in lines(self.files[0], _PIECE))
        text, at, number = "", 0, 1
        first = True
        while True:
            try:
                start, value, end = _element(text, at, first, brackets)
            except json.JSONDecodeError as error:
                if len(text) - at > LONGEST:
                    raise BadInput(
                        f"{self.where(number)}: what begins there has more than {LONGEST >> 20} MiB; write one object "
                        "a line."
                    ) from None
                more = _taken(pieces, max(_PIECE, len(text) - at))
                if not more:
                    raise self._malformed(number + text.count("\n", at, error.pos), error) from None
                text, at = text[at:] + more, 0
                continue
            except (ValueError, RecursionError) as error:
                raise self._malformed(number, error) from None
            if start == end:
                break
            number += text.count("\n", at, start)
            yield number, value
            number += text.count("\n", start, end)
            at, first = end, False
        if text[end:].strip() or any(piece.strip() for piece in pieces):
            number += text.count("\n", at, end)
            what = "array" if brackets == "[]" else "object"
            raise BadInput(f"{self.where(number)}: there is more text after the end of the {what}; remove it.")

    def _malformed(self, number: int, error: Exception) -> BadInput:
        said = "a number of thousands of digits, or too many brackets inside one another"
        if isinstance(error, Repeated):
            said = str(error)
        if isinstance(error, json.JSONDecodeError):
            said = f"{error.msg[0].lower()}{error.msg[1:]}"
        return BadInput(
            f"{self.where(number)}: it is not JSON ({said}); write one object a line, or one array of objects."
        )


@dataclass(frozen=True)
class Delimited(Table):
    """Comma-separated values with their quotes, or tab-separated ones, in which a quote is a character like others.

    Without a header the columns are named 0, 1, 2 and so on.
    """

    delimiter: str = ","
    header: bool = True

    @property
    def reading(self) -> str:
        return f"{type(self).__name__}({self.delimiter!r}, {self.header})"

    def rows(self) -> Iterator[Row]:
        names: list[str] | None = None
        for number, cells in self.cells():
            if names is None:
                names = cells if self.header else list(map(str, range(len(cells))))
                if len(set(names)) < len(names):
                    twice = Counter(names).most_common(1)[0][0]
                    raise BadInput(f"{self.where(number)}: two columns are named {twice[:99]!r}; rename one.")
                if self.header:
                    continue
            if len(cells) != len(names):
                raise BadInput(
                    f"{self.where(number)}: it has {len(cells)} fields, and the first line has {len(names)}; correct "
                    f"it, and {'quote texts with commas' if self.delimiter == ',' else 'take tabs out of texts'}."
                )
            yield number, dict(zip(names, cells, strict=True))

    def cells(self) -> Iterator[tuple[int, list[str]]]:
        """The fields of each record that is not blank, with the line on which it ends."""
        if self.delimiter == "\t":
            for number, line in lines(self.files[0]):
                if text := line.rstrip("\r\n"):
                    yield number, text.split("\t")
            return
        reader = csv.reader((line for _, line in lines(self.files[0])), delimiter=self.delimiter, strict=True)
        try:
            for cells in reader:
                if cells:
                    yield reader.line_num, cells
        except csv.Error as error:
            raise BadInput(
                f"{self.where(reader.line_num)}: its fields cannot be told apart ({error}); quote it."
            ) from None


@dataclass(frozen=True)
class Aligned(Table):
    """Two text files: line n of the second belongs to line n of the first."""

    sides: tuple[str, str] = ("source", "target")  # what a line of each file is called

    def __post_init__(self) -> None:
        if len(self.files) != 2:
            whose = " and ".join(f"the {side}'s" for side in self.sides)
            raise BadInput(f"source = {len(self.files)} files: aligned texts are two, {whose}.")

    def where(self, number: int, side: str = "") -> str:
        return f"{self.files[side == self.sides[1]]}, line {number}"

    def rows(self) -> Iterator[Row]:
        sides = [lines(path) for path in self.files]
        for number, both in enumerate(zip_longest(*sides), 1):
            if None in both:
                counts = [
                    number - (line is None) + sum(1 for _ in side) for line, side in zip(both, sides, strict=True)
                ]
                raise BadInput(
                    f"{self.files[0]}: it has {counts[0]} lines, and {self.files[1]} has {counts[1]}; "
                    "the files must have the same number, so align them again."
                )
            yield number, {side: text.rstrip("\r\n") for side, (_, text) in zip(self.sides, both, strict=True)}


@dataclass(frozen=True)
class Parquet(Table):
    """A Parquet file, of which only the columns named are read, if any are and it has them all."""

    columns: tuple[str, ...] = ()

    counted: ClassVar[str] = "row"

    def rows(self) -> Iterator[Row]:
        parquet = library("pyarrow.parquet")
        with readable(self.files[0]), parquet.ParquetFile(self.files[0]) as file:
            there = self.columns and set(self.columns) <= set(file.schema_arrow.names)
            chosen = self.columns if there else None
            yield from arrow_rows(file.iter_batches(_ROWS, columns=chosen))


def arrow_rows(batches: Iterable[Any]) -> Iterator[Row]:
    """The rows of Arrow tables, counted from 1 through all of them."""
    return enumerate((row for batch in batches for row in batch.to_pylist()), 1)


def places_of(files: tuple[Path, ...]) -> tuple[Path, ...]:
    """What ledgers of these files lie beside: each file or, where they are more than two, the folder that has all."""
    return files if len(files) <= 2 else (Path(os.path.commonpath([file.absolute().parent for file in files])),)


def lines(path: Path, longest: int = -1) -> Iterator[tuple[int, str]]:
    """The lines of a text file, unpacked if it ends in .gz or .xz, with their numbers and their ends.

    Only a line feed ends a line: other separators occur inside texts. Of a line of more than `longest` bytes come
    several pieces of the same number; else a line as long as no text is, such as that of a packed bomb, is refused.
    """
    decoder, number = codecs.getincrementaldecoder("utf-8-sig")(), 1
    opens = PACKED.get(path.suffix.lower())
    with readable(path), opened(path) as raw, opens(raw) if opens else raw as file:
        try:
            while piece := file.readline(LONGEST + 1 if longest < 0 else longest):
                if len(piece) > LONGEST:
                    raise BadInput(f"{path}, line {number}: it has more than {LONGEST >> 20} MiB; break it into lines.")
                yield number, decoder.decode(piece)
                number += piece.endswith(b"\n")
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise BadInput(
                f"{path}, line {number}: the byte 0x{byte:02x} is not UTF-8; convert the file to UTF-8."
            ) from None


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Whatever goes wrong while a file is read becomes one sentence."""
    try:
        yield
    except BadInput:
        raise
    except FileNotFoundError:
        raise missing(path) from None
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise BadInput(f"{path}: it cannot be unpacked ({error}); compress the text again.") from None
    except Exception as error:  # Arrow raises nearly anything for a damaged file.
        raise BadInput(f"{path}: it cannot be read ({short(error)}); check the file and its permissions.") from error


def missing(path: Path, remedy: str = "check the path") -> BadInput:
    """The refusal of a file that is not there, or no longer."""
    return BadInput(f"{path}: there is no such file; {remedy}.")


def library(name: str) -> Any:
    """A module of a library that only some formats need, imported when they do."""
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise BadInput(
            f"{package}: it is not installed, and such data need it; run pip install {package}, or give a .jsonl file."
        ) from None


def _element(text: str, at: int, first: bool, brackets: str) -> tuple[int, Any, int]:
    """Where the next element of an array starts, the element, and where it ends; the end of the array has no width."""
    opening, closing = brackets[0], brackets[1]
    mark = _MARKS[brackets].match(text, at)
    if mark is None or first != mark[1].startswith(opening):
        raise json.JSONDecodeError(f"expected , or {closing}", text, at)
    if mark[1].endswith(closing):
        return mark.end(1), None, mark.end(1)
    value, end = _DECODER.raw_decode(text, mark.end())
    if brackets == "[]":
        return mark.end(), value, end
    if (colon := _COLON.match(text, end)) is None:
        raise json.JSONDecodeError("expected :", text, end)
    inside, end = _DECODER.raw_decode(text, colon.end())
    return mark.end(), (value, inside), end


def _taken(pieces: Iterator[str], size: int) -> str:
    """The next pieces, up to this size together; nothing at the end."""
    taken, total = [], 0
    for piece in pieces:
        taken.append(piece)
        total += len(piece)
        if total >= size:
            break
    return "".join(taken)
