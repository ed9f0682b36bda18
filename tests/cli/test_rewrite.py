"""`dpnlp pretrain` and `dpnlp rewrite`, run as a person runs them, with a micro encoder and made-up words."""

import json
import shutil

import pytest

from dpnlp.accounting.ledger import Ledger
from dpnlp.atomic import alone
from dpnlp.cli.rewriting import Rewriting
from dpnlp.data.vocabulary import learned
from dpnlp.guarantee import Adjacency, Exposure, Guarantee, Trust, Unit
from dpnlp.home import home as owner_home
from dpnlp.models.pretrained import from_scratch, save
from dpnlp.runs.folder import Run
from dpnlp.runs.provenance import Door, Provenance

from ..tasks.readers import LABELS, WORDS, encoder, labelled, write_labelled
from .commands import run_in

SECRET = "zuqqwx"
START = "--model.encoder encoder --model.public-start"
MAKE = "pretrain --method echo --output {} --data.train bank.txt --data.public " + START
REWRITE = "rewrite --rewriter echo --data.train notes.jsonl --data.test test.jsonl --data.label label --privacy.seed 0"
NAMED = f"--data.labels {' '.join(LABELS)}"


@pytest.fixture(scope="module")
def dpnlp(tmp_path_factory):
    """Runs a command in a folder with an encoder, public sentences and private notes; gives code, stdout and stderr."""
    home = tmp_path_factory.mktemp("home")
    encoder(home / "encoder")
    (home / "bank.txt").write_text("".join(f"{one} {two}\n" for one in WORDS[:9] for two in WORDS[9:18]))
    write_labelled(home / "notes.jsonl", labelled(40, 1))
    write_labelled(home / "test.jsonl", labelled(12, 2))
    (home / "plain.txt").write_text(f"ba de {SECRET}\n\ngi {SECRET} ku\n")
    (home / "foreign.txt").write_text("xx yy\nzz\n")

    def run(line):
        return run_in(home, line)

    run.home = home
    code, out, err = run(MAKE.format("echo"))
    assert code == 0, err
    assert "81" in out
    return run


def texts(dpnlp, name, split="train"):
    return Run(dpnlp.home / "runs" / name).rewritten_texts(split)


@pytest.fixture(scope="module")
def scored(dpnlp):
    """A run with a score."""
    flags = f"--privacy.epsilon 3 --scoring.encoder encoder --scoring.made-of bank.txt {NAMED}"
    code, out, err = dpnlp(f"{REWRITE} --name scored {flags} --json")
    assert code == 0, err
    return json.loads(out), Run(dpnlp.home / "runs" / "scored")


def test_an_encoder_that_is_made_of_private_data_is_refused_before_anything_is_paid(dpnlp):
    private, door = shutil.copytree(dpnlp.home / "encoder", dpnlp.home / "private-encoder"), Door()
    door.note(dpnlp.home / "encoder")  # So that it stays public.
    door.keep(private, Provenance(exposures=(Exposure.PRETRAINING,)))
    before = Ledger.beside(dpnlp.home / "notes.jsonl").read().releases
    flags = f"--privacy.epsilon 3 --scoring.encoder private-encoder {NAMED}"
    code, out, err = dpnlp(f"{REWRITE} --name refused {flags}")
    assert (code, out) == (2, "")
    assert "scoring.encoder = private-encoder: it is made of private data" in err
    assert not (dpnlp.home / "runs" / "refused").exists()
    assert Ledger.beside(dpnlp.home / "notes.jsonl").read().releases == before


