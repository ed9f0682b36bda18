"""`dpnlp report RUN ...`: what runs promise and what they reached, as a table, a plot and a page."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from dpnlp.atomic import write
from dpnlp.checks import BadInput
from dpnlp.cli.config import option, warn
from dpnlp.cli.output import attack_facts, print_facts, print_guarantee, print_json, print_table
from dpnlp.cli.places import PICTURES, check_file
from dpnlp.cli.ranges import SIZE_OR_0
from dpnlp.foreign import visible
from dpnlp.runs.files import understood
from dpnlp.runs.folder import METRICS, PRIVACY, Run
from dpnlp.runs.hard_cases import with_hard_cases
from dpnlp.runs.page import account_command, page_of_run, page_of_runs
from dpnlp.runs.tables import Table, cost, label, scores


@dataclass(frozen=True, kw_only=True)
class Report:
    """Show what runs promise and what they reached, and write that into one page without scripts that needs nothing
    from elsewhere. Of several runs, those that differ in nothing but the seed become one row, with mean ± standard
    deviation."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp report runs/clinic",
        "dpnlp report runs --format markdown --plot scores.png",
        "dpnlp report runs/a runs/b --output both.html",
        "dpnlp report runs/privacy --hard-cases runs/open",
    )

    runs: tuple[Path, ...] = option(help="Folders of runs, or folders that runs lie in", positional=True)
    output: Path | None = option(
        None, help="Write the page here; by default it is report.html in the one folder that is given", group="output"
    )
    plot: Path | None = option(
        None,
        help="Draw into this file: the scores of one run over its steps, or of several over ε or over what varies",
        group="output",
    )
    format: Literal["text", "markdown", "csv"] = option("text", help="How the table is printed", group="output")
    samples: int = option(
        8,
        within=SIZE_OR_0,
        help="Sentences of each split on the page of one run; the promise does not cover them",
        group="output",
    )
    hard_cases: Path | None = option(
        None, help="A run whose mistakes are hard cases: show the share of them that each run makes again"
    )
    json: bool = option(False, help="Print one JSON object instead of tables", group="output")

    def run(self) -> None:
        """Prints the table and writes the page."""
        check_file("--output", self.output, endings=(".html", ".htm"))
        check_file("--plot", self.plot, endings=PICTURES)
        runs = list(_found(self.runs))
        for run in runs:
            with understood(run.path / METRICS):
                scores(run)
            with understood(run.path / PRIVACY):
                account_command(run)
        table = Table.of(runs)
        if self.hard_cases is not None:
            table = with_hard_cases(table, Run.open(self.hard_cases))
        if self.plot is not None:
            _draw(runs, table, self.plot)
        page = self._write(runs)
        if self.json:
            entry = {"table": table.to_json(), "notes": list(table.notes), "runs": [_entry(run) for run in runs]}
            print_json(entry | {"page": page and str(page)})
            return
        self._print(runs, table)
        warn(f"the page is {page}." if page else "no page is written; --output FILE.html writes one of all the runs.")

    def _write(self, runs: list[Run]) -> Path | None:
        """The page, and where it lies; of several folders only where --output says so."""
        place = self.output or (self.runs[0] / "report.html" if len(self.runs) == 1 else None)
        if place is not None:
            write(place, page_of_run(runs[0], self.samples) if len(runs) == 1 else page_of_runs(runs, place))
        return place

    def _print(self, runs: list[Run], table: Table) -> None:
        if self.format != "text":
            print(visible(table.markdown() if self.format == "markdown" else table.csv()), end="")
        elif len(runs) > 1 or self.hard_cases is not None:
            print_table(f"{len(runs)} runs", table.columns, table.cells(), " ".join(table.notes))
        else:
            _print_one(runs[0])


def _found(folders: tuple[Path, ...]) -> Iterator[Run]:
    """The runs, each once. In a folder of many, one that cannot be read yet is left out, and named."""
    seen = set()
    for folder in folders:
        found = Run.find(folder)
        several = len(found) > 1 or found[0].path != folder
        for run in found:
            try:
                _ = (run.config, run.guarantee)
            except BadInput as error:
                if not several:
                    raise
                warn(f"{error} It is left out.")
                continue
            if run.path.resolve() not in seen:
                seen.add(run.path.resolve())
                yield run
    if not seen:
        raise BadInput(f"{folders[0]}: none of the runs in it can be read; see the notes above.")


def _draw(runs: list[Run], table: Table, file: Path) -> None:
    from dpnlp.runs import plots  # matplotlib takes a second to import

    figures = plots.curves(runs[0]) if len(runs) == 1 else [plots.comparison(table)]
    if not figures or figures[0] is None:
        need = "a curve needs three evaluations, a comparison one of some run"
        raise BadInput(f"--plot = {file}: there are too few scores to draw; {need}.")
    plots.save(figures[0], file)


def _entry(run: Run) -> dict[str, Any]:
    promised = run.guarantee
    return {
        "run": run.name,
        "path": str(run.path),
        "epsilon": promised.epsilon,
        "delta": promised.delta,
        **attack_facts(promised),
        "signature": promised.signature(),
        "statement": promised.statement(),
        "guarantee": promised.to_json(),
        "check": account_command(run),
        "scores": [
            {
                "split": found.split,
                "before": dict(found.before),
                "after": dict(found.after),
                "signatures": dict(found.signatures),
            }
            for found in scores(run)
        ],
    }


def _print_one(run: Run) -> None:
    promised = run.guarantee
    facts = {"ε": f"{cost(promised.epsilon)} at δ = {promised.delta:g}, for one {promised.unit}, {promised.adjacency}"}
    if not promised.is_private:
        facts = {"ε": "∞: nothing is promised"}
    facts["sampler"] = f"{promised.sampler}, {promised.steps:,} steps"
    if check := account_command(run):
        facts["this run alone" if run.privacy.earlier else "check it"] = check
    print_facts(run.name, facts)
    rows = [
        [f"{label(name)}, {found.split}", _figure(found.before, name), _figure(found.after, name)]
        for found in scores(run)
        for name in dict.fromkeys((*found.before, *found.after))
    ]
    if rows:
        print_table("Scores", ["score", "before training", "after training"], rows)
    print_guarantee(promised)


def _figure(of_split: Any, name: str) -> str:
    return f"{of_split[name]:.2f}" if name in of_split else "–"
