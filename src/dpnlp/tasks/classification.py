"""Classification of texts, or of pairs of texts as in natural language inference: one label for each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from flax import nnx
from jax import Array

from dpnlp.data.cache import Column, Numbers
from dpnlp.data.labelled import Labelled
from dpnlp.metrics.f1 import Confusion
from dpnlp.metrics.score import Score
from dpnlp.tasks.reading import TOKENS, Reading, counted, cross_entropy


@dataclass(frozen=True)
class Classification(Reading[Labelled]):
    """A text, or two, in and a label out. What is longer than `longest` is cut, the longer text of two first.

    `pairs` says that texts come in twos, for whoever makes some up.
    """

    pairs: bool = False

    columns: ClassVar[tuple[Column, ...]] = (*TOKENS, Column("label", ragged=False))

    def numbers(self, records: Sequence[Labelled]) -> Numbers:
        return {**self._texts(records), "label": [self._known(record.label) for record in records]}

    def made_up(self, words: Sequence[str], choices: Sequence[int]) -> Labelled:
        """A text of all words, or two of one half each, with any label."""
        half = len(words) // 2 if self.pairs else len(words)
        second = " ".join(words[half:]) if self.pairs else None
        return Labelled(" ".join(words[:half]), second, self.labels[choices[0] % len(self.labels)], None)

    def loss(self, model: nnx.Module, batch: dict[str, Array]) -> Array:
        """The cross-entropy of the label."""
        return cross_entropy(model(batch), batch["label"])

    def predict(self, records: Sequence[Labelled], batch: int = 64) -> list[str]:
        """The label of each text that the model finds most likely; a label that the text has is not looked at."""
        found = [""] * len(records)
        for place, logits in self._answers(self._texts(records), batch):
            found[place] = self.labels[int(np.argmax(logits))]
        return found

    def score(self, records: Sequence[Labelled], batch: int = 64) -> "Classified":
        """The model's labels beside the true ones. One that the model does not know counts as missed."""
        return Classified(tuple(records), tuple(self.predict(records, batch)), self.labels)

    def right(self, records: Sequence[Labelled]) -> "Classified":
        return Classified(tuple(records), tuple(record.label for record in records), self.labels)

    def _texts(self, records: Sequence[Labelled]) -> dict[str, Any]:
        pairs = [record.pair for record in records]
        second = {"text_pair": pairs} if any(pair is not None for pair in pairs) else {}
        found = self.tokenizer(
            [record.text for record in records],
            **second,
            truncation=True,
            max_length=self.longest,
            return_attention_mask=False,
            return_token_type_ids=True,
        )
        return {"ids": found["input_ids"], "types": found["token_type_ids"]}


@dataclass(frozen=True)
class Classified:
    """Texts and the labels that a model gave them."""

    records: tuple[Labelled, ...]
    predictions: tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def confusion(self) -> Confusion:
        """Over the labels that the model knows, and those that only the texts have."""
        return counted([record.label for record in self.records], self.predictions, self.labels)

    def scores(self) -> dict[str, Score]:
        """Macro-F1 first, for accuracy hides a model that has fallen for the majority class."""
        found = self.confusion
        return {"macro_f1": found.macro_f1(), "micro_f1": found.micro_f1(), "accuracy": found.accuracy()}

    def details(self) -> dict[str, Any]:
        """The table of the classes, and which was taken for which."""
        return self.confusion.to_json()

    def lines(self) -> Iterator[dict[str, str]]:
        """Text, label and prediction of each."""
        for record, prediction in zip(self.records, self.predictions, strict=True):
            source = record.text if record.pair is None else f"{record.text} / {record.pair}"
            yield {"source": source, "reference": record.label, "hypothesis": prediction}
