"""Where the arrays of a run lie: every batch spread over all devices, parameters on each of them or spread as well.

Everything else follows from that. The contractions of `clipping` sum over the batch, so the compiler sums over devices,
and noise is one array over all of them, the same however many there are (law 3).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dpnlp import checks
from dpnlp.bookkeeping import Array
from dpnlp.checks import BadInput

AXIS = "data"


@dataclass(frozen=True)
class Placement:
    """The devices of a run. `shard_parameters` spreads parameters and all that is shaped like them, too (ZeRO-3)."""

    devices: int = 1
    shard_parameters: bool = False

    def __post_init__(self) -> None:
        # Only for several: to ask starts JAX, and on many hosts they have to find each other before that.
        if checks.count("devices", self.devices) > 1 and self.devices > jax.device_count():
            raise BadInput(f"devices = {self.devices}: there are only {jax.device_count()} of them; use as many.")

    @classmethod
    def everywhere(cls, shard_parameters: bool = False) -> "Placement":
        """All devices that there are, on all hosts."""
        return cls(jax.device_count(), shard_parameters)

    @cached_property
    def mesh(self) -> Mesh:
        return Mesh(np.array(jax.devices()[: self.devices]), (AXIS,))

    def batch(self, tree: Any) -> Any:
        """Host arrays with the examples first, each device getting its share of them."""
        sharding = self._spread(AXIS)
        return jax.tree.map(lambda leaf: _placed(leaf, sharding), tree)

    def state(self, tree: Any) -> Any:
        """Parameters, and all that a run carries along with them."""
        return jax.tree.map(lambda leaf: _placed(leaf, self.sharding(leaf)), tree)

    def pinned(self, tree: Any) -> Any:
        """The same inside a compiled function: its result is to lie where a state lies."""
        shardings = jax.tree.map(self.sharding, tree)
        return jax.lax.with_sharding_constraint(tree, shardings)  # type: ignore[no-untyped-call]

    def sharding(self, leaf: Any) -> NamedSharding:
        """A leaf is spread along its longest axis that the devices can share evenly, else it lies on all of them."""
        shape = np.shape(leaf)
        even = [axis for axis, size in enumerate(shape) if size % self.devices == 0 and size >= self.devices]
        if not self.shard_parameters or not even:
            return self._spread()
        longest = max(even, key=lambda axis: shape[axis])
        return self._spread(*(AXIS if axis == longest else None for axis in range(len(shape))))

    def _spread(self, *axes: str | None) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(*axes))  # type: ignore[no-untyped-call]


def _placed(leaf: Any, sharding: NamedSharding) -> Array:
    """A host array that every process has, of which each takes what belongs to its devices."""
    if isinstance(leaf, jax.Array):
        placed: Array = jax.device_put(leaf, sharding)
        return placed
    return jax.make_array_from_callback(np.shape(leaf), sharding, lambda index: np.asarray(leaf)[index])
