"""What a record adds to the sum over a lot, and what is made of the sum: by default clipped gradients, as in DP-SGD.

The plan's noise is made for an answer that one record moves by no more than the clip norm C, whatever it consists of.
So a contribution says what is summed up, what of the sums is answered within that bound, and how the noisy answer
becomes a gradient to descend by. Loop, ledger, noise, checkpoints and the accountant's event are the same for all.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from dpnlp.bookkeeping import Array
from dpnlp.guarantee import Term
from dpnlp.training.clipping import Loss, clipped_sum, rounding_of
from dpnlp.training.parameters import Parameters, Parts
from dpnlp.training.rounding import two_sum

if TYPE_CHECKING:
    from dpnlp.training.plan import Plan


class Seen(NamedTuple):
    """What a lot showed of the data. It is private: it leaves the engine only as unsafe diagnostics (law 9)."""

    records: Array
    loss: Array  # summed over the records
    clipped: Array  # records
    not_finite: Array  # records, whose contribution counted as zero

    def summary(self) -> dict[str, float]:
        """The same as plain numbers, with the loss as a mean."""
        records, loss, clipped, not_finite = (float(value) for value in self)
        return {"records": records, "loss": loss / max(records, 1), "clipped": clipped, "not_finite": not_finite}


class Sums(NamedTuple):
    """The sum of clipped contributions over the part of a lot that was seen so far."""

    gradients: Parameters
    seen: Seen
    beside: Any = ()  # what else is summed up; it is private, too
    lost: Parameters | tuple[()] = ()  # what rounding took from the gradients, so that the lot is summed up exactly

    def grown(self, more: "Sums") -> "Sums":
        """The sum with that of another batch."""
        seen, beside = jax.tree.map(jnp.add, (self.seen, self.beside), (more.seen, more.beside))
        if not self.lost:
            return Sums(jax.tree.map(jnp.add, self.gradients, more.gradients), seen, beside)
        gradients, lost = dict(self.gradients), dict(self.lost)
        for name, own in more.gradients.items():
            gradients[name], lost[name] = two_sum(gradients[name], lost[name], own)
        return Sums(gradients, seen, beside, lost)


class Contribution(Protocol):
    """A frozen dataclass whose fields are public: they stand in the plan."""

    def check(self, plan: "Plan") -> None:
        """Refuses a plan that it cannot keep."""
        ...

    def term(self, gaussian: Term) -> Term:
        """The mechanism as a guarantee names it, given the Gaussian noise that is in it."""
        ...

    def start(self) -> Any:
        """What is carried from step to step, before the first: nothing that has not been through noise."""
        ...

    def nothing(self) -> Any:
        """What else is summed up, over no records."""
        ...

    def of(
        self, plan: "Plan", loss: Loss, parts: Parts, carried: Any, batch: Any, weights: Array, per_record: int
    ) -> Sums:
        """The sums over the records of a physical batch, `per_record` examples each; padding weighs 0.

        A batch is the key of each example's dropout, and what the data set made of the examples.
        """
        ...

    def rounding(self, plan: "Plan", loss: Loss, parts: Parts, example: Any, records: int, per_record: int) -> float:
        """What rounding may add to η in a batch of so many records, with so many examples each as long as this one."""
        ...

    def query(self, plan: "Plan", sums: Sums) -> tuple[Any, Any]:
        """What is answered with noise: one record more or less moves it by at most C, all of it taken as one vector.

        In two parts that belong together, the second of which is what rounding took from the first, or is nothing: it
        goes into the noise.
        """
        ...

    def gradient(self, plan: "Plan", answer: Any, carried: Any) -> tuple[Parameters, Any]:
        """What to descend by, and what is carried on; post-processing of the noisy answer."""
        ...


@dataclass(frozen=True)
class Gradients:
    """A record adds its gradient, clipped to C (Abadi et al. 2016). A plan without a clip norm has ordinary ones."""

    def check(self, plan: "Plan") -> None:
        """Any plan will do."""

    def term(self, gaussian: Term) -> Term:
        return gaussian

    def start(self) -> tuple[()]:
        return ()

    def nothing(self) -> tuple[()]:
        return ()

    def of(
        self, plan: "Plan", loss: Loss, parts: Parts, carried: Any, batch: Any, weights: Array, per_record: int
    ) -> Sums:
        real = jnp.any(weights.reshape(-1, per_record) > 0, axis=1)
        if not plan.clips:
            value, gradients = jax.value_and_grad(lambda p: jnp.sum(weights * loss(parts.model(p), batch)))(
                parts.parameters
            )
            return Sums(gradients, Seen(real.sum(), value, jnp.zeros(()), jnp.zeros(())))
        gradients, norms, losses = clipped_sum(loss, parts, batch, weights, plan.clipping, per_record)
        seen = Seen(
            records=real.sum(),
            loss=jnp.sum(jnp.where(weights > 0, weights * losses, 0)),
            clipped=jnp.sum(real & (norms > plan.clipping.norm)),
            not_finite=jnp.sum(real & ~jnp.isfinite(norms)),
        )
        return Sums(gradients, seen)

    def rounding(self, plan: "Plan", loss: Loss, parts: Parts, example: Any, records: int, per_record: int) -> float:
        return rounding_of(loss, parts, example, plan.clipping, records, per_record)

    def query(self, plan: "Plan", sums: Sums) -> tuple[Parameters, Any]:
        return sums.gradients, sums.lost

    def gradient(self, plan: "Plan", answer: Parameters, carried: Any) -> tuple[Parameters, Any]:
        """Divided by the expected lot size (law 2)."""
        L = plan.schedule.lot_size
        return jax.tree.map(lambda total: total / L, answer), carried


GRADIENTS = Gradients()
