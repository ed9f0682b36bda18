"""Noise: normal in the tails too, another one for each leaf, the same on any number of devices, and banded."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from scipy import stats

from dpnlp.checks import BadInput
from dpnlp.training.noise import Banded, Independent, normal, normal_pairs, strategy, tree_noise

KEY = jax.random.key(7)
TREE = {
    ("layers", 0, "kernel"): jnp.zeros((3, 5)),
    ("layers", 1, "kernel"): jnp.zeros((3, 5)),
    ("scale",): jnp.zeros(()),
}
draw = jax.jit(normal, static_argnums=1)


def test_the_numbers_are_standard_normal():
    x = np.asarray(draw(KEY, (2**10, 2**10)), np.float64).ravel()
    assert stats.kstest(x, "norm").pvalue > 1e-3
    deviation = 4 / np.sqrt(x.size)
    assert abs(x.mean()) < deviation
    assert abs((x**2).mean() - 1) < deviation * np.sqrt(2)
    assert abs((x**3).mean()) < deviation * np.sqrt(15)
    assert abs((x**4).mean() - 3) < deviation * np.sqrt(96)
    for pairs in (x.reshape(-1, 2), x.reshape(-1, 2) ** 2):
        assert abs(np.corrcoef(pairs.T)[0, 1]) < deviation * np.sqrt(2)


def test_the_tails_are_as_heavy_as_they_should_be():
    """jax.random.normal ends at −5.42 and 5.22; a box that a record's part can leave is worth more than δ."""
    x = np.abs(np.asarray(draw(KEY, (2**25,))))
    for bound in (4.5, 5.0):
        expected = x.size * 2 * stats.norm.sf(bound)
        assert abs(np.count_nonzero(x > bound) - expected) < 4 * np.sqrt(expected)
    assert 5.45 < x.max() < 7


def test_every_word_makes_the_number_that_the_formula_says():
    """All combinations of the smallest and largest words, and of those where float32 rounds, against float64."""
    ends = [0, 1, 2**24 + 1, 2**31 - 1, 2**31, 2**32 - 2**7, 2**32 - 1]
    words = np.array(np.meshgrid(ends, ends, ends), np.uint32).reshape(3, -1)
    cosine, sine = jax.jit(normal_pairs)(words)
    high, low, turn = words.astype(np.float64)
    u = (high + (low + 0.5) / 2**32) / 2**32
    rest = (2**32 - 1 - high + (2**32 - 0.5 - low) / 2**32) / 2**32
    radius = np.sqrt(-2 * np.where(u < 0.5, np.log(u), np.log1p(-np.minimum(rest, 0.5))))
    angle = 2 * np.pi * (turn + 0.5) / 2**32
    np.testing.assert_allclose(cosine / radius, np.cos(angle), atol=1e-6)
    np.testing.assert_allclose(sine / radius, np.sin(angle), atol=1e-6)
    assert radius.min() > 1e-10
    assert radius.max() == pytest.approx(np.sqrt(2 * 65 * np.log(2)))


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 3, 4), (0,), (3, 0), (0, 3)])
def test_any_shape(shape):
    x = draw(KEY, shape)
    assert (x.shape, x.dtype) == (shape, jnp.float32)
    assert len(np.unique(x)) == x.size


def test_leaves_and_keys_have_noise_of_their_own():
    wide = {name: jnp.zeros((2**8, 2**8)) for name in "abc"}
    noises = [jax.jit(tree_noise)(jax.random.key(step), wide, 1.0) for step in range(2)]
    rows = np.array([leaf.ravel() for noise in noises for leaf in noise.values()])
    correlation = np.corrcoef(rows) - np.eye(len(rows))
    assert np.abs(correlation).max() < 5 / np.sqrt(2**16)


def test_the_order_of_a_dict_does_not_matter():
    turned = jax.jit(tree_noise)(KEY, dict(reversed(TREE.items())), 2.0)
    for path, noise in jax.jit(tree_noise)(KEY, TREE, 2.0).items():
        np.testing.assert_array_equal(noise, turned[path])


def test_the_standard_deviation_is_the_one_asked_for():
    x = jax.jit(tree_noise)(KEY, jnp.zeros((2**8, 2**8)), 3.5)
    assert float(jnp.std(x)) == pytest.approx(3.5, rel=0.02)


def test_shapes_are_template_enough():
    shapes = jax.eval_shape(lambda: TREE)
    drawn = jax.jit(lambda key: tree_noise(key, shapes, 1.0))(KEY)
    jax.tree.map(np.testing.assert_array_equal, drawn, jax.jit(tree_noise)(KEY, TREE, 1.0))


def test_law_3_the_noise_is_the_same_on_any_number_of_devices():
    shapes = {"a": (16, 24), "b": (8,), "c": (16, 24)}
    template = {name: jax.ShapeDtypeStruct(shape, "float32") for name, shape in shapes.items()}
    draw = jax.jit(lambda key: tree_noise(key, template, 2.0))
    alone, mesh = draw(KEY), jax.make_mesh((2, 4), ("x", "y"))
    for spec in (P("x", "y"), P(None, ("x", "y"))):
        shardings = {"a": NamedSharding(mesh, spec), "b": NamedSharding(mesh, P("x")), "c": NamedSharding(mesh, spec)}
        compiled = jax.jit(draw, out_shardings=shardings).lower(KEY).compile()
        assert not any(word in compiled.as_text() for word in ("all-gather", "all-to-all", "all-reduce", "collective"))
        spread = compiled(KEY)
        assert len(spread["a"].sharding.device_set) == 8
        for name in template:
            # The random bits are the same; the last bit of a cosine may depend on how many are computed at once.
            np.testing.assert_allclose(alone[name], spread[name], rtol=1e-6)


