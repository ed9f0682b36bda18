"""`dpnlp account mechanism ...`: the lecture's mechanisms, what they add, what comes out, and the attacker's bound."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpnlp import mechanisms
from dpnlp.checks import BadInput
from dpnlp.cli.config import option
from dpnlp.cli.output import attack_facts, print_facts, print_guarantee, print_json, print_table
from dpnlp.cli.ranges import ANY, COUNT, COUNT_OR_0, DELTA, LENGTH, PROMISED, between
from dpnlp.guarantee import Adjacency, Guarantee, Unit
from dpnlp.mechanisms.gaussian import Calibration

_ABOUT = "what the statement says"


@dataclass(frozen=True, kw_only=True)
class RandomizedResponse:
    """Randomized response: everyone reports one of a few answers, the true one with a known probability. Give one of
    --epsilon, --theta and --gamma. With --people and --hits, the true share is estimated from the reported one."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp account mechanism randomized-response --theta 0.75",
        "dpnlp account mechanism randomized-response --epsilon 1 --people 1000 --hits 420",
    )

    epsilon: float | None = option(None, within=PROMISED, help="The ε of one answer")
    theta: float | None = option(
        None, within=between(0, 1), help="The probability of the true answer, for two categories"
    )
    gamma: float | None = option(None, within=between(0, 0.5), help="How far that probability lies above one half")
    categories: int = option(2, within=between(2, 2**20), help="How many answers there are to choose from")
    people: int | None = option(None, within=COUNT, help="How many answered")
    hits: int | None = option(None, within=COUNT_OR_0, help="How many of them reported the answer of interest")
    unit: Unit = option(Unit.EXAMPLE, help="Whose answer it is", group=_ABOUT)
    json: bool = option(False, help="Print one JSON object instead of tables", group="output")

    def run(self) -> None:
        """Answers on stdout."""
        mechanism = self._mechanism()
        facts: dict[str, Any] = {"epsilon": mechanism.epsilon, "theta": mechanism.theta}
        if self.categories == 2:
            facts["gamma"] = mechanism.gamma
        facts["probability_of_each_other_answer"] = (1 - mechanism.theta) / (self.categories - 1)
        if self.people is not None or self.hits is not None:
            facts |= self._estimate(mechanism)
        _show("Randomized response", facts, mechanism.guarantee(self.unit), self.json)

    def _mechanism(self) -> mechanisms.RandomizedResponse:
        given = [name for name in ("epsilon", "theta", "gamma") if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(f"--{name}" for name in given) or "none"
            raise BadInput(f"--epsilon, --theta, --gamma: exactly one must be given, not {found}.")
        if self.epsilon is not None:
            return mechanisms.RandomizedResponse(self.epsilon, self.categories)
        if self.categories != 2:
            raise BadInput(f"--categories = {self.categories}: --{given[0]} is for two of them; give --epsilon.")
        if self.theta is not None:
            return mechanisms.RandomizedResponse.from_theta(self.theta)
        return mechanisms.RandomizedResponse.from_gamma(self.gamma or 0.0)

    def _estimate(self, mechanism: mechanisms.RandomizedResponse) -> dict[str, float]:
        if self.people is None or self.hits is None:
            raise BadInput(f"--hits = {self.hits}, --people = {self.people}: an estimate needs both of them.")
        estimate = mechanism.estimate_from_counts(self.hits, self.people)
        return {
            "reported_share": self.hits / self.people,
            "estimated_true_share": estimate.share,
            "confidence_interval_95_low": estimate.low,
            "confidence_interval_95_high": estimate.high,
        }


@dataclass(frozen=True, kw_only=True)
class Laplace:
    """The Laplace mechanism: noise on a number, scaled to how far one record can move it. With --value, one noisy
    release is drawn from the operating system's entropy."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp account mechanism laplace --sensitivity 1 --epsilon 0.5",
        "dpnlp account mechanism laplace --sensitivity 1 --epsilon 0.5 --value 42",
    )

    sensitivity: float = option(within=LENGTH, help="The ℓ1 sensitivity: how far one record can move the answer")
    epsilon: float = option(within=PROMISED, help="The ε of one answer")
    value: float | None = option(None, within=ANY, help="The true answer, to see what might come out")
    unit: Unit = option(Unit.EXAMPLE, help="What one record is", group=_ABOUT)
    adjacency: Adjacency = option(Adjacency.ADD_REMOVE, help="The neighbours the sensitivity is for", group=_ABOUT)
    json: bool = option(False, help="Print one JSON object instead of tables", group="output")

    def run(self) -> None:
        """Answers on stdout."""
        mechanism = mechanisms.Laplace(self.sensitivity, self.epsilon)
        facts: dict[str, Any] = {
            "epsilon": mechanism.epsilon,
            "scale": mechanism.scale,
            "standard_deviation": math.sqrt(2) * mechanism.scale,
            "noise_within_95_percent": mechanism.scale * math.log(20),
        }
        if self.value is not None:
            facts["released"] = float(mechanism.release(self.value))
        _show("Laplace mechanism", facts, mechanism.guarantee(self.unit, self.adjacency), self.json)


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """The Gaussian mechanism: normal noise on a number or a vector. Give --epsilon for the σ it needs, or --sigma for
    the ε it gives. The classical formula is for ε below 1 and says so."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp account mechanism gaussian --sensitivity 1 --epsilon 2 --delta 1e-5",
        "dpnlp account mechanism gaussian --sensitivity 1 --sigma 4 --delta 1e-5",
    )

    sensitivity: float = option(within=LENGTH, help="The ℓ2 sensitivity: how far one record can move the answer")
    delta: float = option(within=DELTA, help="The δ of one answer")
    epsilon: float | None = option(None, within=PROMISED, help="The ε of one answer")
    sigma: float | None = option(None, within=LENGTH, help="Instead of --epsilon: the standard deviation of the noise")
    calibration: Calibration = option(Calibration.ANALYTIC, help="Which formula σ comes from")
    value: float | None = option(None, within=ANY, help="The true answer, to see what might come out")
    unit: Unit = option(Unit.EXAMPLE, help="What one record is", group=_ABOUT)
    adjacency: Adjacency = option(Adjacency.ADD_REMOVE, help="The neighbours the sensitivity is for", group=_ABOUT)
    json: bool = option(False, help="Print one JSON object instead of tables", group="output")

    def run(self) -> None:
        """Answers on stdout."""
        if (self.epsilon is None) == (self.sigma is None):
            raise BadInput("--epsilon, --sigma: exactly one of them must be given; the other is computed.")
        if self.epsilon is not None:
            epsilon = self.epsilon
        elif self.calibration is Calibration.CLASSICAL:
            raise BadInput("--sigma: the ε of a given noise comes from the analytic formula; leave out --calibration.")
        else:
            epsilon = mechanisms.analytic_epsilon(self.sigma or 0.0, self.delta, self.sensitivity)
        mechanism = mechanisms.Gaussian(self.sensitivity, epsilon, self.delta, self.calibration)
        facts: dict[str, Any] = {
            "epsilon": epsilon,
            "delta": self.delta,
            "sigma": mechanism.sigma,
            "noise_multiplier": mechanism.sigma / self.sensitivity,
            "noise_within_95_percent": 1.9599639845 * mechanism.sigma,
        }
        if self.value is not None:
            facts["released"] = float(mechanism.release(self.value))
        _show("Gaussian mechanism", facts, mechanism.guarantee(self.unit, self.adjacency), self.json)


