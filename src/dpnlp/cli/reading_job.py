"""What a reading task trains on what, and models of such tasks to be used."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpnlp.checks import BadInput
from dpnlp.cli.reading_settings import Data, Questions, Sentences, Texts
from dpnlp.cli.splits import listed
from dpnlp.cli.start import Start, data_of
from dpnlp.cli.text_job import TextJob
from dpnlp.cli.training import Scored, whose
from dpnlp.guarantee import Exposure
from dpnlp.runs.provenance import Door, place_of, run_of

if TYPE_CHECKING:
    from dpnlp.cli.reading import TrainReading
    from dpnlp.data.cache import Examples
    from dpnlp.data.records import Records
    from dpnlp.models.pretrained import PretrainedReader
    from dpnlp.tasks.reading import Reading

HEADS = {"classification": "sequences", "tagging": "tokens", "answering": "spans"}
"""What is labelled in each task."""


def opened(model: str, task: str, computes: str, longest: int | None, door: Door) -> "Reading[Any]":
    """A model to be used, and how texts are put to it: as in its run, where it is one of ours."""
    from dpnlp.models.pretrained import load_reader
    from dpnlp.models.readers import Head

    run = run_of(model)
    settings: type[Data] = {"classification": Texts, "tagging": Sentences, "answering": Questions}[task]
    data = data_of(run, task, settings) if run else settings()
    reader = door.open(load_reader, model, Head(HEADS[task]), computes=computes, dropout=0.0)
    if reader.tokenizer is None:
        raise BadInput(f"MODEL = {model}: it has no tokenizer, to read texts with; add its files.")
    data = data if longest is None else replace(data, longest=longest)
    return data.task(reader.model, reader.tokenizer, reader.labels)


class ReadingJob(TextJob):
    """A reader and what it learns from."""

    train: "Records[Any]"
    task: "Reading[Any]"

    def __init__(self, asked: "TrainReading", door: Door) -> None:
        self.asked = asked
        splits = asked.data.splits()
        if splits.train is None:
            raise BadInput("data.train is not given: name the file to learn from, or a corpus.")
        asked.learning.refuse_smoothing()
        self.train = splits.train
        self.held_out = listed(validation=splits.validation, test=splits.test)
        self.others = {"validation": splits.validation, "test": splits.test}
        known = asked.data.labels or splits.labels
        labels = known or self._occurring()
        if not known and labels and asked.privacy.is_private:
            self.exposures = (Exposure.CLASSES,)
        self.reader = self._reader(labels, door)
        self.starts_knowing = run_of(asked.model.start) is not None
        self.start = Start(self.reader.model, self.reader.model.trained())
        self.task = asked.data.task(self.reader.model, self.reader.tokenizer, self.reader.labels)
        if getattr(self.train.columns, "pair", None) is not None:
            self.task = replace(self.task, pairs=True)  # type: ignore[call-arg]
        examples = self.task.dataset(self.train, asked.data.kept_in)
        self.owners = whose(examples, asked.privacy.unit)
        self.dataset = self.entering(examples)

    def entering(self, examples: "Examples") -> Any:
        """Examples as they are learned from: what frozen layers make of them, where there are such layers."""
        from dpnlp.tasks.features import features

        if not self.reader.model.frozen_layers:
            return examples
        return features(self.reader.model, examples, self.task.longest, self.asked.data.kept_in)

    def _occurring(self) -> tuple[str, ...]:
        from dpnlp.data.records import labels_of

        return () if self.asked.task == "answering" else labels_of(self.train)

    def _reader(self, labels: Sequence[str], door: Door) -> "PretrainedReader":
        from dpnlp.models.pretrained import load_reader
        from dpnlp.models.readers import Head, Strategy

        model, seed = self.asked.model, self.asked.privacy.seed or 0
        head, strategy = Head(HEADS[self.asked.task]), Strategy(model.strategy)
        if strategy is Strategy.BILSTM and not Path(place_of(model.start)).is_dir():
            reader = self._on_word_vectors(head, labels, seed, door)
        else:
            reader = door.open(
                load_reader,
                model.start,
                head,
                public=model.public_start,
                labels=labels or None,
                strategy=strategy,
                hidden=model.hidden,
                rank=model.rank,
                computes=model.computes,
                dropout=model.dropout,
                seed=seed,
            )
        if reader.tokenizer is None:
            raise BadInput(f"model.start = {model.start}: it has no tokenizer, to read texts with; add its files.")
        if model.shares:
            reader.model.start_from(model.shares)
        return reader

    def _on_word_vectors(self, head: Any, labels: Sequence[str], seed: int, door: Door) -> "PretrainedReader":
        from dpnlp.models.pretrained import word_reader
        from dpnlp.models.word_vectors import read_vectors

        model = self.asked.model
        vectors = door.open(read_vectors, model.start, public=model.public_start)
        return word_reader(
            vectors.entrance(dtype=model.computes),
            vectors.tokenizer(),
            head,
            labels,
            hidden=model.hidden,
            dropout=model.dropout or 0.0,
            seed=seed,
        )

    def loss(self, model: Any, batch: Any) -> Any:
        return self.task.loss(model, batch)

    def scored(self, model: Any, records: Sequence[Any]) -> Scored:
        found = self.task.of(model).score(records, self.asked.scoring.batch)
        return Scored(found.scores(), found.lines(), found.details())

    def brief(self, model: Any, records: Sequence[Any]) -> dict[str, float]:
        return {name: score.value for name, score in self.scored(model, records).scores.items()}

    def refuse_unscorable(self, what: str, records: Sequence[Any]) -> None:
        self.task.refuse_unscorable(what, records)

    def save(self, model: Any, folder: Path) -> None:
        from dpnlp.models.pretrained import save_reader

        save_reader(replace(self.reader, model=model), folder, merge=True)
