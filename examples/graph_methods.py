"""Ways to learn from a graph privately, side by side: the table and the picture of docs/papers.md.

    dpnlp sweep configs/graphs/methods-grid.yaml
    python examples/graph_methods.py runs/methods-grid --picture graphs.png

The runs of the grid are read. Those of GAP are made first, where they are not there yet: each starts from an earlier
run of its own, which no grid can say, and both share its ε. It takes a few minutes on 2 CPU cores.
"""

import argparse
from pathlib import Path

from dpnlp.cli.main import main as dpnlp
from dpnlp.runs import plots
from dpnlp.runs.folder import Run
from dpnlp.runs.tables import Row, Spread, scores

CORPORA = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}
METHODS = {
    "own-features": "a node: its own features alone",
    "messages": "a node: messages when used",
    "gap": "a node: noisy sums (GAP)",
    "neighbours": "a node: 3 neighbours",
    "splits-node": "a node: 100 splits",
    "splits": "a subgraph: 100 splits",
    "splits-1000": "a subgraph: 1,000 splits",
    "whole-graph": "the whole graph",
}
"""The files of configs/graphs, and what is promised of whom, learned how."""
HALVES = {1: 0.684, 2: 1.361, 8: 5.297}
"""Two releases of Gaussian noise that each cost the latter at δ = 1e-5 together cost the former."""
SCORE = "macro_f1"


def name(method: str, corpus: str, epsilon: float, seed: int) -> str:
    """A run, called as `dpnlp sweep` calls it."""
    return f"{method}-corpus_{corpus}-epsilon_{epsilon}-seed_{seed}"


def make_gap(folder: Path, configs: Path, corpus: str, epsilon: int, seed: int) -> None:
    """The run of GAP and the one that it starts from."""
    first = folder / "first" / name("first", corpus, epsilon, seed)
    own = folder / name("gap", corpus, epsilon, seed)
    shared = ["--data.corpus", corpus, "--privacy.epsilon", str(HALVES[epsilon]), "--privacy.seed", str(seed)]
    steps = {
        first: ["own-features.yaml"],
        own: ["gap.yaml", "--model.start", str(first)],
    }
    for run, (file, *flags) in steps.items():
        if not (run / "model").exists():
            dpnlp(["train", str(configs / file), "--name", run.name, "--runs", str(run.parent), *shared, *flags])


def row(folder: Path, method: str, corpus: str, epsilon: int, seeds: list[int]) -> Row:
    """What a method reaches over the seeds; its guarantee must be within ε."""
    runs = [Run.open(folder / name(method, corpus, epsilon, seed)) for seed in seeds]
    for run in runs:
        if run.guarantee.epsilon > epsilon:
            raise SystemExit(f"{run.path}: ε = {run.guarantee.epsilon} is more than {epsilon}.")
    spread = Spread.of([scores(run)[0].after[SCORE] for run in runs])
    return Row({}, epsilon, {SCORE: spread}, tuple(runs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="the folder of the grid's runs")
    parser.add_argument("--configs", type=Path, default=Path("configs/graphs"))
    parser.add_argument("--corpora", nargs="+", choices=list(CORPORA), default=list(CORPORA))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--picture", type=Path, help="draw the scores over ε into this file")
    given = parser.parse_args()
    panels: dict[str, dict[str, list[Row]]] = {}
    for corpus in given.corpora:
        for epsilon in HALVES:
            for seed in given.seeds:
                make_gap(given.runs, given.configs, corpus, epsilon, seed)
        panels[CORPORA[corpus]] = {
            called: [row(given.runs, method, corpus, epsilon, given.seeds) for epsilon in HALVES]
            for method, called in METHODS.items()
        }
    heads = [f"{title}, ε = {epsilon}" for title in panels for epsilon in HALVES]
    print("|".join(["", " for ", *heads, ""]), "|".join(["", *["---"] * (1 + len(heads)), ""]), sep="\n")
    for called in METHODS.values():
        print(
            "|".join(["", called, *(str(one.scores[SCORE]) for lines in panels.values() for one in lines[called]), ""])
        )
    if given.picture:
        plots.save(plots.panels(panels, SCORE), given.picture)


if __name__ == "__main__":
    main()
