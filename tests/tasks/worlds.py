"""Small graphs by the names of their nodes, of which one may come, go or be exchanged, and what that does to a sum."""

from dataclasses import dataclass, replace
from functools import partial

import jax
import numpy as np
from flax import nnx
from hypothesis import strategies as st

from dpnlp.data.graphs import UNKNOWN, Graph
from dpnlp.models.gcn import GCN, Config
from dpnlp.tasks.nodes import node_loss
from dpnlp.training import clipping
from dpnlp.training.clipping import Clipping
from dpnlp.training.parameters import apart

CLASSES, WIDTH, MOST = ("a", "b", "c"), 3, 6
C = 0.05
"""The clip norm, below nearly all gradients."""


@dataclass(frozen=True)
class World:
    """What is known of each node, by its name, and who is joined to whom."""

    features: dict[str, tuple[float, ...]]
    labels: dict[str, int]
    edges: frozenset[frozenset[str]]

    @property
    def names(self):
        return tuple(self.features)

    def edges_of(self, name):
        return {edge for edge in self.edges if name in edge}

    def without(self, name):
        """The world without a node and all its edges."""
        return World(
            {node: value for node, value in self.features.items() if node != name},
            {node: value for node, value in self.labels.items() if node != name},
            self.edges - self.edges_of(name),
        )

    def with_node(self, name, features, label, neighbours):
        """The world with one node more, in the last place."""
        return World(
            self.features | {name: features},
            self.labels | {name: label},
            self.edges | {frozenset((name, other)) for other in neighbours},
        )

    def turned(self):
        """The same nodes in the opposite order."""
        return replace(self, features=dict(reversed(self.features.items())))

    def graph(self):
        numbers = {name: number for number, name in enumerate(self.names)}
        features = np.array([self.features[name] for name in self.names], np.float32).reshape(-1, WIDTH)
        pairs = sorted(sorted(numbers[name] for name in edge) for edge in self.edges)
        return Graph.of(features, pairs, [self.labels[name] for name in self.names], CLASSES, self.names)


_FEATURES = st.tuples(*[st.integers(-3, 3).map(float)] * WIDTH)
_LABELS = st.integers(UNKNOWN, len(CLASSES) - 1)


@st.composite
def worlds(draw, most=MOST):
    """Up to `most` nodes with any edges between them; names are letters."""
    names = draw(st.lists(st.sampled_from("abcdefghijklmnop"), unique=True, min_size=1, max_size=most))
    pairs = [frozenset((a, b)) for a in names for b in names if a < b]
    edges = draw(st.sets(st.sampled_from(pairs))) if pairs else set()
    return World({name: draw(_FEATURES) for name in names}, {name: draw(_LABELS) for name in names}, frozenset(edges))


@st.composite
def neighbours(draw, most=MOST):
    """A world without a node, one with it in the first place or the last, one in which it is another, and its name."""
    without = draw(worlds(most - 1))
    name = draw(st.sampled_from("xyz"))
    others = st.sets(st.sampled_from(without.names))
    both = [without.with_node(name, draw(_FEATURES), draw(_LABELS), draw(others)) for _ in range(2)]
    found = (without, *both)
    return *((world.turned() for world in found) if draw(st.booleans()) else found), name


def network(layers=2, hops=1, seed=0, scale=1.0):
    """A network with random weights, or with weights of 0."""
    model = GCN(Config(WIDTH, len(CLASSES), hidden=4, layers=layers, hops=hops, dropout=0.0), rngs=nnx.Rngs(seed))
    nnx.update(model, jax.tree.map(lambda weight: scale * weight, nnx.state(model)))
    return model


@partial(jax.jit, static_argnums=0)
def _clipped(structure, state, batch, weights):
    parts = apart(nnx.merge(structure, state), nnx.Param)
    return clipping.clipped_sum(node_loss, parts, batch, weights, Clipping(C)).gradients


def clipped_sum(model, records, rows=None):
    """The sum of the clipped gradients of all records, or of some, without noise. One shape does for all small ones."""
    rows = np.arange(len(records)) if rows is None else rows
    at_once = MOST + 1
    assert len(rows) <= at_once
    batch = records.batch(np.resize(rows, at_once), at_once)
    weights = (np.arange(at_once) < len(rows)).astype(np.float32)
    sums = _clipped(*nnx.split(model), batch, weights)
    return np.concatenate([np.asarray(sums[name], np.float64).ravel() for name in sorted(sums)])


def moved(model, one, other):
    """By how many clip norms the sum over all records moves from one world to another."""
    before, after = (clipped_sum(model, records) if len(records) else 0.0 for records in (one, other))
    return float(np.linalg.norm(before - after)) / C


def contents(records, row):
    """All that a record is, as bytes, whatever else there is."""
    graph, (nodes,) = records.graph, records.nodes.lists([row])
    edges = records.edges.numbers[records.edges.offsets[row] : records.edges.offsets[row + 1]]
    (labels,) = records.labels.lists([row])
    return [graph.names[node] for node in nodes], graph.features[nodes].tobytes(), edges.tolist(), labels
