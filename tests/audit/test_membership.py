"""Membership inference: curves and rates against scikit-learn and by hand, ε on mechanisms that are known, models."""

import json

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from jax_privacy.auditing import CanaryScoreAuditor
from scipy.stats import beta
from sklearn.metrics import balanced_accuracy_score, roc_auc_score, roc_curve

from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.audit.membership import LEVELS, Membership, Point, by_loss, calibrated, losses
from dpnlp.checks import BadInput
from dpnlp.data.arrays import Arrays
from dpnlp.data.cache import Column, Examples
from dpnlp.guarantee import Adjacency
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.training.clipping import Clipping
from dpnlp.training.loop import Options, train
from dpnlp.training.plan import Plan
from dpnlp.training.secret import Secret

from ..training.networks import Line, squared_distance

DELTA = 1e-6


@st.composite
def attacks(draw):
    """Scores, some of them equal, of members and others; there are some of both."""
    count = draw(st.integers(2, 40))
    scores = draw(st.lists(st.integers(-20, 20), min_size=count, max_size=count))
    members = draw(st.lists(st.booleans(), min_size=count - 2, max_size=count - 2))
    return np.array(scores, float) / 4, np.array([True, False, *members])


def found(scores, members):
    return Membership("loss", scores, members)


@given(attacks())
def test_the_curve_is_that_of_scikit_learn(attack):
    scores, members = attack
    theirs = roc_curve(members, scores, drop_intermediate=False)
    np.testing.assert_allclose(found(*attack).roc(), theirs[:2])
    assert found(*attack).auc == pytest.approx(roc_auc_score(members, scores))
    best = max(balanced_accuracy_score(members, scores >= threshold) for threshold in [*scores, np.inf])
    assert found(*attack).balanced_accuracy == pytest.approx(best)


@given(attacks(), st.floats(0.001, 1))
def test_what_is_found_at_few_false_alarms_is_the_most_that_a_threshold_finds(attack, level):
    scores, members = attack
    point = found(*attack).at(level)
    most = 0
    for threshold in [*scores, np.inf]:
        hits, alarms = ((scores[side] >= threshold).sum() for side in (members, ~members))
        if alarms / (~members).sum() <= level:
            most = max(most, hits)
    assert (point.found, point.members, point.others) == (most, members.sum(), (~members).sum())
    assert point.fpr <= level
    randomized = CanaryScoreAuditor(scores[members], scores[~members]).tpr_at_given_fpr(level)
    assert point.tpr <= randomized + 1e-12, "more than an attack finds that may toss coins between thresholds"


@settings(max_examples=30)
@given(attacks())
def test_a_map_that_keeps_the_order_of_scores_changes_nothing(attack):
    scores, members = attack
    one, other = found(scores, members), found(np.exp(3 * scores + 1), members)
    np.testing.assert_array_equal(one.roc(), other.roc())
    assert one.to_json(DELTA) == other.to_json(DELTA)


@given(attacks())
def test_turned_scores_turn_the_attack(attack):
    scores, members = attack
    assert found(-scores, members).auc == pytest.approx(1 - found(scores, members).auc)
    assert found(scores, ~members).auc == pytest.approx(1 - found(scores, members).auc)


@given(st.integers(0, 30), st.integers(1, 30))
def test_intervals_are_those_of_clopper_and_pearson(hits, more):
    trials = hits + more
    low, high = Point(0.1, hits, trials, 0, 9).tpr_interval(0.9)
    assert low == pytest.approx(beta.ppf(0.05, hits, more + 1) if hits else 0)
    assert high == pytest.approx(beta.ppf(0.95, hits + 1, more) if more else 1)
    assert Point(0.1, 0, 9, hits, trials).fpr_interval(0.9) == (low, high)


