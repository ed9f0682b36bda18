"""Splits (law 15): is there a disguise in which a training text is scored or written out as if it were held out?"""

import csv
import gzip
import io
import json
import lzma
import random
import shutil
import stat
from pathlib import Path

import pytest

from dpnlp.data.labelled import labelled as read_labelled
from dpnlp.data.records import divided
from dpnlp.runs.folder import Run

from ..cli.commands import run_in
from ..tasks.readers import LABELS, encoder

SMALL = "--model.start start --model.strategy tr-no --model.hidden 4 --data.longest 8 --data.cache cache"
SMALL += f" --data.labels {' '.join(LABELS)} --learning.lot-size 4 --learning.steps 1 --privacy.delta 1e-3"
TRAIN = f"train --task classification {SMALL}"


def rows(name, count):
    """Texts with a word of their own each, and owners of two texts each."""
    own = [f"{name}{number:02}" for number in range(count)]
    return [
        {"text": f"{word} ba de", "label": LABELS[number % 3], "who": f"owner {number // 2}", "id": f"{number}{word}"}
        for number, word in enumerate(own)
    ]


def as_json(some):
    return "".join(json.dumps(row) + "\n" for row in some)


def as_csv(some):
    file = io.StringIO()
    writer = csv.DictWriter(file, list(some[0]))
    writer.writeheader()
    writer.writerows(some)
    return file.getvalue()


