"""`dpnlp ledger ...`: what has been spent on a data set, and what may be."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from dpnlp import events
from dpnlp.accounting import releases
from dpnlp.accounting.ledger import Ledger
from dpnlp.accounting.releases import Contents, Release, Spent
from dpnlp.checks import BadInput
from dpnlp.cli.config import option, shown, warn
from dpnlp.cli.output import figure, print_facts, print_json, print_table
from dpnlp.cli.ranges import DELTA, DELTA_OR_0, FREE, LINE, PROMISED
from dpnlp.data.ledgers import DataSet
from dpnlp.events import ApproximateDP, Event
from dpnlp.foreign import parse_json
from dpnlp.guarantee import Adjacency, Unit

_DATASET = "The data set, a file or a folder; its ledger lies beside it"


@dataclass(frozen=True, kw_only=True)
class Show:
    """Show what has been released from a data set, what all of it cost together (composed by privacy loss
    distributions, not added up), and what is left of the budget."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp ledger corpus.jsonl",
        "dpnlp ledger corpus.jsonl --delta 1e-6 --json",
    )

    dataset: Path = option(help=_DATASET, positional=True)
    delta: float | None = option(None, within=DELTA, help="The δ at which ε is shown; by default the budget's")
    unit: Unit | None = option(None, help="For whom; by default the largest unit that all releases protect")
    owner: str | None = option(None, help="The column that says which records are one such unit's")
    adjacency: Adjacency | None = option(None, help="Which neighbours; by default those that all releases are for")
    json: bool = option(False, help="Print one JSON object instead of tables", group="output")

    def run(self) -> None:
        """Answers on stdout."""
        ledger, contents = self._fullest()
        for warning in contents.warnings:
            warn(warning)
        spent = self._spent(contents)
        if self.json:
            print_json(_entry(ledger, contents, spent))
        else:
            _print(ledger, contents, spent)

    def _fullest(self) -> tuple[Ledger, Contents]:
        """The ledger beside the data or, where another one of their texts has more, that: no text costs more than it.

        So it is for a copy, whose ledger is younger than that of the original, and for a ledger that was put back.
        """
        beside = Ledger.beside(self.dataset)
        others = [ledger for ledger in DataSet.known(self.dataset).ledgers() if ledger.path != beside.path]
        every = [(ledger, ledger.read()) for ledger in (beside, *others)]
        own = every[0][1]
        budget = own.budget or next((contents.budget for _, contents in every if contents.budget), None)
        every = [(ledger, replace(contents, budget=budget)) for ledger, contents in every]

        def cost(found: tuple[Ledger, Contents]) -> float:
            spent = self._spent(found[1])
            return len(found[1].counted) if spent is None else spent.epsilon

        most = max(every, key=cost)  # The first of them, where several have the same.
        if most[0] is not beside and beside.exists:
            warn(f"{beside.path}: it has only a part of what was released of these texts; {most[0].path} has more.")
        return most

    def _spent(self, contents: Contents) -> Spent | None:
        """Where neither the call nor a budget gives a δ, there is nothing to compose at."""
        if self.delta is None and contents.budget is None:
            return None
        if contents.budget and self.delta is None and self.unit is None and self.adjacency is None:
            budget = contents.budget
            return contents.spent(budget.delta, budget.unit, budget.adjacency, budget.owner)
        return contents.spent(self.delta, self.unit, self.adjacency, self.owner)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Set what may be spent on a data set from now on, all earlier releases included. A run that would exceed it is
    refused before it starts, whichever of its files it reads, and if it reads a copy of them. The last budget set is
    the one that counts; earlier ones stay in the ledger."""

    EXAMPLES: ClassVar[tuple[str, ...]] = ("dpnlp ledger budget corpus.jsonl --epsilon 8 --delta 1e-6",)

    dataset: Path = option(help=_DATASET, positional=True)
    epsilon: float = option(within=PROMISED, help="The most that all releases together may cost")
    delta: float = option(within=DELTA, help="The δ at which that is measured")
    unit: Unit = option(Unit.EXAMPLE, help="For whom the budget is")
    owner: str = option("", within=LINE, help="For users and documents, the column that says which records are one's")
    adjacency: Adjacency = option(Adjacency.ADD_REMOVE, help="Which neighbours it is for")
    json: bool = option(False, help="Print one JSON object instead of tables", group="output")

    def run(self) -> None:
        """Writes one line to the ledger and shows where it stands."""
        budget = releases.Budget(self.epsilon, self.delta, self.unit, self.adjacency, self.owner)
        DataSet.at(self.dataset).set_budget(budget)
        Show(dataset=self.dataset, json=self.json).run()


@dataclass(frozen=True, kw_only=True)
class Add:
    """Enter a release that is made by other means. Give its --epsilon (and --release-delta) or, as it composes more
    tightly, its --event: the JSON that privacy.json has. It is refused if it would exceed the budget."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp ledger add corpus.jsonl --what 'word counts of 2025' --epsilon 0.5",
        'dpnlp ledger add corpus.jsonl --what pilot --event \'{"event": "gaussian", "noise_multiplier": 4}\'',
    )

    dataset: Path = option(help=_DATASET, positional=True)
    what: str = option(help="What was released, in a few words that do not quote the data")
    epsilon: float | None = option(None, within=PROMISED, help="The ε that was promised")
    release_delta: float = option(0.0, within=DELTA_OR_0, help="The δ that was promised with it")
    event: str | None = option(None, within=FREE, help="Instead of --epsilon: the event as JSON")
    unit: Unit = option(Unit.EXAMPLE, help="Whom the release protects")
    owner: str = option("", within=LINE, help="For users and documents, the column that says which records are one's")
    adjacency: Adjacency = option(Adjacency.ADD_REMOVE, help="Which neighbours its guarantee is for")
    json: bool = option(False, help="Print one JSON object instead of tables", group="output")

    def run(self) -> None:
        """Writes one line to the ledger and shows where it stands."""
        release = Release.now(None, self.what, self._event(), self.unit, self.adjacency, self.owner)
        DataSet.at(self.dataset).charge(release)
        Show(dataset=self.dataset, json=self.json).run()

    def _event(self) -> Event:
        if (self.epsilon is None) == (self.event is None):
            raise BadInput("--epsilon, --event: exactly one of them must say what the release costs.")
        if self.epsilon is not None:
            return ApproximateDP(self.epsilon, self.release_delta)
        try:
            return events.from_json(parse_json(self.event or ""))
        except BadInput:
            raise
        except ValueError:
            raise BadInput(
                f"--event = {shown(self.event)}: it is not valid JSON; give what privacy.json has."
            ) from None


