"""What a privacy statement is: who is protected, against which comparison, by how much, and how that was obtained.

A `Guarantee` says the same thing in three ways: `signature()` for a table or a paper (one line, after the manner of
sacreBLEU, read back by `Guarantee.parse`), `statement()` for a reader who knows no mathematics, and `to_json()`.
"""

import difflib
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from decimal import ROUND_CEILING, Decimal
from enum import StrEnum
from importlib.metadata import version
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from dpnlp import checks
from dpnlp.checks import BadInput

FORMAT = 1
"""Version of the signature and of the JSON form."""

_E = TypeVar("_E", bound=StrEnum)


class Unit(StrEnum):
    """Whose presence is hidden (law 11)."""

    WORD = "word"
    TEXT = "text"
    EXAMPLE = "example"
    DOCUMENT = "document"
    USER = "user"
    NODE = "node"
    SUBGRAPH = "subgraph"
    GRAPH = "graph"

    @property
    def is_counted_by_owner(self) -> bool:
        """Whether a column says which records are one such unit's."""
        return self in (Unit.USER, Unit.DOCUMENT)

    def protects(self, other: "Unit") -> bool:
        """True where a guarantee for this unit is also one for the other, because the other is a part of it.

        A part that comes or goes leaves another record behind: it is this unit exchanged, not added or removed.
        """
        return self is other or any(
            other in chain[: chain.index(self)] for chain in _NESTED if self in chain and other in chain
        )


_NESTED = (
    (Unit.WORD, Unit.TEXT, Unit.USER),
    (Unit.WORD, Unit.EXAMPLE, Unit.DOCUMENT, Unit.USER),
    (Unit.NODE, Unit.SUBGRAPH, Unit.GRAPH),
)


class Adjacency(StrEnum):
    """Which two data sets count as neighbours (law 11)."""

    ADD_REMOVE = "add-remove"
    REPLACE = "replace"
    ZERO_OUT = "zero-out"

    @property
    def distance(self) -> int:
        """How many contribution bounds C two neighbours are apart: a replaced record takes one away and adds one."""
        return 2 if self is Adjacency.REPLACE else 1

    @property
    def comparison(self) -> str:
        """The clause that completes "what would be released if ..."; {} is the unit."""
        return {
            Adjacency.ADD_REMOVE: "any one {} were not in the data, or one more were in it",
            Adjacency.REPLACE: "any one {} were exchanged for any other",
            Adjacency.ZERO_OUT: "any one {} were blanked out",
        }[self]


class Trust(StrEnum):
    """Who sees the data in clear: a trusted curator (central), or nobody but its owner (local)."""

    CENTRAL = "central"
    LOCAL = "local"


class NoiseSource(StrEnum):
    """Where the noise came from (law 6)."""

    OS_ENTROPY = "os-entropy"
    FIXED_SEED = "fixed-seed"


class Exposure(StrEnum):
    """Something that left the private data and that the guarantee does not cover (laws 9 and 10)."""

    CLASSES = "classes"
    COMPARISON = "comparison"
    DIAGNOSTICS = "diagnostics"
    HELD_OUT = "held-out"
    HUBS = "hubs"
    LABELS = "labels"
    LENGTH = "length"
    MADE_OF = "made-of"
    MORE_TEXTS = "more-texts"
    NAMES = "names"
    ORIGIN = "origin"
    PRETRAINING = "pretraining"
    TUNING = "tuning"
    VALIDATION = "validation"
    VOCABULARY = "vocabulary"

    @property
    def sentence(self) -> str:
        """What the reader of a statement is told."""
        return {
            Exposure.CLASSES: "Which classes there are was taken from the private data.",
            Exposure.COMPARISON: "How alike the rewritten texts and the original ones are was written out.",
            Exposure.DIAGNOSTICS: "Losses, gradient norms, lot sizes or texts of the training data were written out.",
            Exposure.HELD_OUT: "Records kept apart for scoring are not protected: they, or exact counts and scores of "
            "them, are written out, and whoever has the file sees which of its records are training records.",
            Exposure.HUBS: "A node with more edges than the mechanism's bound on them is promised nothing.",
            Exposure.LABELS: "The labels are released in clear beside the rewritten texts.",
            Exposure.LENGTH: "How many words each text has is seen; for a text as a whole nothing is promised.",
            Exposure.MADE_OF: "Texts of the files that the rewriter is said to be made of were written out in clear.",
            Exposure.MORE_TEXTS: "That nobody has more texts than are counted here was assumed; nobody looked.",
            Exposure.NAMES: "A node is put into a subgraph by its name, which is taken as known: it is exchanged for "
            "one of the same name. Exchanged for one of another name it counts as two nodes.",
            Exposure.ORIGIN: "Nothing is known of the data behind a model, tokenizer or encoder that went into this.",
            Exposure.PRETRAINING: "The model was pre-trained on the private data before the noise was added.",
            Exposure.TUNING: "Several settings were tried on the private data; this ε does not count the other trials.",
            Exposure.VALIDATION: "Private validation data decided when to stop or which model to keep.",
            Exposure.VOCABULARY: "The vocabulary was built from the private texts.",
        }[self]