def test_a_rewriter_does_not_hide_the_texts_that_it_was_made_of(dpnlp):
    """They were said to be public; whoever wants them hidden cannot have them in it."""
    own = [f"{one} {two} ba de {one}" for one in WORDS[:6] for two in WORDS[9:15]]
    (dpnlp.home / "own.txt").write_text("".join(f"{text}\n" for text in own))
    (dpnlp.home / "part.txt").write_text("".join(f"{text}\n" for text in own[::-2]))
    code, _, err = dpnlp(MAKE.format("owned").replace("bank.txt", "own.txt"))
    assert code == 0, err
    for name in ("own.txt", "part.txt"):
        flags = f"--rewriter owned --name owned --data.train {name} --privacy.epsilon 3"
        code, _, err = dpnlp(f"rewrite {flags}")
        assert (code, "among those that the rewriter was made of" in err) == (2, True), err
    assert not (dpnlp.home / "runs" / "owned").exists()


def test_what_comes_out_is_public_sentences_with_the_labels(dpnlp, scored):
    bank = (dpnlp.home / "bank.txt").read_text().split("\n")
    notes = [json.loads(line) for line in (dpnlp.home / "notes.jsonl").read_text().splitlines()]
    released = texts(dpnlp, "scored")
    assert [row["label"] for row in released] == [row["label"] for row in notes]
    assert {row["text"] for row in released} <= {*bank}
    assert {key for row in released for key in row} == {"text", "label"}


def test_the_promise_is_local_for_a_text_and_names_the_labels(scored):
    entry, run = scored
    promised = run.guarantee
    assert (promised.epsilon, promised.delta) == (3.0, 0.0)
    assert (promised.unit, promised.adjacency, promised.trust) == (Unit.TEXT, Adjacency.REPLACE, Trust.LOCAL)
    assert promised.not_covered == (Exposure.LABELS, Exposure.MADE_OF, Exposure.HELD_OUT)
    assert entry["signature"] == promised.signature()
    assert run.privacy.plan["method"] == "echo"


def test_a_classifier_of_the_rewritten_texts_is_scored_on_original_ones(scored):
    entry, run = scored
    assert 0 <= entry["scores"]["test"]["rewritten"]["macro_f1"] <= 1
    assert entry["scores"]["test"]["original"] == {}
    page = run.report.read_text(encoding="utf-8")
    assert "What is published" in page
    assert "notes.jsonl, rewritten by echo" in page
    assert run.leakage()["whole"] == 1.0
    assert "What the rewriter was made of" in page
    assert "macro-F1" in page


def test_no_text_is_rewritten_twice_and_none_of_these_is_scored_on(dpnlp):
    private, other, third = labelled(8, 7), labelled(4, 8), labelled(4, 9)
    write_labelled(dpnlp.home / "once.jsonl", private)
    write_labelled(dpnlp.home / "more.jsonl", [*private[::-1], *other])
    write_labelled(dpnlp.home / "tests.jsonl", [*other[:2], *private[:2], *third])
    files = "--data.train once.jsonl --data.validation more.jsonl --data.test tests.jsonl"
    code, _, err = dpnlp(
        f"rewrite --rewriter echo --name once {files} --data.label label --scoring.encoder encoder {NAMED}"
    )
    assert code == 0, err
    assert "data.validation: records that are rewritten already are left out" in err
    assert "data.test: records that are rewritten already are left out" in err
    assert [len(texts(dpnlp, "once", split)) for split in ("train", "validation")] == [8, 4]
    classes = Run(dpnlp.home / "runs" / "once").details()["test"]["classes"]
    assert sum(found["support"] for found in classes.values()) == 4


def test_it_is_charged_to_the_ledger_once(dpnlp, scored):
    releases = Ledger.beside(dpnlp.home / "notes.jsonl").read().releases
    (release,) = [one for one in releases if "scored" in one.what]
    assert (release.unit, release.adjacency) == (Unit.TEXT, Adjacency.REPLACE)


def test_texts_alone_and_nothing_of_them_in_any_file(dpnlp):
    code, out, err = dpnlp("rewrite --name plain --rewriter echo --data.train plain.txt --privacy.epsilon 1")
    assert code == 0, err
    assert [set(row) for row in texts(dpnlp, "plain")] == [{"text"}] * 2
    assert SECRET not in out + err
    for file in (dpnlp.home / "runs" / "plain").rglob("*"):
        assert file.is_dir() or SECRET.encode() not in file.read_bytes()


