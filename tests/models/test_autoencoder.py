"""The autoencoder against the same in NumPy, one text and one token at a time, and book-keeping on it."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dpnlp import bookkeeping
from dpnlp.checks import BadInput
from dpnlp.models import autoencoder
from dpnlp.models.autoencoder import Autoencoder, Config
from dpnlp.models.generation import Generation

from ..training.test_clipping import assert_equal, clipped_sum, reference
from .test_layers import sigmoid

PAD, START, END = 0, 2, 3
TEXTS = [[2, 5, 4, 6, 3], [2, 3], [2, 6, 6, 3], [2, 4, 5, 5, 4, 3]]


def made(order=2, bound=0.7):
    """One whose latents are clipped, and whose weights are such that texts differ and end."""
    model = Autoencoder(Config(7, width=3, hidden=4, longest=4, order=order, bound=bound), rngs=nnx.Rngs(0))
    for seed, (_, variable) in enumerate(nnx.to_flat_state(nnx.state(model, nnx.Param)), start=200):
        variable.set_value(1.5 * jax.random.normal(jax.random.key(seed), variable.shape))
    return model


def batch(texts=TEXTS, length=6):
    ids, mask = np.zeros((len(texts), length), np.int32), np.zeros((len(texts), length), bool)
    for row, text in enumerate(texts):
        ids[row, : len(text)], mask[row, : len(text)] = text, True
    return {"ids": jnp.asarray(ids), "mask": jnp.asarray(mask)}


# The same in NumPy


def weights(model):
    return {
        ".".join(map(str, path)): np.asarray(value[...], np.float64)
        for path, value in nnx.to_flat_state(nnx.state(model))
    }


def step(w, name, x, h, c):
    gates = x @ w[f"{name}.input.kernel"] + h @ w[f"{name}.recurrent"] + w[f"{name}.input.bias.value"]
    i, f, g, o = np.split(gates, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def latent_by_hand(model, text):
    """h and c after the words and the end of a text, one behind the other."""
    w, h, c = weights(model), np.zeros(4), np.zeros(4)
    for token in text[1:]:
        h, c = step(w, "encoder", w["decoder.tokens.table"][token], h, c)
    return np.concatenate([h, c])


def clip_by_hand(z, order, bound):
    return z * min(1, bound / np.linalg.norm(z, order))


def logs_by_hand(model, z, tokens):
    """The log-probabilities of the token after each of these, from the state z."""
    w, (h, c), found = weights(model), np.split(z, 2), []
    for token in tokens:
        h, c = step(w, "decoder.decoder.0.lstm", w["decoder.tokens.table"][token], h, c)
        x = h @ w["decoder.output.kernel"] + w["decoder.output.bias.value"]
        logits = w["decoder.tokens.table"] @ x / math.sqrt(3)
        found.append(logits - np.log(np.exp(logits).sum()))
    return np.array(found)


@pytest.mark.parametrize(("order", "bound"), [(1, 0.7), (2, 0.7), (2, 100.0)])
def test_the_loss_of_a_text_is_that_of_its_own_words_given_its_clipped_latent(order, bound):
    model = made(order, bound)
    expected = []
    for text in TEXTS:
        z = clip_by_hand(latent_by_hand(model, text), order, bound)
        logs = logs_by_hand(model, z, text[:-1])
        expected.append(-np.mean([logs[place, token] for place, token in enumerate(text[1:])]))
    found = nnx.jit(lambda model, batch: model.losses(batch))(model, batch())
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    longer = nnx.jit(lambda model, batch: model.losses(batch))(model, batch(length=9))
    np.testing.assert_allclose(longer, found, rtol=1e-5)


@pytest.mark.parametrize("size", [1, 3])
def test_a_latent_is_the_state_after_the_last_token_whoever_else_is_read(size):
    model, rows = made(), batch()
    found = autoencoder.read(model, rows["ids"][:, 1:], rows["mask"][:, 1:], size)
    np.testing.assert_allclose(found, [latent_by_hand(model, text) for text in TEXTS], rtol=1e-4, atol=1e-6)


def test_a_state_that_is_no_number_is_read_as_0():
    model, rows = made(), batch()
    model.decoder.tokens.table.set_value(model.decoder.tokens.table[...].at[6].set(jnp.inf))
    found = autoencoder.read(model, rows["ids"][:, 1:], rows["mask"][:, 1:], 4)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[1], latent_by_hand(made(), TEXTS[1]), rtol=1e-4, atol=1e-6)


LATENTS = 2 * np.random.default_rng(0).normal(size=(5, 8))
OPTIONS = {"start": START, "end": END, "pad": PAD}


def trimmed(row):
    row = list(row)
    return row[: row.index(END) + 1] if END in row else row


@pytest.mark.parametrize("size", [2, 5])
def test_greedy_writing_takes_the_most_probable_token_each_time(size):
    model, expected = made(), []
    for z in LATENTS:
        tokens = [START]
        while len(tokens) < 7 and tokens[-1] != END:
            tokens.append(int(np.argmax(logs_by_hand(model, z, tokens)[-1])))
        expected.append(tokens[1:])
    found = autoencoder.write(model, LATENTS, Generation(6, **OPTIONS), size)
    assert [trimmed(row) for row in found] == expected
    assert len({tuple(text) for text in expected}) > 1


def test_a_beam_that_holds_everything_finds_the_most_probable_text():
    """Beams cross while they are sorted, so that each has to find its own state again."""
    model, expected = made(), []
    for z in LATENTS:
        best = (-math.inf, ())
        for text in itertools.product(range(7), repeat=3):
            text = tuple(trimmed(text))
            logs = logs_by_hand(model, z, (START, *text[:-1]))
            best = max(best, (sum(logs[place, token] for place, token in enumerate(text)), text))
        expected.append(list(best[1]))
    options = Generation(3, **OPTIONS, beams=49, length_penalty=0.0, early_stopping="never")
    found = autoencoder.write(model, LATENTS, options, 5)
    assert [trimmed(row) for row in found] == expected


def test_nothing_is_written_of_nothing():
    model = made()
    assert autoencoder.write(model, np.zeros((0, 8)), Generation(6, **OPTIONS), 2).shape == (0, 6)
    assert autoencoder.read(model, np.zeros((0, 5), int), np.zeros((0, 5), bool), 2).shape == (0, 8)


@pytest.mark.parametrize("order", [1, 2])
def test_clipping_in_training_is_scaling_to_the_norm(order):
    config = Config(7, hidden=4, order=order, bound=0.7)
    z = np.random.default_rng(0).normal(size=(6, 8)) * np.array([10, 1, 0.3, 0.1, 1e-3, 0])[:, None]
    found = autoencoder.clipped(jnp.asarray(z, jnp.float32), config)
    expected = [clip_by_hand(row, order, 0.7) if row.any() else row for row in z]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    gradient = jax.grad(lambda z: jnp.sum(autoencoder.clipped(z, config) ** 2))(jnp.asarray(z, jnp.float32))
    assert np.isfinite(gradient).all()


# Book-keeping


def losses(model, batch):
    return model.losses(batch)


def test_book_keeping_is_the_definition():
    model = made()
    found = clipped_sum(losses, model, batch(), jnp.ones(4), 0.1)
    assert_equal(found, *reference(losses, model, batch(), jnp.ones(4), 0.1))
    assert min(found.norms) > 0.1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_clipped_sum_agrees_with_jax_privacy():
    privacy = pytest.importorskip("jax_privacy", reason="jax-privacy is not installed")
    model = made(order=1)
    structure, trained, rest = nnx.split(model, nnx.Param, ...)

    def total(state, batch):
        return losses(nnx.merge(structure, state, rest), batch).sum()

    theirs = privacy.clipped_grad(total, l2_clip_norm=0.3, batch_argnums=1, return_grad_norms=True)
    gradients, seen = jax.jit(theirs)(trained, batch())
    expected = {".".join(map(str, path)): value[...] for path, value in nnx.to_flat_state(gradients)}
    assert_equal(clipped_sum(losses, model, batch(), jnp.ones(4), 0.3), expected, seen.grad_norms)


def test_every_weight_is_noted_so_that_none_falls_back_to_a_gradient_for_each_example():
    model = made()
    params = {id(node) for _, node in nnx.graph.iter_graph(model) if isinstance(node, nnx.Param)}
    with bookkeeping.recording(bookkeeping.Tape(frozenset(params))) as tape:
        jax.eval_shape(lambda: losses(model, batch()))
    assert len(params) == 9
    assert {id(use.weight) for use in tape.uses} == params


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"hidden": 0}, "hidden = 0: it must be a whole number of at least 1."),
        ({"bound": -1.0}, "bound = -1.0: it must be a finite number above 0."),
        ({"order": 3}, "order = 3: it must be 1 or 2, the norm that latents are clipped by."),
    ],
)
def test_a_wrong_shape_is_refused(fields, sentence):
    with pytest.raises(BadInput) as refusal:
        Config(7, **fields)
    assert str(refusal.value) == sentence


def test_the_thesis_s_latent_has_1024_entries():
    assert Config(7).latent == 1024
