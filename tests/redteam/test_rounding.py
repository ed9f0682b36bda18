"""Rounding (laws 5 and 13): is there a lot that one record moves by more than the clip norm and η?"""

import contextlib
import os
import subprocess
import sys
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.checks import BadInput
from dpnlp.data.arrays import Arrays
from dpnlp.federated import Averaging, LocalSGD
from dpnlp.models import t5
from dpnlp.models.cross_entropy import losses
from dpnlp.models.layers import Linear
from dpnlp.models.seq2seq import shifted
from dpnlp.training import Options, Plan, rounding, train
from dpnlp.training.clipping import Clipping, Rule, clipped_sum
from dpnlp.training.parameters import apart
from dpnlp.training.rounding import UNIT

from .architectures import CASES
from .climbing import climbed
from .conftest import THOROUGH
from .lots import ALLOWED, Engine

SMALL = {"width": 32, "heads": 2, "head_width": 16, "hidden": 48, "encoder_layers": 1, "decoder_layers": 1}


QUICK = {
    ("t5", "bfloat16"): Rule.FLAT,
    ("gcn", "float32"): Rule.AUTOMATIC,
    ("every layer, and a stray weight", "float32"): Rule.PER_LAYER,
}


def pairs(lengths, longest, rng, vocabulary=40):
    """Texts with translations of the same length."""
    mask = np.arange(longest) < np.asarray(lengths)[:, None]
    ids, targets = rng.integers(2, vocabulary, (2, len(lengths), longest), np.int32)
    inputs = np.asarray(shifted(jnp.asarray(targets), 0))
    return {"ids": ids, "mask": mask, "inputs": inputs, "targets": targets, "target_mask": mask}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_long_text_among_short_ones_moves_no_more_than_itself(dtype, report):
    """Were the others padded to its length, each of them would be clipped a little differently."""
    model = t5.T5(t5.Config(40, **SMALL, dtype=dtype), rngs=nnx.Rngs(0))
    examples = pairs([9] * 63 + [120], 128, np.random.default_rng(0))
    same = {name: np.concatenate([np.repeat(values[:1], 63, axis=0), values[63:]]) for name, values in examples.items()}
    engine = Engine(model, losses, same, [9] * 63 + [120], clipping=Clipping(0.1))
    report(f"a text of 120 tokens among 63 of 9, {dtype}", ALLOWED, engine.moved(range(64), 63))


class Products(nnx.Module):
    """A layer whose inputs and gradients are what the data says: the loss is Σ_t ⟨x_t W, g_t⟩."""

    def __init__(self, inputs, outputs):
        self.layer = Linear(inputs, outputs, bias=False, rngs=nnx.Rngs(0))

    def __call__(self, batch):
        x, g = batch
        return jnp.sum(self.layer(x) * g, axis=(1, 2))


def chosen(model, batch):
    return model(batch)


@pytest.mark.parametrize(("inputs", "outputs", "positions"), [(768, 20, 2), (96, 64, 4), (20, 600, 3)])
def test_positions_that_nearly_cancel_keep_the_clip_bound(inputs, outputs, positions, tries, report):
    """Hill climbing over how near the inputs are to each other, and the gradients to opposites."""
    rng, at_once = np.random.default_rng(0), 32
    model = Products(inputs, outputs)
    engine = Engine(
        model,
        chosen,
        (np.zeros((at_once, positions, inputs), np.float32),) * 1
        + (np.zeros((at_once, positions, outputs), np.float32),),
        batch=at_once,
    )
    step, worst, best = engine.step, 0.0, (3.0, 3.0, 5.0)

    @jax.jit
    def each(batch):
        parts, one = apart(model), jnp.eye(at_once)
        return jax.lax.map(lambda w: clipped_sum(chosen, parts, batch, w, Clipping(1.0)).gradients["layer.kernel"], one)

    for _ in range(tries(4)):
        near = np.abs(np.asarray(best) + rng.normal(size=(at_once, 3)))
        x = rng.normal(size=(at_once, 1, inputs)) + 10 ** -near[:, 0, None, None] * rng.normal(
            size=(at_once, positions, inputs)
        )
        g = rng.normal(size=(at_once, 1, outputs)) * np.resize([1, -1], positions)[:, None]
        g = g + 10 ** -near[:, 1, None, None] * rng.normal(size=(at_once, positions, outputs))
        size = 10 ** near[:, 2, None, None]
        found = np.asarray(each((np.float32(x * size), np.float32(g))), np.float64)
        norms = np.linalg.norm(found.reshape(at_once, -1), axis=1)
        if norms.max() > worst:
            worst, best = float(norms.max()), tuple(near[norms.argmax()])
    assert step.compilations == 0
    report(f"{positions} positions that cancel, {inputs} × {outputs}", ALLOWED, worst)


