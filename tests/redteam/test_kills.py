"""Kills at changes of the disk in every workflow: who goes on leaves the same bits, one charge, no secret, no rest."""

import shutil

import numpy as np
import pytest
import yaml

from dpnlp.accounting.ledger import Ledger
from dpnlp.atomic import alone
from dpnlp.runs.folder import Run
from dpnlp.runs.lifecycle import Stage, stage_of

from ..tasks.readers import LABELS, WORDS, encoder, labelled, write_labelled
from .conftest import THOROUGH
from .deaths import changes, copied, killed, left_in, really_killed, run

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
"""What is ended in its midst leaves objects that complain of it."""

TRAIN = (
    "train --task classification --name run --model.start encoder --data.train notes.jsonl --data.test test.jsonl "
    "--data.validation more.jsonl --data.text text --data.label label --data.longest 8 --model.strategy tr-no "
    f"--data.labels {' '.join(LABELS)} --data.cache cache --learning.lot-size 8 --learning.physical-batch 8 "
    "--learning.steps 2 --learning.checkpoint-every 1 --privacy.epsilon 8 --privacy.delta 1e-3 --privacy.seed 0"
)
REWRITE = (
    "rewrite --name run --rewriter echo --data.train notes.jsonl --data.label label --batch 7 --privacy.epsilon 3 "
    f"--privacy.seed 0 --data.test test.jsonl --scoring.encoder encoder --data.labels {' '.join(LABELS)}"
)
PRETRAIN = "pretrain --method echo --output made --data.train bank.txt --data.public --model.encoder encoder"
VOCABULARY = (
    "vocabulary --output made --data.train notes.jsonl --privacy.unit example --privacy.epsilon 50 "
    "--privacy.delta 1e-3 --privacy.seed 0"
)
COMMANDS = {"train": TRAIN, "rewrite": REWRITE, "pretrain": PRETRAIN, "vocabulary": VOCABULARY}
CHARGED = {"train": ["dpnlp train run"], "rewrite": ["dpnlp rewrite run"], "pretrain": []}
CHARGED["vocabulary"] = ["dpnlp vocabulary made"]
QUICK = {"train": 4, "rewrite": 5, "pretrain": 5, "vocabulary": 12}
"""How many moments the quick form tries."""


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A folder with all that the commands need."""
    start = tmp_path_factory.mktemp("start")
    encoder(start / "encoder")
    write_labelled(start / "notes.jsonl", labelled(40, 1))
    write_labelled(start / "test.jsonl", labelled(8, 2))
    write_labelled(start / "more.jsonl", labelled(8, 3))
    (start / "bank.txt").write_text("".join(f"{one} {two}\n" for one in WORDS[:9] for two in WORDS[9:18]))
    code, said = run(start, PRETRAIN.replace("made", "echo"))
    assert code == 0, said
    return start


def resumed(home, line):
    """Goes on with what was ended, as a person would, until it is there."""
    if line.split()[0] in ("train", "rewrite"):
        made = Run(home / "runs" / "run")
        stage = stage_of(made)
        over = stage is Stage.FINISHED
        line = line if stage is Stage.ABSENT else f"{line.split()[0]} runs/run/config.yaml --resume"
    else:
        over = (home / "made").exists()
    code, said = run(home, line)
    assert code == (2 if over else 0), said


def hidden(home):
    return [path.relative_to(home).as_posix() for path in home.rglob(".*")]


def charges(home):
    """What stands in each ledger, in order; no id comes twice in one."""
    found = {}
    for path in home.glob("*.ledger"):
        releases = Ledger(path).read().releases
        assert len({one.id for one in releases}) == len(releases)
        found[path.name] = [one.what for one in releases]
    return found


def assert_is_whole(home, whole, workflow, moment):
    found, expected = left_in(home), left_in(whole)
    assert found.keys() == expected.keys(), moment
    for name, content in expected.items():
        assert found[name] == content, (moment, name)
    assert charges(home) == charges(whole), moment
    assert charges(home).get("notes.jsonl.ledger", []) == CHARGED[workflow], moment
    assert hidden(home) == [], moment
    assert not (home / "runs" / "run" / "checkpoints").exists(), moment


def moments(seen, few):
    """All of them in the thorough form; else the first, the last, some between, and that of the report."""
    spread = {round(place) for place in np.linspace(0, len(seen) - 1, few)}
    report = {number for number, change in enumerate(seen) if change == "open .report.html.dpnlp-unfinished"}
    return range(len(seen)) if THOROUGH else sorted(spread | report)


@pytest.mark.parametrize("workflow", COMMANDS)
def test_a_command_that_is_killed_at_a_change_of_the_disk_goes_on_as_if_nothing_had_been(start, tmp_path, workflow):
    line, whole = COMMANDS[workflow], copied(start, tmp_path / "whole")
    seen = changes(whole, line)
    assert len(seen) > 15
    ended = 0
    for number in moments(seen, QUICK[workflow]):
        home = copied(start, tmp_path / "home")
        moment = f"{workflow}: killed at change {number}, {seen[number]}"
        ended += killed(home, line, number)  # The last changes come a little earlier or later.
        resumed(home, line)
        assert_is_whole(home, whole, workflow, moment)
        shutil.rmtree(home)
    assert ended >= 0.7 * len(moments(seen, QUICK[workflow]))


def test_a_rewriting_that_is_killed_again_and_again_releases_each_text_once(start, tmp_path):
    """With the operating system's entropy each draw is another: what was once in the file stays in it."""
    home, line = copied(start, tmp_path / "home"), REWRITE.replace("--privacy.seed 0", "")
    file, before = home / "runs" / "run" / "rewritten" / "train.jsonl", b""
    number, step = 12, 1 if THOROUGH else 9
    while stage_of(Run(home / "runs" / "run")) is not Stage.FINISHED and number < 1000:
        again = stage_of(Run(home / "runs" / "run")) is not Stage.ABSENT
        killed(home, "rewrite runs/run/config.yaml --resume" if again else line, number)
        now = file.read_bytes() if file.exists() else b""
        assert now.startswith(before)
        before, number = now, number + step
    assert len(before.splitlines()) == 40
    assert charges(home)["notes.jsonl.ledger"] == ["dpnlp rewrite run"]


