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
from flax import nnx

from benchmarks.clipping import machine
from dpnlp.models import t5
from dpnlp.models.generation import Generation, generate

OURS, THEIRS = "dpnlp", "transformers"


@dataclasses.dataclass(frozen=True)
class Shape:
    """The model and what it generates."""

    model: t5.Config
    beams: int = 4
    batch: int = 8
    source: int = 32
    length: int = 32

    @property
    def dtype(self) -> str:
        return self.model.dtype


PRESETS = {
    "tiny": t5.Config(4096, 256, 4, 64, 1024, 4, 4),
    "t5-small": t5.Config(32_128, 512, 8, 64, 2048, 6, 6),
    "mt5-small": t5.Config(
        250_112, 512, 6, 64, 1024, 8, 8, activation="gelu_tanh", gated=True, tied=False, scaled_output=False
    ),
    "t5-base": t5.Config(32_128, 768, 12, 64, 3072, 12, 12),
}


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
    return np.random.default_rng(0).integers(2, shape.model.vocabulary, (shape.batch, shape.source))


def ours(shape: Shape) -> Callable[[], None]:
    model = t5.T5(shape.model, rngs=nnx.Rngs(0))
    options = Generation(shape.length, start=0, end=(), pad=0, beams=shape.beams)
    texts = inputs(shape).tolist()

    def run() -> None:
        generate(model, texts, options, batch=shape.batch, lengths=(shape.source,))

    return run


def theirs(shape: Shape) -> Callable[[], None]:
    import torch
    import transformers

    device = "cuda" if torch.cuda.is_available() else "cpu"
    c = shape.model
    settings = {
        "vocab_size": c.vocabulary,
        "d_model": c.width,
        "d_kv": c.head_width,
        "d_ff": c.hidden,
        "num_layers": c.encoder_layers,
        "num_decoder_layers": c.decoder_layers,
        "num_heads": c.heads,
        "feed_forward_proj": "gated-gelu" if c.gated else "relu",
        "decoder_start_token_id": 0,
    }
    if c.tied:
        model = transformers.T5ForConditionalGeneration(transformers.T5Config(**settings))
    else:
        model = transformers.MT5ForConditionalGeneration(transformers.MT5Config(**settings))
    model = model.to(device, getattr(torch, c.dtype)).eval()
    model.generation_config.eos_token_id = model.config.eos_token_id = None
    ids = torch.as_tensor(inputs(shape), device=device)
    mask = torch.ones_like(ids)
    lengths = {"min_new_tokens": shape.length, "max_new_tokens": shape.length}

    def run() -> None:
        with torch.inference_mode():
            found = model.generate(ids, attention_mask=mask, num_beams=shape.beams, do_sample=False, **lengths)
        assert found.cpu().shape == (shape.batch, 1 + shape.length), found.shape

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
        rows[name].tokens_per_second = shape.batch * shape.length / rows[name].seconds
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
    parser.add_argument("--preset", choices=PRESETS, default="tiny")
    for name in ("beams", "batch", "source", "length"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Shape, name))
    parser.add_argument("--dtype", choices=["float32", "bfloat16"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="transformers")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    dtype = given.dtype or ("float32" if jax.default_backend() == "cpu" else "bfloat16")
    model = dataclasses.replace(PRESETS[given.preset], dtype=dtype)
    shape = Shape(model, given.beams, given.batch, given.source, given.length)
    warnings.simplefilter("ignore")  # transformers'
    rows = measure({OURS: ours, THEIRS: theirs} if given.peers else {OURS: ours}, shape, given.repeats)
    if given.json:
        found = {"machine": machine(shape), "preset": given.preset, "shape": dataclasses.asdict(shape)}
        rounds = {"repeats": given.repeats, "rows": [dataclasses.asdict(row) for row in rows]}
        print(json.dumps(found | rounds, indent=2))
        return
    described = ", ".join(f"{name} {value}" for name, value in machine(shape).items())
    print(f"{given.preset}, {shape.batch} × {shape.source} → {shape.length}, beams {shape.beams}: {described}")
    print(table(rows))


if __name__ == "__main__":
    main()
