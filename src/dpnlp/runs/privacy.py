"""privacy.json: what a run promises, and all that follows it from. Nothing in it is believed without being computed.

A promise is made of origins: the run itself, and each earlier release of private data that what it started from was
made by. An origin says what was done to the data, as an accountant sees it, and what it promises by itself. The promise
of the whole is composed of them, when it is written and again whenever it is read.
"""

import math
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from dpnlp import events
from dpnlp.accounting import accountant
from dpnlp.accounting.accountant import DIGITS, Accountant
from dpnlp.accounting.releases import Contents, Release
from dpnlp.checks import BadInput
from dpnlp.events import Event
from dpnlp.guarantee import Guarantee, NoiseSource, Term, Trust, round_up

FORMAT = 2
"""Version of privacy.json."""

_SLACK = 1e-6
"""By how much, relative to it, floating point may lift an ε that is computed again."""
_ID = re.compile(r"[0-9a-f]{16}")


def new_id() -> str:
    """A name for a run that no other has."""
    return secrets.token_hex(8)


@dataclass(frozen=True)
class Origin:
    """A release of private data: a run, or another one such as a vocabulary, and what it promises by itself."""

    run: str  # its id, by which it counts once however many ways lead to it
    what: str
    event: Event
    promised: Guarantee

    def __post_init__(self) -> None:
        if not _ID.fullmatch(str(self.run)):
            raise BadInput(f"run = {self.run!r}: it must be an id of 16 hexadecimal digits.")

    def check(self) -> None:
        """Refuses a promise that does not follow from the event."""
        promised = self.promised
        if not promised.is_private:
            return
        name = promised.accountant.name
        how = Accountant(name) if name in [*Accountant] else Accountant.PLD
        try:
            cost = accountant.epsilon(self.event, promised.delta, promised.adjacency, how)
        except BadInput as error:
            raise BadInput(f"{self.what} promises ε = {promised.epsilon:g}, and {error}") from None
        if cost > promised.epsilon * (1 + _SLACK):
            raise BadInput(
                f"{self.what} promises ε = {promised.epsilon:g} at δ = {promised.delta:g}, but what it did costs "
                f"{round_up(cost, DIGITS):g}."
            )

    def release(self) -> Release:
        """The origin as a ledger adds it up."""
        own = self.promised
        return Release(self.run, "", self.what, self.event, own.unit, own.adjacency, "", own.owner)

    def tells(self, other: "Origin") -> bool:
        """Whether this is the same release, of which no less is named than there."""
        one, two = self.promised, other.promised
        free = ("not_covered", "noise_source", "canaries", "software")
        alike = replace(two, **{name: getattr(one, name) for name in free}) == one
        no_less = {*two.not_covered} <= {*one.not_covered} and two.canaries <= one.canaries
        return alike and no_less and self.event == other.event and _weakest([one, two]) is one.noise_source

    def to_json(self) -> dict[str, Any]:
        """The origin as privacy.json has it."""
        return {
            "run": self.run,
            "what": self.what,
            "event": events.to_json(self.event),
            "guarantee": self.promised.to_json(),
        }

    @classmethod
    def from_json(cls, entry: Any) -> "Origin":
        """What `to_json` wrote, if its promise follows from its event."""
        if not isinstance(entry, Mapping) or {*entry} != {"run", "what", "event", "guarantee"}:
            raise BadInput("an origin must have run, what, event and guarantee.")
        origin = cls(
            str(entry["run"]),
            str(entry["what"]),
            events.from_json(entry["event"]),
            Guarantee.from_json(entry["guarantee"]),
        )
        origin.check()
        return origin


def united(*groups: Iterable[Origin]) -> tuple[Origin, ...]:
    """All origins, each once. Two that share an id and differ cannot both be true."""
    found: dict[str, Origin] = {}
    for origin in (origin for group in groups for origin in group):
        known = found.setdefault(origin.run, origin)
        if known != origin:
            raise BadInput(f"run {origin.run} ({origin.what}): two things say differently what it did; restore both.")
    return tuple(found.values())


def composed(origins: Sequence[Origin]) -> Guarantee:
    """What is promised of something that all of these have gone into; the last one is the thing's own.

    Whoever is in the data of two of them is behind both; so both count, whether the data are the same or not.
    """
    *earlier, own = [origin.promised for origin in origins]
    if not earlier:
        return own
    delta = own.delta or max(one.delta for one in earlier) or 0.0
    everyone = [own, *earlier]
    spent = Contents(tuple(origin.release() for origin in origins)).spent(delta)
    whole = replace(
        own,
        epsilon=round_up(spent.epsilon, DIGITS),
        delta=delta,
        unit=spent.unit or own.unit,
        owner=spent.owner if spent.unit else own.owner,
        adjacency=spent.adjacency,
        trust=Trust.CENTRAL if any(one.trust is Trust.CENTRAL for one in everyone) else Trust.LOCAL,
        mechanism=Term.of("composition", runs=len(origins)),
        sampler=own.sampler if len({one.sampler for one in everyone}) == 1 else Term("several"),
        accountant=Term("pld"),
        steps=sum(one.steps for one in everyone),
        noise_source=_weakest(everyone),
        canaries=sum(one.canaries for one in everyone),
    )
    return whole.with_exposures(*(exposure for one in everyone for exposure in one.not_covered))