@dataclass(frozen=True)
class Term:
    """A named thing with its public parameters, written `poisson(q=0.01)`."""

    name: str
    parameters: tuple[tuple[str, int | float | str], ...] = ()

    _WORD = re.compile(r"-?[a-z0-9][a-z0-9_.+-]*")
    _FORM = re.compile(r"(?P<name>[a-z][a-z0-9-]*)(?:\((?P<inside>[^()]*)\))?")

    def __post_init__(self) -> None:
        match = self._FORM.fullmatch(str(self))
        words = [key for key, _ in self.parameters] + [str(value) for _, value in self.parameters]
        well_formed = match and match["name"] == self.name and all(map(self._WORD.fullmatch, words))
        if not well_formed or any(_number_or_word(str(value)) != value for _, value in self.parameters):
            raise BadInput(f"term = {self}: it must look like poisson(q=0.01), in letters, digits and hyphens.")

    @classmethod
    def of(cls, term_name: str, **parameters: int | float | str) -> "Term":
        """`Term.of("poisson", q=0.01)` is poisson(q=0.01)."""
        return cls(term_name, tuple(parameters.items()))

    @classmethod
    def parse(cls, text: str) -> "Term":
        """Reads what `str` wrote."""
        match = cls._FORM.fullmatch(str(text))
        if not match:
            raise BadInput(f"term = {text!r}: it must look like poisson(q=0.01).")
        pairs = [pair.partition("=") for pair in match["inside"].split(",")] if match["inside"] else []
        return cls(match["name"], tuple((key, _number_or_word(value)) for key, _, value in pairs))

    def __str__(self) -> str:
        inside = ",".join(f"{key}={value}" for key, value in self.parameters)
        return f"{self.name}({inside})" if inside else self.name


