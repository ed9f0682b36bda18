"""Book-keeping against the gradients themselves, one record at a time, and against jax-privacy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp import dropout
from dpnlp.bookkeeping import Kind
from dpnlp.checks import BadInput
from dpnlp.models.layers import Bias, Embedding, Linear
from dpnlp.training import clipping, rounding
from dpnlp.training.clipping import Clipping, Method, Rule
from dpnlp.training.parameters import apart

from .networks import Tagger, recurrent_case, tagger_case, translator_case

CASES = [tagger_case, translator_case, recurrent_case]


def clipped_sum(loss, model, batch, weights, rule, trains=nnx.Param, examples_per_record=1):
    """Compiled as a whole, which is how it is used, and ten times faster than operation by operation."""
    rule = rule if isinstance(rule, Clipping) else Clipping(rule)

    @jax.jit
    def compiled(batch, weights):
        return clipping.clipped_sum(loss, apart(model, trains), batch, weights, rule, examples_per_record)

    return compiled(batch, weights)


def reference(loss, model, batch, weights, clip_norm, trains=nnx.Param, examples_per_record=1):
    """The definition: a gradient for each record by vmap, its norm, its clipped value, their sum."""
    structure, trained, rest = nnx.split(model, trains, ...)
    grouped = jax.tree.map(lambda a: a.reshape(-1, examples_per_record, *a.shape[1:]), (batch, weights))

    def total(state, record, weights):
        return (weights * loss(nnx.merge(structure, state, rest), record)).sum()

    gradients = jax.jit(jax.vmap(jax.grad(total), in_axes=(None, 0, 0)))(trained, *grouped)
    flat = {".".join(map(str, path)): value[...] for path, value in nnx.to_flat_state(gradients)}
    norms = jnp.sqrt(sum((g.reshape(len(g), -1) ** 2).sum(axis=1) for g in flat.values()))
    factors = jnp.minimum(1, clip_norm / jnp.maximum(norms, 1e-30))
    return {name: jnp.tensordot(factors, g, axes=1) for name, g in flat.items()}, norms


TIGHTER = 5e-4
"""By how much clipping may be tighter than asked for in these small networks, so that no rounding breaks the bound."""


def assert_equal(clipped, expected, norms):
    np.testing.assert_allclose(clipped.norms, norms, rtol=1e-5, atol=1e-12)  # no length is taken for none
    assert_same_sum(clipped.gradients, expected, TIGHTER)


def assert_same_sum(sums, expected, within=1e-5):
    """To 1e-5 of the largest entry: smaller ones are differences of larger ones."""
    assert sums.keys() == expected.keys()
    scale = max(float(jnp.abs(g).max()) for g in expected.values())
    for name, gradient in expected.items():
        np.testing.assert_allclose(sums[name], gradient, rtol=within, atol=within * scale, err_msg=name)


def length(sums):
    return math.sqrt(sum(float(jnp.sum(g**2)) for g in sums.values()))


@pytest.mark.parametrize(("inputs", "outputs"), [(3, 2), (64, 32)])
def test_the_norm_counts_as_half_of_what_the_positions_have_at_least(inputs, outputs):
    """Positions whose gradients a ⊗ g nearly cancel: what counts is √Σ‖a‖²‖g‖²/2. The loss is Σ_t ⟨a_t W, g_t⟩."""
    rng, T = np.random.default_rng(0), 4
    near = 10.0 ** -np.arange(6)[:, None, None]  # how far the positions of a record are from cancelling
    a = rng.normal(size=(6, 1, inputs)) + near * rng.normal(size=(6, T, inputs))
    g = rng.normal(size=(6, 1, outputs)) * np.resize([1, -1], T)[:, None] + near * rng.normal(size=(6, T, outputs))
    each = np.einsum("bti,bto->bio", a, g)
    norms = np.linalg.norm(each.reshape(6, -1), axis=1)
    least = np.sqrt(np.sum(np.sum(a**2, axis=2) * np.sum(g**2, axis=2), axis=1)) / 2
    assert 0 < (norms > least).sum() < 5
    model = Linear(inputs, outputs, bias=False, rngs=nnx.Rngs(0))
    batch = tuple(jnp.asarray(side, jnp.float32) for side in (a, g))
    C = float(least.min()) / 2
    found = clipped_sum(
        lambda model, batch: jnp.sum(model(batch[0]) * batch[1], axis=(1, 2)), model, batch, jnp.ones(6), C
    )
    factors = C / np.maximum(norms, least)
    assert_same_sum(found.gradients, {"kernel": np.einsum("b,bio->io", factors, each)}, TIGHTER)


@pytest.mark.parametrize("others", [1, 2])
def test_what_a_record_adds_to_one_of_two_sums_is_at_most_two_clip_norms(others):
    """Lookups and products of a tied weight cancel but for a thousandth, and are summed up apart."""
    T = 25
    gradient = np.tile(np.random.default_rng(others).normal(size=(1, 1, 6)), (1, T, 1))
    rows, book = np.full((1, T), 2), clipping._Book(1, (5, 6))
    for _ in range(others):
        book.enter(Kind.ROWS, jnp.asarray(rows, jnp.int32), jnp.asarray(gradient / others, jnp.float32))
    book.enter(Kind.INPUT, jnp.asarray(np.eye(5)[rows], jnp.float32), jnp.asarray(-0.999 * gradient, jnp.float32))
    (factor,) = Clipping(1e-3).factors({"tied": book}, clipping._size([book]))["tied"]
    part = float(factor) * np.linalg.norm(gradient.sum(axis=1))
    assert not book.whole
    assert 1e-3 < part <= rounding.length(others, whole=False) * 1e-3


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("examples", [1, 3])
def test_a_record_of_several_examples_is_clipped_as_one(case, examples):
    model, loss, data = case(6, 3, 8, 30, 1)
    weights = jnp.array([0.5, 0.25, 0.25, 1.0, 0.0, 0.0]) if examples > 1 else jnp.ones(6)
    clipped = clipped_sum(loss, model, data, weights, 0.1, examples_per_record=examples)
    assert clipped.norms.shape == (6 // examples,)
    assert min(clipped.norms) > 0.1
    assert_equal(clipped, *reference(loss, model, data, weights, 0.1, examples_per_record=examples))


def test_frozen_parameters_are_neither_noted_nor_counted():
    model, loss, data = translator_case(4, 5, 4, 9, 2)

    def trains(path, value):
        return isinstance(value, nnx.Param) and path[0] != "table"

    clipped = clipped_sum(loss, model, data, jnp.ones(4), 0.5, trains)
    assert_equal(clipped, *reference(loss, model, data, jnp.ones(4), 0.5, trains))
    assert not any(name.startswith("table") for name in clipped.gradients)


def test_a_frozen_matrix_costs_no_gradient():
    """Nothing as large as the table is computed when the table is frozen."""
    model, loss, data = translator_case(4, 5, 4, 1009, 2)

    def trains(path, value):
        return isinstance(value, nnx.Param) and path[0] != "table"

    def wide(trains):
        text = jax.make_jaxpr(
            lambda: clipping.clipped_sum(loss, apart(model, trains), data, jnp.ones(4), Clipping(1.0)).gradients
        )()
        return [eqn for eqn in text.jaxpr.eqns for out in eqn.outvars if out.aval.shape == (1009, 4)]

    assert wide(nnx.Param)
    assert not [eqn for eqn in wide(trains) if eqn.primitive.name in ("dot_general", "scatter-add")]


def test_adapters_alone_are_trained_exactly():
    model, loss, data = translator_case(4, 5, 4, 9, 3, rank=2)
    clipped = clipped_sum(loss, model, data, jnp.ones(4), 0.5, nnx.LoRAParam)
    assert_equal(clipped, *reference(loss, model, data, jnp.ones(4), 0.5, nnx.LoRAParam))
    assert sorted(clipped.gradients) == ["key.A", "key.B", "query.A", "query.B"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("case", CASES)
def test_the_sum_agrees_with_jax_privacy(case):
    privacy = pytest.importorskip("jax_privacy", reason="jax-privacy is not installed")
    model, loss, data = case(5, 6, 4, 11, 3)
    structure, trained, rest = nnx.split(model, nnx.Param, ...)

    def total(state, batch):
        return loss(nnx.merge(structure, state, rest), batch).sum()

    theirs = privacy.clipped_grad(total, l2_clip_norm=0.3, batch_argnums=1, return_grad_norms=True)
    gradients, seen = jax.jit(theirs)(trained, data)
    expected = {".".join(map(str, path)): value[...] for path, value in nnx.to_flat_state(gradients)}
    assert_equal(clipped_sum(loss, model, data, jnp.ones(5), 0.3), expected, seen.grad_norms)


@pytest.mark.parametrize("rule", Rule)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_law_5_no_record_contributes_more_than_the_clip_norm(dtype, rule):
    """Whatever it holds and whatever the model computes in, one record moves the sum by at most C."""
    model, loss, data = tagger_case(4, 12, 6, 9, 4)
    data = jax.tree.map(lambda a: (100 * a).astype(dtype), data)
    moved = [
        length(clipped_sum(loss, model, data, jnp.eye(4)[one], Clipping(0.25, rule)).gradients) for one in range(4)
    ]
    assert max(moved) <= 0.25 * (1 + 1e-6)
    assert min(moved) > 0.25 * 0.9


def test_law_5_holds_where_positions_nearly_cancel():
    """Two positions with opposite gradients: the pairs of positions sum up to little, known to few digits."""
    model = Tagger(64, 64, nnx.Rngs(0))
    x = jnp.ones((1, 2, 64)).at[0, 1, 0].add(1e-6)

    def opposite(model, x):
        return 1e4 * (model.up(x)[:, 0] - model.up(x)[:, 1]).sum(axis=-1)

    def kernel(path, value):
        return path == ("up", "kernel")

    clipped = clipped_sum(opposite, model, x, jnp.ones(1), 1e-3, kernel)
    assert length(clipped.gradients) <= 1e-3 * (1 + 1e-6)


def test_per_layer_clipping_gives_each_parameter_its_share():
    model, loss, data = tagger_case(3, 4, 4, 5, 5)
    norm = 0.1
    clipped = clipped_sum(loss, model, data, jnp.ones(3), Clipping(norm, Rule.PER_LAYER)).gradients
    for name in clipped:
        alone = reference(loss, model, data, jnp.ones(3), norm / math.sqrt(len(clipped)), _only(name))[0]
        np.testing.assert_allclose(clipped[name], alone[name], rtol=2e-5, atol=1e-7)


def _only(name):
    return lambda path, value: ".".join(map(str, path)) == name


def test_automatic_clipping_normalises():
    model, loss, data = tagger_case(3, 4, 4, 5, 6)
    one = clipped_sum(loss, model, data, jnp.array([1.0, 0, 0]), Clipping(2.0, Rule.AUTOMATIC))
    plain, norms = reference(loss, model, data, jnp.array([1.0, 0, 0]), math.inf)
    for name, gradient in plain.items():
        np.testing.assert_allclose(one.gradients[name], 2 * gradient / (norms[0] + 0.01), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("rule", Rule)
@pytest.mark.parametrize("case", CASES)
def test_vmap_and_book_keeping_are_one(case, rule):
    model, loss, data = case(4, 5, 4, 9, 7)
    ours, theirs = (
        clipped_sum(loss, model, data, jnp.ones(4), Clipping(0.2, rule, method))
        for method in (Method.BOOK_KEEPING, Method.VMAP)
    )
    assert_equal(ours, theirs.gradients, theirs.norms)
    np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_law_4_padding_and_batchmates_change_nothing(case):
    model, loss, data = case(4, 5, 4, 9, 5)
    alone = clipped_sum(loss, model, jax.tree.map(lambda a: a[:2], data), jnp.ones(2), 0.3)
    padded = clipped_sum(loss, model, data, jnp.array([1.0, 1.0, 0.0, 0.0]), 0.3)
    np.testing.assert_allclose(padded.norms[:2], alone.norms, rtol=1e-5)
    assert_same_sum(padded.gradients, alone.gradients)


def test_dropout_belongs_to_the_example():
    """Where it stands in which batch makes no difference, and without keys nothing is dropped."""
    model, loss, data = translator_case(4, 5, 4, 9, 5, dropout=0.5)
    keys = jax.random.split(jax.random.key(0), 4)

    def dropped(model, batch):
        with dropout.dropping(batch[0]):
            return loss(model, batch[1])

    together = clipped_sum(dropped, model, (keys, data), jnp.ones(4), 0.3)
    order = jnp.array([2, 0, 3, 1])
    shuffled = clipped_sum(dropped, model, jax.tree.map(lambda a: a[order], (keys, data)), jnp.ones(4), 0.3)
    np.testing.assert_allclose(shuffled.norms, together.norms[order], rtol=1e-5)
    assert_same_sum(shuffled.gradients, together.gradients)
    assert_equal(together, *reference(dropped, model, (keys, data), jnp.ones(4), 0.3))
    calm = clipped_sum(loss, model, data, jnp.ones(4), 0.3)
    assert not np.allclose(calm.norms, together.norms, rtol=1e-2)
    np.testing.assert_allclose(calm.losses, loss(model, data), rtol=1e-5)


@pytest.mark.parametrize("method", Method)
def test_a_gradient_that_is_no_number_counts_as_zero(method):
    model, loss, (x, y) = tagger_case(3, 5, 4, 9, 6)
    broken = (x.at[1, 0, 0].set(jnp.nan), y)
    clipped = clipped_sum(loss, model, broken, jnp.ones(3), Clipping(0.3, method=method))
    silent = clipped_sum(loss, model, (x, y), jnp.array([1.0, 0.0, 1.0]), 0.3)
    assert np.isfinite(clipped.norms).tolist() == [True, False, True]
    assert_same_sum(clipped.gradients, silent.gradients)


@pytest.mark.parametrize("case", CASES)
def test_an_infinite_clip_norm_is_the_ordinary_gradient(case):
    model, loss, data = case(4, 5, 4, 9, 7)
    ordinary = nnx.jit(nnx.grad(lambda m: loss(m, data).sum()))(model)
    expected = {".".join(map(str, path)): value[...] for path, value in nnx.to_flat_state(ordinary)}
    assert_same_sum(clipped_sum(loss, model, data, jnp.ones(4), math.inf).gradients, expected)


class Stray(Tagger):
    """One parameter that no layer knows of, and one that is used by its layer and, again, behind its back."""

    def __init__(self, rngs):
        super().__init__(4, 5, rngs)
        self.stray = nnx.Param(jnp.arange(1.0, 5.0))

    def __call__(self, x):
        return super().__call__(x) * self.stray[...] + x @ self.up.kernel[...] @ self.down.kernel[...]


def test_a_parameter_that_no_layer_notes_or_not_always_is_clipped_by_vmap():
    _, loss, data = tagger_case(4, 3, 4, 5, 8)
    model = Stray(nnx.Rngs(0))
    clipped = clipped_sum(loss, model, data, jnp.ones(4), 0.5)
    assert {"stray", "up.kernel", "down.kernel"} < clipped.gradients.keys()
    assert_equal(clipped, *reference(loss, model, data, jnp.ones(4), 0.5))


class Elsewhere(nnx.Module):
    """Sorts texts, with a layer that does not have the batch first: positions for all, time first, or none at all."""

    def __init__(self, way, rngs):
        self.way, self.table, self.bias = way, Embedding(7, 4, rngs=rngs), Bias(4)
        self.positions, self.head = Embedding(8, 4, rngs=rngs), Linear(4, 3, rngs=rngs)

    def __call__(self, ids):
        x, time = self.table(ids), jnp.arange(ids.shape[1])
        match self.way:
            case "shared positions":
                x = x + self.positions(time[None])
            case "positions without a batch":
                x = x + self.positions(time)
            case "time first":
                return jnp.swapaxes(self.head(jnp.swapaxes(x, 0, 1)), 0, 1).mean(axis=1)
            case "vmap":
                x = jax.vmap(self.bias)(x)
        return self.head(x.mean(axis=1))


def told_apart(model, batch):
    ids, labels = batch
    return -jnp.take_along_axis(jax.nn.log_softmax(model(ids)), labels[:, None], axis=1)[:, 0]


@pytest.mark.parametrize("way", ["shared positions", "positions without a batch", "time first", "vmap"])
@pytest.mark.parametrize("positions", [4, 8])
def test_a_layer_that_has_another_axis_first_mixes_no_records(way, positions):
    """As many positions as records, and twice as many, fit where the records should be."""
    rng, model = np.random.default_rng(1), Elsewhere(way, nnx.Rngs(1))
    data = jnp.asarray(rng.integers(0, 7, (4, positions))), jnp.asarray([0, 1, 2, 0])
    clipped = clipped_sum(told_apart, model, data, jnp.ones(4), 0.01)
    assert_equal(clipped, *reference(told_apart, model, data, jnp.ones(4), 0.01))


def test_a_row_that_is_counted_from_the_end_is_the_same_row():
    data = jnp.asarray([[-1, -1, 6, 6], [-7, 0, -1, 6]]), jnp.asarray([0, 1])
    model = Elsewhere("", nnx.Rngs(1))

    def table(path, variable):
        return "table" in path

    clipped = clipped_sum(told_apart, model, data, jnp.ones(2), 0.01, table)
    assert_equal(clipped, *reference(told_apart, model, data, jnp.ones(2), 0.01, table))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: Clipping(0.0), "clip_norm = 0.0: it must be a finite number above 0; inf stands for no clipping."),
        (
            lambda: Clipping(math.nan),
            "clip_norm = nan: it must be a finite number above 0; inf stands for no clipping.",
        ),
        (
            lambda: Clipping(2e-38),
            "clip_norm = 2e-38: it must lie between 1e-09 and 1e+09, far from the ends of float32, where noise "
            "vanishes; scale the loss instead.",
        ),
        (
            lambda: Clipping(1.0, stabiliser=1e-30),
            "stabiliser = 1e-30: it must lie between 1e-09 and 1e+09, far from the ends of float32, where noise "
            "vanishes; 0.01 is usual.",
        ),
        (lambda: Clipping(1.0, stabiliser=0.0), "stabiliser = 0.0: it must be a finite number above 0."),
        (
            lambda: Clipping(math.inf, Rule.AUTOMATIC),
            "clip_norm = inf: automatic clipping scales every gradient to the clip norm; give one.",
        ),
        (
            lambda: clipped_sum(*tagger_case(2, 3, 4, 5, 0)[1::-1], None, jnp.ones(2), 1.0, nnx.LoRAParam),
            "trains = LoRAParam: the model has no such parameter, so that nothing would be trained.",
        ),
    ],
)
def test_what_cannot_be_clipped_is_refused(wrong, sentence):
    with pytest.raises(BadInput) as refusal:
        wrong()
    assert str(refusal.value) == sentence


@settings(max_examples=6)
@given(
    case=st.sampled_from(CASES),
    batch=st.sampled_from([1, 4]),
    positions=st.sampled_from([1, 5, 12]),
    width=st.sampled_from([2, 6]),
    other=st.sampled_from([3, 40]),
    clip_norm=st.sampled_from([0.05, 1.0, 1e6]),
    seed=st.integers(0, 3),
)
def test_book_keeping_is_the_definition(case, batch, positions, width, other, clip_norm, seed):
    model, loss, data = case(batch, positions, width, other, seed)
    weights = jnp.ones(batch)
    assert_equal(clipped_sum(loss, model, data, weights, clip_norm), *reference(loss, model, data, weights, clip_norm))


def book(records, shape, *uses, direct=None):
    made = clipping._Book(records, shape)
    made.outer = [clipping._Outer(*map(jnp.asarray, use)) for use in uses]
    made.direct = direct
    return made


@pytest.mark.parametrize("weights", [1, 3])
@pytest.mark.parametrize(("positions", "i", "o"), [(2, 30, 20), (5, 60, 90)])
def test_the_doubt_about_a_norm_over_pairs_is_what_its_proof_says(weights, positions, i, o):
    """(i + 1 + o + 1 + 2T + 4) u T S, as products come in one block of columns, one more u T S for each weight, and the
    roundings of the last sums of squares."""
    rng = np.random.default_rng(positions)
    a, g = rng.normal(size=(weights, 1, positions, i)), rng.normal(size=(weights, 1, positions, o))
    size = clipping._size([book(1, (i, o), (a[w].astype("f4"), g[w].astype("f4"))) for w in range(weights)])
    u, T = 2.0**-24, positions
    S = float(np.sum(a**2, axis=-1).ravel() @ np.sum(g**2, axis=-1).ravel())
    squared = sum(float(np.sum((a[w, 0].T @ g[w, 0]) ** 2)) for w in range(weights))
    expected = (i + 1 + o + 1 + 2 * T + 4 + weights) * u * T * S + (2 * math.isqrt(i * o) + 2 + weights) * u * squared
    assert float(size.doubt[0]) == pytest.approx(expected, rel=1e-3)
    assert float(size.spread[0]) == pytest.approx(S, rel=1e-3)


def test_the_doubt_about_a_gradient_that_is_at_hand_is_that_of_its_sum_of_squares():
    own = np.random.default_rng(2).normal(size=(1, 900)).astype("f4")
    size = clipping._size([book(1, (900,), direct=jnp.asarray(own))])
    assert float(size.doubt[0]) == pytest.approx((2 * 30 + 2 + 1) * 2.0**-24 * float(np.sum(own**2)), rel=1e-3)


@pytest.mark.parametrize("examples", [1, 3])
@pytest.mark.parametrize("positions", [40, 90])
def test_what_rounding_adds_to_a_batch_grows_with_all_positions_of_a_record(positions, examples):
    model = Linear(4, 4, bias=False, rngs=nnx.Rngs(0))

    def loss(model, batch):
        return jnp.sum(model(batch), axis=(1, 2))

    parts, example = apart(model), jnp.zeros((1, positions, 4))
    found = clipping.rounding_of(loss, parts, example, Clipping(1.0), 2, examples)
    assert found == rounding.of_products(2, positions * examples) + rounding.of_parts(2)


def test_a_record_that_is_no_number_is_not_one_that_was_left_as_it_was():
    own = {"w": jnp.array([[0.1, 0.1], [5.0, 0.0], [jnp.inf, 0.0], [jnp.nan, 0.0]])}
    summed = clipping.clipped_total(own, jnp.ones(4), Clipping(1.0))
    assert summed.whole.tolist() == [True, False, False, False]
    assert summed.total["w"] == pytest.approx(np.array([1.1, 0.1]), rel=1e-3)
