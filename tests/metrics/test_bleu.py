"""BLEU and chrF against sacreBLEU itself, its command among it, and against a worked example."""

import json
import math
import subprocess
import sys

import pytest
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.tokenizers import tokenizer_ja_mecab

from dpnlp.checks import BadInput
from dpnlp.metrics.bleu import bleu, chrf
from dpnlp.metrics.score import Score

HYPOTHESES = ["The cat sat on a mat.", "It was raining all day long, and we stayed in.", "Yes"]
REFERENCES = ["The cat sat on the mat.", "It rained all day long, so we stayed in.", "Yes!"]
OTHERS = ["A cat was sitting on a mat.", "It was raining all day, so we stayed at home.", "Yes, it is."]
SEVERAL = [list(pair) for pair in zip(REFERENCES, OTHERS, strict=True)]


def test_a_worked_example():
    """Of the first text all n-grams are found; of the second all words, two pairs and one triple."""
    hypotheses = ["the cat sat on the mat", "a dog ran in the park"]
    references = ["the cat sat on the mat", "the dog ran in a park"]
    precisions = [(6 + 6) / 12, (5 + 2) / 10, (4 + 1) / 8, (3 + 0) / 6]
    assert bleu(hypotheses, references).value == pytest.approx(100 * math.prod(precisions) ** (1 / 4))
    longer = [references[0], references[1] + " near by"]  # 14 words against 12
    assert bleu(hypotheses, longer).value == pytest.approx(
        100 * math.exp(1 - 14 / 12) * math.prod(precisions) ** (1 / 4)
    )


@pytest.mark.parametrize("tokenizer", ["13a", "intl", "zh", "char", "none"])
@pytest.mark.parametrize("lowercase", [False, True])
def test_bleu_is_that_of_sacrebleu(tokenizer, lowercase):
    metric = BLEU(tokenize=tokenizer, lowercase=lowercase)
    expected = metric.corpus_score(HYPOTHESES, [REFERENCES, OTHERS])
    found = bleu(HYPOTHESES, SEVERAL, tokenizer=tokenizer, lowercase=lowercase)
    assert found == Score(expected.score, f"BLEU|{metric.get_signature()}")
    assert 0 < found.value < 100


@pytest.mark.parametrize("words", [0, 1, 2])
@pytest.mark.parametrize("lowercase", [False, True])
def test_chrf_is_that_of_sacrebleu(words, lowercase):
    metric = CHRF(word_order=words, lowercase=lowercase)
    expected = metric.corpus_score(HYPOTHESES, [REFERENCES, OTHERS])
    found = chrf(HYPOTHESES, SEVERAL, words=words, lowercase=lowercase)
    assert found == Score(expected.score, f"chrF2{'+' * words}|{metric.get_signature()}")


def test_both_are_what_the_command_prints(tmp_path):
    for name, lines in (("hypotheses", HYPOTHESES), ("references", REFERENCES)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", "references", "-i", "hypotheses", "-m", "bleu", "chrf", "-w", "6"]
    printed = json.loads(subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout)
    for theirs, ours in zip(printed, (bleu(HYPOTHESES, REFERENCES), chrf(HYPOTHESES, REFERENCES)), strict=True):
        assert ours.value == pytest.approx(theirs["score"], abs=1e-6)
        assert ours.signature == f"{theirs['name']}|{theirs['signature']}"


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_a_reference_for_each_and_lists_of_one_are_the_same(metric):
    assert metric(HYPOTHESES, REFERENCES) == metric(HYPOTHESES, [[one] for one in REFERENCES])
    assert metric(REFERENCES, REFERENCES).value == pytest.approx(100)


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_lines_may_have_different_numbers_of_references(metric):
    """A second reference that says the same as the first changes nothing but the signature."""
    some = [[REFERENCES[0]] * 2, [REFERENCES[1]], [REFERENCES[2]] * 3]
    found = metric(HYPOTHESES, some)
    assert found.value == metric(HYPOTHESES, REFERENCES).value
    assert "|nrefs:var|" in found.signature


def test_every_line_counts():
    for line in range(3):
        worse = [text if place != line else "nothing of it" for place, text in enumerate(HYPOTHESES)]
        assert bleu(worse, REFERENCES).value < bleu(HYPOTHESES, REFERENCES).value


def test_an_empty_hypothesis_counts_too():
    assert 0 < bleu([*HYPOTHESES, ""], [*REFERENCES, "Something."]).value < bleu(HYPOTHESES, REFERENCES).value
    assert bleu([""], ["Something."]).value == 0


def test_a_score_says_how_it_was_made():
    shown = str(bleu(HYPOTHESES, REFERENCES))
    assert shown.startswith("BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert shown.endswith(f" = {bleu(HYPOTHESES, REFERENCES).value:.2f}")


@pytest.mark.parametrize("metric", [bleu, chrf])
@pytest.mark.parametrize(
    ("hypotheses", "references", "sentence"),
    [
        (["a", "b"], ["a"], r"hypotheses = 2 lines and references = 1 lines: there must be as many"),
        ([], [], r"hypotheses = 0 lines: a score needs at least one"),
        (["a", None], ["a", "b"], r"hypotheses, line 2 = None: it must be a text"),
        (["a", "b"], ["a", 3], r"references, line 2 = 3: it must be a text"),
        (["a"], [["a", b"b"]], r"references, line 1 = b'b': it must be a text"),
        (["a"], [[]], r"references, line 1 = \[\]: each line needs at least one"),
        ("a", ["a"], r"hypotheses = 'a': it must be a list"),
        (["a"], "a", r"references = 'a': it must be a list"),
    ],
)
def test_what_cannot_be_scored_is_refused_in_one_sentence(metric, hypotheses, references, sentence):
    with pytest.raises(BadInput, match=rf"^{sentence}[^.]*\.$"):
        metric(hypotheses, references)


def test_an_option_that_is_not_there_is_refused_in_one_sentence(monkeypatch):
    with pytest.raises(BadInput, match=r"^tokenizer = 'mecab': it must be one of 13a, [^.]*\.$"):
        bleu(HYPOTHESES, REFERENCES, tokenizer="mecab")
    with pytest.raises(BadInput, match=r"^words = 3: it must be 0 for chrF[^.]*\.$"):
        chrf(HYPOTHESES, REFERENCES, words=3)
    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    with pytest.raises(BadInput, match=r"^tokenizer = 'ja-mecab': it needs a package [^.]*sacrebleu\[ja\]'\.$"):
        bleu(HYPOTHESES, REFERENCES, tokenizer="ja-mecab")
