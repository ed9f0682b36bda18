"""F1 of entities against seqeval on random tags, and against worked examples."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.metrics.entities import Entity, entities, entity_f1
from dpnlp.metrics.f1 import Tally

seqeval = pytest.importorskip("seqeval.metrics.sequence_labeling")

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "I-a-b"]
"""Drawn at random, they break IOB2 in every way, and one type occurs only so."""

tags = st.sampled_from(TAGS)
sentences = st.lists(st.lists(st.tuples(tags, tags), max_size=8), min_size=1, max_size=6)


def parted(drawn):
    """References and predictions."""
    return [[[pair[side] for pair in sentence] for sentence in drawn] for side in (0, 1)]


def scored(drawn):
    references, predictions = parted(drawn)
    return entity_f1(references=references, predictions=predictions)


@settings(max_examples=100)
@given(st.lists(tags, max_size=10))
def test_entities_are_those_of_seqeval(sequence):
    assert [(kind, start, end - 1) for kind, start, end in entities(sequence)] == seqeval.get_entities(sequence)


@settings(max_examples=100)
@given(sentences)
def test_scores_are_those_of_seqeval(drawn):
    found = scored(drawn)
    expected = seqeval.precision_recall_fscore_support(*parted(drawn), average=None, zero_division=0)
    rows = [(tally.precision, tally.recall, tally.f1, tally.support) for tally in found.types.values()]
    assert list(found.types) == sorted({kind for side in parted(drawn) for line in side for kind, *_ in entities(line)})
    assert rows == [pytest.approx(row) for row in zip(*expected, strict=True)]
    assert found.micro_f1().value == pytest.approx(seqeval.f1_score(*parted(drawn), zero_division=0))
    if found.types:  # it has no macro-F1 of nothing
        assert found.macro_f1().value == pytest.approx(
            seqeval.f1_score(*parted(drawn), average="macro", zero_division=0)
        )


@settings(max_examples=80)
@given(sentences)
def test_the_parts_of_a_set_add_up_to_it(drawn):
    parts = [scored([sentence]) for sentence in drawn]
    assert sum(parts[1:], start=parts[0]) == scored(drawn)


def test_a_worked_example():
    """One is right, one has the wrong type, one is a word short, one is made up."""
    references = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC", "I-LOC"], []]
    predictions = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "B-LOC", "O"], []]
    found = entity_f1(references=references, predictions=predictions)
    assert found.types == {"LOC": Tally(0, 2, 2), "PER": Tally(1, 1, 2)}
    assert found.micro_f1().value == pytest.approx(2 * 1 / (3 + 4))
    assert found.macro_f1().value == pytest.approx((0 + 2 / 3) / 2)
    assert json.loads(json.dumps(found.to_json())) == {
        "entity_micro_f1": pytest.approx(2 / 7),
        "entity_macro_f1": pytest.approx(1 / 3),
        "types": {
            "LOC": {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 2, "predicted": 2},
            "PER": {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "support": 1, "predicted": 2},
        },
    }
    assert str(found.micro_f1()).startswith("entity_micro_f1|n:3|types:2|tags:IOB2|mode:conlleval|version:dpnlp-")
    assert found.macro_f1().signature.startswith("entity_macro_f1|n:3|")


def test_a_set_without_entities_scores_nothing():
    found = entity_f1(references=[["O", "O"], []], predictions=[["O", "O"], []])
    assert found.types == {}
    assert found.micro_f1().value == found.macro_f1().value == 0


def test_an_entity_that_begins_with_i_counts():
    assert entities(["O", "I-PER", "I-PER", "I-LOC", "B-LOC"]) == [
        Entity("PER", 1, 3),
        Entity("LOC", 3, 4),
        Entity("LOC", 4, 5),
    ]


@pytest.mark.parametrize(
    ("references", "predictions", "sentence"),
    [
        ([["O"], ["O"]], [["O"]], r"references = 2 lines and predictions = 1 lines: there must be as many"),
        ([], [], r"references = 0 lines: a score needs at least one"),
        ([["O"], ["O", "O"]], [["O"], ["O"]], r"predictions, line 2 = 1 tags: its reference has 2"),
        (["O"], [["O"]], r"references, line 1 = 'O': it must be a list, with a tag for each word"),
        ([["O"]], [None], r"predictions, line 1 = None: it must be a list, with a tag for each word"),
        *[
            (
                [["O"], ["O", tag]],
                [["O"], ["O", "O"]],
                rf"references, line 2, word 2 = {tag!r}: it must be O, B-TYPE or",
            )
            for tag in ("PER", "B", "I-", "E-PER", "b-PER", "", 3)
        ],
        ([["O"]], [["NN"]], r"predictions, line 1, word 1 = 'NN': it must be O, B-TYPE or I-TYPE"),
    ],
)
def test_what_cannot_be_scored_is_refused_in_one_sentence(references, predictions, sentence):
    with pytest.raises(BadInput, match=rf"^{sentence}[^.]*\.$"):
        entity_f1(references=references, predictions=predictions)