@pytest.mark.skipif(not THOROUGH, reason="each takes the start of a process")
@pytest.mark.parametrize("workflow", COMMANDS)
def test_a_process_that_gets_sigkill_is_gone_on_with(start, tmp_path, workflow):
    line, count = COMMANDS[workflow], len(changes(copied(start, tmp_path / "whole"), COMMANDS[workflow]))
    for number in sorted({*np.linspace(0, count - 5, 12).round().astype(int).tolist()}):
        home = copied(start, tmp_path / "home")
        assert really_killed(home, line, number)
        resumed(home, line)
        for one in (home, tmp_path / "whole"):  # The command in their first lines begins otherwise in that process.
            for name in ("config.yaml", "report.html"):
                (one / "runs" / "run" / name).unlink(missing_ok=True)
        assert_is_whole(home, tmp_path / "whole", workflow, f"{workflow}: SIGKILL at change {number}")
        shutil.rmtree(home)


@pytest.mark.skipif(not THOROUGH, reason="each makes the runs of a grid in processes of their own")
def test_a_sweep_that_is_killed_goes_on_with_its_runs(start, tmp_path):
    whole = copied(start, tmp_path / "whole")
    settings = {"task": "classification", "model": {"start": "encoder", "strategy": "tr-no"}}
    settings["data"] = {"train": "notes.jsonl", "test": "test.jsonl", "text": "text", "label": "label", "longest": 8}
    settings["data"]["labels"] = list(LABELS)
    settings["learning"] = {"lot_size": 8, "physical_batch": 8, "steps": 2, "checkpoint_every": 1}
    settings["privacy"] = {"delta": 1e-3}
    grid = {"settings": settings, "grid": {"privacy.epsilon": [4, 8]}, "seeds": [0]}
    for home in (start, whole):
        (home / "grid.yaml").write_text(yaml.safe_dump(grid))
    seen = changes(whole, "sweep grid.yaml")
    assert len(seen) > 10
    for number in range(len(seen)):
        home = copied(start, tmp_path / "home")
        killed(home, "sweep grid.yaml", number)
        code, said = run(home, "sweep grid.yaml")
        assert code == 0, said
        found, expected = left_in(home), left_in(whole)
        assert found.keys() == expected.keys(), seen[number]
        assert [name for name in found if found[name] != expected[name]] == [], seen[number]
        assert charges(home) == charges(whole)
        assert len(charges(home)["notes.jsonl.ledger"]) == 2
        assert hidden(home) == []
        shutil.rmtree(home)


def test_two_processes_at_one_run_or_one_folder_are_told(start, tmp_path):
    for workflow, line in COMMANDS.items():
        home = copied(start, tmp_path / workflow)
        place = home / ("runs/run" if workflow in ("train", "rewrite") else "made")
        place.parent.mkdir(exist_ok=True)
        before = left_in(home)
        with alone(place):
            code, said = run(home, line)
        assert code == 2, workflow
        assert "another process is" in said
        assert left_in(home) == before
        assert charges(home) == {}
