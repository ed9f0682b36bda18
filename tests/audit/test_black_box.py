"""Verdicts on claims: no more false alarms than were allowed, no defect overlooked, and no more said than was shown."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax_privacy.auditing import CanaryScoreAuditor, Explicit
from scipy.stats import binom

from dpnlp.audit.black_box import audit, ceiling, epsilon_lower_bound, judged, one_by_one, trials_needed
from dpnlp.checks import BadInput
from dpnlp.mechanisms import Gaussian, Laplace, analytic_epsilon
from dpnlp.mechanisms.randomness import FixedSeed


def on_grid(numbers):
    """Rounded to 2^−20, as they must be: of a sum in floating point the last digits would tell what was added."""
    return np.rint(np.asarray(numbers) * 2**20) / 2**20


def by_jax_privacy(hits, others, trials, delta, chance):
    """Their bound on the same counts; it is never below 0."""
    scores = [np.arange(trials) < count for count in (hits, others)]
    auditor = CanaryScoreAuditor(*(each.astype(float) for each in scores))
    return auditor.epsilon_clopper_pearson(chance, delta, threshold_strategy=Explicit(0.5))


@given(
    st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.integers(0, n), st.just(n))),
    st.sampled_from([0.0, 1e-5, 0.1]),
    st.sampled_from([0.2, 1e-3, 1e-7]),
)
def test_the_bound_is_that_of_jax_privacy(counts, delta, chance):
    ours = max(0.0, float(epsilon_lower_bound(*counts, delta, chance)))
    assert ours == pytest.approx(by_jax_privacy(*counts, delta, chance), abs=1e-9)


@pytest.mark.parametrize("delta", [0.0, 0.05])
@pytest.mark.parametrize("confidence", [0.9, 0.999])
def test_the_two_directions_share_the_chance_of_a_false_alarm(delta, confidence):
    """Each is tested with half of it, which makes up the verdict, on half of the outputs."""
    ones, others = np.random.default_rng(0).normal(size=(2, 4001))
    found = judged(on_grid(ones + 1), on_grid(others), 0.1, delta, confidence=confidence)
    assert [finding.of for finding in found.findings] == ["first", "second"]
    for finding in found.findings:
        assert finding.trials == 2001
        counts = finding.hits, finding.other_hits, finding.trials
        assert finding.bound == pytest.approx(by_jax_privacy(*counts, delta, (1 - confidence) / 2))
    assert found.bound == max(finding.bound for finding in found.findings) > 0.5


# False alarms


def alarms(draw, epsilon, delta, confidence, audits=2000, trials=200, **how):
    ones, others = draw(audits, trials)
    return sum(
        judged(one, other, epsilon, delta, confidence=confidence, **how).violated
        for one, other in zip(ones, others, strict=True)
    )


def laplace(audits, trials):
    """Exactly ε = 1, by an event that half of the outputs hit."""
    noise = np.random.default_rng(1).laplace(size=(2, audits, trials))
    return on_grid(noise[0] + 1), on_grid(noise[1])


def response(audits, trials):
    """Exactly ε = 1, by values that come again; one of four answers."""
    rng, theta = np.random.default_rng(2), math.e / (math.e + 3)
    kept, lie = rng.random((2, audits, trials)) < theta, rng.integers(1, 4, (2, audits, trials))
    truth = np.array([0, 1])[:, None, None]
    return np.where(kept, truth, (truth + lie) % 4)


def gaussian(audits, trials):
    """Exactly ε = 1 at δ = 0.1."""
    sigma = Gaussian(1.0, 1.0, 0.1).sigma
    noise = np.random.default_rng(3).normal(scale=sigma, size=(2, audits, trials))
    return on_grid(noise[0] + 1), on_grid(noise[1])


@pytest.mark.parametrize(
    ("draw", "epsilon", "delta"), [(laplace, 1.0, 0.0), (response, 1.0, 0.0), (gaussian, 1.0, 0.1)]
)
@pytest.mark.parametrize("confidence", [0.999, 0.8])
def test_exact_mechanisms_raise_no_more_alarms_than_is_allowed(draw, epsilon, delta, confidence):
    """More than that would come about by chance less than once in a million such tests."""
    audits = 300 if confidence == 0.8 else 2000 if draw is laplace else 1000
    allowed = binom.isf(1e-6, audits, 1 - confidence)
    assert alarms(draw, epsilon, delta, confidence, audits) <= allowed


def test_outputs_that_are_all_different_raise_no_alarm_by_chance():
    """Two inputs that nobody can tell apart, ε = 0: what looked different on one half is not on the other."""
    rng = np.random.default_rng(4)

    def draw(audits, trials):
        return rng.integers(0, 3 * trials, (2, audits, trials))

    assert alarms(draw, 0.0, 0.0, 0.999, audits=100, trials=1000) == 0
    words = [[f"{a} {b}" for a, b in pairwise(row)] for row in rng.integers(0, 300, (20, 1001))]
    assert not any(judged(*pair, 0.0).violated for pair in zip(words[::2], words[1::2], strict=True))


def test_the_bound_stays_below_the_curve_of_the_gaussian_mechanism():
    """ε(δ) of a σ is known exactly, and the bound comes up to it and not beyond."""
    sigma = 0.8
    rng = np.random.default_rng(5)
    for delta in (0.001, 0.01, 0.1, 0.3):
        exact = analytic_epsilon(sigma, delta, 1.0)
        ones, others = rng.normal(scale=sigma, size=(2, 10, 20_000))
        bounds = [
            judged(on_grid(one + 1), on_grid(other), 0.0, delta).bound for one, other in zip(ones, others, strict=True)
        ]
        assert 0.6 * exact < max(bounds) <= exact


# Violations


def test_a_violation_in_one_direction_is_found_whichever_input_comes_first():
    """Once in a hundred the one input says what the other never does: P'(no) = 0.01 > e^ε · 0."""
    rng = np.random.default_rng(6)
    never = ["yes"] * 20_000
    seldom = ["no" if coin < 0.01 else "yes" for coin in rng.random(20_000)]
    forth, back = judged(seldom, never, 1.0), judged(never, seldom, 1.0)
    assert forth.violated
    assert back.violated
    assert forth.findings[0].bound > 1 > forth.findings[1].bound
    assert back.findings[1].bound > 1 > back.findings[0].bound
    assert not judged(seldom, never, 1.0, 0.012).violated  # within δ


