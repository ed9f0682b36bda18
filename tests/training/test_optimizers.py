"""Learning rates against closed forms, and optimizers against their definitions on a quadratic."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.training.optimizers import Decay, Method, Optimizer

START = {"a": np.array([1.0, -2.0, 3.0]), "b": np.array([[0.5, -0.25]])}


def rates(optimizer, steps):
    return np.asarray(jax.vmap(optimizer.schedule(steps))(jnp.arange(steps))) * np.ones(steps)


def descended(transformation, steps=6):
    """The path down ½‖x − 1‖², whose gradient is x − 1."""

    @jax.jit
    def step(x, state):
        updates, state = transformation.update(jax.tree.map(lambda leaf: leaf - 1, x), state, x)
        return optax.apply_updates(x, updates), state

    x = {name: jnp.asarray(value, jnp.float32) for name, value in START.items()}
    state, path = transformation.init(x), []
    for _ in range(steps):
        x, state = step(x, state)
        path.append(np.concatenate([np.asarray(leaf).ravel() for leaf in x.values()]))
    return np.array(path)


def by_hand(update, steps=6):
    """The same path, with `update(x, gradient, memory, step)` in float64."""
    x, memory, path = np.concatenate([value.ravel() for value in START.values()]), {}, []
    for step in range(steps):
        x = x + update(x, x - 1, memory, step)
        path.append(x)
    return np.array(path)


@pytest.mark.parametrize("decay", Decay)
def test_warm_up_goes_up_in_equal_parts(decay):
    found = rates(Optimizer(0.8, decay=decay, warmup_steps=4), 20)
    np.testing.assert_allclose(found[:4], [0.2, 0.4, 0.6, 0.8], rtol=1e-5)
    assert found.argmax() in (3, 4)
    assert (np.diff(found[4:]) <= 0).all()


@pytest.mark.parametrize("warm", [0, 1, 5])
@pytest.mark.parametrize(
    ("decay", "form"),
    [
        (Decay.CONSTANT, lambda t, rest, warm: 1.0),
        (Decay.LINEAR, lambda t, rest, warm: 1 - t / rest),
        (Decay.COSINE, lambda t, rest, warm: (1 + math.cos(math.pi * t / rest)) / 2),
        (Decay.INVERSE_SQRT, lambda t, rest, warm: math.sqrt(max(warm, 1) / (t + max(warm, 1)))),
    ],
)
def test_a_decay_follows_its_formula(decay, form, warm):
    steps = 25
    found = rates(Optimizer(0.3, decay=decay, warmup_steps=warm), steps)
    expected = [0.3 * form(t, steps - warm, warm) for t in range(steps - warm)]
    np.testing.assert_allclose(found[warm:], expected, rtol=1e-5, atol=1e-7)


def test_linear_and_cosine_are_zero_when_the_run_is_over():
    for decay in (Decay.LINEAR, Decay.COSINE):
        schedule = Optimizer(0.3, decay=decay, warmup_steps=2).schedule(10)
        assert float(schedule(10)) == pytest.approx(0, abs=1e-7)
        assert float(schedule(9)) > 0


def test_a_rate_can_be_asked_for_with_a_plain_number():
    schedule = Optimizer(0.3, decay=Decay.INVERSE_SQRT, warmup_steps=2).schedule(10)
    assert [float(schedule(step)) for step in range(3)] == pytest.approx([0.15, 0.3, 0.3])


def test_the_rate_in_use_is_the_schedules():
    optimizer = Optimizer(0.5, Method.SGD, Decay.LINEAR, warmup_steps=2)
    rate = [0.25, 0.5, 0.5, 0.375, 0.25, 0.125]
    np.testing.assert_allclose(
        descended(optimizer.build(6)), by_hand(lambda x, g, memory, step: -rate[step] * g), rtol=1e-5, atol=1e-6
    )


def test_sgd_with_and_without_momentum():
    def momentum(x, g, memory, step):
        memory["m"] = 0.9 * memory.get("m", 0) + g
        return -0.1 * memory["m"]

    plain = descended(Optimizer(0.1, Method.SGD).build(6))
    np.testing.assert_allclose(plain, by_hand(lambda x, g, memory, step: -0.1 * g), rtol=1e-5, atol=1e-6)
    heavy = descended(Optimizer(0.1, Method.SGD, momentum=0.9).build(6))
    np.testing.assert_allclose(heavy, by_hand(momentum), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(heavy, descended(optax.sgd(0.1, momentum=0.9)), rtol=1e-6)


def adam(weight_decay):
    def update(x, g, memory, step):
        memory["m"] = 0.9 * memory.get("m", 0) + 0.1 * g
        memory["v"] = 0.999 * memory.get("v", 0) + 0.001 * g**2
        m, v = memory["m"] / (1 - 0.9 ** (step + 1)), memory["v"] / (1 - 0.999 ** (step + 1))
        return -0.1 * (m / (np.sqrt(v) + 1e-8) + weight_decay * x)

    return update


def test_adam_and_adamw_are_those_of_their_papers():
    plain = descended(Optimizer(0.1).build(6))
    np.testing.assert_allclose(plain, by_hand(adam(0.0)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(plain, descended(optax.adam(0.1)), rtol=1e-6)
    decayed = descended(Optimizer(0.1, weight_decay=0.2).build(6))
    np.testing.assert_allclose(decayed, by_hand(adam(0.2)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(decayed, descended(optax.adamw(0.1, weight_decay=0.2)), rtol=1e-6)


def test_weight_decay_of_sgd_stays_out_of_the_momentum():
    def update(x, g, memory, step):
        memory["m"] = 0.9 * memory.get("m", 0) + g
        return -0.1 * (memory["m"] + 0.2 * x)

    found = descended(Optimizer(0.1, Method.SGD, momentum=0.9, weight_decay=0.2).build(6))
    np.testing.assert_allclose(found, by_hand(update), rtol=1e-5, atol=1e-6)


def test_adafactor_keeps_rows_and_columns_only_and_descends():
    transformation = Optimizer(0.05, Method.ADAFACTOR).build(30)
    path = descended(transformation, 30)
    assert (np.abs(path[-1] - 1) <= np.abs(path[0] - 1)).all()
    assert np.abs(path[-1] - 1).sum() < 0.5 * np.abs(path[0] - 1).sum()
    state = transformation.init({"wide": jnp.zeros((256, 512))})
    assert sum(leaf.size for leaf in jax.tree.leaves(state)) < 2000


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: Optimizer(0.0), "learning_rate = 0.0: it must be a finite number above 0."),
        (lambda: Optimizer(math.nan), "learning_rate = nan: it must be a finite number above 0."),
        (lambda: Optimizer(0.1, warmup_steps=-1), "warmup_steps = -1: it must be a whole number of at least 0."),
        (lambda: Optimizer(0.1, weight_decay=-0.1), "weight_decay = -0.1: it must be a finite number of at least 0."),
        (lambda: Optimizer(0.1, Method.SGD, momentum=1.0), "momentum = 1.0: it must be at least 0 and below 1."),
        (lambda: Optimizer(0.1, momentum=0.9), "momentum = 0.9: only sgd has one; adam has its own moments."),
        (
            lambda: Optimizer(0.1, Method.ADAFACTOR, momentum=0.9),
            "momentum = 0.9: only sgd has one; adafactor has its own moments.",
        ),
        (
            lambda: Optimizer(0.1, warmup_steps=10).build(10),
            "warmup_steps = 10: it must be below the 10 steps; warm up faster.",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(wrong, sentence):
    with pytest.raises(BadInput) as refusal:
        wrong()
    assert str(refusal.value) == sentence


@settings(max_examples=20)
@given(decay=st.sampled_from(Decay), warm=st.integers(0, 8), more=st.integers(1, 12), rate=st.floats(1e-4, 10.0))
def test_no_rate_is_above_the_one_given_or_below_zero(decay, warm, more, rate):
    found = rates(Optimizer(rate, decay=decay, warmup_steps=warm), warm + more)
    assert (found > 0).all()
    assert (found <= rate * (1 + 1e-6)).all()
    assert found[warm] == pytest.approx(rate, rel=1e-5)
    assert (np.diff(found[:warm]) > 0).all()
