"""Texts that are joined by edges: a table of texts with ids, and a list of pairs of ids.

What a text's features are is a function of that text alone. `HashedWords` makes them without a vocabulary, which would
have to be counted on private texts; an encoder that was trained elsewhere can be given instead.
"""

import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.data.formats import Table, lines
from dpnlp.data.graphs import UNKNOWN, Graph, GraphCorpus, divided
from dpnlp.data.records import ColumnNames, Fields, fields_of, table_of

SPLITS = ("train", "validation", "test")
"""What may stand in the column of splits; where it is empty the node is in none."""

Encode = Callable[[Sequence[str]], NDArray[Any]]
"""Texts to vectors, [texts, features]."""

_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class HashedWords:
    """Which words are in a text: 1 in the column of each, 0 elsewhere. A word's column is a checksum of the word.

    Words are runs of letters and digits, in lower case. Nothing is learned from the texts, so that a column says the
    same of every corpus; two words share one with probability 1/columns.
    """

    columns: int = 4096

    def __post_init__(self) -> None:
        checks.count("columns", self.columns)

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """[texts, columns]."""

        @cache
        def column(word: str) -> int:
            return int.from_bytes(blake2b(word.encode(), digest_size=8).digest()) % self.columns

        found = np.zeros((len(texts), self.columns), np.float32)
        for row, text in zip(found, texts, strict=True):
            row[[column(word) for word in set(_WORD.findall(text.lower()))]] = 1
        return found


@dataclass(frozen=True)
class Columns(ColumnNames):
    """Which fields of a row are id, text, label and, where the splits are given, the split."""

    id: str = "id"
    text: str = "text"
    label: str | None = "label"  # None where it is to be told
    split: str | None = None


class _Node(NamedTuple):
    """A row of the table; an empty label and an empty split are none."""

    row: Fields
    id: str
    text: str
    label: str
    split: str


_USUAL = Columns()
WORDS = HashedWords()
"""What features are by default."""


def graph_of_texts(
    texts: str | Path,
    edges: str | Path,
    columns: Columns = _USUAL,
    *,
    classes: Sequence[str] = (),
    encode: Encode = WORDS,
    validation: float = 0.1,
    test: float = 0.1,
) -> GraphCorpus:
    """The graph of a table of texts, of which `table_of` has the forms, and of a list of edges, as `pairs_of` reads it.

    A text without words has no features but zeros. One without a label is a node in no split. `classes` are those that
    are known beforehand; without them they are those of the training texts, and any other is refused. Where no column
    says which split a text is in, shares of all are kept for validation and test, by a checksum of the id.
    """
    files, nodes, numbers, pairs = _read(texts, edges, columns, classes)
    if columns.split is None:
        known = [0 if node.label else UNKNOWN for node in nodes]
        splits = divided(known, test, validation, numbers)
    else:
        given = np.array([node.split for node in nodes])
        train, validated, tested = (np.flatnonzero(given == name) for name in SPLITS)
        splits = (train, validated, tested)
    names = tuple(classes) or tuple(sorted({nodes[number].label for number in splits[0]}))
    labels = [_label(node, columns, names) for node in nodes]
    said = tuple(node.text for node in nodes)
    graph = Graph.of(vectors(said, encode), pairs, labels, names, numbers)
    return GraphCorpus(graph, *splits, files, public_classes=bool(classes), texts=said)


def unlabelled(
    texts: str | Path, edges: str | Path, columns: Columns, *, classes: Sequence[str], encode: Encode = WORDS
) -> Graph:
    """The graph of texts of which these classes are to be told, in the order of the table. Labels are not looked at."""
    _, nodes, numbers, pairs = _read(texts, edges, replace(columns, label=None, split=None), classes)
    features = vectors([node.text for node in nodes], encode)
    return Graph.of(features, pairs, [UNKNOWN] * len(nodes), classes, numbers)


