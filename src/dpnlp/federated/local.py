"""What a user does with the model in a round: SGD on that user's own examples (McMahan et al. 2018, Algorithm 1)."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpnlp import checks
from dpnlp.bookkeeping import Array
from dpnlp.training.clipping import Loss
from dpnlp.training.parameters import Parameters, Parts


@dataclass(frozen=True)
class LocalSGD:
    """θ ← θ − η∇ℓ(θ; b) for each batch b of B examples, E times over them, in the order in which they come."""

    rate: float  # η
    epochs: int = 1  # E
    batch: int = 16  # B, examples

    def __post_init__(self) -> None:
        checks.positive("local_rate", self.rate)
        checks.count("local_epochs", self.epochs)
        checks.count("local_batch", self.batch)

    def moved(self, loss: Loss, parts: Parts, batch: tuple[Array, Any], real: Array) -> tuple[Parameters, Array]:
        """Δ = θ_local − θ_t of one user, in float32, and the mean loss on the way.

        It depends on the user's examples alone (law 4): those that are not `real` fill up batches, and a batch of
        nothing else moves nothing. What is carried along is Δ itself, which is small beside θ and would lose its last
        digits in a difference.
        """
        examples = real.shape[0]
        size = min(self.batch, examples)
        places = np.arange(-(-examples // size) * size).reshape(-1, size)  # [batches, size]; the last may be cut short
        inside = jnp.where(places < examples, real[np.minimum(places, examples - 1)], False)
        keys, data = jax.tree.map(lambda leaf: leaf[np.minimum(places, examples - 1)], batch)

        def descend(delta: Parameters, given: tuple[Array, Any, Array]) -> tuple[Parameters, Array]:
            keys, data, counted = given

            def mean_loss(delta: Parameters) -> Array:
                losses = loss(parts.model(_sum(parts.parameters, delta)), (keys, data))
                return jnp.sum(counted * losses) / jnp.maximum(counted.sum(), 1)

            value, gradient = jax.value_and_grad(mean_loss)(delta)
            return jax.tree.map(lambda d, g: d - self.rate * g, delta, gradient), value * counted.sum()

        def pass_over(delta: Parameters, epoch: Array) -> tuple[Parameters, Array]:
            others = jax.vmap(jax.vmap(jax.random.fold_in, (0, None)), (0, None))(keys, epoch)
            delta, losses = jax.lax.scan(descend, delta, (others, data, inside))
            return delta, losses.sum()

        start = {name: jnp.zeros(value.shape, jnp.float32) for name, value in parts.parameters.items()}
        delta, losses = jax.lax.scan(pass_over, start, jnp.arange(self.epochs))
        return delta, losses.sum() / (self.epochs * jnp.maximum(real.sum(), 1))


def _sum(parameters: Parameters, delta: Parameters) -> Parameters:
    return {name: (value + delta[name]).astype(value.dtype) for name, value in parameters.items()}
