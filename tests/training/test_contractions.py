"""The kernel for sums over pairs of positions against plain products, interpreted, on one device and on several."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpnlp.training import contractions, rounding
from dpnlp.training.contractions import by_einsum, by_kernel, over_pairs
from dpnlp.training.sharding import Placement


def sides(records: int, T: int, i: int, o: int, weights: int) -> tuple[list[jax.Array], list[jax.Array]]:
    keys = jax.random.split(jax.random.key(records + T), 2 * weights)
    lefts = [jax.random.normal(key, (records, T, i), jnp.bfloat16) for key in keys[:weights]]
    return lefts, [jax.random.normal(key, (records, T, o), jnp.bfloat16) for key in keys[weights:]]


@pytest.mark.parametrize(
    ("records", "T", "i", "o", "weights"),
    [
        pytest.param(3, 16, 64, 64, 1, id="one weight"),
        pytest.param(2, 32, 64, 192, 3, id="sides of different width"),
        pytest.param(2, 16, 64, (2 * contractions.BLOCKS + 3) * contractions.COLUMNS, 2, id="stretches of columns"),
        pytest.param(3, 5, 64, 128, 2, id="fewer positions than the hardware takes"),
        pytest.param(3, 48, 64, 128, 2, id="positions that are no power of two"),
        pytest.param(1, 128, 64, 64, contractions.WEIGHTS + 2, id="more weights than go into one kernel"),
    ],
)
def test_the_kernel_computes_what_the_products_do(records: int, T: int, i: int, o: int, weights: int) -> None:
    lefts, rights = sides(records, T, i, o, weights)
    got, expected = jax.jit(partial(by_kernel, interpret=True))(lefts, rights), by_einsum(lefts, rights)
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_the_products_are_those_of_a_loop_over_pairs_of_positions() -> None:
    lefts, rights = sides(2, 5, 3, 4, 2)
    squared, spread = over_pairs(lefts, rights)
    a, g = (np.asarray(jnp.stack(side), np.float64) for side in (lefts, rights))
    for record in range(2):
        terms = [
            [
                sum((a[w, record, t] @ a[w, record, s]) * (g[w, record, t] @ g[w, record, s]) for w in range(2))
                for s in range(5)
            ]
            for t in range(5)
        ]
        np.testing.assert_allclose(squared[record], np.sum(terms), rtol=1e-5)
        np.testing.assert_allclose(spread[record], np.trace(terms), rtol=1e-5)


@pytest.mark.parametrize(
    ("T", "i", "dtype", "uses"),
    [(20, 64, "bfloat16", True), (129, 64, "bfloat16", False), (16, 65, "bfloat16", False), (16, 64, "float32", False)],
)
def test_the_kernel_is_for_what_the_hardware_multiplies_as_it_is(T: int, i: int, dtype: str, uses: bool) -> None:
    lefts, rights = sides(2, T, i, 128, 1)
    lefts = [left.astype(dtype) for left in lefts]
    assert ("pallas_call" in str(jax.make_jaxpr(over_pairs)(lefts, rights))) == uses
    np.testing.assert_allclose(jax.jit(over_pairs)(lefts, rights), by_einsum(lefts, rights), rtol=1e-5)


@pytest.mark.parametrize("poison", [jnp.nan, jnp.inf])
def test_what_is_no_number_shows_in_the_sums_of_its_own_record_alone(poison: float) -> None:
    lefts, rights = sides(3, 16, 64, 64, 2)
    rights[1] = rights[1].at[1, 3, 2].set(poison)
    squared, spread = jax.jit(partial(by_kernel, interpret=True))(lefts, rights)
    assert list(jnp.isfinite(squared)) == list(jnp.isfinite(spread)) == [True, False, True]


def test_each_device_runs_the_kernel_on_its_own_records() -> None:
    lefts, rights = sides(8, 16, 64, 128, 3)
    placed = Placement(8).batch((lefts, rights))
    compiled = jax.jit(partial(by_kernel, interpret=True)).lower(*placed).compile()
    np.testing.assert_allclose(compiled(*placed), by_einsum(lefts, rights), rtol=1e-5)
    assert not any(gathers in compiled.as_text() for gathers in ("all-gather", "all-to-all", "collective-permute"))


def test_squares_that_are_too_small_for_float32_are_made_up_for_by_the_kernel_too() -> None:
    """At every position that there is, on whichever side the squares vanish, and at no position of the padding."""
    for small, large in ((1e-25, 1.0), (1.0, 1e-25)):
        lefts = [jnp.full((1, 5, 64), small, jnp.bfloat16)]
        rights = [jnp.full((1, 5, 128), large, jnp.bfloat16)]
        got, expected = jax.jit(partial(by_kernel, interpret=True))(lefts, rights), by_einsum(lefts, rights)
        np.testing.assert_allclose(got, expected, rtol=1e-5)
        columns = 128 if small < large else 64
        np.testing.assert_allclose(got[1], 5 * columns * rounding.FAINT, rtol=1e-5)


def test_products_with_one_hot_vectors_are_those_of_the_vectors_on_either_side() -> None:
    rows, x = jnp.array([[2, 0, 2]]), jnp.arange(20.0).reshape(1, 4, 5)
    one_hot = jax.nn.one_hot(rows, 5)
    np.testing.assert_array_equal(contractions.gram(rows, x), one_hot @ jnp.swapaxes(x, 1, 2))
    np.testing.assert_array_equal(contractions.gram(x, rows), x @ jnp.swapaxes(one_hot, 1, 2))
    np.testing.assert_array_equal(contractions.gram(rows, rows), one_hot @ jnp.swapaxes(one_hot, 1, 2))
