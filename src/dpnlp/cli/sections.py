"""The sections that the configs of several verbs share, each with what the library makes of it."""

import math
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dpnlp.accounting.accountant import Accountant
from dpnlp.accounting.subsampling import Sampling
from dpnlp.checks import BadInput
from dpnlp.cli.config import option
from dpnlp.guarantee import Adjacency, Unit

if TYPE_CHECKING:
    from dpnlp.data.corpora import Corpus
    from dpnlp.data.pairs import Pairs
    from dpnlp.metrics.score import Score
    from dpnlp.tasks import translation
    from dpnlp.tasks.translation import Scored
    from dpnlp.training import Clipping, Optimizer, Plan


@dataclass(frozen=True, kw_only=True)
class Texts:
    """How texts are put to a model."""

    longest: int = option(64, help="Texts are cut to this many tokens")
    prefix: str = option("", help="What is put before each text, such as 'translate German to English: '")
    source_language: str | None = option(None, help="The code that mBART, M2M100 or NLLB has for it, such as de_DE")
    target_language: str | None = option(None, help="The same for the language that it is to write")

    @property
    def languages(self) -> tuple[str, str] | None:
        """The codes of both languages, or none of them."""
        if (self.source_language is None) != (self.target_language is None):
            raise BadInput("source_language and target_language: give both of them, or neither.")
        return (self.source_language, self.target_language) if self.source_language and self.target_language else None


@dataclass(frozen=True, kw_only=True)
class Data(Texts):
    """Which texts, and how they are put to a model."""

    train: tuple[str, ...] = option(
        (),
        help="The pairs to learn from: a .jsonl, .csv, .tsv or .parquet file, two aligned text files (each may end in "
        ".gz), a folder saved by datasets, or a dataset of the hub as NAME or NAME:CONFIG",
    )
    validation: tuple[str, ...] = option((), help="Pairs to score the model on while it learns, in the same forms")
    test: tuple[str, ...] = option((), help="Pairs to score it on before and after, in the same forms")
    corpus: str | None = option(None, help="Instead of files, a corpus by name: bsd, clinspen, multi30k or wmt16")
    folder: Path | None = option(None, help="Where the files of the corpus lie")
    source: str = option("source", help="The column of the text to translate; for multi30k, its language")
    target: str = option("target", help="The column of its translation; for multi30k, its language")
    owner: str | None = option(None, help="The column that says whose a pair is, or of which document")
    held_out: float = option(
        0.0, help="Instead of test pairs, a share of the training pairs is kept apart, by owner where there is one"
    )
    most_words: int | None = option(None, help="Leave out pairs with more words than this on a side, or with none")
    ratio: float | None = option(None, help="Leave out pairs with so many times more words on one side, or with none")
    cache: Path | None = option(
        None, help="Where tokenized texts are kept, for you alone, as they are private too; else in ~/.cache/dpnlp"
    )

    @property
    def kept_in(self) -> Path:
        """Where tokenized texts are kept."""
        return self.cache or Path.home() / ".cache" / "dpnlp"

    def but(self, given: Texts) -> "Data":
        """The same but for what is given, that is, for what is not as it would be by itself."""
        changed = {item.name: getattr(given, item.name) for item in fields(given)}
        usual = {item.name: item.default for item in fields(given)}
        return replace(self, **{name: value for name, value in changed.items() if value != usual[name]})

    def splits(self) -> "Corpus":
        """All of the texts, each split as a stream."""
        from dpnlp.data.pairs import divided, kept

        found = self._opened()
        if found.train and (self.most_words or self.ratio):
            found = replace(found, train=kept(found.train, longest=self.most_words, ratio=self.ratio))
        if not self.held_out:
            return found
        if found.test or not found.train:
            raise BadInput(f"held_out = {self.held_out}: there are test pairs, or no training pairs; leave it out.")
        train, test = divided(found.train, self.held_out)
        return replace(found, train=train, test=test)

    def _opened(self) -> "Corpus":
        from dpnlp.data.corpora import Corpus, named

        given = {"train": self.train, "validation": self.validation, "test": self.test}
        if self.corpus is None:
            return Corpus(**{split: self._pairs(files, split) for split, files in given.items() if files})
        if any(given.values()):
            raise BadInput(f"data.corpus = {self.corpus}: files are given too; give one of the two.")
        source, target = (None if name == usual else name for name, usual in self._sides)
        return named(self.corpus, self.folder, source, target, owner=self.owner)

    def _pairs(self, given: tuple[str, ...], split: str) -> "Pairs":
        from dpnlp.data.pairs import Columns, pairs

        if len(given) > 2:
            raise BadInput(f"data.{split} = {' '.join(given)}: it must be one file, or two that are aligned.")
        return pairs(given[0] if len(given) == 1 else given, Columns(self.source, self.target, self.owner), split)

    @property
    def _sides(self) -> tuple[tuple[str, str], ...]:
        """Each side's column, or language, and what it is when not given."""
        return (self.source, "source"), (self.target, "target")


