"""Data sets that are made of others, of which nothing is copied: one after another, or some of their rows."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class _Batches(Protocol):
    """What they are made of: examples by number, with their lengths."""

    def __len__(self) -> int: ...

    @property
    def lengths(self) -> NDArray[Any]: ...

    def batch(self, rows: NDArray[np.int64], length: int) -> dict[str, NDArray[Any]]: ...


class Joined:
    """The examples of one data set, and then those of another of the same kind."""

    def __init__(self, first: _Batches, second: _Batches) -> None:
        self._first, self._second = first, second
        self.lengths: NDArray[Any] = np.concatenate((first.lengths, second.lengths))

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, rows: NDArray[np.int64], length: int) -> dict[str, NDArray[Any]]:
        """What the loss takes of these examples, in their order, padded to `length`."""
        later = rows >= len(self._first)
        if not later.any():
            return self._first.batch(rows, length)
        theirs = self._second.batch(rows[later] - len(self._first), length)
        if later.all():
            return theirs
        own = self._first.batch(rows[~later], length)
        found = {name: np.empty((len(rows), *value.shape[1:]), value.dtype) for name, value in own.items()}
        for name, value in found.items():
            value[~later], value[later] = own[name], theirs[name]
        return found


@dataclass(frozen=True)
class Rows:
    """Some rows of a data set, as a data set."""

    data: _Batches
    chosen: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.chosen)

    @cached_property
    def lengths(self) -> NDArray[Any]:
        return self.data.lengths[self.chosen]

    def batch(self, rows: NDArray[np.int64], length: int) -> dict[str, NDArray[Any]]:
        return self.data.batch(self.chosen[rows], length)


def owners_of_both(
    first: NDArray[Any] | None, examples: int, second: NDArray[Any] | None, others: int
) -> NDArray[Any] | None:
    """The owner of each of so many examples and of so many others that come after them, none of whom owns both.

    Where nothing says whose they are, each has an owner of its own; where that is so of all, there is nothing to say.
    """
    if first is None and second is None:
        return None
    own = np.arange(examples) if first is None else np.asarray(first)
    theirs = np.arange(others) if second is None else np.asarray(second)
    return np.concatenate((own, theirs + (int(own.max(initial=-1)) + 1)))
