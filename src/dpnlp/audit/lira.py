"""The likelihood ratio attack (Carlini et al. 2022, "Membership Inference Attacks From First Principles").

Shadow runs are trained as the attacked one was, each on records that are drawn anew. The scores that a record has in
those that had it, and in those that had it not, are two Gaussians, and the attack asks which of them the score in the
attacked run comes from (Algorithm 1):

    Λ = p(φ | N(μ_in, σ²_in)) / p(φ | N(μ_out, σ²_out)).

Offline, where no shadow run had the record, it asks how unlikely so high a score is in a run without it. φ is the
confidence as a logit, which is close to a Gaussian where a probability is not; for a text as a whole, −loss. Few shadow
runs cannot tell the variance of one record, which is that of all of them then, around the mean of each.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm

from dpnlp import checks
from dpnlp.audit.membership import Scores
from dpnlp.checks import BadInput

Score = Callable[[NDArray[np.int64]], ArrayLike]
"""Trains on the records of these numbers, and gives the scores φ of all records."""

OWN_VARIANCE = 32
"""With so many shadow runs on each side of a record its variance is its own."""

LEAST_LOSS = 1e-7
"""A loss below is rounded to 0 in float32; it counts as this, as a logit of 16.1."""

LEAST_STD = 1e-3
"""Of a Gaussian: scores that are the same in all shadow runs make no infinite ratio."""


def confidence(losses: ArrayLike) -> Scores:
    """φ = ln(p/(1 − p)) of the true label, from its loss −ln p (Carlini et al. 2022)."""
    loss = np.maximum(np.asarray(losses, np.float64), LEAST_LOSS)
    found: Scores = -loss - np.log(-np.expm1(-loss))
    return found


def drawn(records: int, runs: int, seed: int) -> NDArray[np.bool_]:
    """Which records are in which run, [runs, records]: half of them, each by the toss of a fair coin of its own.

    No number of runs that have a record is made up for. Where it is the same for all records, whoever knows all runs
    but one knows that one's members, and an attack on it by the others proves nothing.
    """
    checks.count("records", records)
    checks.count("runs", runs)
    return np.random.default_rng(seed).random((runs, records)) < 0.5


@dataclass(frozen=True, eq=False)
class Shadows:
    """Scores of all records in some runs, and which records each of them was trained on, [runs, records] each."""

    scores: Scores
    members: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if self.scores.shape != self.members.shape or self.scores.ndim != 2 or not np.isfinite(self.scores).all():
            raise BadInput(
                f"scores = numbers of shape {self.scores.shape}: there must be one for each record in each of the "
                f"runs, of shape {self.members.shape}, all of them finite; check what trains them."
            )

    @classmethod
    def trained(cls, score: Score, members: NDArray[np.bool_]) -> "Shadows":
        """Trains a run on each line of `members`."""
        return cls(np.array([score(np.flatnonzero(line)) for line in members], np.float64), members)

    def attack(self, scores: ArrayLike, *, online: bool = True, own_variance: bool | None = None) -> Scores:
        """ln Λ of each record from its scores [records] in a run that is none of these.

        Offline it is −ln of the probability of so high a score in a run without the record. `own_variance` overrides
        the rule about how many runs are few.
        """
        phi = np.asarray(scores, np.float64)
        if phi.shape != self.scores.shape[1:] or not np.isfinite(phi).all():
            raise BadInput(
                f"scores = numbers of shape {phi.shape}: there must be one for each of the {self.scores.shape[1]} "
                "records, all of them finite."
            )
        if (self.scores == phi).all(axis=1).any():
            raise BadInput("scores: a shadow run has exactly these, so that it is the attacked one; leave it out.")
        without = _gaussians(self.scores, ~self.members, own_variance)
        if not online:
            if np.isnan(without.mean).any():
                raise BadInput(
                    f"members: record {np.isnan(without.mean).argmax()} is in every shadow run, so that nothing is "
                    "known of runs without it; make more of them, or attack online."
                )
            return np.asarray(-norm.logsf(phi, without.mean, without.std))
        within = _completed(_gaussians(self.scores, self.members, own_variance), without)
        without = _completed(without, within)
        return np.asarray(norm.logpdf(phi, *within) - norm.logpdf(phi, *without))

    def each_in_turn(self, *, online: bool = True, own_variance: bool | None = None) -> Scores:
        """The attack on each of these runs by all others, [runs, records]."""
        every = range(len(self.scores))
        return np.array(
            [self._but(run).attack(self.scores[run], online=online, own_variance=own_variance) for run in every]
        )

    def _but(self, run: int) -> "Shadows":
        return Shadows(np.delete(self.scores, run, axis=0), np.delete(self.members, run, axis=0))


class _Gaussians(NamedTuple):
    """Of each record, [records]. Where no run is on this side of it, the mean is NaN."""

    mean: Scores
    std: Scores


def _gaussians(scores: Scores, chosen: NDArray[np.bool_], own_variance: bool | None) -> _Gaussians:
    """Mean and deviation of the chosen scores of each record."""
    runs = chosen.sum(axis=0)
    if runs.max() < 2:
        raise BadInput(
            f"runs = {len(scores)}: to tell how far scores vary, some record must be in two of them, and some out of "
            "two; make more of them, or attack offline where none has the records."
        )
    mean = np.where(chosen, scores, 0).sum(axis=0) / np.where(runs, runs, np.nan)
    squares = np.where(chosen, (scores - np.nan_to_num(mean)) ** 2, 0).sum(axis=0)
    shared = squares.sum() / (runs - (runs > 0)).sum()
    own = runs.min() >= OWN_VARIANCE if own_variance is None else own_variance
    variance = np.where(runs > 1, squares / np.maximum(runs - 1, 1), shared) if own else np.full(mean.shape, shared)
    return _Gaussians(mean, np.maximum(np.sqrt(variance), LEAST_STD))


def _completed(these: _Gaussians, others: _Gaussians) -> _Gaussians:
    """A record that no run has on this side is taken to differ from its other side as records do on the average."""
    gaps = np.isnan(these.mean)
    if not gaps.any():
        return these
    known = ~gaps & ~np.isnan(others.mean)
    if not known.any():
        raise BadInput("members: no record is in one shadow run and out of another; draw them anew for each run.")
    change = (these.mean - others.mean)[known].mean()
    return these._replace(mean=np.where(gaps, others.mean + change, these.mean))
