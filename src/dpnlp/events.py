"""What was done to the data, as an accountant sees it: the vocabulary of privacy.json and of the ledger.

An event is a release or a combination of releases. Noise is always given relative to C, the bound on what one
record can contribute to the answer (the clip norm of DP-SGD): `noise_multiplier` is the noise's scale over C. Which
pairs of data sets are compared is no part of an event; an accountant is told by its argument `adjacency`. Under
add-remove and zero-out two neighbours are at most C apart, under replace 2C. A mechanism that knows only its
sensitivity Δ under replace is therefore an event with C = Δ/2.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from dpnlp import checks
from dpnlp.checks import BadInput


def _keep(event: object, **values: float) -> None:
    """Stores the checked values, so that a NumPy number becomes a plain one, which JSON can write."""
    for name, value in values.items():
        object.__setattr__(event, name, value)


@dataclass(frozen=True)
class Gaussian:
    """Normal noise of standard deviation noise_multiplier · C on every coordinate; C bounds the ℓ2 norm."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        _keep(self, noise_multiplier=checks.positive("noise_multiplier", self.noise_multiplier))


@dataclass(frozen=True)
class Laplace:
    """Laplace noise of scale noise_multiplier · C on every coordinate; C bounds the ℓ1 norm."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        _keep(self, noise_multiplier=checks.positive("noise_multiplier", self.noise_multiplier))


@dataclass(frozen=True)
class RandomizedResponse:
    """One of `categories` answers: the true one is e^ε times as likely as any other. Only under replace."""

    epsilon: float
    categories: int = 2

    def __post_init__(self) -> None:
        _keep(self, epsilon=checks.positive("epsilon", self.epsilon))
        _keep(self, categories=checks.count("categories", self.categories, least=2))


@dataclass(frozen=True)
class ApproximateDP:
    """Any release of which no more is known than that it is (ε, δ)-DP, for the neighbours it was made for."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        _keep(self, epsilon=checks.non_negative("epsilon", self.epsilon))
        _keep(self, delta=checks.probability("delta", self.delta) if self.delta != 0 else 0.0)


@dataclass(frozen=True)
class NonPrivate:
    """A release without any guarantee: every accountant answers ε = ∞."""


@dataclass(frozen=True)
class PoissonSampled:
    """The release is made on a lot that each record enters independently with probability q."""

    q: float
    event: Gaussian | Laplace | ApproximateDP

    def __post_init__(self) -> None:
        _keep(self, q=checks.share("q", self.q))


@dataclass(frozen=True)
class SharedPoissonSampled:
    """Poisson sampling of records where one unit has a part in up to `sharing` of them, and may change them all.

    So has a node that its neighbours' records contain too. Each record is still drawn independently with probability q
    and contributes at most C. Only under add-remove, where one of the records is the unit's own.
    """

    q: float
    sharing: int
    event: Gaussian

    def __post_init__(self) -> None:
        _keep(self, q=checks.share("q", self.q))
        _keep(self, sharing=checks.count("sharing", self.sharing))


@dataclass(frozen=True)
class TruncatedPoissonSampled:
    """Poisson sampling, with a lot above `largest_lot` cut to a random subset of that size."""

    records: int
    q: float
    largest_lot: int
    event: Gaussian

    def __post_init__(self) -> None:
        _keep(self, records=checks.count("records", self.records))
        _keep(self, q=checks.share("q", self.q))
        _keep(self, largest_lot=checks.count("largest_lot", self.largest_lot))


@dataclass(frozen=True)
class FixedSizeSampled:
    """The release is made on a uniformly random subset of `lot_size` of the `records`, drawn afresh each time."""

    records: int
    lot_size: int
    event: Gaussian

    def __post_init__(self) -> None:
        _keep(self, records=checks.count("records", self.records))
        _keep(self, lot_size=checks.count("lot_size", self.lot_size))
        if self.lot_size > self.records:
            raise BadInput(f"lot_size = {self.lot_size}: it must not exceed the {self.records} records.")


@dataclass(frozen=True)
class Repeated:
    """The same event `count` times, each possibly chosen in the light of what came before."""

    event: "Event"
    count: int

    def __post_init__(self) -> None:
        _keep(self, count=checks.count("count", self.count))


@dataclass(frozen=True)
class Composed:
    """Several events on the same data, each possibly chosen in the light of what came before."""

    events: tuple["Event", ...]


Release = Gaussian | Laplace | RandomizedResponse | ApproximateDP | NonPrivate
Sampled = PoissonSampled | SharedPoissonSampled | TruncatedPoissonSampled | FixedSizeSampled
Atom = Release | Sampled
Event = Atom | Repeated | Composed

_NAMES: dict[str, type] = {
    "gaussian": Gaussian,
    "laplace": Laplace,
    "randomized-response": RandomizedResponse,
    "approximate-dp": ApproximateDP,
    "non-private": NonPrivate,
    "poisson-sampled": PoissonSampled,
    "shared-poisson-sampled": SharedPoissonSampled,
    "truncated-poisson-sampled": TruncatedPoissonSampled,
    "fixed-size-sampled": FixedSizeSampled,
    "repeated": Repeated,
    "composed": Composed,
}
_NAME_OF = {kind: name for name, kind in _NAMES.items()}


def atoms(event: Event) -> Counter[Atom]:
    """The releases that an event consists of, and how often each is made."""
    match event:
        case Repeated(inner, times):
            return Counter({atom: n * times for atom, n in atoms(inner).items()})
        case Composed(parts):
            total: Counter[Atom] = Counter()
            for part in parts:
                total.update(atoms(part))
            return total
        case _:
            return Counter({event: 1})


def to_json(event: Event) -> dict[str, Any]:
    """A JSON object with the event's name under "event" beside its own fields."""
    entry: dict[str, Any] = {"event": _NAME_OF[type(event)]}
    for field in fields(event):
        value = getattr(event, field.name)
        if isinstance(value, tuple):
            entry["events"] = [to_json(part) for part in value]
        elif type(value) in _NAME_OF:
            entry["of"] = to_json(value)
        else:
            entry[field.name] = value
    return entry


def from_json(entry: Mapping[str, Any]) -> Event:
    """The event that `to_json` wrote; anything else is refused by name."""
    name = entry.get("event") if isinstance(entry, Mapping) else None
    if not isinstance(name, str) or name not in _NAMES:
        raise BadInput(f'event = {entry!r:.200}: it must be an object whose "event" is one of {", ".join(_NAMES)}.')
    kind = _NAMES[name]
    types = {field.name: field.type for field in fields(kind)}
    known = ", ".join("of" if key == "event" else key for key in types) or "no fields"
    misfit = BadInput(f"event = {dict(entry)!r:.200}: a {name} event has {known}.")
    arguments = {key: value for key, value in entry.items() if key != "event"}
    if "of" in arguments:
        arguments["event"] = inner = from_json(arguments.pop("of"))
        allowed = types.get("event", "Event")
        if not isinstance(allowed, str) and not isinstance(inner, allowed):
            raise BadInput(
                f"event = {dict(entry)!r:.200}: no bound is known for a {name} event of {_NAME_OF[type(inner)]}."
            )
    if "events" in arguments:
        if not isinstance(arguments["events"], list):
            raise misfit
        arguments["events"] = tuple(from_json(part) for part in arguments["events"])
    try:
        event: Event = kind(**arguments)
    except TypeError:
        raise misfit from None
    return event
