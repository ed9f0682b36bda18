"""`dpnlp sweep`: a grid of runs from one file."""

import json
import os
import shlex
import shutil
import signal
import time
from pathlib import Path

import pytest
import yaml

from dpnlp.atomic import alone
from dpnlp.cli import sweep
from dpnlp.cli.main import main
from dpnlp.cli.sweep import named_as_tuned, planned
from dpnlp.guarantee import Exposure
from dpnlp.runs.folder import Run

from ..tasks.translators import saved, sentences, write_pairs
from .commands import run_in

SETTINGS = {
    "data": {"train": ["train.jsonl"], "test": ["test.jsonl"], "source": "de", "target": "en", "longest": 16},
    "model": {"start": "start"},
    "privacy": {"delta": 1e-3},
    "learning": {"lot_size": 8, "physical_batch": 8, "steps": 2},
    "scoring": {"beams": 1},
}


def grid(path, **changes):
    """A file of a grid."""
    path.write_text(yaml.safe_dump({"settings": SETTINGS, **changes}, sort_keys=False))
    return path


@pytest.fixture
def home(tmp_path):
    before = Path.cwd()
    saved(tmp_path / "start")
    write_pairs(tmp_path / "train.jsonl", sentences(24, seed=1))
    write_pairs(tmp_path / "test.jsonl", sentences(4, seed=2))
    SETTINGS["data"]["cache"] = str(tmp_path / "cache")
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)


def test_every_combination_is_a_run_named_by_what_differs(tmp_path):
    file = grid(tmp_path / "g.yaml", grid={"privacy.epsilon": ["inf", 5], "learning.rate": [0.1]}, seeds=[0, 1])
    runs = list(planned(file, Path("runs")))
    assert [run.name for run in runs] == [
        "epsilon_inf-rate_0.1-seed_0",
        "epsilon_inf-rate_0.1-seed_1",
        "epsilon_5-rate_0.1-seed_0",
        "epsilon_5-rate_0.1-seed_1",
    ]
    assert [run.privacy.seed for run in runs] == [0, 1, 0, 1]
    assert runs[2].privacy.epsilon == 5
    assert runs[2].learning.lot_size == 8


def test_runs_that_share_private_data_say_that_several_settings_were_tried(tmp_path):
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(SETTINGS))
    others = {**SETTINGS, "data": {**SETTINGS["data"], "train": ["others.jsonl"]}}
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(others))
    for grids, seeds, tuned in (({"privacy.epsilon": [1, 2]}, [0], True), ({}, [0, 1], True), ({}, [0], False)):
        file = grid(tmp_path / "g.yaml", settings=["one.yaml", "two.yaml"], grid=grids, seeds=seeds)
        runs = named_as_tuned(list(planned(file, Path("runs"))))
        assert len(runs) == (4 if tuned else 2)
        assert {run.tuned for run in runs} == {tuned}


def test_copies_of_private_data_under_other_names_are_shared(home):
    """However the files are named and ordered; other texts are not."""
    lines = (home / "train.jsonl").read_text().splitlines()
    (home / "copy.jsonl").write_text("\n".join(lines[::-1]) + "\n")
    (home / "part.jsonl").write_text("\n".join(lines[:9]) + "\n")
    long = [{"de": f"satz nummer {one} ist lang", "en": f"sentence number {one} is long"} for one in range(8)]
    (home / "new.jsonl").write_text("".join(json.dumps(line) + "\n" for line in long))
    for names, tuned in (
        (["train.jsonl", "./train.jsonl"], [True, True]),
        (["copy.jsonl", "train.jsonl", "new.jsonl"], [True, True, False]),
        (["part.jsonl", "train.jsonl"], [True, True]),
        (["train.jsonl", "missing.jsonl"], [False, False]),
    ):
        file = grid(home / "g.yaml", grid={"data.train": [[name] for name in names], "data.longest": [8]})
        runs = named_as_tuned(list(planned(file, Path("runs"))))
        assert [run.tuned for run in runs] == tuned


def test_settings_may_change_together(tmp_path):
    settings = {"rewriter": "rewriters/echo", "data": {"train": ["notes.txt"]}}
    both = {"privacy.epsilon, privacy.label_epsilon": [[1, 2], [3, 4]]}
    file = grid(tmp_path / "grid.yaml", settings=settings, grid=both)
    runs = list(planned(file, Path("runs")))
    assert [run.name for run in runs] == ["epsilon_1-label_epsilon_2", "epsilon_3-label_epsilon_4"]
    assert [(run.privacy.epsilon, run.privacy.label_epsilon) for run in runs] == [(1, 2), (3, 4)]


def test_the_settings_may_be_in_a_file_of_their_own(tmp_path):
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(SETTINGS))
    file = grid(tmp_path / "g.yaml", settings="base.yaml", seeds=[3])
    assert next(planned(file, Path("runs"))).data.longest == 16