def test_members_have_lower_losses_and_a_reference_takes_off_how_hard_a_record_is():
    rng = np.random.default_rng(0)
    hard, members = rng.normal(0, 5, 400), rng.random(400) < 0.5
    own = hard + rng.normal(0, 1, 400) - 2 * members
    references = hard + rng.normal(0, 1, (3, 400))
    plain, better = found(by_loss(own), members), found(calibrated(own, references), members)
    assert 0.5 < plain.auc < 0.7
    assert better.auc > 0.85
    np.testing.assert_allclose(calibrated(own, references), references.mean(0) - own)
    np.testing.assert_allclose(calibrated(own, references[0]), references[0] - own)


def answers(rng, records, epsilon, runs=1):
    """Coins, and scores that tell each of them by randomized response: exactly ε-DP."""
    coins = rng.random((runs, records)) < 0.5
    truth = rng.random((runs, records)) < 1 / (1 + np.exp(-epsilon))
    return np.where(truth, coins, ~coins) + rng.random((runs, records)) / 2, coins


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
def test_the_epsilon_of_randomized_response_is_never_exceeded_but_for_the_confidence(epsilon):
    rng = np.random.default_rng(1)
    bounds = [Membership("coins", *answers(rng, 300, epsilon), drawn=True).epsilon(DELTA, 0.9) for _ in range(200)]
    assert np.mean(np.array(bounds) > epsilon) < 0.1
    large = Membership("coins", *answers(rng, 20_000, epsilon), drawn=True).epsilon(DELTA)
    assert 0.85 * epsilon - 0.01 <= large <= epsilon


def test_several_runs_are_audited_one_by_one_and_share_what_may_go_wrong():
    rng = np.random.default_rng(2)
    scores, members = answers(rng, 400, 2.0, runs=5)
    several = Membership("coins", scores, members, drawn=True).epsilon(DELTA, 0.95)
    each = [Membership("coins", *run, drawn=True).epsilon(DELTA, 0.99) for run in zip(scores, members, strict=True)]
    assert several == pytest.approx(max(each))
    alone = [np.ones(400, bool), *members[1:]]
    assert Membership("coins", scores, alone).epsilon(DELTA, 0.95) == pytest.approx(max(each[1:])), "a run of members"


def test_guesses_do_not_depend_on_who_is_a_member():
    """The best threshold in hindsight refutes ε = 0 of pure noise far more often than it may."""
    rng = np.random.default_rng(3)
    wrong = [
        Membership("noise", rng.normal(size=60), rng.random(60) < 0.5, drawn=True).epsilon(DELTA, 0.8) > 0
        for _ in range(200)
    ]
    assert np.mean(wrong) < 0.2


@pytest.fixture(scope="module")
def records():
    """128 points in many dimensions with targets that mean nothing; the first half is trained on."""
    rng = np.random.default_rng(0)
    x = np.asarray(rng.normal(size=(128, 96)), np.float32)
    return x, np.asarray(rng.normal(size=(128, 1)), np.float32), np.arange(128) < 64


def attacked(records, noise):
    """A linear model is trained by the engine, and its losses are looked at."""
    x, y, members = records
    schedule = Schedule(64, 16, 300, Sampling.POISSON)
    private = Plan(schedule, Clipping(1.0), noise, 1e-5, Adjacency.ADD_REMOVE)
    outcome = train(
        Line(96, 1, nnx.Rngs(0)),
        squared_distance,
        Arrays((x[members], y[members])),
        private if noise else Plan.without_privacy(schedule),
        optax.sgd(0.02),
        Options(physical_batch=16),
        secret=Secret.drawn(FixedSeed(0)),
    )
    return Membership("loss", by_loss(squared_distance(outcome.model, (jnp.asarray(x), jnp.asarray(y)))), members)


def test_a_model_that_learned_by_heart_is_found_out_and_one_with_noise_is_not(records):
    by_heart = attacked(records, 0.0)
    assert by_heart.auc > 0.95
    assert by_heart.at(0.1).tpr > 0.8
    assert by_heart.chance < 1e-6
    assert by_heart.epsilon(1e-5) > 1
    private = attacked(records, 20.0)
    assert abs(private.auc - 0.5) < 0.12
    assert private.epsilon(1e-5) == 0


