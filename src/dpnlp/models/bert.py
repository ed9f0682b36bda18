"""BERT's encoder (Devlin et al. 2019), which is also that of RoBERTa, XLM-RoBERTa and DistilBERT.

A token, its position and the part of the text that it belongs to (its type) are added up and normed; every layer norms
after each of its two sublayers. RoBERTa counts only the tokens that are no padding; DistilBERT has no types.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from flax import nnx

from dpnlp import checks
from dpnlp.bookkeeping import Array
from dpnlp.checks import BadInput
from dpnlp.models.attention import Attention, real, scaled
from dpnlp.models.layers import ACTIVATIONS, Dropout, Embedding, LayerNorm, Linear, refuse_longer


@dataclass(frozen=True)
class Config:
    """The shape of a BERT, and how it is computed."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    hidden: int  # width of the feed-forward layers
    positions: int  # the most tokens of a text
    types: int = 2  # parts of a text that are told apart, such as a question and its answer; 0 for none
    padding: int | None = None  # the token that is not counted (RoBERTa); without, every token is
    pooler: bool = True  # a layer on the first token's state, for classifiers
    activation: str = "gelu"
    epsilon: float = 1e-12
    dropout: float = 0.0
    attention_dropout: float = 0.0
    attended_dropout: float = 0.0  # of what attention found
    dtype: str = "float32"
    rematerialise: bool = False

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "layers", "heads", "hidden", "positions"):
            checks.count(name, getattr(self, name))
        checks.count("types", self.types, least=0)
        if self.width % self.heads:
            raise BadInput(f"heads = {self.heads}: it must divide the width {self.width}; choose another number.")


class BERT(nnx.Module):
    """The encoder: a state for every token, which depends on the whole text."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.config, self.dtype = config, jnp.dtype(config.dtype)
        uncounted = 0 if config.padding is None else config.padding + 1
        self.tokens = Embedding(config.vocabulary, config.width, rngs=rngs)
        self.positions = Embedding(uncounted + config.positions, config.width, rngs=rngs)
        self.types = Embedding(config.types, config.width, rngs=rngs) if config.types else None
        self.norm = LayerNorm(config.width, epsilon=config.epsilon)
        self.layers = nnx.List([Layer(config, rngs=rngs) for _ in range(config.layers)])
        self.pooler = Linear(config.width, config.width, rngs=rngs) if config.pooler else None
        self.dropout = Dropout(config.dropout)

    def __call__(self, ids: Array, mask: Array, types: Array | None = None) -> Array:
        """The states after the last layer: [batch, length] -> [batch, length, width]."""
        return self.hidden(ids, mask, types)[-1]

    def hidden(self, ids: Array, mask: Array, types: Array | None = None, *, layers: int | None = None) -> list[Array]:
        """The states before the first layer and after each, or after each of the first `layers`.

        All of [batch, length] -> [batch, length, width]. The mask shows which tokens are real; without `types` all
        tokens are of type 0.
        """
        states, seen = [self.embed(ids, types)], real(mask)
        for layer in list(self.layers)[:layers]:
            states.append(layer(states[-1], seen))
        return states

    def pooled(self, states: Array) -> Array:  # [batch, length, width] -> [batch, width]
        """The state of the whole text, made from that of its first token, for a classifier."""
        if self.pooler is None:
            raise BadInput("pooler = False: this model has no state of a whole text; use the states of its tokens.")
        return jnp.tanh(self.pooler(states[:, 0]))

    def embed(self, ids: Array, types: Array | None = None) -> Array:  # [batch, length] -> [batch, length, width]
        refuse_longer(ids.shape[1], self.config.positions)
        x = self.tokens(ids, self.dtype) + self.positions(self._rows(ids), self.dtype)
        if self.types is not None:
            x = x + self.types(jnp.zeros_like(ids) if types is None else types, self.dtype)
        return self.dropout(self.norm(x))

    def _rows(self, ids: Array) -> Array:  # [batch, length] -> the same
        """Where in the table each token's position is: at padding + p for the p-th one that is no padding."""
        if self.config.padding is None:
            return jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
        counts = ids != self.config.padding
        return self.config.padding + jnp.cumsum(counts, axis=1) * counts


class Layer(nnx.Module):
    """Attention of a text to itself, then two layers with an activation between them; each is added and normed."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        head_width = config.width // config.heads
        self.attention = Attention(
            config.width,
            config.heads,
            head_width,
            bias=True,
            scale=scaled(head_width),
            dropout=config.attention_dropout,
            rematerialise=config.rematerialise,
            rngs=rngs,
        )
        self.attention_norm, self.feed_norm = (LayerNorm(config.width, epsilon=config.epsilon) for _ in range(2))
        self.up = Linear(config.width, config.hidden, rngs=rngs)
        self.down = Linear(config.hidden, config.width, rngs=rngs)
        self.activation = config.activation
        self.attended_dropout, self.dropout = Dropout(config.attended_dropout), Dropout(config.dropout)

    def __call__(self, x: Array, mask: Array) -> Array:  # [batch, length, width] -> the same
        attended = self.attention(x, self.attention.keys_values(x), mask)
        x = self.attention_norm(x + self.attended_dropout(attended))
        return self.feed_norm(x + self.dropout(self.down(ACTIVATIONS[self.activation](self.up(x)))))