def test_outputs_of_another_spread_are_told_apart():
    """Neither mean differs, and no direction: the middle of the numbers speaks for the one, both ends for the other."""
    rng = np.random.default_rng(7)
    for shape in ((20_000,), (20_000, 3)):
        assert judged(on_grid(rng.normal(size=shape)), on_grid(rng.normal(scale=3, size=shape)), 0.5).violated
        assert not judged(on_grid(rng.normal(size=shape)), on_grid(rng.normal(size=shape)), 0.1).violated


def test_heavy_tails_hide_nothing():
    ones, others = np.random.default_rng(8).standard_cauchy((2, 20_000))
    assert judged(on_grid(ones + 3), on_grid(others), 0.5).violated
    assert not judged(on_grid(ones), on_grid(others), 0.1).violated


def test_the_last_digits_of_a_sum_in_floating_point_give_the_answer_away():
    """Right in real numbers, ε = 1, and wrong in those of a computer (Mironov 2012). Ours is on a grid."""
    ones, others = np.random.default_rng(14).laplace(size=(2, 20_000))
    found = judged(ones + 1, others, 1.0)
    assert found.bound > 5
    assert "last digit" in {finding.score for finding in found.findings}
    assert not judged(on_grid(ones + 1), on_grid(others), 1.0).violated
    ours = Laplace(1.0, 1.0, FixedSeed(15))
    assert not audit(lambda answer, count: ours.release(np.full(count, answer)), 1.0, 0.0, 1.0, trials=20_000).violated


