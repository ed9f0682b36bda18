"""Ways to rewrite texts, side by side: the table and the picture of docs/papers.md.

    dpnlp sweep configs/rewriting/methods-grid.yaml --at-once 12
    dpnlp sweep configs/rewriting/private-labels-grid.yaml --at-once 12
    python examples/rewriting_methods.py runs/methods-grid runs/private-labels-grid --picture rewriting.png

All runs in these folders are read, those of one method, ε and way with labels being seeds. DP-BART-PR+ is trained for
one ε: of those there are, the one that was trained for the nearest ε speaks for it.
"""

import argparse
import math
from collections import defaultdict
from pathlib import Path

from dpnlp.runs import plots
from dpnlp.runs.folder import Run
from dpnlp.runs.tables import Row, Spread, scores

METHODS = {
    "echo": "Echo, ours",
    "retell": "Retell, ours",
    "noisy-echo": "Echo with noise on vectors",
    "dp-bart-pr-plus": "DP-BART-PR+",
    "dp-bart-pr": "DP-BART-PR",
    "dp-bart-clv": "DP-BART-CLV",
    "adept": "ADePT",
}
SCORE, PLUS = "macro_f1", "dp-bart-pr-plus-"
SIDES = {False: "labels in clear", True: "labels by randomized response"}


def method(run: Run) -> str:
    """The rewriter of a run, by the name of its folder."""
    found = Path(run.config["rewriter"]).name
    return PLUS.rstrip("-") if found.startswith(PLUS) else found


def detour(run: Run) -> float:
    """How far, as a ratio, the ε of a run is from what its rewriter was trained for."""
    found = Path(run.config["rewriter"]).name
    trained = float(found.removeprefix(PLUS)) if found.startswith(PLUS) else 0.0
    return abs(math.log(run.guarantee.epsilon / trained)) if trained else 0.0


def rows(runs: list[Run]) -> list[Row]:
    """One for each ε, over the seeds."""
    by_epsilon: dict[float, list[Run]] = defaultdict(list)
    for run in runs:
        by_epsilon[round(run.guarantee.epsilon, 6)].append(run)
    made = []
    for epsilon, its in sorted(by_epsilon.items()):
        least = min(map(detour, its))
        chosen = tuple(run for run in its if detour(run) == least)
        made.append(Row({}, epsilon, {SCORE: Spread.of([scores(run)[0].after[SCORE] for run in chosen])}, chosen))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    parser.add_argument("--picture", type=Path, help="draw the scores over ε into this file")
    given = parser.parse_args()
    found: dict[tuple[bool, str], list[Run]] = defaultdict(list)
    for folder in given.runs:
        for path in sorted(folder.glob("*/report.html")):
            run = Run.open(path.parent)
            found[run.config["privacy"]["label_epsilon"] is not None, method(run)].append(run)
    panels = {
        title: {called: rows(found[private, name]) for name, called in METHODS.items() if found[private, name]}
        for private, title in SIDES.items()
    }
    for title, lines in panels.items():
        ticks = sorted({row.epsilon for line in lines.values() for row in line}, reverse=True)
        print(f"\n|{title}: ε =|" + "|".join(f"{tick:g}" for tick in ticks) + "|\n" + "|---" * (len(ticks) + 1) + "|")
        for called, line in lines.items():
            told = {row.epsilon: str(row.scores[SCORE]) for row in line}
            print(f"|{called}|" + "|".join(told.get(tick, "") for tick in ticks) + "|")
    if given.picture:
        plots.save(plots.panels({title: lines for title, lines in panels.items() if lines}, SCORE), given.picture)


if __name__ == "__main__":
    main()
