"""One run of `dpnlp train`, whatever is learned: from the first score to the report."""

import math
import shlex
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dpnlp.accounting.accountant import delta_warning
from dpnlp.accounting.releases import Release
from dpnlp.atomic import Growing
from dpnlp.checks import BadInput
from dpnlp.cli.config import to_dict, warn
from dpnlp.cli.interruption import interruptible
from dpnlp.cli.output import figure
from dpnlp.cli.places import check_ledger
from dpnlp.cli.splits import apart, remembered
from dpnlp.cli.start import Start
from dpnlp.guarantee import Exposure, Guarantee, Unit
from dpnlp.runs.folder import PRIVACY, Run
from dpnlp.runs.lifecycle import begin
from dpnlp.runs.privacy import Origin, new_id
from dpnlp.runs.provenance import Door, Provenance

if TYPE_CHECKING:
    import numpy as np

    from dpnlp.cli.canaries import Planted
    from dpnlp.cli.train import Train
    from dpnlp.data.cache import Examples
    from dpnlp.data.identity import Fingerprints, Seen
    from dpnlp.data.learned import Learned
    from dpnlp.data.ledgers import DataSet, Kept
    from dpnlp.events import Event
    from dpnlp.metrics.score import Score
    from dpnlp.training import Charge, Options, Outcome, Plan, Secret
    from dpnlp.training.checkpoints import Evaluation
    from dpnlp.training.dataset import Dataset


class Scored(NamedTuple):
    """What a model reached on some records, and what it answered, a line for each."""

    scores: "Mapping[str, Score]"
    lines: Iterable[Mapping[str, str]]
    details: Mapping[str, Any] | None = None  # what is behind the scores, where a task can tell


class Job(ABC):
    """What is trained on what: all that a run has to know of its task."""

    start: Start
    train: "Kept"  # what is learned from
    held_out: Mapping[str, Sequence[Any]]  # what is scored on, by split
    others: Mapping[str, "Kept | None"]  # where it lies
    dataset: "Dataset"
    owners: "np.ndarray[Any, Any] | None" = None  # of each example, where an owner's examples are one record
    exposures: tuple[Exposure, ...] = ()  # what of the training data is not covered
    starts_knowing: bool = True  # Otherwise there is nothing to score before training.
    aggregate: "Callable[[Plan, Secret], Dataset] | None" = None  # what is released before the first step, if anything

    @property
    def records(self) -> int:
        """How many records there are to learn from: owners, where an owner's examples are one, else examples."""
        return len(self.dataset) if self.owners is None else len(set(self.owners.tolist()))

    @property
    @abstractmethod
    def seen(self) -> "Seen":
        """The fingerprints of what is learned from."""

    @cached_property
    def learned(self) -> "Learned":
        """What is learned from, to be recognised."""
        from dpnlp.data.learned import Learned

        return Learned(self.seen)

    def is_in(self, learned: "Learned", record: Any) -> bool:
        """Whether a record to score on is one that was learned from."""
        return learned.has(record)

    def refuse_unscorable(self, what: str, records: Sequence[Any]) -> None:  # noqa: B027, most can score anything
        """Refuses records of which no score can be told, before anything is paid for."""

    @abstractmethod
    def texts_of(self, records: Sequence[Any]) -> "Fingerprints":
        """The fingerprints of the texts in records that are scored on."""

    @abstractmethod
    def loss(self, model: Any, batch: Any) -> Any:
        """The loss of each example."""

    @abstractmethod
    def scored(self, model: Any, records: Sequence[Any]) -> Scored:
        """A model's answers, with all scores."""

    @abstractmethod
    def brief(self, model: Any, records: Sequence[Any]) -> dict[str, float]:
        """The scores that are quick to compute."""

    @abstractmethod
    def save(self, model: Any, folder: Path) -> None:
        """Writes the model as a folder of Hugging Face."""


def whose(examples: "Examples", unit: str) -> "np.ndarray[Any, Any] | None":
    """The owner of each example, where a record of the guarantee may consist of several examples."""
    if unit == "example":
        return examples.records
    if examples.owners is None:
        raise BadInput(f"privacy.unit = {unit}: nothing says whose each record is; name the column by --data.owner.")
    return examples.owners


