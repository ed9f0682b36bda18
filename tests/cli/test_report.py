"""`dpnlp report`, run as a person runs it."""

import csv
import io
import json
import math
import shlex
from dataclasses import replace

import pytest

from dpnlp.accounting.planning import Question
from dpnlp.accounting.subsampling import Sampling
from dpnlp.cli.main import main
from dpnlp.guarantee import Guarantee, NoiseSource, Unit
from dpnlp.runs.folder import Run
from dpnlp.runs.privacy import Origin, Privacy, new_id

from ..runs.fakes import fake


@pytest.fixture
def dpnlp(capsys):
    """Runs a command line; gives its exit code, stdout and stderr."""

    def run(*words):
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_one_run_is_shown_and_gets_its_page(dpnlp, tmp_path):
    run = fake(tmp_path / "clinic")
    code, out, err = dpnlp("report", run.path)
    assert (code, err) == (0, f"dpnlp: note: the page is {run.report}.\n")
    for phrase in ("clinic", "4 at δ = 1e-06, for one example", "BLEU, test", "30.00", "What is not covered"):
        assert phrase in out
    assert run.guarantee.signature() in out
    assert run.report.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_run_without_privacy_is_said_to_promise_nothing(dpnlp, tmp_path):
    assert "∞: nothing is promised" in dpnlp("report", fake(tmp_path / "open", epsilon=math.inf).path)[1]


def test_a_folder_of_runs_becomes_a_table_and_one_page(dpnlp, tmp_path):
    for corpus in ("bsd", "wmt16"):
        for seed in (1, 2):
            fake(tmp_path / "runs" / f"{corpus}-{seed}", seed=seed, bleu=10.0 + seed, corpus=corpus)
    code, out, err = dpnlp("report", tmp_path / "runs", "--format", "csv")
    assert (code, err) == (0, f"dpnlp: note: the page is {tmp_path / 'runs' / 'report.html'}.\n")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["corpus"], row["runs"], float(row["bleu"])) for row in rows] == [
        ("bsd", "2", 11.5),
        ("wmt16", "2", 11.5),
    ]
    assert (
        "| bsd | 4 | 2 | 4.533 | 11.50 ± 0.71 | 31.50 ± 0.71 |"
        in dpnlp("report", tmp_path / "runs", "--format", "markdown")[1]
    )
    assert "11.50 ± 0.71" in dpnlp("report", tmp_path / "runs")[1]
    assert "<h1>4 runs</h1>" in (tmp_path / "runs" / "report.html").read_text(encoding="utf-8")


def test_several_folders_need_a_place_for_their_page(dpnlp, tmp_path):
    runs = [fake(tmp_path / "a").path, fake(tmp_path / "b", corpus="bsd").path]
    assert (
        dpnlp("report", *runs)[2] == "dpnlp: note: no page is written; --output FILE.html writes one of all the runs.\n"
    )
    assert dpnlp("report", *runs, "--output", tmp_path / "both.html")[0] == 0
    assert "<h1>2 runs</h1>" in (tmp_path / "both.html").read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "both.html"]


def test_json_has_everything_and_nothing_else_is_printed(dpnlp, tmp_path):
    run, other = fake(tmp_path / "a"), fake(tmp_path / "b", epsilon=math.inf)
    code, out, err = dpnlp("report", run.path, other.path, run.path, "--json")
    shown = json.loads(out)
    assert (code, err, shown["page"]) == (0, "", None)
    assert [entry["run"] for entry in shown["runs"]] == ["a", "b"]
    assert [Guarantee.from_json(entry["guarantee"]) for entry in shown["runs"]] == [run.guarantee, other.guarantee]
    assert shown["runs"][0]["scores"][0]["after"] == {"bleu": 30.0, "chrf": 50.0}
    assert [row["epsilon"] for row in shown["table"]] == ["inf", 4.0]


