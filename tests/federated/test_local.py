"""A user's training against the same by hand; padding, batchmates and other users change nothing of it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpnlp import dropout
from dpnlp.checks import BadInput
from dpnlp.federated import LocalSGD
from dpnlp.training.parameters import apart

from ..training.networks import line_case, tagger_case
from ..training.oracle import assert_same
from .users import line_moved

KEYS = jax.random.split(jax.random.key(0), 32)


def with_dropout(loss):
    def dropped(model, batch):
        with dropout.dropping(batch[0]):
            return loss(model, batch[1])

    return dropped


def moved(case, rows, width, local, keys=KEYS):
    """Δ of a user with these rows, filled up with the last of them."""
    model, loss, arrays = case
    filled = np.minimum(np.arange(width), len(rows) - 1)
    batch = jax.tree.map(lambda array: jnp.asarray(array)[np.asarray(rows)[filled]], (keys, arrays))
    real = jnp.arange(width) < len(rows)
    compiled = jax.jit(partial(local.moved, with_dropout(loss), apart(model)))
    delta, mean = compiled(batch, real)
    return {name: np.asarray(value) for name, value in delta.items()}, float(mean)


@settings(max_examples=15)
@given(
    count=st.sampled_from([1, 2, 3, 5, 8, 10]),
    width=st.sampled_from([10, 12]),
    epochs=st.integers(1, 3),
    batch=st.sampled_from([1, 2, 4, 50]),
)
@example(count=10, width=10, epochs=1, batch=4)
def test_local_sgd_is_a_loop_over_epochs_and_batches(count, width, epochs, batch):
    model, loss, (x, y) = line_case(12, 0)
    local = LocalSGD(0.05, epochs, batch)
    W, b = (np.asarray(v, np.float64) for v in (model.dense.kernel[...], model.dense.bias.value[...]))
    by_hand = line_moved(W, b, x[:count].astype(np.float64), y[:count].astype(np.float64), local)
    found, _ = moved((model, loss, (x, y)), np.arange(count), width, local)
    assert_same(found, {"dense.kernel": by_hand[0], "dense.bias.value": by_hand[1]}, 2e-5)


def test_the_loss_on_the_way_is_the_mean_of_the_examples():
    model, loss, (x, y) = line_case(12, 0)
    _, mean = moved((model, loss, (x, y)), [0, 1, 2, 3, 4], 8, LocalSGD(1e-9, 2, 2))
    assert mean == pytest.approx(float(loss(model, (x[:5], y[:5])).mean()), rel=1e-5)


@pytest.mark.parametrize(("width", "batch", "steps"), [(10, 4, 3), (8, 4, 2), (3, 50, 1)])
def test_an_epoch_has_as_many_steps_as_the_examples_have_batches(width, batch, steps):
    model, loss, arrays = line_case(12, 0)
    seen = []

    def watched(model, given):
        jax.debug.callback(lambda x: seen.append(len(x)), given[0])
        return loss(model, given)

    moved((model, watched, arrays), [0, 1, 2], width, LocalSGD(0.05, 2, batch))
    jax.effects_barrier()
    assert seen == [min(width, batch)] * (2 * steps)


def test_padding_to_any_width_changes_no_bit():
    case, local = tagger_case(9, 2, 4, 5, 0), LocalSGD(0.01, 2, 2)
    found = [moved(case, [3, 4, 5], width, local)[0] for width in (4, 6, 8)]
    for other in found[1:]:
        for name, value in other.items():
            np.testing.assert_array_equal(value, found[0][name])


def test_law_4_an_update_depends_on_the_users_own_examples_alone():
    """Next to a user whose numbers overflow, too."""
    model, loss, (x, y) = line_case(8, 1)
    local, parts = LocalSGD(0.05, 2, 2), apart(model)
    together = jax.jit(jax.vmap(partial(local.moved, with_dropout(loss), parts)))
    keys = KEYS[:8].reshape(2, 4)
    deltas = []
    for poison in (1.0, 1e30, np.nan):
        others = x.copy()
        others[4:] *= poison
        batch = (keys, (jnp.asarray(others).reshape(2, 4, 3), jnp.asarray(y).reshape(2, 4, 2)))
        deltas.append(together(batch, jnp.ones((2, 4), bool))[0])
    for delta in deltas[1:]:
        for name, value in delta.items():
            np.testing.assert_array_equal(value[0], deltas[0][name][0])
            assert not np.isfinite(value[1]).all()


def test_the_order_of_the_examples_is_the_one_they_come_in():
    case, local = line_case(8, 2), LocalSGD(0.1, 1, 1)
    first, again, other = (moved(case, rows, 4, local)[0] for rows in ([0, 1, 2], [0, 1, 2], [2, 1, 0]))
    np.testing.assert_array_equal(first["dense.kernel"], again["dense.kernel"])
    assert not np.allclose(first["dense.kernel"], other["dense.kernel"], rtol=1e-3)


def test_other_entries_are_dropped_in_every_epoch():
    """With a tiny rate two epochs move twice as far as one, unless something else is dropped in the second."""
    model, loss, arrays = line_case(4, 3, dropout=0.5)
    one, two = (moved((model, loss, arrays), [0, 1], 2, LocalSGD(1e-6, epochs, 2))[0] for epochs in (1, 2))
    assert not np.allclose(two["dense.kernel"], 2 * one["dense.kernel"], rtol=1e-2)
    calm = (line_case(4, 3)[0], loss, arrays)
    one, two = (moved(calm, [0, 1], 2, LocalSGD(1e-6, epochs, 2))[0] for epochs in (1, 2))
    np.testing.assert_allclose(two["dense.kernel"], 2 * one["dense.kernel"], rtol=1e-3)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ((0.0,), "local_rate = 0.0: it must be a finite number above 0."),
        ((0.1, 0), "local_epochs = 0: it must be a whole number of at least 1."),
        ((0.1, 1, 0), "local_batch = 0: it must be a whole number of at least 1."),
    ],
)
def test_bad_input(fields, sentence):
    with pytest.raises(BadInput) as error:
        LocalSGD(*fields)
    assert str(error.value) == sentence
