"""Users, and federated averaging by hand for the engine to be compared with: NumPy, one user after the other."""

import jax.numpy as jnp
import numpy as np
from flax import nnx

from dpnlp.accounting.accountant import Accountant
from dpnlp.accounting.subsampling import Schedule
from dpnlp.federated import Averaging, Estimator, LocalSGD, Quantile, Weights
from dpnlp.guarantee import Unit
from dpnlp.training.clipping import Clipping, Rule
from dpnlp.training.contributions import GRADIENTS
from dpnlp.training.plan import Plan

LOCAL = LocalSGD(0.05, 2, 3)


class Pull(nnx.Module):
    """A vector that every example pulls at: with this loss local SGD moves by −η times the mean of each batch."""

    def __init__(self, width, start=0.0):
        self.place = nnx.Param(jnp.full((width,), start))
        self.number = nnx.Param(jnp.zeros(()))

    def __call__(self, x):
        return x[:, :-1] @ self.place[...] + x[:, -1] * self.number[...]


def pulled(model, x):
    return model(x)


def planned(contribution=GRADIENTS, schedule=None, clip_norm=0.5, noise_multiplier=0.0, rule=Rule.FLAT):
    schedule = schedule or Schedule(8, 4, 6)
    neighbours = schedule.sampling.adjacencies[0]
    clipping = Clipping(clip_norm, rule)
    return Plan(
        schedule, clipping, noise_multiplier, 1e-3, neighbours, Accountant.RDP, Unit.USER, contribution=contribution
    )


def averaging(local=LOCAL, estimator=Estimator.FIXED, full=None, total=None, quantile=None):
    return Averaging(local, Weights(estimator, full, total), quantile)


def line_moved(W, b, x, y, local):
    """Δ of a user with these examples of ‖xW + b − y‖²."""
    start, W, b = (W, b), W.copy(), b.copy()
    for _ in range(local.epochs):
        for first in range(0, len(x), local.batch):
            some, aim = x[first : first + local.batch], y[first : first + local.batch]
            error = 2 * (some @ W + b - aim)
            W, b = W - local.rate * some.T @ error / len(some), b - local.rate * error.mean(axis=0)
    return W - start[0], b - start[1]


def fedavg(W, b, rounds, local, S, L, N, weights=None, quantile: Quantile | None = None):
    """The line after rounds of users, each a pair (x, y), without noise; and the clip norm after each of them."""
    weights, norms = weights or Weights(), []
    for users in rounds:
        total, weight, within = (np.zeros_like(W), np.zeros_like(b)), 0.0, 0.0
        for x, y in users:
            delta = line_moved(W, b, x, y, local)
            length = np.sqrt(sum((part**2).sum() for part in delta))
            w = 1.0 if weights.full is None else min(len(x) / weights.full, 1.0)
            total = tuple(t + w * min(1, S / length) * part for t, part in zip(total, delta, strict=True))
            weight += w
            within += float(length <= S) - 0.5
        qW = L / N * (N if weights.total is None else weights.total)
        by = qW if weights.estimator is Estimator.FIXED else max(qW, weight)
        W, b = W + total[0] / by, b + total[1] / by
        if quantile:
            S *= np.exp(-quantile.rate * (0.5 + within / L - quantile.share))
        norms.append(S)
    return W, b, norms
