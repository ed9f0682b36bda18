"""What a batch of clipped gradients shows of its records, in the diagnostics that a user asked for."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dpnlp.accounting.subsampling import Schedule
from dpnlp.training.clipping import Clipping
from dpnlp.training.contributions import GRADIENTS, Seen
from dpnlp.training.parameters import apart
from dpnlp.training.plan import Plan


class Arrow(nnx.Module):
    """A record's gradient is the vector that the data says."""

    def __init__(self):
        self.place = nnx.Param(jnp.zeros(3))

    def __call__(self, x):
        return x @ self.place[...]


def of(plan, x, weights):
    """The sums over records whose gradients are the rows of x."""
    model, x, weights = Arrow(), jnp.asarray(x, jnp.float32), jnp.asarray(weights)
    return GRADIENTS.of(plan, lambda model, batch: model(batch), apart(model), (), x, weights, 1)


def test_seen_are_clipped_records_and_those_that_are_no_numbers_padding_left_out():
    schedule = Schedule(9, 4, 1)
    plan = Plan(schedule, Clipping(2.0), 1.0, 1e-6, schedule.sampling.adjacencies[0])
    x = np.zeros((6, 3), np.float32)
    x[:5, 0] = 1.0, 2.0, 3.0, np.inf, 5.0
    seen = of(plan, x, [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]).seen
    assert (int(seen.records), int(seen.clipped), int(seen.not_finite)) == (4, 2, 1)


def test_the_loss_of_a_summary_is_a_mean_and_of_no_records_nothing():
    assert Seen(*map(jnp.float32, (4, 10, 2, 1))).summary() == {
        "records": 4.0,
        "loss": 2.5,
        "clipped": 2.0,
        "not_finite": 1.0,
    }
    assert Seen(*map(jnp.float32, (0, 0, 0, 0))).summary()["loss"] == 0.0


def test_without_privacy_gradients_are_those_of_the_weighted_losses():
    plan = Plan.without_privacy(Schedule(9, 4, 1))
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    weights = np.array([1.0, 0.5, 2.0, 0.0], np.float32)
    (gradient,) = of(plan, x, weights).gradients.values()
    assert np.reshape(gradient, -1) == pytest.approx(weights @ x)
