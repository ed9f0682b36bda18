"""Classification of the nodes of a graph: what a record is, and what changes when one node changes.

A record is a small graph of its own. Its gradient depends on it alone and is clipped to C, whatever its size. Three
ways to make records of a graph stand for three promises:

`whole`            One record. To take it away moves the sum by at most C: the graph is what is protected.
`subgraphs`        Each node draws one of s groups by itself; edges between groups are cut. A node that is added, taken
                   away or exchanged changes the gradient of its group and of no other: from one vector within C to
                   another, by at most 2C. What a node is exchanged for takes over its name, and with it its group: one
                   of another name counts as two nodes, one that goes and one that comes, and moves the sum by up to
                   4C. A whole subgraph that is added or taken away moves the sum by at most C.
`neighbourhoods`   A record for each node, with some of its neighbours. A node is in its own record and in those of
                   its neighbours. With D edges it has a part in D + 1 records: when it is added or taken away, its own
                   comes or goes, and up to D others change by at most 2C each. Without neighbours only its own does,
                   by at most C.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from numpy.typing import NDArray

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.data.cache import Ragged
from dpnlp.data.graphs import UNKNOWN, Graph
from dpnlp.metrics.f1 import Confusion
from dpnlp.metrics.score import Score
from dpnlp.models.gcn import GCN
from dpnlp.tasks.reading import counted, cross_entropy, logits_of

Integers = NDArray[np.int64]

EDGES = 16
"""For how many edges a batch has room, for each node."""


@dataclass(frozen=True)
class GraphRecords:
    """Records of a graph as the engine takes them: which nodes each has, and the edges between their places in it."""

    graph: Graph
    nodes: Ragged  # [nodes of all records], numbers in the graph
    edges: Ragged  # [edges of all records, 2], places among the nodes of the record
    labels: Ragged  # [nodes of all records], what is learned of each node, or UNKNOWN

    def __len__(self) -> int:
        return len(self.nodes.offsets) - 1

    @property
    def lengths(self) -> Integers:
        """The nodes of each record. One with more edges than there is room for counts as one with more nodes."""
        longest: Integers = np.maximum(self.nodes.lengths, -(-self.edges.lengths // EDGES))
        return longest

    def batch(self, rows: Integers, length: int) -> dict[str, NDArray[Any]]:
        """The records, with `length` nodes each. Padding has no features, no label and edges that lead nowhere.

        How much room there is for edges follows from `length`, so that no record is in another shape for the edges of
        others (law 13).
        """
        nodes, real = self.nodes.padded(rows, length, 0)
        features = np.zeros((*nodes.shape, self.graph.features.shape[1]), np.float32)
        features[real] = self.graph.features[nodes[real]]
        edges, _ = self.edges.padded(rows, EDGES * length, length)
        labels, _ = self.labels.padded(rows, length, UNKNOWN)
        return {"features": features, "edges": edges, "labels": labels}


def whole(graph: Graph) -> GraphRecords:
    """The graph as one record, its nodes in their order."""
    return subgraphs(graph, 1)


def subgraphs(graph: Graph, splits: int) -> GraphRecords:
    """Disjoint subgraphs, of which some may be empty. No edge leads from one to another."""
    groups = (_checksums(graph) % np.uint64(checks.count("splits", splits))).astype(np.int64)
    order = np.argsort(groups, kind="stable")
    starts = np.append(0, np.cumsum(np.bincount(groups, minlength=splits)))
    places = np.empty_like(order)
    places[order] = np.arange(len(order)) - starts[groups[order]]
    inside = graph.edges[groups[graph.edges[:, 0]] == groups[graph.edges[:, 1]]]
    within = groups[inside[:, 0]]
    by_group = np.argsort(within, kind="stable")
    ends = np.append(0, np.cumsum(np.bincount(within, minlength=splits)))
    return GraphRecords(
        graph, Ragged(order, starts), Ragged(places[inside][by_group], ends), Ragged(graph.labels[order], starts)
    )


def neighbourhoods(graph: Graph, most: int) -> GraphRecords:
    """A record for each node that has a label: the node itself, then at most `most` of its neighbours.

    Which neighbours depends on the node and its edges alone. Only the node's own label is learned.
    """
    checks.count("most", most, least=0)
    both = np.concatenate([graph.edges, graph.edges[:, ::-1]])
    root, other = both.T
    ids = _checksums(graph)
    order = np.lexsort((_mixed(ids[root] ^ _mixed(ids[other])), root))
    root, other = root[order], other[order]
    degrees = np.bincount(root, minlength=len(graph))
    rank = np.arange(len(root)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    chosen = (rank < most) & (graph.labels[root] != UNKNOWN)
    roots = np.flatnonzero(graph.labels != UNKNOWN)
    kept = np.minimum(degrees[roots], most)
    starts, ends = np.append(0, np.cumsum(kept + 1)), np.append(0, np.cumsum(kept))
    nodes, first = np.repeat(roots, kept + 1), np.zeros(starts[-1], bool)
    first[starts[:-1]] = True
    labels = np.where(first, graph.labels[nodes], UNKNOWN)
    nodes[~first] = other[chosen]
    links = np.stack([np.zeros(ends[-1], np.int64), rank[chosen] + 1], axis=1)
    return GraphRecords(graph, Ragged(nodes, starts), Ragged(links, ends), Ragged(labels, starts))


@dataclass(frozen=True)
class Nodes:
    """A model that gives each node of a graph a class."""

    model: GCN
    classes: tuple[str, ...]

    def predict(self, graph: Graph) -> list[str]:
        """The class of each node that the model finds most likely, with all edges of this graph."""
        return [self.classes[int(best)] for best in np.argmax(self._logits(graph), axis=-1)]

    def probabilities(self, graph: Graph) -> NDArray[np.float32]:
        """How likely the model finds each class for each node by itself, whatever its edges: [nodes, classes]."""
        return np.asarray(jax.nn.softmax(self._logits(replace(graph, edges=graph.edges[:0])), axis=-1))

    def _logits(self, graph: Graph) -> Array:  # [nodes, classes]
        found, read = graph.features.shape[1], self.model.config.features
        if found != read:
            raise BadInput(f"features = {found} a node: the network reads {read}; make them as for what it learned.")
        batch = whole(graph).batch(np.zeros(1, np.int64), len(graph))
        logits: Array = logits_of(self.model, batch)[0]
        return logits

    def score(self, graph: Graph, nodes: Integers) -> "ClassifiedNodes":
        """The model's classes for these nodes beside the true ones."""
        found, right = self.predict(graph), graph.labels[nodes]
        return ClassifiedNodes(
            tuple(graph.names[node] for node in nodes),
            tuple(graph.classes[int(label)] for label in right),
            tuple(found[node] for node in nodes),
            self.classes,
        )


