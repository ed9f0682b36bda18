"""What encoder-decoders have in common: how their loss is computed, and how a text is generated step by step."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, overload

import jax.numpy as jnp

from dpnlp.bookkeeping import Array
from dpnlp.models.attention import Kept, Seen, past, real
from dpnlp.models.writer import Writer


class Memory(NamedTuple):
    """What each layer of the decoder sees of the input, and which of its positions are no padding."""

    crossed: tuple[Seen, ...]
    mask: Array  # [batch, source]

    def kept(self) -> "Memory":
        """The same, for many tokens one after the other."""
        return Memory(tuple(map(Kept.of, self.crossed)), self.mask)


class Past(NamedTuple):
    """The tokens so far, as each layer of the decoder sees them: [batch, heads, length · beams, width].

    The beams of an input lie side by side at each position. When beams are sorted, what is kept stays where it is, and
    `origins` [batch, beams, length] says at which of the beams a beam's token of each position is found.
    """

    layers: tuple[Kept, ...]
    origins: Array

    def at(self, position: Array | int) -> "Past":
        """The same where each beam's token of a position is its own."""
        beams = jnp.arange(self.origins.shape[1], dtype=self.origins.dtype)
        return self._replace(origins=self.origins.at[:, :, position].set(beams))

    def sorted(self, origins: Array) -> "Past":
        """The same for other beams, each of which goes on from the one that `origins` [batch, beams] names."""
        return self._replace(origins=jnp.take_along_axis(self.origins, origins[..., None], axis=1))

    def seen(self, position: Array | int) -> Array:
        """Each beam may see its own tokens up to a position: [batch, 1, beams, length · beams]."""
        batch, beams, length = self.origins.shape
        own = self.origins[..., None] == jnp.arange(beams)
        up_to = jnp.arange(length)[:, None] <= position
        return (own & up_to).reshape(batch, 1, beams, length * beams)


class Sight(NamedTuple):
    """What the positions of a decoder's layer may look at."""

    own: Array  # mask [1, 1, queries, keys] or [batch, 1, beams, keys]: the tokens so far
    bias: Array | None  # on these, or none
    input: Array  # mask [batch, 1, 1, source]


class Seq2Seq(Writer):
    """An encoder-decoder. `decoder` has the layers; a layer is called with x, what it remembers, and its `Sight`."""

    decoder: Sequence[Any]

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

    def read(self, inputs: Array, mask: Array, start: int) -> tuple[Memory, Array]:
        """The encoder's states as the decoder sees them; inputs may be such states themselves, [batch, source, width].

        Every text begins anew.
        """
        states = inputs.astype(self.dtype) if inputs.ndim == 3 else self.encode(inputs, mask)
        return self.remember(states, mask).kept(), jnp.full(mask.shape[0], start, jnp.int32)

    def remember(self, states: Array, mask: Array) -> Memory:
        """The encoder's states as the decoder sees them, computed once for all tokens."""
        return Memory(tuple(layer.cross_attention.keys_values(states) for layer in self.decoder), mask)

    @overload
    def decode(self, ids: Array, memory: Memory) -> tuple[Array, None]: ...

    @overload
    def decode(self, ids: Array, memory: Memory, before: Past, position: Array | int) -> tuple[Array, Past]: ...

    def decode(
        self, ids: Array, memory: Memory, before: Past | None = None, position: Array | int = 0
    ) -> tuple[Array, Past | None]:
        """The decoder's states for all tokens of a text, or for the next one of each beam, [batch · beams, 1]."""
        positions = position + jnp.arange(ids.shape[1])
        x = self.embed(ids, positions)
        if before is None:
            beams, length, own = 1, ids.shape[1], past(positions, ids.shape[1])
        else:
            before = before.at(position)
            _, beams, length = before.origins.shape
            own = before.seen(position)
        after = []
        for index, layer in enumerate(self.decoder):
            bias = self.bias(positions, length, ids.shape[0])
            sight = Sight(own, bias if bias is None else jnp.repeat(bias, beams, axis=-1), real(memory.mask))
            kept = None if before is None else before.layers[index]
            x, kept = layer(x, kept, positions[0], memory.crossed[index], sight)
            after.append(kept)
        return self.finish(x), before if before is None else before._replace(layers=tuple(after))

    def __call__(self, ids: Array, mask: Array, inputs: Array) -> Array:
        """The logits of the token after each of the decoder's inputs [batch, target]."""
        return self.logits(self.states(ids, mask, inputs))

    def states(self, ids: Array, mask: Array, inputs: Array) -> Array:
        """The decoder's states at each of its inputs, [batch, target, width]."""
        return self.decode(inputs, self.remember(self.encode(ids, mask), mask))[0]

    def empty(self, memory: Memory, beams: int, length: int) -> Past:
        """The past before the first token, with room for `length` of them."""
        layers = []
        for crossed in memory.kept().crossed:
            batch, heads, _, width = crossed.keys.shape
            layers.append(Kept(*(jnp.zeros((batch, heads, length * beams, width), self.dtype) for _ in range(2))))
        return Past(tuple(layers), jnp.zeros((batch, beams, length), jnp.int32))


def shifted(targets: Array, start: int) -> Array:
    """The decoder's inputs: at each position the token before, and the start token at the first (teacher forcing)."""
    return jnp.pad(targets[:, :-1], ((0, 0), (1, 0)), constant_values=start)


def rotated(targets: Array, mask: Array) -> Array:
    """The same for mBART, whose texts start with the token they end with: a language, or the end itself."""
    last = jnp.sum(mask > 0, axis=1, keepdims=True) - 1
    return jnp.concatenate([jnp.take_along_axis(targets, last, axis=1), targets[:, :-1]], axis=1)