def options_of(asked: "Train", plan: "Plan") -> "Options":
    """How a run with these settings is carried out."""
    from dpnlp.training import Options, Placement

    learning = asked.learning
    every = round(learning.evaluate_every * plan.schedule.lots_per_epoch)
    return Options(
        physical_batch=learning.physical_batch,
        lengths=learning.lengths or None,
        longest=getattr(asked.data, "longest", None),
        placement=Placement(learning.devices),
        evaluate_every=max(1, every) if learning.evaluate_every else 0,
        checkpoint_every=learning.checkpoint_every,
        average=learning.average,
        examples_per_owner=asked.privacy.examples_of_one,
    )


class Training:
    """One call of the verb."""

    def __init__(self, asked: "Train") -> None:
        from dpnlp.cli.canaries import planted

        check_ledger(asked.privacy.ledger)
        self.asked = asked
        self.path = asked.runs / asked.name
        self.door = Door()
        self.job = asked.job(self.door)
        for file in self.job.train.files:
            self.door.note_data(file, noise=asked.privacy.is_private)
        self._refuse_own_texts()
        self.planted = planted(asked, self.job)
        records = self.job.records  # Canaries that were put in are records like any other.
        plan = asked.privacy.plan(records, asked.learning, asked.contribution())
        self.plan = replace(plan, owner=_owner_column(self.job.train, plan.unit))
        known = partial(self.job.is_in, self.job.learned | remembered(self.door))
        self.job.held_out = {split: apart(f"data.{split}", its, known) for split, its in self.job.held_out.items()}
        for split, its in self.job.held_out.items():
            self.job.refuse_unscorable(f"data.{split}", its)
        for origin in self.door.provenance.origins:
            spent = figure(origin.promised.epsilon)
            warn(f"{origin.what} was made at ε = {spent}, which is added to what this run costs.")
        asked.learning.build()  # What it refuses is in no ledger yet.
        self.options = options_of(asked, self.plan)
        self.options.layout(self.job.dataset, self.plan)  # What it refuses is refused before anything is scored.
        self.id = self._refuse_another_start() if asked.resume else new_id()
        self._refuse_other_records()
        if asked.privacy.is_private and (note := delta_warning(asked.privacy.delta, records)):
            warn(note)

    def run(self) -> None:
        """From the first score to the report."""
        self._enter_scored()
        self.folder = Run.open(self.path) if self.asked.resume else self._created()
        if self.planted:
            self.folder.write_canaries(self.planted.canaries.to_json())
        self._write_privacy(self.plan.guarantee(self._secret.kind))
        before = self._before()
        with self._remembered():
            outcome = self._trained(before)
        self._write_privacy(outcome.guarantee)
        self._publish_all(outcome)

    @property
    def _secret(self) -> Any:
        from dpnlp.mechanisms.randomness import seeded
        from dpnlp.training import Secret

        return Secret.drawn(seeded(self.asked.privacy.seed))

    # The run

    def _created(self) -> Run:
        command = shlex.join(["dpnlp", *sys.argv[1:]])
        run = Run.create(self.path, {**to_dict(self.asked), "resume": False}, command)
        begin(run)
        return run

    @contextmanager
    def _remembered(self) -> Iterator[None]:
        """What is learned from is remembered before the first step, unless that is refused."""
        from dpnlp.data.learned import forget

        self.job.learned.keep(self.id)
        try:
            yield
        except BadInput:
            if not self.folder.checkpoints.exists():
                forget(self.id)
            raise

    def _trained(self, before: Sequence[Mapping[str, Any]]) -> "Outcome":
        from dpnlp.training import train

        asked, learning = self.asked, self.asked.learning
        with interruptible() as interrupted:
            return train(
                self.job.start.model,
                self.job.loss,
                self.job.dataset,
                self.plan,
                learning.build().build(self.plan.schedule.steps),
                self.options,
                trains=self.job.start.trains,
                owners=self.job.owners,
                secret=self._secret,
                folder=self.folder.checkpoints,
                resume=asked.resume,
                charge=self._charge(),
                aggregate=None if (make := self.job.aggregate) is None else partial(make, self.plan),
                evaluate=self._evaluate if self.job.held_out.get("validation") else None,
                publish=lambda history: self._publish(before, history),
                diagnose=self._diagnose if asked.privacy.diagnostics else None,
                interrupted=interrupted,
                spent=self._cost,
                run=self.id,
                made_of=self.door.provenance.runs,
            )

    def _charge(self) -> "Charge":
        """A run is charged to all ledgers of its data, also where it promises nothing."""
        from dpnlp.training import Charge

        return Charge(self._data.charge, self._what)

    @cached_property
    def _data(self) -> "DataSet":
        """What is learned from."""
        from dpnlp.data.ledgers import DataSet

        return DataSet.of(self.job.train, self.job.seen.texts, self.asked.privacy.ledger)

    @property
    def _what(self) -> str:
        mechanism = self.plan.guarantee(self._secret.kind).mechanism.name
        by = "" if mechanism in ("gaussian", "none") else f" by {mechanism}"
        return f"dpnlp train {self.asked.name}{by}"

    def _enter_scored(self) -> None:
        """Texts that are scored on are written out as they are, and what diagnostics tell of the records without noise.

        Nothing is, where a budget refuses that or the run.
        """
        from dpnlp.data.ledgers import NOTHING, DataSet

        plan, private = self.plan, {*self.job.train.files}
        if not self.asked.resume:
            self._data.check(Release.now(None, self._what, plan.event, plan.unit, plan.adjacency, plan.owner))
        if self.asked.privacy.diagnostics:
            self._data.write_out(f"dpnlp train {self.asked.name}: diagnostics")
        for split, records in self.job.held_out.items():
            if kept := self.job.others[split]:
                same, chosen = bool(private & {*kept.files}), self.asked.privacy.ledger
                scored = DataSet.of(kept, self.job.texts_of(records), chosen if same else None)
                others = self._data.texts if same else NOTHING
                scored.write_out(f"dpnlp train {self.asked.name}: what it is scored on", others)

    # Scores

    def _evaluate(self, model: Any) -> dict[str, float]:
        return self.job.brief(model, self.job.held_out["validation"][: self.asked.scoring.most])

    def _before(self) -> list[dict[str, Any]]:
        """The scores of the model as it was, on the texts that the last score is on; kept for a resumed run."""
        kept = [row for row in self.folder.metrics() if row["step"] == 0]
        if kept or not self.job.held_out or not self.job.starts_knowing:
            return kept
        split, records = list(self.job.held_out.items())[-1]
        scored = self.job.scored(self.job.start.model, records)
        self.folder.write_predictions(split, scored.lines)
        rows = [self._row(0, split, scored)]
        self.folder.write_metrics(rows)
        return rows

    def _publish(self, before: Sequence[Mapping[str, Any]], history: "Sequence[Evaluation]") -> None:
        rows = [
            {"step": entry.step, "epsilon": self._spent(entry.step), "split": "validation", **entry.scores}
            for entry in history
        ]
        self.folder.write_metrics([*before, *rows])

    def _row(self, step: int, split: str, scored: Scored) -> dict[str, Any]:
        row: dict[str, Any] = {"step": step, "epsilon": self._spent(step), "split": split}
        for name, score in scored.scores.items():
            row |= {name: score.value, f"{name}_signature": score.signature}
        return row

    def _spent(self, step: int) -> float | str:
        spent = self._cost(step)
        return spent if math.isfinite(spent) else "inf"

    def _cost(self, step: int) -> float:
        """The ε of the first steps, and of all that the run started from."""
        privacy = self.folder.privacy
        if not privacy.earlier:
            return self.plan.epsilon_at_most(step)
        event = self.plan.event_at_most(step)
        if event not in self._costs:
            self._costs[event] = privacy.spent(event)
        return self._costs[event]

    @cached_property
    def _costs(self) -> "dict[Event | None, float]":
        """What was computed already: each evaluation is published with all before it."""
        return {}

    def _diagnose(self, step: int, seen: Mapping[str, float]) -> None:
        import json

        if step > self._diagnostics.lines:  # A step that is made again shows the same again.
            self._diagnostics.append([json.dumps({"step": step, **seen})])

    @cached_property
    def _diagnostics(self) -> Growing:
        return Growing(self.path / "diagnostics.jsonl")

    # What is left behind

    def _write_privacy(self, own: Guarantee) -> None:
        """What is promised of the model, earlier runs included."""
        canaries = len(self.planted.canaries) if self.planted else 0
        own = own.with_canaries(canaries).with_exposures(*self._exposures, *self._named_before())
        origin = Origin(self.id, f"dpnlp train {self.asked.name}", self.plan.event, own)
        self.folder.write_privacy(self.door.provenance.promising(origin, self.plan.to_json(), learns=True))

    def _named_before(self) -> tuple[Exposure, ...]:
        """What the run has named already. Other settings to go on with undo nothing of it."""
        return self.folder.privacy.own.promised.not_covered if (self.path / PRIVACY).exists() else ()

    def _refuse_another_start(self) -> str:
        """The id of the run that goes on, which must start from what it started from: that has cost what it cost."""
        run = Run.open(self.path)
        if not (run.path / PRIVACY).exists() and not run.checkpoints.exists():
            return new_id()  # It was killed before anything was begun.
        was, now = run.privacy.earlier, self.door.provenance.origins
        if was != now:
            said = [" and ".join(origin.what for origin in origins) or "public things alone" for origins in (was, now)]
            raise BadInput(
                f"resume: the run started from {said[0]}, and these settings from {said[1]}; go on with those that it "
                "began with, or start another run."
            )
        return run.id

    def _refuse_own_texts(self) -> None:
        """What a run promises to hide is not what its start, which is said to be public, has learned without noise."""
        from dpnlp.data.learned import Learned
        from dpnlp.data.ledgers import share_many

        paid = {origin.run for origin in self.door.provenance.origins}
        for run in self.door.provenance.learned_from if self.asked.privacy.is_private else ():
            learned = None if run in paid else Learned.recall(run)
            if learned is not None and share_many(learned.seen.texts, self.job.seen.texts):
                raise BadInput(
                    "data.train: many of its texts are in what the run starts from, which is said to be public; do not "
                    "say that it is public, or learn from other texts."
                )

    def _refuse_other_records(self) -> None:
        """A run goes on with the records that it began with, however its data are read by now."""
        from dpnlp.data.learned import Learned

        began = Learned.recall(self.id)
        if began is not None and began != self.job.learned:
            raise BadInput(
                "resume: the records to learn from are not those that the run began with; put back its data and "
                "settings, or start another run."
            )

    @property
    def _exposures(self) -> tuple[Exposure, ...]:
        """What of the private data is not covered."""
        held_out = [Exposure.HELD_OUT] if self.job.held_out else []
        tuned = [Exposure.TUNING] if self.asked.tuned else []
        return (*self.job.exposures, *(held_out + tuned if self.asked.privacy.is_private else []))

    def _publish_all(self, outcome: "Outcome") -> None:
        """Scores, answers, the model and the page."""
        from dpnlp.runs.page import page_of_run

        rows, details = self.folder.metrics(), {}
        for split, records in self.job.held_out.items():
            scored = self.job.scored(outcome.model, records)
            if scored.details is not None:
                details[split] = scored.details
            self.folder.write_predictions(split, self._beside_earlier(split, scored.lines))
            rows.append(self._row(outcome.steps, split, scored))
        self.folder.write_metrics(_unique(rows))
        if details:
            self.folder.write_details(details)
        if self.planted:
            self._audit(self.planted, outcome)
        if not self.folder.model.exists():  # A folder appears with all that is in it.
            self.job.save(outcome.model, self.folder.model)
        made = Provenance.of(self.folder.privacy)
        self.door.keep(self.folder.model, made)
        self.door.remember(self.folder.path / "predictions", made)
        self.folder.write_report(page_of_run(self.folder))

    def _audit(self, planted: "Planted", outcome: "Outcome") -> None:
        """Looks for the canaries, which only this run has seen, so that its own ε is what they test."""
        found = planted.found(outcome.model).to_json(outcome.guarantee)
        self.folder.add_audit("canaries", found)
        if found["refuted"]:
            warn(found["statement"])

    def _beside_earlier(self, split: str, lines: Iterable[Mapping[str, str]]) -> list[Mapping[str, str]]:
        """The lines, each with what the model answered before it was trained, where it was asked then."""
        if not any((row["step"], row["split"]) == (0, split) for row in self.folder.metrics()):
            return list(lines)
        earlier = [line.get("before", line["hypothesis"]) for line in self.folder.predictions(split)]
        return [{**line, "before": was} for line, was in zip(lines, earlier, strict=True)] if earlier else list(lines)


def _owner_column(train: "Kept", unit: Unit) -> str:
    """What says whose a record is, where that is what the unit counts."""
    columns = getattr(train, "columns", None)
    return str(getattr(columns, "owner", None) or "") if unit.is_counted_by_owner else ""


def _unique(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows, the later of two for one step and split alone."""
    return list({(row["step"], row["split"]): row for row in rows}.values())
