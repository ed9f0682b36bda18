"""Law 15: one data set has one ledger, wherever and however its files lie, and no release passes by it."""

import gzip
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dpnlp.accounting.ledger import BudgetExceeded, Ledger
from dpnlp.accounting.releases import Budget, Release
from dpnlp.checks import BadInput
from dpnlp.data.graph_texts import graph_of_texts
from dpnlp.data.identity import Identity
from dpnlp.data.ledgers import NOTHING, DataSet, Memory, Part, memories
from dpnlp.data.pairs import pairs
from dpnlp.data.plain import plain
from dpnlp.events import ApproximateDP, NonPrivate
from dpnlp.guarantee import Adjacency, Unit

TEXTS = [f"the patient number {n} came home on monday" for n in range(12)]
BUDGET = Budget(1.0, 1e-6, Unit.EXAMPLE, Adjacency.ADD_REMOVE)


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    """A folder for data, whose owner remembers nothing yet."""
    monkeypatch.setenv("DPNLP_HOME", str(tmp_path / "home"))
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def write(path: Path, texts=TEXTS) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


def release(epsilon=0.6, run=None, event=None) -> Release:
    return Release.now(run, "a run", event or ApproximateDP(epsilon), Unit.EXAMPLE, Adjacency.ADD_REMOVE)


def charge(path: Path, epsilon=0.6, **settings) -> None:
    DataSet.read(plain(path), **settings).charge(release(epsilon))


def spent(path: Path) -> float:
    return round(Ledger.beside(path).spent(1e-6).epsilon, 4)  # δ takes a little off


def packed(path, data):
    path.write_bytes(gzip.compress("".join(f"{text}\n" for text in data).encode()))


def rows(path, data):
    path.write_text("".join(json.dumps({"id": n, "text": text.upper()}) + "\n" for n, text in enumerate(data)))


DISGUISES = {
    "shuffled.txt": lambda path: write(path, TEXTS[::-1]),
    "packed.txt.gz": lambda path: packed(path, TEXTS),
    "other.jsonl": lambda path: rows(path, TEXTS),
    "joined.txt": lambda path: write(path, [*TEXTS, *(f"another text of some length {n}" for n in range(500))]),
    "subset.txt": lambda path: write(path, TEXTS[7:8]),
    "written.txt": lambda path: write(path, [text.replace(" ", "  ").title() + "!" for text in TEXTS]),
}


@pytest.mark.parametrize("name", DISGUISES)
@pytest.mark.parametrize("budget_first", [True, False])
def test_a_copy_in_whatever_form_has_the_ledger_of_what_is_in_it(data, name, budget_first):
    secret = write(data / "secret.txt")
    if budget_first:  # before any run has read the file
        DataSet.at(secret).set_budget(BUDGET)
    charge(secret)
    if not budget_first:
        Ledger.beside(secret).set_budget(1.0, 1e-6, Unit.EXAMPLE, Adjacency.ADD_REMOVE)
    DISGUISES[name](data / name)
    with pytest.raises(BudgetExceeded, match=r"secret\.txt\.ledger: ε = 0\.6 is spent"):
        charge(data / name)
    assert not Ledger.beside(data / name).exists
    charge(data / name, 0.3)
    assert spent(secret) == 0.9
    assert spent(data / name) == 0.3


def test_a_hard_link_and_a_renamed_file_have_it_too(data):
    secret = write(data / "secret.txt")
    charge(secret)
    (data / "link.txt").hardlink_to(secret)
    charge(data / "link.txt", 0.2)
    assert spent(secret) == 0.8
    secret.rename(data / "moved.txt")
    charge(data / "moved.txt", 0.1)
    assert Ledger(data / "secret.txt.ledger").spent(1e-6).epsilon == pytest.approx(0.9, rel=1e-4)


