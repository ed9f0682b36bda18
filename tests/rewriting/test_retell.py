"""Retell: what is released is a noisy latent, what is written depends on that alone, and noise is part of learning."""

import functools
import json
import math
import warnings
from dataclasses import FrozenInstanceError, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

from dpnlp import dropout
from dpnlp.checks import BadInput
from dpnlp.data.vocabulary import learned
from dpnlp.guarantee import Exposure, Trust, Unit
from dpnlp.mechanisms import Gaussian, Laplace, analytic_sigma
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.models.pretrained import from_scratch
from dpnlp.models.sentence_vectors import SentenceEncoder
from dpnlp.rewriting import folders, retell
from dpnlp.rewriting.directions import Directions
from dpnlp.rewriting.retell import Retell
from dpnlp.rewriting.teller import Channel
from dpnlp.runs.provenance import Door, Provenance
from dpnlp.tasks.translation import Writing
from dpnlp.training import Optimizer, clipping
from dpnlp.training.parameters import apart

from ..mechanisms.audit import epsilon_lower_bound
from ..tasks import readers
from ..training.test_clipping import assert_equal, clipped_sum, reference

WIDTH, N, LONGEST = 12, 6, 8
WORDS = ["ba", "be", "bi", "bo", "bu", "da", "de", "di", "do", "du"]
SENTENCES = [f"{WORDS[one]} {WORDS[(3 * one + two) % 10]} {WORDS[two]}" for one in range(4) for two in range(3)]
SHAPE = {"width": 16, "layers": 1, "heads": 2, "hidden": 16, "dropout": 0.0, "computes": "float32", "seed": 0}
EPSILONS, DELTA = (0.05, 2000.0), 1e-3


class Meaning:
    """A text's vector by its letters."""

    width, longest = WIDTH, 128

    def __call__(self, texts):
        rows = [np.random.default_rng([*map(ord, text or "\0")]).normal(size=WIDTH) for text in texts]
        found = np.array(rows).reshape(-1, WIDTH)
        return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


@functools.cache
def writer(architecture="marian"):
    return from_scratch(learned(SENTENCES * 4, 300), architecture=architecture, **SHAPE)


def made(steps=1, texts=SENTENCES, encoder=None, **changes):
    options = {"directions": N, "states": 3, "epsilons": EPSILONS, "delta": DELTA, "longest": LONGEST, "batch": 12}
    options |= {"private": False, "source": FixedSeed(0), "optimizer": Optimizer(1e-2)} | changes
    return retell.pretrain(texts, writer(), encoder or Meaning(), steps=steps, **options)


@functools.cache
def loud():
    """One whose weights are large enough that what it writes differs with its latents."""
    fresh = made()
    teller = nnx.clone(fresh.teller)
    keys = iter(jax.random.split(jax.random.key(1), 100))
    for _, value in nnx.to_flat_state(nnx.state(teller, nnx.Param)):
        if value.ndim > 1:
            value.set_value(value[...] + 0.7 * jax.random.normal(next(keys), value.shape))
    return replace(fresh, entrance=teller.entrance, writer=replace(fresh.writer, model=teller.writer))


@functools.cache
def learnt():
    return made(600)


def rewriter(epsilon=2.0, delta=DELTA, seed=0, retelling=None, **changes):
    how = {"writing": Writing(LONGEST, beams=2, batch=16, sample=False), "source": FixedSeed(seed)} | changes
    return Retell(retelling or loud(), epsilon, delta, **how)


def keys(count, seed=0):
    return jax.random.split(jax.random.key(seed), count)


def batch(retelling, texts):
    latents = retelling.directions.clip(retelling.directions(retelling.encoder(texts))).astype(np.float32)
    return jax.tree.map(jnp.asarray, {"latents": latents, **retelling.tokens(texts)})


# What is released


@given(arrays.arrays(np.float32, (2, WIDTH), elements=st.floats(-1e6, 1e6, width=32)))
def test_no_two_vectors_are_farther_apart_than_the_sensitivity(vectors):
    along = loud().directions
    one, other = along.clip(along(vectors))
    assert np.linalg.norm(one - other) <= along.clip.sensitivity.l2 * (1 + 1e-15)
    assert along.clip.sensitivity.l2 == pytest.approx(2 * along.bound)


