"""Is a claim of (ε, δ) broken? Two neighbouring inputs, many outputs of each, and an event that tells them apart.

(ε, δ)-DP demands P[M(x) ∈ S] ≤ e^ε P[M(x') ∈ S] + δ of every set S of outputs, and the same with x and x' exchanged. If
S was hit k times in m outputs of x and k' times in as many of x', then with Clopper and Pearson's bounds

    ε ≥ ln((p_low(k) − δ)/p_high(k')),

unless one of the two bounds is wrong. A claim below that is violated.

What a verdict of "violated" is worth. Of n outputs of each input, a quarter teaches the scores, and a second quarter
chooses, for each of the two directions, one score and one threshold: S is the outputs whose score is at least that. The
other half, which nothing was chosen by, tests both events. A test with a confidence of 1 − α gives each direction α/2,
and each of its two bounds α/4. So if the claim holds for these two inputs, and the outputs are independent draws, then
"violated" comes up with a probability of at most α, whatever the mechanism, the score and the number of outputs.

What "consistent" is worth. It proves nothing about other inputs, other events or more outputs; and so many outputs
cannot show more than `ceiling`, whatever the mechanism does.

After Ding et al. (2018), "Detecting violations of differential privacy", where events are chosen and tested on separate
outputs; Jagielski et al. (2020), "Auditing differentially private machine learning", for the bound; Bichsel et al.
(2021), "DP-Sniper", for events by thresholds on a learned score; Nasr et al. (2023), "Tight auditing of differentially
private machine learning", for what an audit can and cannot show.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpnlp import checks
from dpnlp.audit.scores import Numbers, Outputs, Score, learned
from dpnlp.checks import BadInput
from dpnlp.guarantee import percent
from dpnlp.mechanisms.confidence import at_least, at_most

Release = Callable[[Any, int], Outputs]
"""So many outputs for an input, each drawn anew."""

_THRESHOLDS = 200
"""At most about so many thresholds are looked at, close to each other where few outputs are beyond them."""

_FEWEST = 20
"""Outputs of each input, below which nothing could be learned."""

_HOPELESS = 40.0
"""An ε above this would take more outputs than can be drawn."""

_FARTHEST = 1e300
"""Scores are clamped to this, so that there is a number between any two."""


def epsilon_lower_bound(
    hits: npt.ArrayLike, other_hits: npt.ArrayLike, trials: npt.ArrayLike, delta: float, chance: float
) -> Numbers:
    """ln((p − δ)/q), which ε exceeds but for this chance, if an event was hit so often on two neighbouring inputs.

    p is bounded from below and q from above, each wrong with at most half the chance. −∞ where p may be δ or less. The
    event has to be fixed before the outputs are seen.
    """
    p, q = at_least(hits, trials, chance / 2), at_most(other_hits, trials, chance / 2)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(p - delta, 0.0)) - np.log(q))


def ceiling(trials: int, delta: float, confidence: float) -> float:
    """The largest ε that so many outputs of each input can show: all of one input hit the event, and none of the other.

    For small δ and α = 1 − confidence about ln(n/(2 ln(4/α))).
    """
    tested = trials - trials // 2
    return max(0.0, float(epsilon_lower_bound(tested, 0, tested, delta, (1 - confidence) / 2)))


def trials_needed(epsilon: float, delta: float, confidence: float) -> int:
    """How many outputs of each input it takes at the least to show that ε is broken."""
    most = _FEWEST
    while ceiling(most, delta, confidence) <= epsilon:
        most *= 2
    least = most // 2
    while least + 1 < most:
        middle = (least + most) // 2
        least, most = (middle, most) if ceiling(middle, delta, confidence) <= epsilon else (least, middle)
    return most


@dataclass(frozen=True)
class Finding:
    """How often an event came about in one direction, in outputs that had no part in choosing it."""

    of: str  # the input that the event speaks for: first or second
    score: str
    threshold: float  # the event is a score of at least this; for the second input the score is taken negative
    hits: int
    other_hits: int
    trials: int
    bound: float  # on ε, from below

    def statement(self) -> str:
        """The two frequencies in words."""
        other = "second" if self.of == "first" else "first"
        sign = "" if self.of == "first" else "negative "
        return (
            f"A {sign}score by {self.score} of at least {self.threshold:.4g} came about in {self.hits:,} of "
            f"{self.trials:,} outputs of the {self.of} input, and in {self.other_hits:,} of the {other}."
        )


@dataclass(frozen=True)
class Audit:
    """A claim, and what outputs of two inputs say about it."""

    epsilon: float
    delta: float
    confidence: float
    trials: int  # outputs of each input, half of which tested
    findings: tuple[Finding, ...]  # one for each direction

    @property
    def bound(self) -> float:
        """ε is at least this, with the confidence."""
        return max(finding.bound for finding in self.findings)

    @property
    def violated(self) -> bool:
        """Whether the claim is broken, with the confidence."""
        return self.bound > self.epsilon

    @property
    def verdict(self) -> str:
        """violated, or consistent with the claim."""
        return "violated" if self.violated else "consistent"

    @property
    def ceiling(self) -> float:
        """The largest bound that so many outputs can show, whatever the mechanism does."""
        return ceiling(self.trials, self.delta, self.confidence)

    def statement(self) -> str:
        """The verdict, and how much it says."""
        claim = f"ε = {self.epsilon:g} at δ = {self.delta:g}"
        shown = f"ε is at least {self.bound:.4g}, with a confidence of {percent(self.confidence, 6)}"
        if self.violated:
            return (
                f"Violated: {claim} is claimed, but {shown}. If the claim held for these two inputs, and each output "
                f"were drawn anew, this verdict would come up with a probability of at most "
                f"{percent(1 - self.confidence, 6)}."
            )
        return f"Consistent: {claim} is claimed, and what was drawn shows that {shown}. {self.limits()}"

    def limits(self) -> str:
        """What the verdict does not prove."""
        least = f"{self.trials:,} outputs of each input can show no more than ε = {self.ceiling:.4g}"
        if self.ceiling <= self.epsilon:
            far = self.epsilon > _HOPELESS
            needed = "" if far else f"{trials_needed(self.epsilon, self.delta, self.confidence):,} or "
            least += f", so that this audit could not have found the claim broken; it takes {needed}more"
            least += " than can ever be drawn" if far else ""
        more = "other inputs, other events or more outputs may"
        opening = (
            f"ε may be larger still: {more} show it"
            if self.violated
            else f"This is no proof of the claim: {more} break it"
        )
        return f"{opening}. Only these two inputs were tried, with one event for each. {least}."

    def to_json(self) -> dict[str, Any]:
        """For a program."""
        return {
            "verdict": self.verdict,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "epsilon_lower_bound": self.bound,
            "largest_epsilon_that_could_be_shown": self.ceiling,
            "confidence": self.confidence,
            "trials": self.trials,
            "findings": [vars(finding) for finding in self.findings],
            "statement": self.statement(),
            "not_proved": self.limits(),
        }


def audit(
    release: Release,
    first: Any,
    second: Any,
    epsilon: float,
    delta: float = 0.0,
    *,
    trials: int = 10_000,
    confidence: float = 0.999,
    score: Score | None = None,
) -> Audit:
    """Draws so many outputs of two neighbouring inputs, and tests the claim on them.

    `score`, where one is given, takes the place of those that are learned: one number for each of the outputs, larger
    where the first input is likelier.
    """
    _check(epsilon, delta, trials, confidence)
    ones, others = release(first, trials), release(second, trials)
    if not len(ones) == len(others) == trials:
        raise BadInput(
            f"outputs = {len(ones)} and {len(others)}: there must be {trials} of each input, as was asked for."
        )
    return judged(ones, others, epsilon, delta, confidence=confidence, score=score)


def judged(
    first: Outputs,
    second: Outputs,
    epsilon: float,
    delta: float = 0.0,
    *,
    confidence: float = 0.999,
    score: Score | None = None,
) -> Audit:
    """The same of outputs that are there already: as many of either input, in the order in which they were drawn."""
    trials = len(first)
    _check(epsilon, delta, trials, confidence)
    if len(second) != trials:
        raise BadInput(f"outputs = {trials} and {len(second)}: there must be as many of the first and of the second.")
    learning = slice(trials // 4)
    scores = learned(first[learning], second[learning]) if score is None else {"the given function": score}
    chance = (1 - confidence) / 2
    forth = _finding("first", first, second, scores, delta, chance)
    back = _finding("second", second, first, scores, delta, chance)
    return Audit(epsilon, delta, confidence, trials, (forth, back))


def one_by_one(release: Callable[[Any], Any]) -> Release:
    """What gives one output for an input, asked again and again."""
    return lambda given, count: [release(given) for _ in range(count)]


def _check(epsilon: float, delta: float, trials: int, confidence: float) -> None:
    checks.non_negative("epsilon", epsilon, "an infinite one claims nothing")
    if checks.non_negative("delta", delta) >= 1:
        raise BadInput(f"delta = {delta}: it must be below 1; at 1 nothing is claimed.")
    checks.count("trials", trials, least=_FEWEST)
    checks.probability("confidence", confidence, "0.999 is one false alarm in a thousand at the most")


def _finding(of: str, one: Outputs, other: Outputs, scores: dict[str, Score], delta: float, chance: float) -> Finding:
    """The event that promises most on the second quarter of the outputs, and what comes of it on the other half."""
    trials, sign = len(one), 1 if of == "first" else -1
    choosing, testing = slice(trials // 4, trials // 2), slice(trials // 2, trials)
    tested = trials - trials // 2

    def scored(name: str, part: slice) -> tuple[Numbers, Numbers]:
        return sign * _scored(scores[name], one[part]), sign * _scored(scores[name], other[part])

    proposed = [(*_best(*scored(name, choosing), tested, delta, chance), name) for name in scores]
    _, threshold, name = max(proposed)
    hits, others = (int(np.sum(found >= threshold)) for found in scored(name, testing))
    bound = max(0.0, float(epsilon_lower_bound(hits, others, tested, delta, chance)))
    return Finding(of, name, threshold, hits, others, tested, bound)


def _scored(score: Score, outputs: Outputs) -> Numbers:
    found = np.asarray(score(outputs), np.float64)
    if found.shape != (len(outputs),) or np.isnan(found).any():
        raise BadInput(
            f"score = numbers of shape {found.shape}: there must be {len(outputs)}, one for each output, and none NaN."
        )
    return np.clip(found, -_FARTHEST, _FARTHEST)


def _best(one: Numbers, other: Numbers, tested: int, delta: float, chance: float) -> tuple[float, float]:
    """The bound that is to be expected of the best threshold when it is tested, and that threshold."""
    thresholds = _thresholds(np.concatenate((one, other)))
    hits, others = (len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left") for scores in (one, other))
    grown = tested / len(one)
    expected = epsilon_lower_bound(grown * hits, grown * others, tested, delta, chance)
    place = int(np.argmax(expected))
    return float(expected[place]), float(thresholds[place])


def _thresholds(scores: Numbers) -> Numbers:
    """Half-way between two scores that came up, so that no rounding decides, and below all of them."""
    values = np.unique(scores)[::-1]
    between = np.append(values[:-1] / 2 + values[1:] / 2, -_FARTHEST)
    places = np.unique(np.geomspace(1, len(between), min(_THRESHOLDS, len(between))).astype(np.int64))
    return between[places - 1]
