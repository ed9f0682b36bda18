"""`dpnlp account`: the planner."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from dpnlp import checks
from dpnlp.accounting import calibration, shuffling
from dpnlp.accounting.accountant import Accountant, delta_warning, epsilon
from dpnlp.accounting.planning import Plan, Question
from dpnlp.accounting.subsampling import Sampling
from dpnlp.checks import BadInput
from dpnlp.cli.config import option, warn
from dpnlp.cli.output import attack_facts, figure, print_facts, print_guarantee, print_json, print_table
from dpnlp.cli.places import PICTURES, check_file
from dpnlp.cli.ranges import COUNT, DELTA, EPOCHS, NOISE, STEPS, TARGET
from dpnlp.guarantee import Adjacency, Unit


@dataclass(frozen=True, kw_only=True)
class Account:
    """Plan a private training run before it starts. Of --epsilon, --noise-multiplier, --steps (or --epochs) and
    --lot-size leave out exactly one: it is computed from the others, and the same run is compared under the other
    samplers and accountants."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp account --examples 22051 --lot-size 2048 --epochs 25 --delta 1e-8 --epsilon 5",
        "dpnlp account --examples 60000 --lot-size 600 --steps 10000 --noise-multiplier 4 --delta 1e-5 --plot plan.png",
    )

    examples: int = option(
        within=COUNT, help="How many records the data has; with --unit user, how many users", group="the run"
    )
    lot_size: int | None = option(
        None, within=COUNT, help="Records in a lot; for Poisson sampling, expected", group="the run"
    )
    steps: int | None = option(None, within=STEPS, help="Noisy updates in all", group="the run")
    epochs: float | None = option(
        None, within=EPOCHS, help="Instead of --steps: passes of ⌈examples/lot size⌉ steps", group="the run"
    )
    noise_multiplier: float | None = option(
        None, within=NOISE, help="Noise on a lot's sum, in clip norms", group="the run"
    )
    epsilon: float | None = option(
        None, within=TARGET, help="The ε to stay within; inf for no privacy", group="the run"
    )
    delta: float = option(
        within=DELTA, help="The δ of the guarantee, well below one in the number of records", group="the run"
    )
    sampling: Sampling = option(Sampling.POISSON, help="How lots are drawn", group="how it is counted")
    largest_lot: int | None = option(
        None,
        within=COUNT,
        help="Where truncated-poisson cuts a lot; else six deviations above its size",
        group="how it is counted",
    )
    bands: int = option(
        1,
        within=COUNT,
        help="Noise in so many bands: groups that cyclic-poisson draws from in turn, or at most the lots of an epoch "
        "for cyclic",
        group="how it is counted",
    )
    sharing: int = option(
        1,
        within=COUNT,
        help="In how many records one unit has a part, its own included, as a node is in its neighbours' records too",
        group="how it is counted",
    )
    aggregations: tuple[float, ...] = option(
        (),
        within=NOISE,
        help="Sums that are released before the first step: for each its noise multiplier over that of the steps",
        group="how it is counted",
    )
    unit: Unit = option(Unit.EXAMPLE, help="Whose presence is hidden: what one record is", group="how it is counted")
    adjacency: Adjacency | None = option(
        None, help="Which data sets are neighbours; by default the sampler's usual one", group="how it is counted"
    )
    accountant: Accountant = option(Accountant.PLD, help="How the steps are added up", group="how it is counted")
    plot: Path | None = option(None, help="Draw ε over the steps and the privacy loss into this file", group="output")
    json: bool = option(False, help="Print one JSON object instead of tables", group="output")

    def run(self) -> None:
        """Answers on stdout."""
        check_file("--plot", self.plot, endings=PICTURES)
        plan = self._question().answer()
        notes = [note for note in (delta_warning(self.delta, self.examples),) if note]
        for note in notes:
            warn(note)
        if self.json:
            print_json(_entry(plan) | _shuffled_entry(plan, self) | {"comparison": _comparison(plan), "notes": notes})
        else:
            _print(plan, _comparison(plan), _shuffled_entry(plan, self))
        if self.plot is not None:
            from dpnlp.cli.pictures import draw_plan  # matplotlib takes a second to import

            draw_plan(plan, self.plot)

    def _question(self) -> Question:
        return Question(
            records=checks.count("examples", self.examples),
            delta=self.delta,
            lot_size=self.lot_size,
            steps=self.steps,
            epochs=self.epochs,
            noise_multiplier=self.noise_multiplier,
            epsilon=self.epsilon,
            sampling=self.sampling,
            largest_lot=self.largest_lot,
            bands=self.bands,
            sharing=self.sharing,
            aggregations=self.aggregations,
            adjacency=self.adjacency,
            accountant=self.accountant,
            unit=self.unit,
        )