def test_other_texts_have_a_ledger_of_their_own_and_a_greeting_makes_no_two_data_sets_one(data):
    charge(write(data / "secret.txt", [*TEXTS, "Good morning!"]))
    charge(write(data / "other.txt", [*(f"something else of some length {n}" for n in range(12)), "good morning"]), 0.1)
    assert spent(data / "secret.txt") == 0.6
    charge(write(data / "greetings.txt", ["Good morning", "hello"]), 0.1)
    assert spent(data / "secret.txt") == 0.7


def test_a_budget_on_a_folder_binds_whatever_is_read_in_it(data):
    write(data / "in" / "a.txt", TEXTS[:6])
    write(data / "in" / "b.txt", TEXTS[6:])
    DataSet.at(data / "in").set_budget(BUDGET)
    charge(data / "in" / "a.txt")
    for path in (data / "in" / "b.txt", write(data / "elsewhere.txt", TEXTS[6:])):
        with pytest.raises(BudgetExceeded, match=r"in\.ledger"):
            charge(path)
    os.environ["DPNLP_HOME"] += "-new"  # on another machine, by place alone
    with pytest.raises(BudgetExceeded, match=r"in\.ledger"):
        charge(data / "in" / "b.txt")


def test_a_budget_on_a_folder_counts_what_was_released_of_its_files_before(data):
    charge(write(data / "in" / "a.txt", TEXTS[:6]))
    DataSet.at(data / "in").set_budget(BUDGET)
    assert spent(data / "in") == 0.6
    with pytest.raises(BudgetExceeded, match=r"ledger: ε = 0\.6 is spent"):
        charge(data / "in" / "a.txt")
    DataSet.at(data / "in").set_budget(replace(BUDGET, epsilon=0.7))
    assert len(Ledger.beside(data / "in").read().releases) == 1


def test_a_budget_on_a_folder_counts_what_was_released_of_a_file_that_is_put_into_it(data):
    charge(write(data / "other.txt", [f"something else of some length {n}" for n in range(12)]), 5.0)
    charge(write(data / "a.txt"))
    write(data / "in" / "b.txt", [f"{text} again" for text in TEXTS])
    DataSet.at(data / "in").set_budget(BUDGET)
    (data / "a.txt").rename(data / "in" / "a.txt")
    ledger = Ledger.beside(data / "in")
    for check in (DataSet.charge, DataSet.check):
        with pytest.raises(BudgetExceeded, match=r"in\.ledger: ε = 0\.6 is spent"):
            check(DataSet.read(plain(data / "in" / "a.txt")), release(0.5))
        assert not ledger.read().releases
    charge(data / "in" / "a.txt", 0.3)
    assert spent(data / "in") == 0.9
    assert len(ledger.read().releases) == 2


def test_a_run_goes_on_where_a_budget_was_set_on_its_folder(data):
    secret, run = write(data / "in" / "a.txt"), release(run="f" * 16)
    DataSet.read(plain(secret)).charge(run)
    DataSet.at(data / "in").set_budget(BUDGET)
    DataSet.read(plain(secret)).charge(run)
    assert spent(data / "in") == 0.6
    with pytest.raises(BadInput, match="for something else"):
        DataSet.read(plain(secret)).charge(release(0.1, run="f" * 16))


def test_no_ledger_is_charged_where_one_refuses(data):
    secret, more = write(data / "secret.txt"), write(data / "more.txt", [f"{text} again" for text in TEXTS])
    charge(more)
    DataSet.at(secret).set_budget(Budget(0.1, 1e-6, Unit.EXAMPLE, Adjacency.ADD_REMOVE))
    both = DataSet.read(plain(more)) | DataSet.read(plain(secret))
    with pytest.raises(BudgetExceeded):
        both.charge(release())
    assert spent(more) == 0.6
    both.charge(release(0.05, run="f" * 16))
    both.charge(release(0.05, run="f" * 16))
    assert spent(more) == 0.65
    assert spent(secret) == 0.05


