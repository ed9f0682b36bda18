"""`dpnlp train`: a translation model, privately."""

import math
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dpnlp import events
from dpnlp.accounting.accountant import delta_warning
from dpnlp.accounting.ledger import Ledger
from dpnlp.checks import BadInput
from dpnlp.cli.config import option, to_dict, warn
from dpnlp.cli.interruption import interruptible
from dpnlp.cli.output import figure, print_facts, print_guarantee, print_json
from dpnlp.cli.sections import Data, Learning, Model, Privacy, Scoring
from dpnlp.guarantee import Guarantee
from dpnlp.runs.folder import Run
from dpnlp.runs.tables import scores

if TYPE_CHECKING:
    import numpy as np

    from dpnlp.data.pairs import Pair, Pairs
    from dpnlp.tasks.translation import Scored, Translation
    from dpnlp.training import Charge, Outcome
    from dpnlp.training.checkpoints import Evaluation


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a translation model on private texts: from a pre-trained model, from an earlier run, or from scratch. It
    is private unless --privacy.epsilon is inf. What it leaves is in runs/NAME: the model, the guarantee, scores,
    translations of the held-out texts and report.html."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp train --name first --data.train corpus.jsonl --data.source de --data.target en --model.start "
        "google/mt5-small --privacy.epsilon 8",
        "dpnlp train configs/nmt/bsd.yaml --name bsd-1 --privacy.epsilon 1",
        "dpnlp train runs/first/config.yaml --resume",
    )

    name: str = option(help="The name of the run", group="the run")
    runs: Path = option(Path("runs"), help="The folder that runs are in", group="the run")
    resume: bool = option(False, help="Go on with a run that was stopped, from its last checkpoint", group="the run")
    keep_checkpoints: bool = option(
        False, help="Keep the last checkpoint, in which the secret lies that the noise was made of", group="the run"
    )
    data: Data = option(Data(), help="texts")
    model: Model = option(help="model")
    privacy: Privacy = option(Privacy(), help="privacy")
    learning: Learning = option(Learning(), help="learning")
    scoring: Scoring = option(Scoring(), help="scoring")
    json: bool = option(False, help="Print one JSON object at the end instead of words", group="output")

    def run(self) -> None:
        """Trains, and says on stdout what came out."""
        run = self.made()
        if self.json:
            print_json(_entry(run))
        else:
            _print(run)

    def made(self) -> Run:
        """Trains, and says nothing."""
        return _Training(self).run()


