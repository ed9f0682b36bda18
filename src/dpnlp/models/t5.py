"""T5 (Raffel et al. 2020), T5 1.1, mT5, Flan-T5, ByT5 and UL2.

Norms come before each layer and have no bias; positions are relative, in buckets, and added to the scores of all
layers. T5 1.0 has one table for inputs and outputs and divides the states by √width before it; the later ones have an
output layer of their own and gates in the feed-forward layer.
"""

import math
from dataclasses import dataclass

import jax.numpy as jnp
from flax import nnx

from dpnlp import checks
from dpnlp.bookkeeping import Array
from dpnlp.models.attention import Attention, Kept, Seen, real
from dpnlp.models.layers import ACTIVATIONS, Dropout, Embedding, Linear, PositionBuckets, RMSNorm
from dpnlp.models.seq2seq import Seq2Seq, Sight
from dpnlp.models.writer import OutputLayer


@dataclass(frozen=True)
class Config:
    """The shape of a T5, and how it is computed."""

    vocabulary: int
    width: int
    heads: int
    head_width: int
    hidden: int  # width of the feed-forward layers
    encoder_layers: int
    decoder_layers: int
    activation: str = "relu"
    gated: bool = False
    tied: bool = True  # the output layer is the table of the inputs
    scaled_output: bool = True  # by 1/√width
    buckets: int = 32
    furthest: int = 128  # the distance from which on all are in the last bucket
    epsilon: float = 1e-6
    dropout: float = 0.0
    dtype: str = "float32"
    rematerialise: bool = False

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "heads", "head_width", "hidden", "encoder_layers", "decoder_layers"):
            checks.count(name, getattr(self, name))
        checks.count("buckets", self.buckets, least=4)
        checks.count("furthest", self.furthest, least=self.buckets // 2 + 1)
        checks.positive("epsilon", self.epsilon)


class T5(Seq2Seq):
    """The encoder and the decoder, with one table for the tokens of both."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.config, self.dtype = config, jnp.dtype(config.dtype)
        self.tokens = Embedding(config.vocabulary, config.width, rngs=rngs)
        self.head = None if config.tied else Linear(config.width, config.vocabulary, bias=False, rngs=rngs)
        self.encoder_positions, self.decoder_positions = (
            PositionBuckets(config.buckets, config.heads, rngs=rngs) for _ in range(2)
        )
        self.encoder = nnx.List([EncoderLayer(config, rngs=rngs) for _ in range(config.encoder_layers)])
        self.decoder = nnx.List([DecoderLayer(config, rngs=rngs) for _ in range(config.decoder_layers)])
        self.encoder_norm, self.decoder_norm = (RMSNorm(config.width, epsilon=config.epsilon) for _ in range(2))
        self.dropout = Dropout(config.dropout)

    def encode(self, ids: Array, mask: Array) -> Array:  # [batch, source] -> [batch, source, width]
        positions = jnp.arange(ids.shape[1])
        bucket = self._buckets(positions, ids.shape[1], both_ways=True)
        x = self.embed(ids, positions)
        for layer in self.encoder:
            x = layer(x, real(mask), self.encoder_positions(bucket, ids.shape[0], self.dtype))
        return self.dropout(self.encoder_norm(x))

    def embed(self, ids: Array, positions: Array) -> Array:  # [batch, length] -> [batch, length, width]
        return self.dropout(self.tokens(ids, self.dtype))

    def bias(self, positions: Array, keys: int, batch: int) -> Array:
        return self.decoder_positions(self._buckets(positions, keys, both_ways=False), batch, self.dtype)

    def finish(self, x: Array) -> Array:  # [batch, target, width]
        return self.dropout(self.decoder_norm(x))

    def output_layer(self) -> OutputLayer:
        scale = self.config.width**-0.5 if self.config.scaled_output else 1.0
        return OutputLayer(self.tokens if self.head is None else self.head, scale)

    def _buckets(self, positions: Array, keys: int, *, both_ways: bool) -> Array:
        away = jnp.arange(keys)[None, :] - positions[:, None]
        return buckets(away, self.config.buckets, self.config.furthest, both_ways=both_ways)


class EncoderLayer(nnx.Module):
    """Attention of a text to itself, then the feed-forward layer."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.self_norm, self.feed_norm = (RMSNorm(config.width, epsilon=config.epsilon) for _ in range(2))
        self.self_attention = _attention(config, rngs)
        self.feed_forward = FeedForward(config, rngs=rngs)
        self.dropout = Dropout(config.dropout)

    def __call__(self, x: Array, mask: Array, bias: Array) -> Array:  # [batch, source, width] -> the same
        y = self.self_norm(x)
        x = x + self.dropout(self.self_attention(y, self.self_attention.keys_values(y), mask, bias))
        return x + self.dropout(self.feed_forward(self.feed_norm(x)))


class DecoderLayer(nnx.Module):
    """Attention to the tokens so far, to the input, then the feed-forward layer."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.self_norm, self.cross_norm, self.feed_norm = (
            RMSNorm(config.width, epsilon=config.epsilon) for _ in range(3)
        )
        self.self_attention, self.cross_attention = _attention(config, rngs), _attention(config, rngs)
        self.feed_forward = FeedForward(config, rngs=rngs)
        self.dropout = Dropout(config.dropout)

    def __call__(
        self, x: Array, before: Kept | None, position: Array, crossed: Seen, sight: Sight
    ) -> tuple[Array, Seen]:  # x: [batch, target, width], or [batch · beams, 1, width] with what was before
        y = self.self_norm(x)
        new = self.self_attention.keys_values(y)
        own: Seen = new if before is None else before.at(position, new)
        x = x + self.dropout(self.self_attention(y, own, sight.own, sight.bias))
        y = self.cross_norm(x).reshape(crossed.keys.shape[0], -1, x.shape[-1])  # the beams as queries of one input
        x = x + self.dropout(self.cross_attention(y, crossed, sight.input).reshape(x.shape))
        return x + self.dropout(self.feed_forward(self.feed_norm(x))), own


class FeedForward(nnx.Module):
    """Two layers with an activation between them; `gated` lets a third decide how much of it passes."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.up = Linear(config.width, config.hidden, bias=False, rngs=rngs)
        self.gate = Linear(config.width, config.hidden, bias=False, rngs=rngs) if config.gated else None
        self.down = Linear(config.hidden, config.width, bias=False, rngs=rngs)
        self.activation = config.activation
        self.dropout = Dropout(config.dropout)

    def __call__(self, x: Array) -> Array:  # [batch, …, width] -> the same
        activate = ACTIVATIONS[self.activation]
        y = activate(self.up(x)) if self.gate is None else activate(self.gate(x)) * self.up(x)
        return self.down(self.dropout(y))


def buckets(away: Array, count: int, furthest: int, *, both_ways: bool) -> Array:
    """The bucket of each distance from query to key: exact when near, by its logarithm up to `furthest`.

    `both_ways` uses half of the buckets for what comes later; else that is all in bucket 0, and masked.
    """
    if both_ways:
        count //= 2
    first = jnp.where(away > 0, count, 0) if both_ways else jnp.zeros_like(away)
    distance = jnp.abs(away) if both_ways else jnp.maximum(-away, 0)
    exact = count // 2
    share = jnp.log(jnp.maximum(distance, 1) / exact) / math.log(furthest / exact)
    far = jnp.minimum(exact + (share * (count - exact)).astype(jnp.int32), count - 1)
    return first + jnp.where(distance < exact, distance, far)


def _attention(config: Config, rngs: nnx.Rngs) -> Attention:
    """T5 does not divide the scores by √width: its queries start out that much smaller."""
    attention = Attention(
        config.width,
        config.heads,
        config.head_width,
        bias=False,
        scale=1.0,
        dropout=config.dropout,
        rematerialise=config.rematerialise,
        rngs=rngs,
    )
    attention.query.kernel[...] *= config.head_width**-0.5
    return attention
