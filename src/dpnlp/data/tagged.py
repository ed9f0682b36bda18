"""Sentences with a tag for each word: `tagged` opens a stream of them, from CoNLL's columns among other forms."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from dpnlp.checks import BadInput
from dpnlp.data.formats import Row, Table, lines
from dpnlp.data.records import ColumnNames, Fields, Records, aligned, is_hub_id, kind, suffix_of, table_of

CONLLU = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
"""The columns of CoNLL-U."""

_TABLES = (".jsonl", ".json", ".csv", ".parquet")
_COLUMNS = (".conll", ".bio", ".iob", ".tsv", ".txt")
_DOCUMENT = re.compile(r"#\s*newdoc(?:\s+id\s*=\s*(.*?))?\s*")
_ID = re.compile(r"[0-9]+(?:([-.])[0-9]+)?")
"""The number of a word; 1-2 is a range of words that are written as one, and 1.1 a word that is not written."""


class Tagged(NamedTuple):
    """The words of a sentence, their tags, and whose it is, or of which document, where that is known."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    owner: str | None

    @property
    def labels(self) -> tuple[str, ...]:
        """The tags."""
        return self.tags

    @property
    def texts(self) -> tuple[str, ...]:
        """The sentence."""
        return (" ".join(self.words),)


@dataclass(frozen=True)
class Columns(ColumnNames):
    """Which fields of a row, or columns of a file, are words, tags and owner. None is what the format usually has.

    In columns of CoNLL's kind words and tags are numbers from 0 on, or from -1 on back from the last, and usually the
    first and the last. In CoNLL-U they are names, usually FORM and UPOS. In both the owner can be the `document`.
    """

    words: str | None = None
    tags: str | None = None
    owner: str | None = None


_USUAL = Columns()


@dataclass(frozen=True)
class Conll(Table):
    """A word a line, in columns with tabs or spaces between.

    A blank line ends a sentence. A line of -DOCSTART- begins a document, which is called by its number.
    """

    word: int = 0
    tag: int = -1

    @property
    def reading(self) -> str:
        return f"{type(self).__name__}({self.word}, {self.tag})"

    def rows(self) -> Iterator[Row]:
        start, document = 1, 0
        words: list[str] = []
        tags: list[str] = []
        for number, line in chain(lines(self.files[0]), [(0, "")]):
            cells = cells_of(line)
            if cells and cells[0] != "-DOCSTART-":
                start = start if words else number
                word, tag = self._both(number, cells)
                words.append(word)
                tags.append(tag)
                continue
            if words:
                yield start, {"words": words, "tags": tags, "document": document or None}
                words, tags = [], []
            document += bool(cells)

    def _both(self, number: int, cells: list[str]) -> tuple[str, str]:
        """The word and the tag of a line."""
        places = [place + len(cells) * (place < 0) for place in (self.word, self.tag)]
        if places[0] == places[1] or not all(0 <= place < len(cells) for place in places):
            raise BadInput(
                f"{self.where(number)}: it has {_columns(len(cells))}, too few for a word in column {self.word} and a "
                f"tag in column {self.tag}; correct the line, or choose other columns."
            )
        return cells[places[0]], cells[places[1]]


@dataclass(frozen=True)
class Conllu(Table):
    """Universal Dependencies. Words that are not written are left out, and so are ranges, whose words come one by one.

    Documents are what `# newdoc` begins; one without an id is called by its number.
    """

    word: str = "FORM"
    tag: str = "UPOS"

    def __post_init__(self) -> None:
        for role, column in (("words", self.word), ("tags", self.tag)):
            if column not in CONLLU:
                raise BadInput(f"{role} = {column}: a column of CoNLL-U must be one of {', '.join(CONLLU)}.")

    @property
    def reading(self) -> str:
        return f"{type(self).__name__}({self.word}, {self.tag})"

    def rows(self) -> Iterator[Row]:
        documents = 0
        document: str | int | None = None
        start = 0  # the first line of the sentence
        words: list[str] = []
        tags: list[str] = []
        for number, line in chain(lines(self.files[0]), [(0, "")]):
            text = line.rstrip("\r\n")
            if not text.strip():
                if start:
                    yield start, {"words": words, "tags": tags, "document": document}
                start, words, tags = 0, [], []
                continue
            start = start or number
            if found := _DOCUMENT.fullmatch(text):
                documents += 1
                document = found[1] or documents
            elif not text.startswith("#") and (both := self._both(number, text)):
                words.append(both[0])
                tags.append(both[1])

    def _both(self, number: int, line: str) -> tuple[str, str] | None:
        """The word and the tag of a line, unless it stands for none."""
        cells = line.split("\t")
        if len(cells) != len(CONLLU):
            there = _columns(len(cells))
            raise BadInput(f"{self.where(number)}: it has {there} with tabs between, and CoNLL-U has 10; correct it.")
        found = _ID.fullmatch(cells[0])
        if not found:
            raise BadInput(f"{self.where(number)}: its ID is {cells[0]!r}, and must be a number such as 1, 1-2 or 1.1.")
        if found[1]:
            return None
        word, tag = (cells[CONLLU.index(column)] for column in (self.word, self.tag))
        if tag == "_":
            raise BadInput(f"{self.where(number)}: it has no {self.tag}, but _; tag the word, or take another column.")
        return word, tag


