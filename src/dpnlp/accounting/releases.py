"""The releases that were made from a data set, the budget for them, and what they cost together.

Composed, not added up: by privacy loss distributions, for one unit and one pair of neighbours, to which every release
has to be brought first. Where one of them promises nothing for that unit or those neighbours, neither does the whole.
"""

import math
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache

from dpnlp import checks
from dpnlp.accounting import composition, pld
from dpnlp.accounting.merging import EXACT, merged
from dpnlp.accounting.subsampling import amplified
from dpnlp.checks import BadInput
from dpnlp.events import ApproximateDP, Atom, Composed, Event, NonPrivate, PoissonSampled, Repeated, atoms
from dpnlp.guarantee import Adjacency, Unit


@dataclass(frozen=True)
class Release:
    """One run's use of the data. `what` is shown to whoever reads the ledger, so it must not quote the data.

    `owner` is the column that says whose a record is, where that is what the unit counts. A release `in_clear` wrote
    some of the records out as they are: for these nothing is promised any more, and nothing is said of all others.
    """

    id: str
    time: str
    what: str
    event: Event
    unit: Unit
    adjacency: Adjacency
    fingerprint: str
    owner: str = ""
    in_clear: bool = False

    @classmethod
    def now(
        cls, run: str | None, what: str, event: Event, unit: Unit, adjacency: Adjacency, owner: str = ""
    ) -> "Release":
        """A release that is about to be made, of data whose fingerprint is not known yet."""
        time = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(run or secrets.token_hex(8), time, what, event, unit, adjacency, "", owner)

    @property
    def whose(self) -> str:
        """The unit, and what it counts."""
        return counted(self.unit, self.owner)

    def protects(self, unit: Unit, owner: str) -> bool:
        """Whether the release promises anything for such a unit: what is counted by one column is not by another."""
        same = self.owner == owner or not unit.is_counted_by_owner
        return self.unit.protects(unit) and same

    def __str__(self) -> str:
        return f"release {self.id} ({self.what})"


@dataclass(frozen=True)
class Budget:
    """The most that may be spent from now on, all earlier releases included. The last one in the ledger counts."""

    epsilon: float
    delta: float
    unit: Unit
    adjacency: Adjacency
    owner: str = ""

    @property
    def whose(self) -> str:
        """The unit, and what it counts."""
        return counted(self.unit, self.owner)

    def __post_init__(self) -> None:
        checks.budget("epsilon", self.epsilon)
        checks.probability("delta", self.delta)


@dataclass(frozen=True)
class Spent:
    """The ε of all releases together. Where it is infinite, `reasons` has a sentence for each release to blame.

    It is that of every record but those that were written out in clear, by as many releases as are `in_clear`.
    """

    epsilon: float
    delta: float
    unit: Unit | None
    adjacency: Adjacency
    reasons: tuple[str, ...] = ()
    owner: str = ""
    in_clear: int = 0

    @property
    def whose(self) -> str | None:
        """The unit, and what it counts."""
        return None if self.unit is None else counted(self.unit, self.owner)


