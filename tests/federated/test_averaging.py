"""Rounds of federated averaging: against loops by hand, at their limits, with noise, and as whole runs."""

import itertools
import math
from dataclasses import replace

import jax
import numpy as np
import optax
import pytest

from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.checks import BadInput
from dpnlp.data.arrays import Arrays
from dpnlp.federated import Averaging, Estimator, LocalSGD, Quantile, Weights
from dpnlp.federated.estimators import FINENESS
from dpnlp.guarantee import Guarantee
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.training.clipping import Rule
from dpnlp.training.contributions import Sums
from dpnlp.training.loop import Options, train
from dpnlp.training.optimizers import Method, Optimizer
from dpnlp.training.rounding import ROUNDING
from dpnlp.training.sampling import Lots, Owners
from dpnlp.training.secret import Secret
from dpnlp.training.sharding import Placement

from ..training.networks import line_case, translator_case
from ..training.oracle import assert_same, flat
from ..training.test_step import after, assert_normal, begun, summed
from .users import LOCAL, Pull, averaging, fedavg, planned, pulled

SECRET = Secret.drawn(FixedSeed(3))
AVERAGE = optax.sgd(1.0)
OF = np.repeat(np.arange(8), [1, 2, 4, 9, 7, 6, 1, 2])
ADAPTIVE = Quantile(0.6, 0.5)


def run(case, plan, optimizer=AVERAGE, owners=OF, most=16, **more):
    model, loss, arrays = case
    given = {name: more.pop(name) for name in list(more) if name in Options.__dataclass_fields__}
    options = Options(**{"physical_batch": 16, "examples_per_owner": most, **given})
    return train(model, loss, Arrays(arrays), plan, optimizer, options, owners=owners, **{"secret": SECRET, **more})


def rounds_of(schedule, arrays, owners=OF, most=16, secret=SECRET):
    """For each round the users in it, each with the examples that it takes part with, in their order."""
    x, y = (np.asarray(array, np.float64) for array in arrays)
    lots, known = Lots(schedule, secret), Owners(owners, most, secret)
    rows = [known.examples(np.array([user]), int(known.counts(np.array([user]))[0]))[0] for user in range(len(known))]
    return [[(x[rows[user]], y[rows[user]]) for user in lots.draw(step)] for step in range(schedule.steps)]


def line_of(model):
    return tuple(np.asarray(value, np.float64) for value in (model.dense.kernel[...], model.dense.bias.value[...]))


@pytest.mark.parametrize(
    ("weights", "quantile"),
    [
        (Weights(), None),
        (Weights(full=4.0), None),
        (Weights(full=4.0, total=5.0), None),
        (Weights(Estimator.CLIPPED), None),
        (Weights(Estimator.CLIPPED, full=4.0, total=2.0), ADAPTIVE),
        (Weights(), ADAPTIVE),
    ],
)
def test_a_run_without_noise_is_federated_averaging_by_hand(weights, quantile):
    """Weights, both estimators, a clip norm that some updates exceed and that follows a quantile; owners of 1 to 9."""
    model, loss, arrays = line_case(32, 0)
    schedule = Schedule(8, 4, 6)
    plan = planned(Averaging(LOCAL, weights, quantile), schedule)
    shown = {}
    found = run((model, loss, arrays), plan, diagnose=shown.__setitem__)
    rounds = rounds_of(schedule, arrays)
    W, b, norms = fedavg(*line_of(model), rounds, LOCAL, 0.5, 4, 8, weights, quantile)
    assert_same(flat(found.model), {"dense.kernel": W, "dense.bias.value": b}, 5e-5)
    assert [seen["records"] for seen in shown.values()] == [len(users) for users in rounds]
    assert 0 < sum(seen["clipped"] for seen in shown.values()) < sum(map(len, rounds))
    assert bool(quantile) is (len(set(norms)) > 1)


def test_one_local_step_on_all_examples_is_user_level_dp_sgd():
    """With rate 1 an update is minus the gradient of the user's mean loss, and both are clipped as one."""
    case, schedule = translator_case(12, 3, 4, 7, 0), Schedule(5, 3, 3)
    owners = np.array([0, 1, 1, 2, 2, 2, 2, 3, 4, 4, 4, 3])
    for rule in (Rule.FLAT, Rule.PER_LAYER):
        given = {"schedule": schedule, "noise_multiplier": 1.0, "clip_norm": 0.3, "rule": rule}
        both = [
            run(case, planned(contribution, **given), optax.sgd(0.5), owners)
            for contribution in (averaging(LocalSGD(1.0, 1, 16)), planned().contribution)
        ]
        assert_same(flat(both[0].model), flat(both[1].model), 5e-5)
        assert both[0].guarantee.epsilon == both[1].guarantee.epsilon


