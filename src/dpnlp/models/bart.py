"""BART (Lewis et al. 2020) and mBART (Liu et al. 2020), and the layers from which `marian` and `m2m100` are built too.

Positions are learned, the sum of token and position is normed, and every layer has a bias. BART norms after each
sublayer; mBART before it, and once more at the end. The output layer is the table of the inputs, plus a bias that is
never trained.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
from flax import nnx

from dpnlp import checks
from dpnlp.bookkeeping import Array
from dpnlp.checks import BadInput
from dpnlp.models.attention import Attention, Kept, Seen, real, scaled
from dpnlp.models.layers import ACTIVATIONS, Dropout, Embedding, LayerNorm, Linear, refuse_longer, small_table
from dpnlp.models.seq2seq import Memory, Past, Seq2Seq, Sight
from dpnlp.models.writer import OutputLayer


@dataclass(frozen=True)
class Config:
    """The shape of a BART, and how it is computed. Whole layers are never dropped (LayerDrop)."""

    vocabulary: int
    width: int
    encoder_layers: int
    encoder_heads: int
    encoder_hidden: int  # width of the encoder's feed-forward layers
    decoder_layers: int
    decoder_heads: int
    decoder_hidden: int
    positions: int  # the most tokens of a text
    decoder_vocabulary: int | None = None  # for a table of its own; without, one table serves both sides
    tied: bool = True  # the output layer is the decoder's table
    output_bias: bool = True
    norm_first: bool = False  # before each sublayer and at the end (mBART), else after each sublayer
    scaled: bool = False  # tokens times √width
    activation: str = "gelu"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    dtype: str = "float32"
    rematerialise: bool = False

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "positions"):
            checks.count(name, getattr(self, name))
        for side in ("encoder", "decoder"):
            for name in (f"{side}_layers", f"{side}_heads", f"{side}_hidden"):
                checks.count(name, getattr(self, name))
            if self.width % (heads := getattr(self, f"{side}_heads")):
                raise BadInput(
                    f"{side}_heads = {heads}: it must divide the width {self.width}; choose another number of heads."
                )


class Fixed(nnx.Variable[Array]):
    """A part of a model that is loaded and saved, but never trained."""


class Entrance(nnx.Module):
    """Adds what is learned for each position, and norms the sum. Position p has row p + 2 of the table."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.positions = small_table(config.positions + 2, config.width, rngs=rngs)
        self.norm = LayerNorm(config.width)

    def __call__(self, x: Array, ids: Array, positions: Array) -> Array:  # [batch, length, width] -> the same
        rows = jnp.broadcast_to(positions + 2, ids.shape)
        return self.norm(x + self.positions(rows).astype(x.dtype))


class BART(Seq2Seq):
    """The encoder and the decoder. A relative with other positions has another `entrance`."""

    entrance: Callable[..., nnx.Module] = Entrance

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.config, self.dtype = config, jnp.dtype(config.dtype)
        outputs = config.decoder_vocabulary or config.vocabulary
        self.tokens = small_table(config.vocabulary, config.width, rngs=rngs)
        self.decoder_tokens = small_table(outputs, config.width, rngs=rngs) if config.decoder_vocabulary else None
        self.head = None if config.tied else Linear(config.width, outputs, bias=False, rngs=rngs)
        self.output_bias = Fixed(jnp.zeros((1, outputs))) if config.output_bias else None
        self.encoder_entrance, self.decoder_entrance = (self.entrance(config, rngs=rngs) for _ in range(2))
        self.encoder = nnx.List([EncoderLayer(config, rngs=rngs) for _ in range(config.encoder_layers)])
        self.decoder = nnx.List([DecoderLayer(config, rngs=rngs) for _ in range(config.decoder_layers)])
        self.encoder_norm, self.decoder_norm = (
            LayerNorm(config.width) if config.norm_first else None for _ in range(2)
        )
        self.dropout = Dropout(config.dropout)

    def encode(self, ids: Array, mask: Array) -> Array:  # [batch, source] -> [batch, source, width]
        refuse_longer(ids.shape[1], self.config.positions)
        x = self._enter(self.tokens, self.encoder_entrance, ids, jnp.arange(ids.shape[1]))
        for layer in self.encoder:
            x = layer(x, real(mask))
        return x if self.encoder_norm is None else self.encoder_norm(x)

    def embed(self, ids: Array, positions: Array) -> Array:  # [batch, target] -> [batch, target, width]
        refuse_longer(ids.shape[1], self.config.positions)
        return self._enter(self._decoder_tokens, self.decoder_entrance, ids, positions)

    def bias(self, positions: Array, keys: int, batch: int) -> None:
        return None

    def finish(self, x: Array) -> Array:  # [batch, target, width]
        return x if self.decoder_norm is None else self.decoder_norm(x)

    def output_layer(self) -> OutputLayer:
        bias = None if self.output_bias is None else self.output_bias[...][0]
        return OutputLayer(self._decoder_tokens if self.head is None else self.head, bias=bias)

    def empty(self, memory: Memory, beams: int, length: int) -> Past:
        refuse_longer(length, self.config.positions)
        return super().empty(memory, beams, length)

    @property
    def _decoder_tokens(self) -> Embedding:
        return self.tokens if self.decoder_tokens is None else self.decoder_tokens

    def _enter(self, tokens: Embedding, entrance: nnx.Module, ids: Array, positions: Array) -> Array:
        x = tokens(ids, self.dtype)
        if self.config.scaled:
            x = x * math.sqrt(self.config.width)
        return self.dropout(entrance(x, ids, positions))


