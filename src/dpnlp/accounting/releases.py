"""The releases that were made from a data set, the budget for them, and what they cost together.

Composed, not added up: by privacy loss distributions, for one unit and one pair of neighbours, to which every release
has to be brought first. Where one of them promises nothing for that unit or those neighbours, neither does the whole.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpnlp import checks
from dpnlp.accounting import composition, pld
from dpnlp.accounting.subsampling import amplified
from dpnlp.checks import BadInput
from dpnlp.events import ApproximateDP, Composed, Event, NonPrivate, PoissonSampled, Repeated
from dpnlp.guarantee import Adjacency, Unit


@dataclass(frozen=True)
class Release:
    """One run's use of the data. `what` is shown to whoever reads the ledger, so it must not quote the data."""

    id: str
    time: str
    what: str
    event: Event
    unit: Unit
    adjacency: Adjacency
    fingerprint: str

    def __str__(self) -> str:
        return f"release {self.id} ({self.what})"


@dataclass(frozen=True)
class Budget:
    """The most that may be spent from now on, all earlier releases included. The last one in the ledger counts."""

    epsilon: float
    delta: float
    unit: Unit
    adjacency: Adjacency

    def __post_init__(self) -> None:
        checks.budget("epsilon", self.epsilon)
        checks.probability("delta", self.delta)


@dataclass(frozen=True)
class Spent:
    """The ε of all releases together. Where it is infinite, `reasons` has a sentence for each release to blame."""

    epsilon: float
    delta: float
    unit: Unit | None
    adjacency: Adjacency
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Contents:
    """What stands in a ledger. A warning is a sentence about an interrupted line or a missing anchor."""

    releases: tuple[Release, ...] = ()
    budget: Budget | None = None
    warnings: tuple[str, ...] = ()

    @property
    def unit(self) -> Unit | None:
        """The largest unit that all releases protect; None where they have none in common, or there are none."""
        common = [unit for unit in Unit if all(release.unit.protects(unit) for release in self.releases)]
        return next((unit for unit in common if all(unit.protects(other) for other in common)), None)

    @property
    def adjacency(self) -> Adjacency:
        """The one that all releases were made for, else replace, under which all of them can be compared.

        So can releases for different units: a part of a record that comes or goes leaves another record behind.
        """
        made_for = {release.adjacency for release in self.releases} or {Adjacency.ADD_REMOVE}
        units = {release.unit for release in self.releases}
        return made_for.pop() if len(made_for) == 1 and len(units) <= 1 else Adjacency.REPLACE

    def spent(self, delta: float | None = None, unit: Unit | None = None, adjacency: Adjacency | None = None) -> Spent:
        """All releases composed, whichever state of the data they saw: the people in it may be the same.

        Without arguments: at the budget's δ, for the largest unit and the adjacency that the releases allow.
        """
        delta = self.budget.delta if delta is None and self.budget else delta
        if delta is None:
            raise BadInput("delta: the ledger has no budget that would give it; give delta, or set a budget.")
        checks.probability("delta", delta)
        unit, adjacency = unit or self.unit, adjacency or self.adjacency
        if not self.releases:
            return Spent(0.0, delta, unit, adjacency)
        if unit is None:
            units = ", ".join(sorted({release.unit for release in self.releases}))
            return Spent(math.inf, delta, None, adjacency, (f"The releases protect no unit in common, but {units}.",))
        reasons = [reason for release in self.releases if (reason := _mismatch(release, unit, adjacency))]
        if reasons:
            return Spent(math.inf, delta, unit, adjacency, tuple(reasons))
        # An example less changes the record of a user, and does not remove it. At that distance, of 2C, no release
        # costs less than at C, so the ε holds for those made for the smaller unit as well.
        parts = any(release.unit is not unit for release in self.releases)
        compared = Adjacency.REPLACE if parts else adjacency
        epsilon, why = _bound(self.releases, delta, compared)
        if math.isfinite(epsilon):
            return Spent(epsilon, delta, unit, adjacency)
        alone = [(release, *_bound([release], delta, compared)) for release in self.releases]
        reasons = [f"{release}: {its_why}" for release, its, its_why in alone if not math.isfinite(its)]
        return Spent(math.inf, delta, unit, adjacency, tuple(reasons or [f"All releases together: {why}"]))


def _mismatch(release: Release, unit: Unit, adjacency: Adjacency) -> str:
    """Why the release says nothing about this unit and adjacency; empty where it does."""
    if not release.unit.protects(unit):
        return f"{release} protects one {release.unit} and promises nothing for one {unit}."
    if adjacency not in (release.adjacency, Adjacency.REPLACE):
        return f"{release} was made for {release.adjacency} and has no bound under {adjacency}."
    return ""


def _bound(releases: Sequence[Release], delta: float, adjacency: Adjacency) -> tuple[float, str]:
    """The ε of these releases together, and what to say should it be infinite."""
    parts = (release.event if release.adjacency is adjacency else _under_replace(release.event) for release in releases)
    try:
        return pld.epsilon(Composed(tuple(parts)), delta, adjacency), f"no finite ε holds at δ = {delta}."
    except BadInput as problem:
        return math.inf, str(problem)


def _under_replace(event: Event) -> Event:
    """The event, made for neighbours that differ by one record's presence, for neighbours that exchange one.

    That is two steps, one record out and one in. Where the noise is known the accountant takes the distance twice; a
    bare (ε, δ) becomes that of a group of two.
    """
    match event:
        case Repeated(inner, count):
            return Repeated(_under_replace(inner), count)
        case Composed(parts):
            return Composed(tuple(_under_replace(part) for part in parts))
        case PoissonSampled(q, ApproximateDP(epsilon, delta)):
            return _under_replace(ApproximateDP(*amplified(epsilon, delta, q)))
        case ApproximateDP(epsilon, delta):
            doubled, failure = composition.group(epsilon, delta, size=2)
            return ApproximateDP(doubled, failure) if failure < 1 else NonPrivate()
        case _:
            return event
