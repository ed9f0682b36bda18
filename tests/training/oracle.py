"""DP-SGD by hand, for the engine to be compared with: one record at a time, `jax.grad`, plain sums and optax."""

from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx


def flat(model, trains=nnx.Param):
    """The parameters of a model by name, as NumPy arrays of their own."""
    found = nnx.to_flat_state(nnx.state(model, trains))
    return {".".join(map(str, path)): np.array(variable[...]) for path, variable in found}


def follow(model, loss, data, lots, optimizer, lot_size, clip_norm=np.inf, trains=nnx.Param, length=1):
    """The parameters after each lot. A lot is a list of records, and a record a list of rows, whose loss is a mean."""
    structure, trained, rest = nnx.split(model, trains, ...)

    @jax.jit
    def gradient(trained, examples):
        return jax.grad(lambda state: loss(nnx.merge(structure, state, rest), examples).mean())(trained)

    @jax.jit
    def clipped(total, gradient):
        norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient)))
        factor = jnp.minimum(1.0, clip_norm / jnp.maximum(norm, 1e-30))
        return jax.tree.map(lambda t, g: t + factor * g, total, gradient)

    @jax.jit
    def descend(trained, state, total):
        updates, state = optimizer.update(jax.tree.map(lambda t: t / lot_size, total), state, trained)
        return optax.apply_updates(trained, updates), state

    state, after = optimizer.init(trained), []
    for lot in lots:
        each = (gradient(trained, data.batch(np.atleast_1d(rows), length)) for rows in lot)
        total = reduce(clipped, each, jax.tree.map(jnp.zeros_like, trained))
        trained, state = descend(trained, state, total)
        after.append(flat(nnx.merge(structure, trained, rest), trains))
    return after


def assert_same(found, expected, tolerance=1e-5):
    """Every parameter, to a part of the largest entry of all."""
    assert found.keys() == expected.keys()
    scale = max(float(np.abs(value).max()) for value in expected.values())
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=tolerance, atol=tolerance * scale, err_msg=name)