class Arrow(nnx.Module):
    """A record's gradient is the vector that the data says."""

    def __init__(self, width):
        self.place = nnx.Param(jnp.zeros(width))

    def __call__(self, x):
        return x @ self.place[...]


@pytest.mark.parametrize("kind", ["alike", "random", "in turns"])
def test_a_large_lot_is_summed_up_to_the_last_record(kind, report):
    """The sum of 262,144 records is so large that float32 would round away a part of each batch."""
    records, rng = (262_144 if THOROUGH else 4_096), np.random.default_rng(0)
    x = rng.normal(size=(records + 1, 8))
    if kind != "random":
        x = np.abs(x[:1]) + 1e-3 * x
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    if kind == "in turns":
        x *= np.resize([0.999, 1e-4, 0.3, 1e-6, 0.7], records + 1)[:, None]
    engine = Engine(Arrow(8), chosen, np.float32(x), batch=16)
    report(f"one of {records:,} records, {kind}", ALLOWED, engine.moved(range(records + 1), records))


class Chaos(nnx.Module):
    """A small network that is trained with so large a rate that the last bit decides where it ends."""

    def __init__(self, width=8):
        self.first, self.last = Linear(width, 16, rngs=nnx.Rngs(0)), Linear(16, width, rngs=nnx.Rngs(1))

    def __call__(self, x):
        return jnp.mean((self.last(jnp.tanh(3 * self.first(x))) - 4 * jnp.sin(9 * x)) ** 2, axis=-1)


def test_a_user_more_changes_no_bit_of_what_others_train(report, tries):
    rng, users, each = np.random.default_rng(0), 40, 4
    x = np.float32(rng.normal(size=(users * each, 8)))
    of = np.repeat(np.arange(users), each)
    contribution = Averaging(LocalSGD(1.0, 10, 2))
    engine = Engine(Chaos(), chosen, x, batch=16, of=of, most=each, contribution=contribution)
    worst = max(engine.moved(range(count), int(rng.integers(count))) for count in rng.integers(2, users, size=tries(4)))
    report("a user more, local training that is chaotic", ALLOWED, worst)


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_no_record_that_is_sought_for_moves_a_lot_by_more_than_the_clip_norm(name, dtype, report):
    """Thoroughly in 10,080 tries for each architecture and compute type, a third of them by each rule of clipping."""
    if not THOROUGH and (name, dtype) not in QUICK:
        pytest.skip("left to `make redteam`")
    for rule in Rule if THOROUGH else [QUICK[name, dtype]]:
        report(f"{name}, {dtype}, {rule} clipping", ALLOWED, climbed(name, dtype, rule, 3_360 if THOROUGH else 96))


def test_squares_too_small_for_float32_hide_no_length(report):
    """Inputs of 10⁻¹⁹ and gradients of 10¹⁸: the squares of the inputs vanish, the products do not."""
    shape, worst = (768, 20), 0.0
    model = Products(*shape)
    parts = apart(model)
    for power in np.linspace(-21, -17, 9):
        x = np.full((1, 2, shape[0]), 10.0**power, np.float32)
        g = np.full((1, 2, shape[1]), 4e18, np.float32)
        found = clipped_sum(chosen, parts, (x, g), jnp.ones(1), Clipping(1.0)).gradients["layer.kernel"]
        worst = max(worst, float(np.linalg.norm(np.asarray(found, np.float64))))
    report("inputs whose squares vanish", ALLOWED, worst)


def biased(model, batch):
    """Gradients of 0 for the kernel, where nothing but noise is seen."""
    return model(batch["x"])[:, 0] * batch["y"]