def test_a_user_of_one_text_and_one_of_ten_thousand_move_the_model_alike():
    """Each by no more than the clip norm, and by exactly that."""
    x = np.ones((10_001, 3), np.float32) * np.array([[1.0, 0, 0]])
    x[0] = [0, 1, 0]
    owners = np.repeat([0, 1], [1, 10_000])
    plan = planned(averaging(LocalSGD(1.0, 1, 500)), Schedule(2, 2, 1), 0.25)
    found = run((Pull(2), pulled, x.astype(np.float32)), plan, owners=owners, most=10_000)
    np.testing.assert_allclose(found.model.place[...], [-0.125, -0.125], rtol=1e-5)


def test_a_user_takes_part_with_no_more_examples_than_are_allowed():
    """Those beyond are never seen, however large: a user's weight and update are those of the choice."""
    x = np.ones((40, 3), np.float32)
    plan = planned(averaging(LocalSGD(0.001, 1, 64), full=20.0), Schedule(2, 2, 1))
    found = run((Pull(2), pulled, x), plan, owners=np.repeat([0, 1], [30, 10]), most=10)
    np.testing.assert_allclose(found.model.place[...], [-0.0005, -0.0005], rtol=1e-5)  # two users of weight ½, by L = 2


@pytest.mark.parametrize("estimator", Estimator)
def test_a_round_without_users_is_noise_alone(estimator):
    """Of zS/(qW) for the fixed estimator, and of 2zS/(qW_min) for the clipped one."""
    plan = planned(averaging(estimator=estimator, total=6.0), Schedule(8, 4, 6), 0.25, 4.0)
    step, parameters = begun(Pull(400), pulled, plan, optimizer=AVERAGE)
    moved = after(step, parameters, step.empty(parameters))
    stddev = 4.0 * 0.25 * (1 + ROUNDING)
    assert_normal(moved["place"], {"fixed": 1, "clipped": 2}[estimator] * stddev / (4 / 8 * 6.0))


@pytest.mark.parametrize("estimator", Estimator)
@pytest.mark.parametrize("z", [0.5, 2.0])
def test_a_clip_norm_that_adapts_has_the_noise_of_both_releases(estimator, z):
    """z_Δ = (z⁻² − (2σ_b)⁻²)^(−½) on the updates and σ_b on the count, at a clip norm that is 3 times the first one."""
    sigma_b, L = 1.25, 4
    plan = planned(averaging(estimator=estimator, quantile=Quantile(0.5, 0.2, sigma_b)), None, 0.25, z)
    step, parameters = begun(Pull(60), pulled, plan, optimizer=AVERAGE)
    moves, scales = [], []
    for key in range(150):
        state = step.start(parameters)._replace(carried=np.float32(3.0))
        state = step.finish(state, step.empty(parameters), jax.random.key(key))
        moves.append(np.asarray(state.parameters["place"]))
        scales.append(float(state.carried))
    z_delta = (z**-2 - (2 * sigma_b) ** -2) ** -0.5
    stddev = z_delta * 3 * 0.25 * (1 + ROUNDING)
    assert_normal(np.array(moves), {"fixed": 1, "clipped": 2}[estimator] * stddev / L)
    assert_normal(np.log(np.array(scales) / 3), 0.2 * sigma_b * (1 + ROUNDING) / L)
    assert np.abs(np.corrcoef(np.array(moves)[:, 0], scales)[0, 1]) < 0.4


def test_noise_in_bands_is_that_of_the_answer_whatever_the_clip_norm_has_become():
    """What cancels in a later round is the noise of an answer, which a user moves by as much in each."""
    schedule = Schedule(12, 3, 4, Sampling.CYCLIC, bands=3)
    plan = planned(averaging(quantile=Quantile(0.5, 0.2, 1.0)), schedule, 0.25, 1.5)
    step, parameters = begun(Pull(5), pulled, plan, optimizer=AVERAGE)
    query = jax.eval_shape(lambda: plan.contribution.query(plan, step.empty(parameters))[0])
    state, noise_state = step.start(parameters), plan.noise.init(query)
    z_delta = (1.5**-2 - (2 * 1.0) ** -2) ** -0.5
    for index, scale in enumerate((1.0, 8.0, 0.5, 3.0)):
        before = np.asarray(state.parameters["place"])
        noise, noise_state = plan.noise.draw(noise_state, jax.random.key(index), query, 1.0)
        state = state._replace(carried=np.float32(scale))
        state = step.finish(state, step.empty(parameters), jax.random.key(index))
        moved = np.asarray(state.parameters["place"]) - before
        stddev = 0.25 * z_delta * (1 + ROUNDING)
        np.testing.assert_allclose(moved, -scale * stddev / 3 * noise.updates["place"], rtol=1e-4)


