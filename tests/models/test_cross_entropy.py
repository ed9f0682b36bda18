"""The loss against PyTorch's and against itself in one piece, its memory, and its gradients under book-keeping."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.models import bart, lora
from dpnlp.models.cross_entropy import CHUNK, LARGE, losses, token_losses
from dpnlp.models.layers import Embedding, Linear
from dpnlp.models.t5 import T5, Config
from dpnlp.models.writer import OutputLayer
from dpnlp.training.clipping import Clipping

from ..training.test_clipping import assert_equal, assert_same_sum, clipped_sum, length, reference


class Decoder(nnx.Module):
    """The end of an encoder-decoder: states are rows of the table, and the output layer is the table too, or not."""

    def __init__(self, vocabulary, width, tied, bias=None, scale=0.7):
        self.tokens = Embedding(vocabulary, width, rngs=nnx.Rngs(0))
        self.own = None if tied else Linear(width, vocabulary, bias=False, rngs=nnx.Rngs(1))
        self.bias, self.scale = nnx.Variable(jnp.zeros(vocabulary) if bias is None else bias), scale

    def output_layer(self):
        return OutputLayer(self.tokens if self.own is None else self.own, self.scale, self.bias[...])

    def logits(self, states):
        return self.output_layer()(states)

    @property
    def weight(self):
        return self.tokens.table if self.own is None else self.own.kernel


def case(vocabulary=23, width=6, tied=True, batch=3, positions=4, seed=0):
    rng = np.random.default_rng(seed)
    model = Decoder(vocabulary, width, tied, jnp.asarray(rng.normal(size=vocabulary), jnp.float32))
    states = jnp.asarray(rng.normal(size=(batch, positions, width)), jnp.float32)
    return model, states, jnp.asarray(rng.integers(0, vocabulary, (batch, positions)))


def gradients(model, states, targets, upstream, smoothing, chunk):
    """The losses, and the gradients of Σ upstream · loss with respect to the states and the output layer."""
    structure, weights, rest = nnx.split(model, lambda path, value: value is model.weight, ...)

    @jax.jit
    def compiled(states, weights):
        def total(states, weights):
            found = token_losses(nnx.merge(structure, weights, rest), states, targets, smoothing, chunk)
            return jnp.sum(upstream * found), found

        return jax.grad(total, argnums=(0, 1), has_aux=True)(states, weights)

    (of_states, of_weights), found = compiled(states, weights)
    return found, of_states, *jax.tree.leaves(of_weights)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("chunk", [None, 5])
def test_values_and_gradients_are_those_of_pytorch(chunk, tied, smoothing):
    torch = pytest.importorskip("torch")
    model, states, targets = case(tied=tied)
    upstream = np.random.default_rng(1).normal(size=targets.shape).astype(np.float32)
    ours = gradients(model, states, targets, upstream, smoothing, chunk)

    x, weight = (torch.tensor(np.array(a), requires_grad=True) for a in (states, model.weight[...]))
    logits = model.scale * x @ (weight.T if tied else weight) + torch.tensor(np.array(model.bias[...]))
    theirs = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1),
        torch.tensor(np.array(targets, np.int64)).flatten(),
        reduction="none",
        label_smoothing=smoothing,
    ).reshape(targets.shape)
    (theirs * torch.tensor(upstream)).sum().backward()
    for found, expected in zip(ours, (theirs, x.grad, weight.grad), strict=True):
        np.testing.assert_allclose(found, expected.detach(), rtol=1e-5, atol=2e-6)


@settings(max_examples=8)
@given(
    vocabulary=st.sampled_from([7, 24, 2]),
    chunk=st.sampled_from([5, 3, 1, 100]),
    tied=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.3]),
    shape=st.sampled_from([(1, 1), (2, 5)]),
    spread=st.sampled_from([1.0, 300.0]),
)
def test_chunks_change_nothing(vocabulary, chunk, tied, smoothing, shape, spread):
    model, states, targets = case(vocabulary, 3, tied, *shape)
    whole, by_chunks = (
        gradients(model, spread * states, targets, jnp.ones(shape), smoothing, one) for one in (None, chunk)
    )
    for found, expected in zip(by_chunks, whole, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * spread)


@pytest.mark.parametrize("tied", [True, False])
def test_chunks_take_less_memory_than_the_logits(tied):
    model, states, targets = case(3001, 16, tied, batch=8, positions=32)
    structure, weights, rest = nnx.split(model, nnx.Param, ...)
    logits = 4 * targets.size * 3001

    def total(states, weights, chunk):
        return jnp.sum(token_losses(nnx.merge(structure, weights, rest), states, targets, 0.1, chunk))

    def needed(computation, chunk):
        compiled = jax.jit(computation, static_argnums=2).lower(states, weights, chunk).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    for computation in (total, jax.grad(total, argnums=(0, 1)), jax.grad(total)):
        assert needed(computation, 300) < 0.5 * logits
        assert needed(computation, None) > logits


def test_sixteen_bit_logits_are_kept_in_sixteen_bits():
    model, states, targets = case(101)
    _, backward = jax.vjp(lambda x: token_losses(model, x, targets), states.astype(jnp.bfloat16))
    kept = {leaf.dtype for leaf in jax.tree.leaves(backward) if leaf.ndim == 3 and leaf.shape[-1] == 101}
    assert kept == {jnp.dtype(jnp.bfloat16)}


@pytest.mark.parametrize("tied", [True, False])
def test_sixteen_bit_logits_give_the_loss_of_their_float32_values(tied):
    model, states, targets = case(50, tied=tied)
    half = states.astype(jnp.bfloat16)
    expected = -jnp.take_along_axis(
        jax.nn.log_softmax(model.logits(half).astype(jnp.float32)), targets[..., None], axis=-1
    )[..., 0]
    for chunk in (None, 7):
        found = jax.jit(lambda x, chunk=chunk: token_losses(model, x, targets, chunk=chunk))(half)
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, expected, rtol=1e-2)


@pytest.mark.parametrize(("dtype", "vocabulary"), [("float32", LARGE + 1), ("float32", LARGE), ("bfloat16", LARGE + 1)])
def test_only_large_float32_logits_are_computed_by_chunks(dtype, vocabulary):
    model, states, targets = case(vocabulary, 2, batch=1, positions=3)
    text = str(jax.make_jaxpr(lambda x: token_losses(model, x, targets))(states.astype(dtype)))
    by_chunks = dtype == "float32" and vocabulary > LARGE
    assert (f"[3,{CHUNK}]" in text) == by_chunks
    assert (f"[1,3,{vocabulary}]" in text) != by_chunks


def of_examples(chunk, smoothing=0.0):
    """A loss per example in which the table is used for the inputs as well."""

    def loss(model, batch):
        ids, targets = batch
        return jnp.sum(token_losses(model, model.tokens(ids), targets, smoothing, chunk), axis=1)

    return loss


@pytest.mark.parametrize("positions", [2, 9])
@pytest.mark.parametrize(("vocabulary", "width"), [(23, 4), (5, 8)])
@pytest.mark.parametrize("tied", [True, False])
def test_book_keeping_of_chunks_is_the_definition(tied, vocabulary, width, positions):
    model, _, targets = case(vocabulary, width, tied, batch=4, positions=positions)
    data = (jnp.roll(targets, 1, axis=1), targets)
    clipped = clipped_sum(of_examples(4, 0.1), model, data, jnp.ones(4), 0.5)
    assert_equal(clipped, *reference(of_examples(None, 0.1), model, data, jnp.ones(4), 0.5))
    assert_equal(clipped, *reference(of_examples(4, 0.1), model, data, jnp.ones(4), 0.5))


@pytest.mark.parametrize("part", ["own", "tokens"])
def test_chunks_serve_a_frozen_output_layer_and_frozen_states(part):
    model, _, targets = case(23, 4, tied=False, batch=4)
    data = (jnp.roll(targets, 1, axis=1), targets)

    def trains(path, value):
        return isinstance(value, nnx.Param) and path[0] == part

    clipped = clipped_sum(of_examples(4), model, data, jnp.ones(4), 0.5, trains)
    assert_equal(clipped, *reference(of_examples(None), model, data, jnp.ones(4), 0.5, trains))
    assert sorted(clipped.gradients) == [{"own": "own.kernel", "tokens": "tokens.table"}[part]]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("chunk", [None, 7])
@pytest.mark.parametrize("tied", [True, False])
def test_law_5_no_record_contributes_more_than_the_clip_norm(tied, chunk, dtype):
    model, _, targets = case(23, 6, tied, batch=3)
    data = (jnp.roll(targets, 1, axis=1), targets)

    def loss(model, batch):
        return 50 * jnp.sum(token_losses(model, model.tokens(batch[0]).astype(dtype), batch[1], 0.0, chunk), axis=1)

    for one in range(3):
        moved = length(clipped_sum(loss, model, data, jnp.eye(3)[one], Clipping(0.25)).gradients)
        assert 0.25 * 0.9 < moved <= 0.25 * (1 + 1e-6)


@pytest.mark.parametrize(("vocabulary", "width"), [(23, 4), (5, 8)])
@pytest.mark.parametrize("tied", [True, False])
def test_a_gradient_that_is_no_number_counts_as_zero(tied, vocabulary, width):
    model, _, targets = case(vocabulary, width, tied, batch=3)
    scale = jnp.array([1.0, jnp.nan, 1.0])

    def loss(model, batch):
        x = batch[2][:, None, None] * model.tokens(batch[0])
        return jnp.sum(token_losses(model, x, batch[1], chunk=3), axis=1)

    found = clipped_sum(loss, model, (targets, targets, scale), jnp.ones(3), 0.3)
    silent = clipped_sum(loss, model, (targets, targets, jnp.ones(3)), jnp.array([1.0, 0.0, 1.0]), 0.3)
    assert np.isfinite(found.norms).tolist() == [True, False, True]
    assert_same_sum(found.gradients, silent.gradients)


def t5_case(**options):
    rng = np.random.default_rng(0)
    model = T5(Config(31, 8, 2, 4, 16, 1, 1, **options), rngs=nnx.Rngs(0))
    ids, inputs, targets = (jnp.asarray(rng.integers(1, 31, (3, 5))) for _ in range(3))
    mask, target_mask = (jnp.arange(5) < jnp.array(lengths)[:, None] for lengths in ([5, 3, 1], [5, 2, 0]))
    return model, {"ids": ids, "mask": mask, "inputs": inputs, "targets": targets, "target_mask": target_mask}


@pytest.mark.parametrize("chunk", [None, 8])
@pytest.mark.parametrize("mean", [True, False])
def test_an_example_counts_its_own_tokens(mean, chunk):
    model, batch = t5_case()
    found = nnx.jit(lambda m: losses(m, batch, mean=mean, chunk=chunk))(model)
    logits = nnx.jit(lambda m: m(batch["ids"], batch["mask"], batch["inputs"]))(model)
    logs = np.asarray(jax.nn.log_softmax(logits), np.float64)
    for row, count in enumerate([5, 2, 0]):
        own = [-logs[row, at, batch["targets"][row, at]] for at in range(count)]
        expected = sum(own) / (max(count, 1) if mean else 1)
        assert found[row] == pytest.approx(expected, rel=1e-5)
    assert found[2] == 0


@pytest.mark.parametrize("options", [{}, {"tied": False, "output_bias": False}])
def test_the_output_layer_of_bart_may_be_used_by_chunks(options):
    _, batch = t5_case()
    model = bart.BART(bart.Config(31, 8, 1, 2, 16, 1, 2, 16, positions=8, **options), rngs=nnx.Rngs(0))
    if model.output_bias is not None:
        model.output_bias.set_value(jnp.linspace(-2.0, 2.0, 31).reshape(model.output_bias.shape))
    whole, by_chunks = (
        nnx.jit(lambda m, c=chunk: losses(m, batch, smoothing=0.1, chunk=c))(model) for chunk in (None, 8)
    )
    np.testing.assert_allclose(by_chunks, whole, rtol=1e-5)


@pytest.mark.parametrize("chunk", [None, 8])
def test_masked_tokens_add_nothing_whatever_they_are(chunk):
    """Neither to the loss nor to the gradient, and an example without any has a gradient of 0."""
    model, batch = t5_case()
    junk = jnp.where(batch["target_mask"], batch["targets"], -100)

    @nnx.jit
    def both(model, batch):
        return losses(model, batch, chunk=chunk), nnx.grad(lambda m: losses(m, batch, chunk=chunk)[2])(model)

    found, of_empty = both(model, batch | {"targets": junk})
    np.testing.assert_array_equal(found, both(model, batch)[0])
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(of_empty))


def test_what_cannot_be_computed_is_refused():
    model, batch = t5_case(tied=False)
    for smoothing in (1.0, -0.1, math.nan):
        with pytest.raises(BadInput) as refusal:
            losses(model, batch, smoothing=smoothing)
        assert str(refusal.value) == (
            f"smoothing = {smoothing}: it must be at least 0 and below 1; 0.1 is usual, 0 smooths nothing."
        )
    with pytest.raises(BadInput, match="chunk = 0: it must be a whole number of at least 1"):
        losses(model, batch, chunk=0)
    lora.adapt(model, 2, where=["head"], rngs=nnx.Rngs(0))
    assert losses(model, batch).shape == (3,)
    with pytest.raises(BadInput) as refusal:
        losses(model, batch, chunk=8)
    assert str(refusal.value) == (
        "chunk = 8: the output layer is no plain matrix; merge its adapters, or give no chunk."
    )
