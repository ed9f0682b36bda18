"""Questions are read as SQuAD writes them, answers stand where they are said to, and what is wrong is one sentence."""

import json

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.data.questions import Answer, Columns, Question, questions
from dpnlp.data.records import divided

CONTEXT = "Normandy is a region in France. The Normans gave it their name in the 10th century in France."
NORMANDY = Question("q1", "What is Normandy?", CONTEXT, (Answer("a region", 12), Answer("region", 14)), "Normans")
NOWHERE = Question("q2", "Who is Rollo?", CONTEXT, (), "Normans")
WITH_TITLE = Columns(owner="title")


def asked(question, **changed):
    answers = [{"text": text, "answer_start": start} for text, start in question.answers]
    return {"id": question.id, "question": question.question, "answers": answers} | changed


def squad(*qas, **changed):
    return {
        "version": "v2.0",
        "data": [{"title": "Normans", "paragraphs": [{"context": CONTEXT, "qas": qas}]}],
    } | changed


ONE, NONE = asked(NORMANDY, is_impossible=False), asked(NOWHERE, is_impossible=True)


def refused(path):
    with pytest.raises(BadInput) as refusal:
        list(questions(path))
    return str(refusal.value)


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", ["dev-v2.0.json", "dev-v2.0.json.gz"])
def test_a_file_of_squad(write, indent, name):
    opened = questions(write(name, json.dumps(squad(ONE, NONE), indent=indent)), WITH_TITLE)
    assert list(opened) == [NORMANDY, NOWHERE]
    assert list(opened) == [NORMANDY, NOWHERE]
    assert [question.owner for question in questions(opened.files[0])] == [None, None]


def test_squad_1_does_not_mark_questions(write):
    old = squad(asked(NORMANDY), version="1.1")
    assert list(questions(write("a.json", json.dumps({"data": old["data"], "version": "1.1"})), WITH_TITLE)) == [
        NORMANDY
    ]


def test_json_lines_have_a_list_of_answers_or_two_lists(write):
    rows = [
        asked(NORMANDY, context=CONTEXT, title="Normans"),
        asked(NOWHERE, context=CONTEXT, title="Normans"),
        asked(
            NORMANDY,
            context=CONTEXT,
            title="Normans",
            answers={"text": ["a region", "region"], "answer_start": [12, 14]},
        ),
        asked(NOWHERE, context=CONTEXT, title="Normans", answers={"text": [], "answer_start": []}),
        asked(NOWHERE, context=CONTEXT, title="Normans", answers=None),
    ]
    for name in ("a.jsonl", "a.json"):
        path = write(name, "".join(json.dumps(row) + "\n" for row in rows))
        assert list(questions(path, WITH_TITLE)) == [NORMANDY, NOWHERE, NORMANDY, NOWHERE, NOWHERE]
    assert next(iter(questions(write("b.json", json.dumps(rows)), WITH_TITLE))) == NORMANDY


def test_a_folder_saved_by_datasets(tmp_path):
    rows = [
        {"id": q.id, "title": q.owner, "context": q.context, "question": q.question,
         "answers": {"text": [a.text for a in q.answers], "answer_start": [a.start for a in q.answers]}}
        for q in (NORMANDY, NOWHERE)
    ]  # fmt: skip
    answers = {"text": datasets.List(datasets.Value("string")), "answer_start": datasets.List(datasets.Value("int32"))}
    texts = {name: datasets.Value("string") for name in ("id", "title", "context", "question")}
    part = datasets.Dataset.from_list(rows, features=datasets.Features(texts | {"answers": answers}))
    datasets.DatasetDict(validation=part).save_to_disk(tmp_path / "saved")
    assert list(questions(tmp_path / "saved", WITH_TITLE, "validation")) == [NORMANDY, NOWHERE]


@pytest.mark.parametrize("start", [-1, 0, 13, 10_000])
def test_an_answer_that_stands_in_one_other_place_is_taken_from_there(write, start):
    path = write("a.json", json.dumps(squad(asked(NORMANDY, answers=[{"text": "a region", "answer_start": start}]))))
    assert next(iter(questions(path))).answers == (Answer("a region", 12),)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (("Rollo", 3), "have 'Rollo', which is not at 3 and nowhere in the context; correct its start."),
        (("France", 3), "have 'France', which is not at 3 and several times elsewhere; correct its start."),
        (("France", 85), "have 'France', which is not at 85 and several times elsewhere; correct its start."),
        ((" ", 8), "must have a text and a whole number as answer_start."),
        ((3, 8), "must have a text and a whole number as answer_start."),
        (("a", "8"), "must have a text and a whole number as answer_start."),
        (("a", None), "must have a text and a whole number as answer_start."),
        (("a", True), "must have a text and a whole number as answer_start."),
    ],
)
def test_an_answer_that_is_not_in_its_place_is_refused(write, answer, sentence):
    wrong = asked(NORMANDY, answers=[{"text": answer[0], "answer_start": answer[1]}])
    path = write("a.json", json.dumps(squad(NONE, wrong)))
    assert refused(path) == f"{path}, question 2: the answers (answers) of q1 {sentence}"
    path = write("a.jsonl", "\n" + json.dumps(wrong | {"context": CONTEXT}))
    assert refused(path) == f"{path}, line 2: the answers (answers) of q1 {sentence}"


