"""Graphs of texts, for the classification of nodes: a graph G = (V, E), and which of its nodes are for what.

A node is a text with its features, an edge joins two texts, and a label is what is to be told about a node. Edges have
no direction. What is cut out of a graph is really cut: an induced graph holds nothing of the nodes that are not in it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.data.formats import places_of
from dpnlp.data.records import place_of

UNKNOWN = -1
"""The label of a node without one."""

Nodes = NDArray[np.int64]
"""[nodes], numbers of nodes."""


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes with features and labels, and the edges between them.

    `features` is float32 [nodes, features], `edges` int64 [edges, 2], and `labels` int32 [nodes] holds places in
    `classes`, or UNKNOWN. Each edge stands there once, its smaller end first, none joins a node to itself, and they are
    in ascending order. `Graph.of` brings any pairs into this form. A node keeps its name whoever comes or goes.
    """

    features: NDArray[np.float32]
    edges: NDArray[np.int64]
    labels: NDArray[np.int32]
    classes: tuple[str, ...]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        _array("features", self.features, np.float32, 2)
        _array("edges", self.edges, np.int64, 2)
        _array("labels", self.labels, np.int32, 1)
        if not np.isfinite(self.features).all():
            row = int(np.argmin(np.isfinite(self.features).all(axis=1)))
            raise BadInput(f"features, node {row}: all must be finite numbers; mend what makes them.")
        if len(self.labels) != len(self):
            raise BadInput(
                f"labels = {len(self.labels)} of {len(self)} nodes: each node has one; write {UNKNOWN} where there is "
                "none."
            )
        if len(self.names) != len(self) or len(set(self.names)) < len(self):
            raise BadInput(
                f"names = {len(set(self.names))} different ones of {len(self)} nodes: each node has its own; tell all "
                "nodes apart."
            )
        _check_labels(self.labels, self.classes)
        self._check_edges()

    @classmethod
    def of(
        cls,
        features: ArrayLike,
        pairs: ArrayLike,
        labels: ArrayLike,
        classes: Sequence[str],
        names: Iterable[str] | None = None,
    ) -> "Graph":
        """The graph with an edge for each pair of nodes, of which some may be loops, doubled, or in either order.

        Without names the nodes are known by their numbers.
        """
        table = np.asarray(features, np.float32)
        ends, numbers = _whole("pairs", pairs), _whole("labels", labels)
        ends = ends if ends.size else ends.reshape(0, 2)
        if ends.ndim != 2 or ends.shape[1] != 2:
            raise BadInput(f"pairs = an array of shape {ends.shape}: it must be [pairs, 2]; give two nodes for each.")
        _check_nodes("pairs", ends, len(table))
        _check_labels(numbers, tuple(classes))
        known = tuple(map(str, range(len(table))) if names is None else names)
        return cls(table, _canonical(ends, len(table)), numbers.astype(np.int32), tuple(classes), known)

    def __len__(self) -> int:
        return len(self.features)

    def degrees(self) -> NDArray[np.int64]:
        """How many edges each node has, [nodes]."""
        return np.bincount(self.edges.ravel(), minlength=len(self))

    def induced(self, nodes: ArrayLike) -> "Graph":
        """The graph of these nodes alone, numbered in this order, with the edges between them and no others."""
        chosen = distinct("nodes", nodes, len(self))
        numbers = np.full(len(self), -1, np.int64)
        numbers[chosen] = np.arange(len(chosen))
        ends = numbers[self.edges]
        inside = ends[(ends >= 0).all(axis=1)]
        names = tuple(self.names[node] for node in chosen)
        return Graph(self.features[chosen], _canonical(inside, len(chosen)), self.labels[chosen], self.classes, names)

    def _check_edges(self) -> None:
        if self.edges.shape[1] != 2:
            raise BadInput(f"edges = an array of shape {self.edges.shape}: it must be [edges, 2]; use Graph.of.")
        _check_nodes("edges", self.edges, len(self))
        low, high = self.edges.T
        if (low >= high).any():
            row = int(np.argmax(low >= high))
            raise BadInput(
                f"edges, row {row} = {low[row]}, {high[row]}: the smaller end stands first, and none is a loop; use "
                "Graph.of."
            )
        if (steps := np.diff(low * len(self) + high) <= 0).any():
            row = int(np.argmax(steps)) + 1
            raise BadInput(
                f"edges, row {row} = {low[row]}, {high[row]}: edges must ascend, and each is there once; use Graph.of."
            )


