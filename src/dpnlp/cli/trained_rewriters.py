"""`dpnlp pretrain` for methods that are trained: ADePT, DP-BART and Retell."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dpnlp.cli.config import option
from dpnlp.cli.pretrain import WHAT, PretrainOfTexts
from dpnlp.cli.ranges import (
    COUNT,
    COUNT_OR_0,
    DELTA_OR_0,
    EPOCHS,
    FEW,
    FEW_OR_0,
    LENGTH,
    PART,
    PROMISED,
    RATE,
    SEED,
    SIZE,
)
from dpnlp.cli.start import PUBLIC
from dpnlp.runs.provenance import Door

if TYPE_CHECKING:
    from dpnlp.models.pretrained import Pretrained
    from dpnlp.rewriting.bart_autoencoder import Autoencoder as BartAutoencoder


@dataclass(frozen=True)
class Autoencoder:
    """The shape of the autoencoder."""

    width: int = option(300, within=SIZE, help="The width of a word's vector")
    hidden: int = option(512, within=SIZE, help="The width of either LSTM; a latent has twice as many entries")
    longest: int = option(20, within=SIZE, help="Words of a text that are read, and the most that are written")
    clip: Literal["l1", "l2"] = option("l2", help="The norm that latents are clipped by")
    bound: float = option(5.0, within=LENGTH, help="C, what they are clipped to")
    words: int | None = option(None, within=SIZE, help="Keep so many of the most frequent words; without it all")


@dataclass(frozen=True)
class Fitting:
    """How it is trained."""

    lot_size: int = option(16, within=COUNT, help="Texts in a lot")
    epochs: float = option(10.0, within=EPOCHS, help="Passes over the texts")
    rate: float = option(0.003, within=RATE, help="The learning rate; it falls to 0")
    seed: int = option(0, within=SEED, help="Where the weights start from")


@dataclass(frozen=True, kw_only=True)
class PretrainAdept(PretrainOfTexts):
    """Train the autoencoder of ADePT on public texts: an LSTM reads a text, and another one writes it again from a
    clipped latent, to which dpnlp rewrite adds noise."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp pretrain --method adept --output rewriters/adept --data.train tatoeba.txt --data.public",
    )

    method: str = option("adept", help=WHAT)
    model: Autoencoder = option(Autoencoder(), help="model")
    learning: Fitting = option(Fitting(), help="learning")

    def made(self, door: Door, folder: Path) -> dict[str, str]:
        from dpnlp.accounting.subsampling import Sampling, Schedule
        from dpnlp.models.pretrained import save_autoencoder
        from dpnlp.rewriting import adept
        from dpnlp.training import Optimizer, Options, Plan
        from dpnlp.training.optimizers import Decay

        texts, model, learning = self.data.texts(door), self.model, self.learning
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
        save_autoencoder(trained, folder / "model")
        return {"made of": f"{len(texts):,} texts", "words": f"{trained.model.config.vocabulary:,}"}


@dataclass(frozen=True, kw_only=True)
class Scratch:
    """The shape of a model that starts from nothing."""

    vocabulary: int = option(8000, within=SIZE, help="For scratch: tokens of a vocabulary made of the texts")
    width: int = option(256, within=SIZE, help="For scratch: the width of the model")
    layers: int = option(3, within=FEW, help="For scratch: layers of the encoder, and of the decoder")
    heads: int = option(4, within=FEW, help="For scratch: heads of attention")
    hidden: int = option(1024, within=SIZE, help="For scratch: the width of the feed-forward layers")

    def shape(self, seed: int | None) -> dict[str, Any]:
        """What `pretrained.from_scratch` is told."""
        names = ("width", "layers", "heads", "hidden")
        rest = {"dropout": 0.0, "computes": "float32", "seed": seed or 0}
        return {name: getattr(self, name) for name in names} | rest


@dataclass(frozen=True, kw_only=True)
class Bart(Scratch):
    """Which BART, and what passes from its encoder to its decoder."""

    start: str = option(help="A folder or id of Hugging Face with a BART, or scratch for a small one")
    length: int = option(20, within=SIZE, help="l, the tokens of a text that are read; all texts are padded to as many")
    bound: float | None = option(
        None,
        within=LENGTH,
        help="C, what each entry of a state is clipped to; by default half a deviation of those of the texts",
    )
    rounds: int = option(
        0, within=FEW_OR_0, help="Rounds of pruning, each with training after it (PR); 0 keeps all neurons (CLV)"
    )
    epsilon: float | None = option(None, within=PROMISED, help="Train on with the noise of this ε at the end (PR+)")
    delta: float = option(1e-6, within=DELTA_OR_0, help="The δ of that noise; 0 is for Laplace noise")
    public_start: bool = option(False, help=PUBLIC)


@dataclass(frozen=True)
class Steps:
    """How it is trained."""

    steps: int = option(
        0, within=COUNT_OR_0, help="Steps before anything is pruned; a model from scratch needs thousands"
    )
    steps_a_round: int = option(500, within=COUNT_OR_0, help="Steps after each round of pruning")
    steps_with_noise: int = option(10_000, within=COUNT_OR_0, help="Steps with noise")
    batch: int = option(32, within=SIZE, help="Texts in a step")
    rate: float = option(1e-4, within=RATE, help="The learning rate; it falls to 0 in each part")
    masked: float = option(
        0.0, within=PART, help="The share of tokens that the encoder is not shown before anything is pruned"
    )
    seed: int | None = option(None, within=SEED, help="Makes the training repeatable")


