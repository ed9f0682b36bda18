"""Losses that mix examples are refused before a run starts, each as an earlier system had it; others are not."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dpnlp.checks import BadInput
from dpnlp.models.layers import LSTM, Linear
from dpnlp.training.independence import refuse_mixing
from dpnlp.training.parameters import apart

from .networks import line_case, recurrent_case, squared_error, tagger_case, translator_case

MIXED = (
    "loss: the loss of an example changes with what else is in its batch; normalise it by the example's own tokens, "
    "and keep the batch on the first axis of every layer."
)


def refused(model, loss, batch):
    """The sentence of the refusal."""
    with pytest.raises(BadInput) as refusal:
        refuse_mixing(loss, apart(model), batch)
    return str(refusal.value)


@pytest.mark.parametrize("case", [tagger_case, translator_case, recurrent_case])
@pytest.mark.parametrize("examples", [1, 4])
def test_a_loss_of_each_example_by_itself_is_let_through(case, examples):
    model, loss, batch = case(examples, 3, 4, 5, 0)
    refuse_mixing(loss, apart(model), batch)


def test_small_losses_beside_a_large_one_may_have_its_rounding():
    model, _, (x, y) = line_case(4, 0)

    def rounded(model, batch):
        """Alone an example has a loss of 0.001, beside others one of 0.0011: logits of 1e4 round that much."""
        small = 0.001 if len(batch[0]) == 1 else 0.0011
        return jnp.where(batch[0][:, 0] == x[0, 0], 10.0, small)

    refuse_mixing(rounded, apart(model), (x, y))


def test_products_are_compared_in_full_precision():
    model, loss, batch = line_case(4, 0)
    seen = set()

    def watched(model, batch):
        seen.add((len(batch[0]), jax.config.jax_default_matmul_precision))
        return loss(model, batch)

    refuse_mixing(watched, apart(model), batch)
    assert {(4, "highest"), (1, "highest")} <= seen


def test_a_batch_of_host_arrays_is_let_through():
    model, loss, batch = line_case(4, 0)
    assert all(isinstance(leaf, np.ndarray) for leaf in batch)
    refuse_mixing(loss, apart(model), batch)


class Sorting(nnx.Module):
    """Computes in the order of the first features, and gives its answers in the order of the examples."""

    def __init__(self):
        self.first, self.last = (Linear(3, 3, bias=False, rngs=nnx.Rngs(n)) for n in (0, 1))

    def __call__(self, x):
        order = jnp.argsort(x[:, 0])
        return self.last(jnp.tanh(self.first(x))[order])[jnp.argsort(order)].sum(axis=1)


def test_examples_that_are_sorted_on_the_way_are_refused():
    """Their losses come out in order, and each depends on its own example alone, but not at the same row everywhere."""
    x = np.float32([[3, 1, 1], [2, 0, 1], [1, 1, 0], [0, 2, 1]])
    assert refused(Sorting(), lambda model, batch: model(batch), x) == (
        "loss: what a layer makes of an example changes the loss of another one; keep the examples in their order in "
        "every layer."
    )


def test_a_mean_over_the_tokens_of_the_batch_is_refused():
    model, _, batch = translator_case(4, 3, 4, 5, 1)

    def token_mean(model, batch):
        source, target, mask = batch
        logs = jax.nn.log_softmax(model(source, target[:, :-1]))
        return -(jnp.take_along_axis(logs, target[:, 1:, None], axis=-1)[..., 0] * mask).sum(axis=1) / mask.sum()

    assert refused(model, token_mean, batch) == MIXED


class TimeMajor(nnx.Module):
    """An LSTM that is handed [time, batch, width] where it expects [batch, time, width]."""

    def __init__(self, width, rngs, reverse=False):
        self.recurrent = LSTM(width, width, reverse=reverse, rngs=rngs)
        self.head = Linear(width, width, rngs=rngs)

    def __call__(self, x):
        h = self.recurrent(jnp.swapaxes(x, 0, 1), jnp.ones((x.shape[1], x.shape[0])))
        return self.head(jnp.swapaxes(h, 0, 1))


class AcrossTheBatch(nnx.Module):
    """Attention whose keys are those of all examples."""

    def __init__(self, width, rngs):
        self.query = Linear(width, width, rngs=rngs)

    def __call__(self, x):
        scores = jnp.einsum("btd,csd->btcs", self.query(x), x)
        weights = jax.nn.softmax(scores.reshape(*x.shape[:2], -1)).reshape(scores.shape)
        return jnp.einsum("btcs,csd->btd", weights, x)


class Centred(nnx.Module):
    """The mean of the batch is taken off, without a statistic that is kept."""

    def __init__(self, width, rngs):
        self.dense = Linear(width, width, rngs=rngs)

    def __call__(self, x):
        return self.dense(x - x.mean(axis=0))


@pytest.mark.parametrize(
    "network",
    [TimeMajor, partial(TimeMajor, reverse=True), AcrossTheBatch, Centred],
    ids=["time-major", "time-major, reversed", "attention", "mean"],
)
def test_a_network_that_looks_across_the_batch_is_refused(network):
    _, loss, batch = tagger_case(4, 4, 6, 5, 2)
    assert loss is squared_error
    assert refused(network(width=6, rngs=nnx.Rngs(0)), loss, batch) == MIXED


def test_a_loss_relative_to_the_others_is_refused():
    model, loss, batch = line_case(4, 3)
    assert refused(model, lambda model, batch: jax.nn.softmax(loss(model, batch)), batch) == MIXED


def test_batch_statistics_are_refused_by_name():
    class Batchwise(nnx.Module):
        def __init__(self, rngs):
            self.layers = nnx.List([nnx.Linear(3, 2, rngs=rngs), nnx.BatchNorm(2, rngs=rngs)])

        def __call__(self, x):
            return self.layers[1](self.layers[0](x), use_running_average=True)

    _, loss, batch = line_case(4, 3)
    assert refused(Batchwise(nnx.Rngs(0)), loss, batch) == (
        "layers.1.mean: batch statistics mix the examples of a batch, so that no gradient is one example's alone; use "
        "a layer norm instead."
    )


@pytest.mark.parametrize(
    ("wrong", "shape"),
    [
        (lambda losses: losses.mean(), "()"),
        (lambda losses: losses[:, None], "(4, 1)"),
        (lambda losses: losses[:2], "(2,)"),
    ],
)
def test_a_loss_without_a_value_for_each_example_is_refused(wrong, shape):
    model, loss, batch = line_case(4, 3)
    assert refused(model, lambda model, batch: wrong(loss(model, batch)), batch) == (
        f"loss: it has the shape {shape} for a batch of 4 examples, and must have a value for each; do not sum or "
        "average over the batch."
    )


def test_mixing_is_found_although_the_first_example_is_broken():
    model, loss, (x, y) = line_case(4, 3)
    x[0] = np.nan

    def mixing(model, batch):
        losses = loss(model, batch)
        return losses / jnp.sum(jnp.nan_to_num(losses))

    assert refused(model, mixing, (x, y)) == MIXED


def test_a_loss_that_is_divided_by_the_size_of_the_batch_is_refused():
    """The sizes of the physical batches depend on who else was drawn."""
    model, loss, batch = line_case(4, 3)
    assert refused(model, lambda model, batch: loss(model, batch) / len(batch[0]), batch)


class PlacedDropout(nnx.Module):
    """Flax's own dropout, which draws by the place in the batch."""

    def __init__(self, rngs):
        self.dense = Linear(3, 2, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.dense(self.dropout(x))


def test_randomness_that_belongs_to_a_place_in_the_batch_is_refused():
    """Where an example stands in which batch depends on who else was drawn."""
    _, loss, batch = line_case(4, 3)
    assert refused(PlacedDropout(nnx.Rngs(0, dropout=1)), loss, batch)
