"""What privacy costs a language model, over the number of its users: the table and the picture of docs/papers.md.

    dpnlp train configs/modelling/tatoeba.yaml
    dpnlp sweep configs/modelling/users-grid.yaml
    python examples/number_of_users.py runs/users-grid --picture users.png

The runs of the grid are read; those of one number of users and one ε are seeds. Beside them stand what the model knew
before it saw any user, and the best guess without context.
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


def row(epsilon: float, many: int, values: list[float]) -> Row:
    return Row({OVER: str(many)}, epsilon, {SCORE: Spread.of(values)}, ())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    parser.add_argument("--picture", type=Path, help="draw the scores over the number of users into this file")
    given = parser.parse_args()
    found: dict[float, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    knew, guessed = [], []
    for path in sorted(path for folder in given.runs for path in folder.glob("*/report.html")):
        run = Run.open(path.parent)
        score = scores(run)[0]
        found[budget(run)][users(run)].append(score.after[SCORE])
        knew.append(score.before[SCORE])
        guessed.append(run.details()[score.split]["unigram"]["accuracy"])
    numbers = sorted({many for by_number in found.values() for many in by_number})
    lines = {
        "without privacy" if math.isinf(epsilon) else f"ε = {cost(epsilon)} for a user": [
            row(epsilon, many, values) for many, values in found[epsilon].items()
        ]
        for epsilon in sorted(found, reverse=True)
    }
    lines["before it saw any user"] = [row(0, many, [max(knew)]) for many in numbers]
    lines["the best guess without context"] = [row(0, many, [max(guessed)]) for many in numbers]
    print("| users |" + "|".join(f" {many:,} " for many in numbers) + "|\n" + "|---" * (len(numbers) + 1) + "|")
    for called, line in lines.items():
        told = {one.settings[OVER]: str(one.scores[SCORE]) for one in line}
        print(f"| {called} | " + " | ".join(told.get(str(many), "") for many in numbers) + " |")
    if given.picture:
        plots.save(plots.panels({"": lines}, SCORE, OVER), given.picture)


if __name__ == "__main__":
    main()
