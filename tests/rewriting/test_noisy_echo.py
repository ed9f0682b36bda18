"""The nearest public sentence to a clipped and noisy vector."""

import math
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from dpnlp.checks import BadInput
from dpnlp.guarantee import Trust, Unit
from dpnlp.mechanisms import analytic_sigma
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.rewriting import noisy_echo
from dpnlp.rewriting.echo import Bank
from dpnlp.rewriting.noisy_echo import NoisyEcho

from ..mechanisms.audit import epsilon_lower_bound
from .test_echo import BANK, WIDTH, Meaning


def rewriter(epsilon=2.0, delta=1e-3, directions=3, seed=0):
    return NoisyEcho(BANK, Meaning(), epsilon, delta, directions, FixedSeed(seed))


def test_directions_are_those_of_most_variance():
    """By the singular vectors of the centred bank, up to their sign."""
    made = rewriter()
    centred = BANK.vectors - BANK.vectors.mean(axis=0)
    _, _, rows = np.linalg.svd(centred, full_matrices=False)
    texts = ["one", "two", "three"]
    expected = (Meaning()(texts) - BANK.vectors.mean(axis=0)) @ rows[:3].T
    np.testing.assert_allclose(np.abs(made.encode(texts)), np.abs(expected), atol=1e-4)
    lengths = np.linalg.norm(centred @ rows[:3].T, axis=1)
    assert made.clip.bound == pytest.approx(np.quantile(lengths, 0.9), rel=1e-4)


def test_the_noise_is_that_of_the_theorem():
    made = rewriter()
    assert made.mechanism.sigma == analytic_sigma(2.0, 1e-3, 2 * made.clip.bound)
    released = made.latents(["a text"] * 4000) - made.clip(made.encode(["a text"]))
    assert np.std(released) == pytest.approx(made.mechanism.sigma, rel=0.03)
    promised = made.guarantee()
    assert (promised.epsilon, promised.delta, promised.unit, promised.trust) == (2.0, 1e-3, Unit.TEXT, Trust.LOCAL)


def test_an_audit_of_two_far_texts_finds_no_more_than_is_claimed_and_would_find_less_noise():
    """The event is that the noisy latent lies on the first text's side by so much that δ hardly counts."""
    made, trials = rewriter(epsilon=1.0, directions=1), 200_000
    texts = sorted((f"text {n}" for n in range(200)), key=lambda text: np.asarray(made.encode([text]))[0, 0])
    pair = texts[-1], texts[0]
    assert np.abs(made.clip(made.encode(pair))).min() > 0.95 * made.clip.bound

    def found(one):
        first, second = (one.latents([text] * trials)[:, 0] for text in pair)
        threshold = 2 * one.mechanism.sigma
        return epsilon_lower_bound(int(np.sum(first > threshold)), int(np.sum(second > threshold)), trials, 1e-3)

    assert 0.5 < found(made) <= 1.0
    weak = rewriter(epsilon=1.0, directions=1)
    object.__setattr__(
        weak, "mechanism", replace(made.mechanism, sensitivity=made.mechanism.sensitivity / math.sqrt(2))
    )
    assert found(weak) > 1.0


def test_without_noise_a_sentence_of_the_bank_comes_back_as_itself():
    made = NoisyEcho(BANK, Meaning(), math.inf, 0.0, WIDTH)
    inside = np.linalg.norm(made._places, axis=1) < made.clip.bound
    chosen = [sentence for sentence, keeps in zip(BANK.sentences, inside, strict=True) if keeps]
    assert made.rewrite(chosen) == chosen
    assert made.guarantee().epsilon == math.inf


@pytest.mark.parametrize(("width", "directions"), [(200, 128), (128, 128), (5, 5)])
def test_a_folder_is_used_along_128_directions_or_as_many_as_its_vectors_have_entries(
    monkeypatch, tmp_path, width, directions
):
    vectors = np.random.default_rng(0).normal(size=(30, width)).astype(np.float32)
    monkeypatch.setattr(noisy_echo, "opened", lambda folder: (Bank(BANK.sentences, vectors, BANK.alike), Meaning()))
    made = noisy_echo.load(tmp_path, 2.0, 1e-3)
    assert (made.directions, made.clip.dimension) == (directions, directions)


def test_what_the_noise_was_made_for_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        rewriter().epsilon = 9.0


def test_refusals():
    with pytest.raises(BadInput, match="directions = 9: the vectors have 4 entries"):
        rewriter(directions=9)