def test_texts_that_a_private_run_rewrote_are_not_public(dpnlp, scored):
    """Neither where they lie nor as a copy; those of a run without privacy are what their user says."""
    _, run = scored
    shutil.copy(run.rewritten("train"), dpnlp.home / "copied.jsonl")
    for file in (run.rewritten("train"), "copied.jsonl"):
        for made in (f"pretrain --method echo {START} --output laundered", "vocabulary --output laundered"):
            code, _, err = dpnlp(f"{made} --data.train {file} --data.public")
            assert (code, "dpnlp rewrite scored was made of private data, under ε = 3" in err) == (2, True), err
            assert not (dpnlp.home / "laundered").exists()
    assert dpnlp("rewrite --name clear --rewriter echo --data.train foreign.txt --privacy.epsilon inf")[0] == 0
    file = Run(dpnlp.home / "runs" / "clear").rewritten("train")
    assert dpnlp(f"vocabulary --output of-clear --data.train {file} --data.public")[0] == 0


def test_labels_go_through_randomized_response(dpnlp):
    code, _, err = dpnlp(f"{REWRITE} --name told --privacy.epsilon 3 --privacy.label-epsilon 0.1 {NAMED}")
    assert code == 0, err
    promised = Run(dpnlp.home / "runs" / "told").guarantee
    assert promised.epsilon == pytest.approx(3.1)
    assert promised.not_covered == ()
    notes = [json.loads(line)["label"] for line in (dpnlp.home / "notes.jsonl").read_text().splitlines()]
    changed = [row["label"] != label for row, label in zip(texts(dpnlp, "told"), notes, strict=True)]
    assert 5 < sum(changed) < 40


def test_labels_are_drawn_together_with_their_texts_at_no_further_epsilon(dpnlp):
    flags = f"--privacy.epsilon 1 --privacy.joint-labels --scoring.encoder encoder {NAMED}"
    code, out, err = dpnlp(f"{REWRITE} --name together {flags} --json")
    assert code == 0, err
    run = Run(dpnlp.home / "runs" / "together")
    assert (run.guarantee.epsilon, run.guarantee.not_covered) == (1.0, (Exposure.HELD_OUT,))
    bank = len({*filter(None, (dpnlp.home / "bank.txt").read_text().split("\n"))})
    assert dict(run.guarantee.mechanism.parameters)["candidates"] == len(LABELS) * bank
    assert dict(run.guarantee.mechanism.parameters)["labels"] == len(LABELS)
    assert "macro_f1" in json.loads(out)["scores"]["test"]["rewritten"]
    notes = [json.loads(line)["label"] for line in (dpnlp.home / "notes.jsonl").read_text().splitlines()]
    changed = [row["label"] != label for row, label in zip(texts(dpnlp, "together"), notes, strict=True)]
    assert 5 < sum(changed) < 40


def test_without_privacy_labels_that_are_drawn_with_their_texts_are_in_clear_and_named(dpnlp):
    code, _, err = dpnlp(f"{REWRITE} --name open --privacy.epsilon inf --privacy.joint-labels {NAMED}")
    assert code == 0, err
    assert Run(dpnlp.home / "runs" / "open").guarantee.not_covered == (Exposure.LABELS,)


def test_classes_that_are_found_in_the_data_are_named(dpnlp):
    code, _, err = dpnlp(f"{REWRITE} --name found --privacy.epsilon 3 --privacy.label-epsilon 1")
    assert code == 0, err
    assert Run(dpnlp.home / "runs" / "found").guarantee.not_covered == (Exposure.CLASSES,)


