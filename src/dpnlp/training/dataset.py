"""What the engine needs of the data, and all that it sees of it."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Dataset(Protocol):
    """Examples by number, with how long each is, so that those of about the same length are computed together."""

    def __len__(self) -> int: ...

    @property
    def lengths(self) -> NDArray[np.integer[Any]]:
        """The tokens of each example, [examples]."""
        ...

    def batch(self, rows: NDArray[np.int64], length: int) -> Any:
        """What the loss takes: arrays [len(rows), ...] of these examples alone (law 4), padded to `length` tokens."""
        ...
