"""Echo, a method of our own: a text comes back as a sentence that others have written and that means alike.

A public sentence encoder gives vectors to the text and to a public bank of K sentences. One of these is released by
subset response: each of the m that are most alike to the text is e^ε times as likely as any other. So it is fluent by
construction, nothing private can come out of it, δ is 0, and the number of dimensions does not matter, with which noise
on a vector would grow.

How many sentences are preferred follows from ε and from the bank alone: the m that makes the released sentence most
alike in the mean, for texts like those of the bank.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.events import Event, NonPrivate
from dpnlp.mechanisms import SubsetResponse
from dpnlp.mechanisms.randomness import OS_ENTROPY, Integers, Source
from dpnlp.models.pretrained.encoders import save_encoder
from dpnlp.models.sentence_vectors import SentenceEncoder, Vectors
from dpnlp.rewriting.base import Rewriter

_AT_ONCE = 2**25
"""Similarities that are computed at once: 128 MiB of them."""

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

    def preferred(self, epsilon: float) -> int:
        """The m whose released sentence is most alike in the mean: θ(m) ā(m) + (1 − θ(m)) ā of the others."""
        K, m = len(self), np.arange(1, len(self) - 1)
        sums = np.cumsum(self.alike, dtype=np.float64)
        near = sums[:-1] / m
        far = (sums[-1] - sums[:-1]) / (K - 1 - m)
        theta = 1 / (1 + (K - m) / m * math.exp(-checks.positive("epsilon", epsilon)))
        return int(m[np.argmax(theta * near + (1 - theta) * far)])

    def nearest(self, vectors: Vectors, m: int) -> Integers:
        """The m most alike sentences for each vector, in no order: [texts, width] -> [texts, m]."""
        return np.argpartition(vectors @ self.vectors.T, -m, axis=1)[:, -m:]


def _blocks(rows: Integers, width: int) -> list[Integers]:
    """The rows in parts, of which each has few enough similarities to sentences."""
    size = max(1, _AT_ONCE // width)
    return [rows[start : start + size] for start in range(0, len(rows), size)]


@dataclass(frozen=True, eq=False)
class Echo(Rewriter):
    """The method at a chosen ε. Where that is infinite, the most alike sentence itself comes back."""

    bank: Bank
    encoder: SentenceEncoder
    epsilon: float
    source: Source = OS_ENTROPY

    def __post_init__(self) -> None:
        if checks.budget("epsilon", self.epsilon) < math.inf:
            self.mechanism  # noqa: B018  (a wrong ε is refused here, not at the first text)

    @cached_property
    def mechanism(self) -> SubsetResponse | None:  # type: ignore[override]
        """Subset response with the m that suits ε and the bank."""
        if self.epsilon == math.inf:
            return None
        return SubsetResponse(self.epsilon, len(self.bank), self.bank.preferred(self.epsilon), self.source)

    def rewrite(self, texts: Sequence[str]) -> list[str]:
        vectors, chosen = self.encoder(texts), np.zeros(len(texts), np.int64)
        for rows in _blocks(np.arange(len(texts)), len(self.bank)):
            if self.mechanism is None:
                chosen[rows] = self.bank.nearest(vectors[rows], 1)[:, 0]
            else:
                chosen[rows] = self.mechanism.release(self.bank.nearest(vectors[rows], self.mechanism.preferred))
        return [self.bank.sentences[one] for one in chosen]

    @property
    def event(self) -> Event:
        """Subset response, or nothing that is private."""
        return NonPrivate() if self.mechanism is None else self.mechanism.event()

    @property
    def carried(self) -> float:
        """The share of the texts whose sentence is drawn among the preferred ones, the rest being drawn among all.

        With θ for the preferred and (1 − θ)/(K − m) for each other, all K have that much in common.
        """
        if self.mechanism is None:
            return 1.0
        K, m, theta = len(self.bank), self.mechanism.preferred, self.mechanism.theta
        return 1 - K * (1 - theta) / (K - m)


def save(bank: Bank, encoder: SentenceEncoder, folder: Path) -> None:
    """Writes all that the method needs into a new folder."""
    folder.mkdir(parents=True)
    save_encoder(encoder.encoder, folder / "encoder")
    entry = {"longest": encoder.longest, "sentences": bank.sentences}
    (folder / "bank.json").write_text(json.dumps(entry, ensure_ascii=False), encoding="utf-8")
    save_file({"vectors": bank.vectors, "alike": bank.alike}, folder / "bank.safetensors")


def load(folder: Path, epsilon: float, delta: float = 0.0, source: Source = OS_ENTROPY) -> Echo:
    """The method at this ε, from what `save` wrote. It needs no δ, and promises none."""
    return Echo(*opened(folder), epsilon, source)


def opened(folder: Path) -> tuple[Bank, SentenceEncoder]:
    """What `save` wrote."""
    try:
        arrays = load_file(folder / "bank.safetensors")
        entry = json.loads((folder / "bank.json").read_text(encoding="utf-8"))
        bank, longest = Bank(tuple(entry["sentences"]), arrays["vectors"], arrays["alike"]), entry["longest"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise BadInput(
            f"{folder}: its bank of sentences cannot be read ({checks.short(error)}); make it again."
        ) from None
    return bank, SentenceEncoder.load(folder / "encoder", longest=longest)
