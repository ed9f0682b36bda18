"""A clip norm that follows a quantile of the norms of the users' updates (Andrew et al. 2021, arXiv 1905.03871).

    S_{t+1} = S_t exp(−η_C (b̃_t − γ)),    b̃_t = ½ + (Σ_k (b_k − ½) + N(0, σ_b²))/L

where b_k is 1 if the update of user k is within S_t, else 0. A user moves the centred count by ½, so that it is a
Gaussian release of its own, with the noise multiplier 2σ_b. The noise on the updates is raised to
z_Δ = (z⁻² − (2σ_b)⁻²)^(−½), so that both together cost what updates alone cost with z (their Theorem 1).
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax.numpy as jnp

from dpnlp import checks
from dpnlp.bookkeeping import Array
from dpnlp.checks import BadInput
from dpnlp.training.clipping import Rule

if TYPE_CHECKING:
    from dpnlp.training.plan import Plan

FARTHEST = 1e6
"""By what factor the clip norm may leave its start, up or down; beyond, float32 would begin to matter."""


@dataclass(frozen=True)
class Quantile:
    """Which share of the updates is to be within the clip norm, and how fast it follows."""

    share: float = 0.5  # γ
    rate: float = 0.2  # η_C
    count_noise: float | None = None  # σ_b; by default L/20, and no less than z

    def __post_init__(self) -> None:
        checks.share("quantile", self.share)
        checks.positive("quantile_rate", self.rate)
        if self.count_noise is not None:
            checks.positive("count_noise", self.count_noise)

    def check(self, plan: "Plan") -> None:
        if not plan.clips:
            raise BadInput("clip_norm = inf: one that follows a quantile has to start somewhere; give one.")
        if plan.clipping.rule is Rule.AUTOMATIC:
            raise BadInput("clipping = automatic: it has no clip norm that could follow a quantile; leave one out.")
        if plan.noise_multiplier >= 2 * self._sigma_b(plan):
            raise BadInput(
                f"count_noise = {self.count_noise:g}: it must be more than half of the noise multiplier "
                f"{plan.noise_multiplier:g}, or the count alone costs more than the plan; raise it."
            )

    def part(self, plan: "Plan") -> float:
        """r = z/(2σ_b): how much of the sensitivity the count takes up; √(1 − r²) of it is left to the updates.

        With noise of zS on both, √(1 − r²) ΣΔ has as much noise as ΣΔ has by z_Δ S, and 2rS Σ(b − ½) as much as
        Σ(b − ½) by σ_b; and a user moves the two, as one vector, by at most S√(1 − r² + r²) = S. Without noise any will
        do.
        """
        return plan.noise_multiplier / (2 * self._sigma_b(plan)) if plan.noise_multiplier else 0.5

    def left(self, plan: "Plan") -> float:
        """√(1 − r²) = z/z_Δ."""
        return math.sqrt(1 - self.part(plan) ** 2)

    def bounded(self, plan: "Plan", count: Array) -> Array:
        """2rS Σ(b − ½), which one user moves by at most rS."""
        return 2 * self.part(plan) * plan.clipping.norm * count

    def following(self, plan: "Plan", answer: Array, scale: Array) -> Array:
        """S_{t+1}/S_0, from the noisy answer to what `bounded` gives and S_t/S_0."""
        count = answer / (2 * self.part(plan) * plan.clipping.norm)
        b = 0.5 + count / plan.schedule.lot_size
        return jnp.clip(scale * jnp.exp(-self.rate * (b - self.share)), 1 / FARTHEST, FARTHEST)

    def _sigma_b(self, plan: "Plan") -> float:
        return self.count_noise or max(plan.schedule.lot_size / 20, plan.noise_multiplier)
