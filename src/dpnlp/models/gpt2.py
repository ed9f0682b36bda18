"""GPT-2 (Radford et al. 2019): the decoder of the Transformer alone, as a language model.

Positions are learned, each sublayer norms what goes into it, a norm follows the last layer, and the output layer is the
table of the tokens. One layer makes queries, keys and values.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from flax import nnx

from dpnlp import checks
from dpnlp.bookkeeping import Array
from dpnlp.checks import BadInput
from dpnlp.models.attention import Attention, Kept, KeysValues, Seen, past, real, scaled
from dpnlp.models.language import LanguageModel, parted
from dpnlp.models.layers import ACTIVATIONS, Dropout, LayerNorm, Linear, refuse_longer, small_table
from dpnlp.models.seq2seq import Past
from dpnlp.models.writer import OutputLayer


@dataclass(frozen=True)
class Config:
    """The shape of a GPT-2, and how it is computed."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    hidden: int  # width of the feed-forward layers
    positions: int  # the most tokens of a text
    tied: bool = True  # the output layer is the table of the tokens
    activation: str = "gelu_tanh"
    scaled: bool = True  # scores of attention over √(width of a head)
    scaled_by_layer: bool = False  # and over the number of the layer, from 1 on
    epsilon: float = 1e-5  # of the norms
    dropout: float = 0.0
    attention_dropout: float = 0.0
    embedding_dropout: float = 0.0
    dtype: str = "float32"
    rematerialise: bool = False

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "layers", "heads", "hidden", "positions"):
            checks.count(name, getattr(self, name))
        if self.width % self.heads:
            raise BadInput(
                f"heads = {self.heads}: it must divide the width {self.width}; choose another number of heads."
            )

    def scale(self, layer: int) -> float:
        """What the scores of attention in a layer are multiplied with."""
        scale = scaled(self.width // self.heads) if self.scaled else 1.0
        return scale / (layer + 1) if self.scaled_by_layer else scale


class Prompt(NamedTuple):
    """What each layer sees of a prompt without its last token, and where its real tokens are."""

    layers: tuple[Kept, ...]
    mask: Array  # [batch, source]

    @property
    def lengths(self) -> Array:  # [batch]
        return jnp.sum(self.mask, axis=1)


class GPT2(LanguageModel):
    """The model. A token's position is counted among the real tokens of its text, wherever the padding is."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.config, self.dtype = config, jnp.dtype(config.dtype)
        self.tokens = small_table(config.vocabulary, config.width, rngs=rngs)
        self.positions = small_table(config.positions, config.width, rngs=rngs)
        self.head = None if config.tied else Linear(config.width, config.vocabulary, bias=False, rngs=rngs)
        self.layers = nnx.List([Layer(config, layer, rngs=rngs) for layer in range(config.layers)])
        self.norm = LayerNorm(config.width, epsilon=config.epsilon)
        self.dropout = Dropout(config.embedding_dropout)

    def states(self, ids: Array, mask: Array) -> Array:  # [batch, length] -> [batch, length, width]
        return self._read(ids, mask)[0]

    def output_layer(self) -> OutputLayer:
        return OutputLayer(self.tokens if self.head is None else self.head)

    def read(self, inputs: Array, mask: Array, start: int) -> tuple[Prompt, Array]:
        before, last = parted(inputs, mask)
        _, seen = self._read(inputs, mask)
        return Prompt(tuple(map(Kept.of, seen)), before), last

    def empty(self, memory: Prompt, beams: int, length: int) -> Past:
        refuse_longer(length, self.config.positions)
        batch, heads, _, width = memory.layers[0].keys.shape
        blank = jnp.zeros((batch, heads, length * beams, width), self.dtype)
        return Past((Kept(blank, blank),) * len(self.layers), jnp.zeros((batch, beams, length), jnp.int32))

    def decode(self, ids: Array, memory: Prompt, before: Past, position: Array | int) -> tuple[Array, Past]:
        before = before.at(position)
        batch, beams, _ = before.origins.shape
        x = self._embedded(ids, jnp.repeat(memory.lengths + position, beams)[:, None])
        prompt = jnp.broadcast_to(real(memory.mask), (batch, 1, beams, memory.mask.shape[1]))
        mask = jnp.concatenate([prompt, before.seen(position)], axis=-1)
        after = []
        for layer, read, own in zip(self.layers, memory.layers, before.layers, strict=True):
            query, new = layer.looked(x)
            own = own.at(jnp.asarray(position), new)
            both = Kept(*(jnp.concatenate(sides, axis=2) for sides in zip(read, own, strict=True)))
            x = layer.finished(x, query, both, mask)
            after.append(own)
        return self.norm(x), before._replace(layers=tuple(after))

    def longest_input(self, new: int) -> int:
        refuse_longer(new + 1, self.config.positions)  # A prompt has at least one token.
        return int(self.config.positions) - new

    def _read(self, ids: Array, mask: Array) -> tuple[Array, list[KeysValues]]:
        """The states after all tokens, and what each layer sees of them."""
        length = ids.shape[1]
        refuse_longer(length, self.config.positions)
        x = self._embedded(ids, jnp.maximum(jnp.cumsum(mask > 0, axis=1) - 1, 0))
        sight = past(jnp.arange(length), length) & real(mask)
        seen = []
        for layer in self.layers:
            query, own = layer.looked(x)
            x = layer.finished(x, query, own, sight)
            seen.append(own)
        return self.norm(x), seen

    def _embedded(self, ids: Array, positions: Array) -> Array:  # [batch, length] each -> [batch, length, width]
        return self.dropout(self.tokens(ids, self.dtype) + self.positions(positions, self.dtype))


class Layer(nnx.Module):
    """Attention to the tokens so far, then the feed-forward layer."""

    def __init__(self, config: Config, layer: int, *, rngs: nnx.Rngs) -> None:
        self.self_norm, self.feed_norm = (LayerNorm(config.width, epsilon=config.epsilon) for _ in range(2))
        self.self_attention = SelfAttention(config, layer, rngs=rngs)
        self.up = Linear(config.width, config.hidden, rngs=rngs)
        self.down = Linear(config.hidden, config.width, rngs=rngs)
        self.activation = config.activation
        self.dropout = Dropout(config.dropout)

    def looked(self, x: Array) -> tuple[Array, KeysValues]:  # [batch, length, width]
        """With what the tokens look, and what they show to others."""
        return self.self_attention.split(self.self_norm(x))

    def finished(self, x: Array, query: Array, seen: Seen, mask: Array) -> Array:  # [batch, length, width] -> the same
        """The rest of the layer, once it is known what can be seen."""
        x = x + self.dropout(self.self_attention.attend(query, seen, mask))
        return x + self.dropout(self.down(ACTIVATIONS[self.activation](self.up(self.feed_norm(x)))))


class SelfAttention(Attention):
    """Attention whose queries, keys and values are made by one layer."""

    def __init__(self, config: Config, layer: int, *, rngs: nnx.Rngs) -> None:
        self.projection = Linear(config.width, (3, config.heads, config.width // config.heads), rngs=rngs)
        self.output = Linear(config.width, config.width, rngs=rngs)
        self.dropout = Dropout(config.attention_dropout)
        self.scale, self.rematerialise = config.scale(layer), config.rematerialise

    def split(self, x: Array) -> tuple[Array, KeysValues]:
        """Queries, and keys and values: [batch, length, width] -> [batch, length, heads, width of a head] each."""
        query, key, value = jnp.moveaxis(self.projection(x), -3, 0)
        return query, KeysValues(key, value)
