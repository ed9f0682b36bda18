"""Ways to rewrite texts, side by side: the table and the picture of docs/papers.md.

    for grid in methods pr-plus private-labels pr-plus-private-labels joint-labels; do
      dpnlp sweep configs/rewriting/$grid-grid.yaml --at-once 12; done
    python examples/rewriting_methods.py runs/*-grid --picture rewriting.png

All runs in these folders are read, those of one method, ε and way with labels being seeds.
"""

import argparse
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
    "sampling": "Sampling with clipped logits",
    "words": "Word by word: its ε is for one word",
    "echo with labels": "Echo, text and label together, ours",
}
SCORE = "macro_f1"
SIDES = {False: "labels in clear", True: "labels privatised"}


def method(run: Run) -> str:
    """The rewriter of a run, by the name of its folder without the ε that it was trained for."""
    together = " with labels" if run.config["privacy"].get("joint_labels") else ""
    return Path(run.config["rewriter"]).name.rstrip("-0123456789") + together


def private_labels(run: Run) -> bool:
    """Whether labels are drawn like the texts."""
    privacy = run.config["privacy"]
    return privacy["label_epsilon"] is not None or bool(privacy.get("joint_labels"))


def rows(runs: list[Run]) -> list[Row]:
    """One for each ε, over the seeds."""
    by_epsilon: dict[float, list[Run]] = defaultdict(list)
    for run in runs:
        by_epsilon[round(run.guarantee.epsilon, 6)].append(run)
    return [
        Row({}, epsilon, {SCORE: Spread.of([scores(run)[0].after[SCORE] for run in its])}, tuple(its))
        for epsilon, its in sorted(by_epsilon.items())
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    parser.add_argument("--picture", type=Path, help="draw the scores over ε into this file")
    given = parser.parse_args()
    found: dict[tuple[bool, str], list[Run]] = defaultdict(list)
    for folder in given.runs:
        for path in sorted(folder.glob("*/report.html")):
            run = Run.open(path.parent)
            found[private_labels(run), method(run)].append(run)
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
