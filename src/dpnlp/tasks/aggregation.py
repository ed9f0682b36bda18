"""Perturbed aggregation (GAP, Sajadmanesh et al. 2023, arXiv 2203.00949): noisy sums over neighbours, made once.

X̄⁰ has the features of each node, scaled to length 1, and X̄ᵏ the rows of A X̄ᵏ⁻¹ + N, scaled again, with A the edges
and N Gaussian noise. A node that is added or taken away changes the rows of its neighbours, each by its own row of
length 1: with D edges it moves A X̄ᵏ⁻¹ by at most √D. Its own row is part of its own record, as its features are. So
whatever is learned from X̄⁰, …, X̄ᵏ of each node by itself is as private as these sums and that learning together.
Sums are made in float64: in float32 a row beside thousands of others would move them by more than its length.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array

from dpnlp import checks
from dpnlp.data.graphs import Graph

Noise = Callable[[int, tuple[int, ...]], NDArray[np.float32]]
"""The noise on the k-th sum, of this shape; the first is number 0."""


def sensitivity(edges: int) -> float:
    """The most that a node with so many edges moves a sum over neighbours, in the ℓ2 norm: √D."""
    return math.sqrt(checks.count("edges", edges))


def aggregated(graph: Graph, hops: int, noise: Noise | None = None) -> Graph:
    """The graph with [X̄⁰, …, X̄ᵏ] as features, k = `hops`; without noise for nodes that are not protected."""
    ends = np.concatenate([graph.edges, graph.edges[:, ::-1]]).T
    adjacency = coo_array((np.ones(ends.shape[1]), tuple(ends)), shape=(len(graph),) * 2).tocsr()
    found = [scaled(graph.features)]
    for hop in range(checks.count("hops", hops, least=0)):
        total = adjacency @ found[-1]
        found.append(scaled(total if noise is None else total + noise(hop, total.shape)))
    return replace(graph, features=np.concatenate(found, axis=1, dtype=np.float32))


def scaled(rows: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Each row, brought to length 1; one of zeros stays as it is."""
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    found: NDArray[np.float64] = rows / np.where(lengths > 0, lengths, 1)
    return found
