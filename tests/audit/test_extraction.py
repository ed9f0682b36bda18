"""Extraction: against naive loops over words, and on made-up models that know their texts by heart, or do not."""

import math
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import hypergeom

from dpnlp.audit.extraction import Completion, Drawn, Extraction, Unprompted, compressed, ratios, suspected
from dpnlp.checks import BadInput

texts = st.lists(st.sampled_from(["a", "b", "c", "A"]), min_size=1, max_size=12).map(" ".join)


def longest_run(first, second):
    """All runs of one in the other."""
    first, second = first.lower().split(), second.lower().split()
    runs = [first[start:end] for start in range(len(first)) for end in range(start + 1, len(first) + 1)]
    there = [second[start : start + len(run)] for run in runs for start in range(len(second))]
    return max((len(run) for run in runs if run in there), default=0)


@given(texts, texts | st.just(""))
def test_a_run_is_the_longest_of_all_that_both_have(rest, written):
    assert Completion(rest, written).run == longest_run(rest, written)


@given(texts, texts | st.just(""))
def test_a_text_is_written_out_where_every_word_of_it_comes_in_its_place(rest, written):
    own, said = rest.lower().split(), written.lower().split()
    expected = len(said) >= len(own) and all(word == said[place] for place, word in enumerate(own))
    assert Completion(rest, written).whole is expected


def test_what_follows_the_text_or_stands_before_it_counts_as_such():
    assert Completion("to the  Clinic", "to the clinic and back").whole
    assert not Completion("to the clinic", "went to the clinic").whole
    assert Completion("to the clinic", "went to the clinic").run == 3


def test_shares_are_of_all_texts_and_of_all_words():
    found = Drawn.of([Completion("a b c d", "a b c d"), Completion("a b c d e f", "x b c y")])
    assert (found.texts, found.whole, found.words, found.verbatim) == (2, 1, 10, 6)
    assert (found.share, found.verbatim_share) == (0.5, 0.6)


def test_a_text_without_words_cannot_come_out():
    for completions in ([], [Completion(" ", "a")]):
        with pytest.raises(BadInput, match="completions: there must be some, and none without a word"):
            Drawn.of(completions)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=60))
def test_a_tenth_is_suspected_and_no_other_ranks_higher(ranks):
    found = suspected(ranks)
    assert len(set(found.tolist())) == len(found) == max(1, round(len(ranks) / 10))
    left = [rank for place, rank in enumerate(ranks) if place not in set(found.tolist())]
    assert all(ranks[place] >= max(left, default=-math.inf) for place in found)


def test_the_ratio_is_the_references_surprise_over_the_models():
    np.testing.assert_allclose(ratios([6.0, 3.0], [2.0, 6.0]), [3.0, 0.5])
    assert ratios([1.0], [0.0]) > 1e30
    for reference, own in (([1.0], [1.0, 2.0]), ([math.nan], [1.0]), ([1.0], [math.inf])):
        with pytest.raises(BadInput, match="there must be one for each of the"):
            ratios(reference, own)


def test_compression_is_counted_in_nats():
    text = "ja " * 50
    np.testing.assert_allclose(compressed([text]), [len(zlib.compress(text.encode())) * 8 * math.log(2)])
    assert compressed([text]) < compressed(["".join(chr(97 + n * n * 7919 % 26) for n in range(150))])


def by_heart(count, start=0):
    return [Completion(f"w{n} x{n} y{n} z{n}", f"w{n} x{n} y{n} z{n} and so on") for n in range(start, start + count)]


def unknown(count, start=0):
    return [Completion(f"w{n} x{n} y{n} z{n}", "I do not know") for n in range(start, start + count)]


def test_a_model_that_knows_its_texts_is_told_from_one_that_does_not():
    ranks = np.append(np.linspace(2, 3, 40), np.linspace(0, 1, 40))
    learned = Extraction("the source", tuple(by_heart(30) + unknown(10, 30)), tuple(unknown(40, 100)), ranks)
    ignorant = Extraction("the source", tuple(unknown(40)), tuple(unknown(40, 100)), ranks)
    assert (learned.memory.whole, learned.guessing.whole, ignorant.memory.whole) == (30, 0, 0)
    assert learned.memory.verbatim_share == 0.75
    assert learned.chance < 1e-9
    assert ignorant.chance == 1.0


def test_what_can_be_guessed_is_no_memory():
    both = Extraction("the source", tuple(by_heart(40)), tuple(by_heart(40, 100)), np.zeros(80))
    assert both.chance > 0.5


@given(st.integers(0, 15), st.integers(0, 15))
def test_the_chance_is_that_of_drawing_as_many_members_or_more(members, others):
    found = Extraction(
        "the source",
        tuple(by_heart(members) + unknown(15 - members, 50)),
        tuple(by_heart(others, 100) + unknown(15 - others, 150)),
        np.zeros(30),
    )
    drawn = hypergeom(30, members + others, 15)
    assert found.chance == pytest.approx(sum(drawn.pmf(n) for n in range(members, 16)), abs=1e-9)


def test_suspicion_is_right_where_the_highest_ranks_are_members_that_come_out():
    members, others = tuple(by_heart(10) + unknown(10, 50)), tuple(by_heart(20, 100))
    first_four = np.array([9, 8, 7, 6] + [0] * 36, np.float64)
    assert Extraction("it", members, others, first_four).precision == 1.0
    of_others = np.append(np.zeros(20), np.arange(20.0))
    assert Extraction("it", members, others, of_others).precision == 0.0
    mixed = np.zeros(40)
    mixed[[0, 10, 20, 21]] = 1  # one that comes out, one that does not, and two others
    assert Extraction("it", members, others, mixed).precision == 0.25
    with pytest.raises(BadInput, match="give one for each completion"):
        Extraction("it", members, others, np.zeros(3))


def test_law_9_texts_stand_in_what_is_written_down_only_where_that_is_asked_for():
    found = Extraction("the source", tuple(by_heart(12)), tuple(unknown(12, 100)), np.zeros(24))
    assert "w3" not in str(found.to_json())
    assert found.to_json(texts=True)["texts"] == [one.rest for one in by_heart(12)]
    for sentence in (
        "the model writes 12 of 12 training texts out to the end, word by word, and 0 of 12",
        "100 % come out in a row, and 0 % of the others",
        "What these prompts do not draw out, others may: only the guarantee speaks of all attacks.",
    ):
        assert sentence in found.to_json()["statement"]


def test_unprompted_texts_are_compared_with_the_training_set_and_as_many_others():
    training = [f"a{n} b{n} c{n} d{n} e{n}" for n in range(30)]
    others = [f"v{n} w{n} x{n} y{n} z{n}" for n in range(10)]
    written = [training[29].upper(), "q r s t u", *(f"k{n} l{n} m{n} n{n}" for n in range(18))]
    found = Unprompted.of(written, np.arange(20)[::-1], training, training[20:], others)
    assert (found.candidates, found.suspects, found.whole) == (20, 2, 1)
    assert (found.overlap, found.overlap_of_others) == (2 / 4, 0.0)
    elsewhere = Unprompted.of(written, np.arange(20), training, training[20:], others)
    assert (elsewhere.whole, elsewhere.overlap) == (0, 0.0)
    assert "1 of these are training texts, word by word" in found.to_json()["statement"]
    assert "a29" not in str(found.to_json()).lower()
    with pytest.raises(BadInput, match="there must be as many as members"):
        Unprompted.of(written, np.arange(20), training, training, others)