class EncoderLayer(nnx.Module):
    """Attention of a text to itself, then the feed-forward layer."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.self_norm, self.feed_norm = Norm(config), Norm(config)
        self.self_attention = _attention(config, config.encoder_heads, rngs)
        self.feed_forward = FeedForward(config, config.encoder_hidden, rngs=rngs)

    def __call__(self, x: Array, mask: Array) -> Array:  # [batch, source, width] -> the same
        y = self.self_norm.before(x)
        x = self.self_norm.after(x, self.self_attention(y, self.self_attention.keys_values(y), mask))
        return self.feed_norm.after(x, self.feed_forward(self.feed_norm.before(x)))


class DecoderLayer(nnx.Module):
    """Attention to the tokens so far, to the input, then the feed-forward layer."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.self_norm, self.cross_norm, self.feed_norm = Norm(config), Norm(config), Norm(config)
        self.self_attention, self.cross_attention = (_attention(config, config.decoder_heads, rngs) for _ in range(2))
        self.feed_forward = FeedForward(config, config.decoder_hidden, rngs=rngs)

    def __call__(
        self, x: Array, before: Kept | None, position: Array, crossed: Seen, sight: Sight
    ) -> tuple[Array, Seen]:  # x: [batch, target, width], or [batch · beams, 1, width] with what was before
        y = self.self_norm.before(x)
        new = self.self_attention.keys_values(y)
        own: Seen = new if before is None else before.at(position, new)
        x = self.self_norm.after(x, self.self_attention(y, own, sight.own, sight.bias))
        y = self.cross_norm.before(x)
        y = y.reshape(crossed.keys.shape[0], -1, x.shape[-1])  # the beams as queries of one input
        x = self.cross_norm.after(x, self.cross_attention(y, crossed, sight.input).reshape(x.shape))
        return self.feed_norm.after(x, self.feed_forward(self.feed_norm.before(x))), own


class Norm(LayerNorm):
    """The norm of a sublayer: of what goes in, or of the sum of that and what comes out."""

    def __init__(self, config: Config) -> None:
        super().__init__(config.width)
        self.first = config.norm_first
        self.dropout = Dropout(config.dropout)

    def before(self, x: Array) -> Array:
        """What the sublayer is given."""
        return self(x) if self.first else x

    def after(self, x: Array, y: Array) -> Array:
        """x and what the sublayer made of it."""
        total = x + self.dropout(y)
        return total if self.first else self(total)


class FeedForward(nnx.Module):
    """Two layers with an activation between them."""

    def __init__(self, config: Config, hidden: int, *, rngs: nnx.Rngs) -> None:
        self.up, self.down = Linear(config.width, hidden, rngs=rngs), Linear(hidden, config.width, rngs=rngs)
        self.activation = config.activation
        self.dropout = Dropout(config.activation_dropout)

    def __call__(self, x: Array) -> Array:  # [batch, …, width] -> the same
        return self.down(self.dropout(ACTIVATIONS[self.activation](self.up(x))))


def _attention(config: Config, heads: int, rngs: nnx.Rngs) -> Attention:
    head_width = config.width // heads
    return Attention(
        config.width,
        heads,
        head_width,
        bias=True,
        scale=scaled(head_width),
        dropout=config.attention_dropout,
        rematerialise=config.rematerialise,
        rngs=rngs,
    )
