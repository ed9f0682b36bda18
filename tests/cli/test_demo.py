"""`dpnlp demo`, on a few notes and for a few steps."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from dpnlp.cli import demo, rewriting_demo
from dpnlp.cli.main import main
from dpnlp.demo import grammar
from dpnlp.guarantee import Exposure
from dpnlp.runs.folder import Run


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What a small demonstration prints, and the folder that it was made in."""
    home, before = tmp_path_factory.mktemp("demo"), Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "NOTES", 64)
        patch.setattr(demo, "TESTED", 4)
        patch.setattr(demo, "CANDIDATES", 16)
        patch.setattr(demo, "PRIVATELY", replace(demo.PRIVATELY, lot_size=16, steps=2, physical_batch=16))
        patch.setattr(demo, "PLAINLY", replace(demo.PLAINLY, lot_size=16, steps=2, warmup=1, physical_batch=16))
        printed = []
        patch.setattr(demo, "print_json", printed.append)
        os.chdir(home)
        try:
            assert main(["demo", "--json"]) == 0
        finally:
            os.chdir(before)
    return home / "demo", printed[0]


def test_a_private_and_a_plain_model_are_scored_and_asked_for_the_secrets(shown):
    folder, entry = shown
    private, plain = entry["runs"]
    assert private["epsilon"] <= 5 < plain["epsilon"] == float("inf")
    assert private["bleu_before"] == plain["bleu_before"]
    for row in entry["runs"]:
        assert 0 <= row["exposure_bits"] <= row["exposure_at_most"] == 4
        assert row["codes"] == len(demo.TIMES)
    assert {path.name for path in folder.iterdir()} >= {"notes.jsonl", "private", "non-private", "report.html"}


def test_what_the_private_run_leaves_holds_neither_a_code_nor_a_note(shown):
    folder, _ = shown
    notes = [json.loads(line) for line in (folder / "notes.jsonl").read_text().splitlines()]
    tested = (folder / "test.jsonl").read_text()
    secrets = grammar.secrets(demo.TIMES, demo.SEED)
    assert all(any(secret.code in note["target"] for note in notes) for secret in secrets)
    for path in (path for path in (folder / "private").rglob("*") if path.is_file()):
        text = path.read_bytes()
        assert not any(secret.code.encode() in text for secret in secrets), path
        for note in notes:
            for side in ("source", "target"):
                assert note[side] in tested or note[side].encode() not in text, path


def test_what_the_demonstrations_start_from_is_known_to_be_public(shown, rewritten):
    for run in (shown[0] / "private", rewritten[0] / "epsilon-5"):
        assert Exposure.ORIGIN not in Run(run).guarantee.not_covered


def test_a_folder_with_something_in_it_is_left_alone(shown, capsys):
    assert main(["demo", "--folder", str(shown[0])]) == 2
    assert "there is something in it already" in capsys.readouterr().err


@pytest.fixture(scope="module")
def rewritten(tmp_path_factory):
    """What the demonstration of rewriting prints, for a few texts, and its folder."""
    folder = tmp_path_factory.mktemp("desk") / "demo"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"PUBLIC": 300, "PRIVATE": 200, "TESTED": 40, "EPSILONS": (float("inf"), 5.0)}.items():
            patch.setattr(rewriting_demo, name, value)
        printed = []
        patch.setattr(rewriting_demo, "print_json", printed.append)
        assert main(["demo", "--rewriting", "--folder", str(folder), "--json"]) == 0
    return folder, printed[0]


def test_requests_are_rewritten_without_noise_and_with_it_and_learned_from(rewritten):
    folder, entry = rewritten
    without, with_noise = entry["runs"]
    assert (without["epsilon"], with_noise["epsilon"]) == (float("inf"), 5.0)
    assert without["macro_f1_of_originals"] > 0.6
    assert with_noise["macro_f1_of_originals"] is None  # That would not be covered.
    public = (folder / "public.txt").read_text().splitlines()
    for row in entry["runs"]:
        assert 0 <= row["macro_f1"] <= 1
        assert row["rewritten"] in public
        assert (Path(row["run"]) / "report.html").exists()
    assert "<table" in (folder / "report.html").read_text()


def test_what_is_rewritten_with_noise_names_no_patient(rewritten):
    folder, entry = rewritten
    names = {
        json.loads(line)["text"].partition(":")[0] for line in (folder / "requests.jsonl").read_text().splitlines()
    }
    for path in (path for path in Path(entry["runs"][1]["run"]).rglob("*") if path.is_file()):
        assert not any(name in path.read_text(encoding="utf-8") for name in names), path
