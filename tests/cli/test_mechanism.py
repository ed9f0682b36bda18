"""`dpnlp account mechanism ...`: what to add, what comes out, the attacker's bound."""

import json
import math
import shlex

import pytest

from dpnlp.cli.main import main
from dpnlp.guarantee import Guarantee
from dpnlp.mechanisms import analytic_sigma


@pytest.fixture
def mechanism(capsys):
    def run(line):
        code = main(["account", "mechanism", *shlex.split(line)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.mark.parametrize("flags", ["--theta 0.75", "--gamma 0.25", f"--epsilon {math.log(3)}"])
def test_fair_coins(mechanism, flags):
    facts = json.loads(mechanism(f"randomized-response {flags} --json")[1])
    assert facts["epsilon"] == pytest.approx(1.0986, abs=1e-4)
    assert facts["theta"] == pytest.approx(0.75)
    assert facts["attack_success_at_even_odds"] == pytest.approx(0.75)
    assert facts["guarantee"]["trust"] == "local"


def test_a_poll(mechanism):
    facts = json.loads(mechanism("randomized-response --theta 0.75 --people 1000 --hits 420 --json")[1])
    assert facts["estimated_true_share"] == pytest.approx((0.42 - 0.25) / 0.5)
    assert facts["confidence_interval_95_low"] < 0.34 < facts["confidence_interval_95_high"]


def test_laplace(mechanism):
    facts = json.loads(mechanism("laplace --sensitivity 2 --epsilon 0.5 --value 100 --json")[1])
    assert facts["scale"] == 4
    assert facts["standard_deviation"] == pytest.approx(4 * math.sqrt(2))
    assert abs(facts["released"] - 100) < 400
    assert Guarantee.parse(facts["signature"]).epsilon == 0.5


def test_gaussian_both_ways(mechanism):
    facts = json.loads(mechanism("gaussian --sensitivity 1 --epsilon 2 --delta 1e-5 --json")[1])
    assert facts["sigma"] == pytest.approx(analytic_sigma(2, 1e-5, 1))
    back = json.loads(mechanism(f"gaussian --sensitivity 1 --sigma {facts['sigma']} --delta 1e-5 --json")[1])
    assert back["epsilon"] == pytest.approx(2)


def test_exponential(mechanism):
    facts = json.loads(mechanism("exponential --sensitivity 1 --epsilon 2 --scores 3 2 0 --json")[1])
    weights = [math.exp(score) for score in (3, 2, 0)]
    assert facts["probabilities"] == pytest.approx([weight / sum(weights) for weight in weights])
    assert facts["chosen_by_exponential"] in (0, 1, 2)
    assert facts["chosen_by_noisy_max"] in (0, 1, 2)


@pytest.mark.parametrize(
    "line",
    [
        "randomized-response --epsilon 1 --categories 5",
        "laplace --sensitivity 1 --epsilon 1 --value 3",
        "gaussian --sensitivity 1 --epsilon 0.5 --delta 1e-5 --calibration classical",
        "exponential --sensitivity 1 --epsilon 1 --scores 1 2",
    ],
)
def test_the_tables_carry_statement_and_signature(mechanism, line):
    code, out, err = mechanism(line)
    assert (code, err) == (0, "")
    assert "What is promised" in out
    assert "attack success at even odds" in out
    assert Guarantee.parse(out.strip().splitlines()[-1])


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "laplace --epsilon 1",
            "--sensitivity is not given: The ℓ1 sensitivity: how far one record can move the answer.",
        ),
        (
            "gaussian --epsilon 1 --delta 1e-5",
            "--sensitivity is not given: The ℓ2 sensitivity: how far one record can move the answer.",
        ),
        (
            "exponential --epsilon 1",
            "--sensitivity is not given: How far one record can move a candidate's score.",
        ),
        ("laplace --sensitivity 0 --epsilon 1", "--sensitivity = 0: it must be a number above 0 and at most 1e9"),
        (
            "laplace --sensitivity nan --epsilon 1",
            "--sensitivity = nan: it must be a number above 0 and at most 1e9; nan is not one.",
        ),
        ("laplace --sensitivity 1 --epsilon -1", "--epsilon = -1: it must be a number above 0 and at most 1e6."),
        ("gaussian --sensitivity 1 --epsilon 1 --delta 2", "--delta = 2: it must be a number above 0 and below 1;"),
        (
            "gaussian --sensitivity 1 --epsilon 3 --delta 1e-5 --calibration classical",
            "--epsilon = 3.0: the classical formula is proved for ε < 1 only; use the analytic one.",
        ),
        (
            "gaussian --sensitivity 1 --delta 1e-5",
            "--epsilon, --sigma: exactly one of them must be given; the other is computed.",
        ),
        (
            "randomized-response",
            "--epsilon, --theta, --gamma: exactly one must be given, not none.",
        ),
        (
            "randomized-response --theta 0.75 --epsilon 1",
            "--epsilon, --theta, --gamma: exactly one must be given, not --epsilon and --theta.",
        ),
        ("randomized-response --theta 0.4", "--theta = 0.4: it must lie strictly between 0.5, pure chance, and 1"),
        ("randomized-response --epsilon 1 --people 10 --hits 11", "--hits = 11: it must not exceed the 10 people."),
        ("laplac --epsilon 1", "account mechanism laplac: unknown command; the nearest known one is "),
    ],
)
def test_bad_input(mechanism, line, sentence):
    code, out, err = mechanism(line)
    assert (code, out) == (2, "")
    assert err.startswith(f"dpnlp: {sentence}")
    assert err.count("\n") == 1
