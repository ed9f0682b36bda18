"""One secret of 32 bytes for all that is random in a run: lots, noise and dropout (laws 6 and 7).

What is drawn at a step depends on the secret, on what it is for, and on the step alone. So a run that was killed goes
on exactly as it would have gone on, and nothing but the step has to be kept for it. Whoever has the secret can take the
noise off: it lies in a run's checkpoints, and goes when they go.
"""

import hmac
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from dpnlp.guarantee import NoiseSource
from dpnlp.mechanisms.randomness import OS_ENTROPY, Source


@dataclass(frozen=True)
class Secret:
    """The secret itself, which is never shown, and where it came from."""

    value: bytes = field(repr=False)
    kind: NoiseSource

    @classmethod
    def drawn(cls, source: Source = OS_ENTROPY) -> "Secret":
        """A new one; `FixedSeed(7)` as its source makes a run that can be repeated."""
        return cls(source.bytes(32), source.kind)

    def generator(self, purpose: str, step: int = 0) -> np.random.Generator:
        """A NumPy generator for one purpose at one step."""
        return np.random.default_rng(int.from_bytes(self._digest(purpose, step), "little"))

    def key(self, purpose: str, step: int = 0) -> jax.Array:
        """A JAX key for one purpose at one step.

        Threefry's keys have 64 bits. Each step has its own, so that finding one by trial tells nothing of the others.
        """
        words = jnp.asarray(np.frombuffer(self._digest(purpose, step)[:8], dtype="<u4"))
        key: jax.Array = jax.random.wrap_key_data(words, impl="threefry2x32")
        return key

    def _digest(self, purpose: str, step: int) -> bytes:
        return hmac.digest(self.value, f"{purpose} {step}".encode(), "sha256")
