"""Extractive answering (Rajpurkar et al. 2018): where in a text is the answer to a question, if it is there at all?

A text that is longer than the model reads is read in windows that overlap. All windows of a question are one record, so
that the guarantee is for the whole of it (law 11).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from numpy.typing import NDArray

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.data.cache import Column, Numbers
from dpnlp.data.questions import Answer, Question
from dpnlp.metrics.score import Score
from dpnlp.metrics.squad import Squad, squad
from dpnlp.tasks.reading import TOKENS, Reading, cross_entropy


class Found(NamedTuple):
    """The best answer in a window: its logits added up, those of no answer, and from where to where it goes."""

    score: float
    none: float
    start: int  # characters in the context
    end: int


@dataclass(frozen=True)
class Answering(Reading[Question]):
    """A question and a text in, a part of the text out, or nothing where the text does not tell.

    No answer is place 0, that of the first token. `stride` tokens of a window are in the next one too; an answer has at
    most `most` tokens. A question of more than a quarter of a window is cut, to leave room for the text.
    """

    stride: int = 64
    most: int = 30

    columns: ClassVar[tuple[Column, ...]] = (*TOKENS, Column("start", ragged=False), Column("end", ragged=False))

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.count("longest", self.longest, least=32)
        checks.count("most", self.most)
        if checks.count("stride", self.stride, least=0) > self.longest // 2:
            raise BadInput(
                f"stride = {self.stride}: it must be at most half of longest = {self.longest}; take a smaller one."
            )

    def numbers(self, records: Sequence[Question]) -> Numbers:
        windows = self._windows(records)
        made: dict[str, Any] = {name: windows[name] for name in ("ids", "types", "record")}
        places = [
            _place(records[record].answers[:1], offsets)
            for record, offsets in zip(windows["record"], windows["offsets"], strict=True)
        ]
        return {**made, "start": [start for start, _ in places], "end": [end for _, end in places]}

    def made_up(self, words: Sequence[str], choices: Sequence[int]) -> Question:
        """A question of one half of the words, about the other half; any of these is the answer."""
        half = len(words) // 2
        asked, told = words[:half], words[half:]
        place = choices[0] % len(told)
        answer = Answer(told[place], len(" ".join(("", *told[:place]))))
        return Question("", " ".join(asked), " ".join(told), (answer,), None)

    def loss(self, model: nnx.Module, batch: dict[str, Array]) -> Array:
        """The mean of the cross-entropies of both ends, each over the window's own tokens."""
        logits = jnp.where(batch["mask"][..., None], model(batch), -1e9)
        return (cross_entropy(logits[..., 0], batch["start"]) + cross_entropy(logits[..., 1], batch["end"])) / 2

    def predict(self, records: Sequence[Question], batch: int = 32) -> list[str]:
        """The answer to each question, empty where none is more likely than that there is none."""
        windows = self._windows(records)
        best: dict[int, Found] = {}
        for window, logits in self._answers({name: windows[name] for name in ("ids", "types")}, batch):
            record, found = windows["record"][window], self._best(logits, windows["offsets"][window])
            before = best.get(record, found)
            none = min(before.none, found.none)  # A window without the answer says nothing about the others.
            best[record] = max(before, found, key=lambda one: one.score)._replace(none=none)
        return [
            records[place].context[best[place].start : best[place].end] if best[place].score > best[place].none else ""
            for place in range(len(records))
        ]

    def score(self, records: Sequence[Question], batch: int = 32) -> "Answered":
        """The model's answers beside the true ones."""
        return Answered(tuple(records), tuple(self.predict(records, batch)))

    def right(self, records: Sequence[Question]) -> "Answered":
        first = (record.answers[0].text if record.answers else "" for record in records)
        return Answered(tuple(records), tuple(first))

    @property
    def _decisive(self) -> tuple[Any, ...]:
        return *super()._decisive, self.stride

    def _windows(self, records: Sequence[Question]) -> dict[str, Any]:
        """Tokens, types and record of each window, and the characters of each token that is one of the context."""
        found = self.tokenizer(
            self._questions(records),
            [record.context for record in records],
            truncation="only_second",
            max_length=self.longest,
            stride=self.stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_token_type_ids=True,
        )
        offsets = [
            [place if part == 1 else None for place, part in zip(places, found.sequence_ids(window), strict=True)]
            for window, places in enumerate(found["offset_mapping"])
        ]
        return {
            "ids": found["input_ids"],
            "types": found["token_type_ids"],
            "record": found["overflow_to_sample_mapping"],
            "offsets": offsets,
        }

    def _questions(self, records: Sequence[Question]) -> list[str]:
        asked = [record.question.strip() for record in records]
        options = {"truncation": True, "max_length": self.longest // 4, "add_special_tokens": False}
        found = self.tokenizer(asked, return_offsets_mapping=True, **options)["offset_mapping"]
        return [text[: places[-1][1]] if places else text for text, places in zip(asked, found, strict=True)]

    def _best(self, logits: NDArray[np.float32], offsets: Sequence[tuple[int, int] | None]) -> Found:
        """The best answer in a window: no longer than `most`, and inside the context."""
        inside = np.array([place is not None for place in offsets])
        start, end = (np.where(inside, side, -np.inf) for side in logits.T)
        total = start[:, None] + end[None, :] + np.where(_within(len(start), self.most), 0, -np.inf)
        first, last = np.unravel_index(int(np.argmax(total)), total.shape)
        one, other = offsets[int(first)], offsets[int(last)]
        none = float(logits[0].sum())
        if one is None or other is None:
            return Found(-np.inf, none, 0, 0)
        return Found(float(total[first, last]), none, one[0], other[1])


def _within(length: int, most: int) -> NDArray[np.bool_]:
    """Which ends [start, end] belong to an answer of at most so many tokens."""
    distance = np.arange(length)[None, :] - np.arange(length)[:, None]
    return (distance >= 0) & (distance < most)


def _place(answers: Sequence[Any], offsets: Sequence[tuple[int, int] | None]) -> tuple[int, int]:
    """The first and last token of an answer, if the whole of it is in the window; else 0, no answer."""
    for answer in answers:
        stop = answer.start + len(answer.text)
        inside = [
            token
            for token, place in enumerate(offsets)
            if place is not None and place[0] < stop and place[1] > answer.start
        ]
        known = [place for place in offsets if place is not None]
        if inside and known[0][0] <= answer.start and known[-1][1] >= stop:
            return inside[0], inside[-1]
    return 0, 0


@dataclass(frozen=True)
class Answered:
    """Questions and the answers that a model gave."""

    records: tuple[Question, ...]
    predictions: tuple[str, ...]

    @property
    def compared(self) -> Squad:
        """As SQuAD counts them."""
        true = [[answer.text for answer in record.answers] for record in self.records]
        return squad(references=true, predictions=self.predictions)

    def scores(self) -> dict[str, Score]:
        """F1 over the words of the answers first, then exact matches."""
        return {"f1": self.compared.f1(), "exact_match": self.compared.exact_match()}

    def details(self) -> dict[str, Any]:
        """The same apart for questions with an answer and without."""
        return self.compared.to_json()

    def lines(self) -> Iterator[dict[str, str]]:
        """Question, answers and prediction."""
        for record, prediction in zip(self.records, self.predictions, strict=True):
            answers = " | ".join(dict.fromkeys(answer.text for answer in record.answers))
            yield {"source": record.question, "reference": answers, "hypothesis": prediction}