def test_the_clip_norm_finds_the_quantile():
    """Updates of norms 1 to 40, and a share of 30 % of them to be within."""
    x = np.zeros((40, 3), np.float32)
    x[:, 0] = np.arange(1, 41)
    plan = planned(
        averaging(LocalSGD(1.0), quantile=Quantile(0.3, 0.3, 1.0)), Schedule(40, 40, 120, Sampling.SHUFFLED), 1.0, 0.1
    )
    norms = []
    run(
        (Pull(2), pulled, x),
        plan,
        owners=np.arange(40),
        evaluate_every=1,
        evaluate=lambda model: norms.append(float(model.place[...][0])) or {},
    )
    steps = -np.diff(norms)[-40:]  # the mean of min(norm, S)
    expected = np.minimum(np.arange(1, 41), 12.5).mean()
    assert np.median(steps) == pytest.approx(expected, rel=0.08)


def test_an_update_that_is_no_number_counts_as_zero_and_as_not_within_the_norm():
    model, loss, (x, y) = line_case(8, 7)
    broken = x.copy()
    broken[3, 0] = 1e30
    plan = planned(averaging(quantile=Quantile(0.5, 0.2, 4.0)), clip_norm=50.0)
    step, parameters = begun(model, loss, plan, optimizer=AVERAGE)
    given = {"per_record": 2, "weights": [0.5] * 8}

    def sums_of(x):
        state = step.start(parameters)
        return summed(step, parameters, Arrays((x, y)), np.arange(8), 8, **given, carried=state.carried)

    found, whole = sums_of(broken), sums_of(x)
    others = summed(
        step,
        parameters,
        Arrays((x, y)),
        [0, 1, 2, 3, 4, 5, 6, 7],
        8,
        per_record=2,
        weights=[0.5, 0.5, 0, 0, 0.5, 0.5, 0.5, 0.5],
        carried=step.start(parameters).carried,
    )
    assert_same(found.gradients, others.gradients)
    assert float(found.seen.not_finite) == 1
    assert (float(whole.beside.within), float(found.beside.within)) == (2.0, 1.0)
    assert float(found.beside.weight) == 4.0 * FINENESS


@pytest.mark.parametrize(
    "contribution",
    [
        averaging(),
        averaging(quantile=Quantile(0.5, 0.2, 40.0)),
        averaging(quantile=Quantile(0.5, 0.2, 0.6)),
        averaging(estimator=Estimator.CLIPPED),
        averaging(estimator=Estimator.CLIPPED, total=300.0),
        averaging(estimator=Estimator.CLIPPED, quantile=Quantile(0.5, 0.2, 2.0)),
    ],
)
def test_what_rounding_may_add_to_an_estimate_and_a_count_is_not_much_more_than_what_it_adds(contribution):
    """One user more, after any number of users who move the sum by all they can: against exact numbers."""
    lot = 1000
    plan = planned(contribution, Schedule(4 * lot, lot, 1), noise_multiplier=1.0)
    S, users = np.float32(plan.clipping.norm), np.arange(2 * lot, dtype=np.float32)
    beside = contribution.nothing()._replace(weight=users * FINENESS, within=users[: lot + 1] / 2)
    answer, _ = contribution.query(plan, Sums({"place": users * S}, (), beside))
    sure = contribution.weights.expected(plan)
    exact = [users * S.astype(float)]
    if contribution.weights.estimator is Estimator.CLIPPED:
        exact = [exact[0] * sure / np.maximum(sure, users) / 2]
    if contribution.quantile:
        exact.append(contribution.quantile.part(plan) * plan.clipping.norm * users[: lot + 1].astype(float))
    found = [np.asarray(part, np.float64) for part in jax.tree.leaves(answer)]
    added = sum(np.abs(np.diff(one - other)).max() / S for one, other in zip(found, exact, strict=True))
    allowed = contribution.rounding(plan, None, None, None, 1, 1) - averaging().rounding(plan, None, None, None, 1, 1)
    assert added <= allowed <= 8 * added


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("quantile", [None, ADAPTIVE])
def test_physical_batches_and_devices_change_nothing_of_a_noisy_run(devices, quantile):
    case, plan = line_case(32, 1, dropout=0.5), planned(averaging(full=4.0, quantile=quantile), noise_multiplier=1.0)
    alone = run(case, plan, physical_batch=64)
    other = run(case, plan, physical_batch=8 * devices, placement=Placement(devices, devices > 1))
    assert_same(flat(other.model), flat(alone.model), 2e-5)


def test_a_run_without_privacy_is_averaging_of_unclipped_updates():
    model, loss, arrays = line_case(32, 0)
    schedule = Schedule(8, 4, 3)
    plan = type(planned()).without_privacy(schedule, contribution=averaging())
    W, b, _ = fedavg(*line_of(model), rounds_of(schedule, arrays), LOCAL, math.inf, 4, 8)
    assert_same(flat(run((model, loss, arrays), plan).model), {"dense.kernel": W, "dense.bias.value": b}, 5e-5)