def test_a_grid_of_rewriting(tmp_path):
    settings = {"rewriter": "rewriters/echo", "data": {"train": ["notes.txt"]}}
    file = grid(tmp_path / "grid.yaml", settings=settings, grid={"privacy.epsilon": [1, 3]}, seeds=[0])
    runs = list(planned(file, tmp_path / "runs"))
    assert [(run.VERB, run.name, run.privacy.epsilon, run.privacy.seed) for run in runs] == [
        ("rewrite", "epsilon_1-seed_0", 1.0, 0),
        ("rewrite", "epsilon_3-seed_0", 3.0, 0),
    ]
    assert not any(run.begun or run.finished for run in runs)


def test_a_grid_may_start_from_several_files(tmp_path):
    for name in ("small", "large"):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(SETTINGS))
    file = grid(tmp_path / "g.yaml", settings=["small.yaml", "large.yaml"], grid={"privacy.epsilon": [1]}, seeds=[0])
    names = [run.name for run in planned(file, Path("runs"))]
    assert names == ["small-epsilon_1-seed_0", "large-epsilon_1-seed_0"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"gird": {}}, "gird in "),
        ({"grid": {"privacy.epsilon": 5}}, "it must be a list of values"),
        ({"grid": {"privacy.epsilon, privacy.delta": [[5, 1e-6], [3]]}}, "[3] must be a list of 2 values"),
        ({"grid": {"privacy.epsilom": [5]}}, "the nearest known one is privacy.epsilon"),
        ({"settings": {}}, "model.start is not given"),
    ],
)
def test_a_wrong_grid_is_one_sentence(changes, sentence, tmp_path, capsys):
    assert main(["sweep", str(grid(tmp_path / "g.yaml", **changes))]) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1


def test_a_sweep_makes_what_is_missing_and_ends_in_a_table_a_plot_and_a_page(home, capsys):
    file = grid(home / "small.yaml", grid={"privacy.epsilon": ["inf", 8]})
    assert main(shlex.split(f"sweep {file} --plot plot.png --json")) == 0
    table = json.loads(capsys.readouterr().out)
    assert {row["epsilon"] for row in table["table"]} == {"inf", 8.0}
    assert (home / "plot.png").stat().st_size > 1000
    assert "<table" in (home / "runs" / "small" / "report.html").read_text()
    exposed = {Exposure.HELD_OUT, Exposure.TUNING, Exposure.ORIGIN}  # Nothing is known of the model it starts from.
    assert {*Run(home / "runs" / "small" / "epsilon_8").guarantee.not_covered} == exposed
    made = {path: path.stat().st_mtime_ns for path in (home / "runs").rglob("model.safetensors")}
    assert len(made) == 2
    assert main(shlex.split(f"sweep {file}")) == 0
    assert {path: path.stat().st_mtime_ns for path in made} == made
    capsys.readouterr()
    shutil.copytree(home / "runs" / "small" / "epsilon_8", home / "runs" / "small" / "another")
    assert main(shlex.split(f"sweep {file} --json")) == 0
    assert {run["run"] for run in json.loads(capsys.readouterr().out)["runs"]} == {"epsilon_inf", "epsilon_8"}


def test_a_run_that_fails_is_named_and_the_others_are_made(home, capsys):
    file = grid(home / "half.yaml", grid={"learning.lot_size": [8, 1000]})
    assert main(shlex.split(f"sweep {file}")) == 2
    captured = capsys.readouterr()
    assert "lot_size_1000: it ended with exit code 2" in captured.err
    assert "must not exceed the 24" in (home / "runs" / "half" / "lot_size_1000.log").read_text()
    assert (home / "runs" / "half" / "lot_size_8" / "model").is_dir()


def test_two_sweeps_of_one_folder_are_not_made_at_once(home, capsys):
    file = grid(home / "busy.yaml", grid={"privacy.epsilon": ["inf", 8]})
    (home / "runs").mkdir(exist_ok=True)
    with alone(Path("runs/busy")):
        assert main(["sweep", str(file)]) == 2
    assert (
        "--runs = runs/busy: another process is making the runs in it; wait until it ends." in capsys.readouterr().err
    )


def test_who_interrupts_a_sweep_interrupts_its_runs_and_is_told_how_to_go_on(home, monkeypatch):
    """The runs are other processes, here such as take long; each is asked to end, and none is begun afterwards."""
    file, begun = grid(home / "long.yaml", grid={"privacy.epsilon": ["inf", 8]}), []
    asked = []

    class Process:
        def __init__(self, command, **options):
            begun.append(command)
            assert options["start_new_session"], "Ctrl-C reaches it twice otherwise, and a second one ends it at once"
            os.kill(os.getpid(), signal.SIGTERM)

        def wait(self):
            while not asked:
                time.sleep(0.01)
            return 130

        def terminate(self):
            asked.append(self)

    monkeypatch.setattr(sweep.subprocess, "Popen", Process)
    code, _, err = run_in(home, f"sweep {file}")
    assert code == 130
    assert err.endswith(f"Go on with: dpnlp sweep {file}\n")
    assert (len(begun), len(asked)) == (1, 1)