def _weakest(promises: Iterable[Guarantee]) -> NoiseSource:
    seeded = any(one.noise_source is NoiseSource.FIXED_SEED for one in promises)
    return NoiseSource.FIXED_SEED if seeded else NoiseSource.OS_ENTROPY


@dataclass(frozen=True)
class Privacy:
    """What a run promises: its own origin comes last. `plan` says how it was planned, where that is known.

    `learned_from` are the ids of all runs whose training records its model has learned from, its own included.
    """

    origins: tuple[Origin, ...]
    plan: Mapping[str, Any] = field(default_factory=dict)
    learned_from: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.origins:
            raise BadInput("origins: there must be at least one, the run's own.")

    @property
    def own(self) -> Origin:
        """The run's own release."""
        return self.origins[-1]

    @property
    def earlier(self) -> tuple[Origin, ...]:
        """What it started from was made by these."""
        return self.origins[:-1]

    @property
    def run(self) -> str:
        """The id of the run."""
        return self.own.run

    @cached_property
    def guarantee(self) -> Guarantee:
        """What is promised, all origins together."""
        return composed(self.origins)

    def spent(self, event: Event | None) -> float:
        """The ε of all earlier origins and of this part of the run's own release, compared as the whole is."""
        own = () if event is None else (replace(self.own, event=event),)
        releases, whole = tuple(origin.release() for origin in (*self.earlier, *own)), self.guarantee
        if not whole.is_private:
            return math.inf
        found = Contents(releases).spent(whole.delta, whole.unit, whole.adjacency, whole.owner)
        return round_up(min(found.epsilon, whole.epsilon), DIGITS)

    def tells(self, entry: Mapping[str, Any]) -> bool:
        """Whether it says all that an entry of provenance.json, or of what is remembered, says of the same thing."""
        others = united(map(Origin.from_json, entry["origins"]))
        own = {origin.run: origin for origin in self.origins}
        all_there = all(one.run in own and own[one.run].tells(one) for one in others)
        return all_there and {*learned_from(entry, others)} <= {*self.learned_from}

    def to_json(self) -> dict[str, Any]:
        """All of privacy.json. Guarantee, signature and statement are for people; they follow from the origins."""
        promised = self.guarantee
        return {
            "version": FORMAT,
            "run": self.run,
            "guarantee": promised.to_json(),
            "signature": promised.signature(),
            "statement": promised.statement(),
            "plan": dict(self.plan),
            "origins": [origin.to_json() for origin in self.origins],
            "learned_from": list(self.learned_from),
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "Privacy":
        """What `to_json` wrote, computed again; whatever does not follow from its events is refused."""
        if entry.get("version") != FORMAT:
            raise BadInput(f"version = {entry.get('version')}: this dpnlp reads version {FORMAT}.")
        origins, plan = entry.get("origins"), entry.get("plan")
        if not isinstance(origins, list) or not isinstance(plan, Mapping):
            raise BadInput("it must have a list of origins and a plan.")
        made = united(map(Origin.from_json, origins))
        privacy = cls(made, plan, learned_from(entry, made))
        said, computed = Guarantee.from_json(entry.get("guarantee", {})), privacy.guarantee
        if not _follows(said, computed):
            raise BadInput(f"it says {said.signature()}, and what follows from its events is {computed.signature()}.")
        words = {"run": privacy.run, "signature": said.signature(), "statement": said.statement()}
        for name, value in words.items():
            if entry.get(name) != value:
                raise BadInput(f"its {name} is not that of its guarantee.")
        return privacy


def learned_from(entry: Mapping[str, Any], origins: Iterable[Origin]) -> tuple[str, ...]:
    """The ids of the runs that a thing learned from: all behind it, where an earlier dpnlp did not tell which."""
    ids = entry.get("learned_from", [origin.run for origin in origins])
    if not isinstance(ids, list) or not all(isinstance(one, str) and _ID.fullmatch(one) for one in ids):
        raise BadInput("learned_from: it must be a list of ids of 16 hexadecimal digits.")
    return tuple(ids)


def _follows(said: Guarantee, computed: Guarantee) -> bool:
    """Whether both are the same, but for what floating point makes of ε."""
    alike = math.isclose(said.epsilon, computed.epsilon, rel_tol=10.0 ** (1 - DIGITS) + _SLACK)
    return alike and replace(said, epsilon=computed.epsilon, software=computed.software) == computed
