"""Records of a graph against naive loops; what one node can change in them; predictions and scores."""

import re
from collections import Counter
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.data.graphs import UNKNOWN, Graph
from dpnlp.metrics.f1 import confusion
from dpnlp.models.gcn import GCN, Config
from dpnlp.tasks import nodes
from dpnlp.tasks.nodes import Nodes, neighbourhoods, node_loss, subgraphs, whole
from dpnlp.tasks.reading import logits_of

from .worlds import CLASSES, WIDTH, C, World, clipped_sum, contents, moved, neighbours, network, worlds

NETWORKS = [network(1, 1, 0), network(2, 1, 1, 3.0), network(2, 0, 2), network(1, 2, 3, 0.0)]
MODEL = st.sampled_from(NETWORKS)
ROUNDING = 1 + 1e-5


def edges_by_name(records, row):
    """The edges of a record between the names of their ends."""
    (nodes,) = records.nodes.lists([row])
    listed = records.edges.numbers[records.edges.offsets[row] : records.edges.offsets[row + 1]]
    found = [frozenset(records.graph.names[nodes[place]] for place in edge) for edge in listed]
    assert len(set(found)) == len(found)
    return set(found)


def names_of(records, row):
    return [records.graph.names[node] for node in records.nodes.lists([row])[0]]


# What a record is


@given(worlds())
def test_the_whole_graph_is_one_record_of_all_nodes_in_their_order(world):
    records = whole(world.graph())
    assert len(records) == 1
    assert names_of(records, 0) == list(world.names)
    assert edges_by_name(records, 0) == world.edges
    assert records.labels.lists([0]) == [[world.labels[name] for name in world.names]]


@given(worlds(), st.integers(1, 5))
def test_subgraphs_are_a_partition_and_hold_the_edges_inside_of_each(world, splits):
    records = subgraphs(world.graph(), splits)
    parts = [names_of(records, row) for row in range(len(records))]
    assert len(parts) == splits
    assert sorted(name for part in parts for name in part) == sorted(world.names)
    assert records.lengths.tolist() == [len(part) for part in parts]
    for row, part in enumerate(parts):
        assert part == [name for name in world.names if name in part]
        assert edges_by_name(records, row) == {edge for edge in world.edges if edge <= {*part}}
        assert records.labels.lists([row]) == [[world.labels[name] for name in part]]


@given(worlds(), st.integers(0, 4))
def test_a_neighbourhood_is_a_labelled_node_and_some_of_its_neighbours(world, most):
    records = neighbourhoods(world.graph(), most)
    roots = [name for name in world.names if world.labels[name] != UNKNOWN]
    assert [names_of(records, row)[0] for row in range(len(records))] == roots
    for row, root in enumerate(roots):
        others = names_of(records, row)[1:]
        around = {name for edge in world.edges_of(root) for name in edge - {root}}
        assert len(others) == len(set(others)) == min(most, len(around))
        assert {*others} <= around
        assert edges_by_name(records, row) == {frozenset((root, other)) for other in others}
        assert records.labels.lists([row]) == [[world.labels[root], *[UNKNOWN] * len(others)]]


def test_no_neighbour_is_preferred():
    """Each node has 8 neighbours and takes 2 of them: of all choices each is about as frequent."""
    count, most = 400, 2
    pairs = [(node, count + place) for node in range(count) for place in range(8)]
    graph = Graph.of(np.zeros((count + 8, 1)), pairs, [0] * count + [UNKNOWN] * 8, ("a",))
    records = neighbourhoods(graph, most)
    taken = Counter(node for row in range(count) for node in records.nodes.lists([row])[0][1:])
    expected = count * most / 8
    assert all(abs(taken[count + place] - expected) < 5 * expected**0.5 for place in range(8))


def test_subgraphs_are_about_as_large():
    graph = Graph.of(np.zeros((1000, 1)), [], [0] * 1000, ("a",))
    sizes = subgraphs(graph, 10).lengths
    assert sizes.sum() == 1000
    assert np.abs(sizes - 100).max() < 5 * 100**0.5


# Who can change which record


