"""The likelihood ratio attack: against a naive loop, and on models whose scores are known in closed form."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from dpnlp.audit.lira import LEAST_STD, OWN_VARIANCE, Shadows, confidence, drawn
from dpnlp.audit.membership import Membership
from dpnlp.checks import BadInput


def shadows(runs, records, seed, change=1.0):
    """Scores that differ from record to record, vary by run, more so for members, and are higher for these."""
    rng, members = np.random.default_rng(seed), drawn(records, runs, seed)
    scores = 5 * rng.normal(size=records) + rng.normal(size=(runs, records)) * np.where(members, 1.5, 0.7)
    return Shadows(scores + change * members, members)


def by_hand(shadows, target, online, own):
    """Record by record, and run by run."""
    sides = [
        [(run[r], kept[r]) for run, kept in zip(shadows.scores, shadows.members, strict=True)] for r in columns(shadows)
    ]
    within, without = (
        [[value for value, kept in side if kept is np.bool_(one)] for side in sides] for one in (True, False)
    )

    def variance(lists, number):
        if own and len(lists[number]) > 1:
            return np.var(lists[number], ddof=1)
        squares = sum(sum((value - np.mean(values)) ** 2 for value in values) for values in lists if values)
        return squares / sum(len(values) - 1 for values in lists if values)

    both = [number for number in columns(shadows) if within[number] and without[number]]
    change = np.mean([np.mean(within[number]) - np.mean(without[number]) for number in both])
    found = []
    for number in columns(shadows):
        out = np.mean(without[number]) if without[number] else np.mean(within[number]) - change
        out = out, math.sqrt(variance(without, number))
        if online:
            into = np.mean(within[number]) if within[number] else np.mean(without[number]) + change
            into = into, math.sqrt(variance(within, number))
            found.append(norm(*into).logpdf(target[number]) - norm(*out).logpdf(target[number]))
        else:
            found.append(-math.log(norm(*out).sf(target[number])))
    return found


def columns(shadows):
    return range(shadows.scores.shape[1])


@pytest.mark.parametrize("runs", [5, 16])
@pytest.mark.parametrize("own", [True, False])
def test_ratios_are_those_of_a_naive_loop(runs, own):
    known, rng = shadows(runs, 60, runs), np.random.default_rng(0)
    gaps = known.members.all(axis=0) | ~known.members.any(axis=0)
    assert gaps.any() == (runs == 5)
    target = known.scores.mean(axis=0) + rng.normal(size=60)
    np.testing.assert_allclose(known.attack(target, own_variance=own), by_hand(known, target, True, own))
    there = known.members.sum(axis=0) < runs
    some = Shadows(known.scores[:, there], known.members[:, there])
    offline = some.attack(target[there], online=False, own_variance=own)
    np.testing.assert_allclose(offline, by_hand(some, target[there], False, own), 1e-6, 1e-12)


def test_a_variance_is_its_records_own_where_there_are_runs_enough():
    few, many = shadows(8, 20, 0), shadows(3 * OWN_VARIANCE, 20, 0)
    for known, own in ((few, False), (many, True)):
        target = known.scores[0] + 0.1
        np.testing.assert_array_equal(known.attack(target), known.attack(target, own_variance=own))
        assert (known.attack(target) != known.attack(target, own_variance=not own)).any()


@given(st.integers(0, 100), st.floats(-50, 50), st.floats(0.5, 4))
def test_how_hard_a_record_is_and_the_unit_of_scores_do_not_matter(seed, shift, scale):
    known, target = shadows(8, 10, seed), np.random.default_rng(seed).normal(size=10)
    moved = shift * np.arange(10)
    other = Shadows(scale * known.scores + moved, known.members)
    np.testing.assert_allclose(other.attack(scale * target + moved), known.attack(target), rtol=1e-6, atol=1e-6)


@given(st.floats(1e-6, 1 - 1e-6))
def test_confidence_is_the_logit(p):
    assert confidence(-math.log(p)) == pytest.approx(math.log(p / (1 - p)), rel=1e-6, abs=1e-9)


def test_confidence_has_an_end_where_float32_has_one_and_none_for_large_losses():
    assert confidence([0.0, 1e-9]).tolist() == [confidence(1e-7)] * 2
    assert confidence(1000.0) == pytest.approx(-1000)
    assert (np.diff(confidence(np.geomspace(1e-6, 1e4, 200))) < 0).all()


def test_members_are_drawn_by_a_coin_for_each_record_in_each_run():
    members = drawn(400, 300, 7)
    assert members.mean() == pytest.approx(0.5, abs=0.01)
    for axis, trials in ((0, 300), (1, 400)):
        # Were the number the same for all, a record's membership would follow from the other runs.
        assert members.sum(axis=axis).var() == pytest.approx(trials / 4, rel=0.35)
    np.testing.assert_array_equal(members, drawn(400, 300, 7))
    assert (members != drawn(400, 300, 8)).any()


def test_each_shadow_run_is_trained_on_its_members_and_scores_all_records():
    members, asked = drawn(9, 4, 0), []

    def score(rows):
        asked.append(rows.tolist())
        return np.arange(9) + 100 * len(asked)

    found = Shadows.trained(score, members)
    assert asked == [np.flatnonzero(line).tolist() for line in members]
    np.testing.assert_array_equal(found.scores, np.arange(9) + 100 * np.arange(1, 5)[:, None])


def test_a_run_that_is_attacked_is_none_of_its_own_shadows():
    """Without its own scores among them, noise is not told from noise, and the scores of one run do not matter."""
    rng, members = np.random.default_rng(0), drawn(300, 6, 0)
    noise = Shadows(rng.normal(size=(6, 300)), members)
    found = Membership("likelihood ratio", noise.each_in_turn(), members, drawn=True)
    assert abs(found.auc - 0.5) < 0.05
    assert found.epsilon(1e-5) == 0
    for run in range(6):
        others = np.arange(6) != run
        alone = Shadows(noise.scores[others], members[others]).attack(noise.scores[run])
        np.testing.assert_array_equal(noise.each_in_turn()[run], alone)


def test_a_run_is_not_attacked_by_itself():
    known = shadows(6, 10, 0)
    with pytest.raises(BadInput, match="a shadow run has exactly these, so that it is the attacked one; leave it out"):
        known.attack(known.scores[3])


def ridge(x, y):
    """Ridge regression on labels of ±1 by its normal equations: the margins of all records after training on some."""

    def margins(rows):
        gram = x[rows].T @ x[rows] + np.eye(x.shape[1])
        return y * (x @ np.linalg.solve(gram, x[rows].T @ y[rows]))

    return margins


def test_it_finds_members_whom_a_threshold_misses():
    """Records of a wrong label are so hard that the model is wrong about them even where it was trained on them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 40))
    y = np.sign(x @ rng.normal(size=40)) * np.where(rng.random(300) < 0.2, -1, 1)
    members = drawn(300, 24, 1)
    known = Shadows.trained(ridge(x, y), members)
    ratio = Membership("likelihood ratio", known.each_in_turn(), members)
    plain = Membership("margin", known.scores, members)
    offline = Membership("offline ratio", known.each_in_turn(online=False), members)
    assert ratio.auc > offline.auc > plain.auc + 0.02
    assert ratio.auc > plain.auc + 0.05
    assert ratio.at(0.01).tpr > 5 * plain.at(0.01).tpr
    assert ratio.at(0.01).tpr_interval()[0] > 0.01


