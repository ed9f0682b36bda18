"""What all models have in common that write texts: an output layer, and how a text is written token by token.

`generation` asks for no more than this, and `cross_entropy` for the output layer alone.
"""

from abc import abstractmethod
from typing import Any, NamedTuple, Protocol, Self

from flax import nnx

from dpnlp.bookkeeping import Array
from dpnlp.models.layers import Embedding, Linear


class OutputLayer(NamedTuple):
    """What makes logits of a model's states: a layer of its own, or the table of the tokens."""

    layer: Embedding | Linear
    scale: float = 1.0  # of the states
    bias: Array | None = None  # fixed, on the logits

    def __call__(self, states: Array) -> Array:  # [batch, target, width] -> [batch, target, vocabulary]
        x = states * self.scale
        logits = self.layer.attend(x) if isinstance(self.layer, Embedding) else self.layer(x)
        return logits if self.bias is None else logits + self.bias.astype(logits.dtype)


class SoFar(Protocol):
    """What a model keeps of the tokens so far, for each beam of each text."""

    def sorted(self, origins: Array) -> Self:
        """The same for other beams, each of which goes on from the one that `origins` [batch, beams] names."""
        ...


class Writer(nnx.Module):
    """A model that writes texts."""

    config: Any  # its shape, and how it is computed
    dtype: Any  # in which it computes

    @abstractmethod
    def output_layer(self) -> OutputLayer:
        """What comes after the states."""

    def logits(self, states: Array) -> Array:
        """States [batch, target, width] -> [batch, target, vocabulary]."""
        return self.output_layer()(states)

    @abstractmethod
    def read(self, inputs: Array, mask: Array, start: int) -> tuple[Any, Array]:
        """What is remembered of inputs [batch, source], and the token that the text for each starts with, [batch].

        `start` is that token for a model that begins a text anew.
        """

    @abstractmethod
    def empty(self, memory: Any, beams: int, length: int) -> SoFar:
        """What is kept before the first token, with room for `length` of them."""

    @abstractmethod
    def decode(self, ids: Array, memory: Any, before: Any, position: Array | int) -> tuple[Array, Any]:
        """The states for the next token of each beam, [batch · beams, 1], and what is kept after it."""

    def longest_input(self, new: int) -> int | None:
        """The most tokens of an input for which so many new ones can be written; none where there is no bound."""
        positions: int | None = getattr(self.config, "positions", None)
        return positions
