"""Precision, recall and F1 against scikit-learn on random predictions, and against worked examples."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.metrics.f1 import Confusion, Tally, confusion

sklearn = pytest.importorskip("sklearn.metrics")

LABELS = ["neutral", "yes", "no", "never"]
"""In an order that is not the alphabet's, and with one that seldom occurs."""

pairs = st.lists(st.tuples(st.sampled_from(LABELS), st.sampled_from(LABELS)), min_size=1, max_size=30)
some = st.lists(st.sampled_from(LABELS), min_size=1, unique=True)


def parted(drawn):
    """References and predictions."""
    return [list(side) for side in zip(*drawn, strict=True)]


def counted(drawn, labels=LABELS):
    references, predictions = parted(drawn)
    return confusion(references=references, predictions=predictions, labels=labels)


@settings(max_examples=100)
@given(pairs)
def test_scores_are_those_of_scikit_learn(drawn):
    table = counted(drawn)
    for average, score in (("macro", table.macro_f1()), ("micro", table.micro_f1())):
        assert score.value == pytest.approx(sklearn.f1_score(*parted(drawn), average=average, zero_division=0))
    assert table.accuracy().value == pytest.approx(sklearn.accuracy_score(*parted(drawn)))
    assert table.counts == tuple(map(tuple, sklearn.confusion_matrix(*parted(drawn), labels=LABELS)))


@settings(max_examples=100)
@given(pairs)
def test_the_table_of_classes_is_that_of_scikit_learn(drawn):
    """A class that is in neither list has a row of zeros."""
    expected = sklearn.precision_recall_fscore_support(*parted(drawn), labels=LABELS, zero_division=0)
    rows = counted(drawn).classes()
    assert list(rows) == LABELS
    for tally, row in zip(rows.values(), zip(*expected, strict=True), strict=True):
        assert (tally.precision, tally.recall, tally.f1, tally.support) == pytest.approx(row)
    assert [tally.predicted for tally in rows.values()] == [parted(drawn)[1].count(label) for label in LABELS]


@settings(max_examples=100)
@given(pairs, some)
def test_scores_over_given_labels_are_those_of_scikit_learn(drawn, over):
    """It wants one of them to be in the references; without any, all is wrong."""
    present = set(over) & set(parted(drawn)[0])
    for average in ("macro", "micro"):
        options = {"labels": over, "average": average, "zero_division": 0}
        expected = sklearn.f1_score(*parted(drawn), **options) if present else 0
        assert getattr(counted(drawn), f"{average}_f1")(over).value == pytest.approx(expected)


def test_one_class_only():
    table = confusion(references=["a"] * 3, predictions=["a"] * 3)
    assert table == Confusion(("a",), ((3,),))
    assert table.macro_f1().value == table.micro_f1().value == table.accuracy().value == 1
    assert table.majority().taken == 0
    assert not table.majority().prevails


def test_a_large_set_in_batches_is_counted_as_a_whole():
    """The mean of the batches' macro-F1 is another figure."""
    random = np.random.default_rng(0)
    references, others = (random.choice(LABELS, 1000, p=[0.5, 0.3, 0.15, 0.05]).tolist() for _ in range(2))
    chosen = zip(random.random(1000) < 0.6, references, others, strict=True)
    predictions = [reference if right else other for right, reference, other in chosen]
    batches = [
        confusion(references=references[start : start + 32], predictions=predictions[start : start + 32], labels=LABELS)
        for start in range(0, 1000, 32)
    ]
    whole = confusion(references=references, predictions=predictions, labels=LABELS)
    assert sum(batches[1:], start=batches[0]) == whole
    assert abs(np.mean([batch.macro_f1().value for batch in batches]) - whole.macro_f1().value) > 0.01


@settings(max_examples=100)
@given(pairs, pairs)
def test_the_parts_of_a_set_add_up_to_it(first, second):
    """With the same labels in their order, and with those that each part happens to have."""
    assert counted(first) + counted(second) == counted(first + second)
    assert counted(first, None) + counted(second, None) == counted(first + second, None)


def test_a_worked_example():
    """Three classes of which one is never predicted and one only wrongly."""
    table = confusion(references=["a", "a", "a", "b", "b", "c"], predictions=["a", "a", "b", "a", "a", "a"])
    assert table.counts == ((2, 1, 0), (2, 0, 0), (1, 0, 0))
    assert table.classes() == {"a": Tally(2, 3, 5), "b": Tally(0, 2, 1), "c": Tally(0, 1, 0)}
    assert table.macro_f1().value == pytest.approx((2 * 2 / 8) / 3)
    majority = table.majority()
    assert (majority.label, majority.in_references, majority.in_predictions) == ("a", 3 / 6, 5 / 6)
    assert majority.taken == 1
    assert majority.prevails
    assert majority.baseline == pytest.approx((2 * 3 / 9) / 3)


