"""What encoder-decoders have in common: how their loss is computed, and how a text is generated step by step."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import nnx

from dpnlp.bookkeeping import Array
from dpnlp.models.attention import KeysValues, past, real


class Memory(NamedTuple):
    """What each layer of the decoder sees of the input, and which of its positions are no padding."""

    crossed: tuple[KeysValues, ...]
    mask: Array  # [batch, source]


Past = tuple[KeysValues, ...]
"""The keys and values of the tokens so far, for each layer of the decoder: [batch · beams, length, heads, width]."""


class Sight(NamedTuple):
    """What the positions of a decoder's layer may look at."""

    own: Array  # mask [1, 1, queries, keys]: the tokens so far
    bias: Array | None  # on these, or none
    input: Array  # mask [batch, 1, 1, source]


class Seq2Seq(nnx.Module):
    """An encoder-decoder. `decoder` has the layers; a layer is called with x, what it remembers, and its `Sight`."""

    decoder: Sequence[Any]
    dtype: Any  # in which it computes

    @abstractmethod
    def encode(self, ids: Array, mask: Array) -> Array:
        """[batch, source] -> states [batch, source, width]."""

    @abstractmethod
    def embed(self, ids: Array, positions: Array) -> Array:
        """The decoder's input: tokens [batch, target] at positions [target] -> [batch, target, width]."""

    @abstractmethod
    def bias(self, positions: Array, keys: int, batch: int) -> Array | None:
        """What the decoder adds to its attention to the tokens so far, [batch or 1, heads, positions, keys]."""

    @abstractmethod
    def finish(self, x: Array) -> Array:
        """What the decoder does after its last layer."""

    @abstractmethod
    def logits(self, states: Array) -> Array:
        """The decoder's states [batch, target, width] -> [batch, target, vocabulary]."""

    def remember(self, states: Array, mask: Array) -> Memory:
        """The encoder's states as the decoder sees them, computed once for all tokens."""
        return Memory(tuple(layer.cross_attention.keys_values(states) for layer in self.decoder), mask)

    def decode(
        self, ids: Array, memory: Memory, before: Past | None = None, position: Array | int = 0
    ) -> tuple[Array, Past]:
        """The decoder's states for all tokens of a text, or for the next one of each beam, [batch · beams, 1]."""
        positions = position + jnp.arange(ids.shape[1])
        keys = ids.shape[1] if before is None else before[0].keys.shape[1]
        x = self.embed(ids, positions)
        sight = Sight(past(positions, keys), self.bias(positions, keys, ids.shape[0]), real(memory.mask))
        after = []
        for index, layer in enumerate(self.decoder):
            own = None if before is None else before[index]
            x, kept = layer(x, own, positions[0], memory.crossed[index], sight)
            after.append(kept)
        return self.finish(x), tuple(after)

    def __call__(self, ids: Array, mask: Array, inputs: Array) -> Array:
        """The logits of the token after each of the decoder's inputs [batch, target]."""
        states, _ = self.decode(inputs, self.remember(self.encode(ids, mask), mask))
        return self.logits(states)

    def empty(self, memory: Memory, beams: int, length: int) -> Past:
        """The past before the first token, with room for `length` of them."""
        return tuple(
            KeysValues(*(jnp.zeros((side.shape[0] * beams, length, *side.shape[2:]), self.dtype) for side in crossed))
            for crossed in memory.crossed
        )


def shifted(targets: Array, start: int) -> Array:
    """The decoder's inputs: at each position the token before, and the start token at the first (teacher forcing)."""
    return jnp.pad(targets[:, :-1], ((0, 0), (1, 0)), constant_values=start)


def rotated(targets: Array, mask: Array) -> Array:
    """The same for mBART, whose texts start with the token they end with: a language, or the end itself."""
    last = jnp.sum(mask > 0, axis=1, keepdims=True) - 1
    return jnp.concatenate([jnp.take_along_axis(targets, last, axis=1), targets[:, :-1]], axis=1)
