"""Examples of any columns: what a loop would pad, records of several examples, and vectors in place of numbers."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp.atomic import alone
from dpnlp.checks import BadInput
from dpnlp.data import cache as cached
from dpnlp.data.cache import Column, Examples, Ragged, finished, kept
from dpnlp.data.formats import Json
from dpnlp.data.records import ColumnNames, Records

COLUMNS = (Column("ids", 0, "mask"), Column("tags", -1), Column("label", ragged=False))


class Word(NamedTuple):
    """A word and whose it is."""

    word: str
    owner: str | None


@dataclass(frozen=True)
class Words(Records[Word]):
    """Lines of {"word": …, "owner": …}."""

    noun: ClassVar[str] = "word"

    def record(self, row):
        return Word(row.text("word", "word"), row.owner("owner"))


def letters(batch):
    """Each word becomes an example for each of its first letters: a is of one letter, ab of one and of two."""
    made = {"ids": [], "tags": [], "label": [], "record": []}
    for place, record in enumerate(batch):
        for length in range(1, len(record.word) + 1):
            made["ids"].append([ord(letter) for letter in record.word[:length]])
            made["tags"].append([-1] * (length - 1) + [length])
            made["label"].append(-length)
            made["record"].append(place)
    return made


def put(write, tmp_path, words=("ab", "c", "defg"), owners=("x", "y", "x"), largest=200, columns=COLUMNS):
    rows = "".join(f'{{"word": "{word}", "owner": "{owner}"}}\n' for word, owner in zip(words, owners, strict=True))
    records = Words(Json((write("words.jsonl", rows),)), ColumnNames())
    return kept(records, columns, letters, ("letters",), cache=tmp_path / "cache", largest=largest)


@pytest.mark.parametrize("batch", [1, 2, 4096])
def test_a_record_of_several_examples_is_told_from_others_and_keeps_its_owner(write, tmp_path, monkeypatch, batch):
    monkeypatch.setattr(cached, "_BATCH", batch)
    found = put(write, tmp_path)
    assert len(found) == 7
    assert found.records.tolist() == [0, 0, 1, 2, 2, 2, 2]
    assert found.owners.tolist() == [0, 0, 1, 0, 0, 0, 0]
    assert found.lengths.tolist() == [1, 2, 1, 1, 2, 3, 4]
    assert found.single["label"].tolist() == [-1, -2, -1, -1, -2, -3, -4]


def test_each_column_is_padded_with_its_own_number_and_only_those_with_a_mask_show_it(write, tmp_path):
    got = put(write, tmp_path).batch(np.array([6, 0]), 5)
    assert got.keys() == {"ids", "mask", "tags", "label"}
    assert got["ids"].tolist() == [[*map(ord, "defg"), 0], [ord("a"), 0, 0, 0, 0]]
    assert got["tags"].tolist() == [[-1, -1, -1, 4, -1], [1, -1, -1, -1, -1]]
    assert got["mask"].tolist() == [[True] * 4 + [False], [True] + [False] * 4]
    assert got["label"].tolist() == [-4, -1]
    assert {name: str(value.dtype) for name, value in got.items()} == {
        "ids": "int32",
        "mask": "bool",
        "tags": "int32",
        "label": "int32",
    }


def test_what_is_kept_in_memory_alone_is_the_same(write, tmp_path):
    made = letters([Word(word, None) for word in ("ab", "c", "defg")])
    found, there = Examples.of(COLUMNS, made), put(write, tmp_path)
    rows = np.array([3, 6, 2])
    for name, value in found.batch(rows, 3).items():
        np.testing.assert_array_equal(value, there.batch(rows, 3)[name])
    assert found.records.tolist() == there.records.tolist()
    assert found.lengths.tolist() == there.lengths.tolist()


def test_only_numbers_that_are_never_negative_take_two_bytes(write, tmp_path):
    folder = put(write, tmp_path).folder
    numbers = 1 + 2 + 1 + 1 + 2 + 3 + 4
    assert ((folder / "ids").stat().st_size, (folder / "tags").stat().st_size) == (2 * numbers, 4 * numbers)
    wide = put(write, tmp_path / "wide", largest=2**16).folder
    assert (wide / "ids").stat().st_size == 4 * numbers


def test_other_columns_have_another_place(write, tmp_path):
    places = {
        put(write, tmp_path, columns=columns).folder
        for columns in (COLUMNS, (COLUMNS[0], Column("tags", -2), COLUMNS[2]), COLUMNS[:2], COLUMNS)
    }
    assert len(places) == 3


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5), st.integers(1, 6), st.data())
def test_vectors_are_padded_as_a_loop_would(sizes, length, data):
    rows = data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=6))
    numbers = np.random.default_rng(0).normal(size=(sum(sizes), 3)).astype(np.float16)
    ragged = Ragged(numbers, np.cumsum([0, *sizes]))
    found, real = ragged.padded(np.array(rows, np.int64), length, 0)
    assert (found.shape, found.dtype) == ((len(rows), length, 3), np.float16)
    for row, own, mask in zip(rows, found, real, strict=True):
        vectors = numbers[sum(sizes[:row]) : sum(sizes[: row + 1])][:length]
        np.testing.assert_array_equal(own[: len(vectors)], vectors)
        assert not own[len(vectors) :].any()
        assert mask.tolist() == [place < sizes[row] for place in range(length)]


@settings(max_examples=50)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(1, 5), st.sampled_from([40, 48, 64]))
def test_by_length_each_example_comes_once_padded_as_its_own_length_asks_for(sizes, size, longest):
    examples = Examples.of([Column("ids", 0, "mask")], {"ids": [[1] * length for length in sizes]})
    seen = []
    for rows, batch in examples.by_length(size, longest):
        assert batch["ids"].shape[0] == size
        for row, ids, mask in zip(rows, batch["ids"], batch["mask"], strict=False):
            seen.append(int(row))
            assert len(ids) == min(longest, next(length for length in (16, 32, 64) if length >= sizes[row]))
            assert ids.sum() == mask.sum() == sizes[row]
    assert sorted(seen) == list(range(len(sizes)))


def test_what_breaks_off_leaves_nothing_and_what_is_there_is_not_made_again(tmp_path):
    def broken(folder):
        (folder / "half").write_text("half")
        raise ValueError("broken off")

    with pytest.raises(ValueError, match="broken off"):
        finished(tmp_path / "cache", "name", broken)
    assert list((tmp_path / "cache").iterdir()) == []
    folder = finished(tmp_path / "cache", "name", lambda folder: (folder / "whole").write_text("whole"))
    assert finished(tmp_path / "cache", "name", broken) == folder
    assert [path.name for path in folder.iterdir()] == ["whole"]


def test_whoever_finds_a_folder_removes_what_a_killed_process_left_beside_it(tmp_path):
    folder = finished(tmp_path, "name", lambda folder: (folder / "whole").write_text("whole"))
    for left in (".name.dpnlp-lock", ".other.dpnlp-unfinished"):
        (tmp_path / left).write_text("")
    with alone(tmp_path / "busy"):
        (tmp_path / ".name.dpnlp-lock").write_text("")
        assert finished(tmp_path, "name", _never) == folder
        assert {path.name for path in tmp_path.iterdir()} == {"name", ".busy.dpnlp-lock"}


def _never(folder):
    raise AssertionError


@pytest.mark.parametrize("name", ["tags", "tags.offsets", "label", "records"])
def test_a_damaged_column_is_not_believed(write, tmp_path, name):
    folder = put(write, tmp_path).folder
    (folder / name).write_bytes((folder / name).read_bytes()[:-1])
    with pytest.raises(BadInput, match=f"{name}: it is damaged or missing; delete its folder"):
        Examples.opened(folder)
