"""Rows of tokens against a loop over owners: no row has texts of two, and no owner's depend on another's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.data.cache import Ragged
from dpnlp.data.packing import packed

START = 1
TEXTS = st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(2, 9), max_size=7)), min_size=1, max_size=12)


def rows_of(texts, longest, most=None):
    """By owner, the rows that come out of texts given as (owner, tokens without the end)."""
    owners = np.array([owner for owner, _ in texts])
    made = packed(Ragged.of([[*tokens, START] for _, tokens in texts]), owners, longest=longest, start=START, most=most)
    found = {}
    for owner, row in zip(made.owners.tolist(), made.rows.lists(range(len(made.owners))), strict=True):
        found.setdefault(owner, []).append(row)
    return found


def naive(texts, longest, most):
    """Token by token: a row is full, and the next one begins with its last token."""
    found = {}
    for owner in {owner for owner, _ in texts}:
        stream = [token for other, tokens in texts if other == owner for token in (*tokens, START)]
        rows = [[START]]
        for token in stream if most is None else stream[:most]:
            if len(rows[-1]) == longest:
                rows.append(rows[-1][-1:])
            rows[-1].append(token)
        found[owner] = rows
    return found


@given(TEXTS, st.integers(2, 6), st.sampled_from([None, 1, 4, 100]))
def test_the_rows_are_those_of_a_loop(texts, longest, most):
    assert rows_of(texts, longest, most) == naive(texts, longest, most)


@given(TEXTS, st.integers(2, 6), st.sampled_from([None, 3]))
def test_the_rows_of_an_owner_depend_on_its_own_texts_alone(texts, longest, most):
    together = rows_of(texts, longest, most)
    for owner, rows in together.items():
        assert rows_of([text for text in texts if text[0] == owner], longest, most)[owner] == rows


@given(TEXTS, st.integers(2, 6))
def test_every_token_is_expected_exactly_once(texts, longest):
    for owner, rows in rows_of(texts, longest).items():
        expected = [token for row in rows for token in row[1:]]
        assert expected == [token for other, tokens in texts if other == owner for token in (*tokens, START)]
        assert all(2 <= len(row) <= longest for row in rows)
        assert all(len(row) == longest for row in rows[:-1])


@given(TEXTS, st.integers(2, 6), st.integers(1, 9))
def test_no_owner_has_more_tokens_than_the_cap(texts, longest, most):
    for rows in rows_of(texts, longest, most).values():
        assert 1 <= sum(len(row) - 1 for row in rows) <= most


def test_an_owner_with_one_text_and_one_with_ten_thousand():
    texts = [(0, [5]), *[(7, [3, 4])] * 10_000]
    found = rows_of(texts, 11, 100)
    assert found[0] == [[START, 5, START]]
    assert len(found[7]) == 10
    assert [len(rows) for rows in rows_of(texts, 11).values()] == [1, 3_000]


def test_an_empty_text_is_its_end():
    assert rows_of([(0, []), (0, []), (1, [])], 8) == {0: [[START, START, START]], 1: [[START, START]]}


@pytest.mark.parametrize("owned", [True, False])
def test_the_engine_gets_rows_with_their_lengths_and_owners(owned):
    texts = Ragged.of([[5, 6, 7, START], [8, START], [9, START]])
    examples = packed(texts, np.array([3, 4, 3]), longest=4, start=START).examples(owned)
    assert examples.lengths.tolist() == [4, 4, 3]
    assert (examples.owners.tolist() if owned else examples.owners) == ([3, 3, 4] if owned else None)
    batch = examples.batch(np.array([2, 1]), 5)
    assert batch["ids"].tolist() == [[1, 8, 1, 0, 0], [7, 1, 9, 1, 0]]
    assert batch["mask"].sum(axis=1).tolist() == [3, 4]


def test_nothing_gives_nothing():
    assert len(packed(Ragged.of([]), np.zeros(0, int), longest=4, start=START).owners) == 0
