"""`dpnlp vocabulary`: the words that a model will know, of public texts, or of private ones under a guarantee."""

from collections import Counter
from collections.abc import Set
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dpnlp.atomic import unfinished, write
from dpnlp.checks import BadInput
from dpnlp.cli.config import option
from dpnlp.cli.output import print_facts, print_guarantee, print_json
from dpnlp.cli.places import check_ledger, new_output
from dpnlp.cli.ranges import COUNT, DELTA, PART, PROMISED, SEED, SIZE
from dpnlp.cli.start import PUBLIC
from dpnlp.foreign import text_in
from dpnlp.guarantee import Adjacency, Guarantee, Unit
from dpnlp.runs.folder import Run
from dpnlp.runs.provenance import Door, Provenance

if TYPE_CHECKING:
    from dpnlp.data.plain import Texts
    from dpnlp.data.vocabulary import Words
    from dpnlp.events import Event
    from dpnlp.mechanisms import PartitionSelection

_DANGER = "the words of private texts give them away"
_MADE = " made"
"""Stands behind the id of what is made and only has to be put in its place."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """Which texts."""

    train: tuple[str, ...] = option(
        (), help="A file with a text a line, or a .jsonl, .csv, .tsv or .parquet file (may end in .gz or .xz)"
    )
    corpus: str | None = option(None, help="Instead of files, a corpus by name: chitchat or plays")
    folder: Path | None = option(None, help="Where the files of the corpus lie")
    text: str = option("text", help="The column of the text")
    owner: str | None = option(None, help="The column that says whose a text is")
    held_out: float = option(
        0.0, within=PART, help="Leave out the share that a model with the same setting is tested on"
    )
    public: bool = option(False, help="Say that the texts are public: nothing of them is hidden")

    def streams(self) -> "list[Texts]":
        """The texts of each file."""
        from dpnlp.data.corpora import named
        from dpnlp.data.plain import Columns, plain
        from dpnlp.data.records import divided

        if (self.corpus is None) == (not self.train):
            raise BadInput("--data.train, --data.corpus: exactly one of them must say which texts.")
        found: list[Any] = [plain(source, Columns(self.text, self.owner)) for source in self.train]
        if self.corpus is not None:
            found = [named(self.corpus, self.folder, owner=self.owner, kind="plain").train]
        return [divided(stream, self.held_out)[0] if self.held_out else stream for stream in found]


@dataclass(frozen=True)
class Privacy:
    """What is promised of private texts."""

    epsilon: float | None = option(None, within=PROMISED, help="ε for all of the words together")
    delta: float = option(
        1e-6, within=DELTA, help="δ, well below one in the number of users, and below that of the model to come"
    )
    unit: Literal["example", "document", "user"] = option(
        "user", help="Whose presence is hidden; document and user need --data.owner"
    )
    ledger: Path | None = option(None, help="The ledger that is charged; by default the one beside the data")
    seed: int | None = option(
        None,
        within=SEED,
        help="Makes the choice repeatable, for research: whoever knows the seed can take the noise off",
    )


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Make a vocabulary, as a folder with a tokenizer. Of public texts it has the most frequent words, or parts of
    words. Of private texts it has words that so many users share that no one of them can be told from it; privacy.json
    has the guarantee, and a model with this vocabulary has to pay for it, too."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp vocabulary --output words --data.train wiki.txt --data.public --most 10000 --lower",
        "dpnlp vocabulary --output words --data.train chats.jsonl --data.owner author --privacy.epsilon 1 "
        "--privacy.delta 1e-7 --lower",
    )

    output: Path = option(help="The folder to make")
    most: int = option(10_000, within=COUNT, help="The most words, or tokens with --subwords, beside those of --base")
    base: Path | None = option(
        None, help="A public vocabulary, all of which is taken; private texts are asked only for what it lacks"
    )
    public_base: bool = option(False, help=PUBLIC)
    words: int = option(
        200,
        within=SIZE,
        help="Of private texts, the most words that one user has a say in: those that he uses most often",
    )
    lower: bool = option(False, help="Take capital letters for small ones")
    subwords: bool = option(False, help="Parts of words by byte-pair encoding, instead of words; of public texts only")
    data: Data = option(Data(), help="texts")
    privacy: Privacy = option(Privacy(), help="privacy")
    json: bool = option(False, help="Print one JSON object instead of words", group="output")

    def run(self) -> None:
        """Makes the folder, or nothing at all, and says what is in it."""
        if self.data.public and self.base:
            raise BadInput(f"base = {self.base}: it is for private texts; leave out --base or --data.public.")
        if self.subwords and self.lower:
            raise BadInput("lower = true: parts of words keep their capital letters; leave out --lower or --subwords.")
        check_ledger(self.privacy.ledger)
        if self.output.exists():
            self._forget()  # A process was killed when nothing but this was left to do.
        door, run = Door(), self._begun()
        try:
            with new_output(self.output) as whole:
                tokenizer, promised = (
                    (self._public(door), None) if self.data.public else self._private(whole, door, run)
                )
                tokenizer.save_pretrained(whole)
                door.keep(whole, Provenance.of(Run(whole).privacy) if promised else None)
                if promised:
                    write(self._charged, f"{run}{_MADE}")
        except Exception:
            self._forget()  # Whoever tries again makes another release.
            raise
        except KeyboardInterrupt:
            raise KeyboardInterrupt("interrupted; nothing is made. The same command begins anew" + self._paid) from None
        self._forget()
        self._print(len(tokenizer), promised)

    @property
    def _charged(self) -> Path:
        """Beside the folder while it is made: the id under which the ledger has it, so that nobody pays twice."""
        place = self.output.absolute()
        return place.with_name(f".{place.name}.charged")

    def _begun(self) -> str:
        """The id under which the ledger has what a killed process began and did not release, or a new one.

        What was made is released when its folder is in its place. If it is in neither place, somebody may have it.
        """
        from dpnlp.runs.privacy import new_id

        run = text_in(self._charged) if self._charged.exists() else new_id()
        if run.endswith(_MADE) and not unfinished(self.output.absolute()).exists():
            return new_id()
        return run.removesuffix(_MADE)

    def _forget(self) -> None:
        with suppress(OSError):
            self._charged.unlink()

    @property
    def _paid(self) -> str:
        begun = self._charged.exists() and not text_in(self._charged).endswith(_MADE)
        return ", and costs nothing more." if begun else "."

    def _print(self, tokens: int, promised: Guarantee | None) -> None:
        if self.json:
            signature = promised.signature() if promised else None
            print_json({"vocabulary": str(self.output), "tokens": tokens, "signature": signature})
            return
        print_facts(f"Vocabulary {self.output}", {"tokens": f"{tokens:,}, with padding, end and unknown"})
        if promised:
            print_guarantee(promised)

    # Of public texts

    def _public(self, door: Door) -> Any:
        from dpnlp.cli.pretrain import refuse_private
        from dpnlp.data.vocabulary import Words, frequent, learned

        if self.privacy.epsilon is not None:
            raise BadInput("data.public = true: public texts need no ε; leave out --privacy.epsilon or --data.public.")
        streams = self.data.streams()
        refuse_private(streams, self.data.public, _DANGER, door)
        texts = (record.text for stream in streams for record in stream)
        words = Words(self.lower)
        return learned(texts, self.most) if self.subwords else words.tokenizer(frequent(texts, words, self.most))

    # Of private texts

    def _private(self, folder: Path, door: Door, run: str) -> tuple[Any, Guarantee]:
        """The ledger is charged before a word comes out, and what is promised is written before the words are."""
        from dpnlp.data.vocabulary import Words
        from dpnlp.mechanisms import PartitionSelection
        from dpnlp.mechanisms.randomness import seeded
        from dpnlp.runs.privacy import Origin

        privacy, words = self.privacy, Words(self.lower)
        if privacy.epsilon is None:
            raise BadInput(
                f"--privacy.epsilon is not given: {_DANGER}; give it, or say by --data.public that they are public."
            )
        texts = self._private_texts()
        selection = PartitionSelection(self.words, privacy.epsilon, privacy.delta, seeded(privacy.seed))
        unit = Unit(privacy.unit)
        promised = selection.guarantee(unit, Adjacency.ADD_REMOVE)
        promised = replace(promised, owner=texts.columns.owner or "" if unit.is_counted_by_owner else "")
        known = self._base(words, door)
        sums = self._summed(selection, texts, words, {*known})
        write(self._charged, run)
        self._charge(texts, selection.event(), promised, run)
        chosen = list(selection.release(sums))[: self.most]
        if not chosen:
            raise BadInput(
                f"privacy.epsilon = {privacy.epsilon:g}: no word is above the threshold of {selection.threshold:.1f}, "
                "and the cost stays in the ledger; take a larger ε, texts of more users, or a public vocabulary."
            )
        whole = door.provenance.promising(Origin(run, self._what, selection.event(), promised), {})
        Run(folder).write_privacy(whole)
        return words.tokenizer([*known, *chosen]), whole.guarantee

    def _private_texts(self) -> "Texts":
        if self.subwords:
            raise BadInput("subwords = true: they are for public texts; say --data.public, or leave it out.")
        streams = self.data.streams()
        if len(streams) > 1:
            raise BadInput(f"data.train = {' '.join(self.data.train)}: private texts must be in one file; join them.")
        if self.privacy.unit != "example" and streams[0].columns.owner is None:
            raise BadInput(
                f"privacy.unit = {self.privacy.unit}: nothing says whose each text is; name the column by "
                "--data.owner, or protect one text by --privacy.unit example."
            )
        return streams[0]

    def _base(self, words: "Words", door: Door) -> list[str]:
        """The words that are public anyway, or of which nothing is known."""
        from dpnlp.models.pretrained import load_tokenizer

        if self.base is None:
            return []
        if not self.base.is_dir():
            raise BadInput(f"base = {self.base}: it has no tokenizer; make one by dpnlp vocabulary.")
        tokenizer = door.open(load_tokenizer, self.base, public=self.public_base)
        door.refuse_costs("base", self.base)
        return words.known_to(tokenizer)

    def _summed(self, selection: "PartitionSelection", texts: "Texts", words: "Words", known: Set[str]) -> Counter[str]:
        """The sums over all units, of which there are enough for δ, of words that are not known yet."""
        from dpnlp.data.vocabulary import of_each_owner, of_each_text

        total, many = Counter[str](), 0
        named = of_each_text(texts, words) if self.privacy.unit == "example" else of_each_owner(texts, words)
        for many, its in enumerate(named, 1):  # noqa: B007
            total.update(selection.contribution(word for word in its if word not in known))
        if selection.delta >= 1 / many:
            raise BadInput(
                f"privacy.delta = {selection.delta:g}: it must be below one in the number of {self.privacy.unit}s, "
                f"1/{many}, else one of them could be published in clear; take at most {0.1 / many:.0e}."
            )
        return total

    def _charge(self, texts: "Texts", event: "Event", promised: Guarantee, run: str) -> None:
        from dpnlp.accounting.releases import Release
        from dpnlp.data.ledgers import DataSet

        release = Release.now(run, self._what, event, promised.unit, promised.adjacency, promised.owner)
        DataSet.read(texts, self.privacy.ledger).charge(release)

    @property
    def _what(self) -> str:
        """The release, in words."""
        return f"dpnlp vocabulary {self.output.name}"
