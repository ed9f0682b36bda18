"""The contractions that book-keeping is made of, in float32, and one kernel for a hundred of them on a GPU."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.custom_partitioning import custom_partitioning
from jax.experimental.pallas import triton
from jax.sharding import NamedSharding, PartitionSpec

from dpnlp.bookkeeping import Array
from dpnlp.training import rounding

# What was fastest for the kernel on one H200:
LEAST, MOST = 16, 128  # positions that it multiplies at once; of more of them, ordinary products are as fast
COLUMNS = 64  # multiplied at a time
BLOCKS = 128  # of columns, for one program
WEIGHTS = 8  # at a time: compiling takes longer with each


def contract(indices: str, first: Array, second: Array) -> Array:
    """A contraction in float32. Hardware may shorten float32 factors to fewer bits unless it is told not to."""
    exact = jax.lax.Precision.HIGHEST if jnp.float32 in (first.dtype, second.dtype) else None
    return jnp.einsum(indices, first, second, preferred_element_type=jnp.float32, precision=exact)


def gram(first: Array, second: Array) -> Array:
    """⟨x_t, y_s⟩ of all pairs of positions, [records, T, S]. The entries of [records, T] stand for one-hot vectors."""
    if first.ndim == second.ndim == 2:
        return (first[:, :, None] == second[:, None, :]).astype(jnp.float32)
    if second.ndim == 2:
        return jnp.take_along_axis(first, second[:, None, :], axis=2).astype(jnp.float32)
    if first.ndim == 2:
        return jnp.swapaxes(gram(second, first), 1, 2)
    # Many columns are summed up in blocks, so that an entry is not rounded as often as there are columns.
    columns = rounding.slices(first.shape[2], rounding.block(first.dtype))
    blocks = [contract("bti,bsi->bts", first[..., some], second[..., some]) for some in columns]
    return sum(blocks[1:], start=blocks[0])


def over_pairs(lefts: Sequence[Array], rights: Sequence[Array]) -> tuple[Array, Array]:
    """Σ_ts⟨a_t, a_s⟩⟨g_t, g_s⟩ and, of it, what t = s adds, Σ_t‖a_t‖²‖g_t‖², summed over weights; both [records].

    The a [records, T, i] have one shape, and the g [records, T, o] have one. What squares are too small to show is
    made up for in those with t = s (`clipping._Size`). With a hundred weights a GPU spends most
    of its time on starting two small products for each, hence the kernel, for what the hardware multiplies as it is.
    """
    if lefts[0].shape[-1] > rights[0].shape[-1]:
        lefts, rights = rights, lefts
    if not all(_suits(side) for side in (*lefts, *rights)):
        return by_einsum(lefts, rights)
    squared, spread = jax.lax.platform_dependent(tuple(lefts), tuple(rights), cuda=by_kernel, default=by_einsum)
    return squared, spread


def _suits(side: Array) -> bool:
    """Float32 would have to be split to keep its bits, and other widths to be padded."""
    return side.dtype == jnp.bfloat16 and side.shape[1] <= MOST and side.shape[2] % COLUMNS == 0


def by_einsum(lefts: Sequence[Array], rights: Sequence[Array]) -> tuple[Array, Array]:
    """The sums `over_pairs`, a product for each weight and side."""
    faint = rounding.FAINT * jnp.eye(rights[0].shape[1], dtype=jnp.float32)
    products = [
        (gram(left, left) + faint) * (gram(right, right) + faint) for left, right in zip(lefts, rights, strict=True)
    ]
    terms = sum(products[1:], start=products[0])  # added up first: one sum over what has one shape
    return rounding.total(terms), jnp.trace(terms, axis1=1, axis2=2)


def by_kernel(lefts: Sequence[Array], rights: Sequence[Array], interpret: bool = False) -> tuple[Array, Array]:
    """The sums `over_pairs`, several weights at a time, in a kernel that writes down no product."""
    launch = _on_each_device(partial(_launch, interpret))
    squared = spread = jnp.zeros(lefts[0].shape[0])
    for start in range(0, len(lefts), WEIGHTS):
        some = slice(start, start + WEIGHTS)
        more = launch(*lefts[some], *rights[some])
        squared, spread = squared + more[0], spread + more[1]
    return squared, spread


def _on_each_device(launch: Callable[..., tuple[Array, Array]]) -> Callable[..., tuple[Array, Array]]:
    """The compiler knows nothing of what a kernel does: each device is to take its own records, none to gather all."""

    def partition(mesh: Any, sides: Any, results: Any) -> Any:
        records = PartitionSpec(*sides[0].sharding.spec[:1])  # type: ignore[no-untyped-call]
        own = NamedSharding(mesh, records)
        return mesh, launch, tuple(own for _ in results), tuple(own for _ in sides)

    def rule(mesh: Any, sides: Sequence[Any], results: Sequence[Any]) -> str:
        inputs = ", ".join(f"r t{n} i{n}" for n, _ in enumerate(sides))
        return f"{inputs} -> {', '.join('r' for _ in results)}"

    parted: Any = custom_partitioning(launch)  # type: ignore[no-untyped-call]
    parted.def_partition(partition=partition, sharding_rule=rule)
    return parted  # type: ignore[no-any-return]


def _launch(interpret: bool, *sides: Array) -> tuple[Array, Array]:
    """One program for each record, each weight, and each long stretch of columns of the wide side."""
    weights = len(sides) // 2
    records, positions, _ = sides[0].shape
    T = max(LEAST, pl.next_power_of_2(positions))  # There are instructions for these alone; the rest of them is zeros.
    grid = (records, weights, pl.cdiv(sides[-1].shape[2], BLOCKS * COLUMNS))
    one = pl.BlockSpec((1, 1, 1), lambda record, weight, stretch: (record, weight, stretch))
    squared, spread = pl.pallas_call(
        partial(_program, weights, positions),
        grid=grid,
        in_specs=[pl.BlockSpec((1, T, side.shape[2]), lambda record, *_: (record, 0, 0)) for side in sides],
        out_specs=[one, one],
        out_shape=[jax.ShapeDtypeStruct(grid, jnp.float32)] * 2,  # type: ignore[no-untyped-call]
        interpret=interpret,
        compiler_params=triton.CompilerParams(num_warps=4 if T <= 64 else 8, num_stages=4),
    )(*sides)
    return jnp.sum(squared, axis=(1, 2)), jnp.sum(spread, axis=(1, 2))


def _program(weights: int, positions: int, *references: Any) -> None:
    """What one program adds to both sums. The narrow side's products are made anew for each stretch of the wide one."""
    lefts, rights = references[:weights], references[weights : 2 * weights]
    squared, spread = references[2 * weights :]
    weight, stretch = pl.program_id(1), pl.program_id(2)
    T = lefts[0].shape[1]

    def products(side: Any, start: Array, blocks: int) -> Array:
        width = side.shape[2]

        def add(block: Array, total: Array) -> Array:
            column = start + block * COLUMNS
            here = side.at[pl.ds(0, 1), :, pl.ds(column, COLUMNS)]
            # The last stretch may be a shorter one, and there may be fewer positions.
            row, offset = (jax.lax.broadcasted_iota(jnp.int32, (1, T, COLUMNS), axis) for axis in (1, 2))
            inside = (row < positions) & (offset + column < width)
            whole = positions == T and width % (blocks * COLUMNS) == 0
            x = (triton.load(here) if whole else triton.load(here, mask=inside, other=0.0)).reshape(T, COLUMNS)
            return total + jax.lax.dot_general(x, x, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)

        total: Array = jax.lax.fori_loop(jnp.int32(0), jnp.int32(blocks), add, jnp.zeros((T, T), jnp.float32))
        return total

    def run(left: Any, right: Any) -> None:
        row, column = (jax.lax.broadcasted_iota(jnp.int32, (T, T), axis) for axis in (0, 1))
        faint = jnp.where((row == column) & (row < positions), jnp.float32(rounding.FAINT), 0.0)
        pairs = products(left, jnp.int32(0), left.shape[2] // COLUMNS) + faint
        pairs *= products(right, stretch * BLOCKS * COLUMNS, min(BLOCKS, right.shape[2] // COLUMNS)) + faint
        squared[...] = jnp.sum(pairs).reshape(1, 1, 1)
        spread[...] = jnp.sum(jnp.where(row == column, pairs, 0.0)).reshape(1, 1, 1)

    for index in range(weights):
        pl.when(weight == index)(partial(run, lefts[index], rights[index]))