@pytest.mark.parametrize("sign", [math.nan, math.inf, 1e308, -0.0, None, [1.0, 2.0], "x"])
def test_what_only_one_input_lets_come_out_is_seen(sign):
    """Not a number, infinite, a zero with a sign, nothing, two numbers, a text: one time in ten, among many zeros."""
    rng = np.random.default_rng(9)
    odd = [sign if coin < 0.1 else 0.0 for coin in rng.random(4000)]
    for pair in ((odd, [0.0] * 4000), ([0.0] * 4000, odd)):
        assert judged(*pair, 1.0).violated
    unlike = [sign if coin < 0.1 else float(x) for coin, x in zip(rng.random(4000), rng.normal(size=4000), strict=True)]
    alike = [float(x) for x in rng.normal(size=4000)]
    assert judged(unlike, alike, 1.0).violated


def test_one_entry_that_is_no_number_is_seen_among_others_that_are():
    """Rows of whole numbers, of which 0 is the most common one; few rows come again, and none of the odd ones often."""
    rng = np.random.default_rng(16)
    ones, others = np.rint(rng.normal(scale=2, size=(2, 10_000, 8)))
    ones[rng.random(10_000) < 0.1, 3] = math.nan
    assert judged(ones, others, 3.0).violated
    assert judged(others, ones, 3.0).violated


def test_words_and_the_length_of_texts_tell_them_apart():
    """All texts are different, so that as a whole none comes again."""
    rng = np.random.default_rng(10)

    def texts(word, length):
        rows = rng.integers(0, 10**9, (4000, length))
        return [
            " ".join([*map(str, row), word if coin < 0.4 else "so"])
            for row, coin in zip(rows, rng.random(4000), strict=True)
        ]

    assert not judged(texts("ja", 3), texts("ja", 3), 0.3).violated
    assert judged(texts("ja", 3), texts("nein", 3), 1.0).violated
    assert judged(texts("ja", 3), texts("ja", 4), 1.0).violated


def test_a_score_of_ones_own_takes_the_place_of_those_that_are_learned():
    """What is left of a number that is divided by 3 tells all, and nothing else does; no number comes again."""
    rng = np.random.default_rng(11)
    ones, others = 3 * rng.integers(0, 2**50, (2, 4000)) + np.array([[1], [2]])
    assert not judged(ones, others, 1.0).violated
    found = judged(ones, others, 1.0, score=lambda outputs: np.where(np.asarray(outputs) % 3 == 1, math.inf, -math.inf))
    assert found.violated
    assert found.findings[0].score == "the given function"
    assert found.bound == found.ceiling


def test_a_function_that_gives_one_output_is_asked_again_and_again():
    rng = np.random.default_rng(12)
    found = audit(one_by_one(lambda mean: rng.normal(mean)), 3.0, 0.0, 1.0, trials=2000)
    assert found.violated
    assert found.trials == 2000


# What could be shown, and what is said


@pytest.mark.parametrize(("trials", "delta"), [(20, 0.0), (10_000, 0.0), (10_001, 0.01), (10**6, 1e-6)])
def test_the_ceiling_is_what_perfect_evidence_shows(trials, delta):
    found = judged([0] * trials, [1] * trials, 0.5, delta) if trials < 10**6 else None
    most = ceiling(trials, delta, 0.999)
    assert found is None or found.bound == found.ceiling == most
    tested = math.ceil(trials / 2)
    low = 0.00025 ** (1 / tested)
    assert most == pytest.approx(max(0.0, math.log((low - delta) / (1 - low))))
    if trials > 1000:
        assert most == pytest.approx(math.log(trials / (2 * math.log(4 / 0.001))), abs=0.02)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (1.0, 0.0), (5.0, 1e-5), (9.0, 0.01)])
def test_fewer_trials_than_are_needed_could_not_show_it(epsilon, delta):
    needed = trials_needed(epsilon, delta, 0.999)
    assert ceiling(needed, delta, 0.999) > epsilon
    assert needed == 20 or ceiling(needed - 1, delta, 0.999) <= epsilon


