"""The average of the users' updates: how much each user weighs, and what the weighted sum is divided by.

With weights w_k = min(n_k/ŵ, 1) of users with n_k examples, and updates of norm at most S, McMahan et al. (2018, §3)
estimate the average update of all users from a lot C that each user enters with probability q:

    fixed      f_f(C) = Σ_{k∈C} w_k Δ_k / (qW)
    clipped    f_c(C) = Σ_{k∈C} w_k Δ_k / max(qW_min, Σ_{k∈C} w_k)

W is the sum of all users' weights and W_min a bound below it. Both are public figures here, never computed from the
weights, which are private: by default the number of users, which the plan takes to be public in any case (law 2).
One that is not the true sum scales the update and changes nothing of what is promised.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import jax.numpy as jnp

from dpnlp import checks
from dpnlp.bookkeeping import Array
from dpnlp.training.parameters import Parameters

if TYPE_CHECKING:
    from dpnlp.training.plan import Plan


FINENESS = 2**10
"""The weights of users are whole multiples of 1/1024, so that the sum of two million of them is exact."""


class Estimator(StrEnum):
    """What the sum is divided by."""

    FIXED = "fixed"
    CLIPPED = "clipped"

    @property
    def sensitivity(self) -> int:
        """What one user more or less moves by at most, in S over qW or S over qW_min (their §3).

        For f_c, with A and Σ the two sums over the others, ‖A‖ ≤ SΣ, and M = max(qW_min, Σ), M' = max(qW_min, Σ + w):
        ‖(A + wΔ)/M' − A/M‖ ≤ wS/M' + SΣ(M' − M)/(MM') ≤ 2wS/M' ≤ 2S/(qW_min), since Σ ≤ M, M' − M ≤ w and w ≤ 1.
        """
        return 2 if self is Estimator.CLIPPED else 1


@dataclass(frozen=True)
class Weights:
    """How much users weigh, and the estimator of their average."""

    estimator: Estimator = Estimator.FIXED
    full: float | None = None  # ŵ, the examples from which on a user weighs 1; None lets all users weigh 1
    total: float | None = None  # W or W_min, a public figure; None is the number of users

    def __post_init__(self) -> None:
        if self.full is not None:
            checks.positive("full_weight", self.full)
        if self.total is not None:
            checks.positive("total_weight", self.total)

    def of(self, examples: Array) -> Array:
        """w_k of users with so many examples; one with none is padding and weighs 0."""
        share = 1.0 if self.full is None else jnp.ceil(jnp.minimum(examples / self.full, 1.0) * FINENESS) / FINENESS
        return jnp.where(examples > 0, share, 0.0)

    def expected(self, plan: "Plan") -> float:
        """qW, or qW_min."""
        schedule = plan.schedule
        return schedule.lot_size if self.total is None else schedule.q * self.total

    def bounded(self, plan: "Plan", updates: Parameters, weight: Array) -> Parameters:
        """The estimate times qW, or qW_min/2: one user more or less moves it by at most S. `weight` is Σ w_k."""
        if self.estimator is Estimator.FIXED:
            return updates
        least = self.expected(plan)
        scale = least / jnp.maximum(least, weight) / self.estimator.sensitivity
        return {name: scale * total for name, total in updates.items()}

    def average(self, plan: "Plan", answer: Parameters) -> Parameters:
        """The estimate itself, from the noisy answer to what `bounded` gives."""
        scale = self.estimator.sensitivity / self.expected(plan)
        return {name: scale * total for name, total in answer.items()}
