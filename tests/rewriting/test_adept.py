"""ADePT: what of a text comes through, what is promised, and that an audit would find out if it were not kept."""

import functools
import math
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.stats import laplace, norm

from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.checks import BadInput
from dpnlp.guarantee import Adjacency, Exposure, Guarantee, Trust, Unit
from dpnlp.mechanisms import Gaussian, Laplace, analytic_sigma
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.models import autoencoder, generation
from dpnlp.models.pretrained.autoencoders import PretrainedAutoencoder, fresh_autoencoder, load_autoencoder
from dpnlp.models.word_vectors import Vectors
from dpnlp.rewriting.adept import Adept, pretrain
from dpnlp.rewriting.latent import Clip, Rule
from dpnlp.training import Clipping, Optimizer, Options, Plan

from ..mechanisms.audit import epsilon_lower_bound

WORDS = ("play", "a", "song", "by", "the", "beatles", "what", "is", "weather", "in", "rome", "?")
TEXTS = ["play a song", "what is the weather in rome?", "", "xylophone qwertz", "play the " * 30]


@functools.cache
def untrained(order=2, bound=1.0):
    """One that writes a different text for nearly every latent."""
    made = fresh_autoencoder(WORDS, width=4, hidden=6, longest=8, order=order, bound=bound, seed=1)
    for _, variable in nnx.to_flat_state(nnx.state(made.model, nnx.Param)):
        variable.set_value(3 * variable[...])
    return made


# What comes through


def test_a_text_is_written_alike_whoever_is_rewritten_with_it():
    """At ε = ∞, so that nothing but the text decides."""
    together = Adept(untrained(), math.inf, batch=3).rewrite(TEXTS)
    assert together == [Adept(untrained(), math.inf, batch=3).rewrite([text])[0] for text in TEXTS]
    assert together == Adept(untrained(), math.inf, batch=8).rewrite(TEXTS)
    assert together[::-1] == Adept(untrained(), math.inf, batch=3).rewrite(TEXTS[::-1])
    assert len(set(together)) > 2


def test_what_is_written_is_a_function_of_the_noisy_latent_alone():
    """Texts of other lengths with the same latent become the same text, and no program is compiled for them."""
    rewriter, latents = Adept(untrained(), math.inf, batch=4), np.full((len(TEXTS), 12), 0.2)
    rewriter.rewrite(TEXTS[:1])
    compiled = autoencoder._encoded._cache_size(), generation.compiled()
    rewriter.rewrite(TEXTS)
    assert (autoencoder._encoded._cache_size(), generation.compiled()) == compiled
    rewriter.encode = lambda texts: latents[: len(texts)]
    assert len(set(rewriter.rewrite(TEXTS))) == 1


@pytest.mark.parametrize("beams", [1, 3])
def test_no_more_than_the_longest_is_written_and_only_words(beams):
    rewriter = Adept(untrained(), 0.1, source=FixedSeed(0), beams=beams)
    written = [text.split() for text in rewriter.rewrite(["play a song", TEXTS[-1]] * 40)]
    assert max(map(len, written)) == 8
    for same in (written[::2], written[1::2]):
        assert len(set(map(len, same))) > 1, "one text is written at several lengths"
    assert {word for text in written for word in text} <= set(WORDS)


def test_what_is_longer_than_can_be_read_is_cut():
    encode = Adept(untrained(), math.inf).encode
    words = ["play", "a", "song", "by", "the", "beatles", "in", "rome", "what", "is", "the", "weather"]
    cut, whole = encode([" ".join(words[:8]), " ".join(words)])
    np.testing.assert_array_equal(cut, whole)
    assert np.abs(cut - encode([" ".join(words[:7])])[0]).max() > 1e-3


def test_an_empty_text_is_its_end_and_unknown_words_are_one_word():
    encode = Adept(untrained(), math.inf).encode
    empty, blank, one, other, known = encode(["", " \n ", "xylophone", "Qwertz", "play"])
    np.testing.assert_array_equal(empty, blank)
    np.testing.assert_array_equal(one, other)
    for different in (one, known):
        assert np.abs(empty - different).max() > 1e-3
    assert np.abs(one - known).max() > 1e-3


