"""Arrays give exactly the examples asked for, cut or padded to the length asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.data.arrays import Arrays

IDS = np.array([[1, 2, 3, 4], [5, 6, 0, 0], [7, 0, 0, 0]], np.int32)
LABELS = np.array([10, 20, 30])
ROWS = np.array([2, 0, 2])


def test_a_batch_has_the_shape_of_the_tree():
    for tree in ({"ids": IDS, "label": LABELS}, (IDS, LABELS), {"deep": (IDS, {"label": LABELS})}):
        data = Arrays(tree)
        assert len(data) == 3
        assert type(data.batch(ROWS, 1)) is type(tree)
    assert data.batch(ROWS, 1)["deep"][1]["label"].tolist() == [30, 10, 30]
    assert Arrays(LABELS).batch(ROWS, 1).tolist() == [30, 10, 30]


def test_without_lengths_all_are_one_long_and_nothing_is_cut():
    data = Arrays({"features": IDS})
    assert data.lengths.tolist() == [1, 1, 1]
    assert data.batch(ROWS, 1)["features"].tolist() == IDS[ROWS].tolist()


def test_tokens_are_cut_and_padded_with_zeros():
    data = Arrays({"ids": IDS, "label": LABELS}, lengths=[4, 2, 1])
    assert data.lengths.tolist() == [4, 2, 1]
    assert data.batch(np.array([1, 2]), 2)["ids"].tolist() == [[5, 6], [7, 0]]
    assert data.batch(np.array([0]), 6)["ids"].tolist() == [[1, 2, 3, 4, 0, 0]]
    assert data.batch(np.array([0]), 6)["label"].tolist() == [10]


def test_arrays_of_different_widths_come_out_equally_long():
    data = Arrays((IDS, np.ones((3, 2, 5), np.float16)), lengths=[4, 2, 1])
    source, target = data.batch(ROWS, 3)
    assert source.shape == (3, 3)
    assert target.shape == (3, 3, 5)
    assert target.dtype == np.float16
    assert target[:, 2].tolist() == np.zeros((3, 5)).tolist()


def test_an_example_longer_than_the_batch_is_cut():
    assert Arrays(IDS, lengths=[4, 2, 1]).batch(np.array([0]), 3).tolist() == [[1, 2, 3]]


def test_a_batch_is_a_copy():
    data = Arrays(IDS.copy())
    data.batch(np.array([0]), 1)[:] = 9
    assert data.batch(np.array([0]), 1).tolist() == [[1, 2, 3, 4]]


def test_mapped_files_are_not_read_into_memory(tmp_path):
    np.save(tmp_path / "ids.npy", IDS)
    mapped = np.load(tmp_path / "ids.npy", mmap_mode="r")
    data = Arrays(mapped, lengths=[4, 2, 1])
    assert np.shares_memory(data._examples, mapped)
    assert data.batch(np.array([1]), 2).tolist() == [[5, 6]]


@pytest.mark.parametrize(
    ("examples", "lengths", "sentence"),
    [
        (
            {"ids": IDS, "label": LABELS[:2]},
            None,
            "examples = arrays of 2, 3 rows: all must have the same number, above 0; align them.",
        ),
        ({}, None, "examples = arrays of no rows: all must have the same number, above 0; align them."),
        (np.zeros((0, 4)), None, "examples = arrays of 0 rows: all must have the same number, above 0; align them."),
        (np.array(5), None, "examples = arrays of 0 rows: all must have the same number, above 0; align them."),
        (
            IDS,
            [4, 2],
            "lengths = int64 of shape (2,): it must be one whole number for each of the 3 examples; "
            "count their tokens.",
        ),
        (
            IDS,
            [4.0, 2.0, 1.0],
            "lengths = float64 of shape (3,): it must be one whole number for each of the 3 examples; "
            "count their tokens.",
        ),
        (IDS, [4, 2, -1], "lengths = -1: it must be a whole number of at least 0."),
        (IDS, [4, 5, 1], "lengths = 5: no array has more than 4 tokens; count them again."),
        (LABELS, [1, 1, 1], "lengths = 1: no array has more than 0 tokens; count them again."),
    ],
)
def test_what_does_not_fit_together_is_refused(examples, lengths, sentence):
    with pytest.raises(BadInput) as refusal:
        Arrays(examples, lengths)
    assert str(refusal.value) == sentence


@given(st.lists(st.integers(0, 2), max_size=6), st.integers(1, 6))
def test_every_row_is_its_own_example_alone(rows, length):
    batch = Arrays(IDS, lengths=[4, 2, 1]).batch(np.array(rows, np.int64), length)
    assert batch.shape == (len(rows), length)
    for row, got in zip(rows, batch, strict=True):
        assert got.tolist() == [*IDS[row], 0, 0][:length]
