"""Whether an example's loss depends on that example alone (law 4), looked at before a run starts.

A proof it is not: it looks at one batch. But what mixes examples, such as batch statistics, a mean over the tokens of a
batch or time taken for the batch axis, does so in every batch.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dpnlp.bookkeeping import Array
from dpnlp.checks import BadInput
from dpnlp.training.clipping import Loss
from dpnlp.training.parameters import Parts

TOLERANCE = 1e-3
"""The same row of the same computation may differ in its last bits; what mixes examples changes the first digits."""


def refuse_mixing(loss: Loss, parts: Parts, batch: Any) -> None:
    """Refuses a model that keeps batch statistics, and a loss that changes for one example when others are exchanged.

    The first example of the batch stays, and all others become copies of it, or zeros.
    """
    for path, node in nnx.graph.iter_graph(parts.model()):
        if isinstance(node, nnx.BatchStat):
            name = ".".join(map(str, path))
            raise BadInput(
                f"{name}: batch statistics mix the examples of a batch, so that no gradient is one example's alone; "
                "use a layer norm instead."
            )
    shape = jax.eval_shape(lambda: loss(parts.model(), batch)).shape
    size = jax.tree.leaves(batch)[0].shape[0]
    if shape != (size,):
        raise BadInput(
            f"loss: it has the shape {shape} for a batch of {size} examples, and must have a value for each; do not "
            "sum or average over the batch."
        )
    losses = jax.jit(lambda batch: loss(parts.model(), batch))
    batch = jax.tree.map(jnp.asarray, batch)
    kept = losses(batch)[0]
    for exchanged in (jax.tree.map(_copies, batch), jax.tree.map(_zeros, batch)):
        other = losses(exchanged)[0]
        if np.isfinite(kept) and not np.isclose(kept, other, rtol=TOLERANCE, atol=TOLERANCE * 1e-3):
            raise BadInput(
                "loss: the loss of an example changes when the other examples of its batch are exchanged; normalise it "
                "by the example's own tokens, mask its padding, and keep the batch on the first axis of every layer."
            )


def _copies(leaf: Array) -> Array:
    return jnp.broadcast_to(leaf[:1], leaf.shape)


def _zeros(leaf: Array) -> Array:
    return jnp.zeros_like(leaf).at[0].set(leaf[0])