@dataclass(frozen=True, kw_only=True)
class PretrainBart(PretrainOfTexts):
    """Make the rewriter of DP-BART: the states of a BART's encoder are clipped by value, and dpnlp rewrite adds noise
    to them. With rounds of pruning fewer neurons pass, and so less noise is needed (PR); training with noise gets the
    decoder used to it (PR+)."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp pretrain --method dp-bart --output rewriters/bart --data.train openwebtext.txt --data.public "
        "--model.start facebook/bart-base --model.bound 0.1 --model.rounds 6 --model.epsilon 500",
    )

    method: str = option("dp-bart", help=WHAT)
    model: Bart = option(help="model")
    learning: Steps = option(Steps(), help="learning")

    def made(self, door: Door, folder: Path) -> dict[str, str]:
        from dpnlp.mechanisms.randomness import seeded
        from dpnlp.rewriting.bart_autoencoder import Training
        from dpnlp.rewriting.pruning import prune
        from dpnlp.training import Optimizer
        from dpnlp.training.optimizers import Decay

        texts, model, learning = self.data.texts(door), self.model, self.learning
        how: dict[str, Any] = {"private": self.data.unsafe, "source": seeded(learning.seed)}

        def training(steps: int, masked: float = 0.0) -> Training:
            return Training(steps, learning.batch, Optimizer(learning.rate, decay=Decay.LINEAR), masked)

        bart = self._started(texts, door)
        if learning.steps:
            bart = bart.trained(texts, training(learning.steps, learning.masked), **how)
        bart = bart.within(model.bound or bart.spread(texts[:1000]).bound())
        if model.rounds:
            bart = prune(bart, texts, training(learning.steps_a_round), rounds=model.rounds, **how)
        if model.epsilon is not None:
            noisy = training(learning.steps_with_noise)
            bart = bart.hardened(texts, noisy, epsilon=model.epsilon, delta=model.delta, **how)
        bart.save(folder / "model")
        held = bart.bottleneck
        neurons = f"{len(held.kept)} of {held.width}"
        return {"made of": f"{len(texts):,} texts", "neurons": neurons, "clipped to": f"{held.clip.bound:.3g}"}

    def _started(self, texts: Sequence[str], door: Door) -> "BartAutoencoder":
        from dpnlp.models import pretrained
        from dpnlp.rewriting.bart_autoencoder import Autoencoder

        model = self.model
        if model.start != "scratch":
            return Autoencoder.of(
                door.open(pretrained.load, model.start, public=model.public_start), length=model.length
            )
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
    directions: int = option(64, within=SIZE, help="n, the principal directions of public vectors that are kept")
    states: int = option(8, within=FEW, help="k, the states that a noisy latent is made into for the decoder")
    epsilons: tuple[float, ...] = option(
        (1.0, 1000.0), within=PROMISED, help="The smallest and the largest ε that it is trained for"
    )
    delta: float = option(1e-6, within=DELTA_OR_0, help="The δ of their noise")
    longest: int = option(32, within=SIZE, help="Tokens of a text that are learned, and the most that are written")
    read: int = option(128, within=SIZE, help="Texts are cut to this many tokens before they get their vector")
    public_start: bool = option(False, help=PUBLIC)


@dataclass(frozen=True)
class NoisySteps:
    """How it is trained."""

    steps: int = option(20_000, within=COUNT_OR_0, help="Steps, all of them with noise")
    batch: int = option(64, within=SIZE, help="Texts in a step")
    rate: float = option(1e-4, within=RATE, help="The learning rate; it falls to 0")
    seed: int | None = option(None, within=SEED, help="Makes the training repeatable")


@dataclass(frozen=True, kw_only=True)
class PretrainRetell(PretrainOfTexts):
    """Train a decoder on public texts to write a sentence from its clipped and noisy vector, for a whole range of ε;
    dpnlp rewrite then adds the noise of the ε that is asked for."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp pretrain --method retell --output rewriters/retell --data.train tatoeba.txt --data.public "
        "--model.encoder sentence-transformers/all-MiniLM-L6-v2 --model.start facebook/bart-base",
    )

    method: str = option("retell", help=WHAT)
    model: Teller = option(help="model")
    learning: NoisySteps = option(NoisySteps(), help="learning")

    def made(self, door: Door, folder: Path) -> dict[str, str]:
        from dpnlp.mechanisms.randomness import seeded
        from dpnlp.models.sentence_vectors import SentenceEncoder
        from dpnlp.rewriting import retell
        from dpnlp.training import Optimizer
        from dpnlp.training.optimizers import Decay

        texts, model, learning = self.data.texts(door), self.model, self.learning
        encoder = door.open(SentenceEncoder.load, model.encoder, longest=model.read, public=model.public_start)
        encoder.refuse_unknown(texts)
        retelling = retell.pretrain(
            texts,
            self._writer(texts, door),
            encoder,
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
            source=seeded(learning.seed),
        )
        retell.save(retelling, folder)
        channel = retelling.channel
        sigmas = f"{channel.low:.3g} to {channel.high:.3g}"
        return {"made of": f"{len(texts):,} texts", "clipped to": f"{channel.bound:.3g}", "σ": sigmas}

    def _writer(self, texts: Sequence[str], door: Door) -> "Pretrained":
        from dpnlp.data.vocabulary import learned
        from dpnlp.models import pretrained

        if self.model.start != "scratch":
            return door.open(pretrained.load, self.model.start, public=self.model.public_start)
        tokenizer = learned(texts, self.model.vocabulary)
        return pretrained.from_scratch(tokenizer, **self.model.shape(self.learning.seed))