@dataclass(frozen=True, eq=False)
class GraphCorpus:
    """A graph, and which of its nodes are for training, validation and test; each of these has a label.

    A node can be in none of them: then it is there for its neighbours. `files` are those that were read. Where
    `public_classes` is false the classes are those of the training nodes, which say something about these. `texts` are
    those of all nodes, where the files have them.
    """

    graph: Graph
    train: Nodes
    validation: Nodes
    test: Nodes
    files: tuple[Path, ...]
    public_classes: bool
    texts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        whose = np.full(len(self.graph), "", "U10")
        for name in ("train", "validation", "test"):
            nodes = distinct(name, getattr(self, name), len(self.graph))
            if (taken := nodes[whose[nodes] != ""]).size:
                raise BadInput(f"{name}: node {taken[0]} is in {whose[taken[0]]}, too; put it into one of them.")
            if (bare := nodes[self.graph.labels[nodes] == UNKNOWN]).size:
                raise BadInput(f"{name}: node {bare[0]} has no label; leave it out.")
            whose[nodes] = name
            object.__setattr__(self, name, nodes)
        if not len(self.train):
            raise BadInput("train = 0 nodes: there must be something to learn from; add nodes, or hold out fewer.")

    @property
    def places(self) -> tuple[Path, ...]:
        """What ledgers of this graph lie beside."""
        return places_of(self.files)


def divided(
    labels: ArrayLike, test: float, validation: float = 0.0, ids: Iterable[object] | None = None
) -> tuple[Nodes, Nodes, Nodes]:
    """The nodes with one of these labels that are for training, for validation and for test.

    The last two are shares of all. Where a node belongs is told by a checksum of its id, or else of its number. So it
    depends on no other node, and whoever is added moves nobody; nor does another share for validation change the test.
    """
    for name, share in (("test", test), ("validation", validation)):
        checks.non_negative(name, share, "give the share of the nodes")
    if test + validation >= 1:
        raise BadInput(f"test + validation = {test + validation:g}: it must be below 1; leave nodes for training.")
    known = _whole("labels", labels) != UNKNOWN
    keys = list(map(str, range(len(known)) if ids is None else ids))
    if len(keys) != len(known):
        raise BadInput(f"ids = {len(keys)} of {len(known)} nodes: each node has one; give them all.")
    places = np.array([place_of(key) for key in keys], np.float64)
    parts = np.searchsorted((test, test + validation), places, side="right")
    tested, validated, trained = (np.flatnonzero(known & (parts == part)) for part in range(3))
    return trained, validated, tested


def distinct(name: str, nodes: ArrayLike, count: int) -> Nodes:
    """Numbers of nodes, of which there are `count`, each of them once."""
    chosen = _whole(name, nodes)
    if chosen.ndim != 1:
        raise BadInput(f"{name} = an array of shape {chosen.shape}: it must be a list of nodes; give their numbers.")
    _check_nodes(name, chosen, count)
    times = np.bincount(chosen, minlength=count)
    if (times > 1).any():
        raise BadInput(f"{name}: node {int(np.argmax(times > 1))} is there more than once; give each node once.")
    return chosen


def _canonical(pairs: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Each edge once, its smaller end first, without loops, in ascending order."""
    low, high = np.minimum(*pairs.T), np.maximum(*pairs.T)
    keys = np.sort((low * count + high)[low < high])
    once = keys[np.diff(keys, prepend=-1) > 0]  # np.unique takes many times as long.
    return np.stack(np.divmod(once, max(count, 1)), axis=1)


def _whole(name: str, values: ArrayLike) -> NDArray[np.int64]:
    """Whole numbers as an array, which NumPy would take for fractions where there are none."""
    array: NDArray[Any] = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise BadInput(
            f"{name} = an array of {array.dtype}: they must be whole numbers; give the numbers of the nodes."
        )
    return array.astype(np.int64, copy=False)


def _check_labels(labels: NDArray[np.integer[Any]], classes: tuple[str, ...]) -> None:
    if not isinstance(classes, tuple) or not classes or len(set(classes)) < len(classes):
        raise BadInput(f"classes = {classes!r}: it must be a tuple of names, each of them once; name each class.")
    wrong = (labels < UNKNOWN) | (labels >= len(classes))
    if wrong.any():
        node = int(np.argmax(wrong))
        raise BadInput(
            f"labels, node {node} = {labels[node]}: it must be the number of a class, from 0 to {len(classes) - 1}, or "
            f"{UNKNOWN} for none."
        )


def _check_nodes(name: str, nodes: NDArray[np.int64], count: int) -> None:
    if nodes.size and not 0 <= nodes.min() <= nodes.max() < count:
        node = nodes.min() if nodes.min() < 0 else nodes.max()
        raise BadInput(f"{name}: there is no node {node}; the {count} nodes have numbers from 0 on, so correct it.")


def _array(name: str, array: NDArray[Any], kind: type[np.generic], axes: int) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != kind or array.ndim != axes:
        found = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise BadInput(f"{name} = {found}: it must be an array of {kind.__name__} with {axes} axes; use Graph.of.")
