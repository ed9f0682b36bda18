"""Frozen layers run once: what they make of the examples is kept, and stands in for the tokens in every epoch.

It is kept in the cache like the tokens themselves, for it is the private texts in another form.
"""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from dpnlp.data.cache import Examples, Ragged, damaged, finished, keyed, sha256
from dpnlp.models.readers import Reader

_BATCH = 64
"""Examples that are run through the frozen layers at once."""
_NAME = "states"


class Features:
    """Examples with "states" [batch, length, width] in place of their tokens, or [batch, 1, width] where one is all."""

    def __init__(self, examples: Examples, states: Ragged) -> None:
        self._examples, self._states = examples, states
        self.lengths: NDArray[Any] = np.maximum(states.lengths, 1).astype(np.int32)
        self.records, self.owners = examples.records, examples.owners

    def __len__(self) -> int:
        return len(self._examples)

    def batch(self, rows: NDArray[np.int64], length: int) -> dict[str, NDArray[Any]]:
        """What the loss takes of these examples, padded to `length`."""
        found = self._examples.batch(rows, length)
        states, _ = self._states.padded(rows, length, 0)
        return {name: value for name, value in found.items() if name not in ("ids", "types")} | {"states": states}


def features(reader: Reader, examples: Examples, longest: int, cache: Path) -> Features:
    """The examples with the states that the frozen part of the reader gives them, from the cache if they are there.

    No example has more than `longest` tokens.
    """
    structure, weights = nnx.split(reader)
    width, dtype = reader.encoder.config.width, reader.encoder.dtype
    states = partial(_bottom, structure, weights)
    alone = jax.eval_shape(states, examples.batch(np.zeros(1, np.int64), longest)).shape[1] == 1
    lengths = np.ones(len(examples), np.int64) if alone else examples.lengths.astype(np.int64)
    offsets = np.append(0, np.cumsum(lengths))
    shape = (int(offsets[-1]), width)
    size = shape[0] * width * dtype.itemsize

    def write(folder: Path) -> None:
        path = folder / _NAME
        path.touch(mode=0o600)
        mapped = np.memmap(path, np.uint8, "r+", shape=(size,))
        kept = mapped.view(dtype).reshape(shape)
        for rows, batch in examples.by_length(_BATCH, longest):
            for row, found in zip(rows, np.asarray(states(batch)), strict=False):
                kept[offsets[row] : offsets[row + 1]] = found[: lengths[row]]
        mapped.flush()

    made_by = _name(examples), reader.config, reader.encoder.config, _digest(nnx.state(reader.encoder))
    folder = finished(cache, keyed(repr(made_by)), write)
    if not (folder / _NAME).is_file() or (folder / _NAME).stat().st_size != size:
        raise damaged(folder / _NAME)
    numbers = np.memmap(folder / _NAME, np.uint8, "r").view(dtype).reshape(shape)
    return Features(examples, Ragged(numbers, offsets))


@partial(jax.jit, static_argnums=0)
def _bottom(structure: nnx.GraphDef[Reader], weights: Any, batch: dict[str, jax.Array]) -> jax.Array:
    return nnx.merge(structure, weights).bottom(batch["ids"], batch["mask"], batch["types"])


def _name(examples: Examples) -> str:
    """What tells these examples from others: the name of their folder does, and else their tokens."""
    return examples.folder.name if examples.folder else _digest([tuple(column) for column in examples.ragged.values()])


def _digest(weights: Any) -> str:
    return sha256(b"".join(sha256(np.asarray(leaf).tobytes()).encode() for leaf in jax.tree.leaves(weights)))