def _entry(ledger: Ledger, contents: Contents, spent: Spent | None) -> dict[str, Any]:
    budget = contents.budget
    return {
        "ledger": str(ledger.path),
        "epsilon": spent.epsilon if spent else None,
        "delta": spent.delta if spent else None,
        "unit": spent.unit if spent else contents.unit,
        "owner": spent.owner if spent else contents.owner,
        "adjacency": spent.adjacency if spent else contents.adjacency,
        "reasons": list(spent.reasons) if spent else [],
        "budget": budget
        and {
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "unit": budget.unit,
            "owner": budget.owner,
            "adjacency": budget.adjacency,
        },
        "releases": [
            {
                "id": release.id,
                "time": release.time,
                "what": release.what,
                "unit": release.unit,
                "owner": release.owner,
                "adjacency": release.adjacency,
                "in_clear": release.in_clear,
                "fingerprint": release.fingerprint,
                "event": events.to_json(release.event),
            }
            for release in contents.releases
        ],
        "warnings": list(contents.warnings),
    }


def _print(ledger: Ledger, contents: Contents, spent: Spent | None) -> None:
    if contents.releases:
        print_table(
            f"Releases in {ledger.path.name}",
            ["what", "when", "unit", "neighbours", "data", "ε alone"],
            [
                [
                    release.what,
                    release.time[:16].replace("T", " "),
                    release.whose,
                    release.adjacency,
                    release.fingerprint[:8],
                    _alone(release, spent),
                ]
                for release in contents.releases
            ],
        )
    facts = {"releases": str(len(contents.releases))}
    if spent is None:
        facts["spent"] = "give --delta, or set a budget, to see the ε of all releases together"
    else:
        facts["spent"] = f"ε = {figure(spent.epsilon)} at δ = {spent.delta:g}, all releases together"
        if contents.releases:
            facts["for one"] = f"{spent.whose or 'unit in common: there is none'}, under {spent.adjacency}"
        facts |= {f"because ({number})": reason for number, reason in enumerate(spent.reasons, start=1)}
    if clear := len(contents.releases) - len(contents.counted):
        facts["but for"] = f"the texts that were written out in clear, by {clear} of the releases"
    if contents.budget:
        budget = contents.budget
        facts["budget"] = f"ε = {budget.epsilon:g} at δ = {budget.delta:g} for one {budget.whose}, {budget.adjacency}"
    else:
        facts["budget"] = "none is set; nothing is refused"
    print_facts("Ledger", facts)


def _alone(release: Release, spent: Spent | None) -> str:
    """What the release would have cost by itself; together they cost less than the sum of these."""
    if spent is None:
        return ""
    alone = Contents(releases=(replace(release, in_clear=False),))
    return figure(alone.spent(spent.delta, spent.unit, spent.adjacency, spent.owner).epsilon)
