"""Rényi differential privacy (Mironov 2017), and the moments accountant of Abadi et al. (2016) as the papers used it.

Most Rényi divergences come from dp-accounting; this file says which of its events ours are, and converts to (ε, δ).
"""

import math
from collections.abc import Sequence

import dp_accounting
import numpy as np
import numpy.typing as npt
from absl import logging
from dp_accounting import rdp as dp_rdp
from scipy.special import logsumexp
from scipy.stats import binom

from dpnlp import checks
from dpnlp.accounting import composition
from dpnlp.accounting.subsampling import amplified
from dpnlp.checks import BadInput
from dpnlp.events import (
    ApproximateDP,
    Atom,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    RandomizedResponse,
    SharedPoissonSampled,
    TruncatedPoissonSampled,
    atoms,
)
from dpnlp.guarantee import Adjacency

ORDERS: tuple[float, ...] = (
    *(1 + step / 4 for step in range(1, 37)),
    *range(11, 65),
    *(2**power for power in range(7, 13)),
)
MOMENTS: tuple[float, ...] = (*range(2, 65), 96, 128, 192, 256, 384, 512)
"""Integer orders α = λ + 1: the moments λ of Abadi et al., taken further than their 32 so that small ε come out."""

_OFF = 1e-14
"""How far, for each order, float64 may take ln E[(P/Q)^α] of a release below what it is, over 1 or itself."""

Array = npt.NDArray[np.float64]


def epsilon(event: Event, delta: float, adjacency: Adjacency) -> float:
    """ε at δ by Rényi orders and the conversion of Canonne, Kamath and Steinke (2020, Proposition 12)."""
    divergence, remaining = _divergence(event, delta, adjacency, ORDERS)
    if remaining <= 0:
        return math.inf
    return float(dp_rdp.compute_epsilon(np.asarray(ORDERS), divergence, remaining)[0])


def moments_epsilon(event: Event, delta: float, adjacency: Adjacency) -> float:
    """ε at δ as Abadi et al. (2016, Theorem 2) and the thesis (Eqn 2.28) have it: min over α of RDP(α) + ln(1/δ)/(α−1).

    Integer orders and the classical conversion; never below the ε of `epsilon`.
    """
    divergence, remaining = _divergence(event, delta, adjacency, MOMENTS)
    if remaining <= 0:
        return math.inf
    return float(np.min(divergence + math.log(1 / remaining) / (np.asarray(MOMENTS) - 1)))


def _divergence(event: Event, delta: float, adjacency: Adjacency, orders: Sequence[float]) -> tuple[Array, float]:
    """The Rényi divergence at each order, and the δ that is left for the conversion.

    An (ε, δ₁) release is an ε-DP one except with probability δ₁ (Kairouz, Oh and Viswanath 2015), and has no Rényi
    divergence of its own. So δ₁ is taken off the target first: δ = δ₁ + (1 − δ₁) δ'.
    """
    checks.probability("delta", delta)
    total: Array = np.zeros(len(orders))
    log_kept = 0.0
    for atom, times in atoms(event).items():
        part, failure = _of_atom(atom, adjacency, orders)
        total = total + times * (part if isinstance(atom, Gaussian) else _rounded_up(part, orders))
        log_kept += times * math.log1p(-failure)
    return total, composition.left(delta, -math.expm1(log_kept))


