"""What rounding may add to what one record moves, and how sums are made so that it is at most η C (law 13).

Let v_r be what record r contributes, as real numbers: Σ_t fl(c_r a_t) ⊗ g_t. Three things hold.

1. v_r has the same bits whoever is in the lot, because its shape follows from r alone (`sampling.Layout`) and a row of
   a batch has the same bits whatever stands in the other rows. ‖v_r‖ ≤ C (`clipping`).
2. Records of one shape stand in a random order (`sampling.cut`). Let r be added, and be put in the place of a random
   record, which goes to the end: that order is as likely as any. So the two lots can be paired in such a way that all
   batches are equal, bit for bit, but the one that r is in and those at the end. What holds for each pair of lots holds
   for their mixture, since the hockey-stick divergence is jointly convex. A record that is exchanged is taken away and
   added, and one unit's several records come or go one after the other.
3. A sum in floating point differs from the true one by at most u Σ‖s‖, over all its intermediate results s, with
   u = 2⁻²⁴. What remains is the rounding inside of the batches that differ: with r and without it, in its place and at
   the end, four times that of one batch.

A batch. Pieces of it are summed up by themselves. A stretch of t positions of record r adds up to at most c_r Σ_t
‖a_t‖‖g_t‖ ≤ √t c_r √S ≤ 2√t C, with S = Σ_t ‖a_t‖²‖g_t‖², for clipping keeps c_r √S below 2C. All positions of a record
add up to at most w C. w is 1, but 2√k where k of the parts that it contributes to a weight are in this sum and others
are not, as with a lookup table that is the output layer too: the parts may nearly cancel, and clipping keeps each of
them below 2C. A piece of P records with T positions each
has P·T intermediate results. Each consists of whole records, of half of P on average, the end of a record before them
and the start of one after them, whose √t is 2/3 √T on average. So the piece is off by at most u P T (w P/2 + (2 + 4/3)
√T) C; only one piece differs. A single record's piece has no other's end, and is off by u T 2√T C; where it is cut into
stretches of T' positions, with ΣS of all of them at most S, all of them together are off by u T' 2√T C (Cauchy and
Schwarz). Where each of P records has one term, of at most w C, as in rows of tables and in whole gradients, their sum
is off by u w P²/2 C. Pieces and groups are added in twice the precision, and what comes out is rounded once, by u P C.

A lot. Batches are added as pairs of numbers (h, l) with |l| ≤ u|h| (`two_sum`), so that each is off by at most 2u²(‖h‖
+ ‖s‖), which is 4u² B N C over B batches of N records; with r and without it, twice that.
"""

import math
import os
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp

from dpnlp.bookkeeping import Array
from dpnlp.checks import BadInput

ROUNDING = 0.01
"""η: the noise is made for records that move a sum by up to C (1 + η)."""

UNIT = 2.0**-24
"""u, half of the distance between neighbouring numbers of float32, relative to them."""

FAINT = 2.0**-102
"""What a squared length may lose, relative to 1/u, where squares are too small for float32: 2⁻¹²⁶ is the least."""

LEAST, MOST = 1e-9, 1e9
"""Clip norms, and noise in clip norms, lie between these. Hardware takes what is below 2⁻¹²⁶ for 0, noise too."""

_FOUR = 4 * UNIT
_PRODUCTS = 0.75 * ROUNDING / _FOUR  # what contractions may use up of η
_TERMS = 0.2 * ROUNDING / _FOUR  # what sums with one term for each record may
_TENSOR_CORES = 8  # products of 16 bits that tensor cores add up before they round once, with room to spare


def far_from_the_ends(name: str, value: float, remedy: str) -> None:
    """Refuses what comes near the ends of float32, where noise vanishes and nothing is bounded any more."""
    if not LEAST <= value <= MOST:
        raise BadInput(
            f"{name} = {value:g}: it must lie between {LEAST:g} and {MOST:g}, far from the ends of float32, where "
            f"noise vanishes; {remedy}."
        )


