"""What privacy costs a language model, over the number of its users: the table and the picture of docs/papers.md.

    dpnlp train configs/modelling/tatoeba.yaml
    dpnlp sweep configs/modelling/users-grid.yaml
    python examples/number_of_users.py runs/users-grid --picture users.png

The runs of the grid are read; those of one number of users, one ε and one rate are seeds. With privacy there is a line
for the rate that all users together were trained with, and one for rates that are in proportion to their number. Beside
them stand what the model knew before it saw any user, and the best guess without context.
"""

import argparse
import math
from collections import defaultdict
from pathlib import Path

from dpnlp.runs import plots
from dpnlp.runs.folder import Run
from dpnlp.runs.tables import Row, Spread, budget, cost, scores

SCORE, OVER = "accuracy_top1", "users"


def users(run: Run) -> int:
    """How many users the run has learned from."""
    return int(run.privacy["plan"]["schedule"]["records"])


def rate(run: Run) -> float:
    return float(run.config["learning"]["rate"])


def names(run: Run, of_all: set[float]) -> list[str]:
    """The lines that a run is on; `of_all` are the rates that all users were trained with, whose runs are on both."""
    if math.isinf(budget(run)):
        return ["without privacy"]
    same, proportional = (f"ε = {cost(budget(run))} for a user, {kind}" for kind in ("the same rate", "rate ∝ users"))
    if run.config["data"]["share"] == 1:
        return [same, proportional]
    return [same if rate(run) in of_all else proportional]


def told(run: Run) -> tuple[float, float, float]:
    """What the run reached, what it started from, and what a guess without context reaches."""
    score = scores(run)[0]
    return score.after[SCORE], score.before[SCORE], run.details()[score.split]["unigram"]["accuracy"]


def row(epsilon: float, many: int, values: list[float]) -> Row:
    return Row({OVER: str(many)}, epsilon, {SCORE: Spread.of(values)}, ())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    parser.add_argument("--picture", type=Path, help="draw the scores over the number of users into this file")
    given = parser.parse_args()
    runs = [Run.open(path.parent) for folder in given.runs for path in sorted(folder.glob("*/report.html"))]
    numbers = sorted({*map(users, runs)})
    found: dict[str, dict[int, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in sorted(runs, key=lambda run: (-budget(run), rate(run), -users(run))):
        for called in names(run, {rate(other) for other in runs if users(other) == numbers[-1]}):
            found[called][users(run)].append(run)
    knew, guessed = ([told(run)[part] for run in runs] for part in (1, 2))
    lines = {
        called: [row(budget(its[0]), many, [told(run)[0] for run in its]) for many, its in by_number.items()]
        for called, by_number in found.items()
    }
    lines["before it saw any user"] = [row(0, many, [max(knew)]) for many in numbers]
    lines["the best guess without context"] = [row(0, many, [max(guessed)]) for many in numbers]
    print("| users |" + "|".join(f" {many:,} " for many in numbers) + "|\n" + "|---" * (len(numbers) + 1) + "|")
    for called, line in lines.items():
        cells = {one.settings[OVER]: str(one.scores[SCORE]) for one in line}
        print(f"| {called} | " + " | ".join(cells.get(str(many), "") for many in numbers) + " |")
    if given.picture:
        plots.save(plots.panels({"": lines}, SCORE, OVER), given.picture)


if __name__ == "__main__":
    main()
