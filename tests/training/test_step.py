"""One step of DP-SGD against the same step by hand, and its noise against what is planned."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.data.arrays import Arrays
from dpnlp.models.layers import Embedding, Linear
from dpnlp.training.clipping import Clipping, Method, Rule
from dpnlp.training.parameters import apart
from dpnlp.training.plan import Plan
from dpnlp.training.rounding import ROUNDING
from dpnlp.training.sharding import Placement
from dpnlp.training.step import Examples, Step

from .networks import Line, Zoo, line_case, squared_distance, tagger_case
from .oracle import assert_same, flat, follow

SCHEDULE = Schedule(32, 10, 4)
STEPS = {}  # those of the property test, each compiled once
KEY, NOISE = jax.random.key(1), jax.random.key(2)


def planned(clip_norm=0.5, noise_multiplier=0.0, schedule=SCHEDULE):
    return Plan(schedule, Clipping(clip_norm), noise_multiplier, 1e-6, schedule.sampling.adjacencies[0])


def begun(model, loss, plan, trains=nnx.Param, **options):
    """A step that descends by the gradient itself unless told otherwise, and the parameters to begin with."""
    parts = apart(model, trains)
    options = {"optimizer": optax.sgd(1.0), "placement": Placement(), **options}
    return Step(loss, parts.frame, options["placement"].state(parts.rest), plan, **options), parts.parameters


def summed(step, parameters, data, rows, physical, per_record=1, weights=None, carried=()):
    """The sum over a lot in batches of `physical` rows, the last of them filled up with rows that weigh nothing."""
    rows = np.asarray(rows)
    weights = np.ones(len(rows), np.float32) if weights is None else np.asarray(weights, np.float32)
    missing = -len(rows) % physical
    rows, weights = np.append(rows, np.full(missing, rows[-1])), np.append(weights, np.zeros(missing, np.float32))
    sums = step.empty(parameters)
    for start in range(0, len(rows), physical):
        part = slice(start, start + physical)
        placed = step.placement.batch((data.batch(rows[part], 1), rows[part].astype(np.int32), weights[part]))
        sums = step.add(sums, parameters, KEY, Examples(*placed), per_record, carried)
    return sums


def after(step, parameters, sums, key=NOISE):
    state = step.finish(step.start(parameters), sums, key)
    return {name: np.asarray(value) for name, value in state.parameters.items()}


class Arrow(nnx.Module):
    """An example's gradient is the example."""

    def __init__(self, width):
        self.place = nnx.Param(jnp.zeros(width))

    def __call__(self, x):
        return x @ self.place[...]


def line_gradients(model, x, y):
    """Of ‖xW + b − y‖², for each example: 2x ⊗ (xW + b − y), and the same without x."""
    weight, bias = (np.asarray(v, np.float64) for v in (model.dense.kernel[...], model.dense.bias.value[...]))
    error = 2 * (x @ weight + bias - y)
    return {"dense.kernel": x[:, :, None] * error[:, None], "dense.bias.value": error}


def clipped_line_sum(model, x, y, clip_norm):
    gradients = line_gradients(model, x, y)
    norms = np.sqrt(sum((g.reshape(len(x), -1) ** 2).sum(axis=1) for g in gradients.values()))
    return {name: np.tensordot(np.minimum(1, clip_norm / norms), g, axes=1) for name, g in gradients.items()}


def test_a_step_is_algorithm_1_of_abadi_et_al():
    """Physical batches of 4, clip factors that differ, an optimizer with momentum: against a loop over the records."""
    model, loss, arrays = tagger_case(10, 3, 4, 5, 0)
    data, optimizer = Arrays(arrays), optax.sgd(0.01, momentum=0.9)
    step, parameters = begun(model, loss, planned(50.0), optimizer=optimizer)
    state = step.start(parameters)
    lots = [np.array([1, 2, 3, 5, 8, 9]), np.array([0, 4, 5]), np.array([], int)]
    expected = follow(model, loss, data, lots, optimizer, 10, clip_norm=50.0)
    for lot, aim in zip(lots, expected, strict=True):
        sums = summed(step, state.parameters, data, lot, 4) if len(lot) else step.empty(state.parameters)
        if len(lot) > 3:
            assert 0 < float(sums.seen.clipped) < len(lot)
        state = step.finish(state, sums, NOISE)
        assert_same({name: np.asarray(value) for name, value in state.parameters.items()}, aim)


