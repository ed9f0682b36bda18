"""Exact match and F1 of answers, as the official evaluation of SQuAD 2.0 (Rajpurkar et al. 2018) has them.

Answers are compared in lower case, without punctuation, without the articles a, an and the, and with single spaces.
Of several answers to a question the best counts. A question without an answer is answered rightly by the empty text
alone, and so is one whose answers have nothing left when they are compared. Figures lie between 0 and 1; the official
script prints 100 times as much.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpnlp.checks import BadInput
from dpnlp.metrics.score import Score, Texts, aligned, signed, text

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalized(answer: str) -> str:
    """An answer as it is compared."""
    bare = answer.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """1 where the prediction is one of the answers, else 0."""
    return float(normalized(prediction) in _golden(answers))


def token_f1(prediction: str, answers: Sequence[str]) -> float:
    """The F1 of the words that a prediction shares with an answer, of the answer that gives most."""
    said = normalized(prediction).split()
    return max(_overlap(said, answer.split()) for answer in _golden(answers))


@dataclass(frozen=True)
class Answered:
    """Sums over questions: how many there are, how many got no answer, and what their answers score."""

    questions: int = 0
    unanswered: int = 0
    exact: float = 0.0
    f1: float = 0.0

    def __add__(self, other: "Answered") -> "Answered":
        return Answered(
            self.questions + other.questions,
            self.unanswered + other.unanswered,
            self.exact + other.exact,
            self.f1 + other.f1,
        )

    def to_json(self) -> dict[str, Any]:
        """The means for a report, which are nothing where there are no questions."""
        return {
            "exact": self.exact / self.questions if self.questions else None,
            "f1": self.f1 / self.questions if self.questions else None,
            "questions": self.questions,
            "unanswered": self.unanswered,
        }


@dataclass(frozen=True)
class Squad:
    """The answers to questions that have one and to those that have none; those of parts of a set are added up."""

    answerable: Answered
    unanswerable: Answered

    def __add__(self, other: "Squad") -> "Squad":
        return Squad(self.answerable + other.answerable, self.unanswerable + other.unanswerable)

    @property
    def all(self) -> Answered:
        """All questions together."""
        return self.answerable + self.unanswerable

    def exact_match(self) -> Score:
        """Which share of the questions is answered exactly."""
        return signed("squad_exact_match", self.all.exact / self.all.questions, n=self.all.questions, rules="SQuAD-2.0")

    def f1(self) -> Score:
        """The mean F1 of all questions."""
        return signed("squad_f1", self.all.f1 / self.all.questions, n=self.all.questions, rules="SQuAD-2.0")

    def to_json(self) -> dict[str, Any]:
        """All of it for a report."""
        return {
            **self.all.to_json(),
            "answerable": self.answerable.to_json(),
            "unanswerable": self.unanswerable.to_json(),
        }


def squad(*, references: Sequence[Sequence[str]], predictions: Texts) -> Squad:
    """Scores the answer to each question; the references are the texts of its right answers, of which it may have none.

    Both lists go by name, as in `confusion`.
    """
    aligned(references=references, predictions=predictions)
    sums = {True: Answered(), False: Answered()}
    for line, (answers, prediction) in enumerate(zip(references, predictions, strict=True), start=1):
        if isinstance(answers, str) or not isinstance(answers, Sequence):
            raise BadInput(
                f"references, line {line} = {answers!r:.60}: it must be a list of answers; give [] for none."
            )
        right = [text("references", line, answer) for answer in answers]
        said = text("predictions", line, prediction)
        empty = not normalized(said)
        sums[bool(right)] += Answered(1, empty, exact_match(said, right), token_f1(said, right))
    return Squad(answerable=sums[True], unanswerable=sums[False])


def _golden(answers: Sequence[str]) -> list[str]:
    """What a prediction is compared with: the empty text where there is no answer."""
    return [bare for answer in answers if (bare := normalized(answer))] or [""]


def _overlap(said: list[str], right: list[str]) -> float:
    """2·shared/(said + right), which is F1; 1 where both are empty."""
    shared = sum((Counter(said) & Counter(right)).values())
    return 2 * shared / (len(said) + len(right)) if said or right else 1.0
