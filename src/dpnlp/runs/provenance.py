"""One door for all that is read and was made of data: models, tokenizers, encoders, rewriters, word vectors (law 14).

`Door.open` hands over the thing, and remembers what it cost. What a thing was made of is found in two ways: by what
lies in its folder, and by its content, which this machine remembers for its owner. A copy keeps both; the name of a
path says nothing.

What the hub has is published, and taken to be public. Of any other folder of which nothing is known nothing is said
either: whatever is made of it names that.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from dpnlp.atomic import write
from dpnlp.checks import BadInput, short
from dpnlp.data.learned import Learned
from dpnlp.data.ledgers import private_ledger
from dpnlp.guarantee import Exposure, Trust
from dpnlp.runs.contents import contents_of
from dpnlp.runs.files import as_json, json_object, read
from dpnlp.runs.folder import CONFIG, PRIVACY, PROVENANCE, Run, read_privacy
from dpnlp.runs.memory import Memory
from dpnlp.runs.privacy import Origin, Privacy, learned_from, united

FORMAT = 1
"""Version of provenance.json."""

_ABOVE = 2
"""How far above a thing the folder may be that says what it was made of: runs/first/model/base."""
_INHERITED = (Exposure.PRETRAINING, Exposure.VOCABULARY)
"""What a run names of the data behind its start; its other exposures are of its own data."""
_MEMORY = Memory("provenance")

T = TypeVar("T")


@dataclass(frozen=True)
class Provenance:
    """What a thing was made of: releases of private data, and what of such data went into it uncovered.

    It is public where it has neither. `Exposure.ORIGIN` stands for a thing of which nothing is known. The runs that it
    learned from are known by their ids apart from what they cost, so that those of public data are known too.
    """

    origins: tuple[Origin, ...] = ()
    exposures: tuple[Exposure, ...] = ()
    learned_from: tuple[str, ...] = ()

    @property
    def is_public(self) -> bool:
        """Whether it costs nothing, and leaves nothing to name."""
        return not self.origins and not self.exposures

    @property
    def runs(self) -> list[str]:
        """The ids of all runs behind it."""
        return [*dict.fromkeys((*(origin.run for origin in self.origins), *self.learned_from))]

    def __or__(self, other: "Provenance") -> "Provenance":
        """What was made of both."""
        return Provenance(
            united(self.origins, other.origins),
            tuple(dict.fromkeys((*self.exposures, *other.exposures))),
            tuple(dict.fromkeys((*self.learned_from, *other.learned_from))),
        )

    def __le__(self, other: "Provenance") -> bool:
        """Whether the other was made of all that this was."""
        return (
            {*self.origins} <= {*other.origins}
            and {*self.exposures} <= {*other.exposures}
            and {*self.learned_from} <= {*other.learned_from}
        )

    def promising(self, own: Origin, plan: Mapping[str, Any], learns: bool = False) -> Privacy:
        """What a run promises that this has gone into, and whether it learns from records of its own."""
        named = replace(own, promised=own.promised.with_exposures(*self.exposures))
        return Privacy(united(self.origins, [named]), plan, (*self.learned_from, own.run)[: None if learns else -1])

    def to_json(self) -> dict[str, Any]:
        """The entry of provenance.json."""
        origins, exposures = [origin.to_json() for origin in self.origins], [str(one) for one in self.exposures]
        learned_from = list(self.learned_from)
        return {"version": FORMAT, "origins": origins, "exposures": exposures, "learned_from": learned_from}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "Provenance":
        """What `to_json` wrote, if all of it follows from its events."""
        if entry.get("version") != FORMAT:
            raise BadInput(f"version = {entry.get('version')}: this dpnlp reads version {FORMAT}.")
        origins, exposures = entry.get("origins"), entry.get("exposures")
        if not isinstance(origins, list) or not isinstance(exposures, list):
            raise BadInput("it must have a list of origins and one of exposures.")
        unknown = [word for word in exposures if word not in [*Exposure]]
        if unknown:
            raise BadInput(f"exposures = {unknown[0]!r}: it must be one of {', '.join(Exposure)}.")
        made = united(map(Origin.from_json, origins))
        return cls(made, tuple(map(Exposure, exposures)), learned_from(entry, made))

    @classmethod
    def of(cls, privacy: Privacy) -> "Provenance":
        """What the outcome of a run with this promise was made of."""
        return cls(privacy.origins, learned_from=privacy.learned_from)


PUBLIC, UNKNOWN = Provenance(), Provenance(exposures=(Exposure.ORIGIN,))


class Door:
    """The one way in. What has gone through it is what the result costs; a workflow has one door for all it reads."""

    def __init__(self) -> None:
        self.provenance = PUBLIC
        self.sources: list[str | Path] = []  # what was opened, as it was named
        self._contents: set[bytes] = set()  # of what was opened, which what is made of it may have unchanged

    def open(self, load: Callable[..., T], source: str | Path, *how: Any, public: bool = False, **options: Any) -> T:
        """What `load(source, *how, **options)` reads, noting what it was made of.

        `source` is a path or an id of the hub; a run stands for its model. `public` is what its user says of a thing of
        which nothing is known, or of a run without privacy: that it was made of public data alone.
        """
        place = place_of(source)
        _refuse_endless(Path(place))
        try:
            thing = load(place, *how, **options)
        except (TypeError, LookupError, AttributeError, ArithmeticError) as error:  # A file in it lies.
            raise BadInput(f"{source}: it cannot be opened ({short(error)}); give one that is not damaged.") from error
        self.note(source, public=public)
        return thing

    def note(self, source: str | Path, public: bool = False) -> None:
        """Notes what a thing was made of that is read elsewhere."""
        found, contents = _found(source)
        if public and found != UNKNOWN:
            found = _declared(source, found)
        elif public:
            found = PUBLIC
        self._contents |= contents
        self.sources.append(source)
        self.provenance |= found

    def note_data(self, file: Path, noise: bool) -> None:
        """Notes what the texts were made of that a model learns from, where this machine or their folder knows it.

        All of that is in a model that learns without noise. With noise a text that was rewritten by itself is a record
        like any other; but one record of what a central run wrote, such as its answers, promises nothing to its data.
        """
        found, _ = _found(file)
        behind = tuple(one for one in found.origins if not noise or one.promised.trust is Trust.CENTRAL)
        if behind:
            named = tuple(one for one in found.exposures if one is not Exposure.ORIGIN)
            self.provenance |= replace(found, origins=behind, exposures=named)

    def refuse_costs(self, name: str, source: str | Path) -> None:
        """Refuses what was made of private data, where its cost would go into no statement."""
        if self.provenance.origins or set(self.provenance.exposures) - {Exposure.ORIGIN}:
            raise BadInput(
                f"{name} = {source}: it is made of private data, so that its cost would be lost; give another."
            )

    def keep(self, folder: Path, provenance: Provenance | None = None) -> None:
        """Writes beside a thing that was made, by what has gone through this door, what it was made of."""
        made = self.provenance if provenance is None else provenance
        write(folder / PROVENANCE, as_json(PROVENANCE, made.to_json(), indent=2) + "\n")
        self.remember(folder, made)

    def remember(self, place: Path, provenance: Provenance | None = None) -> None:
        """Remembers the content of what was made, or written, by what has gone through this door, unless it is public.

        What it has unchanged from what was opened is not its own.
        """
        made = self.provenance if provenance is None else provenance
        if made != PUBLIC:
            _MEMORY.remember(contents_of(place) - self._contents, made.to_json())


def place_of(source: str | Path) -> str | Path:
    """Where a thing lies: the model of a run, if the source is one; else as it is given."""
    run = run_of(source)
    if run is None or Path(source).resolve() != run.path.resolve():
        return source
    if not run.model.is_dir():
        raise BadInput(f"{source}: the run is not finished, for it has no model yet; finish it first.")
    return run.model


def _refuse_endless(place: Path) -> None:
    """What never ends, or never begins, no library that reads a folder would come back from."""
    for path in place.rglob("*") if place.is_dir() else ():
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise BadInput(f"{path}: it is no file, but a pipe or a device; remove it from the folder.")


def run_of(source: str | Path) -> Run | None:
    """The run that this path is, or lies in, under whatever name; None where it is none."""
    real = Path(source).resolve()
    above = (Path(source), *real.parents[:_ABOVE]) if real.exists() else ()
    return next((Run(folder) for folder in above if (folder / CONFIG).is_file() and (folder / PRIVACY).is_file()), None)


def _found(source: str | Path) -> tuple[Provenance, set[bytes]]:
    """What a thing was made of, and its content."""
    if Path(source).exists():
        place, default = Path(place_of(source)).resolve(), UNKNOWN
    else:
        from dpnlp.models.pretrained.opening import downloaded

        place, default = downloaded(str(source)), PUBLIC
    contents = contents_of(place)
    said, found = list(_said(place)), PUBLIC
    for one in said:
        found |= one
    remembered = _MEMORY.of(contents)
    for entries in remembered.values():
        made = [Provenance.from_json(entry) for entry in entries]
        if not any(one <= found for one in made):  # Each of them explains the content; one is enough.
            found |= made[0]
    return found if said or remembered else default, contents


def _said(place: Path) -> Iterator[Provenance]:
    """What lies in the folder of a thing, or above it, about what it was made of."""
    for folder in (place, *place.parents[:_ABOVE]):
        if (folder / PRIVACY).is_file():
            yield Provenance.of(read_privacy(folder / PRIVACY))
        if (folder / PROVENANCE).is_file():
            file = folder / PROVENANCE
            try:
                yield Provenance.from_json(json_object(file, read(file)))
            except BadInput as error:
                said = str(error).removeprefix(f"{file}: ").rstrip(".")
                raise BadInput(f"{file}: {said}; restore the file that dpnlp wrote.") from None


def _declared(source: str | Path, found: Provenance) -> Provenance:
    """What is left where its user says that all behind a thing is public: the runs that learned from such data.

    What has a promise was made of private data, and so was what learned from texts that a ledger knows to be private.
    """
    for origin in found.origins:
        if origin.promised.is_private:
            raise BadInput(
                f"{source}: it is said to be public, but {origin.what} was made of private data, under ε = "
                f"{origin.promised.epsilon:g}; do not say that it is public."
            )
    inherited = (one for origin in found.origins for one in origin.promised.not_covered if one in _INHERITED)
    for exposure in (*found.exposures, *inherited):
        if exposure is not Exposure.ORIGIN:
            raise BadInput(
                f"{source}: it is said to be public, but private data went into it ({exposure}); do not say that it is "
                "public."
            )
    for run in found.learned_from:
        learned = Learned.recall(run)
        if learned is not None and (ledger := private_ledger(learned.seen.texts)):
            raise BadInput(
                f"{source}: it is said to be public, but {ledger.path} is a ledger of texts that it learned from, so "
                "they are private; do not say that it is public."
            )
    return Provenance(learned_from=found.learned_from)
