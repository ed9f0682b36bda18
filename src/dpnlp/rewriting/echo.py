"""Echo, a method of our own: a text comes back as a sentence that others have written and that means alike.

A public sentence encoder gives vectors to the text and to a public bank of K sentences. One of these is released by
subset response: each of the m that are most alike to the text is e^ε times as likely as any other. So it is fluent by
construction, nothing private can come out of it, δ is 0, and the number of dimensions does not matter, with which noise
on a vector would grow.

How many sentences are preferred follows from ε and from the bank alone: the m that makes the released sentence most
alike in the mean, for texts like those of the bank.

A text with one of L labels is drawn together with it on request: one of the K·L pairs of a sentence and a label is
released, and those preferred are the m most alike sentences with the true label. ε is then for both. Drawn apart, each
from its share of ε, sentence and label would tell of each other only as far as neither is blind, which for a small ε is
the product of two small probabilities.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.events import Event, NonPrivate
from dpnlp.foreign import parse_json, text_in
from dpnlp.mechanisms import SubsetResponse
from dpnlp.mechanisms.randomness import OS_ENTROPY, Integers, Source
from dpnlp.models.pretrained.encoders import save_encoder
from dpnlp.models.pretrained.weights import read_arrays, readable
from dpnlp.models.sentence_vectors import SentenceEncoder, Vectors
from dpnlp.rewriting.base import LabelledRewriter

_AT_ONCE = 2**25
"""Similarities that are computed at once: 128 MiB of them."""

_FINENESS = 2.0**11
"""Vectors are compared in whole multiples of 2⁻¹¹. All sums of products of two that are no longer than 1 are then whole
numbers below 2²⁴, by Cauchy and Schwarz, which float32 has without rounding."""

_ASKED = 1000
"""Sentences of the bank that stand for texts when it is found out how alike its sentences are."""


@dataclass(frozen=True, eq=False)
class Bank:
    """Public sentences, their vectors and, of the sentences that are left when they are asked for one of their own,
    how alike the most alike one is, the second, and so on, in the mean.
    """

    sentences: tuple[str, ...]
    vectors: Vectors  # [K, width]
    alike: npt.NDArray[np.float32]  # [K − 1], falling

    def __post_init__(self) -> None:
        if len(self.sentences) < 3 or len(self.vectors) != len(self.sentences):
            raise BadInput(f"bank: it has {len(self.sentences)} sentences; it needs at least 3, each with a vector.")

    def __len__(self) -> int:
        return len(self.sentences)

    @classmethod
    def of(cls, sentences: Iterable[str], encoder: SentenceEncoder) -> "Bank":
        """The bank of these public sentences; each counts once, and empty ones do not."""
        different = tuple(dict.fromkeys(text for sentence in sentences if (text := " ".join(sentence.split()))))
        if len(different) < 3:
            raise BadInput(f"bank: it has {len(different)} different sentences; it needs at least 3.")
        vectors = encoder(different)
        asked = np.unique(np.linspace(0, len(different) - 1, min(_ASKED, len(different)), dtype=np.int64))
        total = np.zeros(len(different) - 1)
        for rows in _blocks(asked, len(different)):
            similar = vectors[rows] @ vectors.T
            similar[np.arange(len(rows)), rows] = np.inf  # itself, which comes first and is left out
            total += np.sort(similar, axis=1)[:, -2::-1].sum(axis=0, dtype=np.float64)
        return cls(different, vectors, (total / len(asked)).astype(np.float32))

    def preferred(self, epsilon: float, labels: int = 1) -> int:
        """The m whose released sentence is most alike in the mean: λ(m) ā(m) + (1 − λ(m)) ā of all.

        λ is the share that is carried. With a false label a sentence is worth no more than any.
        """
        m = np.arange(1, len(self) - 1)
        near, all_ = np.cumsum(self.alike, dtype=np.float64)[:-1] / m, np.mean(self.alike, dtype=np.float64)
        carried = _carried(checks.positive("epsilon", epsilon), len(self) * labels, m)
        return int(m[np.argmax(carried * (near - all_))])

    def nearest(self, vectors: Vectors, m: int) -> Integers:
        """The m most alike sentences for each vector, in no order: [texts, width] -> [texts, m]."""
        return np.argpartition(_whole(vectors) @ self._whole.T, -m, axis=1)[:, -m:]

    @cached_property
    def _whole(self) -> Vectors:
        return _whole(self.vectors)


def _whole(vectors: Vectors) -> Vectors:
    whole: Vectors = np.rint(vectors * np.float32(_FINENESS))
    return whole


def _blocks(rows: Integers, width: int) -> list[Integers]:
    """The rows in parts, of which each has few enough similarities to sentences."""
    size = max(1, _AT_ONCE // width)
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _carried(epsilon: float, candidates: int, m: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """λ: what comes out is drawn among the m preferred candidates with probability λ, and else among all k, blindly.

    That is 1 − k(1 − θ)/(k − m), as θ for the preferred and (1 − θ)/(k − m) for each other have so much in common.
    """
    m = np.asarray(m, np.float64)
    return m * -math.expm1(-epsilon) / (m + (candidates - m) * math.exp(-epsilon))


@dataclass(frozen=True, eq=False)
class Echo(LabelledRewriter):
    """The method at a chosen ε. Where that is infinite, the most alike sentence itself comes back."""

    bank: Bank
    encoder: SentenceEncoder
    epsilon: float
    source: Source = OS_ENTROPY
    labels: int = 1  # L; 1 where texts are drawn alone

    def __post_init__(self) -> None:
        checks.count("labels", self.labels)
        checks.budget("epsilon", self.epsilon)
        self.mechanism  # noqa: B018  (a wrong ε is refused here, not at the first text)

    @cached_property
    def mechanism(self) -> SubsetResponse | None:  # type: ignore[override]
        """Subset response with the m that suits ε and the bank."""
        if self.epsilon == math.inf:
            return None
        candidates, m = len(self.bank) * self.labels, self.bank.preferred(self.epsilon, self.labels)
        return SubsetResponse(self.epsilon, candidates, m, self.source)

    def rewrite(self, texts: Sequence[str]) -> list[str]:
        return self.rewrite_labelled(texts, [0] * len(texts))[0]

    def with_labels(self, labels: int) -> "Echo":
        return replace(self, labels=labels)

    def rewrite_labelled(self, texts: Sequence[str], labels: Sequence[int]) -> tuple[list[str], list[int]]:
        vectors, chosen = self.encoder(texts), np.zeros(len(texts), np.int64)
        told = np.asarray(labels, np.int64)
        if np.any((told < 0) | (told >= self.labels)):
            raise BadInput(f"labels: each must be a whole number from 0 to {self.labels - 1}.")
        for rows in _blocks(np.arange(len(texts)), len(self.bank)):
            m = self.mechanism.preferred if self.mechanism else 1
            pairs = self.bank.nearest(vectors[rows], m) * self.labels + told[rows, None]
            chosen[rows] = self.mechanism.release(pairs) if self.mechanism else pairs[:, 0]
        sentences, told = np.divmod(chosen, self.labels)
        return [self.bank.sentences[one] for one in sentences], told.tolist()

    @property
    def event(self) -> Event:
        """Subset response, or nothing that is private."""
        return NonPrivate() if self.mechanism is None else self.mechanism.event()

    @property
    def carried(self) -> float:
        """The share of the texts whose sentence is drawn among the preferred ones, the rest being drawn among all."""
        if self.mechanism is None:
            return 1.0
        return float(_carried(self.epsilon, self.mechanism.candidates, self.mechanism.preferred))


def save(bank: Bank, encoder: SentenceEncoder, folder: Path) -> None:
    """Writes all that the method needs into a new folder."""
    folder.mkdir(parents=True, exist_ok=True)
    save_encoder(encoder.encoder, folder / "encoder")
    entry = {"longest": encoder.longest, "sentences": bank.sentences}
    (folder / "bank.json").write_text(json.dumps(entry, ensure_ascii=False), encoding="utf-8")
    save_file({"vectors": bank.vectors, "alike": bank.alike}, folder / "bank.safetensors")


def load(folder: Path, epsilon: float, delta: float = 0.0, source: Source = OS_ENTROPY) -> Echo:
    """The method at this ε, from what `save` wrote. It needs no δ, and promises none."""
    return Echo(*opened(folder), epsilon, source)


def opened(folder: Path) -> tuple[Bank, SentenceEncoder]:
    """What `save` wrote."""
    arrays, path = read_arrays(folder / "bank.safetensors"), folder / "bank.json"
    with readable(path):
        entry = parse_json(text_in(path))
        sentences, longest = entry["sentences"], checks.count("longest", entry["longest"], least=2)
        vectors, alike = arrays["vectors"], arrays["alike"]
        count = len(sentences)
        if not all(isinstance(sentence, str) for sentence in sentences) or vectors.ndim != 2:
            raise BadInput(f"{path}: it has no sentences with a vector each; make the rewriter again.")
        if (len(vectors), alike.shape) != (count, (count - 1,)):
            raise BadInput(
                f"{path}: it has {count} sentences, and beside it are {len(vectors)} vectors and {alike.size} "
                "similarities; make the rewriter again."
            )
        bank = Bank(tuple(sentences), vectors, alike)
    encoder = SentenceEncoder.load(folder / "encoder", longest=longest)
    if encoder.width != vectors.shape[1]:
        raise BadInput(
            f"{folder}: its sentences have vectors of {vectors.shape[1]} numbers, and its encoder makes "
            f"{encoder.width}; make the rewriter again."
        )
    return bank, encoder