@dataclass(frozen=True)
class Guarantee:
    """(ε, δ)-differential privacy of something that was released: Pr[M(D) ∈ S] ≤ e^ε Pr[M(D') ∈ S] + δ."""

    epsilon: float
    delta: float
    unit: Unit
    adjacency: Adjacency
    trust: Trust
    mechanism: Term
    sampler: Term = Term("none")
    accountant: Term = Term("closed-form")
    steps: int = 1
    noise_source: NoiseSource = NoiseSource.OS_ENTROPY
    not_covered: tuple[Exposure, ...] = ()
    software: str = field(default_factory=lambda: f"dpnlp-{version('dpnlp')}")
    owner: str = ""  # the column that says what the unit counts, where one does
    canaries: int = 0  # made-up records that were drawn to test the promise on; a fair coin each put about half in

    def __post_init__(self) -> None:
        if not self.epsilon >= 0:
            raise BadInput(f"epsilon = {self.epsilon}: it must be a number of at least 0, or inf for no guarantee.")
        if not 0 <= self.delta < 1:
            raise BadInput(f"delta = {self.delta}: it must be 0 for pure differential privacy, or lie below 1.")
        if not re.fullmatch(r"[^\s|]+", self.software):
            raise BadInput(f"software = {self.software!r}: it must be one word, without spaces and without |.")
        plain = {"epsilon": float(self.epsilon), "delta": float(self.delta), "steps": checks.count("steps", self.steps)}
        plain["canaries"] = checks.count("canaries", self.canaries, least=0)
        for name, value in plain.items():  # A NumPy number becomes one that JSON can write.
            object.__setattr__(self, name, value)

    @property
    def is_private(self) -> bool:
        """False where ε is infinite, that is, where nothing is promised."""
        return math.isfinite(self.epsilon)

    @property
    def tells_number(self) -> bool:
        """Whether the number of records follows from what is written of the sampler, and neighbours differ in it."""
        return self.adjacency is Adjacency.ADD_REMOVE and self.sampler.name != "none"

    # What the numbers mean

    def attack_success(self) -> float:
        """The largest share of right guesses of an attacker who has to tell two neighbours apart at even odds.

        By the trade-off of (ε, δ)-DP (Kairouz, Oh and Viswanath 2015), TPR − FPR ≤ (e^ε − 1 + 2δ)/(e^ε + 1), and
        the success at even odds is half of one plus that: (e^ε + δ)/(e^ε + 1).
        """
        shrunk = math.exp(-self.epsilon)
        return (1 + self.delta * shrunk) / (1 + shrunk)

    def detection(self, false_alarms: float) -> float:
        """The largest true-positive rate at this false-positive rate: min(e^ε f + δ, 1 − e^−ε (1 − δ − f))."""
        checks.probability("false_alarms", false_alarms)
        if self.epsilon > 700:
            return 1.0
        first = math.exp(self.epsilon) * false_alarms + self.delta
        second = math.exp(-self.epsilon) * (self.delta + false_alarms) - math.expm1(-self.epsilon)
        return min(1.0, first, second)

    # One line

    def signature(self) -> str:
        """All of it in one line. `Guarantee.parse` gives back an equal guarantee."""
        entry = self.to_json()
        entry["not_covered"] = "+".join(self.not_covered) or "none"
        entry |= {"owner": quote(self.owner, safe="")} if self.owner else {}
        return "|".join(f"{short}:{entry[name]}" for short, name in _SHORT.items() if name in entry)

    @classmethod
    def parse(cls, signature: str) -> "Guarantee":
        """Reads a signature; what is missing, unknown or malformed is named."""
        parts = [part.partition(":") for part in signature.strip().split("|")]
        pairs: dict[str, Any] = {short: value for short, _, value in parts}
        _check_version(pairs.get("version", FORMAT))
        keys, needed = Counter(short for short, _, _ in parts), [key for key in _SHORT if key not in _OPTIONAL]
        if wrong := ", ".join(sorted(key for key in {*keys, *needed} if keys[key] != 1 or key not in _SHORT)):
            keys_once = f"it must have each of {', '.join(needed)} once"
            raise BadInput(f"signature = {signature!r}: {keys_once}; look at {wrong}.")
        entry = {_SHORT[short]: value for short, value in pairs.items()}
        entry["not_covered"] = [] if entry["not_covered"] == "none" else entry["not_covered"].split("+")
        entry |= {"owner": unquote(entry["owner"])} if "owner" in entry else {}
        return cls.from_json(entry)

    # JSON

    def to_json(self) -> dict[str, Any]:
        """A JSON object with a version number. An infinite ε is written as the string "inf"."""
        entry: dict[str, Any] = {"version": FORMAT}
        for item in fields(self):
            value = getattr(self, item.name)
            entry[item.name] = str(value) if isinstance(value, (StrEnum, Term)) else value
        entry["not_covered"] = [str(exposure) for exposure in self.not_covered]
        entry["epsilon"] = self.epsilon if self.is_private else "inf"
        for name in _OPTIONAL:
            if not entry[name]:
                del entry[name]
        return entry

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "Guarantee":
        """Reads what `to_json` wrote; another version or an unknown key is refused by name."""
        _check_version(entry.get("version") if isinstance(entry, Mapping) else None)
        names = [item.name for item in fields(cls)]
        for key in entry:
            if key not in ("version", *names):
                near = difflib.get_close_matches(key, names, n=1, cutoff=0)[0]
                raise BadInput(f"{key}: a guarantee has no such key; the nearest known one is {near}.")
        missing = [name for name in names if name not in entry and name not in _OPTIONAL]
        if missing:
            raise BadInput(f"{missing[0]}: the guarantee lacks this key.")
        if not isinstance(entry["not_covered"], list):
            raise BadInput(f"not_covered = {entry['not_covered']!r}: it must be a list.")
        return cls(
            epsilon=_number("epsilon", entry["epsilon"]),
            delta=_number("delta", entry["delta"]),
            unit=_member(Unit, "unit", entry["unit"]),
            adjacency=_member(Adjacency, "adjacency", entry["adjacency"]),
            trust=_member(Trust, "trust", entry["trust"]),
            mechanism=Term.parse(entry["mechanism"]),
            sampler=Term.parse(entry["sampler"]),
            accountant=Term.parse(entry["accountant"]),
            steps=checks.count("steps", _number("steps", entry["steps"])),
            noise_source=_member(NoiseSource, "noise_source", entry["noise_source"]),
            not_covered=tuple(_member(Exposure, "not_covered", word) for word in entry["not_covered"]),
            software=str(entry["software"]),
            owner=str(entry.get("owner", "")),
            canaries=checks.count("canaries", _number("canaries", entry.get("canaries", 0)), least=0),
        )

    # Plain words

    def statement(self) -> str:
        """Paragraphs for a reader who knows no mathematics. Every number is rounded to the cautious side."""
        if not self.is_private:
            return (
                f"No privacy is promised (ε = ∞). Whatever stood in the data, any single {self.unit} included, "
                "may be recovered from what is released."
            )
        return "\n\n".join((self._promise(), self._attacker(), self._how(), self._limits()))

    def _promise(self) -> str:
        owned = "user's data" if self.unit is Unit.USER else self.unit
        local = f"Each {owned} is randomized before it leaves its owner. " if self.trust is Trust.LOCAL else ""
        comparison = self.adjacency.comparison.format(self.unit)
        bound = (
            f"Compare what is released with what would be released if {comparison}. The probability of anything that "
            f"may be seen in the release, or done because of it, differs between the two by a factor of at most "
            f"{_factor(self.epsilon)} (this is e^ε, with ε = {_up(self.epsilon)})"
        )
        slip = f", and beyond that by at most {_up(self.delta, 2)} (this is δ)." if self.delta else "."
        return f"What is promised. {local}{bound}{slip}"

    def _attacker(self) -> str:
        success, seen = 100 * self.attack_success(), 100 * self.detection(0.01)
        task = {
            Adjacency.ADD_REMOVE: f"whether one particular {self.unit} was in the data",
            Adjacency.REPLACE: f"which of two particular {self.unit}s was in the data",
            Adjacency.ZERO_OUT: f"whether one particular {self.unit} was in the data or blanked out",
        }[self.adjacency]
        text = (
            f"What it means for an attacker. Suppose he knows everything else and only has to say {task}, where both "
            f"answers are equally likely. However he goes about it, he is right in at most {_percent_up(success)} % of "
            f"the cases; a coin gives 50 %. If he may raise a false alarm in 1 % of the cases, he finds at most "
            f"{_percent_up(seen)} % of what he looks for."
        )
        if success > 99:
            text += " A bound as weak as this excludes hardly anything by itself."
        return text

    def _how(self) -> str:
        times = "once" if self.steps == 1 else f"{self.steps:,} times"
        sampler = "" if self.sampler.name == "none" else f" Sampler: {self.sampler}."
        rounding = dict(self.mechanism.parameters).get("rounding")
        paid = (
            f" The noise is made for sums that one {self.unit} moves by at most C(1 + {rounding}): by the clip norm C, "
            "and by what rounding in the computer may add to it."
            if rounding
            else ""
        )
        return (
            f"How it was obtained. Mechanism: {self.mechanism}, used {times}.{sampler} Accountant: {self.accountant}."
            f"{paid}"
        )

    def _limits(self) -> str:
        weaker = "k·ε and a larger δ" if self.delta else "k·ε"
        several = "" if self.unit is Unit.USER else f" A person behind k of them is promised only {weaker}."
        if self.unit is Unit.WORD:
            several += (
                f" All k words of a text are promised only {weaker}: no ε of a word compares with that of a text."
            )
        whose = (
            f" Which records are one {self.unit}'s is told by the column {self.owner!r}: those with the same entry."
            if self.owner
            else ""
        )
        limits = [
            f"The promise is for one {self.unit}.{whose}{several}",
            "What others wrote about a person is not covered by what that person is promised.",
            "What is true of the data as a whole can still be learned, and may be held against a person who is "
            "not even in it.",
            "Whatever else is released from the same data adds to ε; the data set's ledger keeps the sum.",
        ]
        if self.tells_number:
            limits.append(f"The exact number of {self.unit}s is treated as public: the sampler gives it away.")
        if self.noise_source is NoiseSource.FIXED_SEED:
            limits.append(
                "The noise came from a fixed seed: whoever knows the seed can take the noise off, and against "
                "them nothing is promised."
            )
        limits += [exposure.sentence for exposure in self.not_covered]
        if self.canaries:
            limits.append(
                f"Canaries: {self.canaries:,} records were made up to test the promise on, and a fair coin each put "
                "about half of them among the data, as records like any other. Which ones, and what the model makes of "
                "them, is told openly; they belong to nobody, and of any other record this tells no more than is "
                "promised."
            )
        return "What is not covered. " + " ".join(limits)

    def with_canaries(self, drawn: int) -> "Guarantee":
        """The same guarantee, naming so many more canaries."""
        return replace(self, canaries=self.canaries + drawn)

    def with_exposures(self, *exposures: Exposure) -> "Guarantee":
        """The same guarantee, naming something more that it does not cover."""
        return replace(self, not_covered=tuple(dict.fromkeys((*self.not_covered, *exposures))))


