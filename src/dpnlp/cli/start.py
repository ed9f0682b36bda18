"""What a run starts from: a model with its tokenizer, which of it is trained, and what earlier runs have cost."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpnlp import events
from dpnlp.accounting.accountant import DIGITS
from dpnlp.accounting.releases import Contents, Release
from dpnlp.checks import BadInput
from dpnlp.cli.config import from_dict
from dpnlp.cli.sections import Data, Model, Privacy, Texts
from dpnlp.events import Event
from dpnlp.guarantee import Guarantee, NoiseSource, Term, round_up
from dpnlp.runs.folder import PRIVACY, Run

if TYPE_CHECKING:
    from dpnlp.data.pairs import Pairs
    from dpnlp.models.pretrained import Pretrained
    from dpnlp.tasks.translation import Translation
    from dpnlp.training import Plan


@dataclass(frozen=True)
class Start:
    """A model to be trained. `earlier` are the runs that made it, as far as they count."""

    pretrained: "Pretrained"
    trains: Any
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
        return whole.with_exposures(*(exposure for one in all_of_them for exposure in one.not_covered))


def start_model(model: Model, privacy: Privacy, training: "Pairs") -> Start:
    """The model that the config asks for, ready to be trained."""
    from dpnlp.models.freezing import trained
    from dpnlp.models.lora import ADAPTERS, adapt
    from dpnlp.models.pretrained import load

    earlier: tuple[Run, ...] = ()
    if model.from_scratch:
        pretrained = _from_scratch(model, privacy, training)
    else:
        folder, run = located(model.start)
        if run is not None and not model.public_start:
            earlier = (run,)
        pretrained = load(folder, computes=model.computes, dropout=model.dropout)
    if model.lora:
        from flax import nnx

        adapt(pretrained.model, model.lora, rngs=nnx.Rngs(privacy.seed or 0))
        return Start(pretrained, ADAPTERS, earlier)
    return Start(pretrained, trained(pretrained.model, model.trains, model.frozen), earlier)


def located(start: str) -> tuple[str | Path, Run | None]:
    """Where the model is, and the run that made it, if it was one of ours."""
    path = Path(start)
    for folder in (path, path.parent):
        if (folder / PRIVACY).is_file():
            run = Run.open(folder)
            if not run.model.is_dir():
                raise BadInput(f"{start}: the run is not finished, for it has no model yet; finish it first.")
            return run.model, run
    return start, None


def opened(model: str, given: Texts, computes: str) -> tuple["Translation", Data]:
    """A model to be used, and the texts for it: those of its run, where it is one of ours, but for what is given."""
    from dpnlp.models.pretrained import load
    from dpnlp.tasks.translation import Translation

    folder, run = located(model)
    data = (from_dict(Data, run.config["data"]) if run else Data()).but(given)
    pretrained = load(folder, computes=computes, dropout=0.0)
    return Translation(pretrained, data.longest, data.prefix, data.languages), data


def _from_scratch(model: Model, privacy: Privacy, training: "Pairs") -> "Pretrained":
    """Random weights. The vocabulary must not come from private texts (law 10)."""
    from transformers import AutoTokenizer

    from dpnlp.data.vocabulary import learned
    from dpnlp.models.pretrained import from_scratch

    if model.tokenizer is not None:
        tokenizer = AutoTokenizer.from_pretrained(model.tokenizer)
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
    )


def _texts(pairs: "Pairs") -> Iterator[str]:
    for pair in pairs:
        yield from (pair.source, pair.target)