def test_a_person_with_several_texts(dpnlp):
    """They are counted by a column or, where there is none, it is assumed, and said, that nobody has more."""
    line = f"{REWRITE} --name {{}} --privacy.epsilon 0.5 --privacy.texts-per-person {{}} {NAMED}"
    code, _, err = dpnlp(line.format("person", 4))
    assert code == 2
    assert "nothing says whose each text is; name the column by --data.owner" in err
    assert dpnlp(line.format("person", 4) + " --privacy.assumed")[0] == 0
    promised = Run(dpnlp.home / "runs" / "person").guarantee
    assert (promised.unit, promised.owner, promised.epsilon) == (Unit.USER, "", 2.0)
    assert Exposure.MORE_TEXTS in promised.not_covered
    rows = [{"text": f"ba de number {n}", "label": LABELS[0], "who": n // 4} for n in range(12)]
    (dpnlp.home / "owned.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    owned = line.replace("notes.jsonl", "owned.jsonl") + " --data.owner who"
    code, _, err = dpnlp(owned.format("three", 3))
    assert (code, (dpnlp.home / "runs" / "three").exists()) == (2, False)
    assert "texts_per_person = 3: somebody has more texts, by the column who" in err.replace("-", "_")
    assert dpnlp(owned.format("four", 4))[0] == 0
    promised = Run(dpnlp.home / "runs" / "four").guarantee
    assert (promised.unit, promised.owner, promised.epsilon) == (Unit.USER, "who", 2.0)
    assert Exposure.MORE_TEXTS not in promised.not_covered
    (release,) = Ledger.beside(dpnlp.home / "owned.jsonl").read().releases
    assert (release.unit, release.owner, release.event.count) == (Unit.USER, "who", 4)


def test_comparing_with_the_originals_is_named(dpnlp):
    flags = "--privacy.epsilon inf --privacy.diagnostics --scoring.encoder encoder"
    code, out, err = dpnlp(f"{REWRITE} --name compared {flags} {NAMED} --json")
    assert code == 0, err
    found = json.loads(out)["scores"]
    assert found["test"]["original"]["macro_f1"] > 0
    assert "bleu" in found["to the originals"]["rewritten"]
    assert Exposure.COMPARISON in Run(dpnlp.home / "runs" / "compared").guarantee.not_covered


def test_a_run_that_was_stopped_goes_on_and_gives_the_same(dpnlp, monkeypatch):
    flags = f"--privacy.epsilon 2 --batch 7 {NAMED}"
    assert dpnlp(f"{REWRITE} --name whole {flags}")[0] == 0
    original, calls = Rewriting._rewritten, []

    def failing(self, records):
        calls.append(len(records))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(self, records)

    monkeypatch.setattr(Rewriting, "_rewritten", failing)
    assert dpnlp(f"{REWRITE} --name parts {flags}")[0] == 130
    monkeypatch.undo()
    assert len(texts(dpnlp, "parts")) == 14
    with Run(dpnlp.home / "runs" / "parts").rewritten("train").open("a") as file:
        file.write('{"text": "half a li')
    code, _, err = dpnlp("rewrite runs/parts/config.yaml --resume")
    assert code == 0, err
    assert texts(dpnlp, "parts") == texts(dpnlp, "whole")
    releases = Ledger.beside(dpnlp.home / "notes.jsonl").read().releases
    assert sum("parts" in one.what for one in releases) == 1


def stopped(dpnlp, monkeypatch, name, flags):
    """A run of which nothing is rewritten yet."""

    def failing(self, records):
        raise KeyboardInterrupt

    monkeypatch.setattr(Rewriting, "_rewritten", failing)
    assert dpnlp(f"rewrite --name {name} --rewriter echo {flags}")[0] == 130
    monkeypatch.undo()


@pytest.mark.parametrize(
    "change",
    ["--data.label label", "--privacy.epsilon 50 --privacy.ledger other.ledger", "--privacy.seed 1"],
)
def test_a_run_does_not_go_on_with_another_promise_than_it_began_with(dpnlp, monkeypatch, change):
    """A label in clear, a larger ε with a ledger that knows nothing of the first one, noise that can be taken off."""
    name = f"changed-{change.split()[0].rpartition('.')[2]}"
    stopped(dpnlp, monkeypatch, name, "--data.train notes.jsonl --privacy.epsilon 1")
    code, _, err = dpnlp(f"rewrite runs/{name}/config.yaml --resume {change}")
    assert code == 2
    assert "go on with those that it began with" in err
    assert texts(dpnlp, name) == []


def halfway(dpnlp, monkeypatch, name, flags, calls=1):
    """A run of which so many batches are rewritten."""
    original, left = Rewriting._rewritten, [calls]

    def failing(self, records):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return original(self, records)

    with monkeypatch.context() as patch:
        patch.setattr(Rewriting, "_rewritten", failing)
        assert dpnlp(f"rewrite --name {name} --rewriter echo --privacy.epsilon 1 --batch 5 {flags}")[0] == 130


OTHERWISE = {
    "fewer": ("--data.train plain40.txt --data.share 0.6", "--data.share 1"),
    "swapped": (
        "--data.train plain40.txt --data.validation plain9.txt",
        "--data.train plain9.txt --data.validation plain40.txt",
    ),
    "ordered": ("--data.train plain40.txt", "--data.train reversed.txt"),
    "columns": ("--data.train notes.jsonl", "--data.train notes.jsonl --data.text label"),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_a_run_goes_on_with_the_texts_that_it_began_with_each_in_its_place(dpnlp, monkeypatch, name):
    """Else a text that is written would be drawn again in another line."""
    words = [f"{one} {two} number {one}{two}" for one in WORDS[:8] for two in WORDS[8:13]]
    for file, lines in {
        "plain40": words,
        "reversed": words[::-1],
        "plain9": [f"ku {one}" for one in words[:9]],
    }.items():
        (dpnlp.home / f"{file}.txt").write_text("".join(f"{line}\n" for line in lines))
    flags, change = OTHERWISE[name]
    halfway(dpnlp, monkeypatch, f"other-{name}", flags)
    code, _, err = dpnlp(f"rewrite runs/other-{name}/config.yaml --resume {change}")
    assert code == 2
    assert "did not begin on this machine with these texts in this order" in err
    assert len(texts(dpnlp, f"other-{name}")) == 5
    assert dpnlp(f"rewrite runs/other-{name}/config.yaml --resume")[0] == 0


def test_of_a_run_and_its_copies_only_what_was_written_last_goes_on(dpnlp, monkeypatch):
    runs, flags = dpnlp.home / "runs", "--data.train notes.jsonl"
    halfway(dpnlp, monkeypatch, "original", flags)
    for backup in ("older", "moved"):
        shutil.copytree(runs / "original", dpnlp.home / backup / "original")
    assert dpnlp("rewrite moved/original/config.yaml --runs moved --resume")[0] == 0
    for behind in ("runs", "older"):
        code, _, err = dpnlp(f"rewrite {behind}/original/config.yaml --runs {behind} --resume")
        assert code == 2
        assert "it is not as it was last written" in err
        assert len(Run(dpnlp.home / behind / "original").rewritten_texts("train")) == 5
    (dpnlp.home / "older" / "original" / "rewritten" / "train.jsonl").unlink()
    assert dpnlp("rewrite older/original/config.yaml --runs older --resume")[0] == 2
    assert not (dpnlp.home / "older" / "original" / "rewritten" / "train.jsonl").exists()


def test_a_run_goes_on_only_where_it_is_remembered(dpnlp, monkeypatch):
    """Another machine cannot know what was drawn of it in the meantime."""
    halfway(dpnlp, monkeypatch, "away", "--data.train notes.jsonl")
    shutil.rmtree(owner_home() / "drawn")
    code, _, err = dpnlp("rewrite runs/away/config.yaml --resume")
    assert (code, "did not begin on this machine" in err) == (2, True)


def test_two_processes_do_not_go_on_with_copies_of_a_run(dpnlp, monkeypatch):
    halfway(dpnlp, monkeypatch, "twice", "--data.train notes.jsonl")
    (log,) = (path for path in (owner_home() / "drawn").iterdir() if path.read_text().startswith("0\n{"))
    with alone(log):
        code, _, err = dpnlp("rewrite runs/twice/config.yaml --resume")
    assert (code, "another process goes on with a copy of runs/twice" in err) == (2, True)
    assert dpnlp("rewrite runs/twice/config.yaml --resume")[0] == 0
    assert "{" not in log.read_text()


def test_the_ledger_of_every_file_that_is_rewritten_is_charged(dpnlp):
    write_labelled(dpnlp.home / "more.jsonl", labelled(5, 7))
    flags = "--data.train notes.jsonl --data.validation more.jsonl --privacy.epsilon 1"
    code, _, err = dpnlp(f"rewrite --name both --rewriter echo {flags}")
    assert code == 0, err
    assert len(texts(dpnlp, "both", "validation")) == 5
    for file in ("notes.jsonl", "more.jsonl"):
        releases = Ledger.beside(dpnlp.home / file).read().releases
        assert sum(one.what == "dpnlp rewrite both" for one in releases) == 1


def test_a_budget_that_is_spent_stops_it_before_it_begins(dpnlp):
    (dpnlp.home / "poor.txt").write_text("ba de gi ku ba de gi\nku gi ku gi ba de ba\nde de gi ba ku ba gi\n")
    assert dpnlp("ledger budget poor.txt --epsilon 1 --delta 1e-6 --unit text --adjacency replace")[0] == 0
    before = {*(owner_home() / "drawn").glob("*")}
    code, _, err = dpnlp("rewrite --name poor --rewriter echo --data.train poor.txt --privacy.epsilon 2")
    assert code == 2
    assert "the budget is 1.0" in err
    assert not (dpnlp.home / "runs" / "poor").exists()
    assert {*(owner_home() / "drawn").glob("*")} == before


@pytest.mark.parametrize(
    ("unit", "flags", "what"),
    [
        ("text", "--privacy.diagnostics", "how alike its texts are"),
        ("user --owner who", "--privacy.texts-per-person 2 --data.owner who --data.label label", "labels in clear"),
    ],
)
def test_nothing_that_no_noise_covers_is_written_out_past_a_budget(dpnlp, unit, flags, what):
    file = f"{what.split()[0]}.jsonl"
    rows = [{"text": f"ba de {what} {n}", "label": LABELS[n % 2], "who": f"{what} {n // 2}"} for n in range(40)]
    (dpnlp.home / file).write_text("".join(json.dumps(row) + "\n" for row in rows))
    line = f"rewrite --rewriter echo --data.train {file} --privacy.epsilon 0.1"
    assert dpnlp(f"ledger budget {file} --epsilon 1 --delta 1e-6 --unit {unit} --adjacency replace")[0] == 0
    code, _, err = dpnlp(f"{line} --name shown {flags}")
    assert (code, what in err, "the budget is 1.0" in err) == (2, True, True), err
    assert not (dpnlp.home / "runs" / "shown").exists()
    assert not Ledger.beside(dpnlp.home / file).read().releases
    noisy = f"{flags} --privacy.label-epsilon 0.1" if unit.startswith("user") else ""
    code, _, err = dpnlp(f"{line} --name covered-{file[:3]} {noisy}")
    assert code == 0, err


METHODS = {
    "adept": "--data.train bank.txt --data.public --model.width 8 --model.hidden 8 --model.longest 4 "
    "--learning.epochs 0.2",
    "dp-bart": "--data.train bank.txt --data.public --model.start scratch --model.length 4 --model.vocabulary 300 "
    "--model.width 8 --model.layers 1 --model.heads 2 --model.hidden 8 --model.epsilon 50 --model.delta 1e-3 "
    "--learning.steps-with-noise 1",
    "retell": "--data.train bank.txt --data.public --model.encoder encoder --model.start scratch "
    "--model.vocabulary 300 --model.width 8 --model.layers 1 --model.heads 2 --model.hidden 8 --model.directions 4 "
    "--model.states 2 --model.epsilons 10 100 --model.delta 1e-3 --model.longest 6 --learning.steps 1",
    "noisy-echo": "--data.train bank.txt --data.public --model.encoder encoder",
    "words": "--vectors vectors.txt",
    "sampling": "--model.start writer --data.train bank.txt --data.public --model.tokens 3 --model.longest 8",
}
UNITS = {"words": Unit.WORD}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_made_and_rewrites(dpnlp, method):
    if method == "words":
        lines = (f"{word} {row % 7} {row % 5}\n" for row, word in enumerate(WORDS))
        (dpnlp.home / "vectors.txt").write_text("".join(lines))
    if method == "sampling":
        fresh = from_scratch(
            learned(["ba de gi ku lo ma ne pi ro tu"] * 20, 300),
            width=8,
            layers=1,
            heads=2,
            hidden=8,
            dropout=0.0,
            computes="float32",
            seed=0,
        )
        save(fresh, dpnlp.home / "writer")
    code, _, err = dpnlp(f"pretrain --method {method} --output made-{method} {METHODS[method]}")
    assert code == 0, err
    code, out, err = dpnlp(
        f"rewrite --name by-{method} --rewriter made-{method} --data.train plain.txt --privacy.epsilon 50 "
        "--privacy.delta 1e-3 --json"
    )
    assert code == 0, err
    assert len(texts(dpnlp, f"by-{method}")) == 2
    promised = Guarantee.parse(json.loads(out)["signature"])
    assert (promised.epsilon, promised.trust) == (50.0, Trust.LOCAL)
    assert promised.unit is UNITS.get(method, Unit.TEXT)
    assert promised.delta == (1e-3 if method in ("adept", "dp-bart", "noisy-echo", "retell") else 0.0)
    for file in (dpnlp.home / "runs" / f"by-{method}").rglob("*"):
        assert file.is_dir() or SECRET.encode() not in file.read_bytes()


def test_what_is_made_of_private_texts_says_so(dpnlp):
    made = f"pretrain --method echo --output leaks --data.train plain.txt bank.txt --data.unsafe {START}"
    assert dpnlp(made)[0] == 0
    code, _, err = dpnlp("rewrite --name leaks --rewriter leaks --data.train plain.txt --privacy.epsilon 1")
    assert code == 0, err
    exposed = Run(dpnlp.home / "runs" / "leaks").guarantee.not_covered
    assert exposed == (Exposure.PRETRAINING, Exposure.VOCABULARY)


@pytest.mark.parametrize("said_to_be", ["plain.txt", "copied.txt", "budgeted.txt"])
def test_private_texts_are_not_shown_as_those_behind_a_rewriter(dpnlp, said_to_be):
    """Neither those that are rewritten, in whatever file, nor others that a ledger knows to be private."""
    (dpnlp.home / "copied.txt").write_text(f"GI, {SECRET} ku!\nfresh\nba de {SECRET}\n")
    (dpnlp.home / "budgeted.txt").write_text(f"nobody may see that {SECRET} was here\n")
    assert dpnlp("ledger budget budgeted.txt --epsilon 1 --delta 1e-6")[0] == 0
    line = f"rewrite --name shown --rewriter echo --data.train plain.txt --scoring.made-of {said_to_be}"
    code, _, err = dpnlp(f"{line} --privacy.epsilon 1")
    assert (code, "its texts are private, for" in err, SECRET in err) == (2, True, False)
    assert not (dpnlp.home / "runs" / "shown").exists()


def test_what_is_shown_of_the_texts_behind_a_rewriter_is_named(scored):
    assert Exposure.MADE_OF in scored[1].guarantee.not_covered


def test_a_delta_that_is_too_large(dpnlp):
    """There are two texts, and a chance of one half would allow to publish one of them."""
    code, _, err = dpnlp(
        "rewrite --name a --rewriter made-adept --data.train plain.txt --privacy.epsilon 5 --privacy.delta 0.5"
    )
    assert code == 2
    assert "--privacy.delta = 0.5: it must be below one in the number of texts, 1/2" in err
    (dpnlp.home / "more.txt").write_text("".join(f"ba de gi ku {n} and so on\n" for n in range(8)))
    code, _, err = dpnlp(
        "rewrite --name a --rewriter made-adept --data.train plain.txt --data.validation more.txt --privacy.epsilon 5 "
        "--privacy.delta 0.1"
    )
    assert code == 2
    assert "--privacy.delta = 0.1: it must be below one in the number of texts, 1/10" in err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"{REWRITE} --name scored", "--name = scored: there is a run in runs/scored already"),
        (f"{REWRITE} --name no --resume", "--name = no: there is no run in runs/no to go on with; leave out --resume"),
        (
            "rewrite --name scored --rewriter echo --resume --data.train notes.jsonl",
            "the run in runs/scored is finished",
        ),
        ("rewrite --name a --rewriter echo", "data.train is not given: name the file to rewrite"),
        ("rewrite --name a --rewriter encoder --data.train notes.jsonl", "encoder: there is no rewriter in it"),
        (
            "pretrain --method echo --output a --data.train foreign.txt --data.public --model.encoder encoder",
            "of 2 of the first 2 texts it knows no token; take one for their language.",
        ),
        (
            "pretrain --method sampling --output a --model.start writer",
            "model.bounds and data.train: neither is given; give one of the two.",
        ),
        (
            "pretrain --method sampling --output a --model.start writer --model.bounds 1 2 --data.train bank.txt "
            "--data.public",
            "model.bounds and data.train: both are given; give one of the two.",
        ),
        (f"{REWRITE} --name a --data.label lable", "the label (lable) is missing; there are"),
        (f"{REWRITE} --name a --privacy.epsilon 0", "--privacy.epsilon = 0: it must be a number above 0"),
        (f"{REWRITE} --name a --privacy.label-epsilon 0", "it must be a number above 0 and at most 1e6"),
        (
            f"{REWRITE} --name a --privacy.label-epsilon 1 --data.labels bad fair",
            "there is a text with another label than bad, fair; add it",
        ),
        (
            "rewrite --name a --rewriter echo --data.train plain.txt --privacy.label-epsilon 1",
            "the texts have no labels; leave it out",
        ),
        (
            "rewrite --name a --rewriter echo --data.train plain.txt --privacy.joint-labels",
            "privacy.joint_labels: the texts have no labels; name their column",
        ),
        (
            f"{REWRITE} --name a --privacy.joint-labels --privacy.label-epsilon 1",
            "privacy.label_epsilon is for labels that are drawn apart; leave it out",
        ),
        (
            f"{REWRITE} --name a --privacy.joint-labels".replace("rewriter echo", "rewriter made-adept"),
            "this method rewrites texts alone; let labels go through randomized response",
        ),
        (f"{REWRITE} --name a --data.validation notes.jsonl", "data.validation: all its records are rewritten already"),
        (
            f"{REWRITE} --name a".replace("test.jsonl", "notes.jsonl"),
            "data.test: all its records are rewritten already",
        ),
        (f"{REWRITE} --name a --data.validation test.jsonl", "data.test: all its records are rewritten already"),
        (MAKE.format("echo"), "--output = echo: it is there already"),
        (MAKE.format("b").replace("--data.public ", ""), "if it is public say so by --data.public"),
        (
            MAKE.format("b").replace("bank.txt", "notes.jsonl"),
            "notes.jsonl.ledger is a ledger of texts in it, so they are private",
        ),
        (MAKE.format("b").replace("bank.txt", "none.txt"), "none.txt: there is no such file"),
        (MAKE.format("b").replace("echo", "eco"), "method = eco: it must be one of echo, noisy-echo"),
    ],
)
def test_refusals(dpnlp, scored, line, said):
    code, _, err = dpnlp(line)
    assert code == 2
    assert said in err
    assert not (dpnlp.home / "runs" / "a").exists()
