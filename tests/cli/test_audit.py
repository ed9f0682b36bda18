"""`dpnlp audit mechanism`: verdicts, exit codes, and what is said of them."""

import json

import numpy as np
import pytest

from dpnlp.rewriting.folders import describe

from ..rewriting.test_adept import opposite
from .commands import run_in

BROKEN = """
import random

def noisy(count, seed):
    draws = random.Random(seed)
    return round(count + draws.expovariate(2) - draws.expovariate(2), 6)
"""
"""Laplace noise of scale ½, which is ε = 2 for a count."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    (folder / "clinic_counts.py").write_text(BROKEN, encoding="utf-8")
    (folder / "vectors.txt").write_text("ant 0.0 1.0\nbee 1.0 0.0\ncat 3.0 3.0\n", encoding="utf-8")
    assert run_in(folder, "pretrain --method words --output words --vectors vectors.txt")[0] == 0
    (folder / "adept").mkdir()
    from dpnlp.models.pretrained import save_autoencoder

    save_autoencoder(opposite(1), folder / "adept" / "model")
    describe(folder / "adept", "adept")
    return folder


OURS = {
    "randomized-response": "--epsilon 1 --categories 3",
    "subset-response": "--epsilon 1 --candidates 10 --preferred 3",
    "laplace": "--sensitivity 2 --epsilon 1",
    "gaussian": "--sensitivity 2 --epsilon 1 --delta 0.02 --entries 3",
    "metric": "--diameter 3 --epsilon 1 --entries 2",
    "exponential": "--sensitivity 1 --epsilon 1 --trials 3000",
}


@pytest.mark.parametrize("name", OURS)
def test_ours_are_consistent_with_what_they_claim_and_not_with_much_less(dpnlp, name):
    line = f"audit mechanism {name} {OURS[name]} --seed 1"
    code, out, err = dpnlp(line)
    assert (code, err) == (0, "")
    assert "consistent" in out
    assert "This is no proof of the claim" in out
    code, out, err = dpnlp(f"{line} --claimed-epsilon 0.1 --json")
    assert (code, err) == (3, "")
    entry = json.loads(out)
    assert entry["verdict"] == "violated"
    assert entry["epsilon"] == 0.1 < entry["epsilon_lower_bound"] < 1
    assert entry["delta"] == (0.02 if name == "gaussian" else 0)


def test_noisy_max_is_another_choice(dpnlp):
    line = "audit mechanism exponential --sensitivity 1 --epsilon 6 --others 2 --trials 1000 --seed 2 --json"
    first, second = (json.loads(dpnlp(f"{line} {flag}")[1])["findings"] for flag in ("", "--noisy-max"))
    assert first != second


def test_a_verdict_in_words(dpnlp):
    code, out, _ = dpnlp("audit mechanism laplace --sensitivity 1 --epsilon 2 --claimed-epsilon 1 --seed 3")
    assert code == 3
    assert "claimed         ε = 1 at δ = 0" in out
    assert "up to ε = 6.401, by 10,000 outputs of each input" in out
    assert "Hits among 5,000 outputs of each input" in out
    assert "at most 0.1 %." in " ".join(out.split())


def test_a_function_of_the_user(dpnlp):
    line = "audit mechanism --python clinic_counts:noisy --first 7 --second 8 --seed 4 --trials 4000 --json"
    code, out, _ = dpnlp(f"{line} --epsilon 1")
    assert (code, json.loads(out)["verdict"]) == (3, "violated")
    assert 1.4 < json.loads(out)["epsilon_lower_bound"] < 2
    assert dpnlp(f"{line} --epsilon 1")[1] == out
    assert dpnlp(f"{line} --epsilon 2")[0] == 0
    assert dpnlp(f"{line} --epsilon 1 --delta 0.4")[0] == 0


def test_a_command_of_the_user(dpnlp):
    line = "audit mechanism --command cat --batch 500 --first yes --second no --trials 1000"
    code, out, _ = dpnlp(f"{line} --epsilon 1")
    assert code == 3
    assert "score by" in out
    code, out, _ = dpnlp(f"{line} --epsilon 9")
    assert code == 0
    assert "this audit could not have found the claim broken; it takes 134,423 or more." in " ".join(out.split())


def test_a_rewriter(dpnlp):
    """Its own promise is tested: for a word at the diameter, and for latents."""
    line = "audit mechanism --rewriter words --first ant --second cat --epsilon 1 --delta 0.3 --trials 4000 --json"
    code, out, err = dpnlp(line)
    assert code == 0
    assert (json.loads(out)["epsilon"], json.loads(out)["delta"]) == (pytest.approx(1.0), 0.0)
    assert "the promise is for one word: give two texts that differ in no more than that." in err
    line = "audit mechanism --rewriter adept --first yes --second no --epsilon 1 --delta 0.02 --trials 4000 --seed 6"
    code, out, err = dpnlp(f"{line} --latents --json")
    assert (code, err) == (0, "")
    entry = json.loads(out)
    assert entry["delta"] == 0.02
    assert entry["epsilon_lower_bound"] > 0.2
    assert "words" not in {finding["score"] for finding in entry["findings"]}


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--first a --second b --epsilon 1", "--python, --command, --rewriter: exactly one must be given, not none."),
        (
            "--first a --second b --epsilon 1 --python a:b --command cat",
            "--python, --command, --rewriter: exactly one must be given, not --python and --command.",
        ),
        ("--command cat --second b --epsilon 1", "--first is not given: One input: JSON, or else text"),
        ("--command cat --first a --second b", "--epsilon is not given: The ε that is claimed."),
        (
            "--command cat --first a --second b --epsilon inf",
            "--epsilon = inf: it must be a number above 0 and at most 1e6",
        ),
        ("--command cat --first a --second b --epsilon 1 --trials 3", "--trials = 3: it must be a whole number of"),
        ("--command cat --first a --second b --epsilon 1 --seed 3", "--seed: a command draws its own noise"),
        ("--command cat --first a --second b --epsilon 1 --latents", "--latents: only a rewriter has them"),
        ("--command 'exit 5' --first a --second b --epsilon 1", "--command = exit 5: it ended with exit code 5"),
        ("--python no:no --first a --second b --epsilon 1", "--python = no:no: there is no such function"),
        ("--rewriter words --first a --second b --epsilon 1 --latents", "--latents = true: this rewriter has none"),
        ("--rewriter words --first a --second b --epsilon 1 --batch 2", "--batch: a rewriter chooses by itself"),
        ("--rewriter no --first a --second b --epsilon 1", "no: there is no rewriter in it"),
        ("laplac --epsilon 1", "audit mechanism laplac: no command and no file; the nearest command is"),
        ("laplace --sensitivity 0 --epsilon 1", "--sensitivity = 0: it must be a number above 0 and at most 1e9"),
    ],
)
def test_bad_input(dpnlp, line, sentence):
    code, out, err = dpnlp(f"audit mechanism {line}")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"dpnlp: {sentence}")


def test_help_leads_from_runs_to_mechanisms(dpnlp):
    code, out, _ = dpnlp("audit --help")
    assert code == 0
    assert out.startswith("usage: dpnlp audit FOLDER [FLAGS]")
    assert "more commands:\n  mechanism " in out
    code, out, _ = dpnlp("audit mechanism --help")
    assert code == 0
    assert "The exit code is 3 where the claim is violated" in " ".join(out.split())
    assert "randomized-response" in out


def test_vectors_are_drawn_in_parts_and_put_together(dpnlp):
    """More than one part of 1,024, for either kind of outputs."""
    entry = json.loads(
        dpnlp(
            "audit mechanism --command cat --batch 700 --first '[1, 2]' --second '[1, 3]' --epsilon 1 "
            "--trials 3000 --json"
        )[1]
    )
    assert entry["trials"] == 3000
    assert [finding["hits"] for finding in entry["findings"]] == [1500, 1500]
    assert np.isfinite(entry["epsilon_lower_bound"])
