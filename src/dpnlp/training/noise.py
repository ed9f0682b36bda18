"""Gaussian noise on the sum over one lot, drawn once for all devices together (law 3).

A draw depends on its key and on the shapes alone: each device computes its own part, and any number of them gives the
same noise. `Independent` noise is that of DP-SGD; `Banded` noise cancels a part of itself in later steps.
"""

from dataclasses import dataclass
from functools import cache, partial
from math import inf, pi, prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpnlp import checks

Array = jax.Array
Tree = Any
"""Arrays, or whatever else has a shape, in dicts, lists and tuples; a dict's leaves come in the order of its keys."""


@partial(jax.jit, static_argnames="shape")
def normal(key: Array, shape: tuple[int, ...]) -> Array:
    """Standard normal numbers in float32, in the tails too.

    `jax.random.normal` makes a number from 23 random bits. It knows 2^23 values, all between −5.42 and 5.22, whereas of
    10^8 true normals a few are beyond 5.5. A vector of d numbers that a record moves by 1/z leaves this box with a
    probability of about √d φ(5.4)/z, φ the normal density, and whoever sees that has seen the record. For d = 10^8 and
    z = 1 that is 0.002 at each step, far above any δ. Those here reach to √(2·65 ln 2) = 9.49, and φ(9.49) = 10⁻²⁰.
    """
    if prod(shape) == 0:
        return jnp.zeros(shape, jnp.float32)
    *front, width = shape or (1,)  # the two numbers of a pair are neighbours, so that one device makes both
    words = jax.random.bits(key, (3, *front, -(-width // 2)), jnp.uint32)
    return jnp.stack(normal_pairs(words), axis=-1).reshape(*front, -1)[..., :width].reshape(shape)


def normal_pairs(words: Array) -> tuple[Array, Array]:
    """Independent standard normals √(−2 ln u) cos θ and √(−2 ln u) sin θ (Box and Muller 1958), from words [3, ...].

    Two words make u = (high + (low + ½)/2^32)/2^32. Float32 is fine near 0 only, so above a half the logarithm is that
    of 1 − (1 − u), with 1 − u from the complements of the words. Thus no radius is 0, and none is infinite.
    """
    high, low, turn = words
    u, rest = _uniform(high, low), _uniform(~high, ~low)
    radius = jnp.sqrt(-2 * jnp.where(u < 0.5, jnp.log(u), jnp.log1p(-rest)))
    angle = (2 * pi / 2**32) * (jax.lax.bitcast_convert_type(turn, jnp.int32).astype(jnp.float32) + 0.5)
    return radius * jnp.cos(angle), radius * jnp.sin(angle)


def _uniform(high: Array, low: Array) -> Array:
    return (high.astype(jnp.float32) + (low.astype(jnp.float32) + 0.5) * 2.0**-32) * 2.0**-32


def tree_noise(key: Array, template: Tree, stddev: float | Array) -> Tree:
    """Normal noise of this standard deviation in the shapes of the template, drawn afresh for each leaf of it.

    Leaves of one shape are drawn together: the noise of a model compiles in seconds, where one draw for each of its
    hundreds of leaves takes minutes on a GPU.
    """
    leaves, structure = jax.tree.flatten(template)
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, jnp.arange(len(leaves)))
    alike: dict[tuple[int, ...], list[int]] = {}
    for index, leaf in enumerate(leaves):
        alike.setdefault(leaf.shape, []).append(index)
    drawn: dict[int, Array] = {}
    for shape, members in alike.items():
        together = stddev * jax.vmap(partial(normal, shape=shape))(keys[np.array(members)])
        drawn.update(zip(members, together, strict=True))
    return jax.tree.unflatten(structure, [drawn[index] for index in range(len(leaves))])


@dataclass(frozen=True)
class Independent:
    """Fresh noise at every step (Abadi et al. 2016, Algorithm 1, line 7)."""

    def init(self, template: Tree) -> Tree:
        """What is kept from step to step: nothing."""
        return ()

    def draw(self, state: Tree, key: Array, template: Tree, stddev: float | Array) -> tuple[Tree, Tree]:
        """The noise of one step, and the state after it. The key must be another one at every step."""
        return tree_noise(key, template, stddev), state


class BandedState(NamedTuple):
    """What banded noise keeps from step to step. The strategy is part of it, so that a resumed run has the same one."""

    step: Array
    coefficients: Array  # [b], the diagonals c of C
    lengths: Array  # [b], the norm of c cut to 1, 2, ... b entries
    past: Tree  # each leaf with the b − 1 latest entries of the recursion, [b − 1, *shape]


@dataclass(frozen=True)
class Banded:
    """Noise C⁻¹z for z as `Independent` draws it, C lower triangular with `bands` diagonals, for a run of `steps`.

    C is Toeplitz up to the norm 1 that each of its columns is given (Choquette-Choo et al. 2023, arXiv 2306.08153,
    Algorithms 1 and 9), optimised for the mean squared error of the weights over the run (McKenna 2024, arXiv
    2405.15913). Releasing g + C⁻¹z is releasing Cg + z: what a record adds at one step moves it by C's column, so by
    at most the clip norm, in rows that end before the record's next turn `bands` steps later. That is what
    cyclic-poisson sampling accounts for. It keeps `bands` − 1 copies of the trained weights.
    """

    bands: int
    steps: int

    def __post_init__(self) -> None:
        checks.count("bands", self.bands)
        checks.count("steps", self.steps)

    def init(self, template: Tree) -> BandedState:
        """The state before the first step. Finding C takes a second, or a minute for 100,000 steps of 32 bands."""
        coefficients, lengths = (jnp.asarray(values) for values in strategy(min(self.bands, self.steps), self.steps))
        return BandedState(jnp.int32(0), coefficients, lengths, _inverse(coefficients).init_multiply(template))

    def draw(self, state: BandedState, key: Array, template: Tree, stddev: float | Array) -> tuple[Tree, BandedState]:
        """The noise of one step, and the state after it. The key must be another one at every step.

        Past its `steps` the columns of C would be longer than they were normalised for, so there is no noise for them:
        it is NaN.
        """
        step, coefficients, lengths, past = state
        white = tree_noise(key, template, stddev)
        with jax.default_matmul_precision("highest"):
            rows, past = _inverse(coefficients).multiply_next(white, past)
        # A column of C that is divided by its norm is a row of C⁻¹ times it; the last columns are cut off by the end.
        length = lengths[jnp.clip(self.steps - step, 1, lengths.size) - 1]
        length = jnp.where(step < self.steps, length, jnp.nan)
        return jax.tree.map(lambda row: length * row, rows), BandedState(step + 1, coefficients, lengths, past)


@cache
def strategy(bands: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The diagonals c_0, c_1, ... of C before its columns are normalised, and the norms of the first k of them.

    The norms are rounded up in float32, so that no column of C is longer than 1.
    """
    from jax_privacy.matrix_factorization import toeplitz

    with jax.ensure_compile_time_eval():
        coefficients = np.asarray(toeplitz.optimize_banded_toeplitz(steps, bands), np.float32)
    norms = np.sqrt(np.cumsum(coefficients.astype(np.float64) ** 2))
    lengths = norms.astype(np.float32)
    return coefficients, np.where(lengths < norms, np.nextafter(lengths, np.float32(inf)), lengths)


def _inverse(coefficients: Array) -> Any:
    """jax-privacy's multiplication by the inverse of a banded Toeplitz matrix, one row at a time."""
    from jax_privacy.matrix_factorization import toeplitz

    return toeplitz.inverse_as_streaming_matrix(coefficients)
