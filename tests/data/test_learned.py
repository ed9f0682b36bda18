"""What was learned from is known again in whatever shape it comes, and is remembered for its owner alone."""

import stat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.data.graph_texts import graph_of_texts
from dpnlp.data.identity import Identity, Seen
from dpnlp.data.labelled import Labelled
from dpnlp.data.learned import Learned, forget
from dpnlp.data.pairs import Pair
from dpnlp.data.plain import Text
from dpnlp.data.questions import Question
from dpnlp.data.tagged import Tagged
from dpnlp.home import home

WORDS = st.lists(st.text("abcdefgh", min_size=1, max_size=5), min_size=1, max_size=4).map(tuple)
FORMS = (
    lambda words, other: Text(" ".join(words), None),
    lambda words, other: Pair(" ".join(words), other, "who"),
    lambda words, other: Pair(other, "  ".join(words).upper(), None),
    lambda words, other: Labelled(f"{', '.join(words)}.", None, "label", None),
    lambda words, other: Labelled(other, "-".join(words), "label", "who"),
    lambda words, other: Tagged(words, ("O",) * len(words), None),
    lambda words, other: Question("1", " ".join(words), other, (), None),
    lambda words, other: Question("1", other, " ".join(words), (), None),
)


@given(st.lists(WORDS, min_size=1, max_size=6), WORDS, st.sampled_from(FORMS), st.sampled_from(FORMS))
def test_a_record_is_known_if_and_only_if_one_of_its_texts_is(texts, asked, one, other):
    """The oracle compares letters; what stands beside a text is a number, so that no text is known for that."""
    learned = Learned.of([one(words, str(place)) for place, words in enumerate(texts)])
    known = {"".join(words) for words in texts}
    assert learned.has(other(asked, "77")) is ("".join(asked) in known)


def test_blank_texts_are_no_texts():
    learned = Learned.of([Labelled("one", "", "a", None), Pair("two", "  ", None)])
    assert not learned.has(Labelled("three", "", "a", None))
    assert learned.has(Labelled("two", "", "a", None))


def test_a_node_is_known_under_another_name_and_in_a_file_of_texts(tmp_path):
    for name, names in {"one": "abc", "other": "xyz"}.items():
        rows = [f'{{"id": "{own}", "text": "post {n}", "label": "l"}}' for n, own in enumerate(names)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
        (tmp_path / f"{name}.tsv").write_text(f"{names[0]}\t{names[1]}\n")
    one, other = (
        graph_of_texts(tmp_path / f"{name}.jsonl", tmp_path / f"{name}.tsv", test=0.0) for name in ("one", "other")
    )
    found = Identity.of_owner().nodes(one, [0, 2])
    learned = Learned(Seen(found, found))
    assert [learned.has_node(other, node) for node in range(3)] == [True, False, True]
    assert learned.has(Text("Post 2!", None))


def test_it_is_kept_under_the_id_of_the_run_for_its_owner_alone():
    first, second = Learned.of([Text("a", None), Text("b", None)]), Learned.of([Pair("c", "d", None)])
    first.keep("00ff")
    second.keep("11ff")
    for place in (home(), home() / "learned", *(home() / "learned").iterdir()):
        assert stat.S_IMODE(place.stat().st_mode) & 0o077 == 0
    for run, kept in {"00ff": first, "11ff": second}.items():
        found = Learned.recall(run)
        assert np.array_equal(found.seen.records.numbers, kept.seen.records.numbers)
        assert np.array_equal(found.seen.texts.numbers, kept.seen.texts.numbers)
    both = Learned.recall("00ff") | Learned.recall("11ff")
    assert [both.has(Text(text, None)) for text in "abcde"] == [True] * 4 + [False]
    forget("00ff")
    assert Learned.recall("00ff") is None


def test_what_is_learned_from_the_same_texts_has_one_id():
    """So a maker that was killed and began anew leaves nothing under an id that nobody knows."""
    texts = [Text(text, None) for text in ("Good morning to you.", "How are you today?")]
    first, again, other = (Learned.of(some) for some in (texts, texts[::-1], texts[:1]))
    assert first.id == again.id != other.id
    first.keep(first.id)
    assert Learned.recall(again.id) == again


@pytest.mark.parametrize("run", ["../key", "", "a/b", "."])
def test_an_id_is_no_path(run):
    with pytest.raises(BadInput, match="the id of a run"):
        Learned.recall(run)


def test_a_damaged_memory_is_refused():
    Learned.of([Text("a", None)]).keep("33ff")
    (home() / "learned" / "33ff.npz").write_bytes(b"PK")
    with pytest.raises(BadInput, match="cannot be read"):
        Learned.recall("33ff")
