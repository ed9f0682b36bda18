"""Tagging: one label for each word, such as its part of speech, or where a name begins and goes on (IOB2)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from dpnlp.data.cache import Column, Numbers
from dpnlp.data.tagged import Tagged
from dpnlp.metrics.entities import EntityF1, entity_f1
from dpnlp.metrics.f1 import Confusion
from dpnlp.metrics.score import Score
from dpnlp.tasks.reading import TOKENS, Reading, counted, cross_entropy


@dataclass(frozen=True)
class Tagging(Reading[Tagged]):
    """Words in, a tag for each out. The first piece of a word carries its tag; its other pieces carry none.

    A sentence of more than `longest` tokens is learned from as far as it goes, and read in several parts.
    """

    columns: ClassVar[tuple[Column, ...]] = (*TOKENS, Column("tags", -1))

    def numbers(self, records: Sequence[Tagged]) -> Numbers:
        made: dict[str, Any] = {"ids": [], "types": [], "tags": []}
        for record, pieces in zip(records, self._pieces(records), strict=True):
            ids, firsts = self._part(pieces, 0)
            tags = [-1] * len(ids)
            for place, tag in zip(firsts, record.tags, strict=False):
                tags[place] = self._known(tag)
            made["ids"].append(ids)
            made["types"].append([0] * len(ids))
            made["tags"].append(tags)
        return made

    def made_up(self, words: Sequence[str], choices: Sequence[int]) -> Tagged:
        """A sentence of the words, each with any tag."""
        return Tagged(tuple(words), tuple(self.labels[choice % len(self.labels)] for choice in choices), None)

    def loss(self, model: nnx.Module, batch: dict[str, Array]) -> Array:
        """The cross-entropy of the tags, as the mean over the example's own words."""
        losses = cross_entropy(model(batch), batch["tags"])
        return losses.sum(axis=1) / jnp.maximum((batch["tags"] >= 0).sum(axis=1), 1)

    def predict(self, records: Sequence[Tagged], batch: int = 64) -> list[tuple[str, ...]]:
        """The tag of each word that the model finds most likely; tags that the words have are not looked at."""
        made: dict[str, Any] = {"ids": [], "types": []}
        parts: list[tuple[int, list[int]]] = []  # the sentence of each part, and where its words begin
        for place, pieces in enumerate(self._pieces(records)):
            word = 0
            while word < len(pieces):
                ids, firsts = self._part(pieces, word)
                made["ids"].append(ids)
                made["types"].append([0] * len(ids))
                parts.append((place, firsts))
                word += len(firsts)
        found: list[list[str]] = [[] for _ in parts]
        for part, logits in self._answers(made, batch):
            best = np.argmax(logits[parts[part][1]], axis=-1)
            found[part] = [self.labels[int(tag)] for tag in best]
        whole: list[list[str]] = [[] for _ in records]
        for (place, _), tags in zip(parts, found, strict=True):
            whole[place] += tags
        return [tuple(tags) for tags in whole]

    def score(self, records: Sequence[Tagged], batch: int = 64) -> "Compared":
        """The model's tags beside the true ones. One that the model does not know counts as missed."""
        return Compared(tuple(records), tuple(self.predict(records, batch)), self.labels)

    def right(self, records: Sequence[Tagged]) -> "Compared":
        return Compared(tuple(records), tuple(record.tags for record in records), self.labels)

    def _pieces(self, records: Sequence[Tagged]) -> Iterator[list[list[int]]]:
        """The tokens of each word of each sentence; of one that the tokenizer makes nothing of, the unknown token.

        Words have the blank before them that they have in a text, for RoBERTa's tokenizer takes it for a part of them.
        """
        words = [[f" {word}" for word in record.words] for record in records]
        if not words:
            return
        found = self.tokenizer(words, is_split_into_words=True, add_special_tokens=False, return_attention_mask=False)
        for place, sentence in enumerate(words):
            pieces: list[list[int]] = [[] for _ in sentence]
            for token, word in zip(found["input_ids"][place], found.word_ids(place), strict=True):
                pieces[word].append(token)
            yield [tokens or [self.tokenizer.unk_token_id] for tokens in pieces]

    def _part(self, pieces: Sequence[Sequence[int]], word: int) -> tuple[list[int], list[int]]:
        """The tokens from a word on, as many words as fit, and the place of the first piece of each."""
        first = [] if self.tokenizer.cls_token_id is None else [self.tokenizer.cls_token_id]
        last = [] if self.tokenizer.sep_token_id is None else [self.tokenizer.sep_token_id]
        ids, firsts, room = list(first), list[int](), self.longest - len(last)
        for tokens in pieces[word:]:
            kept = tokens[: room - len(first)]  # a word that is longer than all there is room for
            if len(ids) + len(kept) > room:
                break
            firsts.append(len(ids))
            ids += kept
        return ids + last, firsts


@dataclass(frozen=True)
class Compared:
    """Sentences and the tags that a model gave their words."""

    records: tuple[Tagged, ...]
    predictions: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...]

    @property
    def confusion(self) -> Confusion:
        """Of single words, over the tags that the model knows, and those that only the sentences have."""
        true = [tag for record in self.records for tag in record.tags]
        return counted(true, [tag for tags in self.predictions for tag in tags], self.labels)

    def scores(self) -> dict[str, Score]:
        """Macro-F1 over the tags of words first; then, where tags are IOB2, the F1 of whole entities."""
        found = self.confusion
        scores = {"macro_f1": found.macro_f1(), "micro_f1": found.micro_f1(), "accuracy": found.accuracy()}
        if self._marks_entities:
            scores["entity_f1"] = self._entities.micro_f1()
        return scores

    def details(self) -> dict[str, Any]:
        """The table of the tags, which was taken for which, and the table of the types of entities."""
        return self.confusion.to_json() | ({"entities": self._entities.to_json()} if self._marks_entities else {})

    def lines(self) -> Iterator[dict[str, str]]:
        """Words, tags and predictions of each sentence."""
        for record, tags in zip(self.records, self.predictions, strict=True):
            yield {
                "source": " ".join(record.words),
                "reference": " ".join(record.tags),
                "hypothesis": " ".join(tags),
            }

    @property
    def _marks_entities(self) -> bool:
        return any(label.startswith("B-") for label in self.labels)

    @property
    def _entities(self) -> EntityF1:
        return entity_f1(references=[record.tags for record in self.records], predictions=self.predictions)
