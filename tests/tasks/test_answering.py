"""Answering: windows are transformers', all windows of a question are one record, and answers come from the best."""

import numpy as np
import pytest

from dpnlp.checks import BadInput
from dpnlp.data.questions import Answer, Question
from dpnlp.data.questions import questions as opened
from dpnlp.models.readers import Head
from dpnlp.tasks.answering import Answering

from .readers import (
    asked,
    assert_losses_are_those_of_each_alone,
    questions,
    tokenizer,
    with_head,
    write_questions,
)

LONGEST, STRIDE, MOST = 32, 6, 5


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The task, and the model of transformers that has the same weights."""
    reader, theirs = with_head(tmp_path_factory.mktemp("bert"), Head.SPANS)
    return Answering(reader.model, reader.tokenizer, (), LONGEST, STRIDE, MOST), theirs


def windows(record):
    """The windows of one question, as examples of transformers make them: tokens, types, and characters of tokens."""
    found = tokenizer()(
        record.question,
        record.context,
        truncation="only_second",
        max_length=LONGEST,
        stride=STRIDE,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    for number, ids in enumerate(found["input_ids"]):
        both = zip(found["offset_mapping"][number], found.sequence_ids(number), strict=True)
        yield ids, found["token_type_ids"][number], [place if part == 1 else None for place, part in both]


def place(record, places):
    """Where a window has the answer: from the last token that starts no later to the first that ends no earlier."""
    inside = [token for token, at in enumerate(places) if at is not None]
    if not record.answers:
        return 0, 0
    start, stop = record.answers[0].start, record.answers[0].start + len(record.answers[0].text)
    if places[inside[0]][0] > start or places[inside[-1]][1] < stop:
        return 0, 0
    first = max(token for token in inside if places[token][0] <= start)
    return first, min(token for token in inside if places[token][1] >= stop)


def dataset(task, records, folder):
    return task.dataset(opened(write_questions(folder / "questions.jsonl", records)), folder / "cache")


def test_windows_and_places_are_transformers_and_belong_to_their_question(both, tmp_path):
    some = questions(10)
    found = dataset(both[0], some, tmp_path)
    expected = [(number, record, *window) for number, record in enumerate(some) for window in windows(record)]
    assert len(expected) > len(some) + 3
    assert found.records.tolist() == [number for number, *_ in expected]
    assert found.ragged["ids"].lists(range(len(expected))) == [ids for _, _, ids, _, _ in expected]
    assert found.ragged["types"].lists(range(len(expected))) == [types for *_, types, _ in expected]
    both_ends = list(zip(found.single["start"].tolist(), found.single["end"].tolist(), strict=True))
    assert both_ends == [place(record, places) for _, record, _, _, places in expected]
    answered = {number for (number, *_), ends in zip(expected, both_ends, strict=True) if ends != (0, 0)}
    assert answered == {number for number, record in enumerate(some) if record.answers}


def test_the_places_map_back_to_the_answer(both):
    some = questions(12, seed=2)
    found, made = both[0].numbers(some), both[0]._windows(some)
    told = 0
    for record, offsets, start, end in zip(found["record"], made["offsets"], found["start"], found["end"], strict=True):
        if start:
            told += 1
            assert some[record].context[offsets[start][0] : offsets[end][1]] == some[record].answers[0].text
    assert told >= sum(bool(record.answers) for record in some)


def test_an_answer_that_a_window_cuts_is_no_answer_there(both):
    """A context of 40 tokens, of which a window holds 27: the answer goes on behind the end of the first one."""
    context = " ".join(["ba"] * 40)
    answer = Answer(" ".join(["ba"] * 4), 3 * 25)
    found = both[0].numbers([Question("q", "de di", context, (answer,), None)])
    assert found["record"] == [0, 0]
    assert (found["start"][0], found["end"][0]) == (0, 0)
    step = (LONGEST - 5) - STRIDE  # where in the context the second window begins
    assert (found["start"][1], found["end"][1]) == (4 + 25 - step, 4 + 28 - step)


def test_the_loss_of_a_window_is_that_of_transformers_whoever_it_is_read_with(both, tmp_path):
    task, theirs = both
    some = questions(5, seed=1)
    expected = []
    for record in some:
        for ids, types, places in windows(record):
            start, end = place(record, places)
            expected.append(asked(theirs, ids, types, start_positions=start, end_positions=end).loss.item())
    assert_losses_are_those_of_each_alone(task, dataset(task, some, tmp_path), expected)


def naive(theirs, record):
    """Every span of every window, one after the other."""
    spans, none = [], []
    for ids, types, places in windows(record):
        found = asked(theirs, ids, types)
        start, end = found.start_logits[0].tolist(), found.end_logits[0].tolist()
        none.append(start[0] + end[0])
        for first, begins in enumerate(places):
            for last, ends in enumerate(places):
                if begins and ends and first <= last < first + MOST:
                    spans.append((start[first] + end[last], record.context[begins[0] : ends[1]]))
    score, text = max(spans)
    return text if score > min(none) else ""


@pytest.mark.parametrize("batch", [3, 64])
def test_the_answer_is_the_best_span_of_all_windows_and_nothing_where_there_is_none(both, batch):
    task, theirs = both
    some = questions(12, seed=4)
    expected = [naive(theirs, record) for record in some]
    assert task.predict(some, batch) == expected
    assert task.predict([record._replace(answers=()) for record in some], batch) == expected, "it saw the answers"
    assert any(len(list(windows(record))) > 1 for record in some)
    assert any(expected)


def test_no_answer_wins_only_where_every_window_prefers_it(both, monkeypatch):
    """Two windows: the score of no answer is the lower of theirs, since most windows do not have the answer."""
    long = questions(1, least=30, most=30)[0]
    count = len(list(windows(long)))
    assert count > 1

    def answers(*nones):
        def each(task, made, batch):
            for window, none in enumerate(nones):
                logits = np.zeros((len(made["ids"][window]), 2), np.float32)
                logits[0] = none / 2
                logits[8] = window + 1.0
                yield window, logits

        monkeypatch.setattr(Answering, "_answers", each)
        return both[0].predict([long])[0]

    assert answers(*[9.0] * count) == ""
    *_, (_, _, last) = windows(long)
    assert answers(*[9.0] * (count - 1), 1.0) == long.context[last[8][0] : last[8][1]]


def test_scores_are_those_of_squad_apart_for_questions_without_an_answer(both):
    some = questions(8)
    found = both[0].score(some)
    assert list(found.scores()) == ["f1", "exact_match"]
    assert found.details()["answerable"]["questions"] == 6
    assert found.details()["unanswerable"]["questions"] == 2
    assert list(found.lines())[3] == {
        "source": some[3].question,
        "reference": "",
        "hypothesis": found.predictions[3],
    }


def test_a_question_that_is_too_long_for_a_window_is_cut_and_leaves_room_for_the_text(both):
    endless = questions(1)[0]._replace(question=" ".join(["ba", "de", "di"] * 30))
    found = both[0].numbers([endless])
    assert {tuple(ids[1:9]) for ids in found["ids"]} == {
        tuple(tokenizer()("ba de di ba de di ba de")["input_ids"][1:-1])
    }
    assert all(len(ids) <= LONGEST for ids in found["ids"])
    assert any(found["start"])
    assert len(both[0].predict([endless])) == 1


def test_another_stride_has_another_place_in_the_cache_and_another_longest_answer_has_not(both, tmp_path):
    task, some = both[0], questions(4)
    others = [Answering(task.model, task.tokenizer, (), LONGEST, *rest) for rest in ((STRIDE, MOST + 1), (STRIDE + 1,))]
    folders = [dataset(one, some, tmp_path).folder for one in (task, *others)]
    assert folders[0] == folders[1] != folders[2]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"longest": 31}, "longest = 31: it must be a whole number of at least 32."),
        ({"longest": 64, "stride": 33}, "stride = 33: it must be at most half of longest = 64; take a smaller one."),
        ({"stride": -1}, "stride = -1: it must be a whole number of at least 0."),
        ({"most": 0}, "most = 0: it must be a whole number of at least 1."),
    ],
)
def test_windows_that_cannot_be_made_are_one_sentence(changes, sentence):
    with pytest.raises(BadInput) as refusal:
        Answering(None, None, **changes)
    assert str(refusal.value) == sentence
