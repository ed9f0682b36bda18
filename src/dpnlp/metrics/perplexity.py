"""How well a language model expects texts: perplexity, and how often its best guess is right (AccuracyTop1).

Both are of all tokens of a set together, however they were batched. Perplexities compare only where the tokens are the
same: a vocabulary of fewer words makes more of them unknown, and a lower one.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpnlp.checks import BadInput
from dpnlp.metrics.score import Score, signed


def perplexity(losses: ArrayLike, **how: object) -> Score:
    """exp(−(1/n) Σ log p) over the n tokens of a set, of which these are the −log p, in nats. 1 is the best.

    A model that has come apart, whose losses are no numbers, has an infinite one. `how` is what else the signature says
    of the tokens.
    """
    each = _flat("losses", losses, np.float64)
    mean = math.fsum(each) / len(each) if np.isfinite(each).all() else math.inf
    return signed("perplexity", math.exp(mean) if mean < 700 else math.inf, per="token", **how, n=len(each))


def accuracy_top1(predictions: ArrayLike, references: ArrayLike, unknown: int | None, **how: object) -> Score:
    """The share of tokens, in percent, for which the most probable token is the right one.

    A token that stands for words outside the vocabulary is never right, as in McMahan et al. (2018): who guesses that a
    word is unknown has not guessed the word. It counts among the n tokens all the same.
    """
    guessed, true = _flat("predictions", predictions, np.int64), _flat("references", references, np.int64)
    if len(guessed) != len(true):
        raise BadInput(f"predictions = {len(guessed)} tokens, references = {len(true)}: there must be one for each.")
    right = (guessed == true) & (true != (-1 if unknown is None else unknown))
    said = {"unknown": "none" if unknown is None else "wrong", **how, "n": len(true)}
    return signed("accuracy_top1", 100 * float(np.mean(right)), **said)


@dataclass(frozen=True)
class Unigram:
    """What the best guess without context reaches that knows how often each token is in the set itself.

    So it is better than any that was counted elsewhere, and nothing of the training data is in it.
    """

    token: int  # the most frequent one that is not unknown
    accuracy: float  # in percent
    perplexity: float
    unknown: float  # the share of unknown tokens, in percent

    @classmethod
    def of(cls, references: ArrayLike, unknown: int | None) -> "Unigram":
        true = _flat("references", references, np.int64)
        tokens, counts = np.unique(true, return_counts=True)
        known = counts * (tokens != (-1 if unknown is None else unknown))
        best, shares = int(np.argmax(known)), counts / len(true)
        entropy = -float(np.sum(shares * np.log(shares)))
        per_cent = 100 / len(true)
        return cls(
            int(tokens[best]),
            per_cent * float(known[best]),
            math.exp(entropy),
            per_cent * float((counts - known).sum()),
        )


def _flat(name: str, given: ArrayLike, dtype: Any) -> NDArray[Any]:
    found = np.asarray(given, dtype)
    if found.ndim != 1 or not found.size:
        raise BadInput(f"{name} of shape {list(found.shape)}: a score needs one entry for each of at least one token.")
    return found
