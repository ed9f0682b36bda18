"""Law 11 for graphs: what is accounted for is the most that the unit which is named can do, and no less.

How far two neighbours are apart for the accountant is the noise of a plan over that of its event, times the distance of
its adjacency, in clip norms. That is compared with what one node, one subgraph or the graph really moves in the sum of
clipped gradients over all records.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp.cli.nodes_settings import Learning, Privacy
from dpnlp.events import Gaussian
from dpnlp.guarantee import Adjacency, NoiseSource, Unit
from dpnlp.tasks.aggregation import sensitivity
from dpnlp.tasks.nodes import neighbourhoods, subgraphs, whole

from ..tasks.worlds import World, moved, neighbours, network

EDGES, MOST, SPLITS = 4, 2, 3
WAYS = {
    "node": ({}, lambda graph: neighbourhoods(graph, 0)),
    "node in subgraphs": ({"splits": SPLITS}, lambda graph: subgraphs(graph, SPLITS)),
    "node in neighbourhoods": ({"neighbours": MOST, "edges": EDGES}, lambda graph: neighbourhoods(graph, MOST)),
    "subgraph": ({"unit": "subgraph", "splits": SPLITS}, lambda graph: subgraphs(graph, SPLITS)),
    "graph": ({"unit": "graph"}, whole),
}
CLAIMED = {"node": 1, "node in subgraphs": 2, "node in neighbourhoods": 2 * EDGES + 1, "subgraph": 1, "graph": 1}
NETWORKS = [network(1, 1, 0), network(2, 1, 1, 3.0)]
FLAT = network(1, 1, 0, 0.0)


def planned(records=20, **settings):
    """All records in each of two steps."""
    return Privacy(noise_multiplier=5.0, epsilon=1e3, **settings).plan(records, Learning(steps=2))


def claimed(plan):
    """How far neighbours are apart in the eyes of the accountant, in clip norms."""
    noise = plan.event.event
    assert isinstance(noise, Gaussian)
    return plan.adjacency.distance * plan.noise_multiplier / noise.noise_multiplier


@pytest.mark.parametrize("way", WAYS)
def test_law_11_the_guarantee_names_the_unit_and_the_neighbours_and_the_distance_is_that_of_the_proof(way):
    plan = planned(**WAYS[way][0])
    promised = plan.guarantee(NoiseSource.OS_ENTROPY)
    assert claimed(plan) == pytest.approx(CLAIMED[way])
    assert promised.unit == Unit(way.split()[0])
    assert f"one {promised.unit} " in promised.statement()
    in_subgraphs = way == "node in subgraphs"
    assert promised.adjacency is (Adjacency.REPLACE if in_subgraphs else Adjacency.ADD_REMOVE)
    assert ("were exchanged for any other" if in_subgraphs else "were not in the data") in promised.statement()
    assert promised.epsilon == pytest.approx(planned_for(CLAIMED[way]), rel=1e-3)


def planned_for(distance):
    """The ε of two steps whose noise is that much less."""
    return planned_noise(5.0 / distance).guarantee(NoiseSource.OS_ENTROPY).epsilon


def planned_noise(noise):
    return Privacy(noise_multiplier=noise, epsilon=1e4).plan(20, Learning(steps=2))


def pairs(way, case):
    """Neighbours by the unit of this way: a node, all nodes of a group, or all nodes."""
    without, world, other, name = case
    _, records_of = WAYS[way]
    if way == "graph":
        return [(world, World({}, {}, frozenset()))]
    if way == "subgraph":
        records = records_of(world.graph())
        home = next(row for row in range(SPLITS) if name in members(records, row))
        emptied = world
        for member in members(records, home):
            emptied = emptied.without(member)
        return [(world, emptied)]
    return [(world, without), (world, other)] if way == "node in subgraphs" else [(world, without)]


def members(records, row):
    return [records.graph.names[node] for node in records.nodes.lists([row])[0]]


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=25)
@given(model=st.sampled_from(NETWORKS), case=neighbours())
def test_law_11_no_unit_moves_the_sum_by_more_than_is_accounted_for(way, model, case):
    _, world, _, name = case
    if len(world.edges_of(name)) > EDGES:
        return  # That is what the statement says of hubs.
    most = claimed(planned(**WAYS[way][0]))
    for one, other in pairs(way, case):
        records = [WAYS[way][1](each.graph()) for each in (one, other)]
        assert moved(model, *records) <= most * (1 + 1e-5)


def loud(way):
    """Neighbours that are as far apart as can be: a node shouts the opposite of what all others say."""
    names = "abcd"[:EDGES]
    if way in ("node", "subgraph", "graph"):
        small = World({}, {}, frozenset())
        return small, small.with_node("x", (-1000.0, 0.0, 0.0), 0, ())
    small = World(dict.fromkeys(names, (1.0, 0.0, 0.0)), dict.fromkeys(names, 0), frozenset())
    if way == "node in subgraphs":
        small = small.with_node("x", (1000.0, 0.0, 0.0), 0, names)
        return small, small.without("x").with_node("x", (-1000.0, 0.0, 0.0), 0, names)
    return small, small.with_node("x", (-1000.0, 0.0, 0.0), 0, names)


@pytest.mark.parametrize("way", WAYS)
def test_law_11_a_smaller_claim_would_not_hold(way):
    records = [WAYS[way][1](world.graph()) for world in loud(way)]
    assert moved(FLAT, *records) == pytest.approx(claimed(planned(**WAYS[way][0])), rel=1e-2)


def test_law_11_a_node_that_is_exchanged_for_one_of_another_name_is_two_nodes():
    """It moves two subgraphs, by twice what is accounted for, as the statement says of names."""
    alone = World(dict.fromkeys("abcdefgh", (1.0, 0.0, 0.0)), dict.fromkeys("abcdefgh", 0), frozenset())
    of = WAYS["node in subgraphs"][1]
    most = claimed(planned(**WAYS["node in subgraphs"][0]))
    most_moved = 0.0
    for other in map(str, range(12)):
        one = alone.with_node("x", (1000.0, 0.0, 0.0), 0, ())
        two = alone.with_node(other, (-1000.0, 0.0, 0.0), 0, ())
        most_moved = max(most_moved, moved(FLAT, of(one.graph()), of(two.graph())))
    assert most * 0.9 < most_moved <= 2 * most * (1 + 1e-5)


@pytest.mark.parametrize("edges", [1, 9])
def test_law_11_noise_on_sums_over_neighbours_is_measured_by_what_a_node_moves(edges):
    plan = planned(aggregations=2, edges=edges)
    *releases, _ = plan.event.events
    assert len(releases) == 2
    for hop, release in enumerate(releases):
        stddev = plan.aggregation_stddev(hop, sensitivity(edges))
        assert stddev / release.noise_multiplier == pytest.approx(edges**0.5)
    assert plan.unit is Unit.NODE
    assert plan.adjacency is Adjacency.ADD_REMOVE