@given(neighbours(), st.integers(1, 4))
def test_a_node_that_comes_goes_or_is_exchanged_changes_no_bit_of_another_subgraph(case, splits):
    """Nor does it move anybody: a node's group follows from its name alone."""
    without, world, other, name = case
    before, first, second = (subgraphs(each.graph(), splits) for each in (without, world, other))
    home = next(row for row in range(splits) if name in names_of(first, row))
    assert name in names_of(second, home)
    for row in range(splits):
        assert [node for node in names_of(first, row) if node != name] == names_of(before, row)
        if row != home:
            assert contents(first, row) == contents(second, row) == contents(before, row)


@given(neighbours(), st.integers(1, 4), st.integers(1, 9))
def test_a_node_that_comes_or_goes_puts_no_other_subgraph_into_another_shape(case, splits, length):
    without, world, other, name = case
    before, first, second = (subgraphs(each.graph(), splits) for each in (without, world, other))
    for row in range(splits):
        if name not in names_of(first, row):
            batches = [side.batch(np.array([row]), length) for side in (before, first, second)]
            for key, value in batches[0].items():
                assert all(np.array_equal(value, batch[key]) for batch in batches)
            assert before.lengths[row] == first.lengths[row] == second.lengths[row]


@given(worlds())
def test_a_record_that_is_not_cut_has_room_for_all_its_edges(world):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nodes, "EDGES", 1)
        for records in every_way(world.graph()):
            for row, length in enumerate(records.lengths.tolist()):
                found = records.batch(np.array([row]), length)["edges"][0]
                real = found[(found < length).all(axis=1)]
                assert real.tolist() == records.edges.lists([row])[0]


@given(neighbours(), st.integers(0, 3))
def test_a_node_with_d_edges_changes_at_most_d_records_beside_its_own(case, most):
    without, world, _, name = case
    sides = [neighbourhoods(each.graph(), most) for each in (without, world)]
    before, after = ({names_of(side, row)[0]: contents(side, row) for row in range(len(side))} for side in sides)
    assert before.keys() == after.keys() - {name}
    changed = {root for root in before if before[root] != after[root]}
    assert {frozenset((root, name)) for root in changed} <= world.edges_of(name)
    if not most:
        assert not changed


@given(worlds(), st.integers(1, 3))
def test_a_neighbourhood_depends_on_the_node_and_its_edges_alone(world, most):
    """A stranger's features, label and edges to other strangers change nothing, nor does the order of the nodes."""
    root, *rest = world.names
    assume(world.labels[root] != UNKNOWN)
    records = neighbourhoods(world.graph(), most)
    turned = neighbourhoods(world.turned().graph(), most)
    row = [names_of(turned, row)[0] for row in range(len(turned))].index(root)
    assert contents(turned, row) == contents(records, 0)
    strangers = [name for name in rest if frozenset((root, name)) not in world.edges]
    other = replace(
        world,
        features=world.features | dict.fromkeys(strangers, (9.0,) * WIDTH),
        labels=world.labels | dict.fromkeys(strangers, 0),
        edges=frozenset(world.edges_of(root)),
    )
    assert contents(neighbourhoods(other.graph(), most), 0) == contents(records, 0)


# Batches


def every_way(graph):
    return [whole(graph), subgraphs(graph, 3), neighbourhoods(graph, 2)]


@given(worlds(), st.integers(6, 9))
def test_a_batch_has_the_records_and_nothing_else(world, length):
    for records in every_way(world.graph()):
        rows = np.arange(len(records))[::-1]
        if not len(rows):
            continue
        batch = records.batch(rows, length)
        for place, row in enumerate(rows):
            names, size = names_of(records, row), int(records.lengths[row])
            expected = np.zeros((length, WIDTH), np.float32)
            expected[:size] = np.array([world.features[name] for name in names], np.float32).reshape(-1, WIDTH)
            np.testing.assert_array_equal(batch["features"][place], expected)
            (labels,) = records.labels.lists([row])
            assert batch["labels"][place].tolist() == labels + [UNKNOWN] * (length - size)
            real = [edge for edge in batch["edges"][place].tolist() if max(edge) < length]
            assert {frozenset(names[end] for end in edge) for edge in real} == edges_by_name(records, row)
            assert all(edge == [length, length] for edge in batch["edges"][place].tolist() if edge not in real)