def test_server_optimizers_take_the_average_for_a_gradient():
    """Momentum adds up averages; Adam's first step has the size of its rate whatever the average."""
    case, plan = line_case(32, 0), planned(averaging(), Schedule(8, 8, 2, Sampling.SHUFFLED))
    path = [flat(case[0])]
    run(
        case,
        plan,
        Optimizer(1.0, Method.SGD, momentum=0.9).build(2),
        evaluate=lambda model: path.append(flat(model)) or {},
        evaluate_every=1,
    )
    once = replace(plan, schedule=replace(plan.schedule, steps=1))
    assert_same(path[1], flat(run(case, once).model))
    moves = [after["dense.kernel"] - before["dense.kernel"] for before, after in itertools.pairwise(path)]
    assert np.linalg.norm(moves[1]) > 1.2 * np.linalg.norm(moves[0])
    adam = run(case, once, Optimizer(0.01).build(1))
    np.testing.assert_allclose(np.abs(flat(adam.model)["dense.kernel"] - path[0]["dense.kernel"]), 0.01, rtol=1e-3)


@pytest.mark.parametrize("sampling", [Sampling.POISSON, Sampling.CYCLIC])
def test_law_7_a_run_that_was_interrupted_goes_on_to_the_same_model_and_clip_norm(tmp_path, sampling):
    case = line_case(32, 2)
    schedule = Schedule(8, 4, 6, sampling, bands=2 if sampling is Sampling.CYCLIC else 1)
    plan = planned(averaging(quantile=ADAPTIVE), schedule, noise_multiplier=1.0)
    whole = run(case, plan)
    for step in itertools.count(1):
        left = iter([False, True])
        try:
            found = run(case, plan, folder=tmp_path / "run", resume=step > 1, interrupted=lambda left=left: next(left))
            break
        except (KeyboardInterrupt, StopIteration):
            continue
    assert step >= 3
    for name, value in flat(whole.model).items():
        np.testing.assert_array_equal(value, flat(found.model)[name])


def test_a_run_is_not_resumed_with_another_way_of_averaging(tmp_path):
    case = line_case(32, 2)
    with pytest.raises(KeyboardInterrupt):
        run(case, planned(averaging()), folder=tmp_path / "run", interrupted=lambda: True)
    other = planned(averaging(estimator=Estimator.CLIPPED))
    with pytest.raises(
        BadInput, match=r"^contribution\.weights\.estimator = clipped: the run in .* with fixed; a plan"
    ):
        run(case, other, folder=tmp_path / "run", resume=True)


def test_the_guarantee_names_the_mechanism():
    plan = planned(averaging(estimator=Estimator.CLIPPED, full=4.0, total=6.0, quantile=ADAPTIVE), noise_multiplier=1.5)
    promised = run(line_case(32, 0), plan).guarantee
    assert str(promised.mechanism) == (
        "federated-averaging(noise_multiplier=1.5,rounding=0.01,estimator=clipped,full_weight=4.0,total_weight=6.0,quantile=0.6)"
    )
    assert Guarantee.parse(promised.signature()) == promised
    assert "Mechanism: federated-averaging(" in promised.statement()
    assert promised.epsilon == planned(noise_multiplier=1.5).guarantee(promised.noise_source).epsilon


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            lambda: planned(averaging(quantile=Quantile(0.5, 0.2, 0.5)), noise_multiplier=1.0),
            "count_noise = 0.5: it must be more than half of the noise multiplier 1, or the count alone costs more "
            "than the plan; raise it.",
        ),
        (
            lambda: planned(averaging(quantile=ADAPTIVE), clip_norm=math.inf),
            "clip_norm = inf: one that follows a quantile has to start somewhere; give one.",
        ),
        (
            lambda: planned(averaging(quantile=ADAPTIVE), rule=Rule.AUTOMATIC),
            "clipping = automatic: it has no clip norm that could follow a quantile; leave one out.",
        ),
        (lambda: Weights(full=0.0), "full_weight = 0.0: it must be a finite number above 0."),
        (lambda: Weights(total=math.inf), "total_weight = inf: it must be a finite number above 0."),
        (lambda: Quantile(1.5), "quantile = 1.5: it must lie above 0 and be at most 1."),
        (lambda: Quantile(0.5, 0.0), "quantile_rate = 0.0: it must be a finite number above 0."),
        (lambda: Quantile(0.5, 0.2, -1.0), "count_noise = -1.0: it must be a finite number above 0."),
    ],
)
def test_bad_input(wrong, sentence):
    with pytest.raises(BadInput) as error:
        wrong()
    assert str(error.value) == sentence
