"""Vocabularies of words and of parts of words, and whose words are whose."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from dpnlp.checks import BadInput
from dpnlp.data.plain import Text
from dpnlp.data.tokens import encoded, refuse_endless
from dpnlp.data.vocabulary import Words, frequent, learned, of_each_owner, of_each_text

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def test_the_words_of_a_text():
    text = "Don't stop—NOW: it's 3.5 o'clock, 'ﬁne' naïve"
    words = ["Don't", "stop", "—", "NOW", ":", "it's", "3", ".", "5", "o'clock", ",", "'", "fine", "'", "naïve"]
    assert Words()(text) == words
    assert Words(lower=True)(text) == [word.lower() for word in words]
    assert Words()(" \n") == []


@pytest.mark.parametrize("lower", [False, True])
@given(texts=st.lists(TEXT, min_size=1, max_size=5), most=st.integers(1, 10))
def test_a_tokenizer_finds_the_words_that_were_counted(texts, most, lower):
    """With all words no text has an unknown one, with some the others are unknown; the end is always there."""
    words = Words(lower)
    everything = frequent(texts, words, 1000)
    some = everything[:most]
    for known in (everything, some):
        tokenizer = words.tokenizer(known)
        for text in texts:
            expected = [known.index(word) + 3 if word in known else 2 for word in words(text)]
            assert tokenizer(text).input_ids == [*expected, 1]


def test_a_tokenizer_of_words_is_one_of_hugging_face(tmp_path):
    tokenizer = Words(lower=True).tokenizer(["good", "morning", "."])
    refuse_endless(tokenizer, tokenizer("").input_ids)
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    for one in (tokenizer, again):
        assert encoded(["Good MORNING, Ann."], one, longest=9) == [[3, 4, 2, 2, 5, 1]]
        assert one.decode([3, 4, 1], skip_special_tokens=True) == "good morning"
        assert (one.pad_token_id, one.eos_token_id, one.unk_token_id, len(one)) == (0, 1, 2, 6)
    parts = learned(["good morning"] * 3, 300)
    assert (parts.pad_token_id, parts.eos_token_id, parts.unk_token_id) == (0, 1, 2)


def test_the_most_frequent_words_come_first_and_equal_ones_by_the_alphabet():
    assert frequent(["b a b", "c a d"], Words(), 3) == ["a", "b", "c"]


def test_whose_words_are_whose():
    texts = [Text("b b a", "ann"), Text("c", "bob"), Text("a a", "ann")]
    assert list(of_each_owner(texts, Words())) == [["a", "b"], ["c"]]
    assert list(of_each_text(texts, Words())) == [["b", "a"], ["c"], ["a"]]
    with pytest.raises(BadInput, match="nothing says whose each text is"):
        list(of_each_owner([*texts, Text("d", None)], Words()))


@pytest.mark.parametrize("words", [["a", "b", "a"], ["a", "<unk>"]])
def test_a_word_is_there_once_and_is_no_special_token(words):
    with pytest.raises(BadInput, match="is there twice, or is a token with a meaning of its own; remove it"):
        Words().tokenizer(words)
