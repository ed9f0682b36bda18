"""What one user can change in a round of federated averaging, with all that it wrote, is what the plan accounts for.

A user's loss is linear here, so that its update is any vector that hypothesis likes, and more than the clip norm, no
number or nothing at all. Compared is the whole answer that noise is added to, the count of a clip norm that adapts
included, as one vector: a user that comes or goes moves it by at most C, and one that changes by at most 2C.
"""

import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp.accounting.subsampling import Schedule
from dpnlp.federated import Estimator, Quantile
from dpnlp.training import rounding
from dpnlp.training.clipping import Rule
from dpnlp.training.contributions import Sums
from dpnlp.training.parameters import apart

from ..federated.users import LOCAL, Pull, averaging, planned, pulled

USERS, EXAMPLES, WIDTH = 6, 4, 2
C, ROUNDING = 0.5, 1 + 1e-5
SCALE = 2.5  # of a clip norm that has adapted

WAYS = {
    "fixed": averaging(),
    "fixed, weighted": averaging(full=3.0, total=2.0),
    "clipped": averaging(estimator=Estimator.CLIPPED, total=4.0),
    "clipped, weighted": averaging(estimator=Estimator.CLIPPED, full=3.0, total=1.5),
    "adaptive": averaging(quantile=Quantile(0.5, 0.2, 0.6)),
    "adaptive, clipped, weighted": averaging(
        estimator=Estimator.CLIPPED, full=3.0, total=1.5, quantile=Quantile(0.5, 0.2, 0.6)
    ),
}


@cache
def answering(way, rule, noise_multiplier=1.0):
    """The plan, and the answer as one vector to users [USERS, EXAMPLES, WIDTH + 1] of whom some examples are real."""
    plan = planned(WAYS[way], Schedule(USERS, 3, 4), C, noise_multiplier, rule)
    parts = apart(Pull(WIDTH))

    @jax.jit
    def sums(x, real):
        keys = jax.random.split(jax.random.key(0), USERS * EXAMPLES)
        scale = jnp.float32(SCALE) if plan.contribution.quantile else ()
        batch = (keys, x.reshape(USERS * EXAMPLES, -1))
        loss = lambda model, batch: pulled(model, batch[1])  # noqa: E731
        weights = (real / jnp.maximum(real.sum(axis=1, keepdims=True), 1)).reshape(-1)
        return plan.contribution.of(plan, loss, parts, scale, batch, weights.astype(jnp.float32), EXAMPLES)

    def answer(x, real):
        found: Sums = sums(jnp.asarray(x, jnp.float32), jnp.asarray(real))
        leaves = jax.tree.leaves(plan.contribution.query(plan, found)[0])
        return np.concatenate([np.asarray(leaf, np.float64).reshape(-1) for leaf in leaves])

    return plan, answer


def examples(counts):
    return np.arange(EXAMPLES) < np.asarray(counts)[:, None]


SIZES = st.sampled_from([0.0, 0.1, 1.0, 30.0, 1e6, 1e25])
PULLS = st.lists(st.floats(-1, 1, width=32), min_size=WIDTH + 1, max_size=WIDTH + 1)


@st.composite
def users(draw):
    """What users wrote, and how many examples each has; of one of them also something else."""
    pulls = np.array([draw(PULLS) for _ in range(USERS)])[:, None, :] * np.ones((1, EXAMPLES, 1))
    pulls = pulls * np.array([draw(SIZES) for _ in range(USERS)])[:, None, None]
    counts = [draw(st.integers(0, EXAMPLES)) for _ in range(USERS)]
    other = np.array(draw(PULLS)) * draw(SIZES)
    if draw(st.booleans()):
        other[0] = draw(st.sampled_from([np.nan, np.inf]))
    return pulls, counts, draw(st.integers(0, USERS - 1)), other, draw(st.integers(1, EXAMPLES))


@pytest.mark.parametrize("rule", [Rule.FLAT, Rule.PER_LAYER])
@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=60)
@given(given_users=users())
def test_a_user_moves_the_answer_by_no_more_than_the_clip_norm(way, rule, given_users):
    pulls, counts, user, other, its_count = given_users
    _, answer = answering(way, rule)
    without, changed = list(counts), list(counts)
    without[user], changed[user] = 0, its_count
    theirs = pulls.copy()
    theirs[user] = other
    before, gone = answer(pulls, examples(counts)), answer(pulls, examples(without))
    after = answer(theirs, examples(changed))
    assert np.isfinite(np.concatenate([before, gone, after])).all()
    assert np.linalg.norm(before - gone) <= C * ROUNDING
    assert np.linalg.norm(after - gone) <= C * ROUNDING
    assert np.linalg.norm(after - before) <= 2 * C * ROUNDING