def test_an_entry_that_is_no_number_counts_as_zero():
    along = loud().directions
    np.testing.assert_array_equal(along(np.full((1, WIDTH), np.nan, np.float32)), np.zeros((1, N)))


def test_the_noise_is_that_of_the_theorem():
    one = rewriter()
    assert one.mechanism.sigma == analytic_sigma(2.0, DELTA, 2 * one.retelling.directions.bound)
    released = one.latents(["a text"] * 4000) - one.clip(one.encode(["a text"]))
    assert stats.kstest(released.ravel(), stats.norm(scale=one.mechanism.sigma).cdf).pvalue > 1e-4
    promised = one.guarantee()
    assert (promised.epsilon, promised.delta, promised.unit, promised.trust) == (2.0, DELTA, Unit.TEXT, Trust.LOCAL)


def test_an_audit_of_two_far_texts_finds_no_more_than_is_claimed_and_would_find_less_noise():
    trials = 200_000
    along = Directions.of(Meaning()(SENTENCES), 1)
    one_direction = replace(loud(), directions=along)
    texts = sorted((f"text {number}" for number in range(200)), key=lambda text: along(Meaning()([text]))[0, 0])
    pair = texts[-1], texts[0]

    def found(one):
        assert np.abs(one.clip(one.encode(pair))).min() > 0.99 * one.clip.bound
        first, second = (
            one.mechanism.release(np.repeat(one.clip(one.encode([text])), trials, axis=0))[:, 0] for text in pair
        )
        threshold = 2 * analytic_sigma(1.0, DELTA, 2 * along.bound)
        return epsilon_lower_bound(int(np.sum(first > threshold)), int(np.sum(second > threshold)), trials, DELTA)

    kept = rewriter(1.0, retelling=one_direction)
    assert 0.5 < found(kept) <= 1.0
    less = replace(kept.mechanism, sensitivity=kept.mechanism.sensitivity / math.sqrt(2))
    object.__setattr__(kept, "mechanism", less)
    assert found(kept) > 1.0


# Nothing passes by the latent


def test_texts_of_all_lengths_with_the_same_noisy_latent_become_the_same_text():
    one = rewriter()
    latent = one.latents(["ba be"])

    class Same(Gaussian):
        def release(self, value):
            return np.repeat(latent, len(value), axis=0)

    object.__setattr__(one, "mechanism", Same(one.clip.sensitivity.l2, 2.0, DELTA))
    texts = ["", "du", "ba be bi bo bu da de di do du " * 30, "ba be", "?! \ud800"]
    assert one.rewrite(texts) == [one.decode(latent)[0]] * len(texts)


def test_what_is_written_differs_with_the_latent_and_with_sigma():
    """Or the test before would prove nothing."""
    one = rewriter(math.inf)
    latents = one.latents(SENTENCES)
    assert len({*one.decode(latents)}) > 4
    assert rewriter(0.1).decode(latents) != one.decode(latents)


def test_batchmates_do_not_matter():
    one = rewriter()
    latents = one.latents(SENTENCES)
    assert [one.decode(latents[place : place + 1])[0] for place in range(len(latents))] == one.decode(latents)
    assert one.rewrite([]) == []


def test_texts_are_drawn_where_writing_says_so():
    drawn = rewriter(math.inf, writing=Writing(LONGEST, batch=16, sample=True))
    latents = np.repeat(drawn.latents(["ba be"]), 16, axis=0)
    assert len({*drawn.decode(latents)}) > 4
    assert len({*rewriter(math.inf).decode(latents)}) == 1


# The σ that the decoder is told