@dataclass(frozen=True)
class Sentences(Records[Tagged]):
    """The tagged sentences of a table. Words and tags are lists, or texts with spaces between.

    A tag that is a number becomes its text unless there are names: then it is the name that has this number. With
    `iob2` every entity is made to begin with B-, which leaves what is IOB2 already as it is.
    """

    columns: Columns
    names: tuple[str, ...] = ()
    iob2: bool = False

    noun: ClassVar[str] = "sentence"

    def record(self, row: Fields) -> Tagged:
        columns = self.columns.words or "words", self.columns.tags or "tags"
        words, tags = (_listed(row, role, column) for role, column in zip(("words", "tags"), columns, strict=True))
        if len(words) != len(tags):
            raise BadInput(
                f"{row.table.where(row.number)}: the sentence has {len(words)} words and {len(tags)} tags; "
                "give each word one tag."
            )
        for place, word in enumerate(words, 1):
            if not isinstance(word, str) or not word.strip():
                what = "blank" if isinstance(word, str) else kind(word)
                raise row.wrong("words", columns[0], f"are to be texts, but number {place} is {what}; correct it")
            row.whole("words", columns[0], word)
        labels = tuple(row.label("tags", columns[1], tag, self.names) for tag in tags)
        return Tagged(tuple(words), as_iob2(labels) if self.iob2 else labels, row.owner(self.columns.owner))


def tagged(
    source: str | Path | Sequence[str | Path],
    columns: Columns = _USUAL,
    split: str | None = None,
    *,
    names: Sequence[str] = (),
    iob2: bool = False,
) -> Sentences:
    """The tagged sentences in a file of columns, in a table, or in two aligned text files.

    A file that ends in .conllu is CoNLL-U; .jsonl, .json, .csv, .parquet, a folder and an id of the hub are as in
    `table_of`; any other file, .tsv too, has CoNLL's columns. Of two paths line n of the second has the tags of line n
    of the first, as in seq.in and seq.out of Goo et al. (2018). `names` are for tags that are numbers, from 0 on; a
    dataset whose column is a list of ClassLabel has them itself. `iob2` is for files of IOB1, in which most entities
    begin with I-.
    """
    inside = Columns("words", "tags", columns.owner)
    if not isinstance(source, (str, Path)):
        return Sentences(aligned(source, ("words", "tags")), inside, names=tuple(names), iob2=iob2)
    path = Path(source)
    suffix = suffix_of(path)
    table: Table
    if suffix == ".conllu":
        table = Conllu((path,), columns.words or "FORM", columns.tags or "UPOS")
    elif suffix in _TABLES or path.is_dir() or (suffix not in _COLUMNS and is_hub_id(source)):
        inside = replace(columns, words=columns.words or "words", tags=columns.tags or "tags")
        table = table_of(source, inside, split, "sentence")
    else:
        table = Conll((path,), _number("words", columns.words, 0), _number("tags", columns.tags, -1))
    table.present()
    return Sentences(table, inside, names=tuple(names) or table.names(inside.tags or ""), iob2=iob2)


def as_iob2(tags: Sequence[str]) -> tuple[str, ...]:
    """The same entities with B- at the start of each: I- stays only behind a word of its type."""
    before = ("O", *tags)
    return tuple(
        f"B-{tag[2:]}" if tag.startswith("I-") and before[place][1:] != tag[1:] else tag
        for place, tag in enumerate(tags)
    )


def cells_of(line: str) -> list[str]:
    """What stands in the columns of a line: nothing in a blank one."""
    text = line.rstrip("\r\n")
    if not text.strip():
        return []
    return text.split("\t") if "\t" in text else [cell for cell in text.split(" ") if cell]


def is_written(cells: Sequence[str]) -> bool:
    """Whether a line of CoNLL-U has a word of the sentence: no comment, no range, nothing that is not written."""
    found = _ID.fullmatch(cells[0])
    return not cells[0].startswith("#") and not (found and found[1])


def _columns(count: int) -> str:
    return "1 column" if count == 1 else f"{count} columns"


def _number(role: str, column: str | None, usual: int) -> int:
    if column is None:
        return usual
    if not re.fullmatch("-?[0-9]+", column):
        raise BadInput(f"{role} = {column}: a column of such a file must be a number, 0 the first and -1 the last.")
    return int(column)


def _listed(row: Fields, role: str, column: str) -> list[Any]:
    found = row.value(role, column)
    found = found.split() if isinstance(found, str) else [] if found is None else found
    if not isinstance(found, list):
        raise row.wrong(role, column, f"are {kind(found)}, and must be a list, or a text with spaces between")
    if not found:
        raise row.wrong(role, column, "are none; give the sentence at least one, or take it out")
    return found
