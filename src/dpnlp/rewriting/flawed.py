"""ADePT's first mechanism (Krishna et al. 2021, Theorem 1), which claims more than it gives. A demonstration alone.

It clips latents of n entries in ℓ2, adds Laplace noise for Δ₁ = 2C, and claims ε (thesis Eqn 5.2). But two such latents
may be 2C√n apart in ℓ1 (Habernal 2021, Theorem 5.1), so that it gives no more than √n·ε. `adept` is the corrected one.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy.typing as npt

from dpnlp.mechanisms import Laplace
from dpnlp.mechanisms.randomness import OS_ENTROPY, Source
from dpnlp.rewriting.latent import Clip, Latents, Rule


@dataclass(frozen=True)
class OverclaimingLaplace:
    """What claims ε for latents and breaks its promise, for an audit to find out. Never release a text by it.

    It is no `Mechanism`: it has no guarantee, no rewriter takes it, and no setting names it.
    """

    bound: float  # C
    dimension: int  # n
    claimed_epsilon: float
    source: Source = OS_ENTROPY

    def __post_init__(self) -> None:
        self.given_epsilon  # noqa: B018  (a wrong field is refused here, not at the first release)

    @property
    def given_epsilon(self) -> float:
        """√n·ε, by the distance that two latents really can have."""
        return self._clip.sensitivity.l1 / self._noise.scale

    def release(self, latents: npt.ArrayLike) -> Latents:
        """z · min(1, C/‖z‖₂) + Lap(2C/ε): [texts, n] -> the same."""
        return self._noise.release(self._clip(latents))

    @cached_property
    def _clip(self) -> Clip:
        return Clip(Rule.L2, self.bound, self.dimension)

    @cached_property
    def _noise(self) -> Laplace:
        return Laplace(2 * self.bound, self.claimed_epsilon, self.source)
