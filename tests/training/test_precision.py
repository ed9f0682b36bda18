"""No contraction that a clip bound rests on is made in fewer bits than it was proved for, and no doubt is left out."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.bookkeeping import Kind
from dpnlp.rewriting import word_metric
from dpnlp.training import clipping, contractions, rounding
from dpnlp.training.clipping import Clipping, Rule

SIZES = st.lists(st.floats(0, 1e4, width=32), min_size=1, max_size=4)


@pytest.mark.parametrize("rule", Rule)
@given(st.data())
def test_whatever_rounding_may_have_hidden_is_clipped_along(rule, data):
    """‖g‖ may be √(‖g‖² + doubt) + √slack, and a part of it may have √S/2: the factor has to be small enough."""
    found = [np.asarray(data.draw(SIZES), np.float32)[:1] for _ in range(4)]
    size = clipping._Size(*map(jnp.asarray, found))
    squared, doubt, slack, spread = (one.astype(np.float64) for one in found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clipping, "_size", lambda books: size)
        (factor,) = Clipping(0.5, rule).factors({"weight": object()}, size).values()
    longest = np.maximum(np.sqrt(squared + doubt) + np.sqrt(slack), np.sqrt(spread) / 2)
    assert np.all(np.asarray(factor, np.float64) * longest <= 0.5)


def test_each_layer_has_its_share_of_the_clip_norm():
    size = clipping._Size(*(jnp.asarray([value]) for value in (1e6, 1.0, 1.0, 0.0)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clipping, "_size", lambda books: size)
        factors = Clipping(1.0, Rule.PER_LAYER).factors({name: object() for name in "abcd"}, size)
    total = math.sqrt(sum((float(factor[0]) * (math.sqrt(1e6 + 1) + 1)) ** 2 for factor in factors.values()))
    assert 0.99 < total <= 1.0


def products(function, *arguments):
    """All products of matrices in a computation, those of inner ones included."""
    found, waiting = [], [jax.make_jaxpr(function)(*arguments).jaxpr]
    while waiting:
        for equation in waiting.pop().eqns:
            if equation.primitive.name == "dot_general":
                found.append(equation)
            inner = itertools.chain.from_iterable(
                value if isinstance(value, (list, tuple)) else [value] for value in equation.params.values()
            )
            waiting += [getattr(one, "jaxpr", one) for one in inner if hasattr(getattr(one, "jaxpr", one), "eqns")]
    return found


def assert_exact(function, *arguments):
    """TF32 keeps 10 of 23 bits, and is what GPUs do unless they are told otherwise."""
    for asked in ("default", "tensorfloat32", "bfloat16"):
        with jax.default_matmul_precision(asked):
            found = products(function, *arguments)
        assert found
        for product in found:
            if any(variable.aval.dtype == jnp.float32 for variable in product.invars):
                precision = product.params["precision"]
                each = precision if isinstance(precision, tuple) else (precision,)
                assert {*each} == {jax.lax.Precision.HIGHEST}, product
            assert product.outvars[0].aval.dtype == jnp.float32, product


def side(width, dtype, positions=3):
    return jnp.ones((2, positions, width), dtype)


@pytest.mark.parametrize("types", [*itertools.product((jnp.float32, jnp.bfloat16), repeat=2)])
def test_norms_and_sums_are_made_in_float32_whatever_is_asked_for(types):
    left, right = side(4, types[0]), side(5, types[1])
    assert_exact(lambda a, b: contractions.contract("bti,bto->bio", a, b), left, right)
    assert_exact(contractions.gram, left, side(4, types[1]))
    assert_exact(lambda a, b: contractions.over_pairs([a], [b]), left, right)


@pytest.mark.parametrize("positions", [1, 40], ids=["pairs of positions", "the gradient itself"])
@pytest.mark.parametrize("noted", ["floats", "rows"])
def test_clipping_as_a_whole_is_made_in_float32(positions, noted):
    def total(inputs, gradients):
        book = clipping._Book(2, (6, 5))
        book.enter(Kind.ROWS if noted == "rows" else Kind.INPUT, inputs, gradients)
        return clipping._summed({"weight": book}, jnp.ones(2), Clipping(1.0)).total

    inputs = jnp.zeros((2, positions), jnp.int32) if noted == "rows" else side(6, jnp.float32, positions)
    assert_exact(total, inputs, side(5, jnp.float32, positions))


def test_the_nearest_word_is_found_in_float32():
    assert_exact(word_metric._nearest, jnp.ones((4, 3)), jnp.ones((2, 4, 3)))


def test_tensor_cores_are_trusted_with_what_they_multiply_as_it_is_and_with_nothing_else(monkeypatch):
    wide = contractions.COLUMNS
    assert contractions._suits(side(wide, jnp.bfloat16))
    assert not contractions._suits(side(wide, jnp.float32))
    assert not contractions._suits(side(wide + 1, jnp.bfloat16))
    assert not contractions._suits(side(wide, jnp.bfloat16, contractions.MOST + 1))
    shapes = [(64, 128), (256, 16), (4096, 1)]
    expected = [rounding.piece(*shape, jnp.float32) for shape in shapes]
    depth = rounding.depth(10_000, jnp.float32), rounding.block(jnp.float32)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert [rounding.piece(*shape, jnp.float32) for shape in shapes] == expected
    assert (rounding.depth(10_000, jnp.float32), rounding.block(jnp.float32)) == depth


@given(st.integers(1, 300), st.integers(1, 2000), st.sampled_from([1.0, 2.0, 2.9]))
def test_pieces_divide_a_batch_and_are_the_largest_that_round_little_enough(records, positions, largest):
    together, part = rounding.piece(records, positions, jnp.float32, largest)
    assert records % together == positions % part == 0
    assert together == 1 or part == positions

    def fits(some, there):
        return rounding._inside(some, there, positions, jnp.float32, largest) <= rounding._PRODUCTS

    assert fits(together, part) or (together, part) == (1, 1)
    if part == positions:
        assert not any(fits(some, part) for some in range(together + 1, records + 1) if records % some == 0)
    else:
        assert not any(fits(1, some) for some in range(part + 1, positions + 1) if positions % some == 0)
