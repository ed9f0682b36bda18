"""All texts in a file of which nothing else is known, in every way in which a run may read it.

A table has its strings. Other files have lines, paragraphs with and without the line above them, sentences of a word a
line in any of its columns, and the whole as one text. Whatever a run may take for a text is among them, so that a
budget on a file binds those who read a copy of it, also if no run has read the file yet.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dpnlp.checks import BadInput
from dpnlp.data.formats import Delimited, Json, Parquet, arrow_rows, library, lines
from dpnlp.data.records import suffix_of
from dpnlp.data.tagged import cells_of, is_written

LEDGERS = (".ledger", ".ledger.key", ".ledger.head")
"""How the files end that a ledger brings with it."""

_WHOLE = 2**24
"""Up to so many characters a file, or a part of it between blank lines, may be one text."""
_SENTENCE = 2**12
"""Up to so many lines without a blank one may be the words of a sentence."""
_COLUMNS = 16


def files_of(path: Path) -> tuple[Path, ...]:
    """The file, or all files in the folder and in those that are linked into it, without ledgers."""
    found = [path] if path.is_file() else [file for file in sorted(_below(path, frozenset())) if file.is_file()]
    return tuple(file for file in found if not file.name.endswith(LEDGERS))


def strings(path: Path) -> Iterator[str]:
    """All of them, as far as the file can be read; lists of words are sentences, too."""
    suffix = suffix_of(path)
    reads = {".json": _json, ".jsonl": _json, ".csv": _cells, ".tsv": _cells, ".parquet": _parquet, ".arrow": _arrow}
    for read in (reads.get(suffix), None if suffix in (".json", ".jsonl", ".csv", ".parquet", ".arrow") else _lines):
        try:
            yield from read(path) if read else ()
        except BadInput:
            continue


def _below(folder: Path, above: frozenset[str]) -> Iterator[Path]:
    """What is in a folder, wherever links in it lead, but for one that leads to a folder above."""
    if (real := os.path.realpath(folder)) in above:
        return
    entries = list[Path]()
    with suppress(PermissionError):
        entries = list(folder.iterdir())
    for path in entries:
        yield from _below(path, above | {real}) if path.is_dir() else (path,)


def _json(path: Path) -> Iterator[str]:
    try:
        for _, row in Json((path,)).rows():
            yield from _within(row)
    except BadInput:
        yield from _any_json(path)


def _any_json(path: Path) -> Iterator[str]:
    """A file that is one value, on however many lines, or else those of its lines that are JSON."""
    text = "".join(line for _, line in lines(path))
    for part in (text, *text.split("\n")):
        try:
            yield from _within(json.loads(part))
        except (ValueError, RecursionError):
            continue
        if part is text:
            return


def _cells(path: Path) -> Iterator[str]:
    for _, cells in Delimited((path,), "," if suffix_of(path) == ".csv" else "\t").cells():
        yield from cells


def _parquet(path: Path) -> Iterator[str]:
    for _, row in Parquet((path,)).rows():
        yield from _within(row)


def _arrow(path: Path) -> Iterator[str]:
    datasets = library("datasets")
    for _, row in arrow_rows(datasets.Dataset.from_file(str(path)).with_format("arrow").iter(1024)):
        yield from _within(row)


def _lines(path: Path) -> Iterator[str]:
    """Each line, what stands between blank ones, and the whole."""
    whole, block, size = list[str](), list[str](), 0
    for _, line in lines(path):
        yield line
        size += len(line)
        if size <= _WHOLE:
            whole.append(line)
        cells = cells_of(line)
        if cells and cells[0] != "-DOCSTART-":
            block.append(line)
        elif block:
            yield from _together(block)
            block = []
    yield from _together(block)
    if size <= _WHOLE:
        yield "".join(whole)


def _together(block: Sequence[str]) -> Iterator[str]:
    """Lines as one text: a paragraph, what is said below a name, or the words of a sentence."""
    if len(block) < 2:
        return
    if sum(map(len, block)) <= _WHOLE:
        yield "".join(block)
        yield "".join(block[1:])
    if len(block) <= _SENTENCE:
        rows = [cells_of(line) for line in block]
        yield from _columns(rows)
        yield from _columns([row for row in rows if is_written(row)])


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The words in each column, counted from the first and from the last; tags, which are few, are none."""
    width = min(map(len, rows), default=0)
    for column in range(-min(width, _COLUMNS), min(width, _COLUMNS)):
        words = [row[column] for row in rows]
        if 2 * len(set(words)) >= len(words):
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
