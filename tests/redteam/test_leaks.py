"""Leaks (law 9): what do the files that a run leaves tell of the private data that no statement names?"""

import json
import os
import re
import stat
from pathlib import Path

import pytest

from dpnlp.data.plain import Text
from dpnlp.guarantee import Exposure, Unit
from dpnlp.runs.folder import Run

from ..cli import test_nodes as graphs
from ..cli.commands import run_in
from ..tasks.modellers import sentences, tokenizer, write_texts
from ..tasks.readers import LABELS, encoder
from .test_splits import as_json, rows

STEPS = "--learning.lot-size 4 --learning.steps 2 --privacy.delta 1e-3 --privacy.epsilon 8"
TEXTS, OWNERS = 83, 61
"""Private texts, and who wrote them: figures that stand nowhere by chance."""
MODELLING = (
    "train --task modelling --name chats --data.train chats.jsonl --data.owner who --data.test fresh.jsonl "
    f"--model.start lstm --model.vocabulary words --model.width 8 --model.hidden 8 --data.longest 8 {STEPS} "
    "--privacy.unit user"
)
READING = (
    "train --task classification --name labels --data.train private.jsonl --data.held-out 0.3 --model.start start "
    f"--model.strategy tr-no --data.longest 8 --data.labels {' '.join(LABELS)} {STEPS}"
)
NODES = (
    f"train --task nodes --name posts --data.texts posts.jsonl --data.edges posts.tsv {graphs.SMALL} {graphs.NAMED} "
    "--privacy.epsilon 8"
)
RUNS = {"chats": MODELLING, "labels": READING, "posts": NODES}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home of its own, in which a careless person has a mask that lets all others read, with a run of each kind."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "home", lambda: home)
        patch.setenv("DPNLP_HOME", str(home / "memory"))
        patch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
        tokenizer().save_pretrained(home / "words")
        encoder(home / "start", layers=1)
        write_texts(home / "chats.jsonl", sentences(TEXTS, seed=1, owners=OWNERS))
        write_texts(home / "fresh.jsonl", [Text(f"new{number} what", f"other {number}") for number in range(6)])
        (home / "private.jsonl").write_text(as_json(rows("zq", 20)))
        graphs.write(home, "posts", *graphs.nodes())
        mask = os.umask(0)
        try:
            for line in RUNS.values():
                code, _, err = run_in(home, line)
                assert code == 0, err
        finally:
            os.umask(mask)
        yield home


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_whatever_is_remembered_or_cached_is_for_its_owner_alone(home):
    for folder in (home / ".cache" / "dpnlp", home / "memory"):
        assert files(folder)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
    for place in (home / "memory").rglob("*"):
        assert stat.S_IMODE(place.stat().st_mode) & 0o077 == 0, place
    for place in (home / ".cache" / "dpnlp").iterdir():
        assert stat.S_IMODE(place.stat().st_mode) & 0o077 == 0, place


@pytest.mark.parametrize("name", RUNS)
def test_records_kept_apart_are_written_out_and_the_statement_says_so(home, name):
    run = Run(home / "runs" / name)
    assert run.splits()
    assert Exposure.HELD_OUT in run.guarantee.not_covered
    assert Exposure.HELD_OUT.sentence in run.report.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", RUNS)
def test_where_the_number_of_records_is_written_the_statement_says_that_it_is_public(home, name):
    run = Run(home / "runs" / name)
    said = f"The exact number of {run.guarantee.unit}s is treated as public"
    assert said in run.guarantee.statement()
    assert said in run.report.read_text(encoding="utf-8")


def test_the_number_of_texts_of_all_users_together_stands_nowhere(home, report):
    """It is no figure of the guarantee, which counts users, and moves by as many texts as a user has."""
    run = Run(home / "runs" / "chats")
    assert run.guarantee.unit is Unit.USER
    texts = [path for path in files(run.path) if path.suffix not in (".safetensors", ".html")]
    found = [path for path in texts if re.search(rf"(?<![\d.]){TEXTS}(?![\d])", path.read_text(encoding="utf-8"))]
    report("files with the number of texts", 0, len(found))


def test_no_figure_of_the_scores_is_of_the_training_records(home):
    """Every count among scores and details is one of what was kept apart."""
    run = Run(home / "runs" / "labels")
    kept = len(run.predictions("test"))
    learned = 20 - kept
    assert learned != kept
    for name in ("metrics.jsonl", "details.json"):
        numbers = {int(number) for number in re.findall(r"(?<![\d.])\d+(?![\d.])", (run.path / name).read_text())}
        assert learned not in numbers, name
        assert 20 not in numbers, name


def test_no_training_text_or_node_stands_in_any_file_of_a_run(home, report):
    learned = {json.loads(line)["text"] for line in (home / "private.jsonl").read_text().splitlines()}
    learned -= {line["source"] for line in Run(home / "runs" / "labels").predictions("test")}
    found = {text for path in files(home / "runs" / "labels") for text in learned if text.encode() in path.read_bytes()}
    report("training texts in the files of a run", 0, len(found))
    names = {row["id"] for row in graphs.nodes()[0]} - {
        line["source"] for line in Run(home / "runs" / "posts").predictions("test")
    }
    found = {name for path in files(home / "runs" / "posts") for name in names if name.encode() in path.read_bytes()}
    report("training nodes in the files of a run", 0, len(found))


def test_no_answers_to_texts_with_a_budget_are_written(home, report):
    """What a model answers to a text, such as its translation, says much of what is in it."""
    kept = home / "kept"
    kept.mkdir()
    said = [json.loads(line)["text"] for line in (home / "private.jsonl").read_text().splitlines()]
    for folder in (kept, home):
        (folder / "said.txt").write_text("".join(f"{text} of more than sixteen letters\n" for text in said))
        graphs.write(folder, "others", *graphs.nodes())
    others = "--data.texts others.jsonl --data.edges others.tsv"
    lines = ("predict runs/labels said.txt", "generate runs/chats said.txt", f"predict runs/posts {others}")
    assert [run_in(home, f"{line} --output out.txt")[0] for line in lines] == [0] * 3
    assert not (home / "said.txt.ledger").exists()
    (home / "out.txt").unlink()
    assert run_in(home, "ledger budget kept --epsilon 8 --delta 1e-3")[0] == 0
    passed = [run_in(home, f"{line} --output out.txt")[0] != 2 or (home / "out.txt").exists() for line in lines]
    report("answers to texts with a budget", 0, sum(passed))