@given(worlds(), st.integers(1, 9))
def test_law_4_a_record_of_a_batch_is_the_same_whatever_else_is_in_it(world, length):
    """Also where records are cut because they are longer than the layout."""
    for records in every_way(world.graph()):
        rows = np.arange(len(records))
        if not len(rows):
            continue
        together = records.batch(rows, length)
        for row in rows:
            alone = records.batch(np.array([row]), length)
            for name, value in alone.items():
                np.testing.assert_array_equal(value[0], together[name][row])


@given(worlds(), st.integers(1, 5))
def test_law_4_a_record_that_is_cut_keeps_its_first_nodes_and_all_edges_between_them(world, length):
    """However few edges other records have: these decide about the room of a batch, and not about what is in it."""
    for records in every_way(world.graph()):
        for row in range(len(records)):
            batch = records.batch(np.array([row]), length)
            first = names_of(records, row)[:length]
            real = [edge for edge in batch["edges"][0].tolist() if max(edge) < length]
            found = {frozenset(first[end] for end in edge) for edge in real}
            assert found == {edge for edge in edges_by_name(records, row) if edge <= {*first}}
            assert (batch["labels"][0] != UNKNOWN).tolist() == [
                label != UNKNOWN for label in (records.labels.lists([row])[0] + [UNKNOWN] * length)[:length]
            ]


# What one unit can move, in clip norms. The sum is over all records and without noise.


@settings(max_examples=25)
@given(MODEL, neighbours())
def test_to_take_the_graph_away_moves_the_sum_by_at_most_the_clip_norm(model, case):
    """A node changes the only record, which is 2."""
    without, world, other, _ = case
    assert np.linalg.norm(clipped_sum(model, whole(world.graph()))) <= C * ROUNDING
    assert moved(model, whole(world.graph()), whole(without.graph())) <= 2 * ROUNDING
    assert moved(model, whole(world.graph()), whole(other.graph())) <= 2 * ROUNDING


@settings(max_examples=60)
@given(MODEL, neighbours(), st.integers(1, 4))
def test_a_node_in_subgraphs_moves_the_sum_by_at_most_twice_the_clip_norm(model, case, splits):
    without, world, other, _ = case
    sides = [subgraphs(each.graph(), splits) for each in (without, world, other)]
    for one, two in ((0, 1), (1, 2)):
        assert moved(model, sides[one], sides[two]) <= 2 * ROUNDING


@settings(max_examples=25)
@given(MODEL, worlds(), st.integers(1, 4))
def test_a_subgraph_that_is_emptied_moves_the_sum_by_at_most_the_clip_norm(model, world, splits):
    records = subgraphs(world.graph(), splits)
    for row in range(splits):
        emptied = world
        for name in names_of(records, row):
            emptied = emptied.without(name)
        assert moved(model, records, subgraphs(emptied.graph(), splits)) <= ROUNDING


@settings(max_examples=60)
@given(MODEL, neighbours(), st.integers(0, 3))
def test_a_node_in_neighbourhoods_moves_the_sum_by_its_own_record_and_twice_that_of_each_neighbour(model, case, most):
    """C without neighbours, and at most (2D + 1)C with D edges."""
    without, world, _, name = case
    edges = len(world.edges_of(name)) if most else 0
    found = moved(model, *(neighbourhoods(each.graph(), most) for each in (without, world)))
    assert found <= (2 * edges + 1) * ROUNDING


FLAT = network(1, 1, 0, 0.0)
"""One layer of zeros: the gradient is the state of a node times (p − y), with p the same for all classes."""


def test_the_bound_for_the_graph_and_for_a_subgraph_is_reached():
    world = World({"a": (1.0, 0.0, 0.0)}, {"a": 0}, frozenset())
    empty = world.without("a").graph()
    for cut in (whole, lambda graph: subgraphs(graph, 3), lambda graph: neighbourhoods(graph, 0)):
        assert moved(FLAT, cut(world.graph()), cut(empty)) == pytest.approx(1, rel=1e-3)


def test_the_bound_for_a_node_in_subgraphs_is_reached_when_it_comes_and_when_it_is_exchanged():
    """The mean loss of a subgraph turns round when a node comes that says the opposite a thousand times as loudly."""
    small = World({"a": (1.0, 0.0, 0.0)}, {"a": 0}, frozenset())
    loud = small.with_node("b", (-1000.0, 0.0, 0.0), 0, ())
    other = small.with_node("b", (1000.0, 0.0, 0.0), 0, ())
    for one, two in ((small, loud), (loud, other)):
        assert moved(FLAT, subgraphs(one.graph(), 1), subgraphs(two.graph(), 1)) == pytest.approx(2, rel=1e-2)


