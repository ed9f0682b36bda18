"""Posts of Reddit that the same people commented on (Hamilton et al. 2017), in the files that DGL publishes.

The features of a post are means of GloVe vectors, its label is the community that it was posted in, and two posts are
joined where one person commented on both.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, load_npz

from dpnlp.checks import BadInput
from dpnlp.data.formats import readable
from dpnlp.data.graphs import Graph, GraphCorpus

FILES = ("reddit_data.npz", "reddit_graph.npz")
CLASSES = tuple(map(str, range(41)))
"""The communities, whose names are not published."""

_TYPES = (1, 2, 3)
"""What stands for train, validation and test."""


def reddit(files: Sequence[Path]) -> GraphCorpus:
    """The graph in these files, which are those of `FILES`, with its published splits. No pickle in them is read."""
    data, adjacency = files
    with readable(data), np.load(data, allow_pickle=False) as held:
        features, labels, types = (_field(data, held, name) for name in ("feature", "label", "node_types"))
    count = len(features)
    for name, found in (("label", labels), ("node_types", types)):
        if found.shape != (count,) or found.dtype.kind not in "iu":
            raise BadInput(
                f"{data}: {name} is {found.dtype} of shape {found.shape}, and must be one whole number for each of "
                f"{count} nodes; take the file as it is published."
            )
    with readable(adjacency):
        matrix = coo_matrix(load_npz(adjacency))
    if matrix.shape != (count, count):
        raise BadInput(
            f"{adjacency}: it has the shape {matrix.shape}, and {data} has {count} nodes; take both files as they are "
            "published."
        )
    graph = Graph.of(features, np.stack([matrix.row, matrix.col], axis=1), labels, CLASSES)
    train, validation, test = (np.flatnonzero(types == number) for number in _TYPES)
    return GraphCorpus(graph, train, validation, test, tuple(files), public_classes=True)


def _field(path: Path, held: Any, name: str) -> NDArray[Any]:
    if name not in held:
        raise BadInput(f"{path}: it has no {name}, but {', '.join(held)}; take the file as it is published.")
    array: NDArray[Any] = held[name]
    return array
