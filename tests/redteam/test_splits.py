"""Splits (law 15): is there a disguise in which a training text is scored or written out as if it were held out?"""

import csv
import gzip
import io
import json
import lzma
import random
from pathlib import Path

import pytest

from dpnlp.data.labelled import labelled as read_labelled
from dpnlp.data.records import divided

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


PRIVATE, FRESH = rows("zq", 12), rows("new", 4)


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