def test_losses_of_examples_of_all_lengths_come_in_their_order():
    lists = [[3], [4, 5], list(range(2, 30)), [7, 7, 7], list(range(40))]
    examples = Examples.of((Column("ids", 0, "mask"),), {"ids": lists})

    class Sum(nnx.Module):
        pass

    found = losses(Sum(), lambda model, batch: (batch["ids"] * batch["mask"]).sum(1), examples, longest=40, batch=2)
    np.testing.assert_array_equal(found, [sum(each) for each in lists])


def test_what_is_said():
    scores, members = np.array([3.0, 2, 1, 0, 2.5, 0.5]), np.array([True] * 4 + [False] * 2)
    told = Membership("loss", scores, members).statement(1e-5)
    assert told.startswith(
        "The attack by loss tells 4 members from 2 other records with an AUC of 0.500, where 0.5 is guessing; by "
        "chance alone it would be as high with probability "
    )
    assert told.count("finds") == 1, "what is the same at all levels is said once"
    assert (
        "With no false alarm on 2 others it finds 1 of 4 members: 25 %, and with 95 % confidence 0.631 % to 80.6 %. "
        "The true rate of false alarms may be up to 84.2 %." in told
    )
    assert "Membership was not drawn at random" in told
    assert "nothing follows for the ε of the training. Had it been drawn by coins, with these guesses they" in told
    assert told.endswith("may succeed. Only the guarantee speaks of all attacks.")
    rng = np.random.default_rng(0)
    told = Membership("loss", *answers(rng, 500, 4.0, runs=2), drawn=True).statement(1e-5)
    assert "other records in 2 runs with" in told
    assert "With false alarms on at most 1 % of the others it finds" in told
    assert "so that this tests the promise: the training has ε > 2." in told
    told = Membership("loss", *answers(rng, 50, 0.0), drawn=True).statement(1e-5)
    assert "so that this tests the promise: no ε is refuted." in told


def test_what_is_recorded():
    rng = np.random.default_rng(0)
    one = Membership("loss", *answers(rng, 5000, 2.0), drawn=True)
    entry = one.to_json(1e-5, 0.9)
    assert json.loads(json.dumps(entry))["statement"] == entry["statement"]
    assert [point["level"] for point in entry["points"]] == list(LEVELS)
    assert entry["points"][1]["tpr_interval"] == list(one.at(0.01).tpr_interval(0.9))
    assert entry["epsilon"] == {"above": one.epsilon(1e-5, 0.9), "delta": 1e-5, "of_the_training": True}
    assert entry["statement"] == one.statement(1e-5, 0.9)
    every = set(zip(*one.roc(), strict=True))
    assert len(every) > 1000 > len(entry["roc"]) > 100
    assert set(entry["roc"]) <= every
    assert entry["roc"][-1] == (1, 1)
    assert entry["roc"][0] == (0, one.at(1e-9).tpr)


@pytest.mark.parametrize(
    ("scores", "members", "sentence"),
    [
        ([1.0, np.nan], [True, False], r"scores = numbers of shape \(2,\): there must be some, all of them finite"),
        ([], [], r"scores = numbers of shape \(0,\)"),
        ([1.0, 2.0], [True], r"members = bool of shape \(1, 1\): there must be a truth value for each of the scores"),
        ([1.0, 2.0], [0, 1], "members = int64"),
        ([1.0, 2.0], [True, True], "members: all records are, or none is; give members and others"),
    ],
)
def test_what_cannot_be_judged_is_refused(scores, members, sentence):
    with pytest.raises(BadInput, match=sentence):
        Membership("loss", scores, members)


def test_references_of_other_records_are_refused():
    with pytest.raises(BadInput, match="reference = losses of 3 records: there are 2; give one for each"):
        calibrated([1.0, 2.0], [1.0, 2.0, 3.0])
