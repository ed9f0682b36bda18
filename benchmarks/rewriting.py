"""Texts per second that DP-BART rewrites, and what of that is the drawing of noise.

python -m benchmarks.rewriting --preset micro [--texts N] [--batch B] [--beams 4] [--kept d] [--threads 1 4]
    [--dtype float32] [--repeats n] [--json]

Random texts of 20 tokens become texts of 20 tokens, by random weights of the preset's shape, at ε = 500 and δ = 1e-5,
with d of its neurons kept. "without noise" is the same at ε = ∞, which reads, clips and writes; "noise" alone is what
the mechanism takes for the latents of all texts, with so many threads. It is exact and is drawn on the host, while the
device writes the texts of the batch before. Ratios are to "rewriting" with the most threads. On a GPU the model
computes in bfloat16 unless told otherwise.
"""

import argparse
import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from functools import cache

import jax
import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from benchmarks.turns import Step, measure, show
from dpnlp.models.pretrained import from_scratch
from dpnlp.rewriting.bart_autoencoder import Autoencoder
from dpnlp.rewriting.dp_bart import DPBart
from dpnlp.tasks.translation import Writing

LENGTH, BOUND, EPSILON, DELTA = 20, 0.1, 500.0, 1e-5


@dataclasses.dataclass(frozen=True)
class Preset:
    """The shape of a BART, with as many layers on both sides."""

    width: int
    heads: int
    hidden: int
    layers: int
    vocabulary: int


PRESETS = {"micro": Preset(128, 4, 256, 2, 4096), "bart-base": Preset(768, 12, 3072, 6, 50_265)}


@dataclasses.dataclass(frozen=True)
class Asked:
    """What is rewritten, and how."""

    preset: Preset
    texts: int
    batch: int
    beams: int
    kept: int
    dtype: str


def tokenizer(size: int) -> PreTrainedTokenizerFast:
    """One that knows so many words, each of them a token."""
    words = ["<s>", "<pad>", "</s>", "<unk>", *(f"w{number}" for number in range(4, size))]
    made = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = WhitespaceSplit()
    made.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


def texts(asked: Asked) -> list[str]:
    """Of 19 random words, and the end."""
    words = np.random.default_rng(0).integers(4, asked.preset.vocabulary, (asked.texts, LENGTH - 1))
    return [" ".join(f"w{word}" for word in row) for row in words]


@cache
def autoencoder(asked: Asked) -> Autoencoder:
    shape = dataclasses.asdict(asked.preset)
    made = tokenizer(shape.pop("vocabulary"))
    fresh = from_scratch(made, **shape, dropout=0.0, computes=asked.dtype, seed=0, architecture="bart")
    whole = Autoencoder.of(fresh, length=LENGTH, bound=BOUND)
    pruned = tuple(range(asked.kept, asked.preset.width))
    return dataclasses.replace(whole, bottleneck=dataclasses.replace(whole.bottleneck, pruned=pruned))


def rewriter(asked: Asked, threads: int, epsilon: float = EPSILON, kind: type[DPBart] = DPBart) -> DPBart:
    writing = Writing(longest=LENGTH, beams=asked.beams, batch=asked.batch)
    return kind(autoencoder(asked), epsilon, DELTA, writing, threads=threads)


def rewriting(asked: Asked, threads: int, epsilon: float = EPSILON) -> Step:
    given, made = texts(asked), rewriter(asked, threads, epsilon)

    def run() -> None:
        assert len(made.rewrite(given)) == asked.texts

    return _ready(run)


@dataclasses.dataclass(frozen=True)
class Blank(DPBart):
    """Its latents are noise alone."""

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return np.zeros((len(texts), self.clip.dimension))


def noise(asked: Asked, threads: int) -> Step:
    """In batches, as rewriting draws it."""
    made, blank = rewriter(asked, threads, kind=Blank), [""] * asked.batch

    def run() -> None:
        for _ in range(asked.texts // asked.batch):
            made.latents(blank)

    return _ready(run)


def _ready(run: Callable[[], None]) -> Step:
    """After the first call, which compiles."""
    start = time.perf_counter()
    run()
    return Step(run, time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=list(PRESETS), default="micro")
    for name, default in (("texts", 256), ("batch", 64), ("beams", 4), ("kept", 0), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 4], help="that draw noise")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    dtype = given.dtype or ("float32" if jax.default_backend() == "cpu" else "bfloat16")
    preset = PRESETS[given.preset]
    asked = Asked(preset, given.texts, given.batch, given.beams, given.kept or preset.width, dtype)
    if asked.texts % asked.batch:
        parser.error(f"--texts {asked.texts}: it must be a multiple of the batch, {asked.batch}.")
    most = max(given.threads)
    plain = f"rewriting, threads {most}"
    made = {"without noise": lambda: rewriting(asked, 1, math.inf)}
    made |= {f"rewriting, threads {n}": lambda n=n: rewriting(asked, n) for n in given.threads}
    made |= {f"noise, threads {n}": lambda n=n: noise(asked, n) for n in given.threads}
    rows = measure(made, plain, given.repeats)
    for row in (row for row in rows if row.milliseconds):
        row.note = f"{1e3 * asked.texts / row.milliseconds:,.0f} texts a second"
        if row.variant.startswith("noise"):
            drawn = asked.texts * LENGTH * asked.kept
            row.note += f", {drawn / row.milliseconds / 1e3:.2f} million numbers a second"
    title = f"{given.preset}, {asked.texts} texts of {LENGTH} tokens, beams {asked.beams}, {asked.kept} neurons"
    show(title, {"asked": dataclasses.asdict(asked), "repeats": given.repeats}, dtype, rows, given.json)


if __name__ == "__main__":
    main()
