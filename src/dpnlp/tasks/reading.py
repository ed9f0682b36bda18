"""What tasks have in common in which a model reads texts and answers with numbers for labels, words or places."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import jax
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.data.cache import Column, Examples, Numbers, kept
from dpnlp.data.records import Records
from dpnlp.data.tokens import state
from dpnlp.foreign import visible
from dpnlp.metrics.f1 import Confusion, confusion
from dpnlp.metrics.score import Score

R = TypeVar("R")

TOKENS = Column("ids", 0, "mask"), Column("types")
"""What every text is: its tokens, and which of two texts each of them belongs to."""


class Judged(Protocol):
    """A model's answers beside the true ones."""

    def scores(self) -> dict[str, Score]:
        """The scores by name, the one that matters most first."""
        ...

    def details(self) -> dict[str, Any]:
        """What is behind them, for a report."""
        ...

    def lines(self) -> Iterator[dict[str, str]]:
        """Source, reference and hypothesis of each record."""
        ...


MOST = 1000
"""Labels: which was taken for which is a table of all of them by all of them."""


@dataclass(frozen=True)
class Reading(ABC, Generic[R]):
    """A model, what it reads texts with, and the labels that it knows. Texts are cut to `longest` tokens."""

    model: nnx.Module
    tokenizer: Any  # transformers.PreTrainedTokenizerBase
    labels: tuple[str, ...] = ()
    longest: int = 128

    columns: ClassVar[tuple[Column, ...]]

    def __post_init__(self) -> None:
        checks.count("longest", self.longest, least=8)
        if len(self.labels) > MOST:
            raise BadInput(
                f"labels = {len(self.labels):,} different ones: there must be at most {MOST:,}; name a column in which "
                "each label comes often."
            )
        if odd := [label for label in self.labels if visible(label) != label or {"\n", "\t"} & {*label}]:
            raise BadInput(
                f"labels = {odd[0]!r:.99}: a label is a part of a line that a model answers; take line breaks, tabs "
                "and control characters out of it."
            )
        if len(set(self.labels)) != len(self.labels):
            raise BadInput(f"labels = {', '.join(self.labels)}: one is there twice; name each of them once.")

    @abstractmethod
    def numbers(self, records: Sequence[R]) -> Numbers:
        """The records as numbers, to be learned from."""

    @abstractmethod
    def made_up(self, words: Sequence[str], choices: Sequence[int]) -> R:
        """Nobody's record, of these words; each choice is a whole number, by which one of several things is taken."""

    @abstractmethod
    def loss(self, model: nnx.Module, batch: dict[str, jax.Array]) -> jax.Array:
        """The loss of each example [batch], which depends on that example alone (law 4)."""

    @abstractmethod
    def score(self, records: Sequence[R], batch: int = 64) -> Judged:
        """The model's answers, of which none has seen the true one, beside the true ones."""

    @abstractmethod
    def right(self, records: Sequence[R]) -> Judged:
        """The true answers beside themselves."""

    def refuse_unscorable(self, what: str, records: Sequence[R]) -> None:
        """Refuses records that no score is of, before a model is asked, or is trained at some cost to be asked then."""
        found = {label for record in records for label in getattr(record, "labels", ())}
        others = sorted(found - {*self.labels})
        if self.labels and found and len(others) == len(found):
            raise BadInput(
                f"{what}: none of its labels, such as {', '.join(others[:3])}, is one that the model knows, which are "
                f"{', '.join(self.labels[:9])}; name the column of labels, or give other data."
            )
        if len(self.labels) + len(others) > MOST:
            raise BadInput(f"{what}: it has {len(others):,} labels that the model does not know; give other data.")
        try:
            self.right(records).scores()
        except BadInput as error:
            raise BadInput(f"{what}: {error}") from None

    def of(self, model: nnx.Module) -> Self:
        """The same with another model of the same shape, such as one that was trained."""
        return replace(self, model=model)

    def dataset(self, records: Records[R], cache: Path) -> Examples:
        """The records as the engine takes them, made once and kept in the cache."""
        made_by = type(self).__name__, state(self.tokenizer), *self._decisive
        largest = max(self.tokenizer.get_vocab().values())
        return kept(records, self.columns, self.numbers, made_by, cache=cache, largest=largest)

    def examples(self, records: Sequence[R]) -> Examples:
        """The same of a few records, kept nowhere."""
        return Examples.of(self.columns, self.numbers(records))

    @property
    def _decisive(self) -> tuple[Any, ...]:
        """What else decides about the numbers of a record."""
        return self.labels, self.longest

    def _known(self, label: str) -> int:
        """The number of a label to be learned."""
        if label not in self._places:
            raise BadInput(f"label = {label!r}: it must be one of {', '.join(self.labels)}; name all of them.")
        return self._places[label]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {label: place for place, label in enumerate(self.labels)}

    def _answers(self, numbers: Numbers, batch: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """The place of each example and the model's logits for it, [labels] or [tokens, …], the shortest first."""
        examples = Examples.of(TOKENS, numbers)
        for rows, given in examples.by_length(batch, self.longest):
            for row, answer in zip(rows, np.asarray(logits_of(self.model, given)), strict=False):
                yield int(row), answer if answer.ndim == 1 else answer[: examples.lengths[row]]


def logits_of(model: nnx.Module, batch: Any) -> jax.Array:
    """What a model answers to a batch."""
    structure, weights = nnx.split(model)
    logits: jax.Array = _logits(structure, weights, batch)
    return logits


@partial(jax.jit, static_argnums=0)
def _logits(structure: nnx.GraphDef[Any], weights: Any, batch: Any) -> jax.Array:
    logits: jax.Array = nnx.merge(structure, weights)(batch)
    return logits


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """−log p of each label; where it is −1, 0: [..., labels] and [...] -> [...]."""
    chosen = jax.nn.one_hot(labels, logits.shape[-1])  # all zeros for −1
    return (jax.nn.logsumexp(logits, axis=-1) - (chosen * logits).sum(-1)) * (labels >= 0)


def counted(references: Sequence[str], predictions: Sequence[str], labels: Sequence[str]) -> Confusion:
    """Which label was taken for which: those that the model knows, in their order, then others of the references."""
    known = (*labels, *sorted({*references} - {*labels}))
    return confusion(references=references, predictions=predictions, labels=known)
