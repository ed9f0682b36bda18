"""A rewriter's folder says which method it is, and whatever cannot be read in it is refused in one sentence."""

import json
import math

import pytest

from dpnlp.checks import BadInput
from dpnlp.guarantee import Exposure
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.rewriting import folders, word_metric
from dpnlp.rewriting.word_metric import WordMetric
from dpnlp.runs.provenance import Door, Provenance


@pytest.fixture
def words(tmp_path):
    """A folder with a rewriter of words, which needs no model."""
    (tmp_path / "vectors.txt").write_text("ant 0 0\nbee 3 4\n")
    folder = tmp_path / "words"
    folder.mkdir()
    word_metric.save(tmp_path / "vectors.txt", folder)
    folders.describe(folder, "words")
    return folder


def test_a_folder_gives_the_rewriter_of_its_method(words):
    assert folders.method_of(words) == "words"
    made = folders.load(words, 50.0, source=FixedSeed(1))
    assert isinstance(made, WordMetric)
    assert made.eta == pytest.approx(10.0)
    assert made.rewrite(["ant bee"] * 9) == WordMetric(made.vectors, made.eta, FixedSeed(1)).rewrite(["ant bee"] * 9)
    assert folders.load(words, math.inf).rewrite(["ant bee"]) == ["ant bee"]


def test_a_rewriter_is_made_of_what_its_folder_is_made_of(words):
    made_of = Provenance(exposures=(Exposure.PRETRAINING,))
    assert folders.load(words, 1.0).provenance == Provenance(exposures=(Exposure.ORIGIN,))  # nobody has said
    Door().keep(words, made_of)
    assert folders.load(words, 1.0).provenance == made_of


def test_every_method_has_a_module_that_loads_it(tmp_path):
    """Each misses something else in a folder with nothing but its name."""
    for method in folders.METHODS:
        folders.describe(tmp_path, method)
        assert folders.method_of(tmp_path) == method
        with pytest.raises(BadInput, match=str(tmp_path)):
            folders.load(tmp_path, 1.0, 1e-6)


def test_a_folder_without_a_rewriter_is_refused(tmp_path):
    said = f"{tmp_path}: there is no rewriter in it, for it has no rewriter.json; dpnlp pretrain makes one."
    for ask in (folders.method_of, lambda folder: folders.load(folder, 1.0)):
        with pytest.raises(BadInput) as refused:
            ask(tmp_path)
        assert str(refused.value) == said


@pytest.mark.parametrize("written", ["", "{", "[]", '"words"', "{}", '{"method": 3}', '{"method": null}', "[" * 10**5])
def test_a_file_that_names_no_method_is_refused(words, written):
    (words / "rewriter.json").write_text(written)
    said = f"{words / 'rewriter.json'}: it does not say what the rewriter is; make the rewriter again."
    for ask in (folders.method_of, lambda folder: folders.load(folder, 1.0)):
        with pytest.raises(BadInput) as refused:
            ask(words)
        assert str(refused.value) == said


def test_a_method_that_there_is_not_is_refused(words):
    (words / "rewriter.json").write_text(json.dumps({"method": "os"}))
    with pytest.raises(BadInput) as refused:
        folders.load(words, 1.0)
    assert str(refused.value) == (
        f"{words / 'rewriter.json'}: method = os: it must be one of adept, dp-bart, echo, noisy-echo, retell, "
        "sampling, words."
    )
