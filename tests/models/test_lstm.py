"""The bidirectional LSTM against PyTorch's, with texts of several lengths, and book-keeping on it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dpnlp import bookkeeping
from dpnlp.checks import BadInput
from dpnlp.models.lstm import BiLSTM, mean

from ..training.test_clipping import assert_equal, clipped_sum, reference

torch = pytest.importorskip("torch")

WIDTH, HIDDEN, LENGTHS = 3, 4, np.array([6, 1, 4, 3])
MASK = np.arange(6) < LENGTHS[:, None]


def made():
    """One whose biases are not 0."""
    layer = BiLSTM(WIDTH, HIDDEN, rngs=nnx.Rngs(0))
    for seed, side in enumerate((layer.forward, layer.backward)):
        side.input.bias.value.set_value(jax.random.normal(jax.random.key(seed), (4 * HIDDEN,)))
    return layer


def texts(seed=0):
    return np.asarray(np.random.default_rng(seed).normal(size=(4, 6, WIDTH)), np.float32)


def called(layer, x, mask):
    return np.asarray(nnx.jit(lambda layer, x, mask: layer(x, mask))(layer, x, mask))


def of_torch(layer):
    """PyTorch's with the same weights. It has two biases, of which ours is the sum."""
    theirs = torch.nn.LSTM(WIDTH, HIDDEN, batch_first=True, bidirectional=True)
    with torch.no_grad():
        for ending, side in {"": layer.forward, "_reverse": layer.backward}.items():
            getattr(theirs, f"weight_ih_l0{ending}").copy_(torch.tensor(np.array(side.input.kernel[...].T)))
            getattr(theirs, f"weight_hh_l0{ending}").copy_(torch.tensor(np.array(side.recurrent[...].T)))
            bias = torch.tensor(np.array(side.input.bias.value[...]))
            getattr(theirs, f"bias_ih_l0{ending}").copy_(0.25 * bias)
            getattr(theirs, f"bias_hh_l0{ending}").copy_(0.75 * bias)
    return theirs


def test_it_is_that_of_pytorch_on_texts_of_several_lengths():
    layer, x = made(), texts()
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        torch.tensor(x), torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False
    )
    with torch.no_grad():
        expected, _ = torch.nn.utils.rnn.pad_packed_sequence(of_torch(layer)(packed)[0], batch_first=True)
    found = called(layer, x, MASK)
    assert found.shape == (4, 6, 2 * HIDDEN)
    np.testing.assert_allclose(found[MASK], expected.numpy()[MASK], rtol=1e-5, atol=1e-5)


def test_law_4_no_text_depends_on_another_one_or_on_its_padding():
    layer, x = made(), texts()
    together = called(layer, x, MASK)
    for text, length in enumerate(LENGTHS):
        alone = called(layer, x[text : text + 1, :length], MASK[text : text + 1, :length])
        np.testing.assert_allclose(together[text, :length], alone[0], rtol=1e-5, atol=1e-6)
    others = called(layer, np.where(MASK[..., None], x, 100.0).astype(np.float32), MASK)
    np.testing.assert_array_equal(others, together)


def test_law_4_the_gradient_of_a_text_is_zero_for_all_others():
    layer = made()
    moved = jax.jit(jax.grad(lambda x: jnp.sum(layer(x, MASK)[2, : LENGTHS[2]] ** 2)))(texts())
    rest = np.delete(np.asarray(moved), 2, axis=0)
    assert not rest.any()
    assert not moved[2, LENGTHS[2] :].any()
    assert np.abs(moved[2, : LENGTHS[2]]).min() > 0


def losses(model, batch):
    x, mask, y = batch
    return jnp.sum((mean(model(x, mask), mask) - y) ** 2, axis=-1)


def batch():
    y = jnp.asarray(np.random.default_rng(1).normal(size=(4, 2 * HIDDEN)), jnp.float32)
    return jnp.asarray(texts()), jnp.asarray(MASK), y


def test_book_keeping_is_the_definition():
    layer = made()
    found = clipped_sum(losses, layer, batch(), jnp.ones(4), 0.1)
    assert_equal(found, *reference(losses, layer, batch(), jnp.ones(4), 0.1))
    assert min(found.norms) > 0.1


def test_every_weight_is_noted_so_that_none_falls_back_to_a_gradient_for_each_example():
    layer = made()
    weights = {id(node) for _, node in nnx.graph.iter_graph(layer) if isinstance(node, nnx.Param)}
    with bookkeeping.recording(bookkeeping.Tape(frozenset(weights))) as tape:
        jax.eval_shape(lambda: losses(layer, batch()))
    assert len(weights) == 6
    assert {id(use.weight) for use in tape.uses} == weights


def test_the_mean_is_that_of_the_real_tokens():
    x = texts()
    expected = [x[text, :length].mean(axis=0) for text, length in enumerate(LENGTHS)]
    np.testing.assert_allclose(mean(jnp.asarray(x), jnp.asarray(MASK)), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(mean(jnp.asarray(x[:1]), jnp.zeros((1, 6), bool)), np.zeros((1, WIDTH)))


def test_a_width_that_is_no_width_is_refused():
    with pytest.raises(BadInput, match=r"^hidden = 0: it must be a whole number of at least 1\.$"):
        BiLSTM(WIDTH, 0, rngs=nnx.Rngs(0))
