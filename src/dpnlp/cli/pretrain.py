"""`dpnlp pretrain`: a rewriter is made of public texts. Each method has settings of its own."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from dpnlp.checks import BadInput
from dpnlp.cli.config import nearest, option
from dpnlp.cli.output import print_facts
from dpnlp.cli.tasks import flag_of


@dataclass(frozen=True, kw_only=True)
class Data:
    """Which public texts."""

    train: tuple[str, ...] = option(
        help="Files with a text a line, or .jsonl, .csv, .tsv or .parquet files (each may end in .gz)"
    )
    text: str = option("text", help="The column of the text")
    public: bool = option(False, help="Say that the texts are public: nothing of them is hidden")

    def texts(self) -> list[str]:
        """All of them, once it is certain that they are public."""
        from dpnlp.accounting.ledger import Ledger
        from dpnlp.data.plain import Columns, plain

        streams = [plain(source, Columns(self.text)) for source in self.train]
        for stream in streams:
            if Ledger.beside(stream.place).path.exists():
                raise BadInput(
                    f"data.train = {stream.place}: a ledger lies beside it, so it is private, and what a rewriter is "
                    "made of can come out of it word by word; give public texts."
                )
        if not self.public:
            raise BadInput(
                f"data.train = {self.train[0]}: what a rewriter is made of can come out of it word by word; if it is "
                "public say so by --data.public, else give other texts."
            )
        return [record.text for stream in streams for record in stream]


@dataclass(frozen=True, kw_only=True)
class Pretrain(ABC):
    """What all methods have in common."""

    method: str = option(help="How texts are rewritten")
    output: Path = option(help="The folder to make")
    data: Data = option(help="texts")

    def run(self) -> None:
        """Makes the folder."""
        from dpnlp.rewriting.folders import describe

        if self.output.exists():
            raise BadInput(f"output = {self.output}: it is there already; choose another folder.")
        texts = self.data.texts()
        self.output.mkdir(parents=True)
        facts = self.make(texts)
        describe(self.output, self.method)
        print_facts(f"Rewriter {self.output}", {"method": self.method, "made of": f"{len(texts):,} texts", **facts})

    @abstractmethod
    def make(self, texts: Sequence[str]) -> dict[str, str]:
        """Writes what the method needs into the folder, and says what is worth knowing of it."""

    @classmethod
    def chosen(cls, arguments: Sequence[str]) -> Any:
        """The settings of the method that is typed."""
        method = flag_of("--method", arguments) or "echo"
        if method not in METHODS:
            raise BadInput(
                f"method = {method}: it must be one of {', '.join(METHODS)}; the nearest is {nearest(method, METHODS)}."
            )
        return METHODS[method]


@dataclass(frozen=True)
class EchoModel:
    """What tells which sentences are alike."""

    encoder: str = option(help="A public sentence encoder: a folder of Hugging Face, or an id")
    longest: int = option(128, help="Texts are cut to this many tokens")


@dataclass(frozen=True, kw_only=True)
class PretrainEcho(Pretrain):
    """Make a rewriter of public texts. With echo, a text comes back as a public sentence that means alike: a sentence
    encoder gives vectors to all sentences, and nothing is trained."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp pretrain --method echo --output rewriters/echo --data.train tatoeba.txt --data.public "
        "--model.encoder sentence-transformers/all-MiniLM-L6-v2",
    )

    method: str = option("echo", help="How texts are rewritten: echo")
    model: EchoModel = option(help="model")

    def make(self, texts: Sequence[str]) -> dict[str, str]:
        from dpnlp.models.sentence_vectors import SentenceEncoder
        from dpnlp.rewriting import echo

        encoder = SentenceEncoder.load(self.model.encoder, longest=self.model.longest)
        bank = echo.Bank.of(texts, encoder)
        echo.save(bank, encoder, self.output)
        preferred = {f"preferred at ε = {epsilon}": f"{bank.preferred(epsilon):,}" for epsilon in (1, 3, 10)}
        return {"sentences": f"{len(bank):,}", **preferred}


METHODS = {"echo": PretrainEcho}
