"""How much of what a rewriter was made of comes out of it again, as in the case study of the thesis (§5.4).

A rewriter that was trained on private texts can write them out, whatever noise is on its latents: the noise hides which
text was rewritten, and not what the rewriter knows by heart.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from dpnlp import checks
from dpnlp.checks import BadInput

N = 4
"""Words in a row that count as taken over."""

_SHOWN = 8
"""Pairs of a released text and the nearest text behind the rewriter that are shown."""

_ENTRIES = 2**23
"""Pairs that are compared at once."""


@dataclass(frozen=True)
class Near:
    """A released text, the text behind the rewriter that has most words in common with it, and their Jaccard index."""

    released: str
    nearest: str
    alike: float


@dataclass(frozen=True)
class Leakage:
    """What of the texts behind a rewriter is found in those that it released.

    `whole` is the share of released texts that are one of them, word by word; `overlap` the share of the sequences of
    four words that occur in one of them, 0 where no text is so long; `alike` the mean Jaccard index of the words of a
    released text and of the nearest of them.
    """

    texts: int
    whole: float
    overlap: float
    alike: float
    nearest: tuple[Near, ...]

    def to_json(self) -> dict[str, Any]:
        """All of it, for a report."""
        return asdict(self)


def leakage(released: Sequence[str], behind: Sequence[str]) -> Leakage:
    """Compares released texts with the texts that a rewriter was made of. Case does not count, nor does spacing."""
    known = {words: text for text in behind if (words := words_of(text))}
    if not released or not known:
        raise BadInput(
            "leakage: there must be a text on either side; give released texts and those behind the rewriter."
        )
    grams = {gram for words in known for gram in _grams(words, N)}
    found = [gram in grams for text in released for gram in _grams(words_of(text), N)]
    nearest = list(_nearest(released, known))
    return Leakage(
        texts=len(released),
        whole=_mean([words_of(text) in known for text in released]),
        overlap=_mean(found),
        alike=_mean([near.alike for near in nearest]),
        nearest=tuple(nearest[:_SHOWN]),
    )


Words = tuple[str, ...]


def words_of(text: str) -> Words:
    """The words of a text, in lower case."""
    return tuple(text.lower().split())


def _grams(words: Words, n: int) -> list[Words]:
    return [words[start : start + n] for start in range(len(words) - checks.count("n", n) + 1)]


def _nearest(released: Sequence[str], known: Mapping[Words, str]) -> Iterator[Near]:
    """The nearest for each text; of several, the last in the order of their words."""
    behind = sorted(known, reverse=True)
    number = {word: place for place, word in enumerate(dict.fromkeys(word for words in behind for word in words))}
    sets, sizes = _sets(behind, number), np.array([len(set(words)) for words in behind])
    at_once = max(1, _ENTRIES // len(behind))
    for start in range(0, len(released), at_once):
        texts = released[start : start + at_once]
        own = [words_of(text) for text in texts]
        shared = (_sets(own, number) @ sets.T).toarray()
        alike = shared / (np.array([len(set(words)) for words in own])[:, None] + sizes - shared)
        for text, row, best in zip(texts, alike, alike.argmax(axis=1), strict=True):
            yield Near(text, known[behind[best]] if row[best] else "", float(row[best]))


def _sets(texts: Sequence[Words], number: Mapping[str, int]) -> csr_array:
    """[texts, words], 1 where a word is in a text; words that are unknown are left out."""
    rows = [sorted({number[word] for word in words if word in number}) for words in texts]
    starts = np.cumsum([0, *map(len, rows)])
    columns = np.fromiter((column for row in rows for column in row), np.int32, starts[-1])
    return csr_array((np.ones(len(columns), np.float32), columns, starts), shape=(len(texts), len(number)))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
