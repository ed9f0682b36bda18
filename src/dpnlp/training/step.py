"""One step of DP-SGD, to be read against Algorithm 1 of Abadi et al. (2016, arXiv 1607.00133).

Take a random sample L_t with probability L/N           sampling.Lots.draw
Compute gradient   g_t(x_i) ← ∇L(θ_t, x_i)              Step.add, for each physical batch of the lot
Clip gradient      ḡ_t(x_i) ← g_t(x_i)/max(1, ‖g‖/C)    Step.add
Add noise          g̃_t ← (Σ_i ḡ_t(x_i) + N(0, σ²C²))/L  Step.finish, once for the lot, for C and what rounding adds
Descent            θ_{t+1} ← θ_t − η_t g̃_t              Step.finish

What a record contributes is the plan's to say (`contributions`): gradients here, and other things by the same step.
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
from dpnlp.training.clipping import Loss
from dpnlp.training.contributions import Seen, Sums
from dpnlp.training.parameters import Frame, Parameters, Parts
from dpnlp.training.plan import Plan
from dpnlp.training.sharding import Placement


class State(NamedTuple):
    """What a run carries from step to step."""

    parameters: Parameters
    optimizer: Any
    noise: Any
    average: Parameters  # of the parameters so far, with weights that fall off exponentially; empty if not asked for
    carried: Any = ()  # what the plan's contribution carries along


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
        contribution = self.plan.contribution
        state = State(
            parameters,
            self.optimizer.init(parameters),
            self.plan.noise.init(
                jax.eval_shape(lambda p: contribution.query(self.plan, self._empty(p))[0], parameters)
            ),
            parameters if self.decay else {},
            contribution.start(),
        )
        placed: State = self.placement.state(jax.tree.map(jnp.array, state))
        return placed

    def empty(self, parameters: Parameters) -> Sums:
        """The sum over no records at all."""
        return self._empty(parameters)

    def add(
        self, sums: Sums, parameters: Parameters, key: Array, examples: Examples, per_record: int, carried: Any = ()
    ) -> Sums:
        """Computes and clips what the records of a physical batch contribute, and adds it to the sum over the lot."""
        private = (sums.gradients, sums.lost)
        others = (sums.seen, sums.beside)
        return self._add(private, others, parameters, self.rest, carried, key, examples, per_record)

    def finish(self, state: State, sums: Sums, key: Array) -> State:
        """Adds noise once, divides by the expected lot size (law 2), and descends."""
        return self._finish(state, sums, key)

    @property
    def compilations(self) -> int:
        """How many shapes were compiled so far."""
        return self._add._cache_size() + self._finish._cache_size()  # type: ignore[attr-defined,no-any-return]

    @cached_property
    def _empty(self) -> Callable[..., Sums]:
        def empty(parameters: Parameters) -> Sums:
            def zeros() -> Parameters:
                shaped = {name: jnp.zeros(value.shape, jnp.float32) for name, value in parameters.items()}
                return self.placement.pinned(shaped)  # type: ignore[no-any-return]

            seen = Seen(*(jnp.zeros(()) for _ in Seen._fields))
            return Sums(zeros(), seen, self.plan.contribution.nothing(), zeros() if self.plan.clips else ())

        return jax.jit(empty)

    @cached_property
    def _add(self) -> Callable[..., Sums]:
        @partial(jax.jit, static_argnums=7, donate_argnums=0)
        def add(
            private: tuple[Parameters, Any],
            others: tuple[Seen, Any],
            parameters: Parameters,
            rest: Any,
            carried: Any,
            key: Array,
            examples: Examples,
            per_record: int,
        ) -> Sums:
            keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, examples.rows)
            parts, batch = Parts(self.frame, parameters, rest), (keys, examples.batch)
            more = self.plan.contribution.of(
                self.plan, self._dropping_loss, parts, carried, batch, examples.weights, per_record
            )
            gradients, lost = private
            total = Sums(gradients, *others, lost).grown(more)
            gradients, lost = self.placement.pinned((total.gradients, total.lost))
            return total._replace(gradients=gradients, lost=lost)

        return add

    def _dropping_loss(self, model: Any, batch: tuple[Array, Any]) -> Array:
        """The loss of each example, with dropout by its own key, in float32."""
        with dropout.dropping(batch[0]):
            return self.loss(model, batch[1]).astype(jnp.float32)

    @cached_property
    def _finish(self) -> Callable[..., State]:
        contribution, sigma_C = self.plan.contribution, self.plan.stddev

        def finish(state: State, sums: Sums, key: Array) -> State:
            noise_state, (answer, lost) = state.noise, contribution.query(self.plan, sums)
            if sigma_C:
                noise, noise_state = self.plan.noise.draw(state.noise, key, answer, sigma_C)
                lost = jax.tree.map(jnp.add, lost, noise) if lost else noise
            if lost:
                answer = jax.tree.map(jnp.add, answer, lost)
            gradients, carried = contribution.gradient(self.plan, answer, state.carried)
            updates, optimizer = self.optimizer.update(gradients, state.optimizer, state.parameters)
            parameters = optax.apply_updates(state.parameters, updates)
            average = optax.incremental_update(parameters, state.average, 1 - self.decay) if self.decay else {}
            following: State = self.placement.pinned(State(parameters, optimizer, noise_state, average, carried))
            return following

        return jax.jit(finish, donate_argnums=0)
