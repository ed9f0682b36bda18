"""`dpnlp pretrain` for methods that train nothing: echo, words and sampling."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from dpnlp.checks import BadInput
from dpnlp.cli.config import option
from dpnlp.cli.pretrain import WHAT, Data, Pretrain, PretrainOfTexts
from dpnlp.cli.ranges import ANY, LINE, SIZE
from dpnlp.cli.start import PUBLIC
from dpnlp.runs.provenance import Door


@dataclass(frozen=True)
class Encoder:
    """What tells which sentences are alike."""

    encoder: str = option(help="A public sentence encoder: a folder of Hugging Face, or an id")
    longest: int = option(128, within=SIZE, help="Texts are cut to this many tokens")
    public_start: bool = option(False, help=PUBLIC)


@dataclass(frozen=True, kw_only=True)
class PretrainEcho(PretrainOfTexts):
    """Make a rewriter of public texts; what is described here is echo, and --method names others. With echo a text
    comes back as a public sentence that means alike: a sentence encoder gives vectors to all sentences, and nothing is
    trained."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp pretrain --method echo --output rewriters/echo --data.train tatoeba.txt --data.public "
        "--model.encoder sentence-transformers/all-MiniLM-L6-v2",
        "dpnlp pretrain --method adept --help",
    )

    method: str = option("echo", help=WHAT)
    model: Encoder = option(help="model")

    def made(self, door: Door, folder: Path) -> dict[str, str]:
        from dpnlp.models.sentence_vectors import SentenceEncoder
        from dpnlp.rewriting import echo

        texts = self.data.texts(door)
        encoder = door.open(
            SentenceEncoder.load, self.model.encoder, longest=self.model.longest, public=self.model.public_start
        )
        encoder.refuse_unknown(texts)
        bank = echo.Bank.of(texts, encoder)
        echo.save(bank, encoder, folder)
        preferred = {f"preferred at ε = {epsilon}": f"{bank.preferred(epsilon):,}" for epsilon in (1, 3, 10)}
        return {"sentences": f"{len(bank):,}", **preferred}


@dataclass(frozen=True, kw_only=True)
class PretrainWords(Pretrain):
    """Make a rewriter that exchanges word by word, by noise on public word vectors. Its promise is for a word and not
    for a text; nothing is trained."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp pretrain --method words --output rewriters/words --vectors glove.6B.50d.txt",
    )

    method: str = option("words", help=WHAT)
    vectors: Path = option(help="A file of word vectors as GloVe's are")
    public_start: bool = option(False, help=PUBLIC)

    def made(self, door: Door, folder: Path) -> dict[str, str]:
        from dpnlp.models.word_vectors import read_vectors
        from dpnlp.rewriting import word_metric

        vectors = door.open(read_vectors, self.vectors, public=self.public_start)
        word_metric.WordMetric(vectors, 1.0)  # What cannot rewrite is refused here.
        word_metric.save(self.vectors, folder)
        return {"words": f"{len(vectors.words):,}"}


@dataclass(frozen=True)
class Paraphraser:
    """Which model writes, and how."""

    start: str = option(help="A folder or id of Hugging Face with a model that writes texts, such as a T5 or a BART")
    bounds: tuple[float, ...] = option(
        (),
        within=ANY,
        help="What its logits are clipped to, two numbers; without them they are chosen on the public texts",
    )
    prefix: str = option("", within=LINE, help="What is put before each text, such as 'paraphrase: '")
    tokens: int = option(32, within=SIZE, help="The most tokens of a rewritten text, over which ε is shared out")
    longest: int = option(128, within=SIZE, help="Texts are cut to this many tokens, the prefix among them")
    public_start: bool = option(False, help=PUBLIC)


@dataclass(frozen=True, kw_only=True)
class PretrainSampling(PretrainOfTexts):
    """Make a rewriter of a public model that paraphrases: its logits are clipped, and each token is drawn, so that the
    text reaches what is written through these draws alone; nothing is trained."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp pretrain --method sampling --output rewriters/t5 --model.start google/flan-t5-base "
        "--model.prefix 'paraphrase: ' --data.train public.txt --data.public",
        "dpnlp pretrain --method sampling --output rewriters/t5 --model.start t5 --model.bounds -20 10",
    )

    method: str = option("sampling", help=WHAT)
    data: Data = option(Data(train=()), help="texts")
    model: Paraphraser = option(help="model")

    def made(self, door: Door, folder: Path) -> dict[str, str]:
        from dpnlp.models import pretrained
        from dpnlp.rewriting import clipped_sampling

        model = self.model
        bounds: Any = model.bounds
        how: dict[str, Any] = {"prefix": model.prefix, "longest": model.longest}
        if len(bounds) not in (0, 2):
            raise BadInput(f"model.bounds = {bounds}: it must be two numbers, the lower one first.")
        if bool(bounds) is bool(self.data.train):
            given = "both are given" if bounds else "neither is given"
            raise BadInput(f"model.bounds and data.train: {given}; give one of the two.")
        loaded = door.open(pretrained.load, model.start, public=model.public_start)
        if not bounds:
            bounds = clipped_sampling.usual_bounds(loaded, self.data.texts(door), tokens=model.tokens, **how)
        rewriter = clipped_sampling.ClippedSampling(loaded, bounds, model.tokens, 1.0, **how)
        clipped_sampling.save(rewriter, folder)
        return {"tokens": str(model.tokens), "clipped to": f"{bounds[0]:g} to {bounds[1]:g}"}
