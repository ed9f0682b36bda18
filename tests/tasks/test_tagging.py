"""Tagging: the first piece of a word carries its tag, every word gets one, and a sentence's loss is its own."""

import numpy as np
import pytest
import transformers

from dpnlp.checks import BadInput
from dpnlp.data.tagged import Tagged
from dpnlp.data.tagged import tagged as opened
from dpnlp.metrics.entities import entity_f1
from dpnlp.models.readers import Head
from dpnlp.tasks.tagging import Tagging

from .readers import (
    SPECIAL,
    TAGS,
    WORDS,
    asked,
    assert_losses_are_those_of_each_alone,
    tagged,
    tokenizer,
    with_head,
    write_tagged,
)

LONGEST = 24
UNKNOWN, FIRST, LAST = (SPECIAL.index(token) for token in ("[UNK]", "[CLS]", "[SEP]"))


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The task, and the model of transformers that has the same weights."""
    reader, theirs = with_head(tmp_path_factory.mktemp("bert"), Head.TOKENS, TAGS)
    return Tagging(reader.model, reader.tokenizer, reader.labels, LONGEST), theirs


def alone(record):
    """The tokens of one sentence as transformers makes them, and the tags of first pieces, −100 elsewhere."""
    found = tokenizer()(list(record.words), is_split_into_words=True)
    places = found.word_ids()
    first = [word is not None and word != before for before, word in zip([None, *places], places, strict=False)]
    tags = [TAGS.index(record.tags[word]) if here else -100 for here, word in zip(first, places, strict=True)]
    return found["input_ids"], tags


def dataset(task, records, folder):
    return task.dataset(opened(write_tagged(folder / "sentences.jsonl", records)), folder / "cache")


def row(word):
    return len(SPECIAL) + WORDS.index(word)


def test_tokens_and_tags_are_those_of_each_sentence_alone(both, tmp_path):
    some = tagged(8)
    found = dataset(both[0], some, tmp_path)
    expected = [alone(record) for record in some]
    assert found.ragged["ids"].lists(range(8)) == [ids for ids, _ in expected]
    assert found.ragged["tags"].lists(range(8)) == [
        [-1 if tag == -100 else tag for tag in tags] for _, tags in expected
    ]
    assert any(len(ids) > len(record.words) + 2 for record, (ids, _) in zip(some, expected, strict=True))
    padded = found.batch(np.arange(8), LONGEST + 2)
    assert (padded["tags"][~padded["mask"]] == -1).all()


def test_a_word_of_which_nothing_is_left_is_an_unknown_one(both):
    found = both[0].numbers([Tagged(("ba", "\u200b", "des"), ("O", "B-X", "I-X"), None)])
    assert found["ids"] == [[FIRST, row("ba"), UNKNOWN, row("de"), len(SPECIAL + WORDS), LAST]]
    assert found["tags"] == [[-1, TAGS.index("O"), TAGS.index("B-X"), TAGS.index("I-X"), -1, -1]]


def test_words_are_read_as_in_a_text_by_tokenizers_that_take_the_blank_for_a_part_of_them(both):
    vocabulary = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 4, "a": 5, "b": 6, "Ġ": 7, "Ġa": 8}
    of_bytes = transformers.RobertaTokenizerFast(vocab=vocabulary, merges=[("Ġ", "a")])
    found = Tagging(both[0].model, of_bytes, TAGS).numbers([Tagged(("a", "ab", "b"), ("O", "B-X", "O"), None)])
    assert found["ids"] == [of_bytes(" a ab b")["input_ids"]] == [[0, 8, 8, 6, 7, 6, 2]]
    assert found["tags"] == [[-1, 2, 0, -1, 2, -1, -1]]


def test_the_loss_of_a_sentence_is_that_of_transformers_whoever_it_is_read_with(both, tmp_path):
    task, theirs = both
    some = tagged(6)
    expected = [asked(theirs, ids, [0] * len(ids), labels=tags).loss.item() for ids, tags in map(alone, some)]
    assert_losses_are_those_of_each_alone(task, dataset(task, some, tmp_path), expected)


@pytest.mark.parametrize("batch", [3, 64])
def test_predictions_are_those_of_transformers_for_the_first_pieces(both, batch):
    task, theirs = both
    some = tagged(11, seed=5)
    expected = []
    for ids, tags in map(alone, some):
        best = asked(theirs, ids, [0] * len(ids)).logits[0].argmax(-1).tolist()
        expected.append(tuple(TAGS[each] for each, tag in zip(best, tags, strict=True) if tag != -100))
    assert len({tag for tags in expected for tag in tags}) > 1
    assert task.predict(some, batch) == expected
    assert task.predict([record._replace(tags=()) for record in some], batch) == expected, "it saw the tags"


def test_a_long_sentence_is_learned_from_as_far_as_it_goes_and_read_in_parts_that_tag_every_word(both):
    """Seven words with three pieces fit between [CLS] and [SEP]; words are never cut in two."""
    task, theirs = both
    sentence = Tagged(("bazs",) * 10 + ("de",) * 9, ("B-X", "O") * 9 + ("I-X",), None)
    learned = task.numbers([sentence])
    assert len(learned["ids"][0]) == 2 + 7 * 3
    assert [TAGS[tag] for tag in learned["tags"][0] if tag >= 0] == list(sentence.tags[:7])
    expected = []
    for part in (sentence.words[:7], sentence.words[7:]):
        ids, tags = alone(Tagged(part, ("O",) * len(part), None))
        best = asked(theirs, ids, [0] * len(ids)).logits[0].argmax(-1).tolist()
        expected += [TAGS[each] for each, tag in zip(best, tags, strict=True) if tag != -100]
    assert task.predict([tagged(1)[0], sentence, tagged(1)[0]])[1] == tuple(expected)


def test_a_word_that_is_longer_than_a_window_gets_a_tag_too(both):
    endless = Tagged(("ba", "de" + "s" * 40, "ki"), ("O", "B-X", "O"), None)
    (tags,) = both[0].predict([endless])
    assert len(tags) == 3
    assert all(len(ids) <= LONGEST for ids in both[0].numbers([endless])["ids"])


def test_a_tag_that_the_model_does_not_know_is_refused_when_learned_from_and_missed_when_scored(both, tmp_path):
    task, strange = both[0], [*tagged(3), Tagged(("ba", "de"), ("B-Y", "O"), None)]
    with pytest.raises(BadInput) as refusal:
        dataset(task, strange, tmp_path)
    assert str(refusal.value) == "label = 'B-Y': it must be one of B-X, I-X, O; name all of them."
    found = task.score(strange).details()
    assert found["labels"] == [*TAGS, "B-Y"]
    assert found["classes"]["B-Y"] == {"precision": 0, "recall": 0, "f1": 0, "support": 1, "predicted": 0}
    assert found["entities"]["types"]["Y"]["support"] == 1


def test_whole_entities_are_scored_where_tags_mark_them_and_only_there(both):
    some = tagged(6)
    found = both[0].score(some)
    assert list(found.scores()) == ["macro_f1", "micro_f1", "accuracy", "entity_f1"]
    expected = entity_f1(references=[record.tags for record in some], predictions=found.predictions)
    assert found.scores()["entity_f1"] == expected.micro_f1()
    parts = Tagging(both[0].model, both[0].tokenizer, ("NOUN", "VERB", "X"), LONGEST)
    assert list(parts.score([record._replace(tags=("X",) * len(record.tags)) for record in some]).scores()) == [
        "macro_f1",
        "micro_f1",
        "accuracy",
    ]
    assert list(found.lines())[2] == {
        "source": " ".join(some[2].words),
        "reference": " ".join(some[2].tags),
        "hypothesis": " ".join(found.predictions[2]),
    }
