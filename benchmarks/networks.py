"""What the clipping benchmark trains: T5's and BERT's shapes with random weights, built from dpnlp's layers alone."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dpnlp.bookkeeping import Array
from dpnlp.models.layers import Embedding, LayerNorm, Linear, PositionBuckets, RMSNorm

CLIP_NORM = 1.0
BUCKETS, FURTHEST = 32, 128  # of T5's relative positions


@dataclass(frozen=True)
class Preset:
    """What is trained: the shape of the network, of a batch, and the type it computes in. The weights are float32."""

    family: str  # "t5": encoder and decoder; "bert": encoder and a classifier
    width: int
    heads: int
    head_width: int
    hidden: int
    layers: int
    vocabulary: int
    batch: int
    length: int
    dtype: str
    gated: bool = False
    tied: bool = False


PRESETS = {
    "micro": Preset("t5", 128, 4, 32, 256, 2, 4096, 16, 32, "float32", gated=True),
    "tiny": Preset("t5", 256, 4, 64, 1024, 4, 4096, 16, 32, "float32"),
    "mt5-small": Preset("t5", 512, 6, 64, 1024, 8, 250_112, 64, 64, "bfloat16", gated=True),
    "t5-base": Preset("t5", 768, 12, 64, 3072, 12, 32_128, 64, 128, "bfloat16", tied=True),
    "bert-base": Preset("bert", 768, 12, 64, 3072, 12, 30_522, 32, 128, "bfloat16"),
}


@dataclass
class Step:
    """A way to a gradient that is ready to run; `run` returns when the device has finished."""

    run: Callable[[], Any]
    compile_seconds: float | None = None
    peak_bytes: Callable[[], int | None] = lambda: None  # asked after the last run
    clean: Callable[[], None] = lambda: None  # frees what a run left behind
    note: str = ""


Variants = dict[str, Callable[[], Step]]


def build(preset: Preset) -> nnx.Module:
    """The network of a preset, with random weights."""
    return {"t5": EncoderDecoder, "bert": Classifier}[preset.family](preset, rngs=nnx.Rngs(0))


def batch(preset: Preset) -> dict[str, np.ndarray]:
    """Random tokens. Each example has its own length, from half of the preset's to all of it; the rest is masked."""
    rng = np.random.default_rng(0)
    shape = (preset.batch, preset.length)

    def tokens() -> tuple[np.ndarray, np.ndarray]:
        lengths = rng.integers((preset.length + 1) // 2, preset.length + 1, preset.batch)
        return rng.integers(2, preset.vocabulary, shape, np.int32), np.arange(preset.length) < lengths[:, None]

    ids, mask = tokens()
    if preset.family == "bert":
        return {"ids": ids, "mask": mask, "labels": rng.integers(0, 2, preset.batch, np.int32)}
    targets, target_mask = tokens()
    return {"ids": ids, "mask": mask, "targets": targets, "target_mask": target_mask}


def losses(model: nnx.Module, batch: dict[str, Array]) -> Array:
    """Cross-entropy of each example [batch], over the example's own tokens where it has several."""
    logits = model(batch)  # type: ignore[operator]
    labels = batch["targets"] if "targets" in batch else batch["labels"]
    logits = logits.astype(jnp.float32)
    chosen = labels[..., None] == jnp.arange(logits.shape[-1])  # not looked up: the gradient would be a scatter
    picked = jnp.sum(jnp.where(chosen, logits, 0), axis=-1)
    entropy = jax.nn.logsumexp(logits, axis=-1) - picked
    if "targets" not in batch:
        return entropy
    mask = batch["target_mask"]
    return jnp.sum(entropy * mask, axis=1) / jnp.maximum(jnp.sum(mask, axis=1), 1)


class EncoderDecoder(nnx.Module):
    """T5: norms before each layer, relative positions, one embedding for both sides, perhaps for the output too."""

    def __init__(self, preset: Preset, rngs: nnx.Rngs) -> None:
        self.dtype, self.scale = preset.dtype, preset.width**-0.5
        self.embedding = Embedding(preset.vocabulary, preset.width, rngs=rngs)
        self.head = None if preset.tied else Linear(preset.width, preset.vocabulary, bias=False, rngs=rngs)
        self.encoder, self.decoder = (
            nnx.List([Block(preset, rngs=rngs, **kind) for _ in range(preset.layers)])
            for kind in ({}, {"crossed": True})
        )
        self.encoder_positions, self.decoder_positions = (
            PositionBuckets(BUCKETS, preset.heads, rngs=rngs) for _ in range(2)
        )
        self.encoder_norm, self.decoder_norm = RMSNorm(preset.width), RMSNorm(preset.width)

    def __call__(self, batch: dict[str, Array]) -> Array:  # [batch, length, vocabulary]
        size, length = batch["ids"].shape
        seen = _bias(batch["mask"][:, None, None, :])
        places = self.encoder_positions(buckets(length, length, both_ways=True), size) + seen
        x = self.embedding(batch["ids"]).astype(self.dtype)
        for block in self.encoder:
            x = block(x, places)
        memory = self.encoder_norm(x)

        targets = batch["targets"]
        length = targets.shape[1]
        past = _bias(jnp.tril(jnp.ones((length, length), bool)))
        places = self.decoder_positions(buckets(length, length, both_ways=False), size) + past
        y = self.embedding(jnp.pad(targets[:, :-1], ((0, 0), (1, 0)))).astype(self.dtype)
        for block in self.decoder:
            y = block(y, places, memory, seen)
        y = self.decoder_norm(y)
        return self.embedding.attend(y * self.scale) if self.head is None else self.head(y)


class Classifier(nnx.Module):
    """BERT: learned positions, norms after each layer, a pooler and two labels."""

    def __init__(self, preset: Preset, rngs: nnx.Rngs) -> None:
        self.dtype = preset.dtype
        self.tokens = Embedding(preset.vocabulary, preset.width, rngs=rngs)
        self.positions = Embedding(512, preset.width, rngs=rngs)
        self.types = Embedding(2, preset.width, rngs=rngs)
        self.norm = LayerNorm(preset.width, epsilon=1e-12)
        self.encoder = nnx.List([LateNormBlock(preset, rngs=rngs) for _ in range(preset.layers)])
        self.pooler = Linear(preset.width, preset.width, rngs=rngs)
        self.head = Linear(preset.width, 2, rngs=rngs)

    def __call__(self, batch: dict[str, Array]) -> Array:  # [batch, labels]
        ids = batch["ids"]
        places = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
        x = self.tokens(ids) + self.positions(places) + self.types(jnp.zeros_like(ids))
        x = self.norm(x.astype(self.dtype))
        seen = _bias(batch["mask"][:, None, None, :])
        for block in self.encoder:
            x = block(x, seen)
        return self.head(jnp.tanh(self.pooler(x[:, 0])))


class Block(nnx.Module):
    """One of T5's layers; `crossed` adds attention to the encoder's output."""

    def __init__(self, preset: Preset, *, crossed: bool = False, rngs: nnx.Rngs) -> None:
        self.attention = Attention(preset, scaled=False, bias=False, rngs=rngs)
        self.attention_norm = RMSNorm(preset.width)
        self.crossing = Attention(preset, scaled=False, bias=False, rngs=rngs) if crossed else None
        self.crossing_norm = RMSNorm(preset.width) if crossed else None
        self.feed = Gated(preset, rngs=rngs) if preset.gated else Feed(preset, jax.nn.relu, bias=False, rngs=rngs)
        self.feed_norm = RMSNorm(preset.width)

    def __call__(self, x: Array, places: Array, memory: Array | None = None, seen: Array | None = None) -> Array:
        normed = self.attention_norm(x)
        x = x + self.attention(normed, normed, places)
        if self.crossing is not None:
            x = x + self.crossing(self.crossing_norm(x), memory, seen)
        return x + self.feed(self.feed_norm(x))


class LateNormBlock(nnx.Module):
    """One of BERT's layers."""

    def __init__(self, preset: Preset, *, rngs: nnx.Rngs) -> None:
        self.attention = Attention(preset, scaled=True, bias=True, rngs=rngs)
        self.attention_norm = LayerNorm(preset.width, epsilon=1e-12)
        self.feed = Feed(preset, lambda x: jax.nn.gelu(x, approximate=False), bias=True, rngs=rngs)
        self.feed_norm = LayerNorm(preset.width, epsilon=1e-12)

    def __call__(self, x: Array, seen: Array) -> Array:
        x = self.attention_norm(x + self.attention(x, x, seen))
        return self.feed_norm(x + self.feed(x))


class Attention(nnx.Module):
    """Attention of x to y. T5 does not divide the scores by √width: its initial queries are that much smaller."""

    def __init__(self, preset: Preset, *, scaled: bool, bias: bool, rngs: nnx.Rngs) -> None:
        outputs = (preset.heads, preset.head_width)
        self.query, self.key, self.value = (Linear(preset.width, outputs, bias=bias, rngs=rngs) for _ in range(3))
        self.output = Linear(math.prod(outputs), preset.width, bias=bias, rngs=rngs)
        self.scale = preset.head_width**-0.5 if scaled else 1.0
        if not scaled:
            self.query.kernel[...] *= preset.head_width**-0.5

    def __call__(self, x: Array, y: Array, bias: Array) -> Array:  # bias: float32 [batch or 1, heads or 1, q, k]
        scores = jnp.einsum("bqhd,bkhd->bhqk", self.query(x) * self.scale, self.key(y))
        shares = jax.nn.softmax(scores.astype(jnp.float32) + bias, axis=-1).astype(x.dtype)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", shares, self.value(y))
        return self.output(mixed.reshape(*x.shape[:-1], -1))


class Feed(nnx.Module):
    """Two layers with an activation between them."""

    def __init__(self, preset: Preset, activation: Any, *, bias: bool, rngs: nnx.Rngs) -> None:
        self.up = Linear(preset.width, preset.hidden, bias=bias, rngs=rngs)
        self.down = Linear(preset.hidden, preset.width, bias=bias, rngs=rngs)
        self.activation = activation

    def __call__(self, x: Array) -> Array:
        return self.down(self.activation(self.up(x)))


class Gated(nnx.Module):
    """T5 1.1's feed-forward layer: one half decides how much of the other passes."""

    def __init__(self, preset: Preset, *, rngs: nnx.Rngs) -> None:
        self.gate, self.up = (Linear(preset.width, preset.hidden, bias=False, rngs=rngs) for _ in range(2))
        self.down = Linear(preset.hidden, preset.width, bias=False, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        return self.down(jax.nn.gelu(self.gate(x)) * self.up(x))


def buckets(queries: int, keys: int, *, both_ways: bool) -> Array:
    """T5's bucket for each pair of positions: exact when near, by the logarithm of the distance up to `FURTHEST`."""
    away = jnp.arange(keys)[None, :] - jnp.arange(queries)[:, None]
    count = BUCKETS // 2 if both_ways else BUCKETS
    first = jnp.where(away > 0, count, 0) if both_ways else 0
    distance = jnp.abs(away) if both_ways else jnp.maximum(-away, 0)
    exact = count // 2
    share = jnp.log(jnp.maximum(distance, 1) / exact) / math.log(FURTHEST / exact)
    far = jnp.minimum(exact + (share * (count - exact)).astype(jnp.int32), count - 1)
    return first + jnp.where(distance < exact, distance, far)


def _bias(allowed: Array) -> Array:
    """0 where attention may look, −1e9 where it may not."""
    return jnp.where(allowed, 0.0, -1e9)
