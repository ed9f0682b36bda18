"""Questions that are answered by a piece of a text, or not at all: `questions` opens a stream of them."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from dpnlp.checks import BadInput
from dpnlp.data.formats import Row, Table, lines
from dpnlp.data.records import ColumnNames, Fields, Records, kind, suffix_of, table_of

_SQUAD = re.compile(r'\s*\{\s*"(version|data)"')
"""How a file of SQuAD begins, and no row of a table."""
_BEGINNING = 1 << 10
"""How many bytes of a file are looked at."""


class Answer(NamedTuple):
    """A piece of the context, and the character that it starts with."""

    text: str
    start: int


class Question(NamedTuple):
    """A question about a context. It has no answers where the context does not say; the owner is the document."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    owner: str | None

    @property
    def texts(self) -> tuple[str, ...]:
        """The question and its context, of which the answers are a part."""
        return (self.question, self.context)


@dataclass(frozen=True)
class Columns(ColumnNames):
    """Which fields of a row are what. In files of SQuAD the owner can be the `title` of the document."""

    id: str = "id"
    question: str = "question"
    context: str = "context"
    answers: str = "answers"
    owner: str | None = None


_USUAL = Columns()


@dataclass(frozen=True)
class Squad(Table):
    """A file of SQuAD 1.1 or 2.0: documents of paragraphs of questions. Unlike other tables it is read at once."""

    counted: ClassVar[str] = "question"

    def rows(self) -> Iterator[Row]:
        path = self.files[0]
        try:
            found = json.loads("".join(line for _, line in lines(path)))
            number = 0
            for document in found["data"]:
                for paragraph in document["paragraphs"]:
                    for asked in paragraph["qas"]:
                        number += 1
                        yield number, self._row(number, document, paragraph, asked)
        except json.JSONDecodeError as error:
            raise BadInput(f"{path}, line {error.lineno}: it is not JSON ({error.msg}); take the file anew.") from None
        except BadInput:
            raise
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
            raise BadInput(
                f"{path}: it is not laid out as SQuAD is, with data, paragraphs and qas; take the published file."
            ) from None

    def _row(self, number: int, document: Any, paragraph: Any, asked: Any) -> Mapping[str, Any]:
        answers, impossible = asked.get("answers") or [], asked.get("is_impossible", False)
        if bool(answers) == bool(impossible):
            what = "answers, but is_impossible is true" if impossible else "no answers, but is_impossible is not true"
            raise BadInput(f"{self.where(number)}: {asked.get('id')} has {what}; correct either.")
        return {**asked, "context": paragraph["context"], "title": document.get("title"), "answers": answers}


@dataclass(frozen=True)
class Questions(Records[Question]):
    """The questions of a table.

    Answers are objects with `text` and `answer_start` in a list, or one object with a list of each. An answer that does
    not stand at its start, but exactly once elsewhere in the context, is taken from there; any other is refused.
    """

    columns: Columns

    noun: ClassVar[str] = "question"

    def record(self, row: Fields) -> Question:
        columns = self.columns
        named = row.label("id", columns.id, row.value("id", columns.id), ())
        context = row.text("context", columns.context)
        answers = tuple(
            _placed(row, columns.answers, named, context, *answer) for answer in _answers(row, columns.answers, named)
        )
        return Question(named, row.text("question", columns.question), context, answers, row.owner(columns.owner))


def questions(source: str | Path, columns: Columns = _USUAL, split: str | None = None) -> Questions:
    """The questions in a file of SQuAD (.json, packed or not), or in a table, of which `table_of` has the forms."""
    path = Path(source)
    if suffix_of(path) == ".json" and path.is_file():
        _, beginning = next(lines(path, _BEGINNING), (1, ""))
        if _SQUAD.match(beginning) or beginning.strip() == "{":
            return Questions(Squad((path,)), columns)
    return Questions(table_of(source, columns, split, "question"), columns)


def _answers(row: Fields, column: str, named: str) -> list[tuple[Any, Any]]:
    """The text and the start of each answer, whatever they are."""
    found = row.value("answers", column)
    if isinstance(found, Mapping):
        texts, starts = found.get("text"), found.get("answer_start")
        if isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts):
            return list(zip(texts, starts, strict=True))
    elif isinstance(found, list) and all(isinstance(answer, Mapping) for answer in found):
        return [(answer.get("text"), answer.get("answer_start")) for answer in found]
    elif found is None:
        return []
    raise row.wrong(
        "answers",
        column,
        f"of {named} are {kind(found)}, and must be a list of objects with text and answer_start, empty where there is "
        "no answer",
    )


def _placed(row: Fields, column: str, named: str, context: str, text: Any, start: Any) -> Answer:
    """The answer where it stands in the context."""
    if not isinstance(text, str) or not text.strip() or isinstance(start, bool) or not isinstance(start, int):
        raise row.wrong("answers", column, f"of {named} must have a text and a whole number as answer_start")
    if start < 0 or not context.startswith(text, start):
        first = context.find(text)
        if first < 0 or context.find(text, first + 1) >= 0:
            often = "nowhere in the context" if first < 0 else "several times elsewhere"
            raise row.wrong(
                "answers", column, f"of {named} have {text!r}, which is not at {start} and {often}; correct its start"
            )
        start = first
    return Answer(text, start)
