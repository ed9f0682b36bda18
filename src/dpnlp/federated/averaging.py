"""DP-FedAvg (McMahan et al. 2018, arXiv 1710.06963, Algorithm 1), with a clip norm that may adapt (Andrew et al. 2021).

Take each user k with probability q                        sampling.Lots.draw
Train on the user's own examples   Δ_k ← θ_local − θ_t     local.LocalSGD
Clip the update                    Δ_k ← Δ_k min(1, S/‖Δ_k‖), as a whole or per layer with S_j = S/√m
                                                           training.clipping.clipped_total
Average with weights and noise     Δ̃ ← f(w, Δ) + N(0, σ²)  estimators.Weights, training.Step.finish
Move the model                     θ_{t+1} ← θ_t + Δ̃       the optimizer of the run: SGD with rate 1 averages

All of it is a contribution to a step of the engine: users add −Δ to the sum as records add gradients to it, and the
average is what the optimizer descends by.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from dpnlp.bookkeeping import Array
from dpnlp.federated.estimators import FINENESS, Estimator, Weights
from dpnlp.federated.local import LocalSGD
from dpnlp.federated.quantile import Quantile
from dpnlp.guarantee import Term
from dpnlp.training import rounding
from dpnlp.training.clipping import Loss, clipped_total
from dpnlp.training.contributions import Seen, Sums
from dpnlp.training.parameters import Parameters, Parts

if TYPE_CHECKING:
    from dpnlp.training.plan import Plan


class Beside(NamedTuple):
    """What is summed up over users besides their updates; it is private."""

    weight: Array  # Σ w_k, in whole steps: no order of summation changes it
    within: Array  # Σ (b_k − ½), with b_k = 1 where an update was within the clip norm


class Query(NamedTuple):
    """What is answered with noise."""

    updates: Parameters
    within: Any = ()  # where the clip norm follows a quantile


@dataclass(frozen=True)
class Averaging:
    """A user contributes the clipped update that local training makes of the model.

    Where the clip norm adapts, updates are measured in S_t/S_0, the scale that is carried: Δ/scale is clipped to the
    plan's norm S_0, and the noisy average is multiplied by the scale, which is public. So the plan's noise is right for
    every round, also where the noise of one round cancels a part of an earlier one's.
    """

    local: LocalSGD
    weights: Weights = field(default_factory=Weights)
    quantile: Quantile | None = None

    def check(self, plan: "Plan") -> None:
        if self.quantile:
            self.quantile.check(plan)

    def term(self, gaussian: Term) -> Term:
        optional = {
            "full_weight": self.weights.full,
            "total_weight": self.weights.total,
            "quantile": self.quantile.share if self.quantile else None,
        }
        named = {name: value for name, value in optional.items() if value is not None}
        return Term.of(
            "federated-averaging", **dict(gaussian.parameters), estimator=str(self.weights.estimator), **named
        )

    def start(self) -> Any:
        """S_t/S_0, where that changes."""
        return jnp.ones(()) if self.quantile else ()

    def nothing(self) -> Beside:
        return Beside(jnp.zeros((), jnp.int32), jnp.zeros(()))

    def of(
        self, plan: "Plan", loss: Loss, parts: Parts, carried: Any, batch: Any, weights: Array, per_record: int
    ) -> Sums:
        users = jax.tree.map(lambda leaf: leaf.reshape(-1, per_record, *leaf.shape[1:]), (batch, weights > 0))
        delta, losses = jax.vmap(partial(self.local.moved, loss, parts))(*users)
        examples = users[1].sum(axis=1)  # n_k; the same in every round
        real, w = examples > 0, self.weights.of(examples)
        scale = carried if self.quantile else 1.0
        left = self.quantile.left(plan) if self.quantile else 1.0
        found = clipped_total({name: -value / scale for name, value in delta.items()}, left * w, plan.clipping)
        seen = Seen(
            records=real.sum(),
            loss=jnp.sum(jnp.where(real, losses, 0)),
            clipped=jnp.sum(real & (found.norms > plan.clipping.norm)),
            not_finite=jnp.sum(real & ~jnp.isfinite(found.norms)),
        )
        return Sums(
            found.total,
            seen,
            Beside(jnp.sum(w * FINENESS, dtype=jnp.int32), jnp.sum(jnp.where(real, found.whole - 0.5, 0))),
        )

    def rounding(self, plan: "Plan", loss: Loss, parts: Parts, example: Any, records: int, per_record: int) -> float:
        """That of sums of updates, and of what is then made of a sum: an estimate, and the count beside it."""
        after = self.quantile.part(plan) * plan.schedule.lot_size if self.quantile else 0.0
        if self.weights.estimator is Estimator.CLIPPED:
            after += self.weights.expected(plan)
        return rounding.of_terms(records) + rounding.of_parts(records + after)

    def query(self, plan: "Plan", sums: Sums) -> tuple[Query, Query | tuple[()]]:
        """The updates by their estimator and, where the clip norm adapts, the count: one user moves it all by S."""
        count = self.quantile.bounded(plan, sums.beside.within) if self.quantile else ()
        bounded = partial(self.weights.bounded, plan, weight=sums.beside.weight / FINENESS)
        lost = Query(bounded(sums.lost), jax.tree.map(jnp.zeros_like, count)) if sums.lost else ()
        return Query(bounded(sums.gradients), count), lost

    def gradient(self, plan: "Plan", answer: Query, carried: Any) -> tuple[Parameters, Any]:
        """−Δ̃, and the next scale."""
        average = self.weights.average(plan, answer.updates)
        if not self.quantile:
            return average, carried
        scale = carried / self.quantile.left(plan)
        following = self.quantile.following(plan, answer.within, carried)
        return {name: scale * value for name, value in average.items()}, following
