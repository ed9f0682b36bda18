"""Texts as rows of tokens for a language model: those of one owner one after the other, never of two in one row."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpnlp.data.cache import Column, Examples, Ragged

COLUMNS = (Column("ids", 0, "mask"),)
"""What a row is: its tokens. The first is only read, and each other one is to be expected from those before it."""


class Packed(NamedTuple):
    """Rows of tokens, and whose each is."""

    rows: Ragged
    owners: NDArray[Any]  # [rows]

    def examples(self, owned: bool) -> Examples:
        """The rows as the engine takes them, with their owners or without."""
        return Examples(
            COLUMNS,
            {"ids": self.rows},
            {},
            self.rows.lengths.astype(np.int32),
            owners=self.owners if owned else None,
        )


def packed(texts: Ragged, owners: NDArray[Any], *, longest: int, start: int, most: int | None = None) -> Packed:
    """The texts, each with an end, as rows of up to `longest` tokens; `owners` says whose each text is.

    The texts of an owner follow one another in their own order, as one stream of which the first `most` tokens are
    taken, or all. So what becomes of an owner depends on nothing but its texts, and each has at least one row. A row
    starts with the last token of the row before, and the first one with `start`: every token of the stream but that is
    expected exactly once.
    """
    order = np.argsort(owners, kind="stable")
    names, firsts = np.unique(owners[order], return_index=True)
    rows: list[NDArray[Any]] = []
    whose: list[Any] = []
    for owner, its in zip(names, np.split(order, firsts[1:]), strict=False):
        stream = _stream(texts, its, start, most)
        for at in range(0, len(stream) - 1, longest - 1):
            rows.append(stream[at : at + longest])
            whose.append(owner)
    sizes = np.fromiter(map(len, rows), np.int64, len(rows))
    numbers = np.concatenate(rows) if rows else np.zeros(0, texts.numbers.dtype)
    return Packed(Ragged(numbers, np.append(0, np.cumsum(sizes))), np.asarray(whose, owners.dtype))


def _stream(texts: Ragged, chosen: NDArray[Any], start: int, most: int | None) -> NDArray[Any]:
    """The start, and up to `most` tokens of some texts; no more of these are read than are needed."""
    parts, size = [np.array([start], texts.numbers.dtype)], 0
    for text in chosen:
        if most is not None and size >= most:
            break
        part = texts.numbers[texts.offsets[text] : texts.offsets[text + 1]]
        parts.append(part)
        size += len(part)
    stream = np.concatenate(parts)
    return stream if most is None else stream[: most + 1]
