"""One data set, one ledger (law 15): all ledgers that records concern, wherever and however they lie.

By place: a ledger lies beside a file, or beside a folder that the file is in. By content: a machine remembers for its
owner, under their key, of which texts and files each ledger is, so that a copy, a join, a subset, a packed or a
shuffled file has the ledgers of what is in it. A release is charged to all of them or, where the budget of one refuses
it, to none.

What is remembered of a ledger has a copy of it, too. That copy counts where the ledger itself is gone, or where an
older one was put back in its place.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from hashlib import blake2b
from operator import or_
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from dpnlp.accounting.fingerprint import fingerprint, key_path
from dpnlp.accounting.ledger import Ledger
from dpnlp.accounting.releases import Budget, Release
from dpnlp.atomic import alone, write
from dpnlp.checks import BadInput
from dpnlp.data.identity import Fingerprints, Identity
from dpnlp.data.strings import files_of, strings
from dpnlp.events import NonPrivate
from dpnlp.foreign import bytes_in
from dpnlp.guarantee import Adjacency, Unit
from dpnlp.home import home, owner_key

NOTHING = Fingerprints.of(())
_PLACE, _LEDGER = "place", ".ledger"
COINCIDENCE = 0.1
"""Brief texts, such as a greeting, are in many data sets. Only from this share of the smaller one on they make two of
them alike."""


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


@dataclass(frozen=True)
class Part:
    """Texts, the files that they lie in, and what ledgers lie beside."""

    texts: Fingerprints
    files: tuple[Path, ...]
    places: tuple[Path, ...]

    @cached_property
    def copies(self) -> Fingerprints:
        """The files themselves, by which a copy is known of what has no texts, as a graph of numbers."""
        return Identity.of_owner().files(self.files)

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

    def remember(self) -> None:
        """From now on the ledger is known to be of these."""
        self.memory.remember(self.texts, reduce(or_, (part.copies for part in self.parts)))

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
        if not files:
            raise BadInput(f"{path}: there are no files in this folder; give the data.")
        texts = Fingerprints.of(identity.text(text) for file in files for text in strings(file) if text.strip())
        return cls((Part(texts, files, (path,)),))

    @classmethod
    def known(cls, path: Path) -> "DataSet":
        """The same, as far as the ledger beside it is known to be of something; else it is read."""
        texts = Memory.of(Ledger.beside(path).path).texts
        return cls((Part(texts, (), (path,)),)) if len(texts) else cls.at(path)

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
            every = self._known()
            concerned = [(known, _of(release, known, others), _before(release, known, every)) for known in every]
            for known, own, made in concerned:
                known.ledger.check(own, made)
            for known, own, made in concerned:
                known.remember()
                known.ledger.take_over(made)
                known.ledger.enter(replace(own, fingerprint=known.state))
                known.memory.keep()

    def check(self, release: Release) -> None:
        """Refuses what the budget of any of its ledgers does not allow, and enters nothing."""
        every = self._known(new=False)
        for known in every:
            known.ledger.check(release, _before(release, known, every))

    def write_out(self, what: str, others: Fingerprints = NOTHING) -> None:
        """Enters that texts of it, or exact scores on them, are written out. Once is enough: again tells no more.

        `others` are further texts in the same files, which are not.
        """
        mark = blake2b(what.encode() + b"\0" + self.texts.to_bytes(), key=owner_key(), digest_size=8).hexdigest()
        self.charge(replace(_clear(mark, what), in_clear=True), others)

    def check_written_out(self, what: str) -> None:
        """Refuses what tells of texts without noise where they have a budget, and enters nothing."""
        self.check(_clear(None, what))

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
                known.remember()
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
        held = [Ledger(path).content for path in there]
        yield from ((Ledger(path), Memory.of(path)) for path in there)
        for memory in memories():
            if memory.place in there or memory.is_of(part):
                for ledger in memory.ledgers(held):
                    if ledger.path not in there:
                        yield ledger, memory
        for path in chosen or [Ledger.beside(place).path for place in part.places] if new else ():
            if path not in there:
                memory = Memory.of(path)
                yield (Ledger(path) if os.access(path.parent, os.W_OK) else memory.copy), memory


def _before(release: Release, known: Known, every: Sequence[Known]) -> list[Release]:
    """What was released of texts that have come to a ledger with a budget, as those of a file put into its folder."""
    here = {path for part in known.parts for path in part.ledgers()}
    if known.memory.place not in here or known.ledger.read().budget is None:
        return []
    come = known.texts.without(known.memory.texts)
    other = (one for one in every if one.ledger.path != known.ledger.path and alike(one.memory.texts, come))
    return [made for one in other for made in one.ledger.read().releases if made.id != release.id]


def _clear(mark: str | None, what: str) -> Release:
    """A release without privacy."""
    return Release.now(mark, what, NonPrivate(), Unit.EXAMPLE, Adjacency.ADD_REMOVE)


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
        """The copy, whose name is that of nothing else here."""
        return Ledger(self.folder / f"{self.place.name.removesuffix(_LEDGER)}{_LEDGER}")

    @property
    def texts(self) -> Fingerprints:
        """Of which texts the ledger is."""
        return self._kept("texts")

    @property
    def copies(self) -> Fingerprints:
        """Of which files it is."""
        return self._kept("files")

    def is_of(self, part: Part) -> bool:
        """Whether the ledger is of a part of a data set, wherever that lies."""
        return alike(self.texts, part.texts) or self.copies.overlaps(part.copies)

    def remember(self, texts: Fingerprints, copies: Fingerprints = NOTHING) -> None:
        """The ledger is of these, too."""
        if not (self.folder / _PLACE).exists():
            self.folder.mkdir(mode=0o700, exist_ok=True)
            write(self.folder / _PLACE, os.fsencode(self.place), mode=0o600)
        for name, new in (("texts", texts), ("files", copies)):
            known = self._kept(name)
            if len(every := known | new) > len(known):
                write(self.folder / name, every.to_bytes(), mode=0o600)

    def _kept(self, name: str) -> Fingerprints:
        path = self.folder / name
        try:
            return Fingerprints.from_bytes(bytes_in(path)) if path.exists() else NOTHING
        except ValueError:
            raise BadInput(
                f"{path}: it is damaged, so that data of the ledger {self.place} would not be recognised; restore the "
                "file from a copy, or delete it and run dpnlp ledger budget on the data again."
            ) from None

    def keep(self) -> None:
        """Brings the copy up to date, where the ledger only has more than it."""
        ledger, copy = Ledger(self.place), self.copy
        if not ledger.content or not ledger.content.startswith(copy.content):
            return
        # The anchor comes last: it never names a line that is not there, wherever a kill comes in between.
        places = (key_path(ledger), key_path(copy)), (ledger.path, copy.path), (ledger.head_path, copy.head_path)
        for new, old in places:
            if new.exists() and not (old.exists() and bytes_in(old) == bytes_in(new)):
                write(old, bytes_in(new), mode=0o600)

    def ledgers(self, held: Iterable[bytes]) -> Iterator[Ledger]:
        """The ledger, if it is there, and the copy, if that has what neither the ledger has nor what is held anyway."""
        ledger, copy = Ledger(self.place), self.copy
        if ledger.exists:
            yield ledger
            self.keep()
            held = [*held, ledger.content]
        if copy.exists and not any(one.startswith(copy.content) for one in held):
            yield copy


def private_ledger(texts: Fingerprints) -> Ledger | None:
    """A ledger of many of these texts, wherever they lie, by which anybody was ever promised anything."""
    known = (memory for memory in memories() if share_many(memory.texts, texts))
    return next((one for memory in known for one in memory.ledgers([]) if one.read().is_private), None)


def memories() -> Iterator[Memory]:
    """All that is remembered."""
    for folder in sorted(_memories().iterdir()):
        if (folder / _PLACE).exists():
            place = Path(os.fsdecode(bytes_in(folder / _PLACE)))
            if not place.is_absolute():
                raise BadInput(f"{folder / _PLACE}: it names no ledger, so it was damaged; restore it from a backup.")
            yield Memory(folder, place)


def alike(known: Fingerprints, texts: Fingerprints) -> bool:
    """Whether two data sets have a text in common that can be no coincidence."""
    return known.common(texts).longer > 0 or share_many(known, texts)


def share_many(known: Fingerprints, texts: Fingerprints) -> bool:
    """Whether two data sets have so many texts in common that one is hardly public where the other is private."""
    common = len(known.common(texts))
    return common > 0 and common >= COINCIDENCE * min(len(known), len(texts))


def _memories() -> Path:
    folder = home() / "ledgers"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
