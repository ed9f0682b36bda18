"""Language models: p(x) = Π_t p(x_t | x_1 … x_{t−1}), what they have in common, and one that is an LSTM.

The LSTM is that of McMahan et al. (2018, arXiv 1710.06963): embeddings of words, an LSTM, a projection of its states to
the width of the embeddings, and these once more as the output layer. With 10,000 words, a width of 96 and 256 cells it
has 1.35 million parameters. `gpt2` has a Transformer.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from flax import nnx

from dpnlp import checks
from dpnlp.bookkeeping import Array
from dpnlp.models.layers import Dropout, Linear, State, small_table
from dpnlp.models.lstm import remembering
from dpnlp.models.writer import OutputLayer, Writer


class LanguageModel(Writer):
    """A model that reads a text from its first token on, and expects at each what comes next.

    What it writes goes on from a prompt: all but its last token is remembered, and with the last one the text starts.
    """

    @abstractmethod
    def states(self, ids: Array, mask: Array) -> Array:
        """What is known after each token, [batch, length] -> [batch, length, width].

        Padding, where the mask is 0, may be on either side, and changes nothing (law 4).
        """

    def __call__(self, ids: Array, mask: Array) -> Array:
        """The logits of the token after each one, [batch, length] -> [batch, length, vocabulary]."""
        return self.logits(self.states(ids, mask))


def parted(ids: Array, mask: Array) -> tuple[Array, Array]:
    """The mask of prompts [batch, length] without the last token of each, and that token, [batch]."""
    last = ids.shape[1] - 1 - jnp.argmax(mask[:, ::-1] > 0, axis=1)
    before = (mask > 0) & (jnp.arange(ids.shape[1]) != last[:, None])
    return before, jnp.take_along_axis(ids, last[:, None], axis=1)[:, 0].astype(jnp.int32)


@dataclass(frozen=True)
class Config:
    """The shape of an LSTM language model, and how it is computed."""

    vocabulary: int
    width: int = 96  # of the embeddings
    hidden: int = 256  # of the LSTM
    dropout: float = 0.0  # of what goes into the LSTM, and of what comes out of the projection
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "hidden"):
            checks.count(name, getattr(self, name))


class LSTMPast(NamedTuple):
    """The state after the tokens so far, of each beam of each text: [batch, beams, hidden] each."""

    h: Array
    c: Array

    def sorted(self, origins: Array) -> "LSTMPast":
        """The same for other beams, each of which goes on from the one that `origins` [batch, beams] names."""
        return LSTMPast(*(jnp.take_along_axis(side, origins[..., None], axis=1) for side in self))


class LSTMLanguageModel(LanguageModel):
    """h_t of an LSTM over the embeddings e(x_t); p(x_{t+1} = v) ∝ exp⟨e(v), P h_t + b⟩."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.config, self.dtype = config, jnp.dtype(config.dtype)
        self.tokens = small_table(config.vocabulary, config.width, rngs=rngs)
        self.lstm = remembering(config.width, config.hidden, rngs=rngs)
        self.projection = Linear(config.hidden, config.width, rngs=rngs)
        self.dropout = Dropout(config.dropout)

    def states(self, ids: Array, mask: Array) -> Array:  # [batch, length] -> [batch, length, width]
        return self._projected(self.lstm(self._embedded(ids), mask))

    def output_layer(self) -> OutputLayer:
        return OutputLayer(self.tokens)

    def read(self, inputs: Array, mask: Array, start: int) -> tuple[State, Array]:
        before, last = parted(inputs, mask)
        return self.lstm.run(self._embedded(inputs), before)[1], last

    def empty(self, memory: State, beams: int, length: int) -> LSTMPast:
        return LSTMPast(*(jnp.repeat(side[:, None], beams, axis=1) for side in memory))

    def decode(self, ids: Array, memory: State, before: LSTMPast, position: Array | int) -> tuple[Array, LSTMPast]:
        hidden = self.config.hidden
        state = State(*(side.reshape(-1, hidden) for side in before))
        found, after = self.lstm.run(self._embedded(ids), jnp.ones(ids.shape), state)
        return self._projected(found), LSTMPast(*(side.reshape(before.h.shape) for side in after))

    def _embedded(self, ids: Array) -> Array:  # [batch, length] -> [batch, length, width]
        """Their entries are of the size of 1, as an LSTM wants its inputs, while rows of the output have length 1."""
        return self.dropout(self.tokens(ids, self.dtype) * self.config.width**0.5)

    def _projected(self, hidden: Array) -> Array:  # [batch, length, hidden] -> [batch, length, width]
        return self.dropout(self.projection(hidden))
