"""Every form gives the same labelled texts, and whatever is wrong with one is said in one sentence, with its line."""

import json

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.data.labelled import Columns, Labelled, labelled
from dpnlp.data.records import divided, labels_of

PAIRED = Columns("premise", "label", "hypothesis", "who")
ROWS = [
    {"premise": 'A "man", asleep', "hypothesis": "He sleeps.", "label": "entailment", "who": "7"},
    {"premise": "日本語 \u2028 x", "hypothesis": "Nobody.", "label": "contradiction", "who": "8"},
    {"premise": "A horse", "hypothesis": "It races.", "label": "neutral", "who": "7"},
]
TEXTS = [Labelled(row["premise"], row["hypothesis"], row["label"], row["who"]) for row in ROWS]


def as_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.json", "a.tsv", "a.parquet", "saved"])
def test_every_form_gives_the_same_texts_as_often_as_one_likes(write, tmp_path, name):
    match name:
        case "a.parquet":
            pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / name)
        case "saved":
            datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / name)
        case "a.tsv":
            write(name, "".join("\t".join(row) + "\n" for row in [list(ROWS[0]), *(row.values() for row in ROWS)]))
        case "a.json":
            write(name, json.dumps(ROWS))
        case _:
            write(name, as_lines(ROWS))
    opened = labelled(tmp_path / name, PAIRED)
    assert list(opened) == TEXTS
    assert list(opened) == TEXTS
    assert opened.left_out() == 0
    assert labels_of(opened) == ("contradiction", "entailment", "neutral")


def test_columns_that_are_numbers_have_no_header(write):
    path = write("a.csv", '1,"Good, really"\n0,Bad\n')
    assert list(labelled(path, Columns("1", "0"))) == [("Good, really", None, "1", None), ("Bad", None, "0", None)]


def test_two_aligned_files_are_texts_and_their_labels(write):
    files = write("seq.in", "fly to boston \nhow much\n"), write("label", "atis_flight\natis_airfare\n")
    assert list(labelled(files)) == [
        ("fly to boston ", None, "atis_flight", None),
        ("how much", None, "atis_airfare", None),
    ]
    write("label", "atis_flight\n\n")
    with pytest.raises(BadInput) as refusal:
        list(labelled(files))
    assert str(refusal.value) == f"{files[1]}, line 2: the label (label) cannot be empty; correct the text."
    with pytest.raises(BadInput, match=r"^source = 3 files: aligned texts are two, the text's and the label's\.$"):
        labelled([*files, files[0]])


def test_a_folder_for_each_label_holds_a_text_a_file(write, tmp_path):
    for name, text in {"neg/0_1.txt": "Bad.\nReally.", "pos/1_9.txt": "Good.", "neg/1_2.txt": "Worse."}.items():
        write(f"train/{name}", text)
    opened = labelled(tmp_path / "train")
    assert list(opened) == [
        ("Bad.\nReally.", None, "neg", None),
        ("Worse.", None, "neg", None),
        ("Good.", None, "pos", None),
    ]
    assert [path.name for path in opened.files] == ["0_1.txt", "1_2.txt", "1_9.txt"]
    assert opened.places == (tmp_path / "train",)  # all of them have one ledger, beside the folder
    (tmp_path / "train" / "neg").rename(tmp_path / "train" / "awful")
    assert labelled(tmp_path / "train").reading != opened.reading
    path = write("train/awful/3_1.txt", " ")
    with pytest.raises(BadInput) as refusal:
        list(labelled(tmp_path / "train"))
    assert str(refusal.value) == f"{path}: the text (text) is empty; correct the text."


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(BadInput) as refusal:
        labelled(tmp_path)
    assert str(refusal.value) == (
        f"{tmp_path}: it has no folders with texts, such as pos/1.txt, and `datasets` did not save it."
    )


@pytest.mark.parametrize("value", [1, "1", "pos", " pos "])
def test_a_label_that_is_a_number_takes_its_name(write, value):
    path = write("a.jsonl", as_lines([{"text": "x", "label": value}]))
    assert next(iter(labelled(path, names=("neg", "pos")))).label == "pos"
    assert next(iter(labelled(path))).label == str(value).strip()


def test_a_truth_value_is_a_label(write):
    path = write("a.jsonl", as_lines([{"text": "x", "label": True}, {"text": "y", "label": False}]))
    assert labels_of(labelled(path)) == ("false", "true")