PRIVATE, FRESH = rows("zq", 40), rows("new", 12)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a micro BERT, private texts, fresh ones, and the private ones in many disguises."""
    home = tmp_path_factory.mktemp("home")
    encoder(home / "start", layers=1)
    (home / "private.jsonl").write_text(as_json(PRIVATE))
    (home / "fresh.jsonl").write_text(as_json(FRESH))
    for name, content in DISGUISES.items():
        place = home / name
        place.parent.mkdir(exist_ok=True)
        if content is None:
            continue
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
    (home / "link.jsonl").hardlink_to(home / "private.jsonl")
    (home / "points.jsonl").symlink_to("private.jsonl")
    return home


def changed(change):
    return as_json([{**row, **change(row)} for row in PRIVATE])


SHUFFLED = random.Random(0).sample(PRIVATE, len(PRIVATE))
DISGUISES = {
    "private.jsonl": None,
    "./private.jsonl": None,
    "link.jsonl": None,
    "points.jsonl": None,
    "packed.jsonl.gz": gzip.compress(as_json(PRIVATE).encode()),
    "packed.jsonl.xz": lzma.compress(as_json(PRIVATE).encode()),
    "shuffled.jsonl": as_json(SHUFFLED),
    "table.csv": as_csv(PRIVATE),
    "part.json": json.dumps(PRIVATE[3:5]),
    "relabelled.jsonl": changed(lambda row: {"label": LABELS[0]}),
    "reowned.jsonl": changed(lambda row: {"who": "nobody"}),
    "loud.jsonl": changed(lambda row: {"text": row["text"].upper()}),
    "spaced.jsonl": changed(lambda row: {"text": f"  {row['text'].replace(' ', '  ')} !"}),
    "wide.jsonl": changed(
        lambda row: {"text": "".join(chr(ord(one) + 0xFEE0) for one in row["text"].split()[0]) + " ba de"}
    ),
}


def written(folder: Path) -> str:
    """All that lies in a folder and can be read by others, as text."""
    files = [file for file in folder.rglob("*") if file.is_file() and "not-covered" not in file.parts]
    return "\n".join(file.read_bytes().decode("utf-8", "replace") for file in files)


def exposed(text):
    """Private texts that stand in what was written, however they are spelled there."""
    plain = "".join(text.split()).casefold()
    return [row["text"] for row in PRIVATE if row["text"].split()[0] in plain]


def run(home, line):
    return run_in(home, line)


@pytest.mark.parametrize("disguise", DISGUISES)
@pytest.mark.parametrize("split", ["test", "validation"])
def test_no_disguise_of_the_training_file_is_a_held_out_split(home, disguise, split):
    line = f"{TRAIN} --name hidden --data.train private.jsonl --data.{split} {disguise} --privacy.epsilon 8"
    code, out, err = run(home, line)
    assert code == 2, err
    assert f"data.{split}: all its records are trained on" in err
    assert not exposed(out + err)
    assert not (home / "runs" / "hidden").exists()


def test_training_records_among_others_are_left_out_of_what_is_scored(home, report):
    for name, some in {"mixed": [*SHUFFLED[:6], *FRESH], "first": PRIVATE[:1]}.items():
        (home / f"{name}.jsonl").write_text(as_json(some))
    flags = "--data.train private.jsonl --data.test mixed.jsonl --privacy.epsilon 8"
    code, out, err = run(home, f"{TRAIN} --name mixed {flags}")
    assert code == 0, err
    assert "data.test: records that are trained on are left out" in err
    folder = home / "runs" / "mixed"
    lines = [json.loads(line) for line in (folder / "predictions" / "test.jsonl").read_text().splitlines()]
    assert [line["source"] for line in lines] == [row["text"] for row in FRESH]
    report("private texts written out beside fresh ones", 0, len(exposed(written(folder) + out + err)))


def test_a_text_that_is_in_both_parts_of_a_file_is_trained_on_and_not_scored(home, report):
    """Each text stands there for two labels and owners, so that a share of the file has many texts of the rest."""
    doubled = [*PRIVATE, *({**row, "label": LABELS[0], "who": "other", "id": "x"} for row in PRIVATE)]
    (home / "doubled.jsonl").write_text(as_json(doubled))
    code, out, err = run(home, f"{TRAIN} --name both --data.train doubled.jsonl --data.held-out 0.4")
    assert code == 0, err
    most, _ = divided(read_labelled(home / "doubled.jsonl"), 0.4)
    trained_on = {record.text.split()[0] for record in most}
    lines = (home / "runs" / "both" / "predictions" / "test.jsonl").read_text()
    assert lines
    report("texts in both parts that are scored", 0, sum(word in lines + out + err for word in trained_on))


def test_training_texts_as_validation_texts_beside_a_share_that_is_kept_apart(home):
    flags = "--data.train private.jsonl --data.held-out 0.4 --data.validation points.jsonl"
    code, _, err = run(home, f"{TRAIN} --name share {flags}")
    assert code == 0, err
    most, few = divided(read_labelled(home / "private.jsonl"), 0.4)
    shown = written(home / "runs" / "share" / "predictions")
    assert not [record for record in most if record.text in shown]
    assert all(record.text in shown for record in few)


# A finished run


@pytest.fixture(scope="module")
def finished(home):
    """A private run that kept a share of its file apart, and the texts that it was trained on."""
    flags = "--data.train private.jsonl --data.held-out 0.4 --data.owner who --privacy.epsilon 8"
    code, _, err = run(home, f"{TRAIN} --name done {flags}")
    assert code == 0, err
    lines = (home / "runs" / "done" / "predictions" / "test.jsonl").read_text().splitlines()
    kept = {json.loads(line)["source"] for line in lines}
    learned = [row["text"] for row in PRIVATE if row["text"] not in kept]
    assert len(kept) >= 10
    assert len(learned) >= 10
    (home / "link").symlink_to("runs/done")
    shutil.copytree(home / "runs" / "done", home / "copy")
    shutil.copytree(home / "runs" / "done" / "model", home / "model")
    shutil.copytree(home / "runs" / "done" / "model", home / "bare")
    for path in (home / "bare").rglob("provenance.json"):
        path.unlink()
    return learned


MODELS = ("runs/done", "./runs/../runs/done/.", "link", "copy", "model", "bare", "runs/done/model")
FLAGS = (
    "--data.train private.jsonl --data.held-out 0.9",
    "--data.train private.jsonl --data.held-out 0.9 --data.owner id",
    "--data.train private.jsonl --data.held-out 0.99 --data.label who --data.labels",
    "--data.train shuffled.jsonl --data.held-out 0.9",
    "--data.test private.jsonl",
    "--data.validation packed.jsonl.gz",
    "--data.test private.jsonl --data.pair id",
    "--data.test private.jsonl --data.text id --data.pair text",
)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("flags", FLAGS)
def test_no_model_is_scored_on_what_it_learned_from(home, finished, model, flags, report):
    """Whatever it is called, wherever it was copied to, and however its data are read."""
    code, out, err = run(home, f"evaluate {model} --task classification {flags} --output answers.jsonl")
    path = home / "answers.jsonl"
    answers = path.read_text() if path.exists() else ""
    path.unlink(missing_ok=True)
    assert code in (0, 2), err
    if code == 2:
        assert "all its records are trained on" in err or "labels" in err or "held_out" in err, err
    found = [text for text in finished if text.split()[0] in answers + out]
    report(f"training texts that {model} is scored on by {flags}", 0, len(found))


def test_a_share_of_nine_tenths_was_scored_and_now_only_what_was_kept_is(home, finished):
    line = "evaluate runs/done --data.held-out 0.9 --output answers.jsonl --json"
    code, _, err = run(home, line)
    assert code == 0, err
    assert "records that are trained on are left out" in err
    answers = [json.loads(line)["source"] for line in (home / "answers.jsonl").read_text().splitlines()]
    (home / "answers.jsonl").unlink()
    assert not {*answers} & {*finished}


def test_what_is_not_remembered_is_read_again(home, finished, monkeypatch, tmp_path):
    """Another home, as on another machine, remembers nothing; the run still names its files."""
    monkeypatch.setenv("DPNLP_HOME", str(tmp_path / "stranger"))
    code, _, err = run(home, "evaluate runs/done --data.held-out 0.9 --output answers.jsonl")
    assert code == 0, err
    assert not [text for text in finished if text in (home / "answers.jsonl").read_text()]
    (home / "answers.jsonl").unlink()
    code, _, err = run(home, "evaluate bare --task classification --data.test fresh.jsonl")
    assert code == 0, err


def test_other_data_under_the_name_of_those_that_were_learned_are_not_taken_for_them(
    home, finished, monkeypatch, tmp_path
):
    """Nothing would tell then that training records are scored."""
    monkeypatch.setenv("DPNLP_HOME", str(tmp_path / "stranger"))
    then = (home / "private.jsonl").read_text()
    (home / "once.jsonl").write_text(then)
    (home / "private.jsonl").unlink()  # Other names of the same file keep what is in it.
    (home / "private.jsonl").write_text(as_json(rows("else", 20)))
    try:
        code, _, err = run(home, "evaluate runs/done --data.test once.jsonl --data.held-out 0")
    finally:
        (home / "private.jsonl").unlink()
        (home / "private.jsonl").hardlink_to(home / "link.jsonl")
    assert code == 0, err
    assert "what it was trained on is not known on this machine" in err
    assert f"it learned from {len(finished)} records, and its data have" in err


def test_scores_on_training_data_are_asked_for_by_name_and_lie_apart(home, finished):
    code, out, err = run(home, "evaluate runs/done --on-training-data --output answers.jsonl --json")
    assert code == 0, err
    assert "not covered by the guarantee" in json.loads(out)["not_covered"]
    path = home / "runs" / "done" / "not-covered" / "answers.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["source"] for line in lines} == {*finished}
    assert all("not covered by the guarantee" in line["not_covered"] for line in lines)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    code, out, _ = run(home, "evaluate runs/done --on-training-data")
    assert code == 0
    assert "not covered by the guarantee" in out
    for place in ("runs/done/answers.jsonl", "/tmp/answers.jsonl", "runs/done/not-covered/../answers.jsonl"):
        code, _, err = run(home, f"evaluate runs/done --on-training-data --output {place}")
        assert code == 2
        assert "give a file name alone" in err
    code, _, err = run(home, "evaluate model --task classification --on-training-data --data.train private.jsonl")
    assert code == 2, err


def test_a_run_that_goes_on_from_another_is_not_scored_on_what_that_one_learned_from(home, finished, report):
    flags = "--data.train fresh.jsonl --data.test private.jsonl --privacy.epsilon 8"
    for name, start in {"further": "runs/done", "again": "bare"}.items():
        code, _, err = run(home, f"{TRAIN} --name {name} {flags} --model.start {start}")
        assert code == 0, err
        answers = (home / "runs" / name / "predictions" / "test.jsonl").read_text()
        found = [text for text in finished if text in answers]
        report(f"texts of an earlier run that a run from {start} is scored on", 0, len(found))


def test_what_runs_behind_learned_from_is_read_again_on_another_machine(home, finished, monkeypatch, tmp_path, report):
    """Neither machine remembers anything; the settings of the second run name the first, and those of that its data."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("DPNLP_HOME", str(tmp_path / "stranger"))
    flags = "--data.train fresh.jsonl --data.test private.jsonl --privacy.epsilon 8"
    code, _, err = run(home, f"{TRAIN} --name abroad {flags} --model.start runs/done")
    assert code == 0, err
    assert "records that are trained on are left out" in err
    monkeypatch.setenv("DPNLP_HOME", str(tmp_path / "another"))
    code, _, err = run(home, "evaluate runs/abroad --data.test private.jsonl --output answers.jsonl")
    assert code == 0, err
    places = (home / "runs" / "abroad" / "predictions" / "test.jsonl", home / "answers.jsonl")
    found = [text for text in finished if any(text in place.read_text() for place in places)]
    report("texts of an earlier run that are scored on another machine", 0, len(found))
    (home / "answers.jsonl").unlink()
    code, out, err = run(home, "audit runs/abroad --attacks membership --records 40 --others private.jsonl --json")
    assert code == 0, err
    assert json.loads(out)["membership"]["others"] == len(PRIVATE) - len(finished)


