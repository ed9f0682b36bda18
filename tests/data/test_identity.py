"""A record is recognised however it is written, and a fingerprint tells nothing without its key."""

import gzip
import json
import lzma
import stat
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.data.graph_texts import graph_of_texts
from dpnlp.data.identity import Fingerprints, Identity, normal_form
from dpnlp.data.labelled import Columns as LabelledColumns
from dpnlp.data.labelled import labelled
from dpnlp.data.pairs import Columns, pairs
from dpnlp.data.plain import plain
from dpnlp.data.questions import questions
from dpnlp.data.tagged import tagged
from dpnlp.home import home, owner_key

MINE = Identity(b"m" * 32)


class Record(NamedTuple):
    texts: tuple[str, ...]


TEXTS = ["Dr. Weiß saw Anna on Monday.", "The bed was too short,  she said.", "熱があります。", "नमस्ते दुनिया", ":-)"]


@pytest.fixture
def written(tmp_path):
    """The texts as a text a line, and what each other form of the same texts is read as."""
    path = tmp_path / "a.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    return path


def rows(**columns):
    return "".join(
        f"{json.dumps(dict(zip(columns, row, strict=True)))}\n" for row in zip(*columns.values(), strict=True)
    )


def test_the_same_texts_in_another_form_are_the_same_records(tmp_path, written):
    own = MINE.records(plain(written))
    forms = {
        "shuffled.txt": "".join(f"{text}\n" for text in TEXTS[::-1]),
        "a.jsonl": rows(text=TEXTS, extra=range(5)),
        "a.csv": "id,text\n" + "".join(f'{n},"{text}"\n' for n, text in enumerate(TEXTS)),
        "a.tsv": "text\tid\n" + "".join(f"{text}\t{n}\n" for n, text in enumerate(TEXTS)),
    }
    for name, content in forms.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(written.read_bytes()))
    (tmp_path / "b.txt.xz").write_bytes(lzma.compress(written.read_bytes()))
    (tmp_path / "link.txt").hardlink_to(written)
    for name in [*forms, "a.txt.gz", "b.txt.xz", "link.txt"]:
        found = MINE.records(plain(tmp_path / name))
        assert np.array_equal(found.numbers, own.numbers), name


def test_another_column_for_the_text_or_labels_and_owners_make_no_difference(tmp_path):
    (tmp_path / "a.jsonl").write_text(rows(text=TEXTS, label="abcde", owner="vwxyz"))
    (tmp_path / "b.jsonl").write_text(rows(said=TEXTS, label="eeeee"))
    first = labelled(tmp_path / "a.jsonl", LabelledColumns(owner="owner"))
    second = labelled(tmp_path / "b.jsonl", LabelledColumns(text="said"))
    third = plain(tmp_path / "a.jsonl")
    prints = [MINE.records(stream).to_bytes() for stream in (first, second, third)]
    assert prints[0] == prints[1] == prints[2]


def test_a_join_and_a_subset_overlap_and_strangers_do_not(tmp_path):
    (tmp_path / "joined.txt").write_text("One more.\n" + "".join(f"{text}\n" for text in TEXTS))
    (tmp_path / "one.txt").write_text(TEXTS[2] + "\n")
    (tmp_path / "others.txt").write_text("Nobody said this.\nNor that.\n")
    own = Fingerprints.of(map(MINE.text, TEXTS))
    joined, one, others = (MINE.records(plain(tmp_path / name)) for name in ("joined.txt", "one.txt", "others.txt"))
    assert len(own.common(joined)) == len(TEXTS)
    assert len(own.common(one)) == 1
    assert own.overlaps(one)
    assert not own.overlaps(others)
    assert len(own | others) == len(TEXTS) + 2


def test_each_side_of_a_pair_is_recognised_by_itself(tmp_path):
    (tmp_path / "a.jsonl").write_text(rows(de=["Guten Tag.", "Ja."], en=["Good day.", "Yes."]))
    (tmp_path / "a.de").write_text("Guten Tag.\nJa.\n")
    (tmp_path / "a.en").write_text("Good day.\nYes.\n")
    table, aligned = pairs(tmp_path / "a.jsonl", Columns("de", "en")), pairs([tmp_path / "a.de", tmp_path / "a.en"])
    assert MINE.records(table).to_bytes() == MINE.records(aligned).to_bytes()
    assert MINE.seen(table).texts.to_bytes() == MINE.seen(aligned).texts.to_bytes()
    for side in ("a.de", "a.en"):
        assert len(MINE.seen(table).texts.common(MINE.seen(plain(tmp_path / side)).texts)) == 2
    assert not MINE.records(table).overlaps(MINE.records(plain(tmp_path / "a.de")))
    assert not MINE.records(table).overlaps(MINE.records(pairs([tmp_path / "a.en", tmp_path / "a.de"])))


