"""Graphs hold each edge once, what is cut out of them is really cut, and their nodes are divided one by one."""

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.data.graphs import UNKNOWN, Graph, GraphCorpus, divided

FILES = (Path("b.txt"), Path("a.txt"))


def graph_of(count: int, pairs=(), labels=None) -> Graph:
    """Node n has the features n and -n, and one of three classes or none."""
    features = [[node, -node] for node in range(count)] or np.zeros((0, 2))
    return Graph.of(features, list(pairs), [node % 4 - 1 for node in range(count)] if labels is None else labels, "abc")


@st.composite
def drawn(draw):
    """How many nodes, pairs of them in any form, and some of the nodes in any order."""
    count = draw(st.integers(1, 9))
    node = st.integers(0, count - 1)
    return count, draw(st.lists(st.tuples(node, node), max_size=30)), draw(st.lists(node, unique=True))


@given(drawn())
def test_edges_are_the_same_whatever_pairs_they_come_from(case):
    """The oracle asks of every two nodes whether they are joined."""
    count, pairs, _ = case
    graph = graph_of(count, pairs)
    joined = [[a, b] for a, b in combinations(range(count), 2) if (a, b) in pairs or (b, a) in pairs]
    assert graph.edges.tolist() == joined
    turned = graph_of(count, [pair[::-1] for pair in reversed(pairs)] + pairs)
    np.testing.assert_array_equal(turned.edges, graph.edges)
    assert graph.degrees().tolist() == [sum(node in edge for edge in joined) for node in range(count)]


@given(drawn())
def test_an_induced_graph_has_these_nodes_in_this_order_and_no_edge_to_others(case):
    count, pairs, nodes = case
    graph = graph_of(count, pairs)
    part = graph.induced(nodes)
    assert len(part) == len(nodes)
    assert part.features.tolist() == [[node, -node] for node in nodes]
    assert part.labels.tolist() == [node % 4 - 1 for node in nodes]
    edges = {frozenset(edge) for edge in graph.edges.tolist()}
    places = combinations(range(len(nodes)), 2)
    assert part.edges.tolist() == [[a, b] for a, b in places if {nodes[a], nodes[b]} in edges]
    assert part.classes == graph.classes
    assert part.names == tuple(graph.names[node] for node in nodes)


@given(drawn())
def test_all_nodes_in_their_order_are_the_graph_itself(case):
    count, pairs, _ = case
    graph = graph_of(count, pairs)
    same = graph.induced(np.arange(count))
    for name in ("features", "edges", "labels"):
        np.testing.assert_array_equal(getattr(same, name), getattr(graph, name))


def test_a_graph_has_its_types_and_may_be_empty():
    for graph in (graph_of(3, [(2, 0), (0, 2), (1, 1)]), graph_of(3), graph_of(0), graph_of(3, [(0, 1)]).induced([])):
        assert (graph.features.dtype, graph.edges.dtype, graph.labels.dtype) == (np.float32, np.int64, np.int32)
        assert graph.edges.shape[1] == 2
        assert len(graph) == len(graph.labels) == len(graph.degrees())


EDGES = np.array([[0, 1], [1, 2]])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"features": np.zeros((3, 2))},
            "features = float64 of shape (3, 2): it must be an array of float32 with 2 axes",
        ),
        ({"features": [[1.0]]}, "features = list: it must be an array of float32 with 2 axes; use Graph.of."),
        ({"features": np.float32([[0], [np.nan], [0]])}, "features, node 1: all must be finite numbers"),
        ({"edges": EDGES.astype(np.int32)}, "edges = int32 of shape (2, 2): it must be an array of int64"),
        ({"edges": np.zeros((1, 3), np.int64)}, "edges = an array of shape (1, 3): it must be [edges, 2]"),
        (
            {"edges": np.array([[1, 3]])},
            "edges: there is no node 3; the 3 nodes have numbers from 0 on, so correct it.",
        ),
        ({"edges": np.array([[-1, 2]])}, "edges: there is no node -1; "),
        (
            {"edges": np.array([[0, 1], [2, 1]])},
            "edges, row 1 = 2, 1: the smaller end stands first, and none is a loop",
        ),
        ({"edges": np.array([[1, 1]])}, "edges, row 0 = 1, 1: the smaller end stands first, and none is a loop"),
        ({"edges": np.array([[0, 1], [0, 1]])}, "edges, row 1 = 0, 1: edges must ascend, and each is there once"),
        ({"edges": EDGES[::-1].copy()}, "edges, row 1 = 0, 1: edges must ascend, and each is there once"),
        ({"labels": np.int32([0, 1])}, "labels = 2 of 3 nodes: each node has one; write -1 where there is none."),
        ({"labels": np.int32([0, 2, 1])}, "labels, node 1 = 2: it must be the number of a class, from 0 to 1, or -1"),
        ({"labels": np.int32([0, 1, -2])}, "labels, node 2 = -2: it must be the number of a class, from 0 to 1, or -1"),
        ({"classes": ()}, "classes = (): it must be a tuple of names, each of them once"),
        ({"classes": ("a", "a")}, "classes = ('a', 'a'): it must be a tuple of names, each of them once"),
        ({"classes": ["a", "b"]}, "classes = ['a', 'b']: it must be a tuple of names"),
        ({"names": ("x", "y")}, "names = 2 different ones of 3 nodes: each node has its own"),
        ({"names": ("x", "y", "x")}, "names = 2 different ones of 3 nodes: each node has its own"),
    ],
)
def test_a_graph_that_is_none_is_refused(changed, message):
    whole = {
        "features": np.zeros((3, 2), np.float32),
        "edges": EDGES,
        "labels": np.int32([0, 1, -1]),
        "classes": ("a", "b"),
        "names": ("x", "y", "z"),
    }
    Graph(**whole)
    with pytest.raises(BadInput, match=re.escape(message)):
        Graph(**{**whole, **changed})