def test_the_decoder_is_told_the_noise_of_what_is_asked_for():
    low, high = (analytic_sigma(epsilon, DELTA, 2 * loud().directions.bound) for epsilon in reversed(EPSILONS))
    assert (loud().channel.low, loud().channel.high) == (low, high)
    assert rewriter(2.0).sigma == rewriter(2.0).mechanism.sigma
    assert rewriter(math.inf).sigma == rewriter(1e5).sigma == low
    laplace = rewriter(50.0, 0.0)
    assert isinstance(laplace.mechanism, Laplace)
    assert laplace.sigma == pytest.approx(math.sqrt(2) * 2 * laplace.clip.bound * math.sqrt(N) / 50)


def test_more_noise_than_it_was_trained_for_is_warned_of_and_holds():
    with pytest.warns(UserWarning, match=r"epsilon = 0.01, .*: the noise has σ = .* trained for at most"):
        one = rewriter(0.01)
    assert one.mechanism.sigma == analytic_sigma(0.01, DELTA, 2 * one.clip.bound) == one.sigma
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for epsilon in (*EPSILONS, 1e6, math.inf):
            rewriter(epsilon)


def test_the_entrance_sees_entries_of_variance_one_and_the_level_of_the_noise():
    rng = np.random.default_rng(0)
    spread = np.array([0.5, 0.1, 0.01])
    clean = rng.normal(size=(20_000, 3)) * spread
    channel = Channel(2.0, np.mean(clean**2, axis=0).astype(np.float32), 0.01, 10.0)
    for sigma in (0.01, 0.3, 10.0):
        noisy = clean + sigma * rng.normal(size=clean.shape)
        seen = np.asarray(channel.seen(jnp.asarray(noisy), jnp.full(len(noisy), sigma)))
        np.testing.assert_allclose(seen[:, :3].std(axis=0), 1, rtol=0.03)
        np.testing.assert_allclose(seen[:, 3], math.log(sigma / 2.0), rtol=1e-5)


# Learning


def keyed(loss):
    """As a step of training calls it: with a key for each example."""

    def called(model, batch):
        with dropout.dropping(batch[0]):
            return loss(model, batch[1])

    return called


def test_each_example_and_step_has_noise_of_its_own_sigma_drawn_log_uniformly():
    channel = Channel(1.0, np.ones(40, np.float32), 0.02, 5.0)
    latents = jnp.asarray(np.random.default_rng(0).normal(size=(2000, 40)), jnp.float32)

    def noised(latents, keys):
        with dropout.dropping(keys):
            return map(np.asarray, channel.noised(latents))

    found, sigmas = noised(latents, keys(2000))
    levels = stats.uniform(math.log(0.02), math.log(5.0) - math.log(0.02))
    assert stats.kstest(np.log(sigmas), levels.cdf).pvalue > 1e-4
    drawn = (found - np.asarray(latents)) / sigmas[:, None]
    assert stats.kstest(drawn[sigmas > 0.1].ravel(), stats.norm.cdf).pvalue > 1e-4
    assert abs(np.corrcoef(drawn[0], drawn[1])[0, 1]) < 0.6
    assert not np.isclose(drawn[0], drawn[1]).all()
    others, other_sigmas = noised(latents, keys(2000, seed=1))
    assert not np.isclose(sigmas, other_sigmas, rtol=1e-3).all()
    assert not np.isclose(found, others).all(axis=1).any()
    for one, whole in zip(noised(latents[7:9], keys(2000)[7:9]), (found, sigmas), strict=True):
        np.testing.assert_allclose(one, whole[7:9], rtol=1e-5)
    calm, least = channel.noised(latents)
    np.testing.assert_array_equal(calm, latents)
    np.testing.assert_allclose(least, 0.02, rtol=1e-6)


def test_per_example_gradients_of_the_noisy_loss_are_those_of_vmap_and_every_weight_is_noted():
    retelling = loud()
    teller, noisy = retelling.teller, keyed(retelling.loss)
    trains, given, weights = retell.trained(teller), (keys(4), batch(retelling, SENTENCES[:4])), jnp.ones(4)
    found = clipped_sum(noisy, teller, given, weights, 0.3, trains)
    assert_equal(found, *reference(noisy, teller, given, weights, 0.3, trains))
    assert {"entrance.kernel", "entrance.bias.value", "writer.tokens.table"} < found.gradients.keys()
    assert not any(name.startswith("writer.encoder") for name in found.gradients)
    assert all(np.abs(gradient).max() > 0 for gradient in found.gradients.values())
    noted = {use.name for use in clipping._planned(noisy, apart(teller, trains), given)}
    assert noted == found.gradients.keys()
    calm = nnx.jit(retelling.loss)(teller, given[1])
    assert not np.allclose(found.losses, calm, rtol=1e-2)


