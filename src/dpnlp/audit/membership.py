"""Membership inference: how well a score tells the records that a model was trained on from others.

A score is higher the likelier its record is a member. That of Yeom et al. 2018 is the loss with its sign turned
(`by_loss`); Watson et al. 2022 take off how hard the record is for models that never saw it (`calibrated`); the
likelihood ratio of Carlini et al. 2022 is in `lira`. Whatever made them, `Membership` says how far they reach: the
curve of true over false alarms, and its points at few false alarms, for an attack that is sure of few people breaks
their privacy even where it is no better than guessing on the average (Carlini et al. 2022).

It also says what follows for ε, by the audit in one run of Steinke et al. 2023 (arXiv 2305.08846): where each record
was put in by the toss of a fair coin of its own, (ε, δ)-DP bounds how many of an attacker's guesses are right. The
guesses are the records of the highest scores, in numbers that are fixed before anyone looks at who is a member.

An audit reads the training set. What it finds is not covered by the guarantee of the run, and holds no single score.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
from flax import nnx
from numpy.typing import ArrayLike, NDArray
from scipy.stats import mannwhitneyu

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.data.cache import Examples
from dpnlp.guarantee import percent
from dpnlp.mechanisms.confidence import at_least, at_most

Scores = NDArray[np.float64]

LEVELS = (0.001, 0.01, 0.1)
"""The rates of false alarms at which it is told how many members are found."""

GUESSED = (1 / 2, 3 / 8, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64)
"""The shares of all records that are guessed to be members, each in an audit of its own."""

_DRAWN = 256
"""About how many points of a curve are written down."""


def by_loss(losses: ArrayLike) -> Scores:
    """−loss of each record: members are expected to have a low one (Yeom et al. 2018, Adversary 2)."""
    return -_numbers("losses", losses)


def calibrated(losses: ArrayLike, reference: ArrayLike) -> Scores:
    """The loss of a reference model minus that of the attacked one (Watson et al. 2022).

    `reference` is [records], or [models, records] for the mean of several. None of them may have seen the records.
    """
    own, others = _numbers("losses", losses), np.atleast_2d(_numbers("reference", reference))
    if others.shape[1:] != own.shape:
        raise BadInput(f"reference = losses of {others.shape[-1]} records: there are {own.size}; give one for each.")
    found: Scores = others.mean(axis=0) - own
    return found


def losses(
    model: nnx.Module, loss: Callable[[Any, Any], jax.Array], examples: Examples, longest: int, batch: int = 64
) -> Scores:
    """The loss of each example, [examples], with nothing dropped."""
    structure, weights = nnx.split(model)
    each = jax.jit(lambda weights, given: loss(nnx.merge(structure, weights), given))
    found = np.empty(len(examples))
    for rows, given in examples.by_length(batch, longest):
        found[rows] = np.asarray(each(weights, given))[: len(rows)]
    return found


@dataclass(frozen=True)
class Point:
    """A threshold at which the rate of false alarms is at most `level`, and no other such threshold finds more.

    Nothing is interpolated: a rate between those of two thresholds is no attack that was made. The intervals are those
    of Clopper and Pearson, as if records were independent of each other and the threshold had been known before.
    """

    level: float
    found: int  # members whose score reaches the threshold
    members: int
    alarms: int  # other records whose score does
    others: int

    @property
    def tpr(self) -> float:
        """The rate of members that are found."""
        return self.found / self.members

    @property
    def fpr(self) -> float:
        """The rate of false alarms among the others."""
        return self.alarms / self.others

    def tpr_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Where the rate of found members lies."""
        return _interval(self.found, self.members, confidence)

    def fpr_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Where the rate of false alarms lies."""
        return _interval(self.alarms, self.others, confidence)

    def statement(self, confidence: float = 0.95) -> str:
        """What was found, and how much it says."""
        (low, high), (_, most) = self.tpr_interval(confidence), self.fpr_interval(confidence)
        none = self.level * self.others < 1
        alarms = (
            f"no false alarm on {self.others:,}" if none else f"false alarms on at most {percent(self.level)} of the"
        )
        true_rate = f" The true rate of false alarms may be up to {percent(most)}." if none else ""
        return (
            f"With {alarms} others it finds {self.found:,} of {self.members:,} members: {percent(self.tpr)}, and with "
            f"{percent(confidence, 6)} confidence {percent(low)} to {percent(high)}.{true_rate}"
        )

    def to_json(self, confidence: float = 0.95) -> dict[str, Any]:
        """For a record of the run."""
        return {
            "level": self.level,
            "tpr": self.tpr,
            "tpr_interval": list(self.tpr_interval(confidence)),
            "fpr": self.fpr,
            "fpr_interval": list(self.fpr_interval(confidence)),
        }


class Membership:
    """What an attack found of who is a member.

    Scores and members are [records], or [runs, records] where several runs were attacked. `drawn` says that each record
    was put into each run by the toss of a fair coin of its own, which nothing but the training knew of.
    """

    def __init__(self, attack: str, scores: ArrayLike, members: ArrayLike, *, drawn: bool = False) -> None:
        self.attack, self.drawn = attack, drawn
        self.scores, self.members = np.atleast_2d(_numbers("scores", scores)), np.atleast_2d(np.asarray(members))
        if self.members.dtype != bool or self.members.shape != self.scores.shape or self.scores.ndim != 2:
            raise BadInput(
                f"members = {self.members.dtype} of shape {self.members.shape}: there must be a truth value for each "
                f"of the scores, of shape {self.scores.shape}."
            )
        if self.members.all() or not self.members.any():
            raise BadInput("members: all records are, or none is; give members and others to tell apart.")

    @property
    def inside(self) -> Scores:
        """The scores of members."""
        found: Scores = self.scores[self.members]
        return found

    @property
    def outside(self) -> Scores:
        """The scores of others."""
        found: Scores = self.scores[~self.members]
        return found

    @cached_property
    def _counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The members and the others that reach each threshold, from the highest on, with none at first."""
        thresholds = np.unique(self.scores)[::-1]
        inside, outside = np.sort(self.inside), np.sort(self.outside)
        reach = [len(side) - np.searchsorted(side, thresholds) for side in (inside, outside)]
        found, alarms = (np.append(0, side) for side in reach)
        return found, alarms

    def roc(self) -> tuple[Scores, Scores]:
        """The rates of false alarms and of found members at every threshold, from (0, 0) to (1, 1)."""
        found, alarms = self._counts
        return alarms / len(self.outside), found / len(self.inside)

    @property
    def auc(self) -> float:
        """The probability that a member has a higher score than another record; a tie counts half."""
        return float(mannwhitneyu(self.inside, self.outside).statistic / (len(self.inside) * len(self.outside)))

    @property
    def chance(self) -> float:
        """The probability that scores which know nothing of membership have such an AUC, or a higher one, at most.

        Of several runs each is tested by itself, as for ε, and the best one counts, times how many there are. All
        together would come out too sure: what the coins of one run say of another's scores, those say of this one's.
        """
        tested = [
            float(mannwhitneyu(scores[members], scores[~members], alternative="greater").pvalue)
            for scores, members in zip(self.scores, self.members, strict=True)
            if members.any() and not members.all()
        ]
        return min(1.0, len(tested) * min(tested, default=1.0))

    @property
    def balanced_accuracy(self) -> float:
        """The mean of the rates at which members and others are told rightly, at the best threshold in hindsight."""
        fpr, tpr = self.roc()
        return float(np.max(tpr + 1 - fpr) / 2)

    def at(self, level: float) -> Point:
        """The most members that are found with no more false alarms than this rate."""
        checks.share("level", level)
        found, alarms = self._counts
        last = int(np.flatnonzero(alarms / len(self.outside) <= level)[-1])
        return Point(level, int(found[last]), len(self.inside), int(alarms[last]), len(self.outside))

    def epsilon(self, delta: float, confidence: float = 0.95) -> float:
        """The ε that fair coins and these guesses refute at δ, with this confidence; 0 where none is refuted.

        It speaks of the training only where membership was `drawn`. Several numbers of guesses and several runs share
        what may go wrong. A run is audited by itself: another one's coins may have helped to attack it.
        """
        from jax_privacy.auditing import CanaryScoreAuditor, Explicit

        checks.probability("delta", delta)
        tests = [
            (scores, members, threshold)
            for scores, members in zip(self.scores, self.members, strict=True)
            for threshold in _thresholds(scores)
        ]
        wrong = (1 - checks.probability("confidence", confidence)) / len(tests)
        bounds = [0.0]
        for scores, members, threshold in tests:
            if members.any() and not members.all():
                auditor = CanaryScoreAuditor(scores[members], scores[~members])
                bounds.append(auditor.epsilon_one_run(wrong, delta, threshold_strategy=Explicit(threshold)))
        return float(max(bounds))

    def statement(self, delta: float, confidence: float = 0.95) -> str:
        """What was found, and how much it says."""
        runs = f" in {len(self.scores):,} runs" if len(self.scores) > 1 else ""
        said = [
            f"The attack by {self.attack} tells {len(self.inside):,} members from {len(self.outside):,} other "
            f"records{runs} with an AUC of {self.auc:.3f}, where 0.5 is guessing; by chance alone it would be as high "
            f"with probability {self.chance:.2g}.",
            f"At its best threshold, which is known only in hindsight, it is right about "
            f"{percent(self.balanced_accuracy)} of both.",
            *dict.fromkeys(self.at(level).statement(confidence) for level in LEVELS),
            self._about_epsilon(delta, confidence),
            "An attack that fails proves nothing: a stronger one, or the same on other records, may succeed. Only the "
            "guarantee speaks of all attacks.",
        ]
        return " ".join(said)

    def _about_epsilon(self, delta: float, confidence: float) -> str:
        bound = self.epsilon(delta, confidence)
        shown = f"ε > {bound:.2f} at δ = {delta:g}, with {percent(confidence, 6)} confidence"
        if self.drawn:
            what = f"the training has {shown}" if bound else "no ε is refuted"
            return f"Each record was put in by the toss of a coin, so that this tests the promise: {what}."
        what = f"they would show {shown}" if bound else "they would refute no ε"
        return (
            "Membership was not drawn at random: members may differ from the others in more than that, and nothing "
            f"follows for the ε of the training. Had it been drawn by coins, with these guesses {what}."
        )

    def to_json(self, delta: float, confidence: float = 0.95) -> dict[str, Any]:
        """For a record of the run."""
        return {
            "attack": self.attack,
            "members": len(self.inside),
            "others": len(self.outside),
            "runs": len(self.scores),
            "auc": self.auc,
            "chance": self.chance,
            "balanced_accuracy": self.balanced_accuracy,
            "confidence": confidence,
            "points": [self.at(level).to_json(confidence) for level in LEVELS],
            "epsilon": {"above": self.epsilon(delta, confidence), "delta": delta, "of_the_training": self.drawn},
            "roc": self.curve(),
            "statement": self.statement(delta, confidence),
        }

    def curve(self, points: int = _DRAWN) -> list[tuple[float, float]]:
        """(False alarms, found members) to be drawn: some points of the curve, dense where false alarms are few."""
        fpr, tpr = self.roc()
        wanted = np.append(0, np.geomspace(1 / len(self.outside), 1, checks.count("points", points, 2)))
        last = np.unique(np.searchsorted(fpr, wanted, side="right") - 1)
        return [(float(fpr[place]), float(tpr[place])) for place in last]


def _thresholds(scores: Scores) -> list[float]:
    """The scores of the last of the guessed records, for each number of guesses; who is a member is not looked at."""
    best = np.sort(scores)[::-1]
    return [float(best[place]) for place in sorted({max(1, round(share * len(best))) - 1 for share in GUESSED})]


def _interval(count: int, trials: int, confidence: float) -> tuple[float, float]:
    tail = (1 - checks.probability("confidence", confidence)) / 2
    return float(at_least(count, trials, tail)), float(at_most(count, trials, tail))


def _numbers(name: str, values: ArrayLike) -> Scores:
    found = np.asarray(values, np.float64)
    if not found.size or not np.isfinite(found).all():
        raise BadInput(f"{name} = numbers of shape {found.shape}: there must be some, all of them finite.")
    return found
