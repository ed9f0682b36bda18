"""Whether an example's loss depends on that example alone (law 4), looked at before a run starts.

So it does in every layer: book-keeping takes the gradient at the n-th row of a batch for that of the n-th example.

A proof it is not: it looks at a few examples. But what mixes examples, such as batch statistics, a mean over the tokens
of a batch, time taken for the batch axis or attention to padding, does so in every batch.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dpnlp.checks import BadInput
from dpnlp.training.clipping import Loss, losses_moved
from dpnlp.training.parameters import Parts

TOLERANCE, HALF_TOLERANCE = 2e-3, 3e-2
"""What the same computation in another shape may differ by, in float32 and in less, as a share of the largest loss: a
small one is a difference of large logits, and has their rounding. Mixing changes the first digits."""

_KEPT = {
    nnx.BatchStat: (
        "batch statistics mix the examples of a batch, so that no gradient is one example's alone; use a layer norm "
        "instead."
    ),
    nnx.RngState: (
        "its randomness belongs to a place in the batch instead of an example; use the Dropout of dpnlp's layers, and "
        "drop Flax's Rngs once the model is built."
    ),
}
"""State that a model must not keep, and why."""


def refuse_mixing(loss: Loss, parts: Parts, batch: Any, *otherwise_padded: Any) -> None:
    """Refuses a loss that for one example is another one when the example is alone, or when it is padded otherwise."""
    for path, node in nnx.graph.iter_graph(parts.model()):
        for kind, why in _KEPT.items():
            if isinstance(node, kind):
                raise BadInput(f"{'.'.join(map(str, path))}: {why}")
    batch = jax.tree.map(jnp.asarray, batch)
    size = jax.tree.leaves(batch)[0].shape[0]
    computation = jax.make_jaxpr(lambda batch: loss(parts.model(), batch))(batch)
    shape = computation.out_avals[0].shape
    if shape != (size,):
        raise BadInput(
            f"loss: it has the shape {shape} for a batch of {size} examples, and must have a value for each; do not "
            "sum or average over the batch."
        )
    half = any(name in str(computation) for name in ("bf16[", "f16["))
    # The parameters are arguments: what a compiled function closes over is copied into it.
    compiled = jax.jit(
        lambda parameters, rest, *given: losses_moved(loss, Parts(parts.frame, parameters, rest), *given)
    )
    moving = partial(compiled, parts.parameters, parts.rest)

    def losses(batch: Any) -> Any:
        return moving(batch, jnp.zeros(jax.tree.leaves(batch)[0].shape[0], bool))

    def differ(first: Any, second: Any) -> bool:
        largest = np.max(np.abs(first), where=np.isfinite(first), initial=0)
        return not np.allclose(
            first, second, rtol=0, atol=1e-6 + (HALF_TOLERANCE if half else TOLERANCE) * largest, equal_nan=True
        )

    # GPUs multiply float32 with three digits by default, and in another shape with other ones.
    with jax.default_matmul_precision("highest"):
        together, rows = np.asarray(losses(batch)), np.eye(size, dtype=bool)
        others = [np.array_equal(moving(batch, row)[~row], together[~row], equal_nan=True) for row in rows]
        alone = [losses(jax.tree.map(lambda leaf, at=at: leaf[at : at + 1], batch)) for at in range(size)]
        padded = [losses(jax.tree.map(jnp.asarray, other)) for other in otherwise_padded]
    if differ(together, np.concatenate(alone)):
        raise BadInput(
            "loss: the loss of an example changes with what else is in its batch; normalise it by the example's own "
            "tokens, and keep the batch on the first axis of every layer."
        )
    if not all(others):
        raise BadInput(
            "loss: what a layer makes of an example changes the loss of another one; keep the examples in their order "
            "in every layer."
        )
    if any(differ(together, other) for other in padded):
        raise BadInput(
            "loss: the loss of an example changes with the length that its batch is padded to; mask the padding "
            "wherever the model looks from one token to another, and count the example's own tokens alone."
        )
