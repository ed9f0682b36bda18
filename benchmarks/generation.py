"""Tokens per second: dpnlp's `generate` beside `model.generate` of transformers with PyTorch, on one shape.

python -m benchmarks.generation --preset tiny [--beams 4] [--batch B] [--source S] [--length T] [--dtype float32]
    [--repeats n] [--no-peers] [--json]

Both have random weights of the same shapes, keep keys and values, and generate exactly T tokens for each of B inputs of
S tokens: no text ends early. Both use the threads that they use by default and take turns; ratios are to our time,
and what is called compiling is the first call. A token counts once, however many beams there are. On a GPU both compute
in bfloat16 unless told otherwise.
"""

import argparse
import dataclasses
import time
import warnings
from collections.abc import Callable

import jax
import numpy as np

from benchmarks import networks
from benchmarks.networks import Preset
from benchmarks.turns import Step, measure, show
from dpnlp.models.generation import Generation, generate

OURS, THEIRS = "dpnlp", "transformers"


@dataclasses.dataclass(frozen=True)
class Shape:
    """The model, whose preset also says how many inputs of how many tokens there are, and what it generates."""

    preset: Preset
    beams: int
    length: int


def inputs(shape: Shape) -> np.ndarray:
    return networks.batch(shape.preset)["ids"]


def ours(shape: Shape) -> Step:
    model = networks.build(shape.preset)
    options = Generation(shape.length, start=0, end=(), pad=0, beams=shape.beams)
    texts = inputs(shape).tolist()

    def run() -> None:
        generate(model, texts, options, batch=shape.preset.batch, lengths=(shape.preset.length,))

    return _ready(run)


def theirs(shape: Shape) -> Step:
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

    return _ready(run)


def _ready(run: Callable[[], None]) -> Step:
    """After the first call, which compiles."""
    start = time.perf_counter()
    run()
    return Step(run, time.perf_counter() - start)


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
    variants = {OURS: ours, THEIRS: theirs} if given.peers else {OURS: ours}
    made = {name: lambda make=make: make(shape) for name, make in variants.items()}
    rows = measure(made, OURS, given.repeats)
    for row in (row for row in rows if row.milliseconds):
        row.note = f"{1e3 * preset.batch * shape.length / row.milliseconds:,.0f} tokens a second"
    asked = {"preset": given.preset, "shape": dataclasses.asdict(shape), "repeats": given.repeats}
    title = f"{given.preset}, {preset.batch} × {preset.length} → {shape.length}, beams {shape.beams}"
    show(title, asked, preset.dtype, rows, given.json)


if __name__ == "__main__":
    main()
