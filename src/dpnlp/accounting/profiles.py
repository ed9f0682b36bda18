"""Privacy profiles: δ as a function of ε ≥ 0 for one release, in closed form, for the worst pair of neighbours (P, Q).

A `Profile` has the hockey-stick divergence both ways, `above`(x) = sup_S P(S) − e^x Q(S) and `below`(x), the same for
(Q, P), because sampling makes the two differ. Together they fix the whole privacy loss distribution.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import erfcx, ndtr
from scipy.stats import binom

from dpnlp.accounting.losses import Array, Divergence, Losses


@dataclass(frozen=True)
class Profile:
    """δ(x) for x ≥ 0 in both directions, and the loss beyond which each is 0 (`bounded`) or a negligible rest."""

    above: Divergence
    below: Divergence
    top: float
    bottom: float
    bounded: bool = False

    @classmethod
    def symmetric(cls, divergence: Divergence, top: float, bounded: bool = False) -> "Profile":
        """The profile of a pair that looks the same from both sides."""
        return cls(divergence, divergence, top, top, bounded)

    def reverse(self) -> "Profile":
        """The profile of (Q, P)."""
        return Profile(self.below, self.above, self.bottom, self.top, self.bounded)

    def losses(self, step: float) -> Losses:
        """The privacy loss distribution on a grid, rounded so that it is never more private than the profile."""
        return Losses.connect_dots(self.above, self.below, self.top, self.bottom, self.bounded, step)


def gaussian(mu: float, deviations: float) -> Profile:
    """Normal noise, neighbours μ standard deviations apart (Balle and Wang 2018, Theorem 8).

    δ(x) = Φ(μ/2 − x/μ) − e^x Φ(−μ/2 − x/μ). As e^x is the ratio of the two normal densities, the second term is the
    first density times a Mills ratio, which keeps its digits however far out x lies.
    """

    def divergence(x: Array) -> Array:
        near, far = x / mu - mu / 2, x / mu + mu / 2
        density = np.exp(-0.5 * near * near)
        second = 0.5 * density * erfcx(far / math.sqrt(2))
        outside = 0.5 * density * (erfcx(np.maximum(near, 0.0) / math.sqrt(2)) - erfcx(far / math.sqrt(2)))
        return np.asarray(np.where(near >= 0, outside, ndtr(-near) - second))

    return Profile.symmetric(divergence, mu * mu / 2 + deviations * mu)


def laplace(largest: float) -> Profile:
    """Laplace noise whose privacy loss is at most `largest` = Δ/b: δ(x) = 1 − e^{(x − largest)/2} up to there."""
    return Profile.symmetric(lambda x: -np.expm1(np.minimum(x - largest, 0.0) / 2), largest, bounded=True)


def response(epsilon: float, categories: int = 2) -> Profile:
    """Randomized response among k categories: the true answer has probability 1/(1 + (k−1)e^−ε) and loss ε.

    With two categories this is the worst that any ε-DP release can be (Kairouz, Oh and Viswanath 2015).
    """
    true = 1 / (1 + (categories - 1) * math.exp(-epsilon))
    return Profile.symmetric(lambda x: true * -np.expm1(np.minimum(x - epsilon, 0.0)), epsilon, bounded=True)


def poisson_sampled(base: Profile, q: float) -> Profile:
    """A release on a lot that each record enters with probability q, under add-remove.

    The pair is ((1−q)Q + qP, Q) for a removed record and the reverse for an added one (Zhu, Dong and Wang 2022,
    Theorem 11): above(x) = q δ(ln(1 + (e^x − 1)/q)), below(x) = (1 − e^x(1−q)) δ(x + ln q − ln(1 − e^x(1−q))).
    """

    def below(x: Array) -> Array:
        rest = 1 - np.exp(np.minimum(x, 700.0)) * (1 - q)
        safe = np.where(rest > 0, rest, 1.0)
        inner = np.where(rest > 0, x + math.log(q) - np.log(safe), 0.0)
        return np.where(rest > 0, safe * base.below(inner), 0.0)

    bottom = -math.log((1 - q) + q * math.exp(-base.bottom))
    return Profile(_diluted(base.above, q), below, _diluted_loss(base.top, q), bottom, base.bounded)


def fixed_size_sampled(base: Profile, share: float) -> Profile:
    """A release on a uniformly random subset of fixed size, a `share` of the records, under replace.

    δ'(ln(1 + γ(e^x − 1))) = γ δ(x), with δ the profile of the release itself under replace (Balle, Barthe and Gaboardi
    2018, Theorem 9). The same in both directions, since replacing is symmetric.
    """
    return Profile.symmetric(_diluted(base.above, share), _diluted_loss(base.top, share))


def poisson_sampled_gaussian_replace(z: float, q: float, deviations: float) -> Profile:
    """Normal noise of z clip norms on a Poisson lot, one record replaced by its opposite.

    The pair is (1−q)N(0, z²) + qN(±1, z²). Its loss grows with the output t, and equals x at
    t = z²(x/2 + arsinh((1−q) sinh(x/2)/(q e^{−1/2z²}))).
    """
    log_ratio = (math.log1p(-q) if q < 1 else -math.inf) - math.log(q) + 1 / (2 * z * z)

    def divergence(x: Array) -> Array:
        # arsinh(e^a sinh(x/2)) without overflow: the logarithm takes over where its argument is large.
        with np.errstate(divide="ignore"):
            log_sinh = x / 2 + np.log(-np.expm1(-x)) - math.log(2)
        size = log_ratio + log_sinh
        t = z * z * (x / 2 + np.where(size > 300, size + math.log(2), np.arcsinh(np.exp(np.minimum(size, 300.0)))))
        growth = np.exp(np.minimum(x, 700.0))
        kept = q * (ndtr((1 - t) / z) - growth * ndtr((-1 - t) / z))
        return np.maximum(kept - (1 - q) * np.expm1(np.minimum(x, 700.0)) * ndtr(-t / z), 0.0)

    t = 1 + deviations * z
    top = np.logaddexp(log_ratio, t / z**2) - np.logaddexp(log_ratio, -t / z**2)
    return Profile.symmetric(divergence, float(top))


def shared_poisson_sampled_gaussian(z: float, q: float, sharing: int, deviations: float) -> Profile:
    """Normal noise of z clip norms on a Poisson lot of records, of which one unit has a part in up to M = `sharing`.

    Of those, ρ ~ Binomial(M, q) are drawn, the same for both neighbours, and each moves the sum by at most 2C. The
    hockey-stick divergence is jointly convex, so to be told who is drawn only makes it larger:
    δ(x) = Σ_ρ Binomial(ρ; M, q) δ_ρ(x), with δ_ρ that of normal noise at μ = 2ρ/z, in both directions. So it is with
    node-level DP-SGD (Daigavane et al. 2021, arXiv 2111.15521), but for their lots of fixed size, where ρ is
    hypergeometric. A ρ that is rarer than the outputs which are cut off counts as a unit given away.
    """
    log_rare = -deviations * deviations / 2
    rho = np.arange(1, sharing + 1)
    weights, log_weights = binom.pmf(rho, sharing, q), binom.logpmf(rho, sharing, q)
    kept = (log_weights > log_rare) | (rho == 1)
    lost = float(weights[~kept].sum())
    # Where ρ itself is rare, fewer deviations leave out as little.
    parts = [
        (weight, gaussian(2 * r / z, math.sqrt(max(0.0, 2 * (log_weight - log_rare)))))
        for r, weight, log_weight in zip(rho[kept], weights[kept], log_weights[kept], strict=True)
    ]

    def divergence(x: Array) -> Array:
        return np.asarray(lost + sum(weight * part.above(x) for weight, part in parts))

    return Profile.symmetric(divergence, max(part.top for _, part in parts))


def truncated_poisson_sampled_gaussian(
    plain: Profile, z: float, q: float, records: int, largest_lot: int, deviations: float
) -> Profile:
    """Poisson sampling whose lots are cut to `largest_lot`; `plain` is the same without the cut.

    A lot that is cut changes by a whole exchange when a record enters it. So, with the probability of a cut given that
    the record is drawn, the release is one under replace at twice the distance, and otherwise `plain` (arXiv
    2508.15089, as dp-accounting has it). `records` are those of the larger of two neighbouring data sets.
    """
    cut = float(binom.sf(largest_lot - 1, records - 1, q))

    def mixed(first: Divergence, second: Divergence) -> Divergence:
        return lambda x: cut * first(x) + (1 - cut) * second(x)

    if cut < 1e-40:  # so rare that the whole record may be given up with it
        lost = np.ones_like
        return Profile(mixed(lost, plain.above), mixed(lost, plain.below), plain.top, plain.bottom)
    drawn = float(binom.sf(largest_lot, records, q)) * largest_lot / cut / records
    exchange = poisson_sampled_gaussian_replace(z / 2, drawn, deviations)
    return Profile(
        mixed(exchange.above, plain.above),
        mixed(exchange.below, plain.below),
        max(exchange.top, plain.top),
        max(exchange.bottom, plain.bottom),
    )


def _diluted(divergence: Divergence, share: float) -> Divergence:
    return lambda x: share * divergence(_undiluted_loss(x, share))


def _undiluted_loss(x: Array, share: float) -> Array:
    """ln(1 + (e^x − 1)/share)."""
    return np.where(x < 30, np.log1p(np.expm1(np.minimum(x, 30.0)) / share), x - math.log(share))


def _diluted_loss(x: float, share: float) -> float:
    """ln(1 + share (e^x − 1))."""
    return math.log1p(share * math.expm1(x)) if x < 300 else x + math.log(share)
