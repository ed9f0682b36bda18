"""How much of what a rewriter was made of comes out of it again, as in the case study of the thesis (§5.4).

A rewriter that was trained on private texts can write them out, whatever noise is on its latents: the noise hides which
text was rewritten, and not what the rewriter knows by heart.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dpnlp import checks
from dpnlp.checks import BadInput

N = 4
"""Words in a row that count as taken over."""

_SHOWN = 8
"""Pairs of a released text and the nearest text behind the rewriter that are shown."""


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
    if not released or not behind:
        raise BadInput(
            "leakage: there must be a text on either side; give released texts and those behind the rewriter."
        )
    known = {words: text for text in behind if (words := _words(text))}
    grams = {gram for words in known for gram in _grams(words, N)}
    found = [gram in grams for text in released for gram in _grams(_words(text), N)]
    index = _index(known)
    nearest = [_nearest(text, index, known) for text in released]
    return Leakage(
        texts=len(released),
        whole=_mean([_words(text) in known for text in released]),
        overlap=_mean(found),
        alike=_mean([near.alike for near in nearest]),
        nearest=tuple(nearest[:_SHOWN]),
    )


Words = tuple[str, ...]


def _words(text: str) -> Words:
    return tuple(text.lower().split())


def _grams(words: Words, n: int) -> list[Words]:
    return [words[start : start + n] for start in range(len(words) - checks.count("n", n) + 1)]


def _index(known: dict[Words, str]) -> dict[str, list[Words]]:
    """The texts that each word is in."""
    index = defaultdict(list)
    for words in known:
        for word in set(words):
            index[word].append(words)
    return index


def _nearest(text: str, index: dict[str, list[Words]], known: dict[Words, str]) -> Near:
    own = set(_words(text))
    shared = Counter(words for word in own for words in index.get(word, ()))
    if not shared:
        return Near(text, "", 0.0)
    best = max(shared, key=lambda words: (_jaccard(shared[words], own, words), words))
    return Near(text, known[best], _jaccard(shared[best], own, best))


def _jaccard(shared: int, own: set[str], words: Words) -> float:
    return shared / (len(own) + len(set(words)) - shared)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
