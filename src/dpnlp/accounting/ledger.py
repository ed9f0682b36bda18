"""The ledger: what has been spent on a data set over all runs, in a file beside it, and the budget that it obeys.

One JSON object per line, only ever appended. Every line carries its own SHA-256 and that of the line before it, so
that a line which was changed, removed or moved is noticed. What a chain cannot show is that its end is gone: the
anchor beside it, `<name>.ledger.head`, says how many lines there are and which is the last, so that lines cut off or
cut short, or an older copy put back, are noticed too. It is replaced after each line; should a crash come in between,
the line counts all the same, and is anchored along with the next one.

This guards against accidents and careless edits. Not noticed is a ledger that is rewritten, or put back, together with
its anchor. Where lines and the anchor are removed together, a warning is all there is, and only until the next line. A
line that a crash left without an anchor can be cut off unnoticed until then, but its run was never started.

A release is charged in full before its run starts, and never refunded: a crash can waste privacy, not hide its cost.
"""

import fcntl
import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from dpnlp import events
from dpnlp.accounting.releases import Budget, Contents, Release, Spent
from dpnlp.atomic import fsync_path, prepared, refusals
from dpnlp.checks import BadInput
from dpnlp.events import Event
from dpnlp.guarantee import Adjacency, Unit, round_up

FORMAT = 1
"""Version of the lines."""

_SEAL = re.compile(rb'(\{.*), "checksum": "([0-9a-f]{64})"\}')
_ANCHOR = re.compile(rb"([1-9][0-9]{0,17}) ([0-9a-f]{64})\n")
_OPTIONAL = ("owner", "in_clear")
"""What stands in a line only where there is something to say."""
_BEGINNING = b'{"version": '
"""What a line begins with, as much of it as was written."""
_TORN = b" (torn)"
"""Ends a line whose writing was interrupted, so that it cannot be taken for a whole line that someone changed."""

_UNANCHORED = (
    "it is missing, so that lines lost from the end of the ledger would go unnoticed; compare the ledger with its "
    "newest copy before the next line brings this file back."
)


class Anchor(NamedTuple):
    """The end of a ledger: the number of its lines, and the SHA-256 of the last one."""

    lines: int
    sha256: str


class BudgetExceeded(BadInput):
    """A release that would cost more than is left. It was not recorded and must not be made."""


