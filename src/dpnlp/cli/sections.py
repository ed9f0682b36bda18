"""The sections that the settings of every task share, each with what the library makes of it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from dpnlp import checks
from dpnlp.accounting.accountant import Accountant
from dpnlp.accounting.subsampling import Sampling
from dpnlp.checks import BadInput
from dpnlp.cli.config import option
from dpnlp.cli.ranges import (
    CLIP_NORM,
    COUNT,
    COUNT_OR_0,
    DELTA,
    EPOCHS,
    FEW,
    FEW_OR_0,
    LENGTH,
    NOISE,
    PART,
    RATE,
    SEED,
    SHARE,
    SIZE,
    SMALL,
    STEPS,
    TARGET,
    between,
)
from dpnlp.guarantee import Adjacency, Unit
from dpnlp.home import cache

if TYPE_CHECKING:
    from dpnlp.accounting.planning import Question
    from dpnlp.data.corpora import Corpus
    from dpnlp.data.identity import Seen
    from dpnlp.training import Clipping, Optimizer, Plan
    from dpnlp.training.contributions import Contribution


@dataclass(frozen=True, kw_only=True)
class Files:
    """Which texts; a task says how they are read."""

    train: tuple[str, ...] = option(
        (),
        help="What to learn from: a .jsonl, .csv, .tsv or .parquet file, two aligned text files (each may end in .gz), "
        "a folder saved by datasets, or a dataset of the hub as NAME or NAME:CONFIG",
    )
    validation: tuple[str, ...] = option((), help="What to score the model on while it learns, in the same forms")
    test: tuple[str, ...] = option((), help="What to score it on before and after, in the same forms")
    corpus: str | None = option(None, help="Instead of files, a corpus by name")
    folder: Path | None = option(None, help="Where the files of the corpus lie")
    owner: str | None = option(None, help="The column that says whose a record is, or of which document")
    held_out: float = option(
        0.0,
        within=PART,
        help="Instead of test data, a share of the training data is kept apart, by owner where there is one",
    )
    share: float = option(
        1.0,
        within=SHARE,
        help="Take only this share of the training data, by owner where there is one; how much that is, is public",
    )
    cache: Path | None = option(
        None, help="Where tokenized texts are kept, for you alone, as they are private too; else in ~/.cache/dpnlp"
    )

    @property
    def kept_in(self) -> Path:
        """Where tokenized texts are kept."""
        return self.cache or cache()

    def splits(self) -> "Corpus[Any]":
        """All of the texts, each split as a stream."""
        from dpnlp.data.records import divided, fewer

        found = self._opened()
        if self.held_out:
            if found.test or not found.train:
                raise BadInput(f"held_out = {self.held_out}: there are test data, or no training data; leave it out.")
            train, test = divided(found.train, self.held_out)
            found = replace(found, train=train, test=test)
        if checks.share("data.share", self.share) < 1 and found.train:
            found = replace(found, train=fewer(found.train, self.share))
        return found

    def seen(self) -> "Seen":
        """The fingerprints of what is learned from."""
        from dpnlp.data.identity import Identity

        return Identity.of_owner().seen(self.splits().train or ())

    def _opened(self) -> "Corpus[Any]":
        from dpnlp.data.corpora import Corpus

        given = {"train": self.train, "validation": self.validation, "test": self.test}
        if self.corpus is None:
            return Corpus(**{split: self._stream(split, files) for split, files in given.items() if files})
        if any(given.values()):
            raise BadInput(f"data.corpus = {self.corpus}: files are given too; give one of the two.")
        return self._named(self.corpus)

    def _stream(self, split: str, given: tuple[str, ...]) -> Any:
        if len(given) > 2:
            raise BadInput(f"data.{split} = {' '.join(given)}: it must be one file, or two that are aligned.")
        return self._read(given[0] if len(given) == 1 else given, split)

    @abstractmethod
    def _read(self, source: str | tuple[str, ...], split: str) -> Any:
        """The records in a file, or in two that are aligned."""

    @abstractmethod
    def _named(self, name: str) -> "Corpus[Any]":
        """The corpus of this name."""


F = TypeVar("F")
_OTHERS = ("validation", "test", "corpus")
_SOURCES = ("train", *_OTHERS, "folder", "held_out")


def changed(settings: F, given: Any, others: Sequence[str] = _OTHERS, sources: Sequence[str] = _SOURCES) -> F:
    """The settings but for what is given, that is, for what is there not as it would be by itself.

    Where one of `others` is given, these are other texts, and none of the settings' own `sources` are left.
    """
    usual = {item.name: item.default for item in fields(given)}
    found = {name: value for name in usual if (value := getattr(given, name)) != usual[name]}
    if found.keys() & {*others}:
        own = {item.name: item.default for item in fields(settings) if item.name in sources}  # type: ignore[arg-type]
        found = own | found
    new: F = replace(settings, **found)  # type: ignore[type-var]
    return new


@dataclass(frozen=True)
class Privacy(ABC):
    """What is promised; a task says of whom."""

    epsilon: float = option(8.0, within=TARGET, help="The ε to stay within; inf trains without privacy")
    delta: float = option(1e-6, within=DELTA, help="The δ of the guarantee, well below one in the number of records")
    noise_multiplier: float | None = option(
        None,
        within=NOISE,
        help="Noise in clip norms, instead of what ε asks for; refused where it would cost more than ε",
    )
    clip_norm: float = option(1.0, within=CLIP_NORM, help="C, the most that one record may move the sum over a lot")
    clipping: Literal["flat", "per-layer", "automatic"] = option("flat", help="How gradients are brought within C")
    sampling: Sampling = option(Sampling.POISSON, help="How lots are drawn")
    bands: int = option(
        1,
        within=COUNT,
        help="For cyclic-poisson and cyclic: over how many steps noise is correlated, so that it cancels in part",
    )
    adjacency: Adjacency | None = option(
        None, help="Which data sets are neighbours; by default the sampler's usual one"
    )
    accountant: Accountant = option(Accountant.PLD, help="How the steps are added up")
    ledger: Path | None = option(None, help="The ledger that is charged; by default the one beside the data")
    seed: int | None = option(
        None, within=SEED, help="Makes the run repeatable, for research: whoever knows the seed can take the noise off"
    )
    diagnostics: bool = option(
        False, help="Write what each lot showed of the data, too; the statement then says that it is not covered"
    )

    @property
    def is_private(self) -> bool:
        """Whether anything is to be promised."""
        return math.isfinite(self.epsilon) or bool(self.noise_multiplier)

    @property
    def examples_of_one(self) -> int:
        """The most examples that one record has."""
        return 1

    @abstractmethod
    def question(self, records: int, learning: "Learning") -> "Question":
        """What is known of a run on so many records."""

    def plan(self, records: int, learning: "Learning", contribution: "Contribution | None" = None) -> "Plan":
        """The plan for so many records, which contribute gradients unless told otherwise."""
        from dpnlp.training import Plan
        from dpnlp.training.contributions import GRADIENTS

        question, contribution = self.question(records, learning), contribution or GRADIENTS
        if not self.is_private:
            return Plan.without_privacy(question.answer().schedule, question.unit, contribution)
        plan, noise = Plan.of(question, self._clipping, contribution), self.noise_multiplier
        if noise is not None and (cost := plan.epsilon(plan.schedule.steps)) > self.epsilon:
            most = plan.within(self.epsilon).schedule.steps
            raise BadInput(
                f"epsilon = {self.epsilon:g}: {plan.schedule.steps} steps with noise of {noise:g} cost {cost:.4g}; "
                f"take at most {most} of them, more noise, or a larger ε."
            )
        return plan

    def _asked(self, records: int, learning: "Learning", unit: Unit) -> "Question":
        """The question as it is for any unit."""
        from dpnlp.accounting.planning import Question

        noise = self.noise_multiplier if self.is_private else 0.0
        return Question(
            records=records,
            delta=self.delta,
            lot_size=learning.lot_size,
            steps=learning.steps,
            epochs=learning.epochs if learning.steps is None else None,
            noise_multiplier=noise,
            epsilon=self.epsilon if noise is None else None,
            sampling=self.sampling,
            bands=self.bands,
            adjacency=self.adjacency,
            accountant=self.accountant,
            unit=unit,
        )

    @property
    def _clipping(self) -> "Clipping":
        from dpnlp.training import Clipping, Rule

        return Clipping(self.clip_norm, Rule(self.clipping))


@dataclass(frozen=True)
class TextPrivacy(Privacy):
    """What is promised of texts."""

    unit: Literal["example", "document", "user"] = option(
        "example", help="Whose presence is hidden; document and user need --data.owner"
    )
    examples_per_owner: int = option(16, within=COUNT, help="The most examples that one owner takes part with")

    @property
    def examples_of_one(self) -> int:
        return self.examples_per_owner

    def question(self, records: int, learning: "Learning") -> "Question":
        return self._asked(records, learning, Unit(self.unit))


@dataclass(frozen=True)
class Learning:
    """How it is learned."""

    lot_size: int = option(256, within=COUNT, help="Records in a lot; for Poisson sampling, expected")
    epochs: float = option(10.0, within=EPOCHS, help="Passes over the data, of ⌈records/lot size⌉ steps each")
    steps: int | None = option(None, within=STEPS, help="Instead of --learning.epochs: noisy updates in all")
    rate: float = option(1e-3, within=RATE, help="The learning rate")
    optimizer: Literal["sgd", "adam", "adafactor"] = option("adam", help="What is done with a noisy gradient")
    decay: Literal["constant", "linear", "cosine", "inverse-sqrt"] = option(
        "linear", help="How the learning rate goes on after it has risen"
    )
    momentum: float = option(0.0, within=PART, help="Momentum of sgd")
    warmup: int = option(0, within=COUNT_OR_0, help="Steps over which the learning rate rises to its full height")
    weight_decay: float = option(
        0.0, within=SMALL, help="How much the weights shrink, times the learning rate, at each step"
    )
    smoothing: float = option(
        0.0, within=PART, help="Label smoothing: how much of the probability goes to all tokens alike"
    )
    average: float = option(
        0.0, within=PART, help="Decay of the average of the weights that is kept in the end; 0 takes none"
    )
    physical_batch: int = option(
        16, within=SIZE, help="Examples on the device at once; changes nothing but speed and memory"
    )
    lengths: tuple[int, ...] = option(
        (), within=SIZE, help="Lengths that texts are padded to; by default 16, 32, 64 and so on"
    )
    devices: int = option(1, within=FEW, help="How many devices share each physical batch")
    evaluate_every: float = option(
        0.0, within=SMALL, help="Epochs between scores on the validation data; 0 scores at the end alone"
    )
    checkpoint_every: int = option(
        50, within=COUNT, help="Steps between checkpoints, from which a run that was stopped goes on"
    )

    def refuse_smoothing(self) -> None:
        """For tasks that know of none."""
        if self.smoothing:
            raise BadInput(f"learning.smoothing = {self.smoothing}: it is for translation; leave it out.")

    def build(self) -> "Optimizer":
        from dpnlp.training import Optimizer
        from dpnlp.training.optimizers import Decay, Method

        return Optimizer(
            self.rate,
            Method(self.optimizer),
            Decay(self.decay),
            warmup_steps=self.warmup,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )


@dataclass(frozen=True)
class Federated:
    """Whether users contribute model updates instead of gradients."""

    local_epochs: int = option(
        0,
        within=FEW_OR_0,
        help="Federated averaging: a lot is a round, in which each user trains the model on its own examples, passing "
        "over them so often, and contributes what that changes. 0 has DP-SGD instead. --learning is then the server's, "
        "where sgd with a constant rate of 1 is plain averaging",
    )
    local_batch: int = option(16, within=SIZE, help="Examples in a batch of a user's training")
    local_rate: float = option(0.1, within=RATE, help="The learning rate of a user's training")
    full_weight: float | None = option(
        None, within=LENGTH, help="Users weigh their number of examples over this one, and 1 at most; by default 1 each"
    )
    estimator: Literal["fixed", "clipped"] = option(
        "fixed",
        help="What the sum of updates is divided by: the expected weight of a lot, or that of the lot itself where it "
        "is more, which takes twice the noise",
    )
    total_weight: float | None = option(
        None,
        within=between(0, 1e12, above=True),
        help="What all users weigh together, from public knowledge; by default the number of users",
    )
    quantile: float | None = option(
        None,
        within=between(0, 1, above=True, below=True),
        help="Let the clip norm follow this quantile of the norms of updates, from --privacy.clip-norm on",
    )
    quantile_rate: float = option(0.2, within=RATE, help="How fast it follows")
    count_noise: float | None = option(
        None, within=NOISE, help="Noise on the count of users within the clip norm; by default a twentieth of a lot"
    )

    def contribution(self, unit: str) -> "Contribution":
        """What a record adds to the sum over a lot, where a record is one such unit."""
        from dpnlp.federated import Averaging, Estimator, LocalSGD, Quantile, Weights
        from dpnlp.training.contributions import GRADIENTS

        if not self.local_epochs:
            for item in fields(self):
                if (value := getattr(self, item.name)) != item.default:
                    raise BadInput(
                        f"{item.name} = {value}: it is for federated averaging; give --federated.local-epochs, too."
                    )
            return GRADIENTS
        if unit != Unit.USER:
            raise BadInput(
                f"local_epochs = {self.local_epochs}: federated averaging is for users, and the unit is one {unit}; "
                "choose --privacy.unit user."
            )
        if self.quantile is None and (self.quantile_rate, self.count_noise) != (0.2, None):
            raise BadInput("quantile is not given: the clip norm stays as it is, and nothing is counted; give one.")
        return Averaging(
            LocalSGD(self.local_rate, self.local_epochs, self.local_batch),
            Weights(Estimator(self.estimator), self.full_weight, self.total_weight),
            None if self.quantile is None else Quantile(self.quantile, self.quantile_rate, self.count_noise),
        )


@dataclass(frozen=True)
class Audit:
    """How the promise is put to the test."""

    canaries: int = option(
        0,
        within=COUNT_OR_0,
        help="Records to make up and look for in the trained model: each is put among the training data by the toss of "
        "a coin, as a record like any other. The report then has a lower bound on ε. 0 makes none up",
    )


@dataclass(frozen=True)
class Scoring:
    """How it is scored."""

    batch: int = option(32, within=SIZE, help="Texts that are read at once")
    most: int | None = option(None, within=COUNT, help="Score only so many validation records while the model learns")
