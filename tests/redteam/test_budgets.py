"""A budget is set on private texts; then they are read again in every disguise, by real commands, while that works."""

import gzip
import json
import lzma
import shutil
from itertools import count

import pytest

from dpnlp.accounting import pld
from dpnlp.events import Composed
from dpnlp.guarantee import Adjacency
from dpnlp.runs.folder import Run

from ..cli.commands import run_in

BUDGET, DELTA = 4.0, 1e-3
TEXTS = [f"good morning to you all said patient number {n}" for n in range(200)]
SPEND = "vocabulary --output {} --data.train {} --privacy.unit example --privacy.epsilon 1.8 --privacy.delta 1e-4 {}"
OTHERS = [f"an entirely different sentence about ship {n}" for n in range(400)]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder with private texts that have a budget, of which something was released before."""
    monkeypatch.setenv("DPNLP_HOME", str(tmp_path / "owner"))
    folder = tmp_path / "data"
    (folder / "in").mkdir(parents=True)
    lines(folder / "in" / "secret.txt", TEXTS)
    return folder


def lines(path, texts):
    path.write_text("".join(f"{text}\n" for text in texts))


def rows(texts):
    return "".join(json.dumps({"id": n, "text": text.title(), "who": n % 7}) + "\n" for n, text in enumerate(texts))


def disguises(home):
    """Names of files or flags under which the texts may be read, each made before it is used."""
    secret, text = home / "in" / "secret.txt", "".join(f"{text}\n" for text in TEXTS)
    (home / "hard.txt").hardlink_to(secret)
    (home / "soft.txt").symlink_to(secret)
    shutil.copy(secret, home / "copy.txt")
    lines(home / "shuffled.txt", TEXTS[::-1])
    lines(home / "joined.txt", TEXTS + OTHERS)
    lines(home / "subset.txt", TEXTS[:150])
    lines(home / "spaced.txt", [text.upper().replace(" ", "   ") + " !" for text in TEXTS])
    (home / "packed.txt.gz").write_bytes(gzip.compress(text.encode()))
    (home / "packed.txt.xz").write_bytes(lzma.compress(text.encode()))
    (home / "rows.jsonl").write_text(rows(TEXTS))
    (home / "array.json").write_text(json.dumps([{"text": text} for text in TEXTS]))
    (home / "rows.csv").write_text("text\n" + "".join(f'"{text}"\n' for text in TEXTS))
    yield from ("in/secret.txt", "in/../in/secret.txt", "hard.txt", "soft.txt", "copy.txt", "shuffled.txt")
    yield from ("joined.txt", "subset.txt", "spaced.txt", "packed.txt.gz", "packed.txt.xz", "rows.jsonl")
    yield from ("array.json", "rows.csv", "in/secret.txt --privacy.ledger mine.ledger")
    for path in (home / "in").glob("secret.txt.ledger*"):
        path.unlink()
    yield from ("in/secret.txt", "copy.txt --privacy.ledger other.ledger")
    secret.rename(home / "moved.txt")
    yield "moved.txt"


@pytest.mark.parametrize("where", ["in/secret.txt", "in"])
@pytest.mark.parametrize("first", [True, False])
def test_no_disguise_spends_more_than_the_budget(home, report, where, first):
    """`first`: the budget is set before any run has read the texts, so that nothing but their file is known."""
    number, events = count(), []

    def spend(file):
        out = home / f"words-{next(number)}"
        code, _, _ = run_in(home, SPEND.format(out.name, *file.split(" ", 1), *([""] if " " not in file else [])))
        if code == 0:
            events.extend(origin.event for origin in Run(out).privacy.origins)
        return code == 0

    if not first:
        assert spend("in/secret.txt")
    limits = f"--epsilon {BUDGET} --delta {DELTA}"
    assert run_in(home, f"ledger budget {where} {limits}")[0] == 0
    if first:
        assert spend("in/secret.txt")
    for disguise in disguises(home):
        while spend(disguise):
            pass
    assert len(events) > 1
    spent = pld.epsilon(Composed(tuple(events)), DELTA, Adjacency.ADD_REMOVE)
    report(f"budget on {where}, read in disguise", BUDGET, spent)


def test_nothing_is_written_out_or_made_without_privacy_past_a_budget(home, report):
    """Neither by pretraining nor as a public vocabulary: a release without noise has no finite ε."""
    assert run_in(home, f"ledger budget in {'--epsilon 4 --delta 1e-3'}")[0] == 0
    shutil.copy(home / "in" / "secret.txt", home / "copy.txt")
    passed = 0
    for file in ("in/secret.txt", "copy.txt"):
        made = f"--output made --data.train {file}"
        for line in (
            f"pretrain --method echo {made} --data.unsafe --model.encoder none",
            f"pretrain --method echo {made} --data.public --model.encoder none",
            f"vocabulary {made} --data.public",
        ):
            code, _, err = run_in(home, line)
            passed += code == 0 or "ledger" not in err
    report("releases without privacy past a budget", 0, passed)


def speech(n):
    return f"WHO {n % 20}:\ngood morning to you all\nsaid patient number {n}\n\n"


def test_a_budget_on_a_file_that_no_run_has_read_binds_readers_of_a_copy(home, report):
    """Speeches of several lines, which nobody can tell from other lines, and a folder that is linked into another."""
    play = "".join(map(speech, range(200)))
    (home / "in" / "play.txt").write_text(play)
    (home / "copy.txt").write_text(play)
    (home / "far").mkdir()
    lines(home / "far" / "others.txt", OTHERS)
    (home / "in" / "link").symlink_to(home / "far")
    assert run_in(home, "ledger budget in --epsilon 1 --delta 1e-3")[0] == 0
    passed = [
        run_in(home, SPEND.format("made", file, "").replace("1.8", "4"))[0] == 0
        for file in ("in/link/others.txt", "far/others.txt")
    ]
    for file in ("in/play.txt", "copy.txt"):
        line = SPEND.format("made", "", f"--data.corpus plays --data.folder {file}").replace("--data.train  ", "")
        passed.append(run_in(home, line.replace("1.8", "4"))[0] == 0)
    report("releases past a budget on files that were never read", 0, sum(passed))
