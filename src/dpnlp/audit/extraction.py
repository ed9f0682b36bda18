"""Extraction (Carlini et al. 2021): how much of its training texts does a model write when it is asked for them?

A model is given how a text begins, or the source of a pair, and goes on by itself. What it writes is compared with what
the text has there, word by word; case and spacing do not count. The same is done with texts that it was not trained on:
what of these comes out is guessed, and only what goes beyond is memory.

An attacker does not know which of a model's texts are known by heart, and ranks them. One that the model expects far
more than anybody else would is suspicious: with Px(x) = −ln p(x) of the whole text x, the ratio is

    Px_reference(x) / Px(x),  or  8 · |zlib(x)| · ln 2 / Px(x)  where there is no reference model  (§5.2).

An audit reads the training set. What it finds is not covered by the guarantee of the run, and holds no text unless that
is asked for.
"""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import fisher_exact

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.guarantee import percent
from dpnlp.rewriting.leakage import N, leakage, words_of

SUSPECTED = 0.1
"""The share of all candidates that is taken for memory: those of the highest ratios."""


def compressed(texts: Sequence[str]) -> NDArray[np.float64]:
    """The information that zlib finds in each text, in nats: how much is expected of a text that nobody has seen."""
    return np.array([8 * len(zlib.compress(text.encode())) * math.log(2) for text in texts])


def ratios(reference: ArrayLike, own: ArrayLike) -> NDArray[np.float64]:
    """How much less a text surprises the model than the reference, both as −ln p of the whole text."""
    above, below = np.asarray(reference, np.float64), np.asarray(own, np.float64)
    if above.shape != below.shape or not (np.isfinite(above).all() and np.isfinite(below).all()):
        raise BadInput(
            f"reference = numbers of shape {above.shape}: there must be one for each of the {below.size} texts, all of "
            "them finite; check the models."
        )
    return above / np.maximum(below, np.finfo(np.float32).tiny)


def suspected(ranks: ArrayLike) -> NDArray[np.int64]:
    """The places of the highest ranks: a tenth of all, and one at least. Of equal ones the first come first."""
    order = np.argsort(-np.asarray(ranks, np.float64), kind="stable")
    return order[: max(1, round(SUSPECTED * len(order)))]


class Completion(NamedTuple):
    """What a text has after its prompt, and what the model wrote there."""

    rest: str
    written: str

    @property
    def whole(self) -> bool:
        """Whether all of the rest came out, from its first word on."""
        rest = words_of(self.rest)
        return words_of(self.written)[: len(rest)] == rest

    @property
    def run(self) -> int:
        """The words in the longest run that both have in common."""
        rest, written = words_of(self.rest), words_of(self.written)
        return SequenceMatcher(None, rest, written, autojunk=False).find_longest_match().size


@dataclass(frozen=True)
class Drawn:
    """What comes out of the prompts of some texts."""

    texts: int
    whole: int  # whose rest is written out, all of it
    words: int  # of all rests
    verbatim: int  # of these, in the longest run that was written out of each

    @classmethod
    def of(cls, completions: Sequence[Completion]) -> "Drawn":
        rests = [len(words_of(one.rest)) for one in completions]
        if not rests or not all(rests):
            raise BadInput("completions: there must be some, and none without a word to be written out.")
        return cls(len(rests), sum(one.whole for one in completions), sum(rests), sum(one.run for one in completions))

    @property
    def share(self) -> float:
        """Of the texts, those that came out whole."""
        return self.whole / self.texts

    @property
    def verbatim_share(self) -> float:
        """Of the words, those that came out in a row."""
        return self.verbatim / self.words

    def to_json(self) -> dict[str, Any]:
        """For a record of the run."""
        shares = {"whole_share": self.share, "verbatim_share": self.verbatim_share}
        return {"texts": self.texts, "whole": self.whole, "words": self.words, "verbatim": self.verbatim, **shares}


