"""Exposure (Carlini et al. 2019, "The Secret Sharer"): how far a model prefers a secret it was trained on to any other.

A secret s was drawn uniformly from a space R. With Px(r) the log-perplexity that a model gives to r,

    rank(s) = 1 + |{r ∈ R : Px(r) < Px(s)}|,    exposure(s) = log₂|R| − log₂ rank(s)    (Definitions 2 and 4).

R may be a random sample of the whole space, with s put among it. Then nothing is extrapolated: no exposure is above
log₂|R|, and a secret that reaches it may be exposed still further. Of a model that never saw s, every rank is equally
likely, so that an exposure of b bits or more comes about with probability 2^−b, and 1/ln 2 ≈ 1.44 bits are expected.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.data.pairs import Pair

Losses = Callable[[Sequence[Pair]], ArrayLike]
"""−log p of each pair's target given its source, as a whole and not by token."""


@dataclass(frozen=True)
class Exposed:
    """How far a secret is exposed. One that shares its rank with others has the best place among them."""

    text: str
    rank: int
    candidates: int
    sharing: int = 0  # other candidates with exactly the same loss

    @property
    def exposure(self) -> float:
        """In bits, from 0 up to the ceiling."""
        return self.ceiling - math.log2(self.rank)

    @property
    def ceiling(self) -> float:
        """The most that these candidates can show."""
        return math.log2(self.candidates)

    @property
    def chance(self) -> float:
        """The probability that a model which never saw the secret ranks it as well, or better."""
        return (self.rank + self.sharing) / self.candidates

    def statement(self) -> str:
        """What was found, and how much it says."""
        return (
            f"Of {self.candidates:,} candidates the secret comes at place {self.rank:,}: {self.exposure:.1f} bits of "
            f"at most {self.ceiling:.1f}. By chance alone it would come as far up with probability {self.chance:.2g}."
        )

    def to_json(self) -> dict[str, Any]:
        """For a record of the run."""
        return {"text": self.text, "exposure": self.exposure, "rank": self.rank, "candidates": self.candidates}


def exposures(secrets: Sequence[Pair], others: Sequence[Sequence[Pair]], losses: Losses) -> list[Exposed]:
    """The exposure of each secret among the others that were just as likely to be it.

    The losses of all are asked for in one call, so that one compiled program serves them all.
    """
    if len(secrets) != len(others):
        raise BadInput(f"others = {len(others)} lists: there are {len(secrets)} secrets; give one list for each.")
    for secret, its_others in zip(secrets, others, strict=True):
        checks.count("candidates", 1 + len(its_others), least=2, remedy="give others to compare the secret with")
        if len({secret, *its_others}) <= len(its_others):
            raise BadInput(f"others: a candidate for {secret.source!r} is there twice; give each of them once.")
    groups = [(secret, *its_others) for secret, its_others in zip(secrets, others, strict=True)]
    every = [pair for group in groups for pair in group]
    found = np.asarray(losses(every))
    if found.shape != (len(every),) or np.isnan(found).any():
        raise BadInput(
            f"losses = numbers of shape {found.shape}: there must be {len(every)}, one for each candidate, and "
            "none NaN; check the model."
        )
    by_group = np.split(found, np.cumsum([len(group) for group in groups])[:-1])
    return [ranked(secret.target, own[0], own[1:]) for secret, own in zip(secrets, by_group, strict=True)]


def ranked(text: str, loss: float, others: ArrayLike) -> Exposed:
    """A secret of this loss among others of these losses."""
    theirs = np.asarray(others)
    return Exposed(text, 1 + int((theirs < loss).sum()), 1 + theirs.size, int((theirs == loss).sum()))


def expected_by_chance(candidates: int) -> float:
    """The mean exposure, in bits, of secrets that a model knows nothing of: log₂ n − log₂(n!)/n."""
    n = checks.count("candidates", candidates)
    return math.log2(n) - math.lgamma(n + 1) / (n * math.log(2))
