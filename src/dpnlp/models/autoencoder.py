"""The autoencoder of ADePT (Krishna et al. 2021): an LSTM reads a text, and another one writes it again.

All that the second one knows of the text is z = (h, c), the state of the first one after the last token, whose norm is
at most C: z = ENC(x), ŷ = DEC(z · min(1, C/‖z‖)) (thesis Eqns 5.1 to 5.3, without their noise). Both have one layer and
one direction, and the words of both sides and of the output have one table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import ArrayLike, NDArray

from dpnlp import checks
from dpnlp.bookkeeping import Array
from dpnlp.checks import BadInput
from dpnlp.models import cross_entropy
from dpnlp.models.attention import Kept, KeysValues, Seen
from dpnlp.models.generation import Generation, search
from dpnlp.models.layers import Embedding, Linear, State
from dpnlp.models.lstm import remembering
from dpnlp.models.seq2seq import Memory, Seq2Seq, Sight
from dpnlp.models.writer import OutputLayer


@dataclass(frozen=True)
class Config:
    """The shape of an autoencoder, and what its latents are clipped to."""

    vocabulary: int
    width: int = 300  # of a word's vector
    hidden: int = 512  # of either LSTM; a latent has n = 2·hidden entries
    longest: int = 20  # words of a text that are read, and the most that are written
    order: int = 2  # of the norm that is clipped, ℓ1 or ℓ2
    bound: float = 5.0  # C

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "hidden", "longest"):
            checks.count(name, getattr(self, name))
        checks.positive("bound", self.bound)
        if self.order not in (1, 2):
            raise BadInput(f"order = {self.order}: it must be 1 or 2, the norm that latents are clipped by.")

    @property
    def latent(self) -> int:
        """n, the entries of a latent."""
        return 2 * self.hidden

    @property
    def tokens(self) -> int:
        """How many tokens a text is read as at most: its words, the start and the end."""
        return self.longest + 2


class Autoencoder(nnx.Module):
    """ENC, an LSTM over the words and the end of a text, and DEC."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.config = config
        self.decoder = Decoder(config, rngs=rngs)
        self.encoder = remembering(config.width, config.hidden, rngs=rngs)

    def encode(self, ids: Array, mask: Array) -> Array:
        """z = ENC(x), not clipped: [batch, length] -> [batch, n]."""
        return jnp.concatenate(self.encoder.run(self.decoder.tokens(ids), mask)[1], axis=-1)

    def losses(self, batch: Mapping[str, Array]) -> Array:
        """The cross-entropy of each text given its clipped latent, as the mean over its own words and its end: [batch].

        The batch has "ids", of texts that begin with the start and end with the end, and their "mask", [batch, length].
        """
        ids, real = batch["ids"], batch["mask"]
        latents = clipped(self.encode(ids[:, 1:], real[:, 1:]), self.config)
        sides = {"inputs": ids[:, :-1], "targets": ids[:, 1:], "target_mask": real[:, 1:]}
        return cross_entropy.losses(self.decoder, {"ids": latents, "mask": _whole(latents), **sides})