@dataclass(frozen=True)
class Contents:
    """What stands in a ledger. A warning is a sentence about an interrupted line or a missing anchor."""

    releases: tuple[Release, ...] = ()
    budget: Budget | None = None
    warnings: tuple[str, ...] = ()

    @cached_property
    def counted(self) -> tuple[Release, ...]:
        """The releases that are composed: all but those that wrote some records out in clear."""
        return tuple(release for release in self.releases if not release.in_clear)

    @property
    def is_private(self) -> bool:
        """Whether anybody was ever promised anything: a budget is set, or a release had noise."""
        return self.budget is not None or any(not _without_privacy(release) for release in self.releases)

    @property
    def unit(self) -> Unit | None:
        """The largest unit that all releases protect; None where they have none in common, or there are none."""
        return self._largest[0]

    @property
    def owner(self) -> str:
        """The column that says what the unit counts."""
        return self._largest[1]

    @cached_property
    def _promising(self) -> tuple[Release, ...]:
        """The releases that promise anything or, where none does, all."""
        return tuple(release for release in self.counted if not _without_privacy(release)) or self.counted

    @cached_property
    def _largest(self) -> tuple[Unit | None, str]:
        promising = {(release.unit, release.owner): release for release in self._promising}.values()
        owners = sorted({"", *(release.owner for release in promising)})
        kinds = [(unit, owner) for unit in Unit for owner in (owners if unit.is_counted_by_owner else [""])]
        common = [kind for kind in kinds if all(release.protects(*kind) for release in promising)]
        return common[-1] if promising and common else (None, "")  # A unit is listed after all that are parts of it.

    @property
    def adjacency(self) -> Adjacency:
        """The one that all releases were made for, else replace, under which all of them can be compared.

        So can releases for different units: a part of a record that comes or goes leaves another record behind.
        """
        made_for = {release.adjacency for release in self._promising} or {Adjacency.ADD_REMOVE}
        units = {(release.unit, release.owner) for release in self._promising}
        return made_for.pop() if len(made_for) == 1 and len(units) <= 1 else Adjacency.REPLACE

    def spent(
        self,
        delta: float | None = None,
        unit: Unit | None = None,
        adjacency: Adjacency | None = None,
        owner: str | None = None,
    ) -> Spent:
        """All releases composed, whichever state of the data they saw: the people in it may be the same.

        Without arguments: at the budget's δ, for the largest unit and the adjacency that the releases allow.
        """
        delta = self.budget.delta if delta is None and self.budget else delta
        if delta is None:
            raise BadInput("delta: the ledger has no budget that would give it; give delta, or set a budget.")
        checks.probability("delta", delta)
        releases, clear = self.counted, len(self.releases) - len(self.counted)
        whose = self.owner if owner is None and unit in (None, self.unit) else owner or ""
        unit, adjacency = unit or self.unit, adjacency or self.adjacency
        found = Spent(0.0, delta, unit, adjacency, (), whose, clear)
        if not releases:
            return found
        if nothing := [f"{release}: it was made without privacy." for release in releases if _without_privacy(release)]:
            return replace(found, epsilon=math.inf, reasons=tuple(nothing))
        if unit is None:
            units = ", ".join(sorted({release.whose for release in releases}))
            return replace(found, epsilon=math.inf, reasons=(f"The releases protect no unit in common, but {units}.",))
        reasons = [reason for release in releases if (reason := _mismatch(release, unit, adjacency, whose))]
        if reasons:
            return replace(found, epsilon=math.inf, reasons=tuple(reasons))
        # An example less changes the record of a user, and does not remove it. At that distance, of 2C, no release
        # costs less than at C, so the ε holds for those made for the smaller unit as well.
        parts = any(release.unit is not unit for release in releases)
        compared = Adjacency.REPLACE if parts else adjacency
        epsilon, why = _bound(releases, delta, compared)
        if math.isfinite(epsilon):
            return replace(found, epsilon=epsilon)
        alone = [(release, *_bound([release], delta, compared)) for release in releases]
        reasons = [f"{release}: {its_why}" for release, its, its_why in alone if not math.isfinite(its)]
        return replace(found, epsilon=math.inf, reasons=tuple(reasons or [f"All releases together: {why}"]))


def counted(unit: Unit, owner: str) -> str:
    """The unit, and the column that says what it counts, where there is one."""
    return f"{unit} by {owner}" if owner else str(unit)


def _without_privacy(release: Release) -> bool:
    return _is_non_private(release.event)


def _is_non_private(event: Event) -> bool:
    match event:
        case Repeated(inner, _):
            return _is_non_private(inner)
        case Composed(parts):
            return any(map(_is_non_private, parts))
        case _:
            return isinstance(event, NonPrivate)


def _mismatch(release: Release, unit: Unit, adjacency: Adjacency, owner: str) -> str:
    """Why the release says nothing about this unit and adjacency; empty where it does."""
    if not release.protects(unit, owner):
        return f"{release} protects one {release.whose} and promises nothing for one {counted(unit, owner)}."
    if adjacency not in (release.adjacency, Adjacency.REPLACE):
        return f"{release} was made for {release.adjacency} and has no bound under {adjacency}."
    return ""


def _bound(releases: Sequence[Release], delta: float, adjacency: Adjacency) -> tuple[float, str]:
    """The ε of these releases together, and what to say should it be infinite."""
    parts = (release.event if release.adjacency is adjacency else _under_replace(release.event) for release in releases)
    try:
        whole = Composed(tuple(parts))
        if len(counts := atoms(whole)) > EXACT:
            return _composed(frozenset(counts.items()), delta, adjacency), f"no finite ε holds at δ = {delta}."
        return pld.epsilon(whole, delta, adjacency), f"no finite ε holds at δ = {delta}."
    except BadInput as problem:
        return math.inf, str(problem)


@lru_cache(maxsize=64)
def _composed(counts: frozenset[tuple[Atom, int]], delta: float, adjacency: Adjacency) -> float:
    """The ε of releases of which each is made so often. It is asked for again before they are entered."""
    parts = sorted(merged(Counter(dict(counts))).items(), key=repr)
    return pld.epsilon(Composed(tuple(Repeated(atom, times) for atom, times in parts)), delta, adjacency)


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