def _entry(plan: Plan) -> dict[str, Any]:
    schedule, promised = plan.schedule, plan.guarantee
    return {
        "epsilon": promised.epsilon,
        "delta": promised.delta,
        "noise_multiplier": plan.noise_multiplier,
        "examples": schedule.records,
        "lot_size": schedule.lot_size,
        "sampling_probability": schedule.q,
        "steps": schedule.steps,
        "steps_per_epoch": schedule.lots_per_epoch,
        "sampling": schedule.sampling,
        "bands": schedule.bands,
        "sharing": schedule.sharing,
        "aggregations": list(schedule.aggregations),
        "accountant": promised.accountant.name,
        "unit": promised.unit,
        "adjacency": promised.adjacency,
        "solved_for": plan.solved_for,
        **attack_facts(promised),
        "signature": promised.signature(),
        "statement": promised.statement(),
        "guarantee": promised.to_json(),
    }


def _shuffled_entry(plan: Plan, asked: Account) -> dict[str, Any]:
    """What has to be said of shuffled lots: the bound from below, and the figure that is no guarantee (law 8)."""
    schedule, noise, delta = plan.schedule, plan.noise_multiplier, plan.guarantee.delta
    if schedule.sampling is not Sampling.SHUFFLED or noise == 0:
        return {}
    entry = {
        "lower_bound_epsilon": shuffling.lower_bound(noise, schedule.lots_per_epoch, schedule.epochs, delta),
        "lower_bound_epsilon_same_order_every_epoch": shuffling.lower_bound(
            noise, schedule.lots_per_epoch, schedule.epochs, delta, same_order=True
        ),
        "as_if_poisson_epsilon_no_guarantee": shuffling.as_if_poisson(schedule, noise, delta),
    }
    if asked.epsilon is not None and plan.solved_for == "noise_multiplier":
        poisson = replace(schedule, sampling=Sampling.POISSON)
        mistaken = calibration.noise_multiplier(asked.epsilon, poisson, delta, Adjacency.ADD_REMOVE)
        entry |= {
            "noise_multiplier_if_mistaken_for_poisson": mistaken,
            "epsilon_if_mistaken_for_poisson": epsilon(schedule.event(mistaken), delta, plan.guarantee.adjacency),
        }
    return entry


_BANDED = (Sampling.CYCLIC_POISSON, Sampling.CYCLIC)
"""The samplers that noise in bands is covered by."""


def _compared(plan: Plan) -> list[Sampling]:
    """The samplers to show side by side; with one group cyclic-poisson is Poisson sampling.

    Of units that have a part in several records only Poisson sampling knows anything.
    """
    if plan.schedule.sharing > 1:
        return [Sampling.POISSON]
    most = plan.schedule.records // plan.schedule.lot_size  # groups that cyclic-poisson can draw such lots from
    banded = 1 < plan.schedule.bands <= most
    return [sampling for sampling in Sampling if sampling is not Sampling.CYCLIC_POISSON or banded]