@dataclass(frozen=True)
class Repair:
    """Says of the line just before it that its writing was interrupted: its number, and its SHA-256 up to the mark.

    In the chain it comes after the last whole line.
    """

    line: int
    sha256: str


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
    def head_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.head")

    @property
    def exists(self) -> bool:
        """Whether it is there, or was, as far as its anchor tells."""
        return self.path.exists() or self.head_path.exists()

    @property
    def content(self) -> bytes:
        """All that stands in the file; nothing where there is none."""
        self._refuse_special()
        return self.path.read_bytes() if self.path.exists() else b""

    def _refuse_special(self) -> None:
        """Of a device, such as /dev/null, or a folder nothing would be remembered."""
        if self.path.exists() and not self.path.is_file():
            raise BadInput(f"{self.path}: it is no file, and cannot be a ledger; name a file, or move it away.")

    def read(self) -> Contents:
        """What stands in the file; nothing where there is none and never was."""
        self._refuse_special()
        anchor = self._anchor()  # Before the ledger is looked for: where there is an anchor, there was a ledger.
        try:
            with self.path.open("rb", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                return self._scan(file.read(), self._anchor())[0]
        except (FileNotFoundError, NotADirectoryError):
            return self._scan(b"", anchor)[0]
        except OSError as error:
            raise BadInput(f"{self.path}: it cannot be read ({error.strerror}); name a ledger, or its place.") from None

    def spent(self, delta: float | None = None, unit: Unit | None = None, adjacency: Adjacency | None = None) -> Spent:
        return self.read().spent(delta, unit, adjacency)

    def set_budget(self, epsilon: float, delta: float, unit: Unit, adjacency: Adjacency, owner: str = "") -> None:
        self._append(Budget(epsilon, delta, unit, adjacency, owner))

    def charge(
        self, what: str, event: Event, unit: Unit, adjacency: Adjacency, fingerprint: str, run: str | None = None
    ) -> str:
        """Records a release before it is made and returns its id; refuses what the budget does not allow."""
        release = Release.now(run, what, event, unit, adjacency)
        self.enter(replace(release, fingerprint=fingerprint))
        return release.id

    def enter(self, release: Release) -> None:
        """Records a release before it is made; refuses what the budget does not allow.

        A run that may be resumed gives its own id: it is charged once, however often it starts.
        """
        self._append(release)

    def take_over(self, releases: Iterable[Release]) -> None:
        """Records releases that were made already, whatever the budget says; each once.

        Which state of the data they saw is told under the key of another ledger, so it is left out.
        """
        known = {release.id for release in self.read().releases}
        for release in releases:
            if release.id not in known:
                known.add(release.id)
                self._append(replace(release, fingerprint=""), made=True)

    def check(self, release: Release, made: Iterable[Release] = ()) -> None:
        """Refuses what the budget does not allow, after what was made and is to be taken over; records nothing."""
        contents = self.read()
        known = {earlier.id for earlier in contents.releases}
        before = {earlier.id: earlier for earlier in made if earlier.id not in known}
        contents = replace(contents, releases=(*contents.releases, *before.values()))
        if contents.budget and release.id not in {earlier.id for earlier in contents.releases}:
            self._refuse_excess(contents, contents.budget, release)

    def _append(self, record: Release | Budget, made: bool = False) -> None:
        """Check and write are under one lock, so that two runs cannot both take what is left of the budget."""
        self._refuse_special()
        with refusals(self.path), self.path.open("ab+", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            contents, end, mending = self._scan(file.read(), self._anchor())
            if isinstance(record, Release) and self._charged(contents, record):
                with self._anchoring(end):  # The process that charged it may have been killed before it could.
                    self._write(file.fileno(), mending)
                return
            if isinstance(record, Release) and contents.budget and not made:
                self._refuse_excess(contents, contents.budget, record)
            line = _seal(record, end.sha256)
            with self._anchoring(Anchor(end.lines + 1, _sha256(line))):
                self._write(file.fileno(), mending + line + b"\n")
                if not end.lines:
                    fsync_path(self.path.parent)

    def _write(self, file: int, data: bytes) -> None:
        written = os.write(file, data)
        os.fsync(file)
        if written < len(data):
            raise BadInput(f"{self.path}: only {written} of {len(data)} bytes could be written; make room on the disk.")

    @contextmanager
    def _anchoring(self, anchor: Anchor) -> Iterator[None]:
        """Replaces the anchor once the line is on the disk; never before, or a crash would look like a lost line.

        The new one is made first: where that fails, as in a folder that is write-protected, nothing is charged yet.
        """
        line = f"{anchor.lines} {anchor.sha256}\n".encode()
        with prepared(self.head_path, line, stat.S_IMODE(self.path.stat().st_mode)) as put:
            yield
            put()

    def _anchor(self) -> Anchor | None:
        try:
            data = self.head_path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise BadInput(f"{self.head_path}: it cannot be read ({error.strerror}); check what lies there.") from None
        if match := _ANCHOR.fullmatch(data):
            return Anchor(int(match[1]), match[2].decode())
        raise BadInput(
            f"{self.head_path}: it must be one line, the number of lines in the ledger and the SHA-256 of the last; "
            "restore the newest copy of it, or delete it if the ledger is known to be complete."
        )

    def _compare(self, data: bytes, anchor: Anchor | None) -> list[str]:
        """What to warn of. Lines that the anchor does not know yet are no loss; the one that it names must be there."""
        if anchor is None:
            return [f"{self.head_path}: {_UNANCHORED}"] if data else []
        *whole, rest = data.split(b"\n")
        if anchor.lines > len(whole):
            problem = "it is cut short" if rest and anchor.lines == len(whole) + 1 else "it is missing"
        elif _sha256(whole[anchor.lines - 1]) != anchor.sha256:
            problem = "another stands in its place"
        else:
            return []
        raise BadInput(
            f"{self.path}, line {anchor.lines}: {self.head_path.name} says that this line was written, but {problem}; "
            "restore the newest copy of the ledger."
        )

    def _charged(self, contents: Contents, release: Release) -> bool:
        """Whether this release stands in the ledger already; another one under its id is refused."""
        for earlier in contents.releases:
            if earlier.id == release.id:
                state = release.fingerprint if earlier.fingerprint else ""
                if replace(release, time=earlier.time, fingerprint=state) != earlier:
                    raise BadInput(
                        f"{self.path}: release {release.id} is charged already, but for something else; start another "
                        "run instead of resuming this one."
                    )
                return True
        return False

    def _refuse_excess(self, contents: Contents, budget: Budget, release: Release) -> None:
        if release.in_clear and math.isfinite(budget.epsilon):
            raise BudgetExceeded(
                f"{self.path}: {release.what!r} would write texts of these data out in clear, but the budget is "
                f"{budget.epsilon} at δ = {budget.delta} for one {budget.whose}; take other texts for that."
            )
        limits = (budget.delta, budget.unit, budget.adjacency, budget.owner)
        after = replace(contents, releases=(*contents.releases, release)).spent(*limits)
        if not after.epsilon <= budget.epsilon:
            spent = round_up(contents.spent(*limits).epsilon, 4)
            why = f" ({after.reasons[0].removesuffix('.')})" if after.reasons else ""
            raise BudgetExceeded(
                f"{self.path}: ε = {spent} is spent and {release.what!r} would bring it to "
                f"{round_up(after.epsilon, 4)}{why}, but the budget is {budget.epsilon} at δ = {budget.delta} for "
                f"one {budget.whose} under {budget.adjacency}; add noise, take fewer steps, or set a larger budget."
            )

    def _scan(self, data: bytes, anchor: Anchor | None) -> tuple[Contents, Anchor, bytes]:
        """The contents, the end that the next line continues, and what must be written before it.

        Only an interrupted write may leave a line that cannot be read. It stays where it is, marked, and the next
        line is its repair. A repair has no freedom: should its own writing be interrupted, the rest of it is written.
        """
        releases, budget, found, end, mending = _read_lines(self.path, data)
        warnings = (*found, *self._compare(data, anchor))
        return Contents(releases, budget, warnings), end, mending


@lru_cache(maxsize=4)
def _read_lines(path: Path, data: bytes) -> tuple[tuple[Release, ...], Budget | None, tuple[str, ...], Anchor, bytes]:
    """What stands in the lines of a ledger; the same lines, which are looked at again and again, are read once."""
    releases, warnings = list[Release](), list[str]()
    budget, head, mending = None, _sha256(b"dpnlp ledger"), b""
    number, at = 0, 0
    while at < len(data):
        number += 1
        place = f"{path}, line {number}"
        end = data.find(b"\n", at)
        newline = end >= 0
        line, at = data[at : end if newline else len(data)], end + 1 if newline else len(data)
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
        if number == 1 and not fragment.startswith(_BEGINNING[: len(fragment)]):
            raise BadInput(f"{path}: it is no ledger; name a ledger, or a place where nothing is yet.")
        repair = _seal(Repair(number, _sha256(fragment)), head)
        due = (b"" if newline else _TORN + b"\n") + repair + b"\n"
        if data.startswith(due, at):
            at += len(due)
        elif due.startswith(rest := data[at:]):
            mending, at = due[len(rest) :], len(data)
        else:
            raise _damaged(place)
        warnings.append(f"{place}: its writing was interrupted, before anything was released on its account.")
        number, head = number + 1, _sha256(repair)
    return tuple(releases), budget, tuple(warnings), Anchor(number, head), mending


def _seal(record: Release | Budget | Repair, previous: str) -> bytes:
    """The record as a line, without its end."""
    entry: dict[str, Any] = {"version": FORMAT, "previous": previous, "kind": type(record).__name__.lower()}
    entry |= {name: value for name, value in vars(record).items() if name not in _OPTIONAL or value}
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
