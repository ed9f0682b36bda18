"""What rounding may add to what one record moves, and how sums are made so that it is at most η C (law 13).

Let v_r be what record r contributes, as real numbers: Σ_t fl(c_r a_t) ⊗ g_t. Three things hold.

1. v_r has the same bits whoever is in the lot, because its shape follows from r alone (`sampling.Layout`) and a row of
   a batch has the same bits whatever stands in the other rows. ‖v_r‖ ≤ C (`clipping`).
2. Records of one shape stand in a random order (`sampling.cut`). Let r be added, and be put in the place of a random
   record, which goes to the end: that order is as likely as any. So the two lots can be paired in such a way that all
   batches are equal, bit for bit, but the one that r is in and those at the end. What holds for each pair of lots holds
   for their mixture, since the hockey-stick divergence is jointly convex.
3. A sum in floating point differs from the true one by at most u Σ‖s‖, over all its intermediate results s, with
   u = 2⁻²⁴. Batches are added in twice the precision (`two_sum`), so that what remains is the rounding inside of the
   batches that differ: with r and without it, in its place and at the end, four times that of one batch.

Of a batch, pieces are summed up by themselves, and only one of them differs. A stretch of t positions of record r adds
up to at most c_r Σ_t ‖a_t‖‖g_t‖ ≤ √t c_r √S ≤ 2√t C, with S = Σ_t ‖a_t‖²‖g_t‖², for clipping keeps c_r √S below 2C. A
piece of P records with T positions each has P·T intermediate results. Each consists of whole records, of half of P on
average, the end of a record before them and the start of one after them, whose √t is 2/3 √T on average. So the piece is
off by at most u P T (P/2 + (2 + 4/3) √T) C, and one that is a stretch of T' positions of one record by u T' 2√T C.
"""

import math

import jax
import jax.numpy as jnp

from dpnlp.bookkeeping import Array

ROUNDING = 0.01
"""η: the noise is made for records that move a sum by up to C (1 + η)."""

UNIT = 2.0**-24
"""u, half of the distance between neighbouring numbers of float32, relative to them."""

_FOUR = 4 * UNIT
_PRODUCTS = 0.75 * ROUNDING / _FOUR  # what contractions may use up of η
_TOGETHER = 128  # records whose rows of a table, or whose own gradients, are summed up at once
_TENSOR_CORES = 8  # products of 16 bits that tensor cores add up before they round once, with room to spare


def piece(records: int, positions: int, dtype: object) -> tuple[int, int]:
    """How many records, with how many of their positions, one contraction may sum up."""
    together = records
    while together > 1 and _inside(together, positions, positions, dtype) > _PRODUCTS:
        together = -(-together // 2)
    part = positions
    while part > 1 and _inside(together, part, positions, dtype) > _PRODUCTS:
        part = -(-part // 2)
    return together, part


def groups(records: int) -> list[slice]:
    """The records in groups that may be summed up at once where each has one term: rows of tables, whole gradients."""
    return slices(records, _TOGETHER)


def slices(size: int, most: int) -> list[slice]:
    """0 … size − 1 in stretches of at most so many."""
    return [slice(start, min(start + most, size)) for start in range(0, size, most)]


def bound(records: int, positions: int, dtype: object = jnp.float32) -> float:
    """η as it comes out for batches of this shape; one above `ROUNDING` is too large for what the noise is made for."""
    together, part = piece(records, positions, dtype)
    contractions = -(-records // together) * -(-positions // part)
    terms, sums = min(records, _TOGETHER), len(groups(records))
    return _FOUR * (_inside(together, part, positions, dtype) + terms**2 / 2 + (contractions + sums) * records)


def _inside(together: int, part: int, positions: int, dtype: object) -> float:
    """The intermediate results of one contraction, each with its length in C, added up."""
    root = math.sqrt(positions)
    if part < positions:
        return _rounds(dtype) * part * 2 * root
    return _rounds(dtype) * together * positions * (together / 2 + 10 / 3 * root)


def _rounds(dtype: object) -> float:
    """How often a sum of products is rounded, for each product."""
    return 1 / _TENSOR_CORES if dtype == jnp.bfloat16 and jax.default_backend() == "gpu" else 1.0


def two_sum(high: Array, low: Array, more: Array) -> tuple[Array, Array]:
    """high + low + more as a number of float32 and what rounding took from it (Knuth 1969)."""
    total = high + more
    back = total - high
    lost = (high - (total - back)) + (more - back)
    return total, low + lost


def block(dtype: object) -> int:
    """The columns of a Gram matrix that are summed up at once. Tensor cores round seldom enough to take all of them."""
    return 8192 if _rounds(dtype) == 1 else 2**31


def depth(width: int, dtype: object) -> int:
    """How often an entry of a Gram matrix over so many columns is rounded."""
    return math.ceil(_rounds(dtype) * min(width, block(dtype))) + -(-width // block(dtype))


def total(values: Array) -> Array:
    """Σ over all axes but the first, in two stages of about √n terms, so that n terms are rounded 2√n times at most."""
    flat = values.reshape(values.shape[0], -1)
    if flat.shape[1] <= 64:
        return jnp.sum(flat, axis=1)
    width = math.isqrt(flat.shape[1] - 1) + 1
    folded = jnp.pad(flat, ((0, 0), (0, -flat.shape[1] % width))).reshape(flat.shape[0], -1, width)
    # Without the barrier the compiler makes one sum of both.
    stages: Array = jax.lax.optimization_barrier(jnp.sum(folded, axis=2))  # type: ignore[no-untyped-call]
    return jnp.sum(stages, axis=1)