@settings(max_examples=80)
@given(pairs, some)
def test_the_baseline_is_what_always_predicting_the_majority_class_scores(drawn, over):
    references, majority = parted(drawn)[0], counted(drawn).majority()
    n, own = len(references), references.count(majority.label)
    assert own == max(map(references.count, LABELS))
    assert majority.baseline == pytest.approx(2 * own / (n + own) / len(set(references)))
    always = confusion(references=references, predictions=[majority.label] * n)
    assert counted(drawn).majority(over).baseline == pytest.approx(always.macro_f1(over).value)
    assert always.majority().in_predictions == 1
    assert always.majority().prevails == (len(set(references)) > 1)


@pytest.mark.parametrize(("wrong", "falls"), [(0, False), (5, False), (6, True), (10, True)])
def test_a_model_falls_for_the_majority_where_it_takes_most_others_for_it(wrong, falls):
    predictions = ["a"] * 90 + ["a"] * wrong + ["b"] * (10 - wrong)
    majority = confusion(references=["a"] * 90 + ["b"] * 10, predictions=predictions).majority()
    assert majority.taken == wrong / 10
    assert majority.prevails == falls


def test_of_classes_that_are_equally_frequent_the_one_predicted_most_is_the_majority():
    for label in "ab":
        majority = confusion(references=["a", "b"] * 5, predictions=[label] * 10).majority()
        assert (majority.label, majority.prevails) == (label, True)


def test_a_report_can_write_all_of_it():
    table = confusion(references=["a", "a", "b"], predictions=["a", "b", "b"])
    assert json.loads(json.dumps(table.to_json())) == {
        "macro_f1": pytest.approx(2 / 3),
        "micro_f1": pytest.approx(2 / 3),
        "accuracy": pytest.approx(2 / 3),
        "majority": {
            "label": "a",
            "in_references": pytest.approx(2 / 3),
            "in_predictions": pytest.approx(1 / 3),
            "taken": 0.0,
            "baseline": pytest.approx(0.4),
            "prevails": False,
        },
        "classes": {
            "a": {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3), "support": 2, "predicted": 1},
            "b": {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "support": 1, "predicted": 2},
        },
        "labels": ["a", "b"],
        "counts": [[1, 1], [0, 1]],
    }
    assert table.to_json(over=["b", "c"])["macro_f1"] == pytest.approx(1 / 3)


def test_a_score_says_how_it_was_made():
    table = confusion(references=["a", "a", "b"], predictions=["a", "c", "b"])
    assert str(table.macro_f1()).startswith("macro_f1|n:3|classes:3|over:found|version:dpnlp-")
    assert table.macro_f1(["a", "b"]).signature.startswith("macro_f1|n:3|classes:2|over:given|version:dpnlp-")
    assert table.micro_f1().signature.startswith("micro_f1|n:3|")
    assert table.accuracy().signature.startswith("accuracy|n:3|version:dpnlp-")


@pytest.mark.parametrize(
    ("references", "predictions", "labels", "sentence"),
    [
        (["a", "b"], ["a"], None, r"references = 2 lines and predictions = 1 lines: there must be as many"),
        ([], [], None, r"references = 0 lines: a score needs at least one"),
        (["a", "b"], ["a", 1], None, r"predictions, line 2 = 1: it must be a text"),
        ("ab", ["a", "b"], None, r"references = 'ab': it must be a list"),
        (["a", "b"], ["a", "c"], ["a", "b"], r"predictions, line 2 = 'c': it must be one of a, b; add it"),
        (["d", "b"], ["a", "c"], ["a", "b"], r"references, line 1 = 'd': it must be one of a, b; add it"),
        (["a"], ["a"], [], r"labels = \[\]: it must be a list with at least one label"),
        (["a"], ["a"], "a", r"labels = 'a': it must be a list with at least one label"),
        (["a"], ["a"], ["a", "b", "a"], r"labels = 'a': it is there more than once"),
    ],
)
def test_what_cannot_be_counted_is_refused_in_one_sentence(references, predictions, labels, sentence):
    with pytest.raises(BadInput, match=rf"^{sentence}[^.]*\.$"):
        confusion(references=references, predictions=predictions, labels=labels)


@pytest.mark.parametrize("over", [[], "a", ["a", "a"]])
def test_f1_is_not_averaged_over_what_is_no_list_of_labels(over):
    table = confusion(references=["a"], predictions=["a"])
    for score in (table.macro_f1, table.micro_f1):
        with pytest.raises(BadInput, match=r"^over = .*; give each label once\.$"):
            score(over)