@pytest.mark.parametrize("size", [1, 3, 10, 13])
def test_law_2_the_sum_is_divided_by_the_expected_lot_size_whatever_was_drawn(size):
    model, loss, (x, y) = line_case(32, 1)
    step, parameters = begun(model, loss, planned(0.5))
    moved = after(step, parameters, summed(step, parameters, Arrays((x, y)), np.arange(size), 16))
    total = clipped_line_sum(model, x[:size], y[:size], 0.5)
    assert_same(moved, {name: parameters[name] - total[name] / 10 for name in parameters})


def test_each_shape_is_compiled_once_and_so_is_the_update():
    model, loss, (x, y) = line_case(32, 1)
    step, parameters = begun(model, loss, planned(0.5))
    for _ in range(2):
        after(step, parameters, summed(step, parameters, Arrays((x, y)), np.arange(3), 4))
        assert step.compilations == 1 + 1
    summed(step, parameters, Arrays((x, y)), np.arange(3), 8)
    assert step.compilations == 2 + 1


def test_law_2_a_plan_without_privacy_divides_by_the_expected_size_too():
    model, loss, (x, y) = line_case(32, 1)
    step, parameters = begun(model, loss, Plan.without_privacy(SCHEDULE))
    moved = after(step, parameters, summed(step, parameters, Arrays((x, y)), np.arange(7), 16))
    total = clipped_line_sum(model, x[:7], y[:7], math.inf)
    assert_same(moved, {name: parameters[name] - total[name] / 10 for name in parameters})


@pytest.mark.parametrize("noise_multiplier", [0.0, 1e-9])
def test_what_is_small_beside_the_sum_so_far_is_not_rounded_away(noise_multiplier):
    """One record of 1 and 4,095 of 3e-8, half a unit of float32 beside it, in batches of one."""
    x = np.full((4096, 1), 3e-8, np.float32)
    x[0] = 1
    step, parameters = begun(Arrow(1), lambda model, x: model(x), planned(2.0, noise_multiplier, Schedule(4096, 1, 1)))
    moved = after(step, parameters, summed(step, parameters, Arrays(x), np.arange(4096), 1))
    np.testing.assert_allclose(moved["place"], -(1 + 4095 * 3e-8), rtol=2e-7)


def test_what_rounding_took_from_a_sum_goes_into_its_noise():
    """Both are smaller than a unit of the sum: the exact sum of all three is rounded once."""
    unit = 2.0**-23
    step, parameters = begun(Arrow(400), lambda model, x: model(x), planned(2.0, unit / 2, Schedule(4096, 1, 1)))
    lost = jnp.asarray(np.random.default_rng(0).uniform(-unit / 2, unit / 2, 400), jnp.float32)
    sums = step.empty(parameters)._replace(gradients={"place": jnp.full(400, 1.5)}, lost={"place": lost})
    drawn, _ = step.plan.noise.draw((), NOISE, parameters, step.plan.stddev)
    moved = after(step, parameters, sums)
    lost, noise, moved = (np.asarray(part, np.float64) for part in (lost, drawn["place"], moved["place"]))
    assert 0.5 * unit < noise.std() < 2 * unit
    assert np.abs(-moved - (1.5 + lost + noise)).max() <= unit / 2 * (1 + 1e-5)


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_law_4_accumulation_order_padding_and_batchmates_change_nothing(rate):
    """Dropout belongs to the example too, wherever it stands."""
    model, loss, arrays = line_case(32, 2, dropout=rate)
    data, lot = Arrays(arrays), np.arange(3, 25)
    step, parameters = begun(model, loss, planned(0.5))
    first = after(step, parameters, summed(step, parameters, data, lot, 32))
    for physical, rows in ((4, lot), (8, lot[::-1]), (32, np.random.default_rng(0).permutation(lot))):
        assert_same(after(step, parameters, summed(step, parameters, data, rows, physical)), first)


def test_what_is_dropped_changes_from_step_to_step():
    model, loss, arrays = line_case(32, 2, dropout=0.5)
    step, parameters = begun(model, loss, planned(0.5))
    rows = np.arange(8, dtype=np.int32)
    batch = Examples(*step.placement.batch((Arrays(arrays).batch(rows, 1), rows, np.ones(8, np.float32))))
    sums = [step.add(step.empty(parameters), parameters, jax.random.key(s), batch, 1).gradients for s in (0, 0, 1)]
    assert_same(sums[0], sums[1])
    assert not np.allclose(sums[0]["dense.kernel"], sums[2]["dense.kernel"], rtol=1e-2)


