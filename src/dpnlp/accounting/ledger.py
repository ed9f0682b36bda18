"""The ledger: what has been spent on a data set over all runs, in a file beside it, and the budget that it obeys.

One JSON object per line, only ever appended. Every line carries its own SHA-256 and that of the line before it, so
that a line which was changed, removed or moved is noticed. This guards against accidents and careless edits; it is no
defence against someone who writes the file anew, or who cuts lines off its end.

A release is charged in full before its run starts, and never refunded: a crash can waste privacy, not hide its cost.
"""

import fcntl
import hashlib
import json
import math
import os
import re
import secrets
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dpnlp import checks, events
from dpnlp.accounting import composition, pld
from dpnlp.accounting.subsampling import amplified
from dpnlp.checks import BadInput
from dpnlp.events import ApproximateDP, Composed, Event, NonPrivate, PoissonSampled, Repeated
from dpnlp.guarantee import Adjacency, Unit, round_up

FORMAT = 1
"""Version of the lines."""

_SEAL = re.compile(rb'(\{.*), "checksum": "([0-9a-f]{64})"\}')
_TORN = b" (torn)"
"""Ends a line whose writing was interrupted, so that it cannot be taken for a whole line that someone changed."""


class BudgetExceeded(BadInput):
    """A release that would cost more than is left. It was not recorded and must not be made."""


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
class Repair:
    """Says of the line just before it that its writing was interrupted: its number, and its SHA-256 up to the mark.

    In the chain it comes after the last whole line.
    """

    line: int
    sha256: str


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
    """What stands in a ledger. A warning is a sentence about a line whose writing was interrupted."""

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
        """The one that all releases were made for, else replace, under which all of them can be compared."""
        made_for = {release.adjacency for release in self.releases} or {Adjacency.ADD_REMOVE}
        return made_for.pop() if len(made_for) == 1 else Adjacency.REPLACE

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
        epsilon, why = _bound(self.releases, delta, adjacency)
        if math.isfinite(epsilon):
            return Spent(epsilon, delta, unit, adjacency)
        alone = [(release, *_bound([release], delta, adjacency)) for release in self.releases]
        reasons = [f"{release}: {its_why}" for release, its, its_why in alone if not math.isfinite(its)]
        return Spent(math.inf, delta, unit, adjacency, tuple(reasons or [f"All releases together: {why}"]))


