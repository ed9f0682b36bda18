"""`dpnlp train --task modelling`: a language model learns what comes next in private texts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dpnlp.checks import BadInput
from dpnlp.cli.config import option
from dpnlp.cli.evaluate import Evaluate
from dpnlp.cli.generate import Generate, Lines
from dpnlp.cli.modelling_settings import Data, Model, Writing
from dpnlp.cli.sections import Scoring, changed
from dpnlp.cli.splits import listed
from dpnlp.cli.start import Start, data_of
from dpnlp.cli.text_job import TextJob, told
from dpnlp.cli.train import TrainTexts
from dpnlp.cli.training import Scored, whose
from dpnlp.runs.provenance import Door, run_of

if TYPE_CHECKING:
    from dpnlp.data.plain import Text
    from dpnlp.data.records import Records
    from dpnlp.models.pretrained import PretrainedLanguageModel
    from dpnlp.tasks.modelling import Modelled, Modelling


@dataclass(frozen=True, kw_only=True)
class TrainModelling(TrainTexts):
    """Train a language model on private texts: an LSTM or a GPT-2, from scratch or pre-trained. It is private unless
    --privacy.epsilon is inf; with --privacy.unit user it hides all texts of an owner. What it leaves is in runs/NAME:
    the model, the guarantee, AccuracyTop1 and perplexity on the held-out texts and report.html."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp train --task modelling --name chats --data.train chats.jsonl --data.owner author --data.held-out 0.1 "
        "--model.start lstm --model.vocabulary words --privacy.unit user --privacy.epsilon 8",
        "dpnlp train --task modelling --name rounds --data.train chats.jsonl --data.owner author --model.start lstm "
        "--model.vocabulary words --privacy.unit user --federated.local-epochs 1 --learning.optimizer sgd "
        "--learning.rate 1",
        "dpnlp train --task modelling --name notes --data.train notes.txt --model.start openai-community/gpt2 "
        "--model.lora 8 --privacy.epsilon 3",
    )

    task: str = option("modelling", help="What is learned", group="the run")
    data: Data = option(Data(), help="texts")
    model: Model = option(help="model")
    scoring: Scoring = option(Scoring(), help="scoring")

    def job(self, door: Door) -> "ModellingJob":
        return ModellingJob(self, door)


