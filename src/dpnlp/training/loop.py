"""A run: lots are drawn, cut and prepared while the device works, steps are made, evaluated and kept.

Whatever leaves this loop has been through noise, or was asked for as unsafe diagnostics (law 9): parameters, scores of
the evaluation that the caller brings, and how far the run is.
"""

import math
import secrets
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.experimental.multihost_utils import broadcast_one_to_all

from dpnlp import checks
from dpnlp.accounting.releases import Release
from dpnlp.checks import BadInput
from dpnlp.guarantee import Exposure, Guarantee
from dpnlp.training import rounding
from dpnlp.training.checkpoints import Checkpoints, Evaluation, Record
from dpnlp.training.clipping import Loss
from dpnlp.training.dataset import Dataset
from dpnlp.training.independence import refuse_mixing
from dpnlp.training.parameters import Filter, Parts, apart
from dpnlp.training.plan import Plan
from dpnlp.training.progress import Progress
from dpnlp.training.sampling import Layout, Lots, Owners, cut, prefetch
from dpnlp.training.secret import Secret
from dpnlp.training.sharding import Placement
from dpnlp.training.step import Examples, Step

AHEAD = 4
"""How many physical batches may wait on the device."""

MANY = 32
"""From so many examples on, a CPU is no slower with a quarter of them at once, and fewer rows are filled up."""

Evaluate = Callable[[nnx.Module], Mapping[str, float]]
Publish = Callable[[Sequence[Evaluation]], None]
Diagnose = Callable[[int, Mapping[str, float]], None]
Stop = Callable[[Sequence[Evaluation]], bool]


