"""One ε: dpnlp's accountant and dp-accounting's, in time and in tightness, on the same runs.

python -m benchmarks.accounting [--json]

The reference is dp-accounting on a grid fine enough that its figure no longer moves; for plain Gaussians it is exact.
"""

import argparse
import json
import math
import time

import dp_accounting
from dp_accounting.pld import privacy_loss_distribution as dp_pld

from dpnlp.accounting import pld, profiles
from dpnlp.accounting.planning import Question
from dpnlp.events import Gaussian, PoissonSampled, Repeated
from dpnlp.guarantee import Adjacency

RUNS = {
    "BSD: q = 0.0929, σ = 2": (2048 / 22051, 2.0, 275, 1e-8),
    "MNIST: q = 0.01, σ = 4": (0.01, 4.0, 10_000, 1e-5),
    "a million: q = 0.001, σ = 4": (0.001, 4.0, 1_000_000, 1e-8),
}


def measure() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name, (q, z, steps, delta) in RUNS.items():
        start = time.perf_counter()
        own = pld.epsilon(Repeated(PoissonSampled(q, Gaussian(z)), steps), delta, Adjacency.ADD_REMOVE)
        middle = time.perf_counter()
        peer = dp_pld.from_gaussian_mechanism(z, sampling_prob=q).self_compose(steps).get_epsilon_for_delta(delta)
        end = time.perf_counter()
        rows.append(_row(name, steps, delta, own, middle - start, peer, end - middle, None))
    for steps, delta in ((1_000_000, 1e-8), (1_000_000, 1e-12)):
        z = math.sqrt(steps)
        exact = float(dp_accounting.get_epsilon_gaussian(1.0, delta))
        start = time.perf_counter()
        profile = profiles.gaussian(1 / z, math.sqrt(2 * (math.log(steps / delta) + 20)))
        grid = pld._grid_step([(profile, steps)])
        own = pld.compose([(profile.losses(grid), steps)], delta).epsilon(delta)
        middle = time.perf_counter()
        peer = (
            dp_pld.from_gaussian_mechanism(z, value_discretization_interval=grid)
            .self_compose(steps)
            .get_epsilon_for_delta(delta)
        )
        end = time.perf_counter()
        rows.append(_row("a million Gaussians, σ = 1000", steps, delta, own, middle - start, peer, end - middle, exact))
    return rows


def plan_seconds() -> dict[str, float]:
    """What `dpnlp account --epsilon 5` takes once everything is imported, from 275 steps to a million."""
    seconds = {}
    for steps in (275, 1_000_000):
        start = time.perf_counter()
        Question(records=22_051, lot_size=2048, steps=steps, delta=1e-8, epsilon=5).answer()
        seconds[f"noise for ε = 5 over {steps:,} steps"] = time.perf_counter() - start
    return seconds


def _row(name, steps, delta, own, own_seconds, peer, peer_seconds, exact) -> dict[str, object]:  # type: ignore[no-untyped-def]
    return {
        "run": name,
        "steps": steps,
        "delta": delta,
        "dpnlp_epsilon": own,
        "dpnlp_seconds": own_seconds,
        "dp_accounting_epsilon": peer,
        "dp_accounting_seconds": peer_seconds,
        "exact_epsilon": exact,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows, plans = measure(), plan_seconds()
    if arguments.json:
        print(json.dumps({"one_epsilon": rows, "calibration_seconds": plans}, indent=2, ensure_ascii=False))
        return
    print(f"{'run':32}{'steps':>10}{'δ':>8}{'dpnlp ε':>11}{'':>8}{'dp-accounting ε':>17}{'':>8}{'exact ε':>10}")
    for row in rows:
        exact = f"{row['exact_epsilon']:.5f}" if row["exact_epsilon"] else ""
        print(
            f"{row['run']:32}{row['steps']:>10,}{row['delta']:>8.0e}{row['dpnlp_epsilon']:>11.5f}"
            f"{row['dpnlp_seconds']:>7.2f}s{row['dp_accounting_epsilon']:>17.5f}{row['dp_accounting_seconds']:>7.2f}s"
            f"{exact:>10}"
        )
    for name, seconds in plans.items():
        print(f"{name}: {seconds:.2f}s")


if __name__ == "__main__":
    main()
