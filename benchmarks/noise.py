"""Noise on a vector: dpnlp's exact grid samplers, OpenDP's, and NumPy's floating-point ones, which leak.

python -m benchmarks.noise [--entries N] [--json]
"""

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import opendp.prelude as dp

from dpnlp.mechanisms import Gaussian, Laplace


def seconds(call: Callable[[], object], repeats: int = 3) -> float:
    """The best of a few runs."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def measure(entries: int) -> list[dict[str, object]]:
    """Seconds for one vector. OpenDP is timed on a tenth of it and scaled up, being linear in the entries."""
    dp.enable_features("contrib")
    vector, tenth = np.zeros(entries), [0.0] * (entries // 10)
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
    peers = {
        "laplace": dp.m.make_laplace(domain, dp.l1_distance(T=float), scale=1.0),
        "gaussian": dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=1.0),
    }
    ours = {"laplace": Laplace(1.0, 1.0), "gaussian": Gaussian(1.0, 1.0, 1e-6)}
    rng = np.random.default_rng()
    naive = {"laplace": lambda: rng.laplace(size=entries), "gaussian": lambda: rng.normal(size=entries)}
    rows = []
    for name, mechanism in ours.items():
        own = seconds(lambda mechanism=mechanism: mechanism.release(vector))
        peer = 10 * seconds(lambda name=name: peers[name](tenth), repeats=1)
        rows.append(
            {
                "noise": name,
                "entries": entries,
                "dpnlp_seconds": own,
                "opendp_seconds": peer,
                "numpy_seconds_unsafe": seconds(naive[name]),
                "times_faster_than_opendp": peer / own,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = measure(arguments.entries)
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'noise':10}{'entries':>10}{'dpnlp':>10}{'OpenDP':>10}{'NumPy (leaks)':>15}{'OpenDP/dpnlp':>14}")
    for row in rows:
        print(
            f"{row['noise']:10}{row['entries']:>10,}{row['dpnlp_seconds']:>9.2f}s{row['opendp_seconds']:>9.2f}s"
            f"{row['numpy_seconds_unsafe']:>14.3f}s{row['times_faster_than_opendp']:>14.0f}"
        )


if __name__ == "__main__":
    main()