def test_case_and_spaces_do_not_matter():
    encode = Adept(untrained(), math.inf).encode
    np.testing.assert_array_equal(*encode(["What is the weather in ROME?", "what  is the weather in rome ?"]))


def test_a_text_that_cannot_be_encoded_is_not_refused():
    """A refusal would tell of it."""
    rewriter = Adept(untrained(), math.inf)
    np.testing.assert_array_equal(*rewriter.encode(["play \ud800", "play ?"]))
    assert rewriter.rewrite([]) == []


# Clipping and noise

LATENTS = arrays.arrays(np.float64, st.tuples(st.just(2), st.integers(1, 6)), elements=st.floats(-1e6, 1e6))


@pytest.mark.parametrize("rule", Rule)
@given(latents=LATENTS, bound=st.floats(1e-3, 1e3))
def test_no_two_clipped_latents_are_further_apart_than_the_sensitivity(rule, latents, bound):
    clip = Clip(rule, bound, latents.shape[1])
    one, other = clip(latents)
    assert np.abs(one - other).sum() <= clip.sensitivity.l1 * (1 + 1e-12)
    assert np.linalg.norm(one - other) <= clip.sensitivity.l2 * (1 + 1e-12)


@pytest.mark.parametrize("rule", Rule)
@given(n=st.integers(1, 40), bound=st.floats(1e-3, 1e3))
def test_the_sensitivity_is_reached(rule, n, bound):
    """By corners of what clipping leaves: one entry, or all of them, at the bound and at its opposite."""
    clip, apart = Clip(rule, bound, n), []
    for corner in (np.eye(n)[0], np.ones(n)):
        one, other = clip(1e9 * np.array([corner, -corner]))
        apart.append((np.abs(one - other).sum(), np.linalg.norm(one - other)))
    l1, l2 = np.max(apart, axis=0)
    assert l1 == pytest.approx(clip.sensitivity.l1, rel=1e-9)
    assert l2 == pytest.approx(clip.sensitivity.l2, rel=1e-9)


@pytest.mark.parametrize(
    ("order", "delta", "expected"),
    [
        (1, 0.0, 2 * 5 / 3),
        (2, 0.0, 2 * 5 * math.sqrt(12) / 3),
        (1, 1e-5, analytic_sigma(3, 1e-5, 2 * 5)),
        (2, 1e-5, analytic_sigma(3, 1e-5, 2 * 5)),
    ],
)
def test_the_noise_is_that_of_the_theorems(order, delta, expected):
    """Lap(2C/ε) where ℓ1 is clipped, Lap(2C√n/ε) where ℓ2 is (Habernal 2021), N(0, σ²) for 2C (Balle and Wang 2018)."""
    mechanism = Adept(untrained(order, 5.0), 3.0, delta).mechanism
    assert (mechanism.sigma if delta else mechanism.scale) == pytest.approx(expected, rel=1e-9)
    released = Adept(untrained(order, 5.0), 3.0, delta, source=FixedSeed(1))
    still = Adept(untrained(order, 5.0), math.inf)
    found = released.latents(["play"] * 3000) - still.latents(["play"] * 3000)
    deviation = expected if delta else math.sqrt(2) * expected
    assert found.std() == pytest.approx(deviation, rel=0.05)


# The audit

TRIALS, EPSILON = 40_000, 1.0


@functools.cache
def opposite(order):
    """One for which "yes" and "no" have opposite latents, as far apart as clipping lets any two texts be."""
    made = fresh_autoencoder(("yes", "no"), width=1, hidden=1, longest=1, order=order, bound=0.1)
    model = made.model
    for _, variable in nnx.to_flat_state(nnx.state(model, nnx.Param)):
        variable.set_value(jnp.zeros(variable.shape))
    model.decoder.tokens.table.set_value(jnp.zeros((6, 1)).at[4:, 0].set(jnp.array([1.0, -1.0])))
    model.encoder.input.kernel.set_value(jnp.array([[0.0, 0.0, 5.0, 0.0]]))
    return made


