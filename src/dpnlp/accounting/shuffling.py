"""What shuffled lots cost: the bound that is proved, a bound from below, and the figure that papers print (law 8).

With the data shuffled and cut into lots, each record is used once per epoch. Proved for it is the composition of one
Gaussian per epoch, without amplification (`Schedule.event`). Papers account such runs as if the lots had been drawn by
Poisson sampling; `lower_bound` shows that this figure is no guarantee (Chua et al., ICML 2024 and NeurIPS 2024).
"""

import math
from dataclasses import replace

import numpy as np
from scipy.special import log_ndtr

from dpnlp import checks
from dpnlp.accounting import pld
from dpnlp.accounting.losses import Array, Losses, compose
from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.guarantee import Adjacency


def as_if_poisson(schedule: Schedule, noise_multiplier: float, delta: float) -> float:
    """The ε that Poisson sampling would have at this lot size, noise and number of steps. No guarantee here."""
    poisson = replace(schedule, sampling=Sampling.POISSON)
    return pld.epsilon(poisson.event(noise_multiplier), delta, Adjacency.ADD_REMOVE)


def lower_bound(noise_multiplier: float, lots: int, epochs: int, delta: float, same_order: bool = False) -> float:
    """An ε below which shuffled lots are certainly not (ε, δ)-DP, for a record that is blanked out.

    The pair: every record contributes −1 but the blanked one, which contributes +1. Up to a common shift the lots of an
    epoch have means 2, 0, 0, … against 1, 0, 0, …, in random order, and the attacker looks at their maximum. With
    `same_order` every epoch has the same lots, so their means over the epochs are what he sees, with noise σ/√E.
    Otherwise each epoch is a fresh draw, and his evidence of E epochs is multiplied.
    """
    checks.positive("noise_multiplier", noise_multiplier)
    checks.count("lots", lots)
    checks.count("epochs", epochs)
    checks.probability("delta", delta)
    s = noise_multiplier / math.sqrt(epochs) if same_order else noise_multiplier
    c = np.linspace(-8 * s, 2 + 12 * s, 8001)
    others = (lots - 1) * log_ndtr(c / s)
    p = -np.expm1(log_ndtr((c - 2) / s) + others)  # P(max ≥ c) with the record
    q = -np.expm1(log_ndtr((c - 1) / s) + others)  # and without it
    if same_order or epochs == 1:
        useful = (p > delta) & (q > 0)
        return max(0.0, float(np.max(np.log((p[useful] - delta) / q[useful]), initial=0.0)))
    return _repeated(np.append(1.0, p), np.append(1.0, q), epochs, delta)


def _repeated(p: Array, q: Array, epochs: int, delta: float) -> float:
    """ε at δ for `epochs` independent looks at a number with these tails, losses rounded down to the grid."""
    p, q = -np.diff(p, append=0.0), -np.diff(q, append=0.0)
    kept = (p > 0) & (q > 0)
    p, losses = p[kept], np.log(p[kept] / q[kept])
    deviation = math.sqrt(float(p @ (losses - p @ losses) ** 2))
    step = max(deviation / (100 * epochs), float(np.ptp(losses)) / 20_000, 1e-12)
    index = (losses // step).astype(np.int64)
    lowest = int(index.min())
    masses = np.bincount(index - lowest, weights=p).astype(np.float64)
    return compose([(Losses(step, lowest, masses, 0.0), epochs)], delta).epsilon(delta)
