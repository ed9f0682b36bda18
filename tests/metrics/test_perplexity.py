"""Perplexity and AccuracyTop1 against loops over tokens, and the guess without context against all guesses."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.metrics.perplexity import Unigram, accuracy_top1, perplexity

TOKENS = st.lists(st.integers(0, 4), min_size=1, max_size=30)


def test_perplexity_is_the_inverse_of_the_geometric_mean_of_the_probabilities():
    p = [0.5, 0.25, 0.125, 1.0]
    score = perplexity([-math.log(each) for each in p])
    assert score.value == pytest.approx(math.prod(p) ** (-1 / 4))
    assert score.signature.startswith("perplexity|per:token|n:4|version:dpnlp-")


@given(st.lists(st.floats(0, 50), min_size=2, max_size=40))
def test_perplexity_is_of_all_tokens_together_and_not_a_mean_over_batches(losses):
    total = 0.0
    for loss in losses:
        total += loss
    assert perplexity(losses).value == pytest.approx(math.exp(total / len(losses)))
    assert perplexity(losses[::-1]).value == pytest.approx(perplexity(losses).value)


def test_a_uniform_guess_over_v_tokens_has_a_perplexity_of_v():
    assert perplexity(np.full(7, math.log(10_000))).value == pytest.approx(10_000)


@pytest.mark.parametrize("losses", [[math.nan, 1.0], [math.inf, 1.0], [1e6]])
def test_a_model_that_has_come_apart_has_an_infinite_one(losses):
    assert perplexity(losses).value == math.inf


@given(TOKENS, st.data(), st.sampled_from([None, 0, 3]))
def test_accuracy_is_the_share_of_right_guesses_and_unknown_words_are_never_guessed(true, data, unknown):
    guessed = data.draw(st.lists(st.integers(0, 4), min_size=len(true), max_size=len(true)))
    right = sum(g == t and t != unknown for g, t in zip(guessed, true, strict=True))
    score = accuracy_top1(guessed, true, unknown, ends="counted")
    assert score.value == pytest.approx(100 * right / len(true))
    said = "none" if unknown is None else "wrong"
    assert score.signature.startswith(f"accuracy_top1|unknown:{said}|ends:counted|n:{len(true)}|version:dpnlp-")


@given(TOKENS, st.sampled_from([None, 0, 3]))
def test_no_guess_without_context_is_better_than_the_unigram_one(true, unknown):
    found = Unigram.of(true, unknown)
    each = [accuracy_top1([token] * len(true), true, unknown).value for token in range(5)]
    assert found.accuracy == pytest.approx(max(each))
    assert found.accuracy == pytest.approx(each[found.token])
    assert found.unknown == pytest.approx(100 * sum(token == unknown for token in true) / len(true))
    shares = {token: count / len(true) for token, count in Counter(true).items()}
    assert found.perplexity == pytest.approx(perplexity([-math.log(shares[token]) for token in true]).value)
    smoothed = [0.9 * shares.get(token, 0) + 0.02 for token in true]
    assert found.perplexity <= perplexity([-math.log(share) for share in smoothed]).value + 1e-9


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (lambda: perplexity([]), "losses of shape [0]: a score needs one entry for each of at least one token."),
        (
            lambda: accuracy_top1([1, 2], [1], None),
            "predictions = 2 tokens, references = 1: there must be one for each.",
        ),
        (
            lambda: Unigram.of([[1]], None),
            "references of shape [1, 1]: a score needs one entry for each of at least one token.",
        ),
    ],
)
def test_what_cannot_be_scored_is_refused(made, sentence):
    with pytest.raises(BadInput) as refusal:
        made()
    assert str(refusal.value) == sentence
