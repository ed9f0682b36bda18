"""`dpnlp train --task translation`: an encoder-decoder learns pairs of texts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dpnlp.checks import BadInput
from dpnlp.cli.config import option
from dpnlp.cli.evaluate import Evaluate
from dpnlp.cli.generate import Generate, Lines
from dpnlp.cli.sections import TextPrivacy, changed
from dpnlp.cli.splits import listed
from dpnlp.cli.start import Start, data_of
from dpnlp.cli.text_job import TextJob, told
from dpnlp.cli.train import TrainTexts
from dpnlp.cli.training import Scored, whose
from dpnlp.cli.translation_settings import Data, Model, Scoring, Texts, Writing
from dpnlp.runs.provenance import Door, run_of

if TYPE_CHECKING:
    from dpnlp.data.pairs import Pair, Pairs
    from dpnlp.models.pretrained import Pretrained
    from dpnlp.tasks.translation import Translation


@dataclass(frozen=True, kw_only=True)
class TrainTranslation(TrainTexts):
    """Train a model on private texts; what is described here is translation, and --task names other things to learn.
    It starts from a pre-trained model, from an earlier run, or from scratch, and is private unless --privacy.epsilon is
    inf. What it leaves is in runs/NAME: the model, the guarantee, scores, translations of the held-out texts and
    report.html."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp train --name first --data.train corpus.jsonl --data.source de --data.target en --model.start "
        "google/mt5-small --privacy.epsilon 8",
        "dpnlp train configs/nmt/bsd.yaml --name bsd-1 --privacy.epsilon 1",
        "dpnlp train runs/first/config.yaml --resume",
        "dpnlp train --task classification --help",
    )

    task: str = option(
        "translation",
        help="What is learned: translation, modelling, classification, tagging or answering; each has flags of its own",
        group="the run",
    )
    data: Data = option(Data(), help="texts")
    model: Model = option(help="model")
    scoring: Scoring = option(Scoring(), help="scoring")

    def job(self, door: Door) -> "TranslationJob":
        return TranslationJob(self, door)


class TranslationJob(TextJob):
    """A translation model and its pairs."""

    task: "Translation"

    def __init__(self, asked: TrainTranslation, door: Door) -> None:
        from dpnlp.tasks.translation import Translation

        self.asked, data = asked, asked.data
        splits = data.splits()
        if splits.train is None:
            raise BadInput("data.train is not given: name the file of the pairs to learn from, or a corpus.")
        self.train: Pairs = splits.train
        self.held_out = listed(validation=splits.validation, test=splits.test)
        self.others = {"validation": splits.validation, "test": splits.test}
        asked.scoring.check()
        pretrained, self.start = started(asked.model, asked.privacy, self.train, door)
        self.starts_knowing = not asked.model.from_scratch
        self.task = Translation(pretrained, data.longest, data.prefix, data.languages, asked.learning.smoothing)
        self.dataset = examples = self.task.dataset(self.train, data.kept_in)
        self.owners = whose(examples, asked.privacy.unit)

    def loss(self, model: Any, batch: Any) -> Any:
        return self.task.loss(model, batch)

    def scored(self, model: Any, records: "Sequence[Pair]") -> Scored:
        scored = self.task.of(model).score(records, self.asked.scoring.of(self.asked.data.longest))
        return Scored(self.asked.scoring.scores(scored), scored.lines())

    def brief(self, model: Any, records: "Sequence[Pair]") -> dict[str, float]:
        scored = self.task.of(model).score(records, self.asked.scoring.of(self.asked.data.longest))
        return {"bleu": scored.bleu(self.asked.scoring.bleu_tokenizer).value, "chrf": scored.chrf().value}

    def refuse_unscorable(self, what: str, records: "Sequence[Pair]") -> None:
        from dpnlp.tasks import translation

        first = tuple(records[:1])
        self.asked.scoring.scores(translation.Scored(first, tuple(pair.target for pair in first)))

    def written(self, model: Any, records: "Sequence[Pair]") -> list[bool]:
        writing = self.asked.scoring.of(self.asked.data.longest)
        found = self.task.of(model).translate([pair.source for pair in records], writing)
        return told([pair.target for pair in records], found)

    def save(self, model: Any, folder: Path) -> None:
        from dpnlp.models.pretrained import save

        save(self.task.of(model).pretrained, folder, merge=True)


