"""The plan of a run: sampler, clip norm, noise, steps and the accountant's event, all from one object (law 1)."""

import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from dpnlp import checks
from dpnlp.accounting import accountant, calibration, planning
from dpnlp.accounting.accountant import Accountant
from dpnlp.accounting.planning import Question
from dpnlp.accounting.subsampling import Schedule
from dpnlp.checks import BadInput
from dpnlp.events import Event
from dpnlp.guarantee import Adjacency, Exposure, Guarantee, NoiseSource, Term, Unit, round_up
from dpnlp.training.clipping import Clipping
from dpnlp.training.contributions import GRADIENTS, Contribution
from dpnlp.training.noise import Banded, Independent
from dpnlp.training.rounding import ROUNDING, far_from_the_ends

MILESTONES = 100
"""In how many places along a run ε is computed to be shown."""


@dataclass(frozen=True)
class Plan:
    """What a run does to its data, and so what it promises. Nothing that it does is decided anywhere else.

    Noise has the standard deviation σC(1 + η) on the sum over a lot, with C the clip norm, σ the noise multiplier and η
    what rounding may add to C (`rounding`). Without
    noise nothing is promised; without a clip norm, which is infinite then, gradients are ordinary ones.
    """

    schedule: Schedule
    clipping: Clipping
    noise_multiplier: float
    delta: float
    adjacency: Adjacency
    accountant: Accountant = Accountant.PLD
    unit: Unit = Unit.EXAMPLE
    owner: str = ""  # the column that says what the unit counts, where one does
    target: float | None = None  # the ε that noise, steps or lot size were chosen for
    contribution: Contribution = GRADIENTS  # what a record adds to the sum over a lot

    def __post_init__(self) -> None:
        checks.non_negative("noise_multiplier", self.noise_multiplier)
        checks.probability("delta", self.delta)
        self.schedule.check(self.adjacency)
        if self.noise_multiplier and not self.clips:
            raise BadInput(
                f"clip_norm = inf: noise of {self.noise_multiplier} clip norms needs a finite one; give one, or no "
                "noise for a run without privacy."
            )
        if self.noise_multiplier:
            for ratio in (1.0, *self.schedule.aggregations):
                far_from_the_ends("noise_multiplier", ratio * self.noise_multiplier, "choose another ε")
        self.contribution.check(self)

    @classmethod
    def of(cls, question: Question, clipping: Clipping, contribution: Contribution = GRADIENTS) -> "Plan":
        """The answer to a question that leaves one of ε, noise, steps and lot size open."""
        answer: planning.Plan = question.answer()
        return cls(
            answer.schedule,
            clipping,
            answer.noise_multiplier,
            question.delta,
            question.neighbours,
            question.accountant,
            question.unit,
            target=question.epsilon,
            contribution=contribution,
        )

    @classmethod
    def without_privacy(
        cls, schedule: Schedule, unit: Unit = Unit.EXAMPLE, contribution: Contribution = GRADIENTS
    ) -> "Plan":
        """Ordinary training: no clipping and no noise."""
        adjacency = schedule.sampling.adjacencies[0]
        return cls(schedule, Clipping(math.inf), 0.0, 1e-6, adjacency, unit=unit, contribution=contribution)

    def within(self, epsilon: float) -> "Plan":
        """The same plan, ended before it would cost more than ε. It has to be settled before the run, not during it."""
        checks.budget("epsilon", epsilon)
        if self.epsilon(self.schedule.steps) <= epsilon:
            return self
        how = (self.delta, self.adjacency, self.accountant)
        most = calibration.steps(epsilon, self.schedule, self.noise_multiplier, *how)
        return replace(self, schedule=replace(self.schedule, steps=most), target=epsilon)

    @property
    def clips(self) -> bool:
        return math.isfinite(self.clipping.norm)

    @property
    def stddev(self) -> float:
        """σC(1 + η), the standard deviation of the noise on every coordinate of the sum over a lot.

        That is what one record moves at most, with what rounding adds to it (law 13).
        """
        return self.noise_multiplier * self.clipping.norm * (1 + ROUNDING) if self.noise_multiplier else 0.0

    def aggregation_stddev(self, number: int, sensitivity: float) -> float:
        """The standard deviation of the noise on a release before the first step that one unit moves by so much."""
        return self.noise_multiplier * self.schedule.aggregations[number] * sensitivity

    @property
    def noise(self) -> Independent | Banded:
        """How the noise of one step depends on that of others."""
        bands = self.schedule.bands
        return Independent() if bands == 1 else Banded(bands, self.schedule.steps)

    @property
    def event(self) -> Event:
        """The whole run, as an accountant sees it."""
        return self.schedule.event(self.noise_multiplier)

    def epsilon(self, steps: int) -> float:
        """The ε of the first `steps` steps, and of what was released before them."""
        how = (self.delta, self.adjacency, self.accountant)
        return accountant.epsilon_after(steps, self.schedule, self.noise_multiplier, *how)

    def epsilon_at_most(self, steps: int) -> float:
        """The ε of the first `steps` steps, or of slightly more: to be shown while a run goes on, at little cost."""
        return round_up(self.epsilon(self._milestone(steps)), 4)

    def event_at_most(self, steps: int) -> Event | None:
        """The first `steps` steps, or slightly more, as an accountant sees them; None where nothing was released."""
        if steps := self._milestone(steps):
            return replace(self.schedule, steps=steps).event(self.noise_multiplier)
        return self.schedule.before(self.noise_multiplier) if self.schedule.aggregations else None

    def _milestone(self, steps: int) -> int:
        stride = -(-self.schedule.steps // MILESTONES)
        return min(self.schedule.steps, -(-steps // stride) * stride)

    def guarantee(self, source: NoiseSource, *exposures: Exposure) -> Guarantee:
        """What the whole run promises. A run that ends early promises no less, and is not said to promise more.

        When to end is decided in the light of what was released; the ε of the steps that were made holds only for a
        number of steps that was fixed before.
        """
        return replace(self._guarantee, noise_source=source).with_exposures(*exposures)

    @cached_property
    def _guarantee(self) -> Guarantee:
        found = accountant.guarantee(
            self.schedule, self.noise_multiplier, self.delta, self.adjacency, self.accountant, self.unit, self.target
        )
        gaussian = found.mechanism
        if self.noise_multiplier:
            gaussian = Term.of(gaussian.name, **dict(gaussian.parameters), rounding=ROUNDING)
        return replace(found, mechanism=self.contribution.term(gaussian), owner=self.owner)

    def to_json(self) -> dict[str, Any]:
        """All of its fields, for a checkpoint to be compared with."""
        entry = asdict(self)
        entry["schedule"]["aggregations"] = list(self.schedule.aggregations)
        if not self.clips:
            entry["clipping"]["norm"] = "inf"
        if self.target == math.inf:
            entry["target"] = "inf"
        return entry
