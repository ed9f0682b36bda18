"""`dpnlp train`, `evaluate` and `generate`, run as a person runs them, on a small model and made-up words."""

import json
import os
import shlex
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from dpnlp.accounting import pld
from dpnlp.accounting.ledger import Ledger
from dpnlp.cli.main import main
from dpnlp.data.pairs import Pair
from dpnlp.events import Composed, Gaussian, NonPrivate, PoissonSampled, Repeated
from dpnlp.guarantee import Adjacency, Exposure, Guarantee, NoiseSource, Unit
from dpnlp.runs.provenance import Door, Provenance

from ..tasks.readers import encoder
from ..tasks.translators import saved, sentences, write_pairs
from .interrupted import interrupted

SMALL = "--data.source de --data.target en --data.longest 16 --learning.lot-size 8 --learning.physical-batch 8"
SMALL += " --learning.steps 3 --scoring.beams 1 --privacy.delta 1e-3 --privacy.seed 0"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a small model, 40 private pairs, and 6 to test on."""
    home = tmp_path_factory.mktemp("home")
    saved(home / "start")
    write_pairs(home / "train.jsonl", sentences(40, seed=1))
    write_pairs(home / "test.jsonl", sentences(6, seed=2))
    return home


@pytest.fixture(scope="module")
def dpnlp(home):
    """Runs a command in that folder; gives its exit code, stdout and stderr."""

    def run(line, capsys):
        before = Path.cwd()
        os.chdir(home)
        try:
            code = main(shlex.split(line))
        finally:
            os.chdir(before)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def command(name, flags="", start="start"):
    files = "--data.train train.jsonl --data.test test.jsonl --data.cache cache"
    return f"train --name {name} --model.start {start} {files} {SMALL} {flags}"


@pytest.fixture(scope="module")
def trained(home, dpnlp):
    """A private run that is finished."""

    class Quiet:
        def readouterr(self):
            return type("", (), {"out": "", "err": ""})

    assert dpnlp(command("first", "--privacy.epsilon 4"), Quiet())[0] == 0
    return home / "runs" / "first"


def privacy(run):
    return json.loads((run / "privacy.json").read_text())


def test_a_private_run_leaves_the_model_the_guarantee_scores_translations_and_a_page(trained):
    assert sorted(path.name for path in trained.iterdir()) == [
        "config.yaml",
        "metrics.jsonl",
        "model",
        "predictions",
        "privacy.json",
        "report.html",
    ]
    promised = Guarantee.from_json(privacy(trained)["guarantee"])
    assert promised.epsilon <= 4
    assert (promised.unit, promised.noise_source) == (Unit.EXAMPLE, NoiseSource.FIXED_SEED)
    rows = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row["split"]) for row in rows] == [(0, "test"), (3, "test")]
    lines = [json.loads(line) for line in (trained / "predictions" / "test.jsonl").read_text().splitlines()]
    assert [line["reference"] for line in lines] == [pair.target for pair in sentences(6, seed=2)]
    assert all({"source", "reference", "hypothesis", "before"} == line.keys() for line in lines)


def test_the_guarantee_is_that_of_poisson_lots_of_all_records_and_the_noise_that_was_used(trained):
    entry = privacy(trained)
    noise = entry["plan"]["noise_multiplier"]
    event = Repeated(PoissonSampled(8 / 40, Gaussian(noise)), 3)
    assert entry["guarantee"]["epsilon"] == pytest.approx(pld.epsilon(event, 1e-3, Adjacency.ADD_REMOVE), abs=1e-3)
    assert entry["origins"][0]["event"]["of"]["q"] == 8 / 40


def test_law_9_no_file_that_a_private_run_writes_holds_a_sentence_of_the_training_set(trained):
    texts = [text for pair in sentences(40, seed=1) for text in pair[:2]]
    known = {text for pair in sentences(6, seed=2) for text in pair[:2]}
    for path in (path for path in trained.rglob("*") if path.is_file()):
        written = path.read_bytes()
        for text in set(texts) - known:
            assert text.encode() not in written, path
            assert text.replace(" ", "▁").encode() not in written, path


def test_the_model_opens_in_transformers(trained):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(trained / "model")
    ours = load_file(trained / "model" / "model.safetensors")
    np.testing.assert_array_equal(model.get_input_embeddings().weight.detach().numpy(), ours["model.shared.weight"])


def test_the_config_that_is_left_makes_the_same_run_again(trained, dpnlp, capsys):
    assert dpnlp("train runs/first/config.yaml --name again --privacy.ledger other.ledger", capsys)[0] == 0
    first, again = (load_file(trained.parent / name / "model" / "model.safetensors") for name in ("first", "again"))
    assert all(np.array_equal(first[name], again[name]) for name in first)


def test_a_run_goes_on_from_an_earlier_one_and_pays_for_both(trained, dpnlp, capsys):
    code, _, err = dpnlp(command("second", "--privacy.epsilon 3", start="runs/first"), capsys)
    assert code == 0
    assert "dpnlp train first was made at ε = " in err
    entry = privacy(trained.parent / "second")
    noises = [origin["event"]["of"]["of"]["noise_multiplier"] for origin in entry["origins"]]
    both = Composed(tuple(Repeated(PoissonSampled(0.2, Gaussian(noise)), 3) for noise in noises))
    assert entry["guarantee"]["epsilon"] == pytest.approx(pld.epsilon(both, 1e-3, Adjacency.ADD_REMOVE), abs=1e-3)
    assert entry["guarantee"]["mechanism"] == "composition(runs=2)"
    assert entry["origins"][0] == privacy(trained)["origins"][0]


def test_the_folder_of_the_model_itself_hides_nothing_of_the_run_that_made_it(trained, dpnlp, capsys):
    """Neither what it cost, nor that whoever knows its seed can take its noise off."""
    line = command("inside", "--privacy.epsilon 3", start="runs/first/model").replace("--privacy.seed 0", "")
    assert dpnlp(line, capsys)[0] == 0
    promised = Guarantee.from_json(privacy(trained.parent / "inside")["guarantee"])
    assert promised.epsilon > 4
    assert promised.noise_source is NoiseSource.FIXED_SEED


def test_a_public_start_costs_nothing_more_and_what_was_trained_privately_is_not_public(trained, dpnlp, capsys):
    flags = "--privacy.epsilon 3 --model.public-start"
    code, _, err = dpnlp(command("public", flags, start="runs/first"), capsys)
    assert (code, "dpnlp train first was made of private data" in err) == (2, True)
    assert not (trained.parent / "public").exists()
    long = zip(sentences(20, seed=8), sentences(20, seed=9), strict=True)  # Longer than any private text.
    pairs = [Pair(f"{a.source} {b.source} {a.source}", f"{a.target} {b.target} {a.target}", None) for a, b in long]
    write_pairs(trained.parent.parent / "open.jsonl", pairs)
    line = command("open", "--privacy.epsilon inf").replace("train.jsonl", "open.jsonl")
    assert dpnlp(line, capsys)[0] == 0
    assert dpnlp(command("public", flags, start="runs/open"), capsys)[0] == 0
    assert privacy(trained.parent / "public")["guarantee"]["epsilon"] <= 3
    assert dpnlp(command("paid", "--privacy.epsilon 3", start="runs/open"), capsys)[0] == 0
    assert privacy(trained.parent / "paid")["guarantee"]["epsilon"] == "inf"


def test_without_privacy_nothing_is_promised_and_that_is_entered(home, dpnlp, capsys):
    write_pairs(home / "public.jsonl", sentences(20, seed=3))
    line = command("baseline", "--privacy.epsilon inf").replace("train.jsonl", "public.jsonl")
    assert dpnlp(line, capsys)[0] == 0
    assert privacy(home / "runs" / "baseline")["guarantee"]["epsilon"] == "inf"
    (release,) = Ledger.beside(home / "public.jsonl").read().releases
    assert release.event == NonPrivate()


def test_owners_are_the_records_where_the_unit_is_a_user(home, dpnlp, capsys):
    line = command("users", "--privacy.unit user --data.owner who --learning.lot-size 4 --privacy.epsilon 4")
    assert dpnlp(line, capsys)[0] == 0
    entry = privacy(home / "runs" / "users")
    assert entry["guarantee"]["unit"] == "user"
    assert entry["plan"]["schedule"]["records"] == 8


def test_diagnostics_are_written_only_when_asked_for_and_the_statement_says_so(home, dpnlp, capsys):
    assert dpnlp(command("unsafe", "--privacy.diagnostics --privacy.epsilon 4"), capsys)[0] == 0
    assert Exposure.DIAGNOSTICS in Guarantee.from_json(privacy(home / "runs" / "unsafe")["guarantee"]).not_covered
    assert (home / "runs" / "unsafe" / "diagnostics.jsonl").read_text().count("\n") == 3


def test_diagnostics_are_a_release_without_privacy_and_refused_under_a_budget(home, dpnlp, capsys):
    write_pairs(home / "diagnosed.jsonl", sentences(20, seed=6))
    ledger = Ledger.beside(home / "diagnosed.jsonl")
    ledger.set_budget(9.0, 1e-3, Unit.EXAMPLE, Adjacency.ADD_REMOVE)
    line = command("diagnosed", "--privacy.diagnostics --privacy.epsilon 1").replace("train.jsonl", "diagnosed.jsonl")
    code, _, err = dpnlp(line, capsys)
    assert (code, "diagnostics): it was made without privacy" in " ".join(err.split())) == (2, True), err
    assert not (home / "runs" / "diagnosed").exists()
    assert not ledger.read().releases


def test_a_run_that_would_overspend_does_not_start_and_leaves_nothing(home, dpnlp, capsys):
    write_pairs(home / "spent.jsonl", sentences(20, seed=4))
    Ledger.beside(home / "spent.jsonl").set_budget(1.0, 1e-3, Unit.EXAMPLE, Adjacency.ADD_REMOVE)
    for epsilon in ("2", "inf"):
        line = command("over", f"--privacy.epsilon {epsilon}").replace("train.jsonl", "spent.jsonl")
        code, _, err = dpnlp(line, capsys)
        assert (code, err.count("\n")) == (2, 1 + (epsilon == "2") * err.count("note"))
        assert "the budget is 1.0" in err
        assert not (home / "runs" / "over").exists()


def test_a_model_for_bertscore_that_is_made_of_private_data_is_refused_before_anything_is_paid(home, dpnlp, capsys):
    encoder(home / "private-bert")
    Door().keep(home / "private-bert", Provenance(exposures=(Exposure.PRETRAINING,)))
    entries = len(Ledger.beside(home / "train.jsonl").read().releases)
    code, out, err = dpnlp(command("scored", "--scoring.bertscore private-bert"), capsys)
    assert (code, out) == (2, "")
    assert "scoring.bertscore = private-bert: it is made of private data" in err
    assert not (home / "runs" / "scored").exists()
    assert len(Ledger.beside(home / "train.jsonl").read().releases) == entries


def test_a_budget_on_one_of_two_aligned_files_binds_both_directions(home, dpnlp, capsys):
    for side, number in (("de", 0), ("en", 1)):
        (home / f"both.{side}").write_text("".join(f"{pair[number]}\n" for pair in sentences(20, seed=5)))
    Ledger.beside(home / "both.en").set_budget(1.0, 1e-3, Unit.EXAMPLE, Adjacency.ADD_REMOVE)
    for files in ("both.de both.en", "both.en both.de"):
        line = (
            f"train --name both --model.start start --data.train {files} --data.cache cache {SMALL} --privacy.epsilon 2"
        )
        code, _, err = dpnlp(line, capsys)
        assert code == 2
        assert "both.en.ledger" in err
        assert "the budget is 1.0" in err


REFUSALS = {
    "two runs with one name": ("--name first", "there is a run in runs/first already; choose another name"),
    "a lot larger than the corpus": (
        "--learning.lot-size 1000",
        "--learning.lot-size = 1000: it must not exceed the 40",
    ),
    "three files": ("--data.train b c", "it must be one file, or two that are aligned"),
    "an owner that is not there": ("--privacy.unit user", "name the column by --data.owner"),
    "a vocabulary of private texts": ("--model.start scratch", "would give them away"),
    "both lengths of a run": ("--learning.steps 0", "--learning.steps = 0: it must be a whole number"),
    "a misspelt pattern": ("--model.frozen encodre", "nothing in the model is named so"),
    "one language alone": ("--data.source-language de_DE", "give both of them, or neither"),
    "a corpus and files": ("--data.corpus bsd", "files are given too; give one of the two"),
    "nothing to go on with": ("--name nothing --resume", "there is no run in runs/nothing to go on with"),
    "a finished run": ("--name first --resume", "the run in runs/first is finished"),
    "an ε that the steps cannot meet": (
        "--privacy.epsilon 5 --privacy.noise-multiplier 0.5",
        "--privacy.epsilon = 5: 3 steps with noise of 0.5 cost",
    ),
    "a test on the training pairs": (
        "--data.validation train.jsonl",
        "data.validation: all its records are trained on, so that none is left; give others",
    ),
    "noise that no clip norm bounds": ("--privacy.clip-norm inf", "--privacy.clip-norm = inf"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_input_is_one_sentence_and_leaves_nothing(case, trained, dpnlp, capsys):
    flags, sentence = REFUSALS[case]
    before = sorted(path.name for path in trained.parent.iterdir())
    code, _, err = dpnlp(command("bad", flags), capsys)
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1
    assert sorted(path.name for path in trained.parent.iterdir()) == before


def test_lines_are_translated_in_order_and_empty_ones_stay_empty(trained, home, dpnlp, capsys):
    (home / "texts").write_text("ba be bi\n\ndo du\n")
    assert dpnlp("generate runs/first texts --output out --writing.beams 1", capsys)[0] == 0
    lines = (home / "out").read_text().split("\n")
    assert len(lines) == 4
    assert lines[1] == lines[3] == ""
    code, out, _ = dpnlp("generate runs/first texts --writing.beams 1", capsys)
    assert (code, out.split("\n")) == (0, lines)


def test_a_run_is_scored_on_its_own_test_texts_unless_others_are_given(trained, home, dpnlp, capsys):
    _, out, _ = dpnlp("evaluate runs/first --scoring.beams 1 --json --output lines.jsonl", capsys)
    last = json.loads((trained / "metrics.jsonl").read_text().splitlines()[-1])
    assert json.loads(out)["bleu"] == {"score": pytest.approx(last["bleu"]), "signature": last["bleu_signature"]}
    write_pairs(home / "others.jsonl", sentences(5, seed=3))
    _, other, _ = dpnlp("evaluate runs/first --scoring.beams 1 --data.test others.jsonl", capsys)
    assert "5 records" in other
    code, _, err = dpnlp("evaluate runs/first --scoring.beams 1 --data.test train.jsonl", capsys)
    assert code == 2
    assert "data.test: all its records are trained on" in err


def test_ctrl_c_keeps_a_checkpoint_and_the_run_goes_on_to_the_same_model(home, dpnlp, capsys):
    long = command("stopped", "--privacy.epsilon 4 --learning.steps 40 --learning.checkpoint-every 1000")
    said = interrupted(home, long, "stopped")
    assert "Go on with: dpnlp train runs/stopped/config.yaml --resume" in said
    kept = (home / "runs" / "stopped" / "checkpoints").iterdir()
    assert max(int(path.name) for path in kept if path.name.isdecimal()) > 0
    assert dpnlp("train runs/stopped/config.yaml --resume", capsys)[0] == 0
    assert dpnlp(long.replace("stopped", "whole") + " --privacy.ledger whole.ledger", capsys)[0] == 0
    first, again = (load_file(home / "runs" / name / "model" / "model.safetensors") for name in ("stopped", "whole"))
    assert all(np.array_equal(first[name], again[name]) for name in first)