def test_a_class_label_of_datasets_has_its_names(tmp_path):
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})
    part = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [1, 0, -1]}, features=features)
    datasets.DatasetDict(train=part).save_to_disk(tmp_path / "saved")
    opened = labelled(tmp_path / "saved", split="train", skip=["-1"])
    assert [(record.text, record.label) for record in opened] == [("a", "pos"), ("b", "neg")]
    assert opened.left_out() == 1
    renamed = labelled(tmp_path / "saved", names=["bad", "good"], skip=["-1"])
    assert [record.label for record in renamed] == ["good", "bad"]
    assert renamed.reading != opened.reading


def test_labels_to_skip_are_left_out_and_counted(write):
    rows = [{"text": str(number), "label": label} for number, label in enumerate(["yes", "-", "no", "-"])]
    path = write("a.jsonl", as_lines(rows))
    opened = labelled(path, skip=["-"])
    assert [record.text for record in opened] == ["0", "2"]
    assert opened.left_out() == 2
    assert labels_of(opened) == ("no", "yes")
    assert [record.label for record in labelled(path)] == ["yes", "-", "no", "-"]
    with pytest.raises(BadInput, match=r"none of its texts is within the bounds; widen them, or give another file\.$"):
        list(labelled(path, skip=["-", "yes", "no"]))


def test_a_share_is_held_out_by_owner(write):
    rows = [{"text": f"{number}", "label": "-" if number % 3 else "a", "who": number // 6} for number in range(300)]
    everything = labelled(write("a.jsonl", as_lines(rows)), Columns(owner="who"), skip=["-"])
    most, few = map(list, divided(everything, 0.3))
    assert sorted(most + few) == sorted(everything)
    assert not {text.owner for text in most} & {text.owner for text in few}
    assert 10 < len(few) < 50


GOOD = '{"text": "x", "label": 0}\n'


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", ": it has no texts; fill it, or give another file."),
        (GOOD + '{"text": "x"}', ", line 2: the label (label) is missing; there are text."),
        (GOOD + '{"text": " ", "label": 1}', ", line 2: the text (text) is empty; correct the text."),
        (GOOD + '{"text": 3, "label": 1}', ", line 2: the text (text) is a number, and must be a text."),
        (GOOD + '{"text": "x", "label": null}', ", line 2: the label (label) cannot be empty; correct the text."),
        (
            '{"text": "x", "label": 0.5}',
            ", line 1: the label (label) cannot be a number, but a text or a whole number.",
        ),
        (
            '{"text": "x", "label": ["a"]}',
            ", line 1: the label (label) cannot be a list, but a text or a whole number.",
        ),
        (
            GOOD + '{"text": "x", "label": 2}',
            ", line 2: the label (label) cannot be 2; there are pos, neg, or their numbers from 0 on.",
        ),
        (
            GOOD + '{"text": "x", "label": -1}',
            ", line 2: the label (label) cannot be -1; there are pos, neg, or their numbers from 0 on.",
        ),
        (
            GOOD + '{"text": "x", "label": "nag"}',
            ", line 2: the label (label) cannot be nag; there are neg, pos, or their numbers from 0 on.",
        ),
        ("[3]", ", line 1: it is a number, and must be an object with the fields text and label."),
    ],
)
def test_what_is_wrong_with_a_text_is_one_sentence(write, content, sentence):
    path = write("a.jsonl", content)
    with pytest.raises(BadInput) as refusal:
        list(labelled(path, names=("neg", "pos")))
    assert str(refusal.value) == f"{path}{sentence}"


def test_half_a_pair_is_refused(write):
    path = write("a.jsonl", '{"premise": "x", "hypothesis": "", "label": "neutral", "who": 1}')
    with pytest.raises(BadInput, match=r"a\.jsonl, line 1: the pair \(hypothesis\) is empty; correct the text\.$"):
        list(labelled(path, PAIRED))


def test_a_file_of_another_kind_is_refused(write):
    path = write("a.doc", "x")
    with pytest.raises(BadInput) as refusal:
        labelled(path)
    assert str(refusal.value) == (
        f"{path}: a file of texts must end in .jsonl, .json, .csv, .tsv, .parquet, with or without .gz or .xz; rename "
        "it, or give two paths if it has a line for each text and another file has the labels."
    )


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@given(st.lists(st.builds(Labelled, TEXT, st.none(), TEXT.map(str.strip), TEXT), min_size=1, max_size=5))
def test_what_is_written_as_json_lines_is_read_again(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("labelled") / "a.jsonl"
    path.write_text(as_lines([text._asdict() for text in texts]))
    assert list(labelled(path, Columns(owner="owner"))) == texts
