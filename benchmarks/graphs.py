"""What a step costs on a large graph, as one record without privacy and as many subgraphs with it.

python -m benchmarks.graphs [--nodes 1000000] [--edges 10000000] [--splits 1000] [--features 64] [--steps 4] [--json]

The graph is random, and so are features and labels. Each way is `dpnlp.training.loop.train` with a network of 2 layers
of width 32, in a process of its own: what it needs at most is the peak of that process, graph included.
"""

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import time
from itertools import pairwise

import jax
import numpy as np
from flax import nnx

from dpnlp.accounting.subsampling import Schedule
from dpnlp.data.graphs import Graph
from dpnlp.guarantee import Adjacency
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.models.gcn import GCN, Config
from dpnlp.tasks.nodes import node_loss, subgraphs, whole
from dpnlp.training import Clipping, Optimizer, Options, Plan, train
from dpnlp.training.secret import Secret

CLASSES = 10
WHOLE, SPLIT = "whole graph, non-private", "subgraphs, private"


def random_graph(nodes: int, edges: int, features: int) -> Graph:
    """About as many edges between nodes that are drawn uniformly; loops and doubles fall away."""
    rng = np.random.default_rng(0)
    return Graph.of(
        rng.standard_normal((nodes, features), np.float32),
        rng.integers(0, nodes, (edges, 2)),
        rng.integers(0, CLASSES, nodes),
        tuple(map(str, range(CLASSES))),
    )


def measured(way: str, given: argparse.Namespace) -> dict[str, float]:
    """Seconds to make the graph, to cut it into records, for the first step and for one of the others; the memory."""
    start = time.perf_counter()
    graph = random_graph(given.nodes, given.edges, given.features)
    made = time.perf_counter()
    records = whole(graph) if way == WHOLE else subgraphs(graph, given.splits)
    cut = time.perf_counter()
    schedule = Schedule(len(records), len(records), given.steps)
    private = Plan(schedule, Clipping(1.0), 1.0, 1e-6, Adjacency.ADD_REMOVE)
    model = GCN(Config(given.features, CLASSES), rngs=nnx.Rngs(0))
    times = [time.perf_counter()]
    train(
        model,
        node_loss,
        records,
        Plan.without_privacy(schedule) if way == WHOLE else private,
        Optimizer(0.01).build(given.steps),
        Options(physical_batch=given.batch, evaluate_every=1),
        secret=Secret.drawn(FixedSeed(0)),
        evaluate=lambda model: _noted(times, model),
    )
    first, *others = (after - before for before, after in pairwise(times))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB.
    return {"make": made - start, "cut": cut - made, "first": first, "step": statistics.median(others), "peak": peak}


def _noted(times: list[float], model: nnx.Module) -> dict[str, float]:
    """The time at which the step is done on the device."""
    jax.block_until_ready(nnx.state(model))
    times.append(time.perf_counter())
    return {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--splits", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=256, help="records on the device at once")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = {}
    for way in (WHOLE, SPLIT):
        with multiprocessing.get_context("spawn").Pool(1) as one:
            found[way] = one.apply(measured, (way, given))
    if given.json:
        print(json.dumps({"cores": os.cpu_count(), **vars(given), "ways": found}, indent=2))
        return
    print(f"{given.nodes:,} nodes, {given.edges:,} edges, {given.features} features, {os.cpu_count()} cores")
    print(f"{'':28}{'make s':>9}{'cut s':>9}{'first s':>9}{'step s':>9}{'peak GiB':>10}")
    for way, of in found.items():
        times = "".join(f"{of[name]:>9.2f}" for name in ("make", "cut", "first", "step"))
        print(f"{way:28}{times}{of['peak'] / 2**30:>10.2f}")


if __name__ == "__main__":
    main()