@pytest.mark.parametrize(
    ("clip_norm", "noise"), [(2.1e-38, 0.5), (1e-37, 0.05), (1e-9, 1e-30), (1e-9, 1e-9), (1e9, 1e9)]
)
def test_noise_does_not_vanish_where_float32_ends(clip_norm, noise):
    """Hardware takes what is below 2⁻¹²⁶ for 0: a record's gradient came out without any noise on it."""
    data = Arrays({"x": np.zeros((1, 300), np.float32), "y": np.full(1, 0.1, np.float32)})
    schedule, model = Schedule(1, 1, 1, Sampling.POISSON), Linear(300, 1, rngs=nnx.Rngs(0))
    model.kernel.set_value(jnp.zeros((300, 1)))
    with contextlib.suppress(BadInput):
        plan = Plan(schedule, Clipping(clip_norm), noise, 1e-6, schedule.sampling.adjacencies[0])
        trained = train(model, biased, data, plan, optax.sgd(1 / plan.stddev), Options()).model
        assert 0.8 < np.std(trained.kernel[...]) < 1.2


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=60), st.integers(1, 400))
def test_a_lot_is_added_up_as_exactly_as_is_proved(values, times):
    """However many batches there are, what is carried along is a small part of the sum, so that it loses nothing."""
    high = low = np.float32(0)
    exact, allowed = Fraction(0), 0.0
    for value in np.float32(values * (1 + times // len(values))):
        before = abs(float(high))
        high, low = map(np.float32, _two_sum(high, low, value))
        exact += Fraction(float(value))
        assert abs(float(low)) <= UNIT * abs(float(high))
        allowed += 2.1 * UNIT**2 * (before + abs(float(high)) + abs(float(value)))
    assert abs(Fraction(float(high)) + Fraction(float(low)) - exact) <= allowed


_two_sum = jax.jit(rounding.two_sum)


def test_batches_whose_sums_would_round_too_much_are_refused_before_a_run():
    x = np.zeros((262_144, 3), np.float32)
    schedule = Schedule(len(x), len(x), 1, Sampling.POISSON)
    plan = Plan(schedule, Clipping(1.0), 1.0, 1e-9, schedule.sampling.adjacencies[0])
    with pytest.raises(
        BadInput, match=r"physical_batch = \d+: with lots of 262144 rounding could lift what one example "
    ):
        train(Arrow(3), chosen, Arrays(x), plan, optax.sgd(0.1), Options(262_144))


def test_a_compiler_that_takes_floats_for_real_numbers_is_refused_before_a_run(monkeypatch):
    """With fast-math flags, what a sum rounds away is computed to be nothing."""
    monkeypatch.setattr(rounding, "two_sum", lambda high, low, more: (high + more, low))
    schedule = Schedule(8, 4, 1, Sampling.POISSON)
    plan = Plan(schedule, Clipping(1.0), 1.0, 1e-9, schedule.sampling.adjacencies[0])
    with pytest.raises(BadInput, match=r"XLA_FLAGS = .*: with these flags the compiler reorders sums of floats"):
        train(Arrow(3), chosen, Arrays(np.zeros((8, 3), np.float32)), plan, optax.sgd(0.1), Options(4))


def test_fast_math_is_seen_by_the_compiler_itself():
    code = "from dpnlp.training.rounding import refuse_reordering; refuse_reordering()"
    flags = {"XLA_FLAGS": "--xla_cpu_enable_fast_math=true", "JAX_PLATFORMS": "cpu"}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | flags, capture_output=True, text=True, check=False
    )
    assert "XLA_FLAGS = --xla_cpu_enable_fast_math=true" in ran.stderr


@pytest.mark.parametrize("width", [3, 7, 8, 13])
@pytest.mark.parametrize("users", [3, 5, 8])
def test_what_a_user_trains_has_the_same_bits_in_every_place_of_a_batch(width, users, report):
    """One user in all places, and then others in all but one: chaotic training shows every bit."""
    rng, parts, local = np.random.default_rng(width), apart(Chaos(width)), LocalSGD(1.0, 6, 2)

    @jax.jit
    def trained(x):
        keys = jax.random.split(jax.random.key(0), x.shape[:2])
        loss = lambda model, batch: chosen(model, batch[1])  # noqa: E731
        return jax.vmap(lambda key, own: local.moved(loss, parts, (key, own), jnp.ones(3, bool))[0])(keys, x)

    one = np.float32(rng.normal(size=(3, width)))
    found_first, differing = None, 0
    for place in range(users):
        x = np.float32(rng.normal(size=(users, 3, width)))
        x[place] = one
        found = trained(x)
        own = np.concatenate([np.asarray(value[place]).ravel() for value in found.values()])
        found_first = own if found_first is None else found_first
        differing += int(np.sum(own != found_first))
    report(f"a user in each place of {users}, width {width}", 0, differing)