def test_an_owner_is_clipped_as_one_record_of_the_mean_of_its_losses():
    model, loss, arrays = line_case(32, 3)
    data, step_and_parameters = Arrays(arrays), begun(model, loss, planned(0.5))
    step, parameters = step_and_parameters
    rows, weights = [0, 1, 2, 3, 4, 4, 5, 5], [0.5, 0.5, 0.5, 0.5, 1.0, 0.0, 1.0, 0.0]
    (expected,) = follow(model, loss, data, [[[0, 1], [2, 3], [4], [5]]], optax.sgd(1.0), 10, clip_norm=0.5)
    for physical in (2, 4, 8):
        sums = summed(step, parameters, data, rows, physical, per_record=2, weights=weights)
        assert float(sums.seen.records) == 4
        assert_same(after(step, parameters, sums), expected)


def differences(step, parameters, sums, times):
    """How the parameters move in many steps with the same sum and other noise: {name: [times, *shape]}."""
    state, path = step.start(parameters), []
    for index in range(times):
        before = {name: np.asarray(value, np.float64) for name, value in state.parameters.items()}
        state = step.finish(state, sums, jax.random.key(index))
        path.append({name: np.asarray(state.parameters[name], np.float64) - before[name] for name in before})
    return {name: np.stack([move[name] for move in path]) for name in before}


def assert_normal(values, stddev, name=""):
    """Mean and deviation are those of N(0, stddev²), up to five deviations of their estimates."""
    n = values.size
    assert abs(values.mean()) < 5 * stddev / math.sqrt(n), name
    assert abs(values.std() / stddev - 1) < 5 / math.sqrt(2 * n), name


def test_law_3_every_trained_parameter_gets_noise_of_the_planned_size_and_of_its_own():
    """Tables, biases, norms, adapters, recurrent weights, a number by itself; on a lot that is empty."""
    step, parameters = begun(Zoo(4, nnx.Rngs(0)), None, planned(0.25, 8.0))
    kinds = {"table.table", "positions.table", "adapted.A", "adapted.B", "adapted.base.bias.value", "rms.scale"}
    assert kinds | {"norm.bias.value", "recurrent.recurrent", "stray"} < parameters.keys()
    moved = differences(step, parameters, step.empty(parameters), 200)
    for name, moves in moved.items():
        assert_normal(moves, 8.0 * 0.25 * (1 + ROUNDING) / 10, name)
    coordinates = np.concatenate([moves.reshape(200, -1) for moves in moved.values()], axis=1)
    correlation = np.corrcoef(coordinates.T) - np.eye(coordinates.shape[1])
    assert np.abs(correlation).max() < 6 / math.sqrt(200)


@pytest.mark.parametrize("trained", [nnx.LoRAParam, lambda path, value: path[-1] == "scale"])
def test_law_3_what_is_frozen_gets_no_noise_and_no_gradient(trained):
    model = Zoo(4, nnx.Rngs(0))
    step, parameters = begun(model, None, planned(0.25, 8.0), trained)
    state = step.finish(step.start(parameters), step.empty(parameters), NOISE)
    assert state.parameters.keys() == flat(model, trained).keys() < flat(model).keys()
    assert all((state.parameters[name] != value).all() for name, value in parameters.items())


@pytest.mark.parametrize(("physical", "devices"), [(32, 1), (4, 1), (8, 8)])
def test_law_3_noise_is_added_once_per_lot_however_many_batches_and_devices(physical, devices):
    """With a clip norm that leaves next to nothing of the gradients the update is noise alone."""
    model, loss, arrays = line_case(32, 4)
    step, parameters = begun(model, loss, planned(1e-3, 1e4), placement=Placement(devices))
    moved = differences(step, parameters, summed(step, parameters, Arrays(arrays), np.arange(32), physical), 150)
    for name, moves in moved.items():
        assert_normal(moves, 1 + ROUNDING, name)