@pytest.mark.parametrize("edges", [1, 2, 5])
def test_the_bound_for_a_node_in_neighbourhoods_is_reached(edges):
    """A hub among small nodes that all say the same shouts the opposite into the record of each of them."""
    others = "abcdef"[:edges]
    small = World(dict.fromkeys(others, (1.0, 0.0, 0.0)), dict.fromkeys(others, 0), frozenset())
    hub = small.with_node("x", (-1000.0, 0.0, 0.0), 0, others)
    found = moved(FLAT, *(neighbourhoods(each.graph(), 3) for each in (small, hub)))
    assert found == pytest.approx(2 * edges + 1, rel=1e-2)


# The task


@settings(max_examples=20)
@given(MODEL, worlds())
def test_the_loss_of_a_record_is_the_mean_over_its_labels(model, world):
    records = whole(world.graph())
    batch = records.batch(np.zeros(1, np.int64), 7)
    found = float(LOSS(*nnx.split(model), batch)[0])
    logs = np.asarray(jax.nn.log_softmax(logits_of(model, batch)[0]))
    labels = [(place, world.labels[name]) for place, name in enumerate(world.names) if world.labels[name] != UNKNOWN]
    assert found == pytest.approx(-np.mean([logs[pair] for pair in labels]) if labels else 0.0, rel=1e-4)


LOSS = jax.jit(lambda structure, state, batch: node_loss(nnx.merge(structure, state), batch), static_argnums=0)


WORLD = World(
    {name: (float(place), 1.0, -float(place % 2)) for place, name in enumerate("abcde")},
    {"a": 0, "b": 1, "c": 2, "d": UNKNOWN, "e": 1},
    frozenset(map(frozenset, ("ab", "bc", "cd"))),
)


def test_predictions_are_of_the_whole_graph_and_probabilities_of_each_node_by_itself():
    model, graph = NETWORKS[1], WORLD.graph()
    task = Nodes(model, CLASSES)
    batch = {"features": jnp.asarray(graph.features[None]), "edges": jnp.asarray(graph.edges[None])}
    logits = np.asarray(model(batch)[0])
    assert task.predict(graph) == [CLASSES[best] for best in logits.argmax(-1)]
    found = task.probabilities(graph)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
    for node in range(len(graph)):
        alone = task.probabilities(graph.induced([node]))[0]
        np.testing.assert_allclose(found[node], alone, rtol=1e-5)


def test_scores_are_those_of_the_chosen_nodes():
    model, graph, nodes = NETWORKS[1], WORLD.graph(), np.array([4, 0, 2])
    found = Nodes(model, CLASSES).score(graph, nodes)
    predictions = Nodes(model, CLASSES).predict(graph)
    assert found.names == ("e", "a", "c")
    assert found.references == ("b", "a", "c")
    assert found.predictions == tuple(predictions[node] for node in nodes)
    expected = confusion(references=found.references, predictions=found.predictions, labels=CLASSES)
    assert list(found.scores()) == ["macro_f1", "micro_f1", "accuracy"]
    assert found.scores()["macro_f1"] == expected.macro_f1()
    assert found.details() == expected.to_json()
    assert next(found.lines()) == {"source": "e", "reference": "b", "hypothesis": found.predictions[0]}


def test_features_of_another_width_are_refused():
    model = GCN(Config(WIDTH + 1, 3), rngs=nnx.Rngs(0))
    with pytest.raises(
        BadInput, match=r"^features = 3 a node: the network reads 4; make them as for what it learned\.$"
    ):
        Nodes(model, CLASSES).predict(WORLD.graph())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda graph: subgraphs(graph, 0), "splits = 0: it must be a whole number of at least 1."),
        (lambda graph: neighbourhoods(graph, -1), "most = -1: it must be a whole number of at least 0."),
    ],
)
def test_numbers_that_are_none_are_refused(make, message):
    with pytest.raises(BadInput, match=f"^{re.escape(message)}$"):
        make(WORLD.graph())