@dataclass(frozen=True)
class Model:
    """What is trained."""

    start: str = option(
        help="A folder or id of Hugging Face, the folder of a run of dpnlp, or scratch for none of them"
    )
    public_start: bool = option(
        False, help="What the run that it starts from was trained on is public, and costs nothing"
    )
    computes: Literal["float32", "bfloat16"] = option("float32", help="The type that it computes in; bfloat16 on a GPU")
    dropout: float | None = option(None, help="Replaces all dropout rates of the model")
    trains: tuple[str, ...] = option(("*",), help="Which parameters are trained, such as 'decoder.*' or last:2")
    frozen: tuple[str, ...] = option((), help="Which of these are not, such as encoder, tokens or cross_attention")
    lora: int = option(0, help="The rank of adapters that are trained instead; 0 has none")
    tokenizer: str | None = option(None, help="For scratch: a folder or id that has a tokenizer made of public texts")
    vocabulary: int = option(
        8000, help="For scratch without privacy: tokens of a vocabulary made of the training texts"
    )
    width: int = option(256, help="For scratch: the width of the model")
    layers: int = option(3, help="For scratch: layers of the encoder, and of the decoder")
    heads: int = option(4, help="For scratch: heads of attention")
    hidden: int = option(1024, help="For scratch: the width of the feed-forward layers")

    @property
    def from_scratch(self) -> bool:
        return self.start == "scratch"


@dataclass(frozen=True)
class Privacy:
    """What is promised."""

    epsilon: float = option(8.0, help="The ε to stay within; inf trains without privacy")
    delta: float = option(1e-6, help="The δ of the guarantee, well below one in the number of records")
    noise_multiplier: float | None = option(
        None, help="Noise in clip norms, instead of what ε asks for; refused where it would cost more than ε"
    )
    clip_norm: float = option(1.0, help="C, the most that one record may move the sum over a lot")
    clipping: Literal["flat", "per-layer", "automatic"] = option("flat", help="How gradients are brought within C")
    sampling: Sampling = option(Sampling.POISSON, help="How lots are drawn")
    unit: Literal["example", "document", "user"] = option(
        "example", help="Whose presence is hidden; document and user need --data.owner"
    )
    adjacency: Adjacency | None = option(
        None, help="Which data sets are neighbours; by default the sampler's usual one"
    )
    accountant: Accountant = option(Accountant.PLD, help="How the steps are added up")
    examples_per_owner: int = option(16, help="The most pairs that one owner takes part with")
    ledger: Path | None = option(None, help="The ledger that is charged; by default the one beside the data")
    seed: int | None = option(
        None, help="Makes the run repeatable, for research: whoever knows the seed can take the noise off"
    )
    diagnostics: bool = option(
        False, help="Write what each lot showed of the data, too; the statement then says that it is not covered"
    )

    @property
    def is_private(self) -> bool:
        """Whether anything is to be promised."""
        return math.isfinite(self.epsilon) or bool(self.noise_multiplier)

    def plan(self, records: int, learning: "Learning") -> "Plan":
        """The plan for so many records."""
        from dpnlp.accounting.planning import Question
        from dpnlp.training import Plan

        noise = self.noise_multiplier if self.is_private else 0.0
        question = Question(
            records=records,
            delta=self.delta,
            lot_size=learning.lot_size,
            steps=learning.steps,
            epochs=learning.epochs if learning.steps is None else None,
            noise_multiplier=noise,
            epsilon=self.epsilon if noise is None else None,
            sampling=self.sampling,
            adjacency=self.adjacency,
            accountant=self.accountant,
            unit=Unit(self.unit),
        )
        if not self.is_private:
            return Plan.without_privacy(question.answer().schedule)
        plan = Plan.of(question, self._clipping)
        if noise is not None and (cost := plan.epsilon(plan.schedule.steps)) > self.epsilon:
            most = plan.within(self.epsilon).schedule.steps
            raise BadInput(
                f"epsilon = {self.epsilon:g}: {plan.schedule.steps} steps with noise of {noise:g} cost {cost:.4g}; "
                f"take at most {most} of them, more noise, or a larger ε."
            )
        return plan

    @property
    def _clipping(self) -> "Clipping":
        from dpnlp.training import Clipping, Rule

        return Clipping(self.clip_norm, Rule(self.clipping))