@dataclass(frozen=True)
class Options:
    """How a run is carried out. Nothing here changes what it promises."""

    physical_batch: int = 16  # examples on the devices at once
    lengths: tuple[int, ...] | None = None  # to which texts are padded; by default 16, 32, 64 and so on
    longest: int | None = None  # the most tokens that a text may have, from public knowledge: none is padded beyond
    placement: Placement = field(default_factory=Placement)
    evaluate_every: int = 0  # steps; 0 evaluates only at the end
    checkpoint_every: int = 0  # steps; 0 keeps one only with each evaluation
    average: float = 0.0  # decay of the average of the parameters that is evaluated and returned; 0 takes none
    examples_per_owner: int = 16  # the most that an owner takes part with

    def __post_init__(self) -> None:
        checks.count("evaluate_every", self.evaluate_every, least=0)
        checks.count("checkpoint_every", self.checkpoint_every, least=0)
        if not 0 <= self.average < 1:
            raise BadInput(f"average = {self.average}: it must be at least 0 and below 1; 0.99 is usual, 0 takes none.")

    def layout(self, data: Dataset, plan: Plan) -> Layout:
        """The physical shapes for these data. No batch is larger than a lot.

        To which length a text is padded follows from that text alone: powers of two, as far as any text needs them.
        """
        needed, devices = max(1, int(data.lengths.max())), self.placement.devices
        ladder = tuple(16 * 2**power for power in range(max(0, (needed - 1) // 16).bit_length() + 1))
        lengths = self.lengths or tuple(sorted({min(length, self.longest or length) for length in ladder}))
        if not self.lengths and lengths[-1] < needed:
            raise BadInput(f"longest = {self.longest}: the data has texts of more tokens; cut them, or raise it.")
        asked = Layout(self.physical_batch, lengths, devices)
        batch = min(self.physical_batch, -(-math.ceil(plan.schedule.lot_size) // devices) * devices)
        if jax.default_backend() == "cpu" and batch >= MANY * devices:
            batch = batch // (4 * devices) * devices
        return replace(asked, physical_batch=batch)


@dataclass(frozen=True)
class Charge:
    """What is told of a run, and to whom: ledgers enter it, or refuse it, before anything is released."""

    enter: Callable[[Release], None]
    what: str


@dataclass(frozen=True)
class Outcome:
    """A trained model, what was promised, and the evaluations on the way.

    `compilations` counts the shapes that were compiled. They depend on the lots, so that it is not covered.
    """

    model: nnx.Module
    guarantee: Guarantee
    history: tuple[Evaluation, ...]
    steps: int
    compilations: int


def train(
    model: nnx.Module,
    loss: Loss,
    data: Dataset,
    plan: Plan,
    optimizer: optax.GradientTransformation,
    options: Options,
    *,
    trains: Filter = nnx.Param,
    owners: np.ndarray[Any, Any] | None = None,
    secret: Secret | None = None,
    folder: Path | None = None,
    resume: bool = False,
    charge: Charge | None = None,
    aggregate: Callable[[Secret], Dataset] | None = None,
    evaluate: Evaluate | None = None,
    publish: Publish = lambda history: None,
    stop: Stop | None = None,
    diagnose: Diagnose | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    spent: Callable[[int], float] | None = None,
    run: str | None = None,
    made_of: Sequence[str] = (),
) -> Outcome:
    """Trains a model as planned. The model that was handed in stays as it is.

    `owners` names the owner of each example; then an owner with all its examples is one record. `folder` is where
    checkpoints go, and `resume` goes on from the last one, also after a crash. `evaluate` sees a model only when its
    step is on the disk and cannot be made again in another way; `publish` gets all evaluations so far, some of them
    again after a crash, and `stop` may end the run early, in the light of them, which the guarantee names: what was
    evaluated on may be private. `diagnose` is unsafe: it gets what each
    lot showed of the data, and the guarantee says so. `aggregate` releases what the plan counts as made before the
    first step, once that is paid for: the data that are learned from, with noise of the run's own secret. Then `data`
    are the same without noise, and nothing is learned from them. Once `interrupted` says so, the run is kept after the
    step it is in, to be resumed, and ends with a KeyboardInterrupt. `spent` says which ε is shown after so many steps,
    where more went into the model than the plan knows. `run` is the id under which a ledger has it; by
    default it gets one of its own. `made_of` are the ids of the runs that the model was made of.
    """
    parts, placement = apart(model, trains), options.placement
    step = Step(loss, parts.frame, placement.state(parts.rest), plan, optimizer, placement, options.average)
    state, done = step.start(parts.parameters), 0
    diagnostics = [Exposure.DIAGNOSTICS] if diagnose else []
    chosen = [Exposure.VALIDATION] if stop else []
    record = _fresh(plan, secret, bool(diagnose), bool(charge), run, made_of)
    checkpoints = Checkpoints(folder) if folder else None
    begun = checkpoints is not None and checkpoints.last is not None
    try:
        if checkpoints and begun:
            if not resume:
                raise BadInput(f"folder = {folder}: there is a run in it already; resume it, or choose another folder.")
            done, state, record = checkpoints.load(state, record.plan)
            if run and record.run != run:
                raise BadInput(
                    f"resume: {folder} is of run {record.run}, and privacy.json beside it of {run}; restore that file."
                )
        guarantee = plan.guarantee(record.secret.kind, *diagnostics, *chosen)
        lots = Lots(plan.schedule, record.secret)
        people = None if owners is None else Owners(owners, options.examples_per_owner, record.secret)
        _refuse_other_data(plan, data, people)
        _refuse_other_releases(plan, aggregate)
        layout = options.layout(data, plan)
        _refuse_mixing(loss, parts, data, layout)
        _refuse_rounding(loss, parts, data, plan, layout, people)
        # The run has its id before it is charged, and is charged before it releases anything: no crash hides its cost,
        # and none makes it pay twice.
        if checkpoints and not begun:
            checkpoints.save(0, state, record)
        if charge and jax.process_index() == 0:
            charge.enter(Release.now(record.run, charge.what, plan.event, plan.unit, plan.adjacency, plan.owner))
    except BaseException as error:
        if checkpoints and isinstance(error, BadInput) and not begun:
            checkpoints.remove()
        elif checkpoints:
            checkpoints.close()
        raise

    if aggregate:
        data = aggregate(record.secret)
        _refuse_other_data(plan, data, people)
    last = plan.schedule.steps

    def trained() -> nnx.Module:
        return parts.model(jax.tree.map(jnp.copy, state.average or state.parameters))

    def ends() -> bool:
        """Evaluates what is on the disk by now, where that is due, and says whether the run is to end here."""
        nonlocal record
        if evaluate and done and (done == last or _falls_on(done, options.evaluate_every)):
            record = record.evaluated(done, evaluate(trained()))
            publish(record.history)
            return stop is not None and done < last and stop(record.history)
        return False

    waiting: deque[jax.Array] = deque()
    with ExitStack() as held:
        if checkpoints:
            held.callback(checkpoints.close)
        steps = range(last, last) if ends() else range(done, last)
        prepared = held.enter_context(closing(prefetch(_prepared(steps, lots, data, people, layout, options), AHEAD)))
        bar = held.enter_context(Progress(last, done))
        sums, dropout_key = step.empty(state.parameters), record.secret.key("dropout", done)
        for batch in prepared:
            if batch is not None:
                sums = step.add(sums, state.parameters, dropout_key, batch.examples, batch.per_record, state.carried)
                waiting.append(sums.seen.records)
                if len(waiting) > AHEAD:
                    waiting.popleft().block_until_ready()
                continue
            state = step.finish(state, sums, record.secret.key("noise", done))
            done += 1
            if diagnose:
                diagnose(done, sums.seen.summary())
            sums, dropout_key = step.empty(state.parameters), record.secret.key("dropout", done)
            bar.advance((spent or plan.epsilon_at_most)(done) if bar.shown else 0.0)
            leaves = interrupted()
            due = _falls_on(done, options.checkpoint_every) or (evaluate and _falls_on(done, options.evaluate_every))
            if checkpoints and (due or leaves or done == last):
                checkpoints.save(done, state, record)
            if leaves:
                raise KeyboardInterrupt
            if ends():
                break
    return Outcome(trained(), guarantee, record.history, done, step.compilations)


def _fresh(
    plan: Plan, secret: Secret | None, diagnosed: bool, charged: bool, run: str | None, made_of: Sequence[str]
) -> Record:
    """The record of a new run, the same on all hosts, and with all that a resumed run must have in common with it.

    NumPy and JAX may change what a generator draws from one version to the next. A shuffled epoch that changes half-way
    would show some records twice, and one release with other noise is two, which nobody has paid for.
    """
    secret, name = secret or Secret.drawn(), bytes.fromhex(run) if run else secrets.token_bytes(8)
    if jax.process_count() > 1:
        value, name = (bytes(broadcast_one_to_all(np.frombuffer(own, np.uint8))) for own in (secret.value, name))
        secret = Secret(value, secret.kind)
    libraries = {"numpy": np.__version__, "jax": jax.__version__}
    also = {"diagnostics": diagnosed, "ledger": charged, "made_of": list(made_of), **libraries}
    return Record(name.hex(), secret, plan.to_json() | also)


class _Prepared(NamedTuple):
    """A physical batch, ready on the devices."""

    examples: Examples
    per_record: int


def _prepared(
    steps: Iterable[int], lots: Lots, data: Dataset, owners: Owners | None, layout: Layout, options: Options
) -> Generator[_Prepared | None, None, None]:
    """The physical batches of all lots, with None at the end of each lot, also of an empty one (law 3)."""
    for step in steps:
        for shape, rows, weights in cut(lots.draw(step), layout, data.lengths, lots.places(step), owners):
            examples = options.placement.batch((data.batch(rows, shape.length), rows.astype(np.int32), weights))
            yield _Prepared(Examples(*examples), shape.examples)
        yield None


def _refuse_other_data(plan: Plan, data: Dataset, owners: Owners | None) -> None:
    found = len(data) if owners is None else len(owners)
    if plan.schedule.records != found:
        what = "examples" if owners is None else "owners"
        raise BadInput(f"records = {plan.schedule.records}: the data has {found} {what}; plan for as many.")


def _refuse_other_releases(plan: Plan, aggregate: Callable[[Secret], Dataset] | None) -> None:
    planned = len(plan.schedule.aggregations)
    if bool(planned) is not bool(aggregate):
        found = "makes some" if aggregate else "makes none"
        raise BadInput(
            f"aggregations = {planned}: that many releases before the first step are paid for, and this run {found}; "
            "plan for what is made."
        )


def _refuse_mixing(loss: Loss, parts: Parts, data: Dataset, layout: Layout) -> None:
    """Looks at the shortest examples, which can be padded to more than one length."""
    few = np.sort(np.argsort(data.lengths, kind="stable")[:4])
    lengths = sorted({int(layout.padded(data.lengths[few].astype(np.int64)).max()), layout.lengths[-1]})
    refuse_mixing(loss, parts, *(data.batch(few, length) for length in lengths))


def _refuse_rounding(
    loss: Loss, parts: Parts, data: Dataset, plan: Plan, layout: Layout, owners: Owners | None
) -> None:
    """Refuses batches and lots of which rounding could lift a record above what the noise is made for (law 13)."""
    if not plan.noise_multiplier:
        return
    rounding.refuse_reordering()
    example, most = data.batch(np.zeros(1, np.int64), layout.lengths[-1]), owners.most if owners else 1
    widths = sorted({min(2**power, most) for power in range(most.bit_length() + 1)})
    records = {width: layout.size(width) for width in widths}
    lot = min(plan.schedule.records, 2 * plan.schedule.lot_size + 64)
    batches = sum(lot / count + len(layout.lengths) for count in records.values())
    eta = rounding.of_lot(batches, lot) + max(
        plan.contribution.rounding(plan, loss, parts, example, count, width) for width, count in records.items()
    )
    if eta > rounding.ROUNDING:
        raise BadInput(
            f"physical_batch = {layout.physical_batch}: with lots of {plan.schedule.lot_size:g} rounding could lift "
            f"what one {plan.unit} adds by {100 * eta:.2g} % of the clip norm, and noise is made for "
            f"{100 * rounding.ROUNDING:g} %; use smaller batches or smaller lots."
        )


def _falls_on(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
