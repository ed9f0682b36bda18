"""Texts without labels, from lines and from tables."""

import gzip

import pytest

from dpnlp.checks import BadInput
from dpnlp.data.plain import Columns, Text, plain


def test_a_text_a_line(tmp_path):
    (tmp_path / "a.txt").write_text("one text\n\n  another  \n", encoding="utf-8")
    with gzip.open(tmp_path / "b.txt.gz", "wt", encoding="utf-8") as file:
        file.write("ein Übel\n")
    assert list(plain(tmp_path / "a.txt")) == [Text("one text", None), Text("another", None)]
    assert list(plain(tmp_path / "b.txt.gz")) == [Text("ein Übel", None)]


def test_a_column_of_a_table(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"note": "one", "who": 3, "other": "x"}\n')
    (tmp_path / "a.csv").write_text("note,who\none,3\n")
    for name in ("a.jsonl", "a.csv"):
        assert list(plain(tmp_path / name, Columns("note", "who"))) == [Text("one", "3")]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.txt", b"\n \n", "it has no texts; fill it"),
        ("latin.txt", b"ok\n\xff\n", "line 2"),
        ("blank.jsonl", b'{"text": "a"}\n{"text": " "}\n', r"line 2: the text \(text\) is empty"),
        ("other.jsonl", b'{"txt": "a"}\n', r"line 1: the text \(text\) is missing; there are txt"),
    ],
)
def test_refusals(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=said):
        list(plain(tmp_path / name))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(BadInput, match=r"gone\.txt: there is no such file"):
        plain(tmp_path / "gone.txt")
