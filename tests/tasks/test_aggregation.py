"""Noisy sums over neighbours: against a naive loop, and what one node can move in them."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.data.graphs import Graph
from dpnlp.tasks.aggregation import aggregated, scaled, sensitivity

from .worlds import WIDTH, World, neighbours, worlds


class Released:
    """Instead of noise: whatever the sums are, these rows are released. It remembers the sums, hop by hop."""

    __array_ufunc__ = None  # so that NumPy leaves the addition to it

    def __init__(self, rows):
        self.rows, self.sums = rows, []  # [hops, nodes, width]

    def __call__(self, hop, shape):
        assert shape == self.rows[hop].shape
        assert hop == len(self.sums)
        return self

    def __radd__(self, total):
        self.sums.append(total)
        return self.rows[len(self.sums) - 1]


def rows_of(world, hops, scale=1.0):
    """Random rows that belong to a node by its name, [hops, nodes, width]."""
    return np.array(
        [[np.random.default_rng([ord(name), hop]).normal(size=WIDTH) for name in world.names] for hop in range(hops)]
    ).reshape(hops, len(world.names), WIDTH) * np.float32(scale)


def naive(world, hops, noise):
    """[X̄⁰, …, X̄ᵏ], node by node."""
    rows = {name: unit(world.features[name]) for name in world.names}
    found = [rows]
    for hop in range(hops):
        total = {name: np.zeros(WIDTH) for name in world.names}
        for one, other in world.edges:
            total[one] = total[one] + rows[other]
            total[other] = total[other] + rows[one]
        rows = {name: unit(total[name] + noise[hop][place]) for place, name in enumerate(world.names)}
        found.append(rows)
    return np.array([np.concatenate([hop[name] for hop in found]) for name in world.names])


def unit(row):
    length = math.sqrt(sum(number**2 for number in row))
    return np.array(row) / length if length else np.array(row)


@given(worlds(), st.integers(0, 3), st.sampled_from([1e-3, 1.0, 100.0]))
def test_sums_are_those_of_a_naive_loop(world, hops, scale):
    noise = rows_of(world, hops, scale)
    found = aggregated(world.graph(), hops, lambda hop, shape: noise[hop].reshape(shape))
    np.testing.assert_allclose(found.features, naive(world, hops, noise), rtol=1e-5, atol=1e-6)
    assert found.features.dtype == np.float32
    np.testing.assert_array_equal(found.edges, world.graph().edges)
    np.testing.assert_array_equal(found.labels, world.graph().labels)
    assert found.names == world.names


@given(worlds(), st.integers(1, 3))
def test_no_noise_is_noise_of_nothing(world, hops):
    nothing = aggregated(world.graph(), hops, lambda hop, shape: np.zeros(shape, np.float32))
    np.testing.assert_array_equal(aggregated(world.graph(), hops).features, nothing.features)


@given(worlds(), st.integers(0, 3))
def test_rows_have_length_1_or_are_zero(world, hops):
    noise = rows_of(world, hops)
    found = aggregated(world.graph(), hops, lambda hop, shape: noise[hop]).features.reshape(-1, hops + 1, WIDTH)
    lengths = np.linalg.norm(found.astype(np.float64), axis=-1)
    blank = [not any(world.features[name]) for name in world.names]
    np.testing.assert_allclose(lengths[:, 0], np.where(blank, 0, 1), rtol=1e-6)
    np.testing.assert_allclose(lengths[:, 1:], 1, rtol=1e-6)


@given(st.lists(st.tuples(*[st.floats(-(2**100), 2**100, width=32)] * WIDTH), min_size=1, max_size=5))
def test_no_row_is_longer_than_1_however_large_or_small_it_was(rows):
    lengths = np.linalg.norm(scaled(np.array(rows, np.float32)), axis=1)
    assert np.all((np.abs(lengths - 1) < 1e-12) | (lengths == 0))


def sums_of_others(world, name, hops):
    """What is summed for each node but this one at each hop, given the rows released before: [hops, others, width]."""
    released = Released(rows_of(world, hops))
    aggregated(world.graph(), hops, released)
    others = [place for place, other in enumerate(world.names) if other != name]
    return np.array(released.sums)[:, others]


@given(neighbours(), st.integers(1, 3))
def test_a_node_with_d_edges_moves_the_sums_of_all_others_by_at_most_the_root_of_d(case, hops):
    without, world, _, name = case
    before, after = (sums_of_others(each, name, hops) for each in (without, world))
    edges = len(world.edges_of(name))
    most = sensitivity(edges) if edges else 0.0
    found = np.linalg.norm((after - before).reshape(hops, -1), axis=1)
    assert np.all(found <= most + 1e-12)
    if any(world.features[name]):
        np.testing.assert_allclose(found, most, rtol=1e-12)  # The bound is reached by any node that is not blank.


@given(neighbours(), st.integers(1, 3))
def test_a_node_that_is_exchanged_moves_them_by_at_most_twice_that(case, hops):
    """Which is what replace is accounted as."""
    _, world, other, name = case
    before, after = (sums_of_others(each, name, hops) for each in (world, other))
    most = max(len(world.edges_of(name)), len(other.edges_of(name)))
    found = np.linalg.norm((after - before).reshape(hops, -1), axis=1)
    assert np.all(found <= 2 * math.sqrt(most) + 1e-12)


def test_a_row_beside_thousands_of_others_moves_the_sum_by_no_more_than_its_length():
    """In float32 a sum of thousands is rounded to a thousandth of what each of them adds."""
    features = np.abs(np.random.default_rng(0).normal(size=(6001, WIDTH)))
    sums = []
    for first in (0, 1):  # The one that goes is the first, so that all sums after it are rounded otherwise.
        hub = 6000 - first
        graph = Graph.of(features[first:], [(node, hub) for node in range(hub)], [0] * (hub + 1), ("a",))
        released = Released(np.zeros((1, hub + 1, WIDTH)))
        aggregated(graph, 1, released)
        sums.append(released.sums[0][-1])
    assert np.linalg.norm(sums[0] - sums[1]) == pytest.approx(1, abs=1e-9)


@given(st.integers(1, 10**6))
def test_the_sensitivity_is_the_root_of_the_edges(edges):
    assert sensitivity(edges) ** 2 == pytest.approx(edges, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda graph: aggregated(graph, -1), "hops = -1: it must be a whole number of at least 0."),
        (lambda graph: sensitivity(0), "edges = 0: it must be a whole number of at least 1."),
    ],
)
def test_numbers_that_are_none_are_refused(call, message):
    world = World({"a": (1.0, 0.0, 0.0)}, {"a": 0}, frozenset())
    with pytest.raises(BadInput, match=f"^{re.escape(message)}$"):
        call(world.graph())