def vectors(texts: Sequence[str], encode: Encode) -> NDArray[np.float32]:
    """The features of each text, [texts, features]: zeros where it is blank, else what `encode` makes of it."""
    worded = [number for number, text in enumerate(texts) if text.strip()]
    encoded = np.asarray(encode([texts[number] for number in worded]))
    if encoded.ndim != 2 or len(encoded) != len(worded) or encoded.dtype.kind not in "fiub":
        raise BadInput(
            f"encode = {encoded.dtype} of shape {encoded.shape} for {len(worded)} texts: it must give a row of numbers "
            "for each text."
        )
    found = np.zeros((len(texts), encoded.shape[1]), np.float32)
    found[worded] = encoded
    return found


def pairs_of(path: Path, numbers: Mapping[str, int], remedy: str | None = None) -> NDArray[np.int64]:
    """The pairs in a list of edges, [pairs, 2]: two ids a line, with a tab, a comma or spaces between them.

    Blank lines and those that start with # are left out. `numbers` has the node of each id. An edge to another id is
    refused with what to do or, without a remedy, left out.
    """
    found = array("q")
    for number, line in lines(path):
        if not (text := line.strip()) or text.startswith("#"):
            continue
        mark = "\t" if "\t" in text else "," if "," in text else None
        ends = [end.strip() for end in text.split(mark)]
        if len(ends) != 2 or "" in ends:
            raise BadInput(
                f"{path}, line {number}: it must have two ids, with a tab, a comma or a space between them, and has "
                f"{len(ends) - ends.count('')}; correct the line."
            )
        first, second = map(numbers.get, ends)
        if first is not None and second is not None:
            found.extend((first, second))
        elif remedy is not None:
            raise BadInput(
                f"{path}, line {number}: there is no text with the id {ends[first is not None][:99]}; {remedy}."
            )
    return np.array(found, np.int64).reshape(-1, 2)


def _read(
    texts: str | Path, edges: str | Path, columns: Columns, classes: Sequence[str]
) -> tuple[tuple[Path, ...], list[_Node], dict[str, int], NDArray[np.int64]]:
    """The files, the nodes in the order of the table, the number of each by its id, and the pairs."""
    table, listed = table_of(texts, columns, None, "text"), Path(edges)
    nodes = _nodes(table, columns, classes)
    numbers = {node.id: number for number, node in enumerate(nodes)}
    pairs = pairs_of(listed, numbers, f"remove the edge, or add the text to {table.files[0]}")
    return (*table.present(), listed), nodes, numbers, pairs


def _nodes(table: Table, columns: Columns, classes: Sequence[str]) -> list[_Node]:
    """The rows of the table, each with an id of its own."""
    found: dict[str, _Node] = {}
    for row in fields_of(table, columns, "text"):
        name = row.label("id", columns.id, row.value("id", columns.id), ())
        if name in found:
            first = table.where(found[name].row.number)
            raise row.wrong("id", columns.id, f"is {name}, as in {first}; give each text an id of its own")
        label = split = ""
        if columns.label is not None:
            label = row.label("label", columns.label, row.value("label", columns.label), classes, unnamed=("",))
        if columns.split is not None:
            split = row.text("split", columns.split, blank=True).strip()
            if split not in ("", *SPLITS):
                raise row.wrong("split", columns.split, f"is {split}, and must be {', '.join(SPLITS)} or empty")
            if split and not label:
                raise row.wrong("split", columns.split, f"is {split}, and the text has no label; leave it empty")
        found[name] = _Node(row, name, row.text("text", columns.text, blank=True), label, split)
    if not found:
        raise BadInput(f"{table.files[0]}: it has no texts; fill it, or give another file.")
    return list(found.values())


def _label(node: _Node, columns: Columns, classes: Sequence[str]) -> int:
    if columns.label is None or not node.label:
        return UNKNOWN
    if node.label not in classes:
        raise node.row.wrong(
            "label", columns.label, f"is {node.label}, and no training text has it; give all classes, or leave it empty"
        )
    return classes.index(node.label)