_SHORT = {
    "eps": "epsilon",
    "delta": "delta",
    "unit": "unit",
    "owner": "owner",
    "adj": "adjacency",
    "trust": "trust",
    "mech": "mechanism",
    "sampler": "sampler",
    "steps": "steps",
    "acct": "accountant",
    "noise": "noise_source",
    "uncovered": "not_covered",
    "canaries": "canaries",
    "by": "software",
    "version": "version",
}
"""The signature's keys and the fields they stand for."""

_OPTIONAL = ("owner", "canaries")
"""What is said only where there is something to say."""


def round_up(value: float, digits: int) -> float:
    """The value at that many significant digits, never below the value itself: how a privacy cost is rounded."""
    if value == 0 or not math.isfinite(value):
        return value
    decimal = Decimal(repr(float(value)))
    unit = Decimal(1).scaleb(decimal.adjusted() + 1 - digits)
    return float(decimal.quantize(unit, rounding=ROUND_CEILING))


def percent(share: float, digits: int = 3) -> str:
    """A share for people, rounded to so many digits: how what was measured is written."""
    return f"{100 * share:.{digits}g} %"


def _up(value: float, digits: int = 4) -> str:
    """Rounded up, and written out where that is readable: 10,940 and 0.00001, but 1e-12."""
    rounded = Decimal(repr(round_up(value, digits))).normalize()
    return f"{rounded:,f}" if not rounded or -8 < rounded.adjusted() < 8 else f"{rounded:e}"


def _factor(epsilon: float) -> str:
    """e^ε rounded up, but for what floating point adds to it: fair coins have a factor of 3, not of 3.001."""
    if epsilon > 14:
        return f"10^{math.ceil(epsilon / math.log(10))}"
    return _up(max(math.exp(epsilon) * (1 - 1e-13), math.nextafter(1, 2))) if epsilon else "1"


def _percent_up(value: float) -> str:
    """A percentage rounded up to two decimals, but for what floating point adds to it."""
    return f"{min(100.0, math.ceil(value * 100 - 1e-10) / 100):.2f}"


def _number_or_word(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _check_version(found: Any) -> None:
    if str(found) != str(FORMAT):
        raise BadInput(f"version = {found}: this dpnlp reads guarantees of version {FORMAT}.")


def _number(name: str, value: Any) -> int | float:
    number = _number_or_word(str(value))
    if isinstance(number, str):
        raise BadInput(f"{name} = {value!r}: it must be a number.")
    return number


def _member(kind: type[_E], name: str, value: str) -> _E:
    try:
        return kind(value)
    except ValueError:
        raise BadInput(f"{name} = {value!r}: it must be one of {', '.join(kind)}.") from None
