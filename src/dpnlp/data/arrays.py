"""Examples that lie in memory, or in mapped files, as NumPy arrays."""

from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpnlp import checks
from dpnlp.checks import BadInput


class Arrays:
    """A dict, a tuple or any other tree of arrays, with the examples along the first axis of each.

    `lengths` says how many tokens each example has. Then the second axis of every array that has one runs over tokens,
    and is cut, or padded with zeros, to what a batch asks for. Without it nothing is cut.
    """

    def __init__(self, examples: Any, lengths: ArrayLike | None = None) -> None:
        self._examples = jax.tree.map(np.asarray, examples)
        shapes = [array.shape for array in jax.tree.leaves(self._examples)]
        sizes = sorted({shape[0] if shape else 0 for shape in shapes})
        if len(sizes) != 1 or sizes == [0]:
            shown = ", ".join(map(str, sizes)) or "no"
            raise BadInput(f"examples = arrays of {shown} rows: all must have the same number, above 0; align them.")
        self._ragged = lengths is not None
        self.lengths: NDArray[np.integer[Any]] = np.asarray(lengths if self._ragged else np.ones(sizes[0], np.uint8))
        if not self._ragged:
            return
        if self.lengths.shape != (sizes[0],) or self.lengths.dtype.kind not in "iu":
            raise BadInput(
                f"lengths = {self.lengths.dtype} of shape {self.lengths.shape}: it must be one whole number for each "
                f"of the {sizes[0]} examples; count their tokens."
            )
        checks.count("lengths", int(self.lengths.min()), least=0)
        widest = max((shape[1] for shape in shapes if len(shape) > 1), default=0)
        if self.lengths.max() > widest:
            raise BadInput(f"lengths = {self.lengths.max()}: no array has more than {widest} tokens; count them again.")

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, rows: NDArray[np.int64], length: int) -> Any:
        """The same tree of these examples alone, [len(rows), ...], with `length` tokens."""

        def taken(array: NDArray[Any]) -> NDArray[Any]:
            if not self._ragged or array.ndim == 1:
                return array[rows]
            filled = np.zeros((len(rows), length, *array.shape[2:]), array.dtype)
            filled[:, : array.shape[1]] = array[rows, :length]
            return filled

        return jax.tree.map(taken, self._examples)