@dataclass(frozen=True)
class Learning:
    """How it is learned."""

    lot_size: int = option(256, help="Records in a lot; for Poisson sampling, expected")
    epochs: float = option(10.0, help="Passes over the data, of ⌈records/lot size⌉ steps each")
    steps: int | None = option(None, help="Instead of --learning.epochs: noisy updates in all")
    rate: float = option(1e-3, help="The learning rate")
    optimizer: Literal["sgd", "adam", "adafactor"] = option("adam", help="What is done with a noisy gradient")
    decay: Literal["constant", "linear", "cosine", "inverse-sqrt"] = option(
        "linear", help="How the learning rate goes on after it has risen"
    )
    warmup: int = option(0, help="Steps over which the learning rate rises to its full height")
    weight_decay: float = option(0.0, help="How much the weights shrink, times the learning rate, at each step")
    smoothing: float = option(0.0, help="Label smoothing: how much of the probability goes to all tokens alike")
    average: float = option(0.0, help="Decay of the average of the weights that is kept in the end; 0 takes none")
    physical_batch: int = option(16, help="Examples on the device at once; changes nothing but speed and memory")
    lengths: tuple[int, ...] = option((), help="Lengths that texts are padded to; by default 16, 32, 64 and so on")
    devices: int = option(1, help="How many devices share each physical batch")
    evaluate_every: float = option(0.0, help="Epochs between scores on the validation pairs; 0 scores at the end alone")
    checkpoint_every: int = option(50, help="Steps between checkpoints, from which a run that was stopped goes on")

    def build(self) -> "Optimizer":
        from dpnlp.training import Optimizer
        from dpnlp.training.optimizers import Decay, Method

        return Optimizer(
            self.rate,
            Method(self.optimizer),
            Decay(self.decay),
            warmup_steps=self.warmup,
            weight_decay=self.weight_decay,
        )


@dataclass(frozen=True)
class Writing:
    """How translations are written."""

    beams: int = option(4, help="Beams of the search for the best translation; 1 takes the best token each time")
    length_penalty: float = option(1.0, help="Above 1 longer translations win more often")
    batch: int = option(32, help="Texts that are translated at once")

    def of(self, longest: int) -> "translation.Writing":
        from dpnlp.tasks import translation

        return translation.Writing(longest, self.beams, self.length_penalty, self.batch)


@dataclass(frozen=True)
class Scoring(Writing):
    """How it is scored."""

    most: int | None = option(None, help="Score only so many validation pairs while the model learns")
    bleu_tokenizer: str = option("13a", help="How sacreBLEU cuts the target language into words; ja-mecab, zh or char")
    bertscore: str | None = option(None, help="A BERT-shaped model, folder or id, for BERTScore as well")
    bertscore_layer: int | None = option(None, help="Which layer of it is compared; by default the last one")

    def scores(self, scored: "Scored") -> "dict[str, Score]":
        """All scores of some translations, by name."""
        scores = {"bleu": scored.bleu(self.bleu_tokenizer), "chrf": scored.chrf()}
        if self.bertscore is not None:
            from dpnlp.metrics.bertscore import bertscore
            from dpnlp.models.pretrained import load_encoder

            encoder = load_encoder(self.bertscore)
            layer = encoder.model.config.layers if self.bertscore_layer is None else self.bertscore_layer
            scores["bertscore"] = bertscore(scored.hypotheses, scored.references, encoder, layer=layer)
        return scores