@nnx.jit
def decoded(model, inputs, states):
    """With a mask that hides nothing."""
    return model.logits(model.decode(inputs, model.remember(states, jnp.ones(states.shape[:2])))[0])


def test_the_loss_of_a_text_is_that_of_its_tokens_given_its_states_and_nothing_of_its_batchmates():
    retelling, texts = loud(), ["ba be", "do di da de bu bo bi be ba"]
    teller, low = retelling.teller, loud().channel.low
    found = nnx.jit(retelling.loss)(teller, batch(retelling, texts))
    for text, loss in zip(texts, found, strict=True):
        latent = batch(retelling, [text])["latents"]
        ids = retelling.writer.tokenizer(text)["input_ids"]
        ids = ids if len(ids) <= LONGEST else [*ids[: LONGEST - 1], ids[-1]]
        scaled = np.asarray(latent)[0] / np.sqrt(retelling.channel.variances + low**2)
        seen = np.append(scaled, math.log(low / retelling.channel.bound))
        states = (seen @ teller.entrance.kernel + teller.entrance.bias.value).reshape(1, 3, 16)
        inputs = np.array([[retelling.writer.config.decoder_start_token_id, *ids[:-1]]])
        chances = np.asarray(jax.nn.log_softmax(decoded(teller.writer, inputs, states)[0]))
        expected = -np.mean([chances[place, token] for place, token in enumerate(ids)])
        assert loss == pytest.approx(float(expected), rel=1e-4)


def test_it_learns_to_write_from_a_latent_and_a_tiny_epsilon_tells_nothing():
    """Of twelve sentences a share of e^ε/12 + δ can come back at most, by whatever method, and a sampling error."""
    many = SENTENCES * 30

    def back(epsilon):
        written = rewriter(epsilon, retelling=learnt()).rewrite(many)
        return np.mean([one == other for one, other in zip(written, many, strict=True)])

    assert back(math.inf) > 0.6
    assert back(100.0) > 0.6
    chance = math.exp(0.05) / 12 + DELTA
    assert back(0.05) < chance + 4 * math.sqrt(chance / len(many))


def test_training_is_with_clipped_latents_that_are_computed_once_and_without_privacy(monkeypatch):
    seen, read = [], []

    class Counted(Meaning):
        def __call__(self, texts):
            read.append(list(texts))
            return super().__call__(texts)

    def train(model, loss, data, plan, optimizer, options, **how):
        seen.append((data.batch(np.arange(len(data)), 1)["latents"], plan))
        return type("Outcome", (), {"model": model})

    monkeypatch.setattr(retell, "train", train)
    fresh = made(7, encoder=Counted(), batch=5)
    ((latents, plan),) = seen
    assert read == [SENTENCES]
    expected = fresh.directions(Meaning()(SENTENCES)).astype(np.float64)
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    assert lengths.max() > fresh.directions.bound
    expected *= np.minimum(1, fresh.directions.bound / lengths)
    np.testing.assert_allclose(latents, expected, rtol=1e-5)
    np.testing.assert_allclose(fresh.channel.variances, np.mean(expected**2, axis=0), rtol=1e-4)
    assert (plan.noise_multiplier, plan.clips, plan.schedule.steps, plan.schedule.lot_size) == (0.0, False, 7, 5)


def test_the_encoder_and_the_model_that_was_given_stay_as_they_are():
    before, after = (
        dict(nnx.to_flat_state(nnx.state(model, nnx.Param))) for model in (writer().model, learnt().writer.model)
    )
    changed = {path[0] for path in before if not np.array_equal(before[path][...], after[path][...])}
    assert {"tokens", "decoder"} <= changed
    assert not any(str(name).startswith("encoder") for name in changed)
    assert {path[0] for path in before} > changed


