"""Poisson sampling against shuffling: what an example costs end to end, and what it costs to draw and cut lots.

python -m benchmarks.sampling [--rounds 3] [--json]

End to end is `dpnlp.training.loop.train` on texts of all lengths, with its prefetching, padding and noise. Only the
second half of a run is timed, when all shapes are compiled. The two samplers take turns.
"""

import argparse
import json
import statistics
import time
import tracemalloc

import numpy as np
import optax

from benchmarks import networks
from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.data.arrays import Arrays
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.training.clipping import Clipping
from dpnlp.training.loop import Options, train
from dpnlp.training.plan import Plan
from dpnlp.training.sampling import Layout, Lots, cut
from dpnlp.training.secret import Secret

PRESET = networks.PRESETS["micro"]
RECORDS, LOT, STEPS, PHYSICAL = 20_000, 256, 16, 32
LENGTHS = (8, 16, 32)


def texts() -> Arrays:
    """Random pairs of texts with 1 to 32 tokens, most of them short."""
    rng = np.random.default_rng(0)
    lengths = np.minimum(1 + rng.geometric(0.1, RECORDS), LENGTHS[-1])
    shape = (RECORDS, LENGTHS[-1])
    mask = np.arange(LENGTHS[-1]) < lengths[:, None]
    ids, targets = (rng.integers(2, PRESET.vocabulary, shape, np.int32) for _ in range(2))
    return Arrays(networks.pairs(ids, mask, targets, mask), lengths)


def run(sampling: Sampling, data: Arrays, seed: int) -> tuple[float, int]:
    """Milliseconds for each example in the second half of a run, and the shapes that were compiled in all of it."""
    schedule = Schedule(RECORDS, LOT, STEPS, sampling)
    plan = Plan(schedule, Clipping(1.0), 1.0, 1e-6, sampling.adjacencies[0])
    secret, times = Secret.drawn(FixedSeed(seed)), []

    def now(model: object) -> dict[str, float]:
        times.append(time.perf_counter())
        return {}

    options = Options(PHYSICAL, LENGTHS, evaluate_every=STEPS // 2)
    outcome = train(
        networks.build(PRESET), networks.losses, data, plan, optax.adam(1e-4), options, secret=secret, evaluate=now
    )
    lots = Lots(schedule, secret)
    examples = sum(len(lots.draw(step)) for step in range(STEPS // 2, STEPS))
    return 1e3 * (times[1] - times[0]) / examples, outcome.compilations


def end_to_end(rounds: int) -> dict[str, object]:
    """Both samplers in turns; the ratio is the median over the rounds."""
    data = texts()
    found: dict[Sampling, list[tuple[float, int]]] = {}
    for seed in range(rounds):
        for sampling in (Sampling.SHUFFLED, Sampling.POISSON):
            found.setdefault(sampling, []).append(run(sampling, data, seed))
    pairs = zip(found[Sampling.POISSON], found[Sampling.SHUFFLED], strict=True)
    return {
        "ratio": statistics.median(poisson[0] / shuffled[0] for poisson, shuffled in pairs),
        "milliseconds_per_example": {
            str(name): statistics.median(ms for ms, _ in runs) for name, runs in found.items()
        },
        "compilations": {str(name): max(count for _, count in runs) for name, runs in found.items()},
    }


def growth() -> list[dict[str, object]]:
    """What it costs to draw a lot and cut it, as the records and the lot grow."""
    rows = []
    for records, lot in ((10_000, 256), (1_000_000, 256), (5_000_000, 256), (5_000_000, 4096), (5_000_000, 65_536)):
        lengths = np.random.default_rng(0).integers(1, 33, records).astype(np.uint8)
        for sampling in (Sampling.POISSON, Sampling.TRUNCATED_POISSON, Sampling.FIXED_SIZE, Sampling.SHUFFLED):
            tracemalloc.start()
            lots, layout = (
                Lots(Schedule(records, lot, 10, sampling), Secret.drawn(FixedSeed(0))),
                Layout(64, (8, 16, 32)),
            )
            cut(lots.draw(0), layout, lengths)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            start = time.perf_counter()
            drawn = [lots.draw(step) for step in range(1, 10)]
            middle = time.perf_counter()
            for one in drawn:
                cut(one, layout, lengths)
            end = time.perf_counter()
            rows.append(
                {
                    "records": records,
                    "lot": lot,
                    "sampler": str(sampling),
                    "draw_ms": 1e3 * (middle - start) / 9,
                    "cut_ms": 1e3 * (end - middle) / 9,
                    "bytes_per_record": peak / records,
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = {"end_to_end": end_to_end(arguments.rounds), "growth": growth()}
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    whole = found["end_to_end"]
    print(f"lots of {LOT} of {RECORDS:,} texts, physical batches of {PHYSICAL}, lengths {LENGTHS}")
    for name, milliseconds in whole["milliseconds_per_example"].items():
        print(f"{name:10} {milliseconds:8.3f} ms an example, {whole['compilations'][name]} compilations")
    print(f"Poisson over shuffled: {whole['ratio']:.3f}\n")
    print(f"{'records':>10}{'lot':>8}  {'sampler':20}{'draw ms':>9}{'cut ms':>9}{'bytes a record':>16}")
    for row in found["growth"]:
        print(
            f"{row['records']:>10,}{row['lot']:>8,}  {row['sampler']:20}{row['draw_ms']:>9.2f}{row['cut_ms']:>9.2f}"
            f"{row['bytes_per_record']:>16.2f}"
        )


if __name__ == "__main__":
    main()