def test_a_chosen_ledger_is_no_way_around_one_that_is_there(data):
    secret = write(data / "secret.txt")
    charge(secret, chosen=data / "mine.ledger")
    assert not Ledger.beside(secret).exists
    DataSet.at(secret).set_budget(BUDGET)
    charge(secret, 0.3, chosen=data / "other.ledger")
    with pytest.raises(BudgetExceeded):
        charge(secret, 0.8, chosen=data / "third.ledger")
    assert Ledger(data / "mine.ledger").spent(1e-6).epsilon == pytest.approx(0.9, rel=1e-4)
    shutil.rmtree(data.parent / "home")  # Whoever remembers nothing still sees what lies beside the data.
    with pytest.raises(BudgetExceeded):
        charge(secret, 0.8, chosen=data / "fourth.ledger")


def test_both_sides_of_aligned_files_and_both_files_of_a_graph_have_it(data):
    for side in ("a.de", "a.en"):
        write(data / side, [f"{side} {text}" for text in TEXTS])
    aligned = pairs((data / "a.de", data / "a.en"))
    DataSet.read(aligned).charge(release())
    assert spent(data / "a.de") == spent(data / "a.en") == 0.6
    charge(data / "a.en", 0.1)
    assert spent(data / "a.de") == 0.7

    posts = [{"id": f"p{n}", "text": text, "label": "xy"[n % 2]} for n, text in enumerate(TEXTS)]
    (data / "posts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in posts))
    (data / "edges.tsv").write_text("p0\tp1\n")
    DataSet.at(data / "posts.jsonl").set_budget(BUDGET)
    corpus = graph_of_texts(data / "posts.jsonl", data / "edges.tsv")
    graph = DataSet.of(corpus, Identity.of_owner().nodes(corpus, range(len(TEXTS))))
    graph.charge(release())
    with pytest.raises(BudgetExceeded, match="posts"):
        graph.charge(release())


def test_a_copy_of_what_has_no_texts_is_known_byte_by_byte(data):
    (data / "in").mkdir()
    for name in ("graph.npz", "nearly-empty"):
        (data / "in" / name).write_bytes(bytes(range(256)) if name == "graph.npz" else b"1")
    DataSet.at(data / "in").set_budget(BUDGET)
    shutil.copytree(data / "in", data / "copy")
    numbers = DataSet((Part(NOTHING, (data / "copy" / "graph.npz",), (data / "copy",)),))
    with pytest.raises(BudgetExceeded, match=r"in\.ledger"):
        numbers.charge(release(1.1))
    few = data / "copy" / "nearly-empty"
    DataSet((Part(NOTHING, (few,), (few,)),)).charge(release(1.1))


@pytest.mark.parametrize("name", ["texts", "place", "files", "secret.txt"])
def test_a_ledger_may_have_any_name(data, name):
    (data / "own").mkdir()
    secret, chosen = write(data / "secret.txt"), data / "own" / name
    charge(secret, chosen=chosen)
    charge(secret, 0.1, chosen=chosen)
    (memory,) = memories()
    assert memory.place == chosen
    assert memory.texts.longer == len(TEXTS)
    chosen.unlink()
    chosen.with_name(f"{name}.head").unlink()
    DataSet.at(secret).set_budget(BUDGET)
    with pytest.raises(BudgetExceeded, match=r"ε = 0\.7 is spent"):
        charge(secret)


def test_what_is_no_file_is_no_ledger_and_nothing_is_left(data):
    secret, place = write(data / "secret.txt"), data / "folder"
    place.mkdir()
    with pytest.raises(BadInput, match="it is no file, and cannot be a ledger"):
        charge(secret, chosen=place)
    assert sorted(path.name for path in data.iterdir()) == ["folder", "secret.txt"]
    assert not [*memories()]
    with pytest.raises(BadInput, match="it is no file, and cannot be a ledger"):
        Ledger(Path(os.devnull)).read()


def test_what_is_remembered_and_damaged_is_refused_in_a_sentence(data):
    charge(write(data / "secret.txt"))
    texts = Memory.of(Ledger.beside(data / "secret.txt").path).folder / "texts"
    whole = texts.read_bytes()
    for damaged in (whole[:-3], whole[8:16] + whole[:8]):
        texts.write_bytes(damaged)
        with pytest.raises(BadInput, match="would not be recognised; restore"):
            charge(data / "secret.txt")


def test_what_is_written_out_spoils_a_ledger_only_if_nothing_else_is_in_it(data):
    secret = write(data / "secret.txt")
    stream = plain(secret)
    identity = Identity.of_owner()
    held, kept = (identity.seen(list(stream)[some]).texts for some in (slice(0, 3), slice(3, None)))
    shown = DataSet.of(stream, held)
    for _ in range(2):
        shown.write_out("scores", kept)
    DataSet.of(stream, kept).charge(release())
    contents = Ledger.beside(secret).read()
    assert [entry.in_clear for entry in contents.releases] == [True, False]
    assert (round(contents.spent(1e-6).epsilon, 4), contents.spent(1e-6).in_clear) == (0.6, 1)
    DataSet.at(secret).set_budget(BUDGET)
    with pytest.raises(BudgetExceeded, match="in clear"):
        shown.write_out("other scores", kept)
    test = write(data / "test.txt", ["these are other texts of some length"])
    DataSet.read(plain(test)).write_out("scores")
    assert Ledger.beside(test).spent(1e-6).reasons


def test_a_ledger_that_is_gone_or_was_put_back_still_counts(data):
    secret = write(data / "secret.txt")
    ledger = Ledger.beside(secret)
    DataSet.at(secret).set_budget(BUDGET)
    old = ledger.path.read_bytes(), ledger.head_path.read_bytes()
    charge(secret)
    ledger.path.write_bytes(old[0])
    ledger.head_path.write_bytes(old[1])  # with its anchor, which no ledger notices by itself
    with pytest.raises(BudgetExceeded, match=r"ε = 0\.6 is spent"):
        charge(secret)
    for path in data.glob("*.ledger*"):
        path.unlink()
    with pytest.raises(BudgetExceeded, match=r"ε = 0\.6 is spent"):
        charge(secret)
    DataSet.at(secret).set_budget(replace(BUDGET, epsilon=2.0))
    charge(secret)
    assert max(memory.copy.spent(1e-6).epsilon for memory in memories()) == pytest.approx(1.2, rel=1e-4)


def test_data_and_ledger_that_moved_together_are_charged_once(data):
    charge(write(data / "here" / "secret.txt"))
    shutil.move(data / "here", data / "there")
    charge(data / "there" / "secret.txt", 0.3)
    assert spent(data / "there" / "secret.txt") == 0.9
    assert len(DataSet.read(plain(data / "there" / "secret.txt")).ledgers()) == 1


def test_a_folder_that_cannot_be_written_to_has_its_ledger_at_home(data, monkeypatch):
    secret = write(data / "secret.txt")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != data)
    charge(secret)
    assert [path.name for path in data.iterdir()] == ["secret.txt"]
    charge(secret, 0.3)
    (ledger,) = DataSet.read(plain(secret)).ledgers()
    assert ledger.spent(1e-6).epsilon == pytest.approx(0.9, rel=1e-4)


def test_what_is_remembered_is_for_its_owner_alone_and_holds_no_text(data):
    charge(write(data / "secret.txt"))
    home = Path(os.environ["DPNLP_HOME"])
    for path in (path for path in home.rglob("*") if path.is_file()):
        assert path.stat().st_mode & 0o077 == 0 or path.parent.stat().st_mode & 0o077 == 0
        assert b"patient" not in path.read_bytes()
    assert Memory.of(Ledger.beside(data / "secret.txt").path).texts.longer == len(TEXTS)


def test_a_release_without_privacy_is_entered_and_a_budget_binds_it(data):
    secret = write(data / "secret.txt")
    DataSet.read(plain(secret)).charge(release(event=NonPrivate()))
    assert spent(secret) == float("inf")
    other = write(data / "other.txt", ["something else of some length"])
    DataSet.at(other).set_budget(BUDGET)
    with pytest.raises(BudgetExceeded, match="it was made without privacy"):
        DataSet.read(plain(other)).charge(release(event=NonPrivate()))
