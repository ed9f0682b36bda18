"""`dpnlp pretrain`: a rewriter is made of public texts. Each method has settings of its own."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpnlp.accounting.releases import Release
from dpnlp.checks import BadInput
from dpnlp.cli.config import nearest, option, shown
from dpnlp.cli.output import print_facts
from dpnlp.cli.places import new_output
from dpnlp.cli.tasks import flag_of
from dpnlp.events import NonPrivate
from dpnlp.guarantee import Adjacency, Exposure, Unit
from dpnlp.runs.provenance import PUBLIC, Door, Provenance

if TYPE_CHECKING:
    from dpnlp.data.plain import Texts

METHODS = {
    "echo": "rewriters:PretrainEcho",
    "noisy-echo": "rewriters:PretrainEcho",
    "retell": "trained_rewriters:PretrainRetell",
    "adept": "trained_rewriters:PretrainAdept",
    "dp-bart": "trained_rewriters:PretrainBart",
    "words": "rewriters:PretrainWords",
    "sampling": "rewriters:PretrainSampling",
}
"""The settings of each method, by module of the command line and name; they are imported when they are used."""

WHAT = f"How texts are rewritten: {', '.join(METHODS)}; each has flags of its own"


@dataclass(frozen=True, kw_only=True)
class Data:
    """Which public texts."""

    train: tuple[str, ...] = option(
        help="Files with a text a line, or .jsonl, .csv, .tsv or .parquet files (each may end in .gz or .xz)"
    )
    text: str = option("text", help="The column of the text")
    public: bool = option(False, help="Say that the texts are public: nothing of them is hidden")
    unsafe: bool = option(
        False, help="Take private texts all the same, to study what comes out; every guarantee then says so"
    )

    def streams(self) -> "list[Texts]":
        """Those of each file."""
        from dpnlp.data.plain import Columns, plain

        return [plain(source, Columns(self.text)) for source in self.train]

    def texts(self, door: Door) -> list[str]:
        """All of them, once neither a ledger nor the door knows that they are private."""
        streams = self.streams()
        if self.unsafe:
            enter_unsafe(streams)
        else:
            refuse_private(streams, self.public, "what a rewriter is made of can come out of it word by word", door)
        return [record.text for stream in streams for record in stream]


def refuse_private(streams: "Sequence[Texts]", public: bool, danger: str, door: Door) -> None:
    """Refuses texts that a ledger, or the door, knows to be private, or that nobody has said to be public."""
    from dpnlp.data.ledgers import DataSet

    if not public:
        raise BadInput(
            f"data.train = {streams[0].files[0]}: {danger}; if it is public say so by --data.public, else give other "
            "texts."
        )
    for stream in streams:
        if private := next((one for one in DataSet.read(stream).ledgers() if one.read().is_private), None):
            raise BadInput(
                f"data.train = {stream.files[0]}: {private.path} is a ledger of texts in it, so they are private, and "
                f"{danger}; give others."
            )
        for file in stream.files:
            door.note(file, public=True)


def enter_unsafe(streams: "Sequence[Texts]") -> None:
    """Tells all ledgers of private texts that something is made of them without privacy."""
    from dpnlp.data.ledgers import DataSet

    every = reduce(or_, map(DataSet.read, streams))
    every.charge(Release.now(None, "dpnlp pretrain", NonPrivate(), Unit.EXAMPLE, Adjacency.ADD_REMOVE))


@dataclass(frozen=True, kw_only=True)
class Pretrain(ABC):
    """What all methods have in common."""

    method: str
    output: Path = option(help="The folder to make")

    def run(self) -> None:
        """Makes the folder, and says what is worth knowing."""
        print_facts(f"Rewriter {self.output}", self.make())

    def make(self) -> dict[str, str]:
        """Makes the folder, and says nothing."""
        from dpnlp.rewriting.folders import describe

        door = Door()
        with new_output(self.output) as whole:
            facts = self.made(door, whole)
            door.provenance |= self.learned()
            door.keep(whole, door.provenance | Provenance(exposures=self.exposures))
            describe(whole, self.method)
        return {"method": self.method, **facts}

    @property
    def exposures(self) -> tuple[Exposure, ...]:
        """What of private texts goes into it."""
        return ()

    def learned(self) -> Provenance:
        """The id under which this machine remembers which texts it was made of."""
        return PUBLIC

    @abstractmethod
    def made(self, door: Door, folder: Path) -> dict[str, str]:
        """Puts into the folder what the method needs, and says what is worth knowing.

        All that was made of data and is read for it goes through the door.
        """

    @classmethod
    def chosen(cls, arguments: Sequence[str]) -> Any:
        """The settings of the method that is typed."""
        method = flag_of("--method", arguments) or "echo"
        if method not in METHODS:
            known, near = ", ".join(METHODS), nearest(method, METHODS)
            raise BadInput(f"method = {shown(method)}: it must be one of {known}; the nearest is {near}.")
        module, _, name = METHODS[method].partition(":")
        return getattr(import_module(f"dpnlp.cli.{module}"), name)


@dataclass(frozen=True, kw_only=True)
class PretrainOfTexts(Pretrain):
    """A method that is made of texts."""

    data: Data = option(help="texts")

    @property
    def exposures(self) -> tuple[Exposure, ...]:
        return (Exposure.PRETRAINING, Exposure.VOCABULARY) if self.data.unsafe else ()

    def learned(self) -> Provenance:
        """Texts that are said to be public must not be promised to be hidden by what was made of them."""
        from dpnlp.data.learned import Learned

        if not self.data.train or self.data.unsafe:
            return PUBLIC
        learned = Learned.of(record for stream in self.data.streams() for record in stream)
        learned.keep(learned.id)
        return Provenance(learned_from=(learned.id,))