@pytest.mark.parametrize(
    ("pairs", "labels", "message"),
    [
        ([(0, 1, 2)], [0, 1], "pairs = an array of shape (1, 3): it must be [pairs, 2]; give two nodes for each."),
        ([(0, 2)], [0, 1], "pairs: there is no node 2; the 2 nodes"),
        ([(0.0, 1.0)], [0, 1], "pairs = an array of float64: they must be whole numbers"),
        ([(0, 1)], [0, 2**32], "labels, node 1 = 4294967296: it must be the number of a class, from 0 to 2"),
    ],
)
def test_pairs_and_labels_that_do_not_fit_are_refused(pairs, labels, message):
    with pytest.raises(BadInput, match=re.escape(message)):
        graph_of(2, pairs, labels)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([0, 3], "nodes: there is no node 3; the 3 nodes"),
        ([-1], "nodes: there is no node -1; "),
        ([1, 1], "nodes: node 1 is there more than once; give each node once."),
        ([True, False, True], "nodes = an array of bool: they must be whole numbers"),
        ([[0, 1]], "nodes = an array of shape (1, 2): it must be a list of nodes; give their numbers."),
    ],
)
def test_nodes_that_cannot_be_cut_out_are_refused(nodes, message):
    with pytest.raises(BadInput, match=re.escape(message)):
        graph_of(3).induced(nodes)


def corpus(train=(0, 1), validation=(), test=(2,)) -> GraphCorpus:
    return GraphCorpus(graph_of(4, labels=[0, 1, 2, UNKNOWN]), train, validation, test, FILES, public_classes=True)


def test_a_corpus_keeps_its_nodes_and_its_files():
    made = corpus()
    assert [nodes.tolist() for nodes in (made.train, made.validation, made.test)] == [[0, 1], [], [2]]
    assert {nodes.dtype for nodes in (made.train, made.validation, made.test)} == {np.dtype(np.int64)}
    assert made.files == made.places == FILES


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"test": [1]}, "test: node 1 is in train, too; put it into one of them."),
        ({"validation": [2], "test": [2]}, "test: node 2 is in validation, too; put it into one of them."),
        ({"validation": [3]}, "validation: node 3 has no label; leave it out."),
        ({"train": [0, 4]}, "train: there is no node 4; the 4 nodes"),
        ({"train": [0, 0]}, "train: node 0 is there more than once; give each node once."),
        ({"train": []}, "train = 0 nodes: there must be something to learn from; add nodes, or hold out fewer."),
    ],
)
def test_splits_that_overlap_or_have_no_labels_are_refused(splits, message):
    with pytest.raises(BadInput, match=re.escape(message)):
        corpus(**splits)


@given(st.integers(1, 60), st.floats(0, 0.5), st.floats(0, 0.4))
def test_whoever_is_added_moves_nobody(count, test, validation):
    labels = [0] * count
    before, after = divided(labels, test, validation), divided([*labels, 0], test, validation)
    for few, more in zip(before, after, strict=True):
        assert few.tolist() == [node for node in more.tolist() if node < count]
    assert sorted(np.concatenate(before).tolist()) == list(range(count))


def test_ids_decide_and_not_their_order():
    ids = [f"user {number}" for number in range(400)]
    parts = [{ids[node] for node in nodes} for nodes in divided([0] * 400, 0.2, 0.1, ids)]
    turned = [{ids[::-1][node] for node in nodes} for nodes in divided([0] * 400, 0.2, 0.1, ids[::-1])]
    assert parts == turned
    assert [len(part) for part in parts] == pytest.approx([280, 40, 80], abs=25)


def test_another_share_for_validation_leaves_the_test_as_it_is():
    tests = [divided([0] * 300, 0.2, share)[2].tolist() for share in (0, 0.1, 0.5)]
    assert tests[0] == tests[1] == tests[2]
    smaller = divided([0] * 300, 0.1)[2].tolist()
    assert set(smaller) < set(tests[0])


def test_a_node_without_a_label_is_in_no_part():
    parts = divided([UNKNOWN, 0] * 50, 0.3, 0.3)
    assert sorted(np.concatenate(parts).tolist()) == list(range(1, 100, 2))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"test": -0.1}, "test = -0.1: it must be a finite number of at least 0; give the share of the nodes."),
        ({"test": 0.5, "validation": 0.5}, "test + validation = 1: it must be below 1; leave nodes for training."),
        ({"test": 0.5, "ids": ["a"]}, "ids = 1 of 2 nodes: each node has one; give them all."),
    ],
)
def test_shares_that_leave_nothing_are_refused(given, message):
    with pytest.raises(BadInput, match=re.escape(message)):
        divided([0, 0], **given)