class ModellingJob(TextJob):
    """A language model and its texts."""

    task: "Modelling"

    def __init__(self, asked: TrainModelling, door: Door) -> None:
        from dpnlp.tasks.modelling import Modelling

        self.asked, data = asked, asked.data
        splits = data.splits()
        if splits.train is None:
            raise BadInput("data.train is not given: name the file of the texts to learn from, or a corpus.")
        self.train: Records[Text] = splits.train
        self.held_out = listed(validation=splits.validation, test=splits.test)
        self.others = {"validation": splits.validation, "test": splits.test}
        pretrained, self.start = started(asked.model, data.longest, asked.privacy.seed or 0, door)
        self.starts_knowing = not asked.model.from_scratch
        self.task = Modelling(pretrained, data.longest, data.tokens_per_owner, asked.learning.smoothing)
        texts = self.task.tokenized(self.train, data.kept_in)
        self.dataset = rows = self.task.rows(texts, whose(texts, asked.privacy.unit))
        self.owners = rows.owners

    def loss(self, model: Any, batch: Any) -> Any:
        return self.task.loss(model, batch)

    def scored(self, model: Any, records: "Sequence[Text]") -> Scored:
        return _scored(self.task.of(model).score(records, self.asked.scoring.batch))

    def brief(self, model: Any, records: "Sequence[Text]") -> dict[str, float]:
        found = self.task.of(model).score(records, self.asked.scoring.batch).scores()
        return {name: score.value for name, score in found.items()}

    def written(self, model: Any, records: "Sequence[Text]") -> list[bool]:
        from dpnlp.tasks.modelling import Continuing

        words = [record.text.split() for record in records]
        halves = [(" ".join(own[: len(own) // 2]), " ".join(own[len(own) // 2 :])) for own in words]
        found = self.task.of(model).proceed([first for first, _ in halves], Continuing())
        return told([second for _, second in halves], found)

    def save(self, model: Any, folder: Path) -> None:
        from dpnlp.models.pretrained import save_language_model

        save_language_model(self.task.of(model).pretrained, folder, merge=True)


@dataclass(frozen=True, kw_only=True)
class EvaluateModelling(Evaluate):
    """Score a language model by how well it expects texts: AccuracyTop1, the share of tokens that its best guess gets
    right, and perplexity. A run is scored on its own test texts unless others are given."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp evaluate runs/chats",
        "dpnlp evaluate openai-community/gpt2 --task modelling --data.test notes.txt --json",
    )

    task: str = option("modelling", help="What it has learned")
    data: Data = option(Data(), help="texts")
    scoring: Scoring = option(Scoring(), help="scoring")

    def scored(self, door: Door) -> tuple[int, Scored]:
        task, data = opened(self.model, self.data, self.computes, door)
        texts = self.records(data, door)
        return len(texts), _scored(task.score(texts, self.scoring.batch))


@dataclass(frozen=True, kw_only=True)
class GenerateModelling(Generate):
    """Write on from prompts, one a line: from a file, from a pipe, or as they are typed. Each line that comes out is a
    prompt with what the model adds to it."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp generate runs/chats prompts.txt --writing.longest 20",
        "echo 'how are' | dpnlp generate runs/chats --writing.sample --writing.temperature 0.7",
    )

    task: str = option("modelling", help="What it has learned")
    writing: Writing = option(Writing(), help="how a text goes on")

    def lines(self, door: Door) -> Lines:
        task, _ = opened(self.model, Data(), self.computes, door)
        how = self.writing.how()

        def written(prompts: list[str]) -> list[str]:
            return [prompt + added for prompt, added in zip(prompts, task.proceed(prompts, how), strict=True)]

        return Lines(written, how.batch)


def started(model: Model, longest: int, seed: int, door: Door) -> tuple["PretrainedLanguageModel", Start]:
    """The model that the settings ask for, ready to be trained."""
    from dpnlp.models.freezing import trained
    from dpnlp.models.language import LSTMLanguageModel
    from dpnlp.models.lora import ADAPTERS, adapt
    from dpnlp.models.pretrained import load_language_model

    if model.from_scratch:
        pretrained = _from_scratch(model, longest, seed, door)
    else:
        if model.vocabulary is not None:
            raise BadInput(f"model.vocabulary = {model.vocabulary}: {model.start} has one of its own; leave it out.")
        how: dict[str, Any] = {"computes": model.computes, "dropout": model.dropout}
        pretrained = door.open(load_language_model, model.start, public=model.public_start, **how)
    if not model.lora:
        return pretrained, Start(pretrained.model, trained(pretrained.model, model.trains, model.frozen))
    if isinstance(pretrained.model, LSTMLanguageModel):
        raise BadInput(f"model.lora = {model.lora}: adapters are for a GPT-2, and this is an LSTM; leave it out.")
    from flax import nnx

    adapt(pretrained.model, model.lora, where=("projection",), rngs=nnx.Rngs(seed))
    return pretrained, Start(pretrained.model, ADAPTERS)


def opened(model: str, given: Data, computes: str, door: Door) -> tuple["Modelling", Data]:
    """A model to be used, and the texts for it: those of its run, where it is one of ours, but for what is given."""
    from dpnlp.models.pretrained import load_language_model
    from dpnlp.tasks.modelling import Modelling

    run = run_of(model)
    data = changed(data_of(run, "modelling", Data) if run else Data(), given)
    pretrained = door.open(load_language_model, model, computes=computes, dropout=0.0)
    positions = getattr(pretrained.model.config, "positions", data.longest)
    data = data if given.longest != Data().longest else replace(data, longest=min(data.longest, positions))
    return Modelling(pretrained, data.longest, data.tokens_per_owner), data


def _from_scratch(model: Model, longest: int, seed: int, door: Door) -> "PretrainedLanguageModel":
    """Random weights, for a vocabulary that is never made of the training texts (law 10)."""
    from dpnlp.models.pretrained import fresh_decoder, fresh_lstm, load_tokenizer

    if model.vocabulary is None:
        raise BadInput(
            "model.vocabulary is not given: a vocabulary made of the texts to learn from would give them away; name a "
            "folder or an id that has a tokenizer made of public texts, or one made by dpnlp vocabulary."
        )
    tokenizer = door.open(load_tokenizer, model.vocabulary, public=model.public_start)
    shape: dict[str, Any] = {"width": model.width, "hidden": model.hidden, "dropout": model.dropout or 0.0}
    shape |= {"computes": model.computes, "seed": seed}
    if model.start == "lstm":
        return fresh_lstm(tokenizer, **shape)
    return fresh_decoder(tokenizer, layers=model.layers, heads=model.heads, positions=longest, **shape)


def _scored(found: "Modelled") -> Scored:
    return Scored(found.scores(), found.lines(), found.details())