def test_law_3_eight_devices_and_spread_parameters_give_the_noisy_update_of_one():
    model, loss = Line(8, 16, nnx.Rngs(5)), squared_distance
    rng = np.random.default_rng(5)
    data = Arrays(tuple(np.asarray(rng.normal(size=(32, width)), np.float32) for width in (8, 16)))
    results = []
    for placement in (Placement(), Placement(8), Placement(8, shard_parameters=True)):
        optimizer = optax.adam(0.1)
        step, parameters = begun(model, loss, planned(0.5, 1.0), placement=placement, optimizer=optimizer, decay=0.5)
        state = step.start(parameters)
        for key in (NOISE, KEY):
            state = step.finish(state, summed(step, state.parameters, data, np.arange(30), 16), key)
        kernel = state.parameters["dense.kernel"]
        assert len(kernel.sharding.device_set) == placement.devices
        spread = {shard.data.shape for shard in kernel.addressable_shards}
        assert spread == ({(8, 2)} if placement.shard_parameters else {(8, 16)})
        for other in (state.average["dense.kernel"], state.optimizer[0].mu["dense.kernel"]):
            assert other.sharding == kernel.sharding
        results.append({name: np.asarray(value) for name, value in state.parameters.items()})
    assert_same(results[1], results[0])
    assert_same(results[2], results[0])


def test_owners_on_eight_devices_give_the_update_of_one():
    model, loss, arrays = line_case(32, 3)
    weights = np.tile([0.5, 0.5], 16)
    results = []
    for devices in (1, 8):
        step, parameters = begun(model, loss, planned(0.5, 1.0), placement=Placement(devices))
        sums = summed(step, parameters, Arrays(arrays), np.arange(32), 16, per_record=2, weights=weights)
        results.append(after(step, parameters, sums))
    assert_same(results[1], results[0])


def test_banded_noise_is_carried_from_step_to_step():
    """The noise of a plan with bands is that of `noise.Banded`, started once and given a key at every step."""
    schedule = Schedule(32, 8, 4, Sampling.CYCLIC_POISSON, bands=3)
    plan = planned(0.5, 2.0, schedule)
    step, parameters = begun(*line_case(32, 3)[:2], plan)
    state, noise_state = step.start(parameters), plan.noise.init(parameters)
    draw = jax.jit(lambda state, key: plan.noise.draw(state, key, parameters, 1.0))
    for index in range(4):
        before = {name: np.asarray(value) for name, value in state.parameters.items()}
        noise, noise_state = draw(noise_state, jax.random.key(index))
        state = step.finish(state, step.empty(parameters), jax.random.key(index))
        assert_same(state.parameters, {name: before[name] - (1 + ROUNDING) * noise[name] / 8 for name in before})


def test_the_average_is_what_it_is_defined_as():
    model, loss, arrays = line_case(32, 6)
    step, parameters = begun(model, loss, planned(0.5, 1.0), decay=0.9)
    state = step.start(parameters)
    average = {name: np.asarray(value) for name, value in parameters.items()}
    for index in range(4):
        sums = summed(step, state.parameters, Arrays(arrays), np.arange(index, 8), 8)
        state = step.finish(state, sums, jax.random.key(index))
        average = {name: 0.9 * average[name] + 0.1 * np.asarray(state.parameters[name]) for name in average}
    assert_same(state.average, average)
    assert not np.allclose(state.average["dense.kernel"], state.parameters["dense.kernel"], rtol=1e-2)


def test_without_a_decay_no_average_is_kept():
    step, parameters = begun(*line_case(4, 6)[:2], planned())
    assert step.start(parameters).average == {}


@pytest.mark.parametrize("method", Method)
@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e30])
def test_an_example_whose_gradient_is_no_number_counts_as_none(method, poison):
    model, loss, (x, y) = line_case(8, 7)
    broken = x.copy()
    broken[3, 0] = poison
    plan = replace(planned(), clipping=Clipping(0.5, method=method))
    step, parameters = begun(model, loss, plan)
    sums = summed(step, parameters, Arrays((broken, y)), np.arange(8), 8)
    without = summed(step, parameters, Arrays((x, y)), [0, 1, 2, 4, 5, 6, 7], 8)
    assert (float(sums.seen.not_finite), float(sums.seen.records)) == (1, 8)
    assert_same(after(step, parameters, sums), after(step, parameters, without))


