"""Class by class: what a person sees of a model that fell for the largest class, and of one that did not."""

import pytest

from dpnlp.metrics.entities import entity_f1
from dpnlp.metrics.f1 import confusion
from dpnlp.runs.classes import MOST, classes
from dpnlp.runs.page import page_of_run

from .fakes import fake
from .test_page import Page

TRUE = ["flight"] * 70 + ["fare"] * 20 + ["airline"] * 10


def judged(path, references, predictions, split="test", **more):
    """A run with these answers."""
    run = fake(path / "run")
    run.write_details({split: confusion(references=references, predictions=predictions).to_json() | more})
    return run


def cells(run):
    """The tables of the part: their rows, as texts."""
    page = Page(str(classes(run)))
    assert not page.open
    return [text for tag, text in page.texts if tag in ("td", "th", "span")]


def test_a_model_that_fell_for_the_majority_is_said_to_have_in_the_first_words(tmp_path):
    run = judged(tmp_path, TRUE, ["flight"] * 97 + ["fare"] * 3)
    page = Page(str(classes(run)))
    assert ("role", "alert") in page.attributes
    assert (
        "The model has fallen for it: 90 % of everything else is taken for it. The most frequent class is flight: 70 % "
        "of all, and 97 % of what the model says. Whoever always says it has a macro-F1 of 0.27; the model has 0.28."
    ) in page.text
    whole = page_of_run(run)
    assert "The model has fallen for it" in whole
    assert "Class by class" in whole


def test_a_model_that_did_not_is_only_described(tmp_path):
    predictions = ["flight"] * 65 + ["fare"] * 25 + ["airline"] * 10
    page = Page(str(classes(judged(tmp_path, TRUE, predictions))))
    assert "fallen" not in page.text
    assert ("role", "alert") not in page.attributes
    assert "The most frequent class is flight: 70 % of all, and 65 % of what the model says." in page.text


def test_the_table_has_f1_precision_recall_and_both_counts_of_every_class(tmp_path):
    found = cells(judged(tmp_path, ["a"] * 1200 + ["b"] * 3, ["a"] * 1199 + ["b"] * 3 + ["a"]))
    assert found[:6] == ["class", "F1", "precision", "recall", "in the data", "predicted"]
    assert found[6:18] == ["a", "1.00", "1.00", "1.00", "1,200", "1,200", "b", "0.67", "0.67", "0.67", "3", "3"]


def test_rows_are_what_is_true_and_columns_what_the_model_says_shaded_by_the_share_of_the_row(tmp_path):
    run = judged(tmp_path, ["a"] * 4 + ["b"] * 2, ["a", "a", "a", "b", "a", "a"])
    assert cells(run)[-9:] == ["true \\ said", "a", "b", "a", "3", "1", "b", "2", "0"]
    shades = [value for name, value in Page(str(classes(run))).attributes if name == "style"]
    assert shades == ["--share: 0.75", "--share: 0.25", "--share: 1.00", "--share: 0.00"]


@pytest.mark.parametrize("count", [MOST, MOST + 1])
def test_a_confusion_of_many_classes_is_left_out_and_their_table_is_not(tmp_path, count):
    labels = [f"class {number}" for number in range(count)]
    found = cells(judged(tmp_path, labels, labels))
    assert ("true \\ said" in found) == (count == MOST)
    assert set(labels) <= set(found)


def test_entities_have_a_table_of_their_own(tmp_path):
    true, said = [["B-PER", "I-PER", "O"]], [["B-PER", "O", "O"]]
    entities = entity_f1(references=true, predictions=said).to_json()
    run = judged(tmp_path, true[0], said[0], entities=entities)
    page = Page(str(classes(run)))
    assert [text for tag, text in page.texts if tag == "h3"] == ["test", "test, whole entities"]
    assert cells(run)[-12:-6] == ["type", "F1", "precision", "recall", "in the data", "predicted"]
    assert cells(run)[-6:] == ["PER", "0.00", "0.00", "0.00", "1", "1"]


def test_every_split_is_shown_and_what_has_no_classes_is_not(tmp_path):
    run = fake(tmp_path / "run")
    assert classes(run) == ""
    run.write_details({"test": {"f1": 0.5, "exact": 0.5}})
    assert classes(run) == ""
    both = confusion(references=["a", "b"], predictions=["a", "a"]).to_json()
    run.write_details({"validation": both, "test": both})
    assert [text for tag, text in Page(str(classes(run))).texts if tag == "h3"] == ["test", "validation"]


def test_a_class_is_a_text_and_never_markup(tmp_path):
    attack = "<img src=x onerror=alert(1)>"
    page = Page(str(classes(judged(tmp_path, [attack, "b"], [attack, attack]))))
    assert "img" not in page.tags
    assert attack in page.text
