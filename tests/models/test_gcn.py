"""Graph convolutional networks against dense algebra and PyTorch's sparse one, and book-keeping on them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp import bookkeeping, dropout
from dpnlp.checks import BadInput
from dpnlp.models.gcn import GCN, Config, averaged
from dpnlp.tasks.nodes import node_loss

from ..training.test_clipping import assert_equal, clipped_sum, reference

GRAPHS, NODES, EDGES, WIDTH, CLASSES = 3, 5, 7, 3, 4
"""One shape for all, so that little is compiled; what is in it differs."""
SHAPES = [(1, 1), (2, 1), (1, 2), (2, 0), (2, 2)]
"""Layers and hops: Kipf and Welling have (2, 1), Wu et al. (1, k), and without hops it is a plain network."""


@st.composite
def batches(draw):
    """Graphs of 1 to 5 nodes, the rest of which is padding, with any edges between them; padding is outside."""
    features = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).normal(size=(GRAPHS, NODES, WIDTH))
    sizes, edges = [], np.empty((GRAPHS, EDGES, 2), np.int32)
    for graph in range(GRAPHS):
        size = draw(st.integers(1, NODES))
        pairs = [(a, b) for b in range(size) for a in range(b)]
        chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=EDGES)) if pairs else []
        nowhere = draw(
            st.sampled_from([(NODES, NODES), (0, NODES), (NODES + 3, 0)])
        )  # one end inside is no edge either
        edges[graph] = draw(st.permutations([*chosen, *[nowhere] * (EDGES - len(chosen))]))
        sizes.append(size)
    real = np.arange(NODES) < np.array(sizes)[:, None]
    return {"features": np.where(real[..., None], features, 0).astype(np.float32), "edges": edges}, sizes


def propagation(edges, size):
    """Â = D̂^−½ (A + I) D̂^−½, with each entry written out."""
    joined = np.eye(size)
    for a, b in edges:
        if a < size and b < size:
            joined[a, b] = joined[b, a] = 1
    degrees = joined.sum(axis=1)
    return np.array([[joined[i, j] / np.sqrt(degrees[i] * degrees[j]) for j in range(size)] for i in range(size)])


def made(layers, hops, rate=0.0):
    return GCN(Config(WIDTH, CLASSES, hidden=6, layers=layers, hops=hops, dropout=rate), rngs=nnx.Rngs(3))


@partial(jax.jit, static_argnums=0)
def _logits(structure, state, batch):
    return nnx.merge(structure, state)(batch)


def logits(model, batch):
    return np.asarray(_logits(*nnx.split(model), batch))


AVERAGED = jax.jit(averaged)


@settings(max_examples=60)
@given(batches())
def test_neighbours_are_averaged_as_by_the_dense_matrix(case):
    batch, sizes = case
    found = np.asarray(AVERAGED(batch["features"], batch["edges"]))
    for graph, size in enumerate(sizes):
        expected = propagation(batch["edges"][graph], size) @ batch["features"][graph, :size]
        np.testing.assert_allclose(found[graph, :size], expected, rtol=1e-5, atol=1e-6)
    assert not any(found[graph, size:].any() for graph, size in enumerate(sizes))


@pytest.mark.parametrize(("layers", "hops"), SHAPES)
@settings(max_examples=15)
@given(case=batches())
def test_a_network_is_products_of_dense_matrices(layers, hops, case):
    batch, sizes = case
    model = made(layers, hops)
    found = logits(model, batch)
    for graph, size in enumerate(sizes):
        hop = np.linalg.matrix_power(propagation(batch["edges"][graph], size), hops)
        states = batch["features"][graph, :size].astype(np.float64)
        for number, linear in enumerate(model.linear):
            states = hop @ (np.maximum(states, 0) if number else states) @ np.asarray(linear.kernel[...], np.float64)
        np.testing.assert_allclose(found[graph, :size], states, rtol=1e-4, atol=1e-5)


@settings(max_examples=15)
@given(batches())
def test_a_network_is_that_of_pytorch_with_sparse_matrices(case):
    torch = pytest.importorskip("torch")
    batch, sizes = case
    model = made(2, 1)
    weights = [torch.tensor(np.array(linear.kernel[...])) for linear in model.linear]
    found = logits(model, batch)
    for graph, size in enumerate(sizes):
        edges = torch.tensor([edge for edge in batch["edges"][graph].tolist() if max(edge) < size]).reshape(-1, 2)
        ends = torch.cat([edges, edges.flip(1), torch.arange(size)[:, None].expand(-1, 2)]).T.long()
        degrees = torch.bincount(ends[0], minlength=size).float()
        hop = torch.sparse_coo_tensor(ends, degrees[ends].rsqrt().prod(0), (size, size), check_invariants=True)
        hidden = torch.relu(torch.sparse.mm(hop, torch.tensor(batch["features"][graph, :size]) @ weights[0]))
        expected = torch.sparse.mm(hop, hidden @ weights[1])
        np.testing.assert_allclose(found[graph, :size], expected.numpy(), rtol=1e-4, atol=1e-5)


@settings(max_examples=20)
@given(batches())
def test_law_4_graphs_of_a_batch_do_not_touch_each_other(case):
    """Not by a bit: whatever the others are, and in whatever place this one stands."""
    batch, _ = case
    model = made(2, 1)
    together = logits(model, batch)
    junk = np.random.default_rng(0).normal(size=batch["features"].shape).astype(np.float32)
    for graph in range(GRAPHS):
        others = np.arange(GRAPHS) != graph
        changed = {
            "features": np.where(others[:, None, None], junk, batch["features"]),
            "edges": np.where(others[:, None, None], batch["edges"][::-1], batch["edges"]),
        }
        np.testing.assert_array_equal(logits(model, changed)[graph], together[graph])
    turned = logits(model, {name: value[::-1] for name, value in batch.items()})
    np.testing.assert_array_equal(turned[::-1], together)


def some_batch():
    """Three graphs of 5, 3 and 4 nodes, of which the last has no edges, and labels for some of the nodes."""
    rng = np.random.default_rng(1)
    edges = np.full((GRAPHS, EDGES, 2), NODES, np.int32)
    edges[0, :5], edges[1, :2] = [(0, 1), (0, 2), (2, 3), (0, 3), (3, 4)], [(0, 2), (1, 2)]
    labels = np.array([[0, 1, -1, 2, 3], [1, 1, -1, -1, -1], [-1, 2, 0, 3, -1]])
    return {
        "features": jnp.asarray(rng.normal(size=(GRAPHS, NODES, WIDTH)), jnp.float32),
        "edges": jnp.asarray(edges),
        "labels": jnp.asarray(labels),
    }


@pytest.mark.parametrize(("layers", "hops"), SHAPES)
def test_book_keeping_is_the_definition(layers, hops):
    """The last graph counts for nothing, and the first is clipped."""
    model, batch, weights = made(layers, hops), some_batch(), jnp.array([1.0, 1.0, 0.0])
    found = clipped_sum(node_loss, model, batch, weights, 0.05)
    expected, norms = reference(node_loss, model, batch, weights, 0.05)
    assert_equal(found, expected, norms)
    assert float(norms[0]) > 0.05
    assert float(norms[2]) == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_clipped_sum_is_that_of_jax_privacy():
    privacy = pytest.importorskip("jax_privacy", reason="jax-privacy is not installed")
    model, batch = made(2, 1), some_batch()
    structure, trained = nnx.split(model)

    def total(state, batch):
        return node_loss(nnx.merge(structure, state), batch).sum()

    theirs = privacy.clipped_grad(total, l2_clip_norm=0.05, batch_argnums=1, return_grad_norms=True)
    gradients, seen = jax.jit(theirs)(trained, batch)
    expected = {".".join(map(str, path)): value[...] for path, value in nnx.to_flat_state(gradients)}
    assert_equal(clipped_sum(node_loss, model, batch, jnp.ones(GRAPHS), 0.05), expected, seen.grad_norms)


def test_every_weight_is_noted_so_that_none_falls_back_to_a_gradient_for_each_record():
    model = made(2, 2)
    weights = {id(node) for _, node in nnx.graph.iter_graph(model) if isinstance(node, nnx.Param)}
    with bookkeeping.recording(bookkeeping.Tape(frozenset(weights))) as tape:
        jax.eval_shape(lambda: node_loss(model, some_batch()))
    assert len(weights) == 2
    assert {id(use.weight) for use in tape.uses} == weights


def test_dropout_belongs_to_the_record():
    """The same numbers are dropped wherever a graph stands, others in another graph, and none where nothing learns."""
    model, batch = made(2, 1, rate=0.5), some_batch()
    structure, state = nnx.split(model)

    @jax.jit
    def dropped(keys, batch):
        with dropout.dropping(keys):
            return nnx.merge(structure, state)(batch)

    keys = jax.random.split(jax.random.key(0), GRAPHS)
    together = np.asarray(dropped(keys, batch))
    turned = dropped(keys[::-1], {name: value[::-1] for name, value in batch.items()})
    np.testing.assert_array_equal(np.asarray(turned)[::-1], together)
    alike = {name: jnp.stack([value[0]] * GRAPHS) for name, value in batch.items()}
    answers = np.asarray(dropped(keys, alike))
    assert not np.allclose(answers[0], answers[1])
    np.testing.assert_array_equal(logits(model, batch), logits(made(2, 1), batch))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"features": 0}, r"features = 0: it must be a whole number of at least 1\."),
        ({"hidden": 0}, r"hidden = 0: it must be a whole number of at least 1\."),
        ({"layers": 0}, r"layers = 0: it must be a whole number of at least 1\."),
        ({"classes": 1}, r"classes = 1: it must be a whole number of at least 2\."),
        ({"hops": -1}, r"hops = -1: it must be a whole number of at least 0\."),
        ({"dropout": 1.0}, r"dropout = 1\.0: it must be at least 0 and below 1\."),
    ],
)
def test_a_shape_that_is_none_is_refused(changed, message):
    with pytest.raises(BadInput, match=f"^{message}$"):
        GCN(Config(**{"features": 2, "classes": 2} | changed), rngs=nnx.Rngs(0))