def node_loss(model: nnx.Module, batch: dict[str, Array]) -> Array:
    """The mean cross-entropy over the labelled nodes of each record [batch], 0 where it has none."""
    losses = cross_entropy(model(batch), batch["labels"])
    return losses.sum(axis=-1) / jnp.maximum(1, (batch["labels"] >= 0).sum(axis=-1))


@dataclass(frozen=True)
class ClassifiedNodes:
    """Nodes and the classes that a model gave them."""

    names: tuple[str, ...]
    references: tuple[str, ...]
    predictions: tuple[str, ...]
    classes: tuple[str, ...]

    @property
    def confusion(self) -> Confusion:
        return counted(self.references, self.predictions, self.classes)

    def scores(self) -> dict[str, Score]:
        """Macro-F1 first, for accuracy hides a model that has fallen for the majority class."""
        found = self.confusion
        return {"macro_f1": found.macro_f1(), "micro_f1": found.micro_f1(), "accuracy": found.accuracy()}

    def details(self) -> dict[str, Any]:
        """The table of the classes, and which was taken for which."""
        return self.confusion.to_json()

    def lines(self) -> Iterator[dict[str, str]]:
        """Name, class and prediction of each node."""
        for name, reference, prediction in zip(self.names, self.references, self.predictions, strict=True):
            yield {"source": name, "reference": reference, "hypothesis": prediction}


def _checksums(graph: Graph) -> NDArray[np.uint64]:
    """A number for each node that follows from its name alone, [nodes]; how splits are made tells nothing of it."""
    found = (blake2b(name.encode(), digest_size=8, person=b"records").digest() for name in graph.names)
    return np.frombuffer(b"".join(found), "<u8").astype(np.uint64)


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Each number as one without any pattern (the finalizer of SplitMix64)."""
    x = numbers + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