def _comparison(plan: Plan) -> list[dict[str, Any]]:
    """ε of the same noise, lot size and steps, for every sampler and accountant; null where no bound is known."""
    rows = []
    for sampling in _compared(plan):
        cap = plan.schedule.largest_lot if sampling is Sampling.TRUNCATED_POISSON else None
        bands = plan.schedule.bands if sampling in _BANDED else 1
        schedule = replace(plan.schedule, sampling=sampling, largest_lot=cap, bands=bands)
        adjacencies = sampling.adjacencies
        adjacency = plan.guarantee.adjacency if plan.guarantee.adjacency in adjacencies else adjacencies[0]
        for accountant in Accountant:
            try:
                cost: float | None = epsilon(
                    schedule.event(plan.noise_multiplier), plan.guarantee.delta, adjacency, accountant
                )
            except BadInput:
                cost = None
            rows.append({"sampling": sampling, "adjacency": adjacency, "accountant": accountant, "epsilon": cost})
    return rows


def _print(plan: Plan, comparison: list[dict[str, Any]], shuffled: dict[str, Any]) -> None:
    schedule, promised = plan.schedule, plan.guarantee

    def mark(name: str) -> str:
        return "   ← computed" if plan.solved_for == name else ""

    print_facts(
        "Plan",
        {
            "records": f"{schedule.records:,}, each one {promised.unit}"
            + (f", which has a part in up to {schedule.sharing} of them" if schedule.sharing > 1 else ""),
            "lot size": f"{schedule.lot_size:,}{mark('lot_size')}",
            "sampler": f"{schedule.sampling}, {schedule.q:.4%} of the records a lot"
            + (f", each lot from one of {schedule.groups} groups" if schedule.groups > 1 else ""),
            "steps": f"{schedule.steps:,}, {schedule.lots_per_epoch:,} an epoch{mark('steps')}",
            **({"before them": _released(plan)} if schedule.aggregations else {}),
            "noise multiplier": f"{plan.noise_multiplier:.6g}{mark('noise_multiplier')}",
            "ε": f"{figure(promised.epsilon)} at δ = {promised.delta:g}, by {promised.accountant}{mark('epsilon')}",
            "neighbours": promised.adjacency,
        },
    )
    if shuffled:
        print_facts("Shuffled lots", _shuffled_facts(shuffled))
    cells = {(row["sampling"], row["accountant"]): row["epsilon"] for row in comparison}
    neighbours = {row["sampling"]: row["adjacency"] for row in comparison}
    print_table(
        "ε of the same noise, lot size and steps",
        ["sampler", "neighbours", *Accountant],
        [
            [sampling, neighbours[sampling], *(_cell(cells[sampling, accountant]) for accountant in Accountant)]
            for sampling in _compared(plan)
        ],
        "All are proved bounds; – where none is known. Figures for different neighbours are not comparable."
        + (" Noise in bands is covered by cyclic-poisson and cyclic alone." if schedule.bands > 1 else "")
        + (" A unit with a part in several records is covered by poisson alone." if schedule.sharing > 1 else ""),
    )
    print_guarantee(promised)


def _released(plan: Plan) -> str:
    noises = " and ".join(f"{ratio * plan.noise_multiplier:.6g}" for ratio in plan.schedule.aggregations)
    return f"noisy sums over neighbours, at noise multipliers of {noises}"


def _shuffled_facts(entry: dict[str, Any]) -> dict[str, str]:
    facts = {
        "certainly more than": f"ε = {entry['lower_bound_epsilon']:.4g}, and ε = "
        f"{entry['lower_bound_epsilon_same_order_every_epoch']:.4g} if every epoch has the same lots",
        "as if Poisson": f"ε = {entry['as_if_poisson_epsilon_no_guarantee']:.4g}, as papers print; no guarantee here",
    }
    if "epsilon_if_mistaken_for_poisson" in entry:
        facts["the usual mistake"] = (
            f"noise of {entry['noise_multiplier_if_mistaken_for_poisson']:.5g}, chosen as if Poisson, would guarantee "
            f"only ε = {figure(entry['epsilon_if_mistaken_for_poisson'])}"
        )
    return facts


def _cell(cost: float | None) -> str:
    return "–" if cost is None or math.isnan(cost) else figure(cost)