def test_what_a_lot_showed_is_counted_over_its_batches_and_padding_is_not():
    model, loss, (x, y) = line_case(8, 7)
    step, parameters = begun(model, loss, planned(3.0))
    seen = summed(step, parameters, Arrays((x, y)), np.arange(7), 4).seen.summary()
    gradients = line_gradients(model, x[:7], y[:7])
    norms = np.sqrt(sum((g.reshape(7, -1) ** 2).sum(axis=1) for g in gradients.values()))
    losses = np.asarray(loss(model, (x[:7], y[:7])))
    expected = {"records": 7, "loss": losses.mean(), "clipped": (norms > 3).sum(), "not_finite": 0}
    assert 0 < expected["clipped"] < 7
    assert seen == pytest.approx(expected, rel=1e-5)
    assert step.empty(parameters).seen.summary() == {"records": 0, "loss": 0, "clipped": 0, "not_finite": 0}


def test_the_parameters_that_were_handed_in_survive_a_step():
    step, parameters = begun(*line_case(4, 6)[:2], planned(0.5, 1.0))
    after(step, parameters, step.empty(parameters))
    assert np.isfinite(parameters["dense.kernel"]).all()


def test_a_model_in_bfloat16_is_summed_and_noised_in_float32():
    model, loss, (x, y) = line_case(8, 7)
    step, parameters = begun(model, loss, planned(0.5, 1.0))
    narrow = {name: value.astype(jnp.bfloat16) for name, value in parameters.items()}
    sums = summed(step, narrow, Arrays((x, y)), np.arange(8), 8)
    assert {value.dtype for value in sums.gradients.values()} == {jnp.dtype("float32")}


@pytest.mark.parametrize("rule", list(Rule))
@pytest.mark.parametrize("width", [pytest.param(1, id="gradients built"), pytest.param(4, id="pairs of positions")])
def test_law_5_no_rounding_of_bfloat16_lifts_a_record_above_the_clip_norm(width, rule):
    """A gradient of one number, or of 16 that are equal, scaled in eight bits: some would be rounded above it."""

    def narrow(model, batch):
        x, slope = (jnp.repeat(array.astype(jnp.bfloat16), width, axis=1) for array in batch)
        return (model(x) * slope).sum(axis=1)

    rng = np.random.default_rng(0)
    data = Arrays(tuple(np.asarray(rng.uniform(1, 100, (400, 1)), np.float32) for _ in range(2)))
    plan = replace(planned(0.5), clipping=Clipping(0.5, rule))
    step, parameters = begun(Linear(width, width, bias=False, rngs=nnx.Rngs(0)), narrow, plan)
    sums = [summed(step, parameters, data, [row], 1).gradients["kernel"] for row in range(400)]
    each = [float(np.linalg.norm(np.asarray(total, np.float64))) for total in sums]
    assert 0.5 * 0.98 < min(each) <= max(each) <= 0.5


def test_law_5_holds_for_a_table_that_is_looked_up_in_float32_and_attended_to_in_bfloat16():
    """The narrowest type among the uses of a weight decides how far scaling may round its gradient up."""

    def narrow(model, batch):
        x, slope = (jnp.repeat(array, 4, axis=1) for array in batch)
        rows = model(jnp.zeros(1, jnp.int32)[None].repeat(len(x), axis=0))[:, 0]
        return 1e-6 * rows.sum(axis=1) + (model.attend(x.astype(jnp.bfloat16)) * slope).sum(axis=1)

    rng = np.random.default_rng(0)
    data = Arrays(tuple(np.asarray(rng.uniform(1, 100, (64, 1)), np.float32) for _ in range(2)))
    step, parameters = begun(Embedding(4, 4, rngs=nnx.Rngs(0)), narrow, planned(0.5))
    sums = [summed(step, parameters, data, [row], 1).gradients["table"] for row in range(64)]
    each = [float(np.linalg.norm(np.asarray(total, np.float64))) for total in sums]
    assert 0.5 * 0.98 < min(each) <= max(each) <= 0.5


@settings(max_examples=12)
@given(
    rows=st.lists(st.integers(0, 31), min_size=1, max_size=20, unique=True),
    physical=st.sampled_from([4, 8]),
    clip_norm=st.sampled_from([0.01, 3.0, 1e6]),
)
def test_any_lot_moves_the_parameters_as_the_closed_form_says(rows, physical, clip_norm):
    model, loss, (x, y) = line_case(32, 1)
    step, parameters = STEPS.setdefault(clip_norm, begun(model, loss, planned(clip_norm)))
    moved = after(step, parameters, summed(step, parameters, Arrays((x, y)), rows, physical))
    total = clipped_line_sum(model, x[rows], y[rows], clip_norm)
    assert_same(moved, {name: parameters[name] - total[name] / 10 for name in parameters}, 2e-5)
