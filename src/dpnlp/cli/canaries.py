"""`dpnlp train --audit.canaries N`: made-up records are put among those of a run, and looked for in its model."""

from typing import TYPE_CHECKING, Any

from dpnlp.checks import BadInput
from dpnlp.cli.config import warn
from dpnlp.cli.text_job import TextJob
from dpnlp.runs.folder import CANARIES, Run

if TYPE_CHECKING:
    from dpnlp.audit.canaries import Canaries, Found
    from dpnlp.cli.train import Train
    from dpnlp.cli.training import Job

MANY = 0.1
"""Where more than this share of the records is made up, the model may be worse for it."""
WRITTEN = 64
"""The most canaries that a model is asked to write out."""

_PLACE = 1
"""Where a seeded run draws them, apart from the noise."""


class Planted:
    """The canaries of a run: drawn when it begins, and the same when it goes on."""

    def __init__(self, asked: "Train", job: "Job") -> None:
        from dpnlp.audit.canaries import Canaries

        count = asked.audit.canaries
        kept = _kept(asked, count)
        _refuse_too_few(count)
        if not isinstance(job, TextJob):
            raise BadInput(
                f"audit.canaries = {count}: a made-up node would have edges to others and change what these are; leave "
                "it out."
            )
        self._job = job
        _refuse_too_many(count, job.records)
        self.canaries = Canaries.drawn(count, job.task.tokenizer, _source(asked)) if kept is None else kept
        self._records = [job.task.made_up(canary.words, canary.choices) for canary in self.canaries]
        if any(map(job.learned.has, self._records)):
            raise BadInput(
                f"audit.canaries = {count}: a record that was made up is one of the training records by chance, so "
                "that nobody can say whether it is in or out; try again, or with a larger vocabulary."
            )
        chosen = self._put_in
        if chosen:
            job.plant(chosen)

    @property
    def _put_in(self) -> list[Any]:
        return [record for record, canary in zip(self._records, self.canaries, strict=True) if canary.put_in]

    def found(self, trained: Any) -> "Found":
        """What the trained model tells of them."""
        from dpnlp.audit.canaries import Found, scores

        job, start = self._job, self._job.start
        examples = job.task.examples(self._records)
        own = scores(start.model, trained, start.trains, job.loss, examples, int(examples.lengths.max()))
        asked = self._put_in[:WRITTEN]
        written = job.written(trained, asked) if asked else None
        return Found(self.canaries, own, None if written is None else (sum(written), len(written)))


def planted(asked: "Train", job: "Job") -> Planted | None:
    """Puts canaries among the records of a job, where that is asked for."""
    if not asked.audit.canaries and (not asked.resume or Run(asked.runs / asked.name).canaries() is None):
        return None
    return Planted(asked, job)


def _refuse_too_few(count: int) -> None:
    from dpnlp.audit.canaries import LEAST

    if count < LEAST:
        raise BadInput(
            f"audit.canaries = {count}: with fewer than {LEAST} no test says anything; ask for more, or for 0 to have "
            "none."
        )


def _kept(asked: "Train", count: int) -> "Canaries | None":
    """Those that a run began with, which it goes on with."""
    from dpnlp.audit.canaries import Canaries

    if not asked.resume:
        return None
    run = Run.open(asked.runs / asked.name)
    entry = run.canaries()
    if entry is None:
        if run.checkpoints.exists():
            raise BadInput(
                f"audit.canaries = {count}: the run in {run.path} has no {CANARIES}, so that it began without any, or "
                "lost them; restore the file, or ask for 0."
            )
        return None
    kept = Canaries.from_json(entry)
    if len(kept) != count:
        raise BadInput(f"audit.canaries = {count}: the run in {run.path} began with {len(kept)}; go on with as many.")
    return kept


def _source(asked: "Train") -> Any:
    """Where canaries and coins come from: not where the noise does."""
    from dpnlp.mechanisms.randomness import FixedSeed, seeded

    source = seeded(asked.privacy.seed)
    if isinstance(source, FixedSeed):
        source.restart(_PLACE)
    return source


def _refuse_too_many(count: int, records: int) -> None:
    """Half of the canaries are expected to be put in."""
    if count > 2 * records:
        raise BadInput(
            f"audit.canaries = {count}: half of them are put in, and there are only {records} other records, so that "
            f"most of what is learned would be made up; ask for at most {2 * records}."
        )
    if count > 2 * MANY * records:
        warn(
            f"audit.canaries = {count}: about {count // 2} made-up records are put among {records}, which the model "
            "learns from as from any other; it may be worse for it."
        )
