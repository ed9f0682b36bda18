"""One data set, one ledger (law 15): all ledgers that records concern, wherever and however they lie.

By place: a ledger lies beside a file, or beside a folder that the file is in. By content: a machine remembers for its
owner, under their key, of which texts each ledger is, so that a copy, a join, a subset, a packed or a shuffled file has
the ledgers of what is in it. A release is charged to all of them or, where the budget of one refuses it, to none.

What is remembered of a ledger has a copy of it, too. That copy counts where the ledger itself is gone, or where an
older one was put back in its place.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from hashlib import blake2b
from operator import or_
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from dpnlp.accounting.fingerprint import fingerprint, key_path
from dpnlp.accounting.ledger import Ledger
from dpnlp.accounting.releases import Budget, Release
from dpnlp.atomic import alone, write
from dpnlp.data.identity import Fingerprints, Identity
from dpnlp.data.strings import files_of, strings
from dpnlp.events import NonPrivate
from dpnlp.guarantee import Adjacency, Unit
from dpnlp.home import home, owner_key

NOTHING = Fingerprints.of(())
_PLACE = "place"
COINCIDENCE = 0.1
"""Brief texts, such as a greeting, are in many data sets. Only from this share on they make two of them alike."""


class Kept(Protocol):
    """Data that lie in files."""

    @property
    def files(self) -> tuple[Path, ...]:
        """All of them."""
        ...

    @property
    def places(self) -> tuple[Path, ...]:
        """What ledgers lie beside: files, or folders."""
        ...


class Part(NamedTuple):
    """Texts, the files that they lie in, and what ledgers lie beside."""

    texts: Fingerprints
    files: tuple[Path, ...]
    places: tuple[Path, ...]

    def ledgers(self) -> Iterator[Path]:
        """Beside the files and the folders that they are in, under the names that they are given and the real ones."""
        named = {name for one in (*self.places, *self.files) for name in (one.absolute(), one.resolve())}
        for path in sorted(named | {folder for one in named for folder in one.parents if folder.name}):
            yield path.with_name(f"{path.name}.ledger")


class Known(NamedTuple):
    """A ledger, what is remembered of it, and the parts of a data set that it is of."""

    ledger: Ledger
    memory: "Memory"
    parts: tuple[Part, ...]

    @property
    def texts(self) -> Fingerprints:
        """Those of the data set that the ledger is of."""
        return reduce(or_, (part.texts for part in self.parts))

    @property
    def state(self) -> str:
        """The fingerprint of the files that these lie in."""
        return fingerprint(*sorted({file for part in self.parts for file in part.files}), ledger=self.ledger)


@dataclass(frozen=True)
class DataSet:
    """What a run reads. `chosen` is a ledger to charge instead of new ones beside the files."""

    parts: tuple[Part, ...]
    chosen: Path | None = None

    @classmethod
    def of(cls, kept: Kept, texts: Fingerprints, chosen: Path | None = None) -> "DataSet":
        """These texts, which lie in these files."""
        return cls((Part(texts, tuple(sorted(kept.files)), kept.places),), chosen)

    @classmethod
    def read(cls, records: Any, chosen: Path | None = None) -> "DataSet":
        """A stream of records, which is read once for it."""
        return cls.of(records, Identity.of_owner().seen(records).texts, chosen)

    @classmethod
    def at(cls, path: Path) -> "DataSet":
        """A file or a folder, of which nothing is known but what stands in it."""
        Ledger.beside(path)  # It must be there.
        files, identity = files_of(path), Identity.of_owner()
        texts = Fingerprints.of(identity.text(text) for file in files for text in strings(file) if text.strip())
        return cls((Part(texts, files, (path,)),))

    def __or__(self, other: "DataSet") -> "DataSet":
        """Both together."""
        return replace(self, parts=self.parts + other.parts)

    @property
    def texts(self) -> Fingerprints:
        """All of them."""
        return reduce(or_, (part.texts for part in self.parts))

    def ledgers(self) -> list[Ledger]:
        """All that concern it and are there."""
        return [known.ledger for known in self._known(new=False)]

    def charge(self, release: Release, others: Fingerprints = NOTHING) -> None:
        """Enters a release before it is made. No ledger has it if the budget of one refuses it.

        What is written out in clear spoils the promise for all of a ledger's texts only if there are no others.
        """
        with alone(home() / "ledgers"):
            concerned = [(known, _of(release, known, others)) for known in self._known()]
            for known, own in concerned:
                known.ledger.check(own)
            for known, own in concerned:
                known.memory.remember(known.texts)
                known.ledger.enter(replace(own, fingerprint=known.state))
                known.memory.keep()

    def check(self, release: Release) -> None:
        """Refuses what the budget of any of its ledgers does not allow, and enters nothing."""
        for ledger in self.ledgers():
            ledger.check(release)

    def write_out(self, what: str, others: Fingerprints = NOTHING) -> None:
        """Enters that texts of it, or exact scores on them, are written out. Once is enough: again tells no more.

        `others` are further texts in the same files, which are not.
        """
        mark = blake2b(what.encode() + b"\0" + self.texts.to_bytes(), key=owner_key(), digest_size=8).hexdigest()
        clear = Release.now(mark, what, NonPrivate(), Unit.EXAMPLE, Adjacency.ADD_REMOVE)
        self.charge(replace(clear, in_clear=True), others)

    def set_budget(self, budget: Budget) -> None:
        """Sets it in the ledgers beside the data, and in copies of those that are gone; others keep their own.

        What is in any ledger of the data counts from then on, as of the files in a folder.
        """
        own = {Ledger.beside(place).path for part in self.parts for place in part.places}
        with alone(home() / "ledgers"):
            every = self._known()
            made = [release for known in every for release in known.ledger.read().releases]
            for known in every:
                if known.memory.place not in own and Ledger(known.memory.place).exists:
                    continue
                known.memory.remember(known.texts)
                known.ledger.take_over(made)
                known.ledger.set_budget(budget.epsilon, budget.delta, budget.unit, budget.adjacency, budget.owner)
                known.memory.keep()

    def _known(self, new: bool = True) -> list[Known]:
        """The ledgers of all parts, each once: those that are there and, unless told otherwise, new ones.

        A new one lies at each place that has none or, if one is chosen, there alone.
        """
        found = dict[Path, Known]()
        for part in self.parts:
            for ledger, memory in self._of_part(part, new):
                others = found[ledger.path].parts if ledger.path in found else ()
                found[ledger.path] = Known(ledger, memory, (*others, part))
        return list(found.values())

    def _of_part(self, part: Part, new: bool) -> Iterator[tuple[Ledger, "Memory"]]:
        chosen = [self.chosen.resolve()] if self.chosen else []
        there = [path for path in (*chosen, *part.ledgers()) if Ledger(path).exists]
        held = [path.read_bytes() for path in there if path.exists()]
        yield from ((Ledger(path), Memory.of(path)) for path in there)
        for memory in memories():
            if memory.place in there or alike(memory.texts, part.texts):
                for ledger in memory.ledgers(held):
                    if ledger.path not in there:
                        yield ledger, memory
        for path in chosen or [Ledger.beside(place).path for place in part.places] if new else ():
            if path not in there:
                memory = Memory.of(path)
                yield (Ledger(path) if os.access(path.parent, os.W_OK) else memory.copy), memory


def _of(release: Release, known: Known, others: Fingerprints) -> Release:
    """The release as this ledger has it. One in clear is another one where it is of other files, or of all texts."""
    if not release.in_clear:
        return release
    texts = known.memory.texts | others
    apart = len(texts.common(known.texts)) < len(texts)
    mark = blake2b(f"{release.id} {apart} {known.state}".encode(), digest_size=8).hexdigest()
    return replace(release, id=mark, in_clear=apart)


@dataclass(frozen=True)
class Memory:
    """What is remembered of the ledger at a place: of which texts it is, and a copy of it."""

    folder: Path
    place: Path

    @classmethod
    def of(cls, place: Path) -> "Memory":
        """That of the ledger at this place."""
        name = blake2b(os.fsencode(place), key=owner_key(), digest_size=16).hexdigest()
        return cls(_memories() / name, place)

    @property
    def copy(self) -> Ledger:
        """The copy."""
        return Ledger(self.folder / self.place.name)

    @property
    def texts(self) -> Fingerprints:
        """Of which texts the ledger is."""
        path = self.folder / "texts"
        return Fingerprints.from_bytes(path.read_bytes()) if path.exists() else NOTHING

    def remember(self, texts: Fingerprints) -> None:
        """The ledger is of these, too."""
        known = self.texts
        if not (self.folder / _PLACE).exists():
            self.folder.mkdir(mode=0o700, exist_ok=True)
            write(self.folder / _PLACE, os.fsencode(self.place), mode=0o600)
        if len(every := known | texts) > len(known):
            write(self.folder / "texts", every.to_bytes(), mode=0o600)

    def keep(self) -> None:
        """Brings the copy up to date, where the ledger only has more than it."""
        ledger, copy = Ledger(self.place), self.copy
        if not ledger.path.exists():
            return
        then = copy.path.read_bytes() if copy.path.exists() else b""
        if not ledger.path.read_bytes().startswith(then):
            return
        # The anchor comes last: it never names a line that is not there, wherever a kill comes in between.
        places = (key_path(ledger), key_path(copy)), (ledger.path, copy.path), (ledger.head_path, copy.head_path)
        for new, old in places:
            if new.exists() and not (old.exists() and old.read_bytes() == new.read_bytes()):
                write(old, new.read_bytes(), mode=0o600)

    def ledgers(self, held: Iterable[bytes]) -> Iterator[Ledger]:
        """The ledger, if it is there, and the copy, if that has what neither the ledger has nor what is held anyway."""
        ledger, copy = Ledger(self.place), self.copy
        if ledger.exists:
            yield ledger
            self.keep()
            held = [*held, ledger.path.read_bytes() if ledger.path.exists() else b""]
        if copy.exists and not any(one.startswith(copy.path.read_bytes()) for one in held):
            yield copy


def private_ledger(texts: Fingerprints) -> Ledger | None:
    """A ledger of some of these texts, wherever they lie, by which anybody was ever promised anything."""
    return next((one for one in DataSet((Part(texts, (), ()),)).ledgers() if one.read().is_private), None)


def memories() -> Iterator[Memory]:
    """All that is remembered."""
    for folder in sorted(_memories().iterdir()):
        if (folder / _PLACE).exists():
            yield Memory(folder, Path(os.fsdecode((folder / _PLACE).read_bytes())))


def alike(known: Fingerprints, texts: Fingerprints) -> bool:
    """Whether two data sets have a text in common that can be no coincidence."""
    common = known.common(texts)
    if common.longer:
        return True
    return len(common) > 0 and len(common) >= COINCIDENCE * min(len(known), len(texts))


def _memories() -> Path:
    folder = home() / "ledgers"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
