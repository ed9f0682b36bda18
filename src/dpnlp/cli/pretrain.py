"""`dpnlp pretrain`: a rewriter is made of public texts. Each method has settings of its own."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dpnlp.checks import BadInput
from dpnlp.cli.config import nearest, option
from dpnlp.cli.output import print_facts
from dpnlp.cli.tasks import flag_of
from dpnlp.guarantee import Exposure

if TYPE_CHECKING:
    from dpnlp.data.plain import Texts
    from dpnlp.models.pretrained import Pretrained
    from dpnlp.rewriting.bart_autoencoder import Autoencoder as BartAutoencoder

_WHAT = (
    "How texts are rewritten: echo, noisy-echo, retell, adept, dp-bart, words or sampling; each has flags of its own"
)


@dataclass(frozen=True, kw_only=True)
class Data:
    """Which public texts."""

    train: tuple[str, ...] = option(
        help="Files with a text a line, or .jsonl, .csv, .tsv or .parquet files (each may end in .gz)"
    )
    text: str = option("text", help="The column of the text")
    public: bool = option(False, help="Say that the texts are public: nothing of them is hidden")
    unsafe: bool = option(
        False, help="Take private texts all the same, to study what comes out; every guarantee then says so"
    )

    def texts(self) -> list[str]:
        """All of them, once it is certain that they are public."""
        from dpnlp.data.plain import Columns, plain

        streams = [plain(source, Columns(self.text)) for source in self.train]
        if not self.unsafe:
            self._refuse_private(streams)
        return [record.text for stream in streams for record in stream]

    def _refuse_private(self, streams: "Sequence[Texts]") -> None:
        from dpnlp.accounting.ledger import Ledger

        danger = "what a rewriter is made of can come out of it word by word"
        for stream in streams:
            if Ledger.beside(stream.place).path.exists():
                raise BadInput(
                    f"data.train = {stream.place}: a ledger is beside it, so it is private, and {danger}; give others."
                )
        if not self.public:
            raise BadInput(
                f"data.train = {self.train[0]}: {danger}; if it is public say so by --data.public, else give other "
                "texts."
            )


@dataclass(frozen=True, kw_only=True)
class Pretrain(ABC):
    """What all methods have in common."""

    method: str
    output: Path = option(help="The folder to make")

    def run(self) -> None:
        """Makes the folder."""
        from dpnlp.rewriting.folders import describe

        if self.output.exists():
            raise BadInput(f"output = {self.output}: it is there already; choose another folder.")
        facts = self.made()
        describe(self.output, self.method, self.exposures)
        print_facts(f"Rewriter {self.output}", {"method": self.method, **facts})

    @property
    def exposures(self) -> tuple[Exposure, ...]:
        """What of private texts goes into it."""
        return ()

    @abstractmethod
    def made(self) -> dict[str, str]:
        """Makes the folder with what the method needs in it, and says what is worth knowing."""

    @classmethod
    def chosen(cls, arguments: Sequence[str]) -> Any:
        """The settings of the method that is typed."""
        method = flag_of("--method", arguments) or "echo"
        if method not in METHODS:
            known = ", ".join(METHODS)
            raise BadInput(f"method = {method}: it must be one of {known}; the nearest is {nearest(method, METHODS)}.")
        return METHODS[method]


@dataclass(frozen=True, kw_only=True)
class PretrainOfTexts(Pretrain):
    """A method that is made of texts."""

    data: Data = option(help="texts")

    @property
    def exposures(self) -> tuple[Exposure, ...]:
        return (Exposure.PRETRAINING, Exposure.VOCABULARY) if self.data.unsafe else ()


@dataclass(frozen=True)
class Encoder:
    """What tells which sentences are alike."""

    encoder: str = option(help="A public sentence encoder: a folder of Hugging Face, or an id")
    longest: int = option(128, help="Texts are cut to this many tokens")


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

    method: str = option("echo", help=_WHAT)
    model: Encoder = option(help="model")

    def made(self) -> dict[str, str]:
        from dpnlp.models.sentence_vectors import SentenceEncoder
        from dpnlp.rewriting import echo

        texts = self.data.texts()
        encoder = SentenceEncoder.load(self.model.encoder, longest=self.model.longest)
        bank = echo.Bank.of(texts, encoder)
        echo.save(bank, encoder, self.output)
        preferred = {f"preferred at ε = {epsilon}": f"{bank.preferred(epsilon):,}" for epsilon in (1, 3, 10)}
        return {"sentences": f"{len(bank):,}", **preferred}


@dataclass(frozen=True)
class Autoencoder:
    """The shape of the autoencoder."""

    width: int = option(300, help="The width of a word's vector")
    hidden: int = option(512, help="The width of either LSTM; a latent has twice as many entries")
    longest: int = option(20, help="Words of a text that are read, and the most that are written")
    clip: Literal["l1", "l2"] = option("l2", help="The norm that latents are clipped by")
    bound: float = option(5.0, help="C, what they are clipped to")
    words: int | None = option(None, help="Keep so many of the most frequent words; without it all")


@dataclass(frozen=True)
class Fitting:
    """How it is trained."""

    lot_size: int = option(16, help="Texts in a lot")
    epochs: float = option(10.0, help="Passes over the texts")
    rate: float = option(0.003, help="The learning rate; it falls to 0")
    seed: int = option(0, help="Where the weights start from")


@dataclass(frozen=True, kw_only=True)
class PretrainAdept(PretrainOfTexts):
    """Train the autoencoder of ADePT on public texts: an LSTM reads a text, and another one writes it again from a
    clipped latent, to which dpnlp rewrite adds noise."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp pretrain --method adept --output rewriters/adept --data.train tatoeba.txt --data.public",
    )

    method: str = option("adept", help=_WHAT)
    model: Autoencoder = option(Autoencoder(), help="model")
    learning: Fitting = option(Fitting(), help="learning")

    def made(self) -> dict[str, str]:
        from dpnlp.accounting.subsampling import Sampling, Schedule
        from dpnlp.models.pretrained import save_autoencoder
        from dpnlp.rewriting import adept
        from dpnlp.training import Optimizer, Options, Plan
        from dpnlp.training.optimizers import Decay

        texts, model, learning = self.data.texts(), self.model, self.learning
        lot = min(learning.lot_size, len(texts))
        steps = round(learning.epochs * -(-len(texts) // lot))
        plan = Plan.without_privacy(Schedule(len(texts), lot, steps, Sampling.SHUFFLED))
        trained = adept.pretrain(
            texts,
            plan,
            private=self.data.unsafe,
            most=model.words,
            optimizer=Optimizer(learning.rate, decay=Decay.LINEAR),
            options=Options(physical_batch=lot, lengths=(model.longest + 2,)),
            seed=learning.seed,
            width=model.width,
            hidden=model.hidden,
            longest=model.longest,
            order=1 if model.clip == "l1" else 2,
            bound=model.bound,
        )
        self.output.mkdir(parents=True)
        save_autoencoder(trained, self.output / "model")
        return {"made of": f"{len(texts):,} texts", "words": f"{trained.model.config.vocabulary:,}"}


@dataclass(frozen=True, kw_only=True)
class PretrainWords(Pretrain):
    """Make a rewriter that exchanges word by word, by noise on public word vectors. Its promise is for a word and not
    for a text; nothing is trained."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp pretrain --method words --output rewriters/words --vectors glove.6B.50d.txt",
    )

    method: str = option("words", help=_WHAT)
    vectors: Path = option(help="A file of word vectors as GloVe's are")

    def made(self) -> dict[str, str]:
        from dpnlp.models.word_vectors import read_vectors
        from dpnlp.rewriting import word_metric

        vectors = read_vectors(self.vectors)
        self.output.mkdir(parents=True)
        word_metric.save(self.vectors, self.output)
        return {"words": f"{len(vectors.words):,}"}


@dataclass(frozen=True)
class Paraphraser:
    """Which model writes, and how."""

    start: str = option(help="A folder or id of Hugging Face with a model that writes texts, such as a T5 or a BART")
    bounds: tuple[float, ...] = option(help="What its logits are clipped to, two numbers, chosen without private texts")
    prefix: str = option("", help="What is put before each text, such as 'paraphrase: '")
    tokens: int = option(32, help="The most tokens of a rewritten text, over which ε is shared out")
    longest: int = option(128, help="Texts are cut to this many tokens, the prefix among them")


@dataclass(frozen=True, kw_only=True)
class PretrainSampling(Pretrain):
    """Make a rewriter of a public model that paraphrases: its logits are clipped, and each token is drawn, so that the
    text reaches what is written through these draws alone; nothing is trained."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp pretrain --method sampling --output rewriters/t5 --model.start google/flan-t5-base "
        "--model.prefix 'paraphrase: ' --model.bounds -20 10",
    )

    method: str = option("sampling", help=_WHAT)
    model: Paraphraser = option(help="model")

    def made(self) -> dict[str, str]:
        from dpnlp.models import pretrained
        from dpnlp.rewriting import clipped_sampling

        start, bounds, prefix, tokens, longest = vars(self.model).values()
        if len(bounds) != 2:
            raise BadInput(f"model.bounds = {bounds}: it must be two numbers, the lower one first.")
        loaded = pretrained.load(start)
        rewriter = clipped_sampling.ClippedSampling(loaded, bounds, tokens, 1.0, prefix=prefix, longest=longest)
        self.output.mkdir(parents=True)
        clipped_sampling.save(rewriter, self.output)
        return {"tokens": str(tokens), "clipped to": f"{bounds[0]:g} to {bounds[1]:g}"}


@dataclass(frozen=True, kw_only=True)
class Scratch:
    """The shape of a model that starts from nothing."""

    vocabulary: int = option(8000, help="For scratch: tokens of a vocabulary made of the texts")
    width: int = option(256, help="For scratch: the width of the model")
    layers: int = option(3, help="For scratch: layers of the encoder, and of the decoder")
    heads: int = option(4, help="For scratch: heads of attention")
    hidden: int = option(1024, help="For scratch: the width of the feed-forward layers")

    def shape(self, seed: int | None) -> dict[str, Any]:
        """What `pretrained.from_scratch` is told."""
        names = ("width", "layers", "heads", "hidden")
        rest = {"dropout": 0.0, "computes": "float32", "seed": seed or 0}
        return {name: getattr(self, name) for name in names} | rest


@dataclass(frozen=True, kw_only=True)
class Bart(Scratch):
    """Which BART, and what passes from its encoder to its decoder."""

    start: str = option(help="A folder or id of Hugging Face with a BART, or scratch for a small one")
    length: int = option(20, help="l, the tokens of a text that are read; all texts are padded to as many")
    bound: float | None = option(
        None, help="C, what each entry of a state is clipped to; by default half a deviation of those of the texts"
    )
    rounds: int = option(0, help="Rounds of pruning, each with training after it (PR); 0 keeps all neurons (CLV)")
    epsilon: float | None = option(None, help="Train on with the noise of this ε at the end (PR+)")
    delta: float = option(1e-6, help="The δ of that noise; 0 is for Laplace noise")


@dataclass(frozen=True)
class Steps:
    """How it is trained."""

    steps: int = option(0, help="Steps before anything is pruned; a model from scratch needs thousands")
    steps_a_round: int = option(500, help="Steps after each round of pruning")
    steps_with_noise: int = option(10_000, help="Steps with noise")
    batch: int = option(32, help="Texts in a step")
    rate: float = option(1e-4, help="The learning rate; it falls to 0 in each part")
    masked: float = option(0.0, help="The share of tokens that the encoder is not shown before anything is pruned")
    seed: int | None = option(None, help="Makes the training repeatable")


@dataclass(frozen=True, kw_only=True)
class PretrainBart(PretrainOfTexts):
    """Make the rewriter of DP-BART: the states of a BART's encoder are clipped by value, and dpnlp rewrite adds noise
    to them. With rounds of pruning fewer neurons pass, and so less noise is needed (PR); training with noise gets the
    decoder used to it (PR+)."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp pretrain --method dp-bart --output rewriters/bart --data.train openwebtext.txt --data.public "
        "--model.start facebook/bart-base --model.bound 0.1 --model.rounds 6 --model.epsilon 500",
    )

    method: str = option("dp-bart", help=_WHAT)
    model: Bart = option(help="model")
    learning: Steps = option(Steps(), help="learning")

    def made(self) -> dict[str, str]:
        from dpnlp.mechanisms.randomness import OS_ENTROPY, FixedSeed
        from dpnlp.rewriting.bart_autoencoder import Training
        from dpnlp.rewriting.pruning import prune
        from dpnlp.training import Optimizer
        from dpnlp.training.optimizers import Decay

        texts, model, learning = self.data.texts(), self.model, self.learning
        how: dict[str, Any] = {
            "private": self.data.unsafe,
            "source": OS_ENTROPY if learning.seed is None else FixedSeed(learning.seed),
        }

        def training(steps: int, masked: float = 0.0) -> Training:
            return Training(steps, learning.batch, Optimizer(learning.rate, decay=Decay.LINEAR), masked)

        bart = self._started(texts)
        if learning.steps:
            bart = bart.trained(texts, training(learning.steps, learning.masked), **how)
        bart = bart.within(model.bound or bart.spread(texts[:1000]).bound())
        if model.rounds:
            bart = prune(bart, texts, training(learning.steps_a_round), rounds=model.rounds, **how)
        if model.epsilon is not None:
            noisy = training(learning.steps_with_noise)
            bart = bart.hardened(texts, noisy, epsilon=model.epsilon, delta=model.delta, **how)
        self.output.mkdir(parents=True)
        bart.save(self.output / "model")
        held = bart.bottleneck
        neurons = f"{len(held.kept)} of {held.width}"
        return {"made of": f"{len(texts):,} texts", "neurons": neurons, "clipped to": f"{held.clip.bound:.3g}"}

    def _started(self, texts: Sequence[str]) -> "BartAutoencoder":
        from dpnlp.models import pretrained
        from dpnlp.rewriting.bart_autoencoder import Autoencoder

        model = self.model
        if model.start != "scratch":
            return Autoencoder.of(pretrained.load(model.start), length=model.length)
        return Autoencoder.from_scratch(
            texts,
            vocabulary=model.vocabulary,
            length=model.length,
            private=self.data.unsafe,
            **model.shape(self.learning.seed),
        )


@dataclass(frozen=True, kw_only=True)
class Teller(Scratch):
    """What becomes of a text's vector, and which model writes from it."""

    encoder: str = option(help="A public sentence encoder: a folder of Hugging Face, or an id")
    start: str = option(help="A folder or id of Hugging Face with a BART, T5 or the like, or scratch for a small one")
    directions: int = option(64, help="n, the principal directions of public vectors that are kept")
    states: int = option(8, help="k, the states that a noisy latent is made into for the decoder")
    epsilons: tuple[float, ...] = option((1.0, 100.0), help="The smallest and the largest ε that it is trained for")
    delta: float = option(1e-6, help="The δ of their noise")
    longest: int = option(32, help="Tokens of a text that are learned, and the most that are written")
    read: int = option(128, help="Texts are cut to this many tokens before they get their vector")


@dataclass(frozen=True)
class NoisySteps:
    """How it is trained."""

    steps: int = option(20_000, help="Steps, all of them with noise")
    batch: int = option(64, help="Texts in a step")
    rate: float = option(1e-4, help="The learning rate; it falls to 0")
    seed: int | None = option(None, help="Makes the training repeatable")


@dataclass(frozen=True, kw_only=True)
class PretrainRetell(PretrainOfTexts):
    """Train a decoder on public texts to write a sentence from its clipped and noisy vector, for a whole range of ε;
    dpnlp rewrite then adds the noise of the ε that is asked for."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp pretrain --method retell --output rewriters/retell --data.train tatoeba.txt --data.public "
        "--model.encoder sentence-transformers/all-MiniLM-L6-v2 --model.start facebook/bart-base",
    )

    method: str = option("retell", help=_WHAT)
    model: Teller = option(help="model")
    learning: NoisySteps = option(NoisySteps(), help="learning")

    def made(self) -> dict[str, str]:
        from dpnlp.mechanisms.randomness import OS_ENTROPY, FixedSeed
        from dpnlp.models.sentence_vectors import SentenceEncoder
        from dpnlp.rewriting import retell
        from dpnlp.training import Optimizer
        from dpnlp.training.optimizers import Decay

        texts, model, learning = self.data.texts(), self.model, self.learning
        retelling = retell.pretrain(
            texts,
            self._writer(texts),
            SentenceEncoder.load(model.encoder, longest=model.read),
            private=self.data.unsafe,
            steps=learning.steps,
            batch=learning.batch,
            optimizer=Optimizer(learning.rate, decay=Decay.LINEAR),
            directions=model.directions,
            states=model.states,
            epsilons=model.epsilons,
            delta=model.delta,
            longest=model.longest,
            seed=learning.seed or 0,
            source=OS_ENTROPY if learning.seed is None else FixedSeed(learning.seed),
        )
        retell.save(retelling, self.output)
        channel = retelling.channel
        sigmas = f"{channel.low:.3g} to {channel.high:.3g}"
        return {"made of": f"{len(texts):,} texts", "clipped to": f"{channel.bound:.3g}", "σ": sigmas}

    def _writer(self, texts: Sequence[str]) -> "Pretrained":
        from dpnlp.data.vocabulary import learned
        from dpnlp.models import pretrained

        if self.model.start != "scratch":
            return pretrained.load(self.model.start)
        tokenizer = learned(texts, self.model.vocabulary)
        return pretrained.from_scratch(tokenizer, **self.model.shape(self.learning.seed))


METHODS = {
    "echo": PretrainEcho,
    "retell": PretrainRetell,
    "adept": PretrainAdept,
    "dp-bart": PretrainBart,
    "words": PretrainWords,
    "sampling": PretrainSampling,
}