def audited(rewriter, delta):
    """A lower bound on ε from what is released of "yes" and of "no": the event is a large likelihood ratio.

    Under Laplace noise it is the largest one; under Gaussian noise the one that is best where σ is too small by √2.
    """
    yes, no = rewriter.clip(rewriter.encode(["yes", "no"]))
    np.testing.assert_allclose(yes, -no)
    mechanism = rewriter.mechanism
    law = norm(scale=mechanism.sigma) if delta else laplace(scale=mechanism.scale)
    most = 1.1 if delta else np.sum(law.logpdf(yes - yes) - law.logpdf(yes - no)) * (1 - 1e-6)
    hits = []
    for text in ("yes", "no"):
        noisy = rewriter.latents([text] * TRIALS)
        evidence = np.sum(law.logpdf(noisy - yes) - law.logpdf(noisy - no), axis=1)
        hits.append(int(np.sum(evidence > most)))
    return epsilon_lower_bound(*hits, TRIALS, delta)


KINDS = [(1, 0.0), (2, 0.0), (2, 0.02)]


@pytest.mark.parametrize(("order", "delta"), KINDS)
def test_the_audit_finds_no_more_than_is_promised(order, delta):
    rewriter = Adept(opposite(order), EPSILON, delta, source=FixedSeed(2), batch=4000)
    assert 0.6 * EPSILON < audited(rewriter, delta) < EPSILON


@pytest.mark.parametrize(("order", "delta"), KINDS)
def test_noise_that_is_too_small_by_the_root_of_2_is_found_out(order, delta):
    rewriter = Adept(opposite(order), EPSILON, delta, source=FixedSeed(3), batch=4000)
    right = rewriter.mechanism
    rewriter.mechanism = replace(right, sensitivity=right.sensitivity / math.sqrt(2))
    assert audited(rewriter, delta) > EPSILON


# What is promised


def test_the_guarantee_is_local_and_for_a_text():
    found = Adept(untrained(), 2.0, 1e-5).guarantee()
    assert (found.epsilon, found.delta) == (2.0, 1e-5)
    assert (found.unit, found.adjacency, found.trust) == (Unit.TEXT, Adjacency.REPLACE, Trust.LOCAL)
    assert found.not_covered == ()
    assert isinstance(Adept(untrained(), 2.0).mechanism, Laplace)
    assert isinstance(Adept(untrained(), 2.0, 1e-5).mechanism, Gaussian)
    assert not Adept(untrained(), math.inf).guarantee().is_private


def test_what_was_taken_from_private_texts_is_named_for_a_text_and_for_a_person():
    exposed = replace(untrained(), exposures=(Exposure.VOCABULARY, Exposure.PRETRAINING))
    rewriter = Adept(exposed, 2.0)
    for found in (rewriter.guarantee(), rewriter.guarantee_for_person(3), rewriter.guarantee_for_person(3, 1e-5)):
        assert found.not_covered == (Exposure.VOCABULARY, Exposure.PRETRAINING)
        assert "pre-trained on the private data" in found.statement()


@pytest.mark.parametrize(
    ("epsilon", "delta", "sentence"),
    [
        (0.0, 0.0, "epsilon = 0.0: it must be a number above 0; inf stands for no privacy."),
        (-1.0, 1e-5, "epsilon = -1.0: it must be a number above 0; inf stands for no privacy."),
        (1.0, -1e-5, "delta = -1e-05: it must lie strictly between 0 and 1."),
        (1.0, 1.0, "delta = 1.0: it must lie strictly between 0 and 1."),
        (1.0, 2.0, "delta = 2.0: it must lie strictly between 0 and 1."),
    ],
)
def test_wrong_budgets_are_refused(epsilon, delta, sentence):
    with pytest.raises(BadInput) as refusal:
        Adept(untrained(), epsilon, delta)
    assert str(refusal.value) == sentence


# Training

SENTENCES = ["play a song", "play a song by the beatles", "what is the weather in rome ?", "is the weather in rome"]
SHAPE = {"width": 8, "hidden": 16, "longest": 8}
OPTIONS = Options(physical_batch=4, lengths=(10,))


def plan(steps, **private):
    schedule = Schedule(4, 4, steps, Sampling.SHUFFLED)
    if not private:
        return Plan.without_privacy(schedule)
    return Plan(replace(schedule, sampling=Sampling.POISSON), Clipping(1.0), adjacency=Adjacency.ADD_REMOVE, **private)


@functools.cache
def trained(**asked) -> PretrainedAutoencoder:
    return pretrain(SENTENCES, plan(250), private=True, optimizer=Optimizer(0.02), options=OPTIONS, **SHAPE, **asked)


