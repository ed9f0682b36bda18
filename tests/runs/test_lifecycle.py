"""A run is begun, published and finished, for one process at a time, and finished only when its secret is gone."""

import json
import shutil
from dataclasses import replace

import pytest

from dpnlp.atomic import alone
from dpnlp.checks import BadInput
from dpnlp.runs.folder import Run
from dpnlp.runs.lifecycle import Stage, attended, begin, command_of, finish, stage_of
from dpnlp.runs.privacy import Privacy, new_id

from .fakes import fake

COMMAND = "dpnlp train runs/first/config.yaml"


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Run("runs/first")


def created(run, **settings):
    Run.create(run.path, settings, "dpnlp train")
    begin(run)


def secret(run):
    run.checkpoints.mkdir(parents=True)
    (run.checkpoints / "secret").touch()


def made(run):
    """All that a run of training leaves."""
    run.model.mkdir()
    run.write_report("<p>")


def test_the_life_of_a_run(run):
    with attended(run, False, COMMAND) as stage:
        assert stage is Stage.ABSENT
        created(run)
        assert stage_of(run) is Stage.BEGUN
        secret(run)
        made(run)
        assert stage_of(run) is Stage.BEGUN, "its report does not make it finished"
        finish(run, keep_checkpoints=False)
    assert stage_of(run) is Stage.FINISHED
    assert sorted(path.name for path in run.path.iterdir()) == ["config.yaml", "model", "report.html"]
    assert [path.name for path in run.path.parent.iterdir()] == ["first"]


def test_checkpoints_are_kept_where_that_is_asked_for(run):
    created(run)
    secret(run)
    finish(run, keep_checkpoints=True)
    assert run.checkpoints.exists()


def test_what_was_published_with_its_secret_is_gone_on_with(run, monkeypatch):
    created(run)
    secret(run)
    made(run)

    def killed(path):
        (path / "secret").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            finish(run, keep_checkpoints=False)
    assert stage_of(run) is Stage.PUBLISHED
    with attended(run, True, COMMAND) as stage:
        assert stage is Stage.PUBLISHED
        finish(run, keep_checkpoints=False)
    assert stage_of(run) is Stage.FINISHED
    assert not run.checkpoints.exists()


@pytest.mark.parametrize(
    ("there", "stage"),
    [
        ("", Stage.BEGUN),
        ("checkpoints", Stage.BEGUN),
        ("checkpoints model", Stage.BEGUN),
        ("checkpoints report", Stage.BEGUN),
        ("checkpoints model report", Stage.PUBLISHED),
        ("model report", Stage.FINISHED),
        ("rewritten", Stage.BEGUN),
        ("rewritten report", Stage.FINISHED),
    ],
)
def test_a_run_of_an_earlier_version_is_known_by_what_is_there(run, there, stage):
    Run.create(run.path, {}, "dpnlp train")
    for what in there.split():
        if what == "report":
            run.write_report("<p>")
        else:
            (run.path / what).mkdir()
    if "rewritten" in there:
        (run.path / "rewritten" / "train.jsonl").touch()
    assert stage_of(run) is stage


def test_checkpoints_that_an_earlier_version_kept_are_no_secret_left_behind(run):
    Run.create(run.path, {"keep_checkpoints": True}, "dpnlp train")
    secret(run)
    made(run)
    assert stage_of(run) is Stage.FINISHED


def refusal(run, resume):
    with pytest.raises(BadInput) as refused, attended(run, resume, COMMAND):
        pass
    return str(refused.value)


def test_what_cannot_be_begun_or_gone_on_with_is_one_sentence_and_leaves_nothing(run, tmp_path):
    assert refusal(run, True) == "name = first: there is no run in runs/first to go on with; leave out --resume."
    assert list(tmp_path.iterdir()) == []
    created(run)
    assert refusal(run, False) == (
        "name = first: there is a run in runs/first already; choose another name, or go on with it by "
        f"{COMMAND} --resume"
    )
    made(run)
    finish(run, keep_checkpoints=False)
    assert "the run in runs/first is finished" in refusal(run, True)


def test_of_two_processes_one_has_the_run_and_the_other_is_told(run):
    created(run)
    with alone(run.path):
        said = "name = first: another process is at the run in runs/first; wait until it ends."
        assert refusal(run, True) == said
    with attended(run, True, COMMAND):
        assert refusal(run, True) == said


@pytest.mark.parametrize("begun", [False, True])
def test_what_is_refused_leaves_a_run_only_if_anything_was_drawn_for_it(run, tmp_path, begun):
    def refused():
        with attended(run, False, COMMAND):
            created(run)
            if begun:
                secret(run)
            raise BadInput("the budget is spent.")

    with pytest.raises(BadInput, match="the budget is spent"):
        refused()
    assert (stage_of(run), list(tmp_path.iterdir()) != []) == (Stage.BEGUN if begun else Stage.ABSENT, begun)


def test_a_folder_of_something_else_stays_as_it_is(run):
    run.path.mkdir(parents=True)
    (run.path / "thesis.tex").touch()

    def refused():
        with attended(run, False, COMMAND):
            created(run)

    with pytest.raises(BadInput, match=r"there is thesis\.tex in it already"):
        refused()
    assert [path.name for path in run.path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("begun", [False, True])
def test_what_is_interrupted_says_how_to_go_on(run, tmp_path, begun):
    def interrupted():
        with attended(run, False, COMMAND):
            if begun:
                created(run)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        interrupted()
    expected = f"interrupted; what is done is kept. Go on with: {COMMAND} --resume" if begun else ""
    assert str(stopped.value) == expected
    assert list(tmp_path.iterdir()) == ([run.path.parent.resolve()] if begun else [])


def test_what_a_killed_process_left_in_a_run_is_swept(run):
    created(run)
    (run.path / "predictions").mkdir()
    left = [run.path / ".config.yaml.dpnlp-unfinished", run.path / "predictions" / ".test.jsonl.dpnlp-unfinished"]
    for path in left:
        path.write_text("half")
    (run.path / ".model.dpnlp-unfinished").mkdir()
    with attended(run, True, COMMAND):
        assert sorted(path.name for path in run.path.iterdir()) == [".stage", "config.yaml", "predictions"]
        assert list((run.path / "predictions").iterdir()) == []


def test_the_command_is_one_that_a_shell_takes(tmp_path):
    assert command_of("train", Run("runs/a b")) == "dpnlp train 'runs/a b/config.yaml'"


def test_of_a_run_that_is_refused_no_promise_is_remembered(run, monkeypatch, tmp_path):
    """Else a run under its id that promises something else would be refused ever after."""
    monkeypatch.setenv("DPNLP_HOME", str(tmp_path / "home"))
    other = fake(tmp_path / "other", epsilon=4.0).privacy
    own = replace(other.own, run=new_id())

    def refused():
        with attended(run, False, COMMAND):
            created(run)
            run.write_privacy(Privacy((own,), {}))
            raise BadInput("no budget")

    with pytest.raises(BadInput, match="no budget"):
        refused()
    assert not run.path.exists()
    created(run)
    less = replace(own, promised=replace(own.promised, owner="who"))
    (run.path / "privacy.json").write_text(json.dumps(Privacy((less,), {}).to_json()))
    assert run.privacy.own == less
