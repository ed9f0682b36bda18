"""Tokens per second: dpnlp's `generate` beside `model.generate` of transformers with PyTorch, on one shape.

python -m benchmarks.generation --preset tiny [--beams 4] [--batch B] [--source S] [--length T] [--dtype float32]
    [--repeats n] [--no-peers] [--json]

Both have random weights of the same shapes, keep keys and values, and generate exactly T tokens for each of B inputs of
S tokens: no text ends early. Both use the threads that they use by default. After a warm-up they take turns, so that a
machine that slows down slows both; a ratio is the median over the rounds of transformers' time to ours. A token counts
once, however many beams there are. On a GPU both compute in bfloat16 unless told otherwise.
"""

import argparse
import dataclasses
import json
import statistics
import time
import warnings
from collections.abc import Callable

import jax
import numpy as np

from benchmarks import networks
from benchmarks.clipping import machine
from benchmarks.networks import Preset
from dpnlp.models.generation import Generation, generate

OURS, THEIRS = "dpnlp", "transformers"


@dataclasses.dataclass(frozen=True)
class Shape:
    """The model, whose preset also says how many inputs of how many tokens there are, and what it generates."""

    preset: Preset
    beams: int
    length: int


@dataclasses.dataclass
class Row:
    """What was measured of one of the two."""

    variant: str
    seconds: float | None = None
    tokens_per_second: float | None = None
    first_seconds: float | None = None  # with compilation
    ratio: float | None = None  # transformers' time to this one's
    trouble: str | None = None


def inputs(shape: Shape) -> np.ndarray:
    return networks.batch(shape.preset)["ids"]


def ours(shape: Shape) -> Callable[[], None]:
    model = networks.build(shape.preset)
    options = Generation(shape.length, start=0, end=(), pad=0, beams=shape.beams)
    texts = inputs(shape).tolist()

    def run() -> None:
        generate(model, texts, options, batch=shape.preset.batch, lengths=(shape.preset.length,))

    return run


def theirs(shape: Shape) -> Callable[[], None]:
    import torch

    from benchmarks import peers

    model = peers.t5(shape.preset).to(peers.DEVICE, getattr(torch, shape.preset.dtype)).eval()
    model.generation_config.eos_token_id = model.config.eos_token_id = None
    ids = torch.as_tensor(inputs(shape), device=peers.DEVICE).long()
    mask = torch.ones_like(ids)
    lengths = {"min_new_tokens": shape.length, "max_new_tokens": shape.length}

    def run() -> None:
        with torch.inference_mode():
            found = model.generate(ids, attention_mask=mask, num_beams=shape.beams, do_sample=False, **lengths)
        assert found.cpu().shape == (shape.preset.batch, 1 + shape.length), found.shape

    return run


def measure(makers: dict[str, Callable[[Shape], Callable[[], None]]], shape: Shape, repeats: int) -> list[Row]:
    """Runs the two in turns. One that cannot run says why in its row."""
    rows, runs, seconds = {name: Row(name) for name in makers}, {}, {name: [] for name in makers}

    def timed(run: Callable[[], None]) -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    for name, make in makers.items():
        try:
            run = make(shape)
        except ModuleNotFoundError as error:
            rows[name].trouble = f"{error.name} is not installed"
            continue
        rows[name].first_seconds = timed(run)
        runs[name] = run
    for _ in range(repeats):
        for name, run in runs.items():
            seconds[name].append(timed(run))
    for name in runs:
        rows[name].seconds = statistics.median(seconds[name])
        rows[name].tokens_per_second = shape.preset.batch * shape.length / rows[name].seconds
        if THEIRS in runs:
            rows[name].ratio = statistics.median(
                other / own for own, other in zip(seconds[name], seconds[THEIRS], strict=True)
            )
    return list(rows.values())


def table(rows: list[Row]) -> str:
    lines = [f"{'variant':16}{'ms':>10}{'tokens/s':>12}{'ratio':>8}{'first s':>9}"]
    for row in rows:
        if row.trouble:
            lines.append(f"{row.variant:16}{row.trouble}")
            continue
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
        times = f"{1e3 * row.seconds:>10.1f}{row.tokens_per_second:>12.0f}"
        lines.append(f"{row.variant:16}{times}{ratio:>8}{row.first_seconds:>9.1f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [name for name, preset in networks.PRESETS.items() if preset.family == "t5"]
    parser.add_argument("--preset", choices=names, default="tiny")
    for name, default in (("beams", 4), ("batch", 8), ("source", 32), ("length", 32)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="transformers")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    dtype = given.dtype or ("float32" if jax.default_backend() == "cpu" else "bfloat16")
    preset = networks.PRESETS[given.preset]
    preset = dataclasses.replace(preset, batch=given.batch, length=given.source, dtype=dtype)
    shape = Shape(preset, given.beams, given.length)
    warnings.simplefilter("ignore")  # transformers'
    rows = measure({OURS: ours, THEIRS: theirs} if given.peers else {OURS: ours}, shape, given.repeats)
    if given.json:
        found = {"machine": machine(preset), "preset": given.preset, "shape": dataclasses.asdict(shape)}
        rounds = {"repeats": given.repeats, "rows": [dataclasses.asdict(row) for row in rows]}
        print(json.dumps(found | rounds, indent=2))
        return
    described = ", ".join(f"{name} {value}" for name, value in machine(preset).items())
    print(f"{given.preset}, {preset.batch} × {preset.length} → {shape.length}, beams {shape.beams}: {described}")
    print(table(rows))


if __name__ == "__main__":
    main()
