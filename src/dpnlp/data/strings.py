"""All texts in a file of which nothing else is known: each string of a table, each line of a text."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dpnlp.checks import BadInput
from dpnlp.data.formats import Delimited, Json, Parquet, arrow_rows, library, lines
from dpnlp.data.records import suffix_of

LEDGERS = (".ledger", ".ledger.key", ".ledger.head")
"""How the files end that a ledger brings with it."""


def files_of(path: Path) -> tuple[Path, ...]:
    """The file, or all files in the folder, without ledgers."""
    found = [path] if path.is_file() else [file for file in sorted(path.rglob("*")) if file.is_file()]
    return tuple(file for file in found if not file.name.endswith(LEDGERS))


def strings(path: Path) -> Iterator[str]:
    """All of them, as far as the file can be read; lists of words are sentences, too."""
    try:
        yield from _strings(path)
    except BadInput:
        return


def _strings(path: Path) -> Iterator[str]:
    match suffix_of(path):
        case ".json" | ".jsonl":
            for _, row in Json((path,)).rows():
                yield from _within(row)
        case ".csv" | ".tsv":
            for _, row in Delimited((path,), "," if suffix_of(path) == ".csv" else "\t", header=False).rows():
                yield from _within(row)
        case ".parquet":
            for _, row in Parquet((path,)).rows():
                yield from _within(row)
        case ".arrow":
            datasets = library("datasets")
            for _, row in arrow_rows(datasets.Dataset.from_file(str(path)).with_format("arrow").iter(1024)):
                yield from _within(row)
        case ".txt":
            yield from (line for _, line in lines(path))
        case _:
            yield from _lines(path)


def _lines(path: Path) -> Iterator[str]:
    """Each line and, where a line is a word with its tags, each sentence by the words in the first column."""
    words: list[str] = []
    for _, line in lines(path):
        yield line
        if cells := line.split():
            words.append(cells[1] if len(cells) == 10 and cells[0].isdigit() else cells[0])
        elif words:
            yield " ".join(words)
            words = []
    if words:
        yield " ".join(words)


def _within(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _within(inner)
    elif isinstance(value, (list, tuple)):
        if value and all(isinstance(word, str) for word in value):
            yield " ".join(value)
        for inner in value:
            yield from _within(inner)
