"""What an example costs end to end, privately and not, with Poisson and with shuffled lots, and what drawing costs.

python -m benchmarks.sampling [--preset micro] [--strategy tr-last2] [--lot 256] [--batch 32] [--rounds 3]
    [--longest 32] [--no-growth] [--json]

End to end is `dpnlp.training.loop.train` on texts of all lengths, with its prefetching, padding, noise and Adam. A run
is timed in stretches of a few lots and counts as their median, so that stretches in which a shape is compiled do not
matter. The ways take turns.
"""

import argparse
import dataclasses
import json
import statistics
import time
import tracemalloc
from itertools import pairwise

import jax
import numpy as np
import optax
from flax import nnx

from benchmarks import networks
from benchmarks.networks import Preset
from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.data.arrays import Arrays
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.training.clipping import Clipping
from dpnlp.training.loop import Options, train
from dpnlp.training.plan import Plan
from dpnlp.training.sampling import Layout, Lots, cut
from dpnlp.training.secret import Secret

RECORDS = 20_000
STEPS, STRETCH = 32, 4

NON_PRIVATE, SHUFFLED, POISSON = "shuffled, non-private", "shuffled, private", "Poisson, private"


def plan(way: str, lot: int) -> Plan:
    """The same lots of the same size, with or without privacy."""
    sampling = Sampling.POISSON if way == POISSON else Sampling.SHUFFLED
    schedule = Schedule(RECORDS, lot, STEPS, sampling)
    if way == NON_PRIVATE:
        return Plan.without_privacy(schedule)
    return Plan(schedule, Clipping(1.0), 1.0, 1e-6, sampling.adjacencies[0])


def texts(preset: Preset, longest: int) -> Arrays:
    """Random texts, or pairs of them, with 1 to `longest` tokens, most of them of less than a third of that.

    Where layers are frozen, a text is what they made of it, for they run once before training (`tasks.features`).
    """
    rng = np.random.default_rng(0)
    lengths = np.minimum(1 + rng.geometric(3.2 / longest, RECORDS), longest)
    shape = (RECORDS, longest)
    mask = np.arange(longest) < lengths[:, None]
    ids, targets = (rng.integers(2, preset.vocabulary, shape, np.int32) for _ in range(2))
    if preset.family == "bert":
        labels, reader = rng.integers(0, 2, RECORDS, np.int32), networks.reader(preset)
        if not reader.frozen_layers:
            return Arrays({"ids": ids, "mask": mask, "label": labels}, lengths)
        states = np.zeros((*shape, preset.width), reader.encoder.dtype)
        states[:] = rng.normal(size=states.shape[1:])
        return Arrays({"states": states, "mask": mask, "label": labels}, lengths)
    return Arrays(networks.pairs(ids, mask, targets, mask), lengths)


def run(way: str, preset: Preset, lot: int, data: Arrays, seed: int) -> tuple[float, int]:
    """Milliseconds for each example of a run, and the shapes that were compiled in it."""
    planned, secret, times = plan(way, lot), Secret.drawn(FixedSeed(seed)), []

    def now(model: nnx.Module) -> dict[str, float]:
        jax.block_until_ready(nnx.state(model))
        times.append(time.perf_counter())
        return {}

    model = networks.build(preset)
    options = Options(preset.batch, evaluate_every=STRETCH)
    outcome = train(
        model,
        networks.losses,
        data,
        planned,
        optax.adam(1e-4),
        options,
        trains=networks.trains(preset, model),
        secret=secret,
        evaluate=now,
    )
    lots = Lots(planned.schedule, secret)
    sizes = [len(lots.draw(step)) for step in range(STEPS)]
    each = [
        (after - before) / sum(sizes[start : start + STRETCH])
        for (before, after), start in zip(pairwise(times), range(STRETCH, STEPS, STRETCH), strict=True)
    ]
    return 1e3 * statistics.median(each), outcome.compilations


def end_to_end(preset: Preset, lot: int, longest: int, rounds: int) -> dict[str, object]:
    """All ways in turns; ratios are medians over the rounds."""
    data = texts(preset, longest)
    found: dict[str, list[tuple[float, int]]] = {}
    for seed in range(rounds):
        for way in (NON_PRIVATE, SHUFFLED, POISSON):
            found.setdefault(way, []).append(run(way, preset, lot, data, seed))

    def ratio(first: str, second: str) -> float:
        pairs = zip(found[first], found[second], strict=True)
        return statistics.median(one[0] / other[0] for one, other in pairs)

    return {
        "ratios": {
            "private over non-private": ratio(SHUFFLED, NON_PRIVATE),
            "Poisson over shuffled": ratio(POISSON, SHUFFLED),
        },
        "milliseconds_per_example": {name: statistics.median(ms for ms, _ in runs) for name, runs in found.items()},
        "compilations": {name: max(count for _, count in runs) for name, runs in found.items()},
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
    parser.add_argument("--preset", choices=networks.PRESETS, default="micro")
    parser.add_argument("--strategy", choices=("tr-all", "tr-last2"), help="which part of a BERT is trained")
    parser.add_argument("--lot", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32, help="examples on the device at once")
    parser.add_argument("--longest", type=int, default=32, help="tokens of the longest text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--growth", action=argparse.BooleanOptionalAction, default=True, help="what drawing costs")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    preset = dataclasses.replace(networks.PRESETS[arguments.preset], batch=arguments.batch)
    if arguments.strategy:
        preset = dataclasses.replace(preset, strategy=arguments.strategy)
    whole = end_to_end(preset, arguments.lot, arguments.longest, arguments.rounds)
    rows = growth() if arguments.growth else []
    if arguments.json:
        print(json.dumps({"preset": arguments.preset, "end_to_end": whole, "growth": rows}, indent=2))
        return
    shape = f"{preset.batch} at once, up to {arguments.longest} tokens"
    print(f"{arguments.preset}: lots of {arguments.lot} of {RECORDS:,}, {shape}")
    for name, milliseconds in whole["milliseconds_per_example"].items():
        print(f"{name:22} {milliseconds:8.3f} ms an example, {whole['compilations'][name]} compilations")
    for name, ratio in whole["ratios"].items():
        print(f"{name}: {ratio:.3f}")
    if not rows:
        return
    print(f"\n{'records':>10}{'lot':>8}  {'sampler':20}{'draw ms':>9}{'cut ms':>9}{'bytes a record':>16}")
    for row in rows:
        print(
            f"{row['records']:>10,}{row['lot']:>8,}  {row['sampler']:20}{row['draw_ms']:>9.2f}{row['cut_ms']:>9.2f}"
            f"{row['bytes_per_record']:>16.2f}"
        )


if __name__ == "__main__":
    main()
