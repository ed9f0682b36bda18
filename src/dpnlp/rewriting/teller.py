"""The network of Retell: an entrance for a noisy latent and its σ, and a decoder that writes from what it makes.

Noise is part of how it learns (thesis §6.6.2): of every example and at every step σ is drawn anew, log-uniformly from a
range, so that one network serves every ε whose σ lies in it.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from flax import nnx
from jax import Array

from dpnlp import checks, dropout
from dpnlp.checks import BadInput
from dpnlp.mechanisms import analytic_sigma
from dpnlp.models.layers import Linear
from dpnlp.models.seq2seq import Memory, Seq2Seq
from dpnlp.rewriting.latent import Clip, Latents


@dataclass(frozen=True)
class Budgets:
    """The smallest and the largest ε that a network is to serve, at one δ."""

    epsilons: tuple[float, ...]
    delta: float

    def __post_init__(self) -> None:
        allowed = [checks.positive("epsilons", epsilon) for epsilon in self.epsilons]
        if len(allowed) != 2 or allowed[0] > allowed[1]:
            raise BadInput(f"epsilons = {self.epsilons}: it must be two numbers above 0, the smaller one first.")
        checks.probability("delta", self.delta)

    def sigmas(self, sensitivity: float) -> tuple[float, float]:
        """The σ of the largest ε, and that of the smallest."""
        small, large = self.epsilons
        return analytic_sigma(large, self.delta, sensitivity), analytic_sigma(small, self.delta, sensitivity)


@dataclass(frozen=True, eq=False)
class Channel:
    """What latents go through on their way to the entrance: C, the variance v of each entry, and the range of σ.

    v is that of public latents once they are clipped. `low` is the σ of the largest ε, `high` that of the smallest.
    """

    bound: float  # C
    variances: npt.NDArray[np.float32]  # [n]
    low: float
    high: float

    @classmethod
    def of(cls, clip: Clip, clipped: Latents, budgets: Budgets) -> "Channel":
        """The one for these clipped public latents, with the noise of these budgets."""
        variances = np.mean(clipped**2, axis=0).astype(np.float32)
        return cls(clip.bound, variances, *budgets.sigmas(clip.sensitivity.l2))

    def noised(self, latents: Array) -> tuple[Array, Array]:
        """z' = z + N(0, σ²) and σ for each example, in training: [batch, n] -> the same, [batch].

        Both are drawn with the keys that a step of training opens (`dropout`). Where none are open, as in evaluation,
        there is no noise. It is drawn in floating point: it hides nothing, and only shows the decoder what it will have
        to read.
        """
        if (levels := dropout.next_keys()) is None or (keys := dropout.next_keys()) is None:
            return latents, jnp.full(latents.shape[0], self.low)
        span = math.log(self.low), math.log(self.high)
        sigmas = jnp.exp(jax.vmap(lambda key: jax.random.uniform(key, minval=span[0], maxval=span[1]))(levels))
        drawn = jax.vmap(lambda key: jax.random.normal(key, latents.shape[1:]))(keys)
        return latents + sigmas[:, None] * drawn, sigmas

    def seen(self, latents: Array, sigmas: Array) -> Array:
        """What the entrance is given: z'/√(v + σ²), of variance 1 whatever σ is, and log(σ/C): [batch, n + 1]."""
        scaled = latents / jnp.sqrt(self.variances + sigmas[:, None] ** 2)
        return jnp.concatenate([scaled, jnp.log(sigmas[:, None] / self.bound)], axis=1)


class Teller(nnx.Module):
    """A linear entrance, and an encoder-decoder whose decoder attends to its k states. The encoder is not used."""

    def __init__(self, entrance: Linear, writer: Seq2Seq) -> None:
        self.entrance, self.writer = entrance, writer

    def memory(self, seen: Array) -> Memory:
        """What the decoder attends to, with no position hidden: [batch, n + 1] -> k states of each."""
        states = self.entrance(seen)
        return self.writer.remember(states.astype(self.writer.dtype), jnp.ones(states.shape[:2], jnp.int32))