def piece(records: int, positions: int, dtype: object, largest: float = 1.0) -> tuple[int, int]:
    """How many records, with how many of their positions, one contraction may sum up; both divide what there is.

    A record adds at most so many C to the sum.
    """

    def most(size: int, inside: Callable[[int], float]) -> int:
        return next((some for some in range(size, 1, -1) if size % some == 0 and inside(some) <= _PRODUCTS), 1)

    together = most(records, lambda some: _inside(some, positions, positions, dtype, largest))
    if together > 1:
        return together, positions
    return 1, most(positions, lambda some: _inside(1, some, positions, dtype, largest))


def groups(records: int, largest: float = 1.0) -> list[slice]:
    """The records in groups that may be summed up at once where each has one term, of at most so many C."""
    return slices(records, max(1, math.isqrt(int(2 * _TERMS / largest))))


def length(parts: int, whole: bool) -> float:
    """w: how long some of the parts that a record contributes to a weight can be together, in C."""
    return 1.0 if whole else 2 * math.sqrt(parts)


def slices(size: int, most: int) -> list[slice]:
    """0 … size − 1 in stretches of at most so many."""
    return [slice(start, min(start + most, size)) for start in range(0, size, most)]


def of_products(records: int, positions: int, dtype: object = jnp.float32, largest: float = 1.0) -> float:
    """What a sum of products over the positions of all records of a batch adds to η."""
    return _FOUR * _inside(*piece(records, positions, dtype, largest), positions, dtype, largest)


def of_terms(records: int, largest: float = 1.0) -> float:
    """What a sum with one term for each record of a batch, of at most so many C, adds to η."""
    most = groups(records, largest)[0].stop
    return _FOUR * largest * float(most**2) / 2


def of_parts(records: float) -> float:
    """What a sum of such sums over a batch adds to η."""
    return _FOUR * records


def of_lot(batches: float, records: float) -> float:
    """What the sum over the batches of a lot adds to η."""
    return 8 * UNIT**2 * batches * records


def _inside(together: int, part: int, positions: int, dtype: object, largest: float) -> float:
    """The intermediate results of one contraction, each with its length in C, added up."""
    root = math.sqrt(positions)
    if together == 1:
        return _rounds(dtype) * part * 2 * root
    return _rounds(dtype) * together * positions * (together / 2 * largest + 10 / 3 * root)


def _rounds(dtype: object) -> float:
    """How often a sum of products is rounded, for each product."""
    return 1 / _TENSOR_CORES if dtype == jnp.bfloat16 and jax.default_backend() == "gpu" else 1.0


def two_sum(high: Array, low: Array, more: Array) -> tuple[Array, Array]:
    """high + low + more as a number of float32 and what rounding took from it, no more than u of it (Knuth 1969)."""
    total, lost = _exact(high, more)
    return _exact(total, low + lost)


def _exact(first: Array, second: Array) -> tuple[Array, Array]:
    total = first + second
    back = total - first
    return total, (first - (total - back)) + (second - back)


def refuse_reordering() -> None:
    """Refuses a compiler that takes floats for real numbers: for it, rounding loses nothing that could be kept."""
    _, lost = jax.jit(two_sum)(jnp.float32(1), jnp.float32(0), jnp.float32(2.0**-30))
    if lost != 2.0**-30:
        raise BadInput(
            f"XLA_FLAGS = {os.environ.get('XLA_FLAGS', '')}: with these flags the compiler reorders sums of floats, "
            "and rounding cannot be bounded; take --xla_cpu_enable_fast_math out."
        )


def added(parts: Iterable[Array]) -> Array:
    """The sum of some arrays, in twice the precision."""
    first, *others = parts
    if not others:
        return first
    high, low = first, jnp.zeros_like(first)
    for more in others:
        high, low = two_sum(high, low, more)
    return high + low


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