@pytest.mark.parametrize(
    ("sampling", "also"),
    [
        (Sampling.POISSON, {}),
        (Sampling.SHUFFLED, {}),
        (Sampling.CYCLIC_POISSON, {"bands": 4}),
        (Sampling.POISSON, {"sharing": 3, "unit": Unit.NODE}),
        (Sampling.POISSON, {"aggregations": (0.25, 0.5), "unit": Unit.NODE}),
    ],
)
def test_the_command_on_the_page_computes_the_same_epsilon(dpnlp, tmp_path, sampling, also):
    """With the plan that training records, through the command line."""
    from dpnlp.training import Clipping, Plan

    question = Question(4000, 1e-5, 100, 80, None, 1.25, sampling=sampling, **also)
    plan = Plan.of(question, Clipping(0.5))
    run = Run.create(tmp_path / "run", {}, "dpnlp train")
    promised = plan.guarantee(NoiseSource.OS_ENTROPY)
    run.write_privacy(Privacy((Origin(new_id(), "a run", plan.event, promised),), plan.to_json()))
    check = json.loads(dpnlp("report", run.path, "--json")[1])["runs"][0]["check"]
    recomputed = json.loads(dpnlp(*shlex.split(check)[1:], "--json")[1])
    assert replace(Guarantee.from_json(recomputed["guarantee"]), mechanism=promised.mechanism) == promised


def test_plots_of_one_run_and_of_several(dpnlp, tmp_path):
    run, other = fake(tmp_path / "runs" / "a"), fake(tmp_path / "runs" / "b", epsilon=1.0)
    for runs, name in (([run.path], "one.png"), ([run.path, other.path], "both.png")):
        assert dpnlp("report", *runs, "--plot", tmp_path / name)[0] == 0
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    run.write_metrics([])
    other.write_metrics([])
    for runs in ([run.path], [run.path, other.path]):
        code, _, err = dpnlp("report", *runs, "--plot", tmp_path / "none.png")
        assert (code, "there are too few scores to draw" in err) == (2, True)


def test_a_run_that_cannot_be_read_is_left_out_of_a_folder_and_named(dpnlp, tmp_path):
    fake(tmp_path / "whole")
    begun = Run.create(tmp_path / "begun", {}, "dpnlp train")
    code, out, err = dpnlp("report", tmp_path)
    assert (code, "whole" in out) == (0, True)
    assert "begun/privacy.json: it is missing" in err
    assert "It is left out." in err
    code, _, err = dpnlp("report", begun.path)
    assert (code, "let it run first" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("report", "RUNS is not given: Folders of runs"),
        ("report nowhere", "nowhere: there is no such folder; give the folder of a run."),
        ("report {run} --output no/where.html", "--output = no/where.html: there is no folder no; create it first."),
        ("report {run} --plot no/where.png", "--plot = no/where.png: there is no folder no; create it first."),
        ("report {run} --samples -1", "--samples = -1: it must be a whole number from 0 to"),
        ("report {run} --plot {run}/a.xyz", "the name must end in .png or .svg"),
    ],
)
def test_what_is_wrong_is_one_sentence(dpnlp, tmp_path, words, sentence):
    run = fake(tmp_path / "run")
    code, out, err = dpnlp(*words.format(run=run.path).split())
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_hard_cases_are_a_column_of_the_table_also_of_one_run(dpnlp, tmp_path):
    of, other = fake(tmp_path / "open", epsilon=math.inf), fake(tmp_path / "private")
    lines = other.predictions("test")
    other.write_predictions("test", [{**line, "hypothesis": line["reference"]} for line in lines[:1]] + lines[1:])
    code, out, _ = dpnlp("report", other.path, "--hard-cases", of.path, "--format", "csv")
    row = next(csv.DictReader(io.StringIO(out)))
    assert (code, float(row["hard_cases"])) == (0, 0.5)
    assert "the 2 mistakes of open on test" in dpnlp("report", other.path, "--hard-cases", of.path)[1]
