"""`dpnlp train`: a model learns from private texts, privately. Each task has settings of its own."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dpnlp.cli.config import option
from dpnlp.cli.output import figure, print_facts, print_guarantee, print_json
from dpnlp.cli.ranges import NAME
from dpnlp.cli.sections import Audit, Federated, Learning, Privacy, Scoring, TextPrivacy
from dpnlp.cli.tasks import task_of, verb_of
from dpnlp.guarantee import percent
from dpnlp.runs.folder import Run
from dpnlp.runs.lifecycle import Stage, attended, command_of, finish, stage_of
from dpnlp.runs.tables import label, scores

if TYPE_CHECKING:
    from dpnlp.cli.training import Job
    from dpnlp.runs.provenance import Door
    from dpnlp.training.contributions import Contribution


@dataclass(frozen=True, kw_only=True)
class Train(ABC):
    """What all tasks have in common; `data`, `model`, `privacy` and `scoring` are those of the task."""

    VERB: ClassVar[str] = "train"

    task: str = option(help="What is learned", group="the run")
    name: str = option(within=NAME, help="The name of the run", group="the run")
    runs: Path = option(Path("runs"), help="The folder that runs are in", group="the run")
    resume: bool = option(False, help="Go on with a run that was stopped, from its last checkpoint", group="the run")
    keep_checkpoints: bool = option(
        False, help="Keep the last checkpoint, which contains the noise secret", group="the run"
    )
    tuned: bool = option(
        False,
        help="Say in the statement that this run is one of several on the same private data; dpnlp sweep sets it",
        group="the run",
    )
    data: Any
    model: Any
    privacy: Privacy
    learning: Learning = option(Learning(), help="learning")
    scoring: Scoring
    audit: Audit = option(Audit(), help="audit")
    json: bool = option(False, help="Print one JSON object at the end instead of words", group="output")

    @abstractmethod
    def job(self, door: "Door") -> "Job":
        """What is trained on what. All that was made of data and is read for it goes through the door."""

    def contribution(self) -> "Contribution":
        """What a record adds to the sum over a lot."""
        from dpnlp.training.contributions import GRADIENTS

        return GRADIENTS

    def run(self) -> int:
        """Trains, says on stdout what came out, and gives the exit code, which tells a claim that was refuted."""
        from dpnlp.cli.audit import VIOLATED

        run = self.made()
        if self.json:
            print_json(_entry(run))
        else:
            _print(run)
        return VIOLATED if run.audit().get("canaries", {}).get("refuted") else 0

    def made(self) -> Run:
        """Trains, and says nothing."""
        run = Run(self.runs / self.name)
        with attended(run, self.resume, command_of(self.VERB, run)) as stage:
            if stage is not Stage.PUBLISHED:
                from dpnlp.cli.training import Training

                Training(self).run()
            finish(run, self.keep_checkpoints)
        return Run.open(run.path)

    @property
    def finished(self) -> bool:
        """Whether the run is there, all of it."""
        return stage_of(Run(self.runs / self.name)) is Stage.FINISHED

    @property
    def begun(self) -> bool:
        """Whether a run is there that can be gone on with."""
        return stage_of(Run(self.runs / self.name)) in (Stage.BEGUN, Stage.PUBLISHED)

    @classmethod
    def chosen(cls, arguments: Sequence[str]) -> Any:
        """The settings for what is typed: those of the task that a flag or the settings file names."""
        return verb_of("Train", task_of("Train", arguments))


@dataclass(frozen=True, kw_only=True)
class TrainTexts(Train):
    """What tasks of texts have in common: somebody wrote them, so that the unit may be a user."""

    privacy: TextPrivacy = option(TextPrivacy(), help="privacy")
    federated: Federated = option(Federated(), help="federated averaging")

    def contribution(self) -> "Contribution":
        return self.federated.contribution(self.privacy.unit)


def _entry(run: Run) -> dict[str, Any]:
    found = {score.split: {"before": dict(score.before), "after": dict(score.after)} for score in scores(run)}
    entry = {"run": str(run.path), "signature": run.guarantee.signature(), "scores": found}
    return entry | {"audit": audit} if (audit := run.audit()) else entry


def _print(run: Run) -> None:
    promised = run.guarantee
    facts = {"ε": f"{figure(promised.epsilon)} at δ = {promised.delta:g} for one {promised.unit}"}
    for score in scores(run):
        first = next(iter(score.after))
        was = f"{score.before[first]:.2f} → " if first in score.before else ""
        facts[f"{label(first)}, {score.split}"] = f"{was}{score.after[first]:.2f}"
    if found := run.audit().get("canaries"):
        facts["canaries"] = _shown(found, promised.is_private)
    print_facts(f"Run {run.name}", {**facts, "model": str(run.model), "report": str(run.report)})
    print_guarantee(promised)


def _shown(found: Mapping[str, Any], claimed: bool) -> str:
    """What canaries show, and what follows for the claim, if there is one."""
    bound = f"ε > {found['above']:.2f}" if found["above"] else "no ε"
    shown = f"show {bound}, with {percent(found['confidence'], 6)} confidence"
    claim = "THE CLAIM IS REFUTED" if found["refuted"] else "the claim is not refuted, which proves nothing"
    return f"{shown}; {claim}" if claimed else shown