@pytest.mark.parametrize("way", [way for way in WAYS if "clipped" not in way])
def test_the_bound_is_met_and_not_only_kept(way):
    """A user at the clip norm, within the first norm of those that adapt, moves the answer by all of it."""
    _, answer = answering(way, Rule.FLAT)
    at_norm = np.zeros((USERS, EXAMPLES, WIDTH + 1))
    moves = 2 * 2 * LOCAL.rate  # two epochs of two batches
    at_norm[..., 0] = C * SCALE / moves * (1 - 1e-4)
    moved = answer(at_norm, examples([4] * USERS)) - answer(at_norm, examples([0] + [4] * (USERS - 1)))
    assert np.linalg.norm(moved) == pytest.approx(C, rel=2e-3)


@pytest.mark.parametrize("users_before", [1, 2, 4])
def test_against_all_others_one_user_moves_the_clipped_average_by_more_than_s_over_q_w_min(users_before):
    """All pull one way at S, and one the other way: 2S/(Σ + 1), which is why the noise is twice as large."""
    plan, answer = answering("clipped", Rule.FLAT)
    pulls = np.ones((USERS, EXAMPLES, WIDTH + 1)) * [[[100.0, 0, 0]]]
    pulls[0, :, 0] *= -1
    counts = np.array([0] + [4] * users_before + [0] * (USERS - 1 - users_before))
    before, after = answer(pulls, examples(counts)), answer(pulls, examples([4, *counts[1:]]))
    q_W_min = 3 / USERS * 4.0
    average = lambda vector: 2 * vector / q_W_min  # noqa: E731
    S, had = C, users_before
    expected = abs(-S * had / max(q_W_min, had) - (-S * had + S) / max(q_W_min, had + 1))
    assert np.linalg.norm(average(after) - average(before)) == pytest.approx(expected, rel=1e-4)
    assert expected <= 2 * S / q_W_min
    if users_before == 2:
        assert expected > 1.3 * S / q_W_min
    noise = plan.contribution.gradient(plan, plan.contribution.query(plan, _unit(plan))[0], ())[0]["number"]
    assert float(noise) == pytest.approx(2 / q_W_min / 2)  # what is halved in the query is doubled in the average


def _unit(plan):
    """Sums of one in each parameter and no weight."""
    ones = {"place": jnp.ones(WIDTH), "number": jnp.ones(())}
    return Sums(ones, (), plan.contribution.nothing())


@pytest.mark.parametrize("way", ["fixed", "fixed, weighted"])
def test_law_2_the_fixed_estimator_looks_at_no_weight_of_the_lot(way):
    plan, _ = answering(way, Rule.FLAT)
    heavy = _unit(plan)._replace(beside=plan.contribution.nothing()._replace(weight=jnp.float32(1e3)))
    expected = 1 / 3 if way == "fixed" else 1 / (0.5 * 2.0)
    for sums in (_unit(plan), heavy):
        move, _ = plan.contribution.gradient(plan, plan.contribution.query(plan, sums)[0], ())
        np.testing.assert_allclose(move["place"], expected, rtol=1e-6)


@pytest.mark.parametrize("way", WAYS)
def test_what_rounding_took_from_the_updates_is_averaged_as_they_are(way):
    plan, _ = answering(way, Rule.FLAT)
    sums = _unit(plan)._replace(beside=plan.contribution.nothing()._replace(weight=jnp.float32(20)))
    lost = jax.tree.map(lambda total: 0.25 * total, sums.gradients)
    answer, beside = plan.contribution.query(plan, sums._replace(lost=lost))
    np.testing.assert_allclose(beside.updates["place"], 0.25 * answer.updates["place"], rtol=1e-6)
    assert not np.any(jax.tree.leaves(beside.within))


@pytest.mark.parametrize("z", [0.2, 1.0])
def test_count_and_updates_together_have_the_plans_noise_multiplier(z):
    """Over the noise that each of the two gets, a user's move is 1/z at most: by the paper's formula, and here."""
    sigma_b = 0.6
    plan, _ = answering("adaptive", Rule.FLAT, z)
    quantile = plan.contribution.quantile
    z_updates = z / quantile.left(plan)
    assert z_updates == pytest.approx((z**-2 - (2 * sigma_b) ** -2) ** -0.5)
    assert math.hypot(1 / z_updates, 0.5 / sigma_b) == pytest.approx(1 / z)
    assert plan.stddev / (2 * quantile.part(plan) * C) == pytest.approx(sigma_b * (1 + rounding.ROUNDING))


def test_per_layer_clipping_bounds_each_layer_by_s_over_root_m():
    """Two parameters, one of which moves a million times as far as the other."""
    _, answer = answering("fixed", Rule.PER_LAYER)
    pulls = np.zeros((USERS, EXAMPLES, WIDTH + 1))
    pulls[0] = [1e6, 0, 1.0]
    number, place = np.split(answer(pulls, examples([4] + [0] * (USERS - 1))), [1])
    assert np.linalg.norm(place) == pytest.approx(C / math.sqrt(2), rel=1e-5)
    assert np.linalg.norm(number) == pytest.approx(2 * 2 * LOCAL.rate, rel=1e-5)