def test_a_note_names_each_run_of_which_nothing_can_be_read_again(home, finished, monkeypatch, tmp_path):
    monkeypatch.setenv("DPNLP_HOME", str(tmp_path / "stranger"))
    alone = shutil.copytree(home / "runs" / "done" / "model", tmp_path / "alone")
    said = f"run {Run(home / 'runs' / 'done').id} (dpnlp train done): what it was trained on is not known"
    (home / "more.jsonl").write_text(as_json(rows("more", 4)))
    flags = "--data.train fresh.jsonl --data.test more.jsonl --privacy.epsilon 8"
    code, _, err = run(home, f"{TRAIN} --name unknown {flags} --model.start {alone}")
    assert (code, said in err) == (0, True), err
    code, _, err = run(home, f"evaluate {alone} --task classification --data.test more.jsonl")
    assert (code, said in err) == (0, True), err


def test_a_run_of_public_data_is_known_behind_whatever_starts_from_it(home):
    (home / "open.jsonl").write_text(as_json(rows("op", 40)))
    flags = "--privacy.epsilon inf --data.test fresh.jsonl"
    code, _, err = run(home, f"{TRAIN} --name open --data.train open.jsonl {flags}")
    assert code == 0, err
    shutil.copytree(home / "runs" / "open" / "model", home / "published")
    start = "--data.train fresh.jsonl --model.public-start --privacy.epsilon 8"
    for source in ("runs/open", "published"):
        code, _, err = run(home, f"{TRAIN} --name said {start} --data.test open.jsonl --model.start {source}")
        assert (code, "data.test: all its records are trained on" in err) == (2, True), err
    code, _, err = run(home, f"{TRAIN} --name said {start} --model.start published")
    assert code == 0, err
    shutil.copytree(home / "runs" / "said" / "model", home / "tuned")
    for path in (home / "tuned").rglob("provenance.json"):
        path.unlink()
    for model in ("runs/said", "tuned"):
        code, _, err = run(home, f"evaluate {model} --task classification --data.test open.jsonl")
        assert (code, "data.test: all its records are trained on" in err) == (2, True), err


