"""What a run starts from: a model, which of it is trained, and what earlier runs have cost."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpnlp import events
from dpnlp.accounting.accountant import DIGITS
from dpnlp.accounting.releases import Contents, Release
from dpnlp.checks import BadInput
from dpnlp.cli.config import C, from_dict
from dpnlp.events import Event
from dpnlp.guarantee import Guarantee, NoiseSource, Term, round_up
from dpnlp.runs.folder import CONFIG, PRIVACY, Run

if TYPE_CHECKING:
    from dpnlp.training import Plan


@dataclass(frozen=True)
class Start:
    """A model to be trained. `earlier` are the runs, or other releases, that it was made of, as far as they count."""

    model: Any
    trains: Any  # which of its parameters
    earlier: tuple[Run, ...] = ()

    @property
    def events(self) -> tuple[Event, ...]:
        """What the earlier runs did to their data."""
        return tuple(events.from_json(entry) for run in self.earlier for entry in run.privacy["events"])

    @property
    def signatures(self) -> tuple[str, ...]:
        return tuple(run.guarantee.signature() for run in self.earlier)

    def promised(self, own: Guarantee, plan: "Plan") -> Guarantee:
        """What is promised of the model in the end: the earlier runs are composed with this one.

        Whoever is in the data of both runs is behind both; so both count, whether the data are the same or not.
        """
        if not self.earlier:
            return own
        made = [
            (event, run.guarantee) for run in self.earlier for event in map(events.from_json, run.privacy["events"])
        ]
        releases = [
            Release(f"{number}", "", "an earlier run", event, was.unit, was.adjacency, "")
            for number, (event, was) in enumerate(made)
        ]
        this = Release("this", "", "this run", plan.event, plan.unit, plan.adjacency, "")
        spent = Contents((*releases, this)).spent(plan.delta)
        all_of_them = [own, *(run.guarantee for run in self.earlier)]
        known_seed = any(one.noise_source is NoiseSource.FIXED_SEED for one in all_of_them)
        whole = replace(
            own,
            epsilon=round_up(spent.epsilon, DIGITS),
            unit=spent.unit or own.unit,
            adjacency=spent.adjacency,
            mechanism=Term.of("composition", runs=len(made) + 1),
            sampler=own.sampler if len({one.sampler for one in all_of_them}) == 1 else Term("several"),
            accountant=Term("pld"),
            steps=sum(one.steps for one in all_of_them),
            noise_source=NoiseSource.FIXED_SEED if known_seed else own.noise_source,
        )
        whole = whole.with_canaries(sum(run.guarantee.canaries for run in self.earlier))
        return whole.with_exposures(*(exposure for one in all_of_them for exposure in one.not_covered))


def data_of(run: Run, task: str, settings: type[C]) -> C:
    """How a run read its texts, if it learned this task."""
    if (learned := run.config.get("task", "translation")) != task:
        raise BadInput(f"task = {task}: the run in {run.path} has learned {learned}; leave --task out.")
    place, data = run.path / CONFIG, run.config.get("data")
    if not isinstance(data, Mapping):
        raise BadInput(f"{place}: it does not say under data how texts are read; restore the file that the run wrote.")
    try:
        return from_dict(settings, data)
    except BadInput as error:
        raise BadInput(f"{place}: data: {error}") from None


def located(start: str) -> tuple[str | Path, Run | None]:
    """Where the model is, and the run that made it, if it was one of ours."""
    if (found := released(start)) is None:
        return start, None
    run = Run.open(found.path)
    if not run.model.is_dir():
        raise BadInput(f"{start}: the run is not finished, for it has no model yet; finish it first.")
    return run.model, run


def released(source: str) -> Run | None:
    """The run, or another release of private data such as a vocabulary, that this folder is or lies in, if it does.

    What privacy.json says there is what using it costs.
    """
    path = Path(source)
    return next((Run(folder) for folder in (path, path.parent) if (folder / PRIVACY).is_file()), None)
