"""`dpnlp train --task classification`, `tagging` or `answering`: a model learns to read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dpnlp.checks import BadInput
from dpnlp.cli.config import option
from dpnlp.cli.evaluate import Evaluate
from dpnlp.cli.predict import Predict
from dpnlp.cli.reading_job import ReadingJob, opened
from dpnlp.cli.reading_settings import Data, Model, Questions, Scoring, Sentences, Texts
from dpnlp.cli.sections import changed
from dpnlp.cli.start import data_of
from dpnlp.cli.train import TrainTexts
from dpnlp.cli.training import Scored
from dpnlp.runs.provenance import Door, run_of


@dataclass(frozen=True, kw_only=True)
class TrainReading(TrainTexts):
    """What reading tasks have in common."""

    data: Data
    model: Model = option(help="model")
    scoring: Scoring = option(Scoring(), help="scoring")

    def job(self, door: Door) -> ReadingJob:
        return ReadingJob(self, door)


@dataclass(frozen=True, kw_only=True)
class TrainClassification(TrainReading):
    """Train a model to label texts, or pairs of texts as in inference. It is private unless --privacy.epsilon is inf.
    What it leaves is in runs/NAME: the model, the guarantee, scores, predictions for the held-out texts and
    report.html."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp train --task classification --name reviews --data.train reviews.jsonl --data.held-out 0.1 --model.start "
        "sentence-transformers/all-MiniLM-L6-v2 --privacy.epsilon 3",
        "dpnlp train configs/tasks/imdb-tr-all.yaml --name imdb-1 --privacy.epsilon 1",
    )

    task: str = option("classification", help="What is learned", group="the run")
    data: Texts = option(Texts(), help="texts")


@dataclass(frozen=True, kw_only=True)
class TrainTagging(TrainReading):
    """Train a model to tag words, with parts of speech or the names of people and places (IOB2). It is private unless
    --privacy.epsilon is inf. What it leaves is in runs/NAME: the model, the guarantee, scores, predictions for the
    held-out sentences and report.html."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp train --task tagging --name names --data.train notes.conll --data.test others.conll --model.start "
        "sentence-transformers/all-MiniLM-L6-v2 --privacy.epsilon 3",
        "dpnlp train configs/tasks/ud_gum-tr-all.yaml --name gum-1 --privacy.epsilon 1",
    )

    task: str = option("tagging", help="What is learned", group="the run")
    data: Sentences = option(Sentences(), help="texts")


@dataclass(frozen=True, kw_only=True)
class TrainAnswering(TrainReading):
    """Train a model to find the answer to a question in a text, or that there is none. A question with all windows of
    its text is one record. It is private unless --privacy.epsilon is inf. What it leaves is in runs/NAME: the model,
    the guarantee, scores, answers to the held-out questions and report.html."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp train --task answering --name faq --data.train train.json --data.test dev.json --model.start "
        "sentence-transformers/all-MiniLM-L6-v2 --privacy.epsilon 3",
        "dpnlp train configs/tasks/squad2-tr-all.yaml --name squad-1 --privacy.epsilon 1",
    )

    task: str = option("answering", help="What is learned", group="the run")
    data: Questions = option(Questions(), help="texts")


@dataclass(frozen=True, kw_only=True)
class EvaluateReading(Evaluate):
    """What reading tasks have in common."""

    data: Data
    scoring: Scoring = option(Scoring(), help="scoring")

    def scored(self, door: Door) -> tuple[int, Scored]:
        run = run_of(self.model)
        data = changed(data_of(run, self.task, type(self.data)) if run else self.data, self.data)
        task = opened(self.model, self.task, self.computes, data.longest, door)
        records = self.records(data, door, task.refuse_unscorable)
        found = task.score(records, self.scoring.batch)
        return len(records), Scored(found.scores(), found.lines(), found.details())


@dataclass(frozen=True, kw_only=True)
class EvaluateClassification(EvaluateReading):
    """Score a model that labels texts, or pairs of texts. A run is scored on its own test texts unless others are
    given."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp evaluate runs/reviews",
        "dpnlp evaluate runs/reviews --data.test others.jsonl --json",
    )

    task: str = option("classification", help="What it has learned")
    data: Texts = option(Texts(), help="texts")


@dataclass(frozen=True, kw_only=True)
class EvaluateTagging(EvaluateReading):
    """Score a model that tags words. A run is scored on its own test sentences unless others are given."""

    EXAMPLES: ClassVar[tuple[str, ...]] = ("dpnlp evaluate runs/names", "dpnlp evaluate runs/names --data.test b.conll")

    task: str = option("tagging", help="What it has learned")
    data: Sentences = option(Sentences(), help="texts")


@dataclass(frozen=True, kw_only=True)
class EvaluateAnswering(EvaluateReading):
    """Score a model that answers questions. A run is scored on its own test questions unless others are given."""

    EXAMPLES: ClassVar[tuple[str, ...]] = ("dpnlp evaluate runs/faq", "dpnlp evaluate runs/faq --data.test dev.json")

    task: str = option("answering", help="What it has learned")
    data: Questions = option(Questions(), help="texts")


@dataclass(frozen=True, kw_only=True)
class PredictClassification(Predict):
    """Label texts, one a line: from a file, or from a pipe. The two texts of a pair are parted by a tab. What else a
    model may have learned, to tag words, to answer questions or to tell the classes of nodes, is known from its run, or
    by --task."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp predict runs/reviews reviews.txt --output labels.txt",
        "echo 'Never again.' | dpnlp predict runs/reviews",
    )

    task: str = option("classification", help="What it has learned: classification, tagging, answering or nodes")

    def record(self, line: str, number: int) -> Any:
        from dpnlp.data.labelled import Labelled

        text, tab, pair = line.partition("\t")
        return Labelled(text, pair if tab else None, "", None)

    def answered(self, task: Any, records: Sequence[Any]) -> Iterator[str]:
        return iter(task.predict(records, self.batch))


@dataclass(frozen=True, kw_only=True)
class PredictTagging(Predict):
    """Tag the words of sentences, one a line, with blanks between its words: from a file, or from a pipe. Each line of
    what comes out has the tags of the words of one sentence."""

    EXAMPLES: ClassVar[tuple[str, ...]] = ("echo 'Ada Lovelace was born in London .' | dpnlp predict runs/names",)

    task: str = option("tagging", help="What it has learned")

    def record(self, line: str, number: int) -> Any:
        from dpnlp.data.tagged import Tagged

        return Tagged(tuple(line.split()), (), None)

    def answered(self, task: Any, records: Sequence[Any]) -> Iterator[str]:
        return (" ".join(tags) for tags in task.predict(records, self.batch))


@dataclass(frozen=True, kw_only=True)
class PredictAnswering(Predict):
    """Answer questions, one a line: the question, a tab, and the text that may have the answer. Each line of what comes
    out is an answer, or empty where there is none."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "printf 'Who wrote it?\\tIt was written by Ada Lovelace.\\n' | dpnlp predict runs/faq",
    )

    task: str = option("answering", help="What it has learned")

    def record(self, line: str, number: int) -> Any:
        from dpnlp.data.questions import Question

        question, tab, context = line.partition("\t")
        if not tab or not question.strip() or not context.strip():
            raise BadInput(f"line {number}: it must be a question, a tab and a text; write both on one line.")
        return Question(str(number), question, context, (), None)

    def answered(self, task: Any, records: Sequence[Any]) -> Iterator[str]:
        return iter(task.predict(records, self.batch))