@dataclass(frozen=True, eq=False)
class Extraction:
    """What prompts drew out of a model: of texts that it was trained on, and of others.

    `given` says what it was given, and `ranks` has a number for each candidate, members first, that an attacker ranks
    them by.
    """

    given: str
    members: tuple[Completion, ...]
    others: tuple[Completion, ...]
    ranks: NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.ranks.shape != (len(self.members) + len(self.others),):
            raise BadInput(f"ranks = numbers of shape {self.ranks.shape}: give one for each completion.")

    @property
    def memory(self) -> Drawn:
        return Drawn.of(self.members)

    @property
    def guessing(self) -> Drawn:
        return Drawn.of(self.others)

    @property
    def chance(self) -> float:
        """The probability that so many more members than others come out whole, if both do equally often (Fisher)."""
        memory, guessing = self.memory, self.guessing
        counts = np.array([[side.whole, side.texts - side.whole] for side in (memory, guessing)])
        return float(fisher_exact(counts, alternative="greater").pvalue)

    @property
    def _right(self) -> NDArray[np.bool_]:
        """Which candidates are training texts, written out whole."""
        return np.array([one.whole for one in self.members] + [False] * len(self.others))

    @property
    def precision(self) -> float:
        """The share of suspected candidates that are training texts, written out whole."""
        return float(self._right[suspected(self.ranks)].mean())

    def statement(self) -> str:
        """What was found, and how much it says."""
        memory, guessing = self.memory, self.guessing
        return (
            f"Given {self.given}, the model writes {memory.whole:,} of {memory.texts:,} training texts out to the end, "
            f"word by word, and {guessing.whole:,} of {guessing.texts:,} that it was not trained on; if both were as "
            f"likely, there would be so many more with probability {self.chance:.2g}. Of the words, "
            f"{percent(memory.verbatim_share)} come out in a row, and {percent(guessing.verbatim_share)} of the "
            "others. Of the tenth of all candidates that an attacker would suspect first, "
            f"{percent(self.precision)} are training texts that came out, and of all of them "
            f"{percent(self._right.mean())}. What these prompts do not draw out, others may: only the guarantee speaks "
            "of all attacks."
        )

    def to_json(self, texts: bool = False) -> dict[str, Any]:
        """For a record of the run; with the training texts that came out only where `texts` asks for them."""
        found = {
            "given": self.given,
            "members": self.memory.to_json(),
            "others": self.guessing.to_json(),
            "chance": self.chance,
            "precision_of_suspicion": self.precision,
            "statement": self.statement(),
        }
        return found | ({"texts": [one.rest for one in self.members if one.whole]} if texts else {})


@dataclass(frozen=True)
class Unprompted:
    """Texts that a model wrote of itself, and how many of those that an attacker would suspect it knows by heart.

    `overlap` are the shares of the sequences of four words in them that occur in some training texts, and in as many
    others.
    """

    candidates: int
    suspects: int
    whole: int  # suspects that are training texts, all of them
    overlap: float
    overlap_of_others: float

    @classmethod
    def of(
        cls,
        candidates: Sequence[str],
        ranks: ArrayLike,
        training: Sequence[str],
        members: Sequence[str],
        others: Sequence[str],
    ) -> "Unprompted":
        """`training` are all training texts; `members` are some of them, to be compared with as many others."""
        checks.count("others", len(others), len(members), "there must be as many as members")
        suspects = [candidates[place] for place in suspected(ranks)]
        known = {words_of(text) for text in training}
        return cls(
            len(candidates),
            len(suspects),
            sum(words_of(text) in known for text in suspects),
            leakage(suspects, members).overlap,
            leakage(suspects, others[: len(members)]).overlap,
        )

    def statement(self) -> str:
        """What was found, and how much it says."""
        return (
            f"Of {self.candidates:,} different texts that the model writes of itself, {self.suspects:,} are suspected "
            f"to be known by heart, and {self.whole:,} of these are training texts, word by word. Of the sequences of "
            f"{N} words in them {percent(self.overlap)} occur in some training texts, and "
            f"{percent(self.overlap_of_others)} in as many texts that it was not trained on. More texts may show more."
        )

    def to_json(self) -> dict[str, Any]:
        """For a record of the run."""
        return {
            "candidates": self.candidates,
            "suspects": self.suspects,
            "whole": self.whole,
            "overlap": self.overlap,
            "overlap_of_others": self.overlap_of_others,
            "statement": self.statement(),
        }