class Decoder(Seq2Seq):
    """DEC: what it is given in the place of an input's tokens is a latent [batch, n], from which its LSTM starts."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.config, self.dtype = config, jnp.dtype("float32")
        self.tokens = Embedding(config.vocabulary, config.width, rngs=rngs)
        self.decoder = nnx.List([DecoderLayer(config, rngs=rngs)])
        self.output = Linear(config.hidden, config.width, rngs=rngs)

    def encode(self, ids: Array, mask: Array) -> Array:
        """The latent itself."""
        return ids

    def remember(self, states: Array, mask: Array) -> Memory:
        """The state to start from: h stands for the keys of an input of one position, c for its values."""
        h, c = jnp.split(states.astype(self.dtype), 2, axis=-1)
        return Memory((KeysValues(h[:, None, None], c[:, None, None]),), mask)

    def embed(self, ids: Array, positions: Array) -> Array:  # [batch, target] -> [batch, target, width]
        return self.tokens(ids)

    def bias(self, positions: Array, keys: int, batch: int) -> None:
        return None

    def finish(self, x: Array) -> Array:  # [batch, target, hidden] -> [batch, target, width]
        return self.output(x)

    def output_layer(self) -> OutputLayer:
        return OutputLayer(self.tokens, scale=self.config.width**-0.5)


class DecoderLayer(nnx.Module):
    """An LSTM in the place of attention. Of the tokens so far it keeps its states, h for the keys and c for the values.

    So beams are sorted, and find their own tokens, as in any other decoder.
    """

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.lstm = remembering(config.width, config.hidden, rngs=rngs)

    def __call__(
        self, x: Array, before: Kept | None, position: Array, crossed: Seen, sight: Sight
    ) -> tuple[Array, Seen]:  # x: [batch, target, width], or [batch · beams, 1, width] with what was before
        state = State(*(side.reshape(side.shape[0], -1) for side in crossed))
        if before is not None:
            state = _after_previous(before, position, state, sight.own)
        hidden, (h, c) = self.lstm.run(x, jnp.ones(x.shape[:2]), state)
        own = KeysValues(h[:, None, None], c[:, None, None])
        return hidden, own if before is None else before.at(position, own)


def _after_previous(kept: Kept, position: Array, start: State, own: Array) -> State:
    """Each beam's state after its previous token, [batch · beams, hidden]; before its first one, the start."""
    batch, _, beams, places = own.shape
    previous = jnp.maximum(position - 1, 0)
    mine = own.reshape(batch, beams, places // beams, beams)[:, :, previous]  # [batch, beams, beams]: whose token it is

    def found(side: Array, first: Array) -> Array:
        all_beams = side.reshape(batch, places // beams, beams, -1)[:, previous]
        later = jnp.einsum("bqk,bkd->bqd", mine.astype(side.dtype), all_beams)
        return jnp.where(position > 0, later, first[:, None]).reshape(batch * beams, -1)

    return State(found(kept.keys, start.h), found(kept.values, start.c))


def clipped(z: Array, config: Config) -> Array:  # [batch, n] -> the same
    """z · min(1, C/‖z‖), to be differentiated. What is released is clipped once more, in float64."""
    wide = z.astype(jnp.float32)
    if config.order == 1:
        norms = jnp.sum(jnp.abs(wide), axis=-1, keepdims=True)
    else:
        norms = jnp.sqrt(jnp.sum(wide * wide, axis=-1, keepdims=True) + 1e-30)  # a gradient at 0, too
    return z / jnp.maximum(1, norms / config.bound)


def read(model: Autoencoder, ids: ArrayLike, mask: ArrayLike, batch: int) -> NDArray[np.float64]:
    """z = ENC(x) of each text, not clipped: [texts, length] -> [texts, n].

    They are read `batch` at a time, in one shape. An entry that is no number counts as 0: a refusal would tell of the
    text.
    """
    structure, weights = nnx.split(model)
    found = _in_batches(partial(_encoded, structure, weights), (np.asarray(ids), np.asarray(mask)), batch)
    return np.nan_to_num(found.reshape(-1, model.config.latent).astype(np.float64))


def write(model: Autoencoder, latents: ArrayLike, options: Generation, batch: int) -> NDArray[np.int32]:
    """ŷ = DEC(z): [texts, n] -> tokens [texts, maximum length], padded after the end."""
    structure, weights = nnx.split(model.decoder)

    def written(part: Array) -> Array:
        tokens: Array = search(structure, weights, part, _whole(part), options=options)
        return tokens

    return _in_batches(written, (np.asarray(latents, np.float32),), batch).reshape(-1, options.max_length)


@partial(jax.jit, static_argnums=0)
def _encoded(structure: Any, weights: Any, ids: Array, mask: Array) -> Array:
    found: Array = nnx.merge(structure, weights).encode(ids, mask)
    return found


def _in_batches(compute: Any, arrays: tuple[NDArray[Any], ...], batch: int) -> NDArray[Any]:
    """What is computed of all rows, `batch` of them at a time; the last ones are filled up with zeros."""
    rows = len(arrays[0])
    parts = []
    for first in range(0, rows, batch):
        part = (array[first : first + batch] for array in arrays)
        padded = (np.pad(array, ((0, batch - len(array)), (0, 0))) for array in part)
        parts.append(np.asarray(compute(*padded)))
    return np.concatenate(parts)[:rows] if parts else np.zeros(0, np.int32)


def _whole(latents: Array) -> Array:
    """The mask of a latent, which is all there is of it: [batch, 1], whatever the text was."""
    return jnp.ones((latents.shape[0], 1), bool)