def test_it_learns_to_write_what_it_read():
    """With latents that are clipped, as in training, and without noise."""
    rewriter = Adept(trained(), math.inf)
    assert np.linalg.norm(rewriter.encode(SENTENCES), axis=1).min() > 0
    assert rewriter.rewrite(SENTENCES) == SENTENCES
    noisy = Adept(trained(), 0.01, source=FixedSeed(4))
    assert noisy.rewrite(SENTENCES) != SENTENCES


def test_training_on_private_texts_is_remembered_by_the_folder(tmp_path):
    rewriter = Adept(trained(), 5.0, 1e-4, source=FixedSeed(5))
    noisy = rewriter.latents(SENTENCES)
    assert rewriter.guarantee().not_covered == (Exposure.VOCABULARY, Exposure.PRETRAINING)
    rewriter.save(tmp_path / "adept")
    again = Adept.load(tmp_path / "adept", epsilon=5.0, delta=1e-4, source=FixedSeed(5))
    assert again.guarantee() == rewriter.guarantee()
    assert again.pretrained.training == trained().training
    np.testing.assert_array_equal(again.latents(SENTENCES), noisy)
    assert Adept.load(tmp_path / "adept", epsilon=math.inf).rewrite(SENTENCES) == SENTENCES


def test_training_by_dp_sgd_has_a_promise_of_its_own_which_the_rewriting_does_not_count():
    made = pretrain(SENTENCES, plan(2, noise_multiplier=1.0, delta=1e-5), private=True, options=OPTIONS, **SHAPE)
    assert made.exposures == (Exposure.VOCABULARY, Exposure.PRETRAINING)
    assert isinstance(made.training, Guarantee)
    assert made.training.is_private
    public = pretrain(
        SENTENCES, plan(2, noise_multiplier=1.0, delta=1e-5), private=True, words=WORDS, options=OPTIONS, **SHAPE
    )
    assert Adept(public, 1.0).guarantee().not_covered == (Exposure.PRETRAINING,)


def test_public_texts_are_no_exposure_and_private_ones_with_public_words_are_one():
    assert pretrain(SENTENCES, plan(1), private=False, options=OPTIONS, **SHAPE).exposures == ()
    exposed = pretrain(SENTENCES, plan(1), private=True, words=WORDS, options=OPTIONS, **SHAPE)
    assert exposed.exposures == (Exposure.PRETRAINING,)


def test_only_the_most_frequent_words_are_known_if_so_wished():
    """They are from private texts all the same."""
    made = pretrain(SENTENCES, plan(1), private=True, most=3, options=OPTIONS, **SHAPE)
    assert made.exposures == (Exposure.VOCABULARY, Exposure.PRETRAINING)
    assert sorted(made.tokenizer.get_vocab()) == ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "a", "in", "the"]


def test_words_start_from_their_vectors():
    vectors = Vectors(("beatles", "unheard", "rome"), np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], np.float32))
    made = fresh_autoencoder(WORDS, vectors=vectors, hidden=2)
    table = np.asarray(made.model.decoder.tokens.table[...])
    rows = made.tokenizer.convert_tokens_to_ids(["beatles", "rome", "play"])
    np.testing.assert_array_equal(table[rows[:2]], vectors.table[[0, 2]])
    assert made.model.config.width == 3
    assert np.abs(table[rows[2]] - vectors.table).min() > 1e-3
    with pytest.raises(BadInput, match=r"width = 4: the vectors have 3 numbers; leave it out\."):
        fresh_autoencoder(WORDS, vectors=vectors, width=4)


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(BadInput) as refusal:
        load_autoencoder(tmp_path)
    assert str(refusal.value) == (
        f"{tmp_path / 'config.json'}: model_type = 't5', which must be dpnlp-autoencoder; give the folder of an "
        "autoencoder."
    )


def test_a_folder_that_forgets_what_it_was_trained_on_is_refused(tmp_path):
    Adept(untrained(), 1.0).save(tmp_path / "a")
    path = tmp_path / "a" / "config.json"
    path.write_text(path.read_text().replace('"exposures"', '"exposed"'))
    with pytest.raises(BadInput, match="it cannot be read"):
        load_autoencoder(tmp_path / "a")