def _of_atom(atom: Atom, adjacency: Adjacency, orders: Sequence[float]) -> tuple[Array, float]:
    apart = adjacency.distance
    match atom:
        case NonPrivate():
            return np.full(len(orders), np.inf), 0.0
        case Gaussian(z):
            return _library(dp_accounting.GaussianDpEvent(z / apart), orders), 0.0
        case Laplace(z):
            return _library(dp_accounting.LaplaceDpEvent(z / apart), orders), 0.0
        case RandomizedResponse(e, categories) if adjacency is Adjacency.REPLACE:
            return _randomized_response(e, categories, orders), 0.0
        case ApproximateDP(e, failure):
            return _randomized_response(e, 2, orders), failure
        case PoissonSampled(q, Gaussian(z)) if adjacency is not Adjacency.REPLACE:
            sampled = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z))
            return _library(sampled, orders), 0.0
        case PoissonSampled(q, Laplace(z)) if adjacency is not Adjacency.REPLACE:
            return _of_atom(ApproximateDP(*amplified(1 / z, 0.0, q)), adjacency, orders)
        case PoissonSampled(q, ApproximateDP(e, failure)) if adjacency is not Adjacency.REPLACE:
            return _of_atom(ApproximateDP(*amplified(e, failure, q)), adjacency, orders)
        case SharedPoissonSampled(q, sharing, Gaussian(z)) if adjacency is Adjacency.ADD_REMOVE:
            return _shared_poisson_sampled_gaussian(z, q, sharing, orders), 0.0
        case FixedSizeSampled(records, lot_size, Gaussian(z)) if adjacency is Adjacency.REPLACE:
            inner = dp_accounting.GaussianDpEvent(z / apart)
            sampled = dp_accounting.SampledWithoutReplacementDpEvent(records, lot_size, inner)
            cheap = [order for order in orders if order <= 128]  # the cost grows with the square of the order
            divergence = _library(sampled, cheap, dp_accounting.NeighboringRelation.REPLACE_ONE)
            return np.append(divergence, np.full(len(orders) - len(cheap), np.inf)), 0.0
        case _:
            raise no_bound(atom, adjacency, "rdp")


def no_bound(atom: Atom, adjacency: Adjacency, accountant: str) -> BadInput:
    """What is said where no bound is known (law 1)."""
    other = "pld" if isinstance(atom, (PoissonSampled, TruncatedPoissonSampled)) and accountant != "pld" else ""
    remedy = f"; use the {other} accountant" if other else "; choose another adjacency or sampler"
    return BadInput(f"{accountant} knows no bound for {atom} under {adjacency}, so no ε is given{remedy}.")


def _shared_poisson_sampled_gaussian(z: float, q: float, sharing: int, orders: Sequence[float]) -> Array:
    """RDP(α) = (1/(α−1)) ln Σ_ρ Binomial(ρ; M, q) exp(α(α−1) 2ρ²/z²), after Daigavane et al. (2021).

    exp((α−1)D_α) is jointly convex, so that it is largest where ρ is known; then the sum has moved by up to 2ρC.
    """
    rho = np.arange(sharing + 1)
    log_weights = binom.logpmf(rho, sharing, q)
    return np.array([logsumexp(log_weights + a * (a - 1) * 2 * (rho / z) ** 2) / (a - 1) for a in orders])


def _randomized_response(e: float, categories: int, orders: Sequence[float]) -> Array:
    """Also the worst that any ε-DP release can be, with two categories (Kairouz, Oh and Viswanath 2015)."""
    if e == 0:
        return np.zeros(len(orders))
    noise = categories / (math.exp(min(e, 700.0)) + categories - 1)
    if noise < 1e-300:
        return np.full(len(orders), e)
    event = dp_accounting.RandomizedResponseDpEvent(noise, categories)
    return _library(event, orders, dp_accounting.NeighboringRelation.REPLACE_ONE)


def _rounded_up(divergence: Array, orders: Sequence[float]) -> Array:
    """Where hardly anything is lost, a sum near 1 may come out a little below 1, and no divergence is negative."""
    order = np.asarray(orders)
    log_moment = np.maximum((order - 1) * divergence, 0.0)
    return np.asarray((log_moment + _OFF * order * (1 + log_moment)) / (order - 1), dtype=np.float64)


def _library(
    event: object,
    orders: Sequence[float],
    relation: object = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
) -> Array:
    accountant = dp_rdp.RdpAccountant(list(orders), relation)
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)  # An order that does not converge is left out; that is no news to a user.
    try:
        return np.asarray(accountant.compose(event).rdp, dtype=np.float64)
    finally:
        logging.set_verbosity(verbosity)
