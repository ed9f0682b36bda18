"""Texts with edges become graphs, features need no vocabulary, and what is wrong is named with its line."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.data.graph_texts import Columns, HashedWords, graph_of_texts, pairs_of, vectors

ROWS = [
    {"id": "a", "text": "Fever and cough", "label": "flu", "split": "train"},
    {"id": "b", "text": "A broken arm", "label": "arm", "split": "train"},
    {"id": 7, "text": " ", "label": "flu", "split": "validation"},
    {"id": "d", "text": "Cough.", "label": "flu", "split": "test"},
    {"id": "e", "text": "An arm", "label": None, "split": ""},
]
EDGES = "# FromNodeId\tToNodeId\na\tb\nb\ta\n7,d\n\n  e a\nd d\n"
SPLIT = Columns(split="split")


@pytest.fixture
def files(write):
    """Writes a table of texts and a list of edges."""

    def files(rows=ROWS, edges=EDGES):
        return write("t.jsonl", "".join(json.dumps(row) + "\n" for row in rows)), write("edges.txt", edges)

    return files


def test_a_table_and_a_list_of_edges_are_a_graph(files):
    paths = files()
    corpus = graph_of_texts(*paths, SPLIT)
    graph = corpus.graph
    assert graph.edges.tolist() == [[0, 1], [0, 4], [2, 3]]
    assert (graph.classes, graph.labels.tolist()) == (("arm", "flu"), [1, 0, 1, 1, -1])
    assert [part.tolist() for part in (corpus.train, corpus.validation, corpus.test)] == [[0, 1], [2], [3]]
    assert corpus.files == paths
    assert not corpus.public_classes
    assert graph.features.sum(axis=1).tolist() == [3, 3, 0, 1, 2]
    assert (graph.features[0] * graph.features[3]).sum() == 1


def test_the_same_in_other_formats(write, files):
    expected = graph_of_texts(*files(), SPLIT).graph
    cells = [[str(row[name] or "") for name in row] for row in ROWS]
    for name, mark in (("t.tsv.gz", "\t"), ("t.csv", ",")):
        path = write(name, "".join(mark.join(line) + "\n" for line in [list(ROWS[0]), *cells]))
        graph = graph_of_texts(path, write("edges.txt.gz", EDGES), SPLIT).graph
        np.testing.assert_array_equal(graph.features, expected.features)
        np.testing.assert_array_equal(graph.edges, expected.edges)
        np.testing.assert_array_equal(graph.labels, expected.labels)


def test_classes_that_are_known_beforehand_are_public_and_may_be_numbers(files):
    rows = [{**row, "label": {"arm": 0, "flu": 2, None: None}[row["label"]]} for row in ROWS]
    corpus = graph_of_texts(*files(rows), SPLIT, classes=("arm", "leg", "flu"))
    assert corpus.public_classes
    assert (corpus.graph.classes, corpus.graph.labels.tolist()) == (("arm", "leg", "flu"), [2, 0, 2, 2, -1])


def test_without_a_column_texts_are_divided_by_their_ids(files):
    rows = [{"id": str(number), "text": "x", "label": "ab"[number % 2] if number % 5 else ""} for number in range(200)]
    corpus, turned = (graph_of_texts(*files(some, ""), validation=0.2, test=0.3) for some in (rows, rows[::-1]))
    sizes = [len(nodes) for nodes in (corpus.train, corpus.validation, corpus.test)]
    assert sum(sizes) == 160
    assert sizes == pytest.approx([80, 32, 48], abs=20)
    assert {199 - node for node in turned.test.tolist()} == set(corpus.test.tolist())
    assert len(corpus.graph.edges) == 0


def test_features_may_come_from_an_encoder_that_sees_no_blank_text(files):
    seen = []

    def encode(texts):
        seen.extend(texts)
        return np.array([[len(text), 1.0] for text in texts])

    features = graph_of_texts(*files(), SPLIT, encode=encode).graph.features
    assert features.tolist() == [[15, 1], [12, 1], [0, 0], [6, 1], [6, 1]]
    assert seen == [row["text"] for row in ROWS if row["text"].strip()]
    assert vectors(["", " "], HashedWords(8)).tolist() == [[0] * 8] * 2


@pytest.mark.parametrize("wrong", [np.zeros(4), np.zeros((3, 2)), np.array([["a"]] * 4)])
def test_an_encoder_that_does_not_give_a_row_for_each_text_is_refused(files, wrong):
    with pytest.raises(
        BadInput, match=re.escape(f"encode = {wrong.dtype} of shape {wrong.shape} for 4 texts: it must")
    ):
        graph_of_texts(*files(), SPLIT, encode=lambda texts: wrong)


@given(st.lists(st.text("ab C1.,\n", max_size=12), max_size=6), st.integers(1, 50))
def test_a_column_of_hashed_words_is_told_by_the_word_alone(texts, columns):
    words = HashedWords(columns)
    alone = [{int(words([word]).argmax()) for word in re.split(r"[^a-c1]+", text.lower()) if word} for text in texts]
    expected = [[float(column in own) for column in range(columns)] for own in alone]
    assert words(texts).tolist() == expected


def test_hashed_words_are_the_same_in_every_process():
    code = "from dpnlp.data.graph_texts import HashedWords; print(HashedWords(999)(['mačka a pes']).nonzero()[1])"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert printed == {f"{HashedWords(999)(['PES, a mačka!']).nonzero()[1]}\n"}


def test_hashed_words_need_a_column():
    with pytest.raises(BadInput, match=r"columns = 0: it must be a whole number of at least 1"):
        HashedWords(0)


def changed(number, **fields):
    return [{**row, **(fields if place == number else {})} for place, row in enumerate(ROWS)]


@pytest.mark.parametrize(
    ("rows", "edges", "message"),
    [
        (
            changed(3, id="a"),
            "",
            "t.jsonl, line 4: the id (id) is a, as in FOLDER/t.jsonl, line 1; give each text an id",
        ),
        (changed(1, id=""), "", "t.jsonl, line 2: the id (id) cannot be empty; correct the text."),
        (changed(1, id=[1]), "", "t.jsonl, line 2: the id (id) cannot be a list, but a text or a whole number."),
        (changed(1, text=3), "", "t.jsonl, line 2: the text (text) is a number, and must be a text."),
        (
            changed(1, split="dev"),
            "",
            "t.jsonl, line 2: the split (split) is dev, and must be train, validation, test or",
        ),
        (changed(1, label=""), "", "t.jsonl, line 2: the split (split) is train, and the text has no label; leave it"),
        (
            changed(3, label="leg"),
            "",
            "t.jsonl, line 4: the label (label) is leg, and no training text has it; give all",
        ),
        ([{"id": "a", "text": "b"}], "", "t.jsonl, line 1: the label (label) is missing; there are "),
        ([3], "", "t.jsonl, line 1: it is a number, and must be an object with the fields id and text and label and"),
        ([], "", "t.jsonl: it has no texts; fill it, or give another file."),
        (
            ROWS,
            "a b\n\nb  c\n",
            "edges.txt, line 3: there is no text with the id c; remove the edge, or add the text to",
        ),
        (ROWS, "x\ta\n", "edges.txt, line 1: there is no text with the id x; remove the edge"),
        (
            ROWS,
            "a b 1\n",
            "edges.txt, line 1: it must have two ids, with a tab, a comma or a space between them, and has 3",
        ),
        (
            ROWS,
            "#\na\n",
            "edges.txt, line 2: it must have two ids, with a tab, a comma or a space between them, and has 1",
        ),
        (
            ROWS,
            "a,\n",
            "edges.txt, line 1: it must have two ids, with a tab, a comma or a space between them, and has 1",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(files, tmp_path, rows, edges, message):
    with pytest.raises(BadInput, match=re.escape(f"{tmp_path}/{message.replace('FOLDER', str(tmp_path))}")):
        graph_of_texts(*files(rows, edges), SPLIT)


def test_a_label_that_is_none_of_the_classes_is_refused(files):
    with pytest.raises(BadInput, match=r"line 2: the label \(label\) cannot be arm; there are flu, or their numbers"):
        graph_of_texts(*files(), SPLIT, classes=("flu",))


def test_files_that_are_missing_are_refused(files, tmp_path):
    texts, edges = files()
    with pytest.raises(BadInput, match=r"none\.jsonl: there is no such file; check the path\.$"):
        graph_of_texts(tmp_path / "none.jsonl", edges)
    with pytest.raises(BadInput, match=r"none\.txt: there is no such file; check the path\.$"):
        graph_of_texts(texts, tmp_path / "none.txt", SPLIT)


def test_edges_to_others_are_left_out_where_nothing_is_to_be_done(write):
    path = write("edges.txt", "1 2\n2 3\n3 1\n2 1\n")
    assert pairs_of(path, {"1": 0, "3": 1}).tolist() == [[1, 0]]
