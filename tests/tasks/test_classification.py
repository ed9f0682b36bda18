"""Classification: what the model is given and the loss are those of transformers, for each text by itself."""

import numpy as np
import pytest

from dpnlp.checks import BadInput
from dpnlp.data.labelled import Columns
from dpnlp.data.labelled import labelled as opened
from dpnlp.models.readers import Head
from dpnlp.tasks.classification import Classification

from .readers import (
    LABELS,
    asked,
    assert_losses_are_those_of_each_alone,
    labelled,
    tokenizer,
    with_head,
    write_labelled,
)

LONGEST = 12


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The task, and the model of transformers that has the same weights."""
    reader, theirs = with_head(tmp_path_factory.mktemp("bert"), Head.SEQUENCES, LABELS)
    return Classification(reader.model, reader.tokenizer, reader.labels, LONGEST), theirs


def alone(record):
    """What transformers makes of one text, or of a pair."""
    given = (record.text,) if record.pair is None else (record.text, record.pair)
    return tokenizer()(*given, truncation=True, max_length=LONGEST)


def dataset(task, records, folder):
    file = write_labelled(folder / "texts.jsonl", records)
    pair = None if records[0].pair is None else "pair"
    return task.dataset(opened(file, Columns(pair=pair, owner="who")), folder / "cache")


@pytest.mark.parametrize("pairs", [False, True])
def test_tokens_types_and_labels_are_those_of_each_text_alone(both, tmp_path, pairs):
    some = labelled(9, pairs=pairs)
    found = dataset(both[0], some, tmp_path)
    expected = [alone(record) for record in some]
    assert max(len(one["input_ids"]) for one in expected) == LONGEST, "none is cut"
    assert found.ragged["ids"].lists(range(9)) == [one["input_ids"] for one in expected]
    assert found.ragged["types"].lists(range(9)) == [one["token_type_ids"] for one in expected]
    assert any(1 in one["token_type_ids"] for one in expected) == pairs
    assert [LABELS[label] for label in found.single["label"]] == [record.label for record in some]
    assert found.owners.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("pairs", [False, True])
def test_the_loss_of_a_text_is_that_of_transformers_whoever_it_is_read_with(both, tmp_path, pairs):
    task, theirs = both
    some = labelled(6, pairs=pairs)
    expected = [
        asked(theirs, one["input_ids"], one["token_type_ids"], labels=LABELS.index(record.label)).loss.item()
        for record in some
        for one in (alone(record),)
    ]
    assert_losses_are_those_of_each_alone(task, dataset(task, some, tmp_path), expected)


@pytest.mark.parametrize("batch", [3, 64])
def test_a_prediction_is_what_transformers_finds_most_likely_in_the_order_of_the_texts(both, batch):
    task, theirs = both
    some = labelled(17, seed=3)
    logits = [asked(theirs, one["input_ids"], one["token_type_ids"]).logits for one in map(alone, some)]
    expected = [LABELS[int(each.argmax())] for each in logits]
    assert len(set(expected)) > 1
    assert task.predict(some, batch) == expected
    assert task.predict([record._replace(label="bad") for record in some], batch) == expected, "it saw the label"


def test_a_label_that_the_model_does_not_know_is_refused_when_learned_from_and_missed_when_scored(both, tmp_path):
    task, strange = both[0], [*labelled(8), labelled(1)[0]._replace(label="odd")]
    with pytest.raises(BadInput) as refusal:
        dataset(task, strange, tmp_path)
    assert str(refusal.value) == "label = 'odd': it must be one of bad, fair, good; name all of them."
    found = task.score(strange)
    assert found.details()["labels"] == [*LABELS, "odd"]
    assert found.details()["classes"]["odd"]["support"] == 1
    assert found.details()["classes"]["odd"]["recall"] == 0
    right = sum(map(str.__eq__, found.predictions, (record.label for record in strange)))
    assert found.scores()["accuracy"].value == pytest.approx(right / 9)


def test_what_is_scored_is_what_was_predicted(both):
    some = labelled(12, pairs=True)
    found = both[0].score(some, batch=5)
    assert list(found.predictions) == both[0].predict(some)
    assert list(found.scores()) == ["macro_f1", "micro_f1", "accuracy"]
    assert list(found.lines())[4] == {
        "source": f"{some[4].text} / {some[4].pair}",
        "reference": some[4].label,
        "hypothesis": found.predictions[4],
    }


def test_other_labels_or_lengths_have_another_place_in_the_cache(both, tmp_path):
    task, some = both[0], labelled(5)
    others = [
        Classification(task.model, task.tokenizer, labels, longest)
        for labels, longest in ((LABELS, LONGEST), (LABELS[::-1], LONGEST), (LABELS, LONGEST - 1))
    ]
    folders = {dataset(one, some, tmp_path).folder for one in (task, *others)}
    assert len(folders) == 3


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"labels": ("a", "b", "a")}, "labels = a, b, a: one is there twice; name each of them once."),
        ({"longest": 7}, "longest = 7: it must be a whole number of at least 8."),
    ],
)
def test_what_makes_no_sense_is_one_sentence(changes, sentence):
    with pytest.raises(BadInput) as refusal:
        Classification(None, None, **changes)
    assert str(refusal.value) == sentence


def test_a_model_whose_positions_are_no_power_of_two_reads_texts_of_all_of_them(both):
    """Texts are padded to 16, 32, 64, … but never beyond the longest of them."""
    long = labelled(1)[0]._replace(text=" ".join(["ba"] * 60))
    task = Classification(both[0].model, both[0].tokenizer, LABELS, 48)
    ids = np.array(tokenizer()(long.text, truncation=True, max_length=48)["input_ids"])
    expected = asked(both[1], ids.tolist(), [0] * 48).logits.argmax()
    assert task.predict([long]) == [LABELS[int(expected)]]