def test_places_that_overlap_are_several(write):
    row = {"id": "q", "question": "?", "context": "x ana nana", "answers": [{"text": "nan", "answer_start": 0}]}
    assert next(iter(questions(write("a.jsonl", json.dumps(row))))).answers == (Answer("nan", 6),)
    path = write("b.jsonl", json.dumps(row | {"context": "x anana", "answers": [{"text": "ana", "answer_start": 0}]}))
    assert refused(path).endswith("'ana', which is not at 0 and several times elsewhere; correct its start.")


def test_an_answer_that_stands_in_several_places_is_where_it_says(write):
    second = CONTEXT.rindex("France")
    path = write("a.json", json.dumps(squad(asked(NORMANDY, answers=[{"text": "France", "answer_start": second}]))))
    assert next(iter(questions(path))).answers == (Answer("France", second),)


LAYOUT = "it is not laid out as SQuAD is, with data, paragraphs and qas"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (squad(), ": it has no questions; fill it, or give another file."),
        (
            squad(NONE | {"is_impossible": False}),
            ", question 1: q2 has no answers, but is_impossible is not true; correct either.",
        ),
        (
            squad(NONE, ONE | {"is_impossible": True}),
            ", question 2: q1 has answers, but is_impossible is true; correct either.",
        ),
        ({"version": "v2.0"}, f": {LAYOUT}; take the published file."),
        (
            squad(data=[3]),
            f": {LAYOUT}; take the published file.",
        ),
        (
            squad("x"),
            f": {LAYOUT}; take the published file.",
        ),
        (squad(ONE | {"question": ""}), ", question 1: the question (question) is empty; correct the question."),
        (squad(ONE | {"id": None}), ", question 1: the id (id) cannot be empty; correct the question."),
        (
            squad(ONE | {"answers": "France"}),
            ", question 1: the answers (answers) of q1 are a text, and must be a list of objects with text and "
            "answer_start, empty where there is no answer.",
        ),
        (
            [asked(NORMANDY, context=CONTEXT, answers={"text": ["a"], "answer_start": []})],
            ", line 1: the answers (answers) of q1 are an object, and must be a list of objects with text and "
            "answer_start, empty where there is no answer.",
        ),
        ([asked(NORMANDY)], ", line 1: the context (context) is missing; there are answers, question, id."),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence(write, content, sentence):
    path = write("a.json", json.dumps(content))
    assert refused(path) == f"{path}{sentence}"


def test_a_file_of_squad_that_breaks_off_is_refused(write):
    path = write("a.json", '{"version": "v2.0",\n"data": [')
    assert refused(path) == f"{path}, line 2: it is not JSON (Expecting value); take the file anew."


def test_a_document_is_never_in_both_parts(write):
    qas = json.loads(json.dumps(squad(ONE, NONE)))["data"][0]["paragraphs"]
    path = write("a.json", json.dumps({"data": [{"title": f"t{n}", "paragraphs": qas} for n in range(60)]}))
    most, few = map(list, divided(questions(path, WITH_TITLE), 0.4))
    assert len(most) + len(few) == 120
    assert 20 < len(few) < 80
    assert not {question.owner for question in most} & {question.owner for question in few}


@given(st.text("ab ", min_size=1, max_size=12).filter(str.strip), st.data())
def test_an_answer_ends_up_where_it_stands(tmp_path_factory, context, data):
    """The oracle counts the places one by one."""
    first = data.draw(st.integers(0, len(context) - 1))
    text = context[first : data.draw(st.integers(first + 1, len(context)))]
    start = data.draw(st.integers(-2, len(context) + 2))
    path = tmp_path_factory.mktemp("squad") / "a.jsonl"
    row = {"id": 1, "question": "?", "context": context, "answers": [{"text": text, "answer_start": start}]}
    path.write_text(json.dumps(row))
    places = [place for place in range(len(context)) if context[place : place + len(text)] == text]
    if not text.strip() or (start not in places and len(places) > 1):
        with pytest.raises(BadInput):
            list(questions(path))
    else:
        found = start if start in places else places[0]
        assert next(iter(questions(path))).answers == (Answer(text, found),)
