"""The planner: from what is known of a training run to what is not.

Of ε, the noise, the number of steps and the lot size, exactly one may be left open; it is computed from the others.
"""

import math
from dataclasses import dataclass, replace

from dpnlp import checks
from dpnlp.accounting import calibration
from dpnlp.accounting.accountant import Accountant, computable, guarantee
from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.checks import BadInput
from dpnlp.guarantee import Adjacency, Guarantee, Unit


@dataclass(frozen=True)
class Plan:
    """A run that is fully determined, and what it promises. `solved_for` names the quantity that was left open."""

    schedule: Schedule
    noise_multiplier: float
    guarantee: Guarantee
    solved_for: str


@dataclass(frozen=True)
class Question:
    """What is known of a run. `epochs` are of ⌈N/L⌉ steps each and may stand in for `steps`."""

    records: int
    delta: float
    lot_size: int | None = None
    steps: int | None = None
    epochs: float | None = None
    noise_multiplier: float | None = None
    epsilon: float | None = None
    sampling: Sampling = Sampling.POISSON
    largest_lot: int | None = None
    bands: int = 1
    sharing: int = 1
    aggregations: tuple[float, ...] = ()
    adjacency: Adjacency | None = None
    accountant: Accountant = Accountant.PLD
    unit: Unit = Unit.EXAMPLE

    def __post_init__(self) -> None:
        checks.count("records", self.records)
        checks.probability("delta", self.delta, f"a usual choice is {0.1 / self.records:.0e}, a tenth of one record")
        if self.lot_size is not None and checks.count("lot_size", self.lot_size) > self.records:
            raise BadInput(
                f"lot_size = {self.lot_size}: it must not exceed the {self.records} records; choose a smaller lot."
            )
        if self.steps is not None:
            checks.count("steps", self.steps)
        if self.epochs is not None:
            checks.positive("epochs", self.epochs)
        if self.noise_multiplier is not None:
            checks.non_negative("noise_multiplier", self.noise_multiplier)
        if self.epsilon is not None:
            checks.budget("epsilon", self.epsilon)
        if self.steps is not None and self.epochs is not None:
            raise BadInput(f"epochs = {self.epochs}: steps = {self.steps} is given too; give one of the two.")
        if self.noise_multiplier == 0 and self.epsilon is not None and math.isfinite(self.epsilon):
            raise BadInput(f"noise_multiplier = 0: no finite ε, such as {self.epsilon}, can hold without noise.")

    @property
    def neighbours(self) -> Adjacency:
        """The adjacency that was asked for, or the one that the sampler's bound is usually stated for."""
        return self.adjacency or self.sampling.adjacencies[0]

    def answer(self) -> Plan:
        """The plan. What is missing, or too much, is named."""
        with computable():
            return self._answered()

    def _answered(self) -> Plan:
        target, noise, lot = self.epsilon, self.noise_multiplier, self.lot_size
        timed = self.steps is not None or self.epochs is not None
        how = (self.delta, self.neighbours, self.accountant)
        if target is None and noise is not None and lot is not None and timed:
            return self._plan("epsilon", self._schedule(lot), noise)
        if noise is None and target is not None and lot is not None and timed:
            schedule = self._schedule(lot)
            return self._plan("noise_multiplier", schedule, calibration.noise_multiplier(target, schedule, *how))
        if not timed and target is not None and noise is not None and lot is not None:
            schedule = self._schedule(lot)
            most = calibration.steps(target, schedule, noise, *how)
            return self._plan("steps", replace(schedule, steps=most), noise)
        if lot is None and target is not None and noise is not None and timed:
            largest = calibration.lot_size(target, self._schedule, noise, *how)
            return self._plan("lot_size", self._schedule(largest), noise)
        given = {"epsilon": target, "noise_multiplier": noise, "steps": timed or None, "lot_size": lot}
        missing = [name for name, value in given.items() if value is None]
        if missing:
            raise BadInput(f"{' and '.join(missing)} are not given; give all but one of {', '.join(given)}.")
        raise BadInput(f"{', '.join(given)} are all given; leave out the one that is to be computed.")

    def _schedule(self, lot_size: int) -> Schedule:
        lots_per_epoch = -(-self.records // lot_size)
        steps = self.steps or math.ceil((self.epochs or 1) * lots_per_epoch)
        return Schedule(
            self.records,
            lot_size,
            steps,
            self.sampling,
            self.largest_lot,
            self.bands,
            self.sharing,
            self.aggregations,
        )

    def _plan(self, solved_for: str, schedule: Schedule, noise: float) -> Plan:
        target = None if solved_for == "epsilon" else self.epsilon
        promised = guarantee(schedule, noise, self.delta, self.neighbours, self.accountant, self.unit, target)
        return Plan(schedule, noise, promised, solved_for)