def test_scores_that_never_vary_make_no_infinite_ratio():
    members = drawn(20, 9, 3)
    found = Shadows(members.astype(float), members).attack(np.ones(20))
    np.testing.assert_allclose(found, 0.5 / LEAST_STD**2)


@pytest.mark.parametrize(
    ("members", "online", "sentence"),
    [
        ([[1, 0], [0, 1]], True, "runs = 2: to tell how far scores vary, some record must be in two of them"),
        ([[0, 0], [0, 0]], True, "or attack offline where none has the records"),
        ([[1, 0], [1, 0], [1, 0]], True, "no record is in one shadow run and out of another; draw them anew"),
        ([[1, 0], [1, 0], [1, 1]], False, "members: record 0 is in every shadow run, so that nothing is known of runs"),
    ],
)
def test_too_few_runs_are_refused(members, online, sentence):
    members = np.array(members, bool)
    with pytest.raises(BadInput, match=sentence):
        Shadows(np.random.default_rng(0).normal(size=members.shape), members).attack(np.zeros(2), online=online)


def test_offline_needs_no_run_that_had_a_record():
    rng, nobody = np.random.default_rng(0), np.zeros((50, 3), bool)
    scores = rng.normal(size=(50, 3))
    found = Shadows(scores, nobody).attack([0.0, 1.0, 3.0], online=False)
    np.testing.assert_allclose(found, -norm.logsf(([0, 1, 3] - scores.mean(0)) / scores.std(0, ddof=1)))


@pytest.mark.parametrize(
    ("scores", "target", "sentence"),
    [
        (np.zeros((3, 2)), np.zeros(2), r"scores = numbers of shape \(3, 2\).*of shape \(4, 2\)"),
        (np.full((4, 2), np.nan), np.zeros(2), "all of them finite; check what trains them"),
        (np.zeros((4, 2)), np.zeros(3), "there must be one for each of the 2 records"),
        (np.zeros((4, 2)), np.array([0, np.inf]), "records, all of them finite"),
    ],
)
def test_scores_that_do_not_fit_are_refused(scores, target, sentence):
    with pytest.raises(BadInput, match=sentence):
        Shadows(scores, drawn(2, 4, 0)).attack(target)


def test_runs_that_help_to_attack_each_other_do_not_lift_each_others_chance():
    """Nothing is learned here. All runs taken as one said "by chance with 1 %" in 6 of 100 cases."""
    sure = 0
    for seed in range(120):
        rng = np.random.default_rng((seed, 16))
        members = rng.random((16, 60)) < 0.5
        noise = Shadows(rng.normal(size=(16, 60)) + rng.normal(size=60), members)
        sure += Membership("likelihood ratio", noise.each_in_turn(), members, drawn=True).chance < 0.01
    assert sure <= 3