def test_what_is_said_of_a_consistent_claim():
    found = judged(*np.random.default_rng(13).normal(size=(2, 10_000)), 1.0, 1e-5)
    assert (found.violated, found.verdict) == (False, "consistent")
    said = found.statement()
    assert said.startswith("Consistent: ε = 1 at δ = 1e-05 is claimed, and what was drawn shows that ε is at least ")
    assert (
        "with a confidence of 99.9 %. This is no proof of the claim: other inputs, other events or more outputs" in said
    )
    assert said.endswith("10,000 outputs of each input can show no more than ε = 6.401.")
    assert found.limits() in said


def test_what_is_said_of_an_audit_without_power():
    """At ε = 9, ten thousand outputs prove nothing, whatever they are."""
    found = judged([0] * 10_000, [1] * 10_000, 9.0)
    assert not found.violated
    needed = trials_needed(9.0, 0.0, 0.999)
    assert found.statement().endswith(
        f"ε = 6.401, so that this audit could not have found the claim broken; it takes {needed:,} or more."
    )
    assert judged([0] * needed, [1] * needed, 9.0).violated


def test_what_is_said_of_an_epsilon_that_no_audit_reaches():
    """Rewriters have been published at ε = 500."""
    assert (
        judged([0] * 1000, [1] * 1000, 500.0)
        .limits()
        .endswith("so that this audit could not have found the claim broken; it takes more than can ever be drawn.")
    )


def test_what_is_said_of_a_violated_claim():
    found = judged(["yes"] * 1000, ["no"] * 1000, 2.0)
    assert found.statement() == (
        "Violated: ε = 2 at δ = 0 is claimed, but ε is at least 4.091, with a confidence of 99.9 %. If the claim held "
        "for these two inputs, and each output were drawn anew, this verdict would come up with a probability "
        "of at most 0.1 %."
    )
    entry = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert (entry["verdict"], entry["epsilon"], entry["trials"]) == ("violated", 2.0, 1000)
    assert entry["epsilon_lower_bound"] == entry["largest_epsilon_that_could_be_shown"] == found.ceiling
    assert entry["not_proved"] == found.limits()
    assert found.limits().startswith("ε may be larger still: other inputs, other events or more outputs may show it.")
    assert [finding["hits"] for finding in entry["findings"]] == [500, 500]
    assert (
        found.findings[1]
        .statement()
        .endswith("came about in 500 of 500 outputs of the second input, and in 0 of the first.")
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"epsilon": math.inf},
            "epsilon = inf: it must be a finite number of at least 0; an infinite one claims nothing.",
        ),
        ({"epsilon": -1.0}, "epsilon = -1.0: it must be a finite number of at least 0"),
        ({"delta": 1.0}, "delta = 1.0: it must be below 1; at 1 nothing is claimed."),
        ({"delta": -0.1}, "delta = -0.1: it must be a finite number of at least 0."),
        ({"trials": 19}, "trials = 19: it must be a whole number of at least 20."),
        ({"confidence": 1.0}, "confidence = 1.0: it must lie strictly between 0 and 1"),
        (
            {"release": lambda given, count: [0]},
            "outputs = 1 and 1: there must be 100 of each input, as was asked for.",
        ),
        ({"score": lambda outputs: [1.0]}, "score = numbers of shape (1,): there must be 25, one for each output"),
        ({"score": lambda outputs: [math.nan] * len(outputs)}, "score = numbers of shape (25,): there must be 25"),
    ],
)
def test_refusals(changes, sentence):
    given = {"release": lambda given, count: [given] * count, "first": 0, "second": 1, "epsilon": 1.0, "trials": 100}
    with pytest.raises(BadInput) as refusal:
        audit(**given | changes)
    assert str(refusal.value).startswith(sentence)


def test_outputs_of_different_number_are_refused():
    with pytest.raises(BadInput, match="outputs = 30 and 31: there must be as many of the first and of the second"):
        judged([0] * 30, [0] * 31, 1.0)