def test_empty_texts_are_left_out_and_what_is_private_is_named():
    told = made(texts=["", *SENTENCES, "  "], private=True)
    np.testing.assert_array_equal(told.directions.mean, made().directions.mean)
    assert rewriter(retelling=told).guarantee().not_covered == (Exposure.PRETRAINING,)
    assert rewriter().guarantee().not_covered == ()


# Folders


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("retell")
    readers.encoder(home / "encoder", layers=1)
    encoder = SentenceEncoder.load(home / "encoder", longest=20)
    saved = made(texts=SENTENCES, encoder=encoder, private=True)
    place = home / "rewriters" / "made"  # both are made on the way
    retell.save(saved, place)
    folders.describe(place, "retell")
    Door().keep(place, Provenance(exposures=saved.exposures))
    return saved, place


def test_a_folder_gives_back_the_rewriter(folder):
    saved, path = folder
    loaded = folders.load(path, 5.0, DELTA, FixedSeed(3))
    assert loaded.writing == Writing(LONGEST, beams=4, sample=False)
    assert loaded.retelling.encoder.longest == 20
    assert (loaded.sigma, loaded.retelling.channel.high) == (loaded.mechanism.sigma, saved.channel.high)
    expected = Retell(saved, 5.0, DELTA, loaded.writing, FixedSeed(3))
    assert loaded.rewrite(SENTENCES) == expected.rewrite(SENTENCES)
    latents = expected.latents(SENTENCES)
    np.testing.assert_allclose(loaded.retelling.states(latents, 0.3), saved.states(latents, 0.3), rtol=1e-5)
    assert loaded.guarantee().not_covered == (Exposure.PRETRAINING,)


@pytest.mark.parametrize(
    ("name", "value", "sentence"), [("format", 2, "format = 2"), ("bound", None, "it cannot be read")]
)
def test_a_file_that_is_not_ours_is_one_sentence(folder, name, value, sentence):
    path = folder[1] / "retell.json"
    text = path.read_text()
    entry = json.loads(text) | {name: value}
    path.write_text(json.dumps({key: given for key, given in entry.items() if given is not None}))
    try:
        with pytest.raises(BadInput, match=sentence):
            retell.load(folder[1], 1.0, DELTA)
    finally:
        path.write_text(text)


# Refusals


def test_what_the_noise_was_made_for_cannot_be_changed():
    for made_once, name in ((rewriter(), "epsilon"), (loud(), "directions")):
        with pytest.raises(FrozenInstanceError):
            setattr(made_once, name, None)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"texts": ["", " "]}, "texts: none of the 2 has a word in it; give public texts"),
        ({"epsilons": (10.0, 1.0)}, r"epsilons = \(10.0, 1.0\): it must be two numbers above 0, the smaller one first"),
        ({"epsilons": (1.0,)}, r"epsilons = \(1.0,\): it must be two numbers"),
        ({"epsilons": (0.0, 1.0)}, "epsilons = 0.0: it must be a finite number above 0"),
        ({"delta": 0.0}, "delta = 0.0: it must lie strictly between 0 and 1"),
        ({"directions": 13}, "directions = 13: the vectors have 12 entries"),
        ({"directions": 0}, "directions = 0: it must be a whole number of at least 1"),
        ({"states": 0}, "states = 0: it must be a whole number of at least 1"),
        ({"longest": 2000}, "longest = 2000: the model has positions for at most 1024"),
        ({"batch": 0}, "batch = 0: it must be a whole number"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, sentence):
    with pytest.raises(BadInput, match=sentence):
        made(**changes)


def test_a_model_without_a_tokenizer_is_refused():
    with pytest.raises(BadInput, match="its folder has no tokenizer"):
        replace(loud(), writer=replace(writer(), tokenizer=None))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_no_epsilon_no_rewriting(epsilon):
    with pytest.raises(BadInput, match=r"epsilon = .*: it must be a number above 0"):
        rewriter(epsilon)


def test_an_empty_private_text_is_not_refused():
    assert len(rewriter().rewrite(["", "  "])) == 2
