"""Exact match and F1 of answers against torchmetrics on random answers, and against worked examples."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.metrics.squad import Answered, exact_match, normalized, squad, token_f1

peer = pytest.importorskip("torchmetrics.functional.text")

WORDS = [
    "The",
    "a",
    "an",
    "cat's",
    "cats",
    "CATS",
    "theatre",
    "1,000",
    "1000",
    "-",
    "...",
    "Én",
    "of",
    "\n",
    "\t",
    "“x”",
]

answers = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
questions = st.lists(st.tuples(st.lists(answers, max_size=3), answers), min_size=1, max_size=8)


def parted(drawn):
    """References and predictions."""
    return [list(side) for side in zip(*drawn, strict=True)]


def scored(drawn):
    references, predictions = parted(drawn)
    return squad(references=references, predictions=predictions)


def expected(drawn):
    """Exact match and F1 as torchmetrics has them. It knows no question without an answer: that is the empty one."""
    targets, said = [], []
    for place, (own, prediction) in enumerate(drawn):
        told = [answer for answer in own if normalized(answer)] or [""]
        targets.append({"answers": {"text": told, "answer_start": [0] * len(told)}, "id": str(place)})
        said.append({"prediction_text": prediction, "id": str(place)})
    found = peer.squad(said, targets)
    return [float(found[name]) / 100 for name in ("exact_match", "f1")]


@settings(max_examples=100)
@given(questions)
def test_scores_are_those_of_torchmetrics(drawn):
    found = scored(drawn)
    assert [found.exact_match().value, found.f1().value] == pytest.approx(expected(drawn), abs=1e-6)


@settings(max_examples=60)
@given(questions)
def test_the_totals_are_those_of_the_questions_that_have_an_answer_and_of_those_that_have_none(drawn):
    for part, own in (
        (scored(drawn).answerable, [pair for pair in drawn if pair[0]]),
        (scored(drawn).unanswerable, [pair for pair in drawn if not pair[0]]),
    ):
        assert part.questions == len(own)
        assert part.unanswered == sum(not normalized(prediction) for _, prediction in own)
        if own:
            told = part.to_json()
            assert [told["exact"], told["f1"]] == pytest.approx(expected(own), abs=1e-6)


@settings(max_examples=100)
@given(questions, questions)
def test_the_parts_of_a_set_add_up_to_it(first, second):
    sums, whole = scored(first) + scored(second), scored(first + second)
    assert (sums.all.questions, sums.all.unanswered) == (whole.all.questions, whole.all.unanswered)
    assert [sums.exact_match().value, sums.f1().value] == pytest.approx([whole.exact_match().value, whole.f1().value])


@pytest.mark.parametrize(
    ("answer", "compared"),
    [
        ("The  Cat's\thouse.", "cats house"),
        ("An apple a day", "apple day"),
        ("theatre and banana", "theatre and banana"),
        ("U.S.A.", "usa"),
        ("a-b", "ab"),
        ("the-", ""),
        ("“the” end", "“ ” end"),
        ("", ""),
    ],
)
def test_how_answers_are_compared(answer, compared):
    assert normalized(answer) == compared


def test_worked_examples():
    assert exact_match("the Eiffel Tower!", ["Eiffel tower"]) == 1
    assert exact_match("Eiffel", ["Eiffel tower"]) == 0
    assert token_f1("tall Eiffel", ["Eiffel tower in Paris"]) == pytest.approx(2 * 1 / (2 + 4))
    assert token_f1("red red", ["red"]) == pytest.approx(2 * 1 / 3)
    assert token_f1("in Paris", ["France", "Paris", "in Paris today"]) == pytest.approx(2 * 2 / 5)


@pytest.mark.parametrize(
    ("prediction", "own", "right"),
    [("", [], 1), ("the", [], 1), ("Paris", [], 0), ("", ["Paris"], 0), ("", ["the", "Paris"], 0), ("", ["the"], 1)],
)
def test_the_empty_text_answers_what_has_no_answer(prediction, own, right):
    assert exact_match(prediction, own) == token_f1(prediction, own) == right


def test_whoever_never_answers_is_right_where_there_is_no_answer():
    found = squad(references=[["Paris"], ["in May", "May"], [], [], []], predictions=[""] * 5)
    assert found.answerable == Answered(questions=2, unanswered=2, exact=0, f1=0)
    assert found.unanswerable == Answered(questions=3, unanswered=3, exact=3, f1=3)
    assert found.exact_match().value == found.f1().value == 3 / 5


def test_a_report_can_write_all_of_it():
    found = squad(references=[["Paris"], ["in May", "May"]], predictions=["Paris", "in"])
    assert json.loads(json.dumps(found.to_json())) == {
        "exact": 0.5,
        "f1": pytest.approx((1 + 2 / 3) / 2),
        "questions": 2,
        "unanswered": 0,
        "answerable": {"exact": 0.5, "f1": pytest.approx((1 + 2 / 3) / 2), "questions": 2, "unanswered": 0},
        "unanswerable": {"exact": None, "f1": None, "questions": 0, "unanswered": 0},
    }
    assert str(found.f1()).startswith("squad_f1|n:2|rules:SQuAD-2.0|version:dpnlp-")
    assert found.exact_match().signature.startswith("squad_exact_match|n:2|rules:SQuAD-2.0|")


@pytest.mark.parametrize(
    ("references", "predictions", "sentence"),
    [
        ([["a"], []], ["a"], r"references = 2 lines and predictions = 1 lines: there must be as many"),
        ([], [], r"references = 0 lines: a score needs at least one"),
        (["a"], ["a"], r"references, line 1 = 'a': it must be a list of answers; give \[\] for none"),
        ([[], None], ["", ""], r"references, line 2 = None: it must be a list of answers"),
        ([["a", 2]], ["a"], r"references, line 1 = 2: it must be a text"),
        ([["a"]], [None], r"predictions, line 1 = None: it must be a text"),
    ],
)
def test_what_cannot_be_scored_is_refused_in_one_sentence(references, predictions, sentence):
    with pytest.raises(BadInput, match=rf"^{sentence}[^.]*\.$"):
        squad(references=references, predictions=predictions)