@dataclass(frozen=True, kw_only=True)
class Exponential:
    """The exponential mechanism and report-noisy-max: one of several candidates, the better ones more likely. With
    --scores, the probabilities are shown and one choice of each kind is drawn."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp account mechanism exponential --sensitivity 1 --epsilon 1 --scores 12 9 3",
    )

    sensitivity: float = option(within=LENGTH, help="How far one record can move a candidate's score")
    epsilon: float = option(within=PROMISED, help="The ε of one choice")
    scores: tuple[float, ...] = option((), within=ANY, help="The candidates' scores")
    monotone: bool = option(False, help="A record that comes or goes moves all scores the same way, as counts do")
    unit: Unit = option(Unit.EXAMPLE, help="What one record is", group=_ABOUT)
    adjacency: Adjacency = option(Adjacency.ADD_REMOVE, help="The neighbours the sensitivity is for", group=_ABOUT)
    json: bool = option(False, help="Print one JSON object instead of tables", group="output")

    def run(self) -> None:
        """Answers on stdout."""
        mechanism = mechanisms.Exponential(self.sensitivity, self.epsilon, self.monotone)
        facts: dict[str, Any] = {
            "epsilon": mechanism.epsilon,
            "e_fold_per_score": self.sensitivity * (1 if self.monotone else 2) / self.epsilon,
        }
        if self.scores:
            weights = np.exp((np.array(self.scores) - max(self.scores)) / facts["e_fold_per_score"])
            facts["probabilities"] = [float(weight) for weight in weights / weights.sum()]
            facts["chosen_by_exponential"] = mechanism.choose(self.scores)
            facts["chosen_by_noisy_max"] = mechanism.noisy_max(self.scores)
        _show("Exponential mechanism", facts, mechanism.guarantee(self.unit, self.adjacency), self.json)


def _show(title: str, facts: dict[str, Any], guarantee: Guarantee, as_json: bool) -> None:
    if as_json:
        print_json(
            facts
            | attack_facts(guarantee)
            | {
                "signature": guarantee.signature(),
                "statement": guarantee.statement(),
                "guarantee": guarantee.to_json(),
            }
        )
        return
    plain = {name.replace("_", " "): value for name, value in (facts | attack_facts(guarantee)).items()}
    lists = {name: value for name, value in plain.items() if isinstance(value, list)}
    print_facts(title, {name: f"{value:.6g}" for name, value in plain.items() if name not in lists})
    for name, values in lists.items():
        rows = [[str(index), f"{value:.4g}"] for index, value in enumerate(values)]
        print_table(name.capitalize(), ["candidate", "probability"], rows)
    print_guarantee(guarantee)