def test_an_audit_takes_no_training_record_for_another_one(home, finished):
    """Members that are taken for others hide what a model gives away of them."""
    (home / "members.jsonl").write_text(as_json([row for row in PRIVATE[::-1] if row["text"] in finished]))
    code, _, err = run(home, "audit runs/done --attacks membership --records 10 --others members.jsonl")
    assert code == 2
    assert "others: all its records are trained on" in err
    for disguise in ("shuffled.jsonl", "packed.jsonl.gz", "relabelled.jsonl"):
        code, out, err = run(home, f"audit runs/done --attacks membership --records 40 --others {disguise} --json")
        assert code == 0, err
        assert "others: records that are trained on are left out" in err
        assert json.loads(out)["membership"]["others"] == len(PRIVATE) - len(finished)


def test_an_audit_compares_with_no_model_that_has_learned_from_the_records(home, finished):
    flags = "--data.train shuffled.jsonl --data.test fresh.jsonl --privacy.epsilon inf"
    code, _, err = run(home, f"{TRAIN} --name knowing {flags}")
    assert code == 0, err
    code, _, err = run(home, "audit runs/done --attacks membership --records 10 --reference runs/knowing")
    assert code == 2
    assert "reference = runs/knowing: it has learned from some of the records itself" in err


def test_an_audit_of_a_run_whose_settings_were_changed_is_refused(home, finished):
    """With another share kept apart, texts that it was trained on would be its test data."""
    shutil.copytree(home / "runs" / "done", home / "edited")
    settings = home / "edited" / "config.yaml"
    settings.write_text(settings.read_text().replace("held_out: 0.4", "held_out: 0.7"))
    code, _, err = run(home, "audit edited --attacks membership --records 10")
    assert code == 2, err


def test_a_run_goes_on_with_the_records_that_it_began_with(home, monkeypatch):
    from dpnlp.cli import training

    def killed(*_):
        raise KeyboardInterrupt

    flags = "--data.train private.jsonl --data.held-out 0.4 --data.owner who --privacy.epsilon 8"
    with monkeypatch.context() as patch:
        patch.setattr(training.Training, "_publish_all", killed)
        assert run(home, f"{TRAIN} --name stopped {flags} --keep-checkpoints")[0] == 130
    for change in ("--data.owner id", "--data.held-out 0.6", "--data.train shuffled.jsonl --data.held-out 0.2"):
        code, _, err = run(home, f"train runs/stopped/config.yaml --resume {change}")
        assert code == 2
        assert "are not those that the run began with" in err