def test_a_sentence_is_the_same_tagged_and_as_running_text(tmp_path):
    (tmp_path / "a.conll").write_text("Dr. A\nWeiß B\nsaw O\nAnna B\non O\nMonday O\n. O\n\n")
    (tmp_path / "a.jsonl").write_text(json.dumps({"words": "Dr. Weiß saw Anna on Monday .", "tags": "O O O O O O O"}))
    for name in ("a.conll", "a.jsonl"):
        assert MINE.text(TEXTS[0]) in MINE.records(tagged(tmp_path / name))


def test_a_question_is_known_by_itself_and_by_its_context(tmp_path):
    asked = {
        "id": ["1"],
        "question": ["Who?"],
        "context": ["Anna sat."],
        "answers": [[{"text": "Anna", "answer_start": 0}]],
    }
    (tmp_path / "a.jsonl").write_text(rows(**asked))
    found = MINE.seen(questions(tmp_path / "a.jsonl")).texts
    assert MINE.text("who") in found
    assert MINE.text("anna sat") in found


def test_a_node_is_known_by_its_text_under_any_name_and_with_any_features(tmp_path):
    (tmp_path / "a.jsonl").write_text(rows(id="ab", text=TEXTS[:2], label="xy"))
    (tmp_path / "b.jsonl").write_text(rows(id="cd", text=TEXTS[1::-1], label="xx"))
    for name, edge in (("a", "a\tb\n"), ("b", "c\td\n")):
        (tmp_path / f"{name}.tsv").write_text(edge)
    first, second = (graph_of_texts(tmp_path / f"{name}.jsonl", tmp_path / f"{name}.tsv", test=0) for name in "ab")
    assert MINE.node(first, 0) == MINE.node(second, 1) == MINE.text(TEXTS[0])
    assert MINE.nodes(first, [0, 1]).to_bytes() == MINE.nodes(second, [0, 1]).to_bytes()


def test_a_node_without_a_text_is_known_by_its_features_and_else_by_its_name(tmp_path):
    (tmp_path / "a.jsonl").write_text(rows(id="abc", text=["", "", "x"], label="xyx"))
    (tmp_path / "a.tsv").write_text("a\tb\n")
    corpus = graph_of_texts(tmp_path / "a.jsonl", tmp_path / "a.tsv", test=0)
    assert MINE.node(corpus, 0) != MINE.node(corpus, 1)
    object.__setattr__(corpus, "texts", ())
    assert len({MINE.node(corpus, node) for node in range(3)}) == 3


@given(st.text(), st.sampled_from([" ", "\t", "\n", "-", "\u00a0", "\u200b", "_", "'"]), st.data())
def test_spaces_punctuation_and_capitals_make_no_difference(text, between, data):
    places = data.draw(st.sets(st.integers(0, len(text)), max_size=3))
    written = "".join(between * (place in places) + letter for place, letter in enumerate(text + " "))
    if any(letter.isalnum() for letter in normal_form(text)):
        assert MINE.text(written) == MINE.text(text)


@given(st.text(st.characters(max_codepoint=127)))
def test_ascii_has_the_normal_form_of_any_text(text):
    """With a letter that is not ASCII it goes the long way."""
    assert normal_form(f"x{text}") + "ж" == normal_form(f"x{text}ж")


@given(st.lists(st.lists(st.sampled_from(["a b", "A-B", "c", "", " "]), min_size=1, max_size=3), max_size=5))
def test_records_are_read_once_for_both_sets(rows):
    records = [Record(tuple(row)) for row in rows]
    seen = MINE.seen(records)
    assert seen.records.to_bytes() == MINE.records(one for one in records if "".join(one.texts).strip()).to_bytes()
    assert seen.texts.to_bytes() == Fingerprints.of(MINE.text(t) for row in rows for t in row if t.strip()).to_bytes()


@given(st.lists(st.integers(0, 2**64 - 1)), st.lists(st.integers(0, 2**64 - 1)))
def test_a_set_is_as_one_of_python(first, second):
    one, two = Fingerprints.of(first), Fingerprints.of(second)
    assert one.common(two).numbers.tolist() == sorted({*first} & {*second})
    assert (one | two).numbers.tolist() == sorted({*first} | {*second})
    assert one.overlaps(two) == (not {*first}.isdisjoint(second))
    assert all(number in one for number in first)
    assert all((number in one) == (number in first) for number in second)
    assert Fingerprints.from_bytes(one.to_bytes()).numbers.tolist() == one.numbers.tolist()


@given(st.lists(st.sampled_from(["a b", "A-B", "ab", "c", "d e f"]), max_size=6))
def test_half_a_surrogate_pair_and_repeats_are_no_obstacle(texts):
    found = Fingerprints.of(MINE.text(text) for text in [*texts, "\ud800"])
    assert len(found) == len({normal_form(text) for text in texts}) + 1


def test_another_key_gives_other_fingerprints():
    other = Identity(b"n" * 32)
    assert not {MINE.text(text) for text in TEXTS} & {other.text(text) for text in TEXTS}


def test_the_key_is_kept_for_its_owner_alone():
    assert Identity.of_owner() == Identity.of_owner() == Identity(owner_key())
    assert stat.S_IMODE(home().stat().st_mode) == 0o700
    assert stat.S_IMODE((home() / "key").stat().st_mode) == 0o600
