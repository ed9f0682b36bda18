"""What lies between DP-BART's encoder and its decoder (thesis §6.3.3 to §6.3.5): clipped, pruned, noised states.

The latent z of a text has n = l·d entries: l positions, whatever the text's own length is, and d neurons of each, those
of the encoder's d_tok that were not pruned.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpnlp import checks, dropout
from dpnlp.checks import BadInput
from dpnlp.mechanisms import Gaussian, Laplace
from dpnlp.rewriting.latent import Clip, Latents, Rule


@dataclass(frozen=True)
class Bottleneck:
    """Which of the encoder's states [l, d_tok] are handed on, and within which bound C.

    `pruned` is P of Algorithm 1: neurons that are 0 at every position of every text. They say nothing of a text, and
    get no noise. Without a bound, which is before one was chosen, nothing is clipped and nothing can be noised.
    """

    width: int  # d_tok
    length: int = 20  # l
    bound: float | None = None  # C
    pruned: tuple[int, ...] = ()  # P

    def __post_init__(self) -> None:
        checks.count("width", self.width)
        checks.count("length", self.length, least=2, remedy="a text needs a token and its end")
        if self.bound is not None:
            checks.positive("bound", self.bound)
        object.__setattr__(self, "pruned", tuple(sorted(set(self.pruned))))
        for neuron in self.pruned:
            if checks.count("pruned", neuron, least=0) >= self.width:
                raise BadInput(f"pruned = {neuron}: neurons are numbered from 0 to {self.width - 1}; correct it.")
        if len(self.pruned) == self.width:
            raise BadInput(f"pruned = all {self.width} neurons: at least one must be left; prune fewer.")

    @cached_property
    def kept(self) -> NDArray[np.int64]:
        """The neurons that are left, [d]."""
        return np.setdiff1d(np.arange(self.width), self.pruned)

    @property
    def dimension(self) -> int:
        """n = l·d."""
        return self.length * len(self.kept)

    @property
    def clip(self) -> Clip:
        """CLIP of Eqns 6.2 and 6.4, with its sensitivities 2Cn and 2C√n (Theorems 6.3.1 and 6.3.2)."""
        if self.bound is None:
            raise BadInput("bound = None: states of any size have no sensitivity; take a bound C from `spread`.")
        return Clip(Rule.VALUE, self.bound, self.dimension)

    def latents(self, states: jax.Array) -> jax.Array:
        """z of Eqn 6.3: [batch, l, d_tok] -> [batch, n]."""
        return states[..., self.kept].reshape(states.shape[0], -1)

    def states(self, latents: Latents) -> NDArray[np.float32]:
        """What the decoder attends to, with the pruned neurons as 0: [texts, n] -> [texts, l, d_tok]."""
        whole = np.zeros((len(latents), self.length, self.width), np.float32)
        whole[..., self.kept] = latents.reshape(len(latents), self.length, -1)
        return whole

    def held(self, states: jax.Array, noise: Gaussian | Laplace | None = None) -> jax.Array:
        """The same for training, [batch, l, d_tok]: clipped, noised where there is noise, and pruned.

        Each example has noise of its own, from the keys that a step of training opens (`dropout`). Where none are
        open, as in evaluation, there is no noise. It is drawn in floating point: it hides nothing, and only shows the
        decoder what it will have to read (DP-BART-PR+, §6.3.5).
        """
        z = states if self.bound is None else jnp.clip(states, -self.bound, self.bound)
        if noise is not None and (keys := dropout.next_keys()) is not None:
            z = (z + _drawn(noise, keys, states.shape[1:])).astype(states.dtype)
        return jnp.where(np.isin(np.arange(self.width), self.kept), z, 0)

    def to_json(self) -> dict[str, Any]:
        """Its fields, with the neurons that are left."""
        return {"width": self.width, "length": self.length, "bound": self.bound, "kept": self.kept.tolist()}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "Bottleneck":
        """Reads what `to_json` wrote."""
        gone = set(range(entry["width"])).difference(entry["kept"])
        return cls(entry["width"], entry["length"], entry["bound"], tuple(gone))


@dataclass(frozen=True)
class Spread:
    """Mean μ and standard deviation σ of the entries of latents: what C is chosen by (§6.3.3)."""

    mean: float
    deviation: float

    def bound(self, deviations: float = 0.5) -> float:
        """C = |μ| + kσ. Two deviations keep 95 % of a normal distribution; the thesis found half of one enough."""
        return abs(self.mean) + checks.positive("deviations", deviations) * self.deviation


def _drawn(noise: Gaussian | Laplace, keys: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Noise of the mechanism's own scale for each example: [batch, *shape]."""
    if isinstance(noise, Gaussian):
        return noise.sigma * jax.vmap(lambda key: jax.random.normal(key, shape))(keys)
    return noise.scale * jax.vmap(lambda key: jax.random.laplace(key, shape))(keys)
