"""One step of DP-SGD, to be read against Algorithm 1 of Abadi et al. (2016, arXiv 1607.00133).

Take a random sample L_t with probability L/N           sampling.Lots.draw
Compute gradient   g_t(x_i) ← ∇L(θ_t, x_i)              Step.add, for each physical batch of the lot
Clip gradient      ḡ_t(x_i) ← g_t(x_i)/max(1, ‖g‖/C)    Step.add
Add noise          g̃_t ← (Σ_i ḡ_t(x_i) + N(0, σ²C²))/L  Step.finish, once for the lot
Descent            θ_{t+1} ← θ_t − η_t g̃_t              Step.finish
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpnlp import dropout
from dpnlp.bookkeeping import Array
from dpnlp.training.clipping import Loss, clipped_sum
from dpnlp.training.parameters import Frame, Parameters, Parts
from dpnlp.training.plan import Plan
from dpnlp.training.sharding import Placement


class State(NamedTuple):
    """What a run carries from step to step."""

    parameters: Parameters
    optimizer: Any
    noise: Any
    average: Parameters  # of the parameters so far, with weights that fall off exponentially; empty if not asked for


class Seen(NamedTuple):
    """What a lot showed of the data. It is private: it leaves the engine only as unsafe diagnostics (law 9)."""

    records: Array
    loss: Array  # summed over the records
    clipped: Array  # records
    not_finite: Array  # records, whose gradient counted as zero

    def summary(self) -> dict[str, float]:
        """The same as plain numbers, with the loss as a mean."""
        records, loss, clipped, not_finite = (float(value) for value in self)
        return {"records": records, "loss": loss / max(records, 1), "clipped": clipped, "not_finite": not_finite}


class Sums(NamedTuple):
    """The sum of clipped gradients over the part of a lot that was seen so far."""

    gradients: Parameters
    seen: Seen


class Examples(NamedTuple):
    """A physical batch on the devices: what the loss takes, the number of each example and its weight."""

    batch: Any
    rows: Array
    weights: Array


@dataclass(frozen=True)
class Step:
    """The step of a run. `frame` and `rest` are the model without what it trains; `decay` is that of the average."""

    loss: Loss
    frame: Frame
    rest: Any
    plan: Plan
    optimizer: optax.GradientTransformation
    placement: Placement = field(default_factory=Placement)
    decay: float = 0.0

    def start(self, parameters: Parameters) -> State:
        """The state before the first step."""
        state = State(
            parameters,
            self.optimizer.init(parameters),
            self.plan.noise.init(parameters),
            parameters if self.decay else {},
        )
        placed: State = self.placement.state(jax.tree.map(jnp.array, state))
        return placed

    def empty(self, parameters: Parameters) -> Sums:
        """The sum over no records at all."""
        return self._empty(parameters)

    def add(self, sums: Sums, parameters: Parameters, key: Array, examples: Examples, per_record: int) -> Sums:
        """Computes and clips the gradients of a physical batch, and adds them to the sum over the lot."""
        return self._add(sums.gradients, sums.seen, parameters, self.rest, key, examples, per_record)

    def finish(self, state: State, sums: Sums, key: Array) -> State:
        """Adds noise once, divides by the expected lot size (law 2), and descends."""
        return self._finish(state, sums.gradients, key)

    @property
    def compilations(self) -> int:
        """How many shapes were compiled so far."""
        return self._add._cache_size() + self._finish._cache_size()  # type: ignore[attr-defined,no-any-return]

    @cached_property
    def _empty(self) -> Callable[..., Sums]:
        def empty(parameters: Parameters) -> Sums:
            gradients = {name: jnp.zeros(value.shape, jnp.float32) for name, value in parameters.items()}
            return Sums(self.placement.pinned(gradients), Seen(*(jnp.zeros(()) for _ in Seen._fields)))

        return jax.jit(empty)

    @cached_property
    def _add(self) -> Callable[..., Sums]:
        @partial(jax.jit, static_argnums=6, donate_argnums=0)
        def add(
            gradients: Parameters,
            seen: Seen,
            parameters: Parameters,
            rest: Any,
            key: Array,
            examples: Examples,
            per_record: int,
        ) -> Sums:
            keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, examples.rows)
            more = self._gradients(parameters, rest, (keys, examples.batch), examples.weights, per_record)
            total: Sums = jax.tree.map(jnp.add, Sums(gradients, seen), more)
            return Sums(self.placement.pinned(total.gradients), total.seen)

        return add

    def _gradients(
        self, parameters: Parameters, rest: Any, batch: tuple[Array, Any], weights: Array, per_record: int
    ) -> Sums:
        def loss(model: Any, batch: tuple[Array, Any]) -> Array:
            with dropout.dropping(batch[0]):
                return self.loss(model, batch[1]).astype(jnp.float32)

        parts = Parts(self.frame, parameters, rest)
        real = jnp.any(weights.reshape(-1, per_record) > 0, axis=1)
        if not self.plan.clips:
            value, gradients = jax.value_and_grad(lambda p: jnp.sum(weights * loss(parts.model(p), batch)))(parameters)
            return Sums(gradients, Seen(real.sum(), value, jnp.zeros(()), jnp.zeros(())))
        gradients, norms, losses = clipped_sum(loss, parts, batch, weights, self.plan.clipping, per_record)
        seen = Seen(
            records=real.sum(),
            loss=jnp.sum(jnp.where(weights > 0, weights * losses, 0)),
            clipped=jnp.sum(real & (norms > self.plan.clipping.norm)),
            not_finite=jnp.sum(real & ~jnp.isfinite(norms)),
        )
        return Sums(gradients, seen)

    @cached_property
    def _finish(self) -> Callable[..., State]:
        L, sigma_C = self.plan.schedule.lot_size, self.plan.stddev

        def finish(state: State, gradients: Parameters, key: Array) -> State:
            noise_state = state.noise
            if sigma_C:
                noise, noise_state = self.plan.noise.draw(state.noise, key, gradients, sigma_C)
                gradients = jax.tree.map(jnp.add, gradients, noise)
            gradients = jax.tree.map(lambda total: total / L, gradients)
            updates, optimizer = self.optimizer.update(gradients, state.optimizer, state.parameters)
            parameters = optax.apply_updates(state.parameters, updates)
            average = optax.incremental_update(parameters, state.average, 1 - self.decay) if self.decay else {}
            following: State = self.placement.pinned(State(parameters, optimizer, noise_state, average))
            return following

        return jax.jit(finish, donate_argnums=0)