@dataclass(frozen=True)
class Ledger:
    """The ledger at a path. Several processes may use it at once: readers share a lock that a writer has alone."""

    path: Path

    @classmethod
    def beside(cls, dataset: Path | str) -> "Ledger":
        """The ledger of a file or directory. Links are followed: the same data has one ledger under all its names."""
        real = Path(dataset).resolve()
        if not (real.is_file() or real.is_dir()):
            raise BadInput(f"dataset = {dataset}: there is no such file or directory; check the path.")
        return cls(real.with_name(f"{real.name}.ledger"))

    @property
    def key_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.key")

    def read(self) -> Contents:
        """What stands in the file; nothing where there is none."""
        try:
            with self.path.open("rb", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                return self._scan(file.read())[0]
        except FileNotFoundError:
            return Contents()

    def spent(self, delta: float | None = None, unit: Unit | None = None, adjacency: Adjacency | None = None) -> Spent:
        return self.read().spent(delta, unit, adjacency)

    def set_budget(self, epsilon: float, delta: float, unit: Unit, adjacency: Adjacency) -> None:
        self._append(Budget(epsilon, delta, unit, adjacency))

    def charge(self, what: str, event: Event, unit: Unit, adjacency: Adjacency, fingerprint: str) -> str:
        """Records a release before it is made and returns its id; refuses what the budget does not allow."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        release = Release(secrets.token_hex(8), now, what, event, unit, adjacency, fingerprint)
        self._append(release)
        return release.id

    def _append(self, record: Release | Budget) -> None:
        """Check and write are under one lock, so that two runs cannot both take what is left of the budget."""
        with self.path.open("ab+", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            before = file.read()
            contents, head, mending = self._scan(before)
            if isinstance(record, Release) and contents.budget:
                self._refuse_excess(contents, contents.budget, record)
            line = mending + _seal(record, head) + b"\n"
            written = os.write(file.fileno(), line)
            os.fsync(file.fileno())
            if not before:
                _fsync_directory(self.path.parent)
        if written < len(line):
            raise BadInput(f"{self.path}: only {written} of {len(line)} bytes could be written; make room on the disk.")

    def _refuse_excess(self, contents: Contents, budget: Budget, release: Release) -> None:
        limits = (budget.delta, budget.unit, budget.adjacency)
        after = replace(contents, releases=(*contents.releases, release)).spent(*limits)
        if not after.epsilon <= budget.epsilon:
            spent = round_up(contents.spent(*limits).epsilon, 4)
            why = f" ({after.reasons[0].removesuffix('.')})" if after.reasons else ""
            raise BudgetExceeded(
                f"{self.path}: ε = {spent} is spent and {release.what!r} would bring it to "
                f"{round_up(after.epsilon, 4)}{why}, but the budget is {budget.epsilon} at δ = {budget.delta} for "
                f"one {budget.unit} under {budget.adjacency}; add noise, take fewer steps, or set a larger budget."
            )

    def _scan(self, data: bytes) -> tuple[Contents, str, bytes]:
        """The contents, the SHA-256 that the next line must carry, and what must be written before it.

        Only an interrupted write may leave a line that cannot be read. It stays where it is, marked, and the next
        line is its repair. A repair has no freedom: should its own writing be interrupted, the rest of it is written.
        """
        releases, warnings = list[Release](), list[str]()
        budget, head, mending = None, _sha256(b"dpnlp ledger"), b""
        number, rest = 0, data
        while rest:
            number += 1
            place = f"{self.path}, line {number}"
            line, newline, rest = rest.partition(b"\n")
            if match := _SEAL.fullmatch(line):
                if _sha256(match[1] + b"}") != match[2].decode():
                    raise _damaged(place)
                record = _parse(line, head, place)
                if isinstance(record, Release):
                    releases.append(record)
                else:
                    budget = record
                if not newline:
                    mending = b"\n"
                    warnings.append(f"{place}: its writing was interrupted, but only its end of line is missing.")
                head = _sha256(line)
                continue
            if _SEAL.match(line) or (newline and not line.endswith(_TORN)):
                raise _damaged(place)
            fragment = line.removesuffix(_TORN) if newline else line
            repair = _seal(Repair(number, _sha256(fragment)), head)
            due = (b"" if newline else _TORN + b"\n") + repair + b"\n"
            if rest.startswith(due):
                rest = rest[len(due) :]
            elif due.startswith(rest):
                mending, rest = due[len(rest) :], b""
            else:
                raise _damaged(place)
            warnings.append(f"{place}: its writing was interrupted, before anything was released on its account.")
            number, head = number + 1, _sha256(repair)
        return Contents(tuple(releases), budget, tuple(warnings)), head, mending


def fingerprint(dataset: Path | str) -> str:
    """Tells states of a data set apart without saying anything about its content: a BLAKE2b hash under a secret key.

    Without the key nobody can test a guess about the data, so it is not in the ledger but in a file of its own. The
    hash is over each file's name within the data set and its content; ledgers and keys are left out.
    """
    key = _key(Ledger.beside(dataset).key_path)
    root = Path(dataset).resolve()
    files = (path for path in (root, *root.rglob("*")) if path.is_file())
    named = {os.fsencode(path.relative_to(root)): path for path in files}
    total = hashlib.blake2b(key=key, digest_size=32)
    for name, path in sorted(named.items()):
        if path == root or not path.name.endswith((".ledger", ".ledger.key")):
            with path.open("rb") as file:
                content = hashlib.file_digest(file, lambda: hashlib.blake2b(key=key, digest_size=32))
            total.update(len(name).to_bytes(8) + name + content.digest())
    return total.hexdigest()


def _key(path: Path) -> bytes:
    """The key, made on first use. It gets its name only once it is whole, and only if none was there before."""
    if not path.exists():
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", suffix=".ledger.key") as file:
            file.write(os.urandom(32))
            file.flush()
            os.fsync(file.fileno())
            with suppress(FileExistsError):
                path.hardlink_to(file.name)
        _fsync_directory(path.parent)
    key = path.read_bytes()
    if len(key) != 32:
        raise BadInput(
            f"{path}: the key has {len(key)} bytes and must have 32; restore it from a copy, or delete it, after which "
            "new fingerprints can no longer be compared with old ones."
        )
    return key


def _seal(record: Release | Budget | Repair, previous: str) -> bytes:
    """The record as a line, without its end."""
    entry: dict[str, Any] = {"version": FORMAT, "previous": previous, "kind": type(record).__name__.lower()}
    entry |= {field.name: getattr(record, field.name) for field in fields(record)}
    if isinstance(record, Release):
        entry["event"] = events.to_json(record.event)
    if isinstance(record, Budget):
        entry["epsilon"] = record.epsilon if math.isfinite(record.epsilon) else "inf"
    body = json.dumps(entry, allow_nan=False).encode()
    return body[:-1] + f', "checksum": "{_sha256(body)}"}}'.encode()


def _parse(line: bytes, head: str, place: str) -> Release | Budget:
    try:
        entry: dict[str, Any] = json.loads(line)
    except ValueError:
        raise _damaged(place) from None
    version, previous, kind = (entry.pop(name, None) for name in ("version", "previous", "kind"))
    del entry["checksum"]
    if version != FORMAT:
        raise BadInput(
            f"{place}: version = {version}, but this dpnlp reads ledgers of version {FORMAT}; use a newer one."
        )
    if previous != head:
        raise BadInput(f"{place}: lines before it were removed, added or moved; restore the newest copy of the ledger.")
    try:
        entry |= {"unit": Unit(entry["unit"]), "adjacency": Adjacency(entry["adjacency"])}
        if kind == "budget":
            return Budget(**entry | {"epsilon": float(entry["epsilon"])})
        if kind == "release":
            return Release(**entry | {"event": events.from_json(entry["event"])})
        problem: Exception | str = "its kind must be release or budget"
    except (KeyError, TypeError, ValueError) as error:
        problem = error
    raise BadInput(f"{place}: this {kind} line cannot be read ({problem}); restore the newest copy of the ledger.")


def _damaged(place: str) -> BadInput:
    return BadInput(f"{place}: the line was changed after it was written; restore the newest copy of the ledger.")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _fsync_directory(path: Path) -> None:
    """A new file survives a power failure only once its directory is on the disk too."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


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