@dataclass(frozen=True, kw_only=True)
class EvaluateTranslation(Evaluate):
    """Score a model on texts that it has not learned from: it answers by itself, and what it says is compared with what
    is right. A run is scored on its own test texts unless others are given. What is described here is translation; for
    a model that is no run of dpnlp --task names other things."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp evaluate runs/first",
        "dpnlp evaluate google/mt5-small --data.test pairs.jsonl --data.source de --data.target en --json",
    )

    task: str = option(
        "translation", help="What it has learned: translation, modelling, classification, tagging or answering"
    )
    data: Data = option(Data(), help="texts")
    scoring: Scoring = option(Scoring(), help="scoring")

    def scored(self, door: Door) -> tuple[int, Scored]:
        self.scoring.check()
        task, data = opened(self.model, self.data, self.computes, door)
        pairs = self.records(data, door)
        found = task.score(pairs, self.scoring.of(task.longest))
        return len(pairs), Scored(self.scoring.scores(found), found.lines())


@dataclass(frozen=True, kw_only=True)
class GenerateTranslation(Generate):
    """Translate texts, one a line: from a file, from a pipe, or as they are typed. A run knows the prefix and the
    languages that it was trained with; for another model give them. A language model writes on from what it is given;
    where it is no run, it is named by --task modelling."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp generate runs/first letters.de --output letters.en",
        "echo 'Guten Morgen!' | dpnlp generate runs/first",
    )

    task: str = option("translation", help="What it has learned: translation or modelling")
    texts: Texts = option(Texts(), help="how texts are put to it")
    writing: Writing = option(Writing(), help="how translations are written")

    def lines(self, door: Door) -> Lines:
        task, _ = opened(self.model, self.texts, self.computes, door)
        writing = self.writing.of(task.longest)
        return Lines(lambda given: task.translate(given, writing), writing.batch)


def started(model: Model, privacy: TextPrivacy, training: "Pairs", door: Door) -> tuple["Pretrained", Start]:
    """The model that the settings ask for, with what belongs to it, ready to be trained."""
    from dpnlp.models.freezing import trained
    from dpnlp.models.lora import ADAPTERS, adapt
    from dpnlp.models.pretrained import load

    if model.from_scratch:
        pretrained = _from_scratch(model, privacy, training, door)
    else:
        how: dict[str, Any] = {"computes": model.computes, "dropout": model.dropout}
        pretrained = door.open(load, model.start, public=model.public_start, **how)
    if model.lora:
        from flax import nnx

        adapt(pretrained.model, model.lora, rngs=nnx.Rngs(privacy.seed or 0))
        return pretrained, Start(pretrained.model, ADAPTERS)
    return pretrained, Start(pretrained.model, trained(pretrained.model, model.trains, model.frozen))


def opened(model: str, given: Texts, computes: str, door: Door) -> tuple["Translation", Data]:
    """A model to be used, and the texts for it: those of its run, where it is one of ours, but for what is given."""
    from dpnlp.models.pretrained import load
    from dpnlp.tasks.translation import Translation

    run = run_of(model)
    data = changed(data_of(run, "translation", Data) if run else Data(), given)
    pretrained = door.open(load, model, computes=computes, dropout=0.0)
    return Translation(pretrained, data.longest, data.prefix, data.languages), data


def _from_scratch(model: Model, privacy: TextPrivacy, training: "Pairs", door: Door) -> "Pretrained":
    """Random weights. The vocabulary must not come from private texts (law 10)."""
    from dpnlp.data.vocabulary import learned
    from dpnlp.models.pretrained import from_scratch, load_tokenizer

    if model.tokenizer is not None:
        tokenizer = door.open(load_tokenizer, model.tokenizer, public=model.public_start)
    elif privacy.is_private:
        raise BadInput(
            "model.tokenizer is not given: a vocabulary made of the private texts would give them away; name a folder "
            "or an id that has a tokenizer made of public ones."
        )
    else:
        tokenizer = learned(_texts(training), model.vocabulary)
    return from_scratch(
        tokenizer,
        width=model.width,
        layers=model.layers,
        heads=model.heads,
        hidden=model.hidden,
        dropout=0.0 if model.dropout is None else model.dropout,
        computes=model.computes,
        seed=privacy.seed or 0,
        architecture=model.architecture,
    )


def _texts(pairs: "Pairs") -> Iterator[str]:
    for pair in pairs:
        yield from (pair.source, pair.target)