class _Training:
    """One call of the verb."""

    def __init__(self, asked: Train) -> None:
        from dpnlp.cli.start import start_model

        self.asked = asked
        self.path = asked.runs / asked.name
        self.fresh = not asked.resume
        if asked.resume:
            self._refuse_finished()
        elif (self.path / "config.yaml").exists():
            raise BadInput(
                f"name = {asked.name}: there is a run in {self.path} already; choose another name, or go on with it by "
                f"{self._resuming}"
            )
        splits = asked.data.splits()
        if splits.train is None:
            raise BadInput("data.train is not given: name the file of the pairs to learn from, or a corpus.")
        self.train_pairs: Pairs = splits.train
        for name, pairs in (("validation", splits.validation), ("test", splits.test)):
            if pairs and not asked.data.held_out and set(pairs.files) & set(self.train_pairs.files):
                raise BadInput(
                    f"data.{name}: it is the file of the training pairs, and they would be written out; give others "
                    "that are not trained on, or keep a share apart by --data.held-out."
                )
        self.held_out = {
            name: list(pairs) for name, pairs in (("validation", splits.validation), ("test", splits.test)) if pairs
        }
        self.start = start_model(asked.model, asked.privacy, self.train_pairs)
        self.task = self._task()
        self.dataset = self.task.dataset(self.train_pairs, asked.data.kept_in)
        self.owners = self._owners()
        records = len(self.dataset) if self.owners is None else len(set(self.owners.tolist()))
        self.plan = asked.privacy.plan(records, asked.learning)
        for run in self.start.earlier:
            warn(
                f"{run.path} was trained at ε = {figure(run.guarantee.epsilon)}, which is added to what this run costs."
            )
        if asked.privacy.is_private and (note := delta_warning(asked.privacy.delta, records)):
            warn(note)

    def run(self) -> Run:
        """From the first score to the report."""
        self.folder = Run.open(self.path) if self.asked.resume else self._created()
        self._write_privacy(self.plan.guarantee(self._secret.kind))
        before = self._before()
        outcome = self._trained(before)
        self._write_privacy(outcome.guarantee)
        self._finish(outcome, before)
        return Run.open(self.path)

    # What is trained on what

    def _task(self) -> "Translation":
        from dpnlp.tasks.translation import Translation

        data = self.asked.data
        return Translation(
            self.start.pretrained, data.longest, data.prefix, data.languages, self.asked.learning.smoothing
        )

    def _owners(self) -> "np.ndarray[Any, Any] | None":
        unit = self.asked.privacy.unit
        if unit == "example":
            return None
        if self.dataset.owners is None:
            raise BadInput(f"privacy.unit = {unit}: nothing says whose each pair is; name the column by --data.owner.")
        owners: np.ndarray[Any, Any] = self.dataset.owners
        return owners

    @property
    def _secret(self) -> Any:
        from dpnlp.mechanisms.randomness import FixedSeed
        from dpnlp.training import Secret

        seed = self.asked.privacy.seed
        return Secret.drawn() if seed is None else Secret.drawn(FixedSeed(seed))

    # The run

    def _created(self) -> Run:
        command = shlex.join(["dpnlp", *sys.argv[1:]])
        return Run.create(self.path, {**to_dict(self.asked), "resume": False}, command)

    def _refuse_finished(self) -> None:
        if not self.path.exists():
            raise BadInput(
                f"name = {self.asked.name}: there is no run in {self.path} to go on with; leave out --resume."
            )
        if Run.open(self.path).model.exists():
            raise BadInput(
                f"name = {self.asked.name}: the run in {self.path} is finished; to train its model further, start "
                f"another run with --model.start {self.path}."
            )

    def _trained(self, before: Sequence[Mapping[str, Any]]) -> "Outcome":
        from dpnlp.training import Options, Placement, train

        asked, learning = self.asked, self.asked.learning
        steps = self.plan.schedule.steps
        every = round(learning.evaluate_every * self.plan.schedule.lots_per_epoch)
        options = Options(
            physical_batch=learning.physical_batch,
            lengths=learning.lengths or None,
            placement=Placement(learning.devices),
            evaluate_every=max(1, every) if learning.evaluate_every else 0,
            checkpoint_every=learning.checkpoint_every,
            average=learning.average,
            examples_per_owner=asked.privacy.examples_per_owner,
        )
        try:
            with interruptible() as interrupted:
                return train(
                    self.start.pretrained.model,
                    self.task.loss,
                    self.dataset,
                    self.plan,
                    learning.build().build(steps),
                    options,
                    trains=self.start.trains,
                    owners=self.owners,
                    secret=self._secret,
                    folder=self.folder.checkpoints,
                    resume=asked.resume,
                    charge=self._charge(),
                    evaluate=self._evaluate if self.held_out.get("validation") else None,
                    publish=lambda history: self._publish(before, history),
                    diagnose=self._diagnose if asked.privacy.diagnostics else None,
                    interrupted=interrupted,
                )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"interrupted; a checkpoint is kept. Go on with: {self._resuming}") from None
        except BadInput:
            if self.fresh and not self.folder.checkpoints.exists():
                shutil.rmtree(self.path, ignore_errors=True)  # Nothing was begun.
            raise

    @property
    def _resuming(self) -> str:
        return f"dpnlp train {shlex.quote(str(self.path / 'config.yaml'))} --resume"

    def _charge(self) -> "Charge | None":
        """A private run is charged to the ledger beside its data; one without privacy only where there is a ledger."""
        from dpnlp.accounting.fingerprint import fingerprint
        from dpnlp.training import Charge

        chosen, texts = self.asked.privacy.ledger, sorted(self.train_pairs.files)  # One ledger for both directions.
        ledger = Ledger(chosen) if chosen else Ledger.beside(texts[0])
        if not self.asked.privacy.is_private and not ledger.path.exists():
            return None
        return Charge(ledger, f"dpnlp train {self.asked.name}", fingerprint(*texts, ledger=ledger))

    # Scores

    def _evaluate(self, model: Any) -> dict[str, float]:
        scored = self._scored(model, self.held_out["validation"][: self.asked.scoring.most])
        return {"bleu": scored.bleu(self.asked.scoring.bleu_tokenizer).value, "chrf": scored.chrf().value}

    def _scored(self, model: Any, pairs: "Sequence[Pair]") -> "Scored":
        return self.task.of(model).score(pairs, self.asked.scoring.of(self.asked.data.longest))

    def _before(self) -> list[dict[str, Any]]:
        """The scores of the model as it was, on the texts that the last score is on; kept for a resumed run."""
        kept = [row for row in self.folder.metrics() if row["step"] == 0]
        if kept or not self.held_out or self.asked.model.from_scratch:
            return kept
        split, pairs = list(self.held_out.items())[-1]
        scored = self._scored(self.start.pretrained.model, pairs)
        self.folder.write_predictions(split, scored.lines())
        rows = [self._row(0, split, scored)]
        self.folder.write_metrics(rows)
        return rows

    def _publish(self, before: Sequence[Mapping[str, Any]], history: "Sequence[Evaluation]") -> None:
        rows = [
            {"step": entry.step, "epsilon": self._spent(entry.step), "split": "validation", **entry.scores}
            for entry in history
        ]
        self.folder.write_metrics([*before, *rows])

    def _row(self, step: int, split: str, scored: "Scored") -> dict[str, Any]:
        row: dict[str, Any] = {"step": step, "epsilon": self._spent(step), "split": split}
        for name, score in self.asked.scoring.scores(scored).items():
            row |= {name: score.value, f"{name}_signature": score.signature}
        return row

    def _spent(self, step: int) -> float | str:
        spent = self.plan.epsilon_at_most(step) if step else 0.0
        return spent if math.isfinite(spent) else "inf"

    def _diagnose(self, step: int, seen: Mapping[str, float]) -> None:
        import json

        with (self.path / "diagnostics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **seen}) + "\n")

    # What is left behind

    def _write_privacy(self, own: Guarantee) -> None:
        """What is promised of the model, earlier runs included."""
        promised = self.start.promised(own, self.plan)
        self.folder.write_privacy(
            {
                "guarantee": promised.to_json(),
                "plan": self.plan.to_json(),
                "events": [events.to_json(event) for event in (*self.start.events, self.plan.event)],
                "previous": list(self.start.signatures),
            }
        )

    def _finish(self, outcome: "Outcome", before: Sequence[Mapping[str, Any]]) -> None:
        """Scores, translations, the model and the page; then the secret goes, with the checkpoints."""
        from dpnlp.models.pretrained import save
        from dpnlp.runs.page import page_of_run

        rows = self.folder.metrics()
        for split, pairs in self.held_out.items():
            scored = self._scored(outcome.model, pairs)
            earlier = [line.get("before", line["hypothesis"]) for line in self.folder.predictions(split)]
            lines = [
                line | ({"before": was} if was is not None else {})
                for line, was in zip(scored.lines(), earlier or [None] * len(pairs), strict=True)
            ]
            self.folder.write_predictions(split, lines)
            rows.append(self._row(outcome.steps, split, scored))
        self.folder.write_metrics(_unique(rows))
        save(self.task.of(outcome.model).pretrained, self.folder.model, merge=True)
        self.folder.write_report(page_of_run(self.folder))
        if not self.asked.keep_checkpoints:
            shutil.rmtree(self.folder.checkpoints, ignore_errors=True)


def _entry(run: Run) -> dict[str, Any]:
    found = {score.split: {"before": dict(score.before), "after": dict(score.after)} for score in scores(run)}
    return {"run": str(run.path), "signature": run.guarantee.signature(), "scores": found}


def _print(run: Run) -> None:
    promised = run.guarantee
    facts = {"ε": f"{figure(promised.epsilon)} at δ = {promised.delta:g} for one {promised.unit}"}
    for score in scores(run):
        was = f"{score.before['bleu']:.2f} → " if "bleu" in score.before else ""
        facts[f"BLEU, {score.split}"] = f"{was}{score.after['bleu']:.2f}"
    print_facts(f"Run {run.name}", {**facts, "model": str(run.model), "report": str(run.report)})
    print_guarantee(promised)


def _unique(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows, the later of two for one step and split alone."""
    return list({(row["step"], row["split"]): row for row in rows}.values())