def dense(bands, steps):
    """C in float64, with columns of norm 1."""
    coefficients = np.asarray(strategy(bands, steps)[0], np.float64)
    C = sum(np.diag(np.full(steps - k, c), -k) for k, c in enumerate(coefficients))
    return C / np.linalg.norm(C, axis=0)


def run(method, steps, template, stddev=1.0, through=lambda state: state):
    """The noise of each step, stacked."""
    step = jax.jit(method.draw)
    state, noises = method.init(template), []
    for index in range(steps):
        noise, state = step(through(state), jax.random.key(index), template, stddev)
        noises.append(noise)
    return jax.tree.map(lambda *leaves: np.stack(leaves), *noises)


@pytest.mark.parametrize("bands", [3, 20])
def test_banded_noise_is_the_inverse_of_a_banded_matrix_times_white_noise(bands):
    steps = 6
    white = run(Independent(), steps, TREE, 1.5)
    banded = run(Banded(bands, steps), steps, TREE, 1.5)
    C = dense(min(bands, steps), steps)
    for path, z in white.items():
        expected = np.linalg.solve(C, z.reshape(steps, -1).astype(np.float64)).reshape(z.shape)
        np.testing.assert_allclose(banded[path], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("bands", "steps"), [(1, 3), (3, 6), (6, 6), (8, 40)])
def test_a_record_moves_the_banded_release_by_no_more_than_the_clip_norm(bands, steps):
    """The columns of C = P diag(1/length), with the very float32 numbers that the noise is made of."""
    coefficients, lengths = (np.asarray(values, np.float64) for values in strategy(bands, steps))
    assert (coefficients.shape, lengths.shape) == ((bands,), (bands,))
    norms = np.sqrt(np.cumsum(coefficients**2)) / lengths
    assert norms.max() <= 1
    assert norms.min() > 1 - 2e-7


def test_banded_noise_has_the_covariance_it_should_have():
    steps = 6
    x = run(Banded(3, steps), steps, jnp.zeros((2**8, 2**8))).reshape(steps, -1)
    inverse = np.linalg.inv(dense(3, steps))
    np.testing.assert_allclose(np.cov(x), inverse @ inverse.T, atol=0.04)


def test_banded_noise_adds_up_to_less():
    """Its point: at the same cost the noise in the weights, which is the sum over the run, is smaller."""
    steps, template = 40, jnp.zeros(2**12)
    independent = run(Independent(), steps, template).sum(axis=0).std()
    banded = run(Banded(8, steps), steps, template).sum(axis=0).std()
    assert independent == pytest.approx(np.sqrt(steps), rel=0.05)
    assert banded < 0.5 * independent


def test_one_band_is_independent_noise():
    jax.tree.map(np.testing.assert_array_equal, run(Banded(1, 3), 3, TREE, 1.5), run(Independent(), 3, TREE, 1.5))


def test_the_state_of_banded_noise_survives_being_written():
    """Law 7: it is arrays only, and the strategy is among them."""
    as_numpy = partial(jax.tree.map, np.array)
    jax.tree.map(
        np.testing.assert_array_equal, run(Banded(3, 6), 6, TREE, through=as_numpy), run(Banded(3, 6), 6, TREE)
    )


def test_past_its_steps_banded_noise_is_no_number():
    """Going on would break the promise: the last columns are normalised for a run that ends."""
    x = run(Banded(3, 6), 8, jnp.zeros(4))
    assert np.isfinite(x[:6]).all()
    assert np.isnan(x[6:]).all()


def test_the_shapes_of_the_state_are_known_before_it_is_made():
    """A checkpoint is read back into them."""
    method = Banded(3, 6)
    shapes = jax.eval_shape(method.init, TREE)
    jax.tree.map(lambda shape, leaf: np.testing.assert_equal(shape.shape, leaf.shape), shapes, method.init(TREE))


def test_banded_noise_is_not_multiplied_in_lower_precision():
    """On a GPU or TPU the default would take 10 or 8 bits of the mantissa."""
    method = Banded(3, 6)
    printed = str(jax.make_jaxpr(method.draw)(method.init(TREE), KEY, TREE, 1.0))
    assert printed.count("dot_general") == printed.count("Precision.HIGHEST, Precision.HIGHEST") > 0


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ((0, 5), "bands = 0: it must be a whole number of at least 1."),
        ((2, 0), "steps = 0: it must be a whole number of at least 1."),
        ((2.5, 5), "bands = 2.5: it must be a whole number of at least 1."),
    ],
)
def test_bad_input(fields, sentence):
    with pytest.raises(BadInput) as error:
        Banded(*fields)
    assert str(error.value) == sentence
