"""The autoencoder of DP-BART: what it reads, what its loss is, and noise that belongs to an example."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from scipy import stats

from dpnlp import dropout
from dpnlp.checks import BadInput
from dpnlp.data.vocabulary import learned
from dpnlp.guarantee import Exposure
from dpnlp.mechanisms import Gaussian, Laplace
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.models.pretrained import from_scratch
from dpnlp.rewriting import bart_autoencoder
from dpnlp.rewriting.bart_autoencoder import Autoencoder, Budget, Training
from dpnlp.rewriting.bottleneck import Bottleneck
from dpnlp.training import Optimizer

from ..training.test_clipping import assert_equal, clipped_sum, reference
from .barts import SHAPE, fresh, micro, sentences

PRUNED = (1, 6)
NOISE = Gaussian(1.0, 1.0, 1e-5)


def keyed(loss):
    """As a step of training calls it: with a key for each example."""

    def called(model, batch):
        with dropout.dropping(batch[0]):
            return loss(model, batch[1])

    return called


def losses(made, batch):
    return np.asarray(nnx.jit(made.loss)(made.pretrained.model, batch))


def keys(count, seed=0):
    return jax.random.split(jax.random.key(seed), count)


@nnx.jit
def encoded(model, ids, mask):
    return model.encode(ids, mask)


# What is read


def test_the_encoder_masks_its_own_padding():
    made, texts = micro(pruned=PRUNED), ["ba", "ba be bi"]
    for text, latent in zip(texts, made.encode(texts), strict=True):
        ids = np.array([made.pretrained.tokenizer(text)["input_ids"]])
        states = np.delete(np.asarray(encoded(made.pretrained.model, ids, np.ones_like(ids)))[0], PRUNED, axis=1)
        np.testing.assert_allclose(latent.reshape(6, 6)[: ids.shape[1]], states, rtol=1e-4, atol=1e-5)


def test_the_spread_is_that_of_all_entries():
    made, texts = micro(pruned=PRUNED), sentences(40)
    entries = [float(entry) for text in texts for entry in made.encode([text])[0]]
    mean = sum(entries) / len(entries)
    deviation = math.sqrt(sum((entry - mean) ** 2 for entry in entries) / len(entries))
    spread = made.spread(texts)
    assert (spread.mean, spread.deviation) == (pytest.approx(mean, abs=1e-6), pytest.approx(deviation, rel=1e-5))
    assert spread.bound(2) == pytest.approx(abs(mean) + 2 * deviation)
    assert spread.bound() == pytest.approx(abs(mean) + deviation / 2)


# The loss


@nnx.jit
def decoded(model, inputs, states):
    """With a mask that hides nothing."""
    return model.logits(model.decode(inputs, model.remember(states, jnp.ones(states.shape[:2])))[0])


@pytest.mark.parametrize("bound", [0.5, None])
def test_the_loss_of_a_text_is_that_of_its_tokens_given_all_its_clipped_and_pruned_states(bound):
    made = micro(bound, PRUNED)
    model, texts = made.pretrained.model, ["ba be", "du", ""]
    found = losses(made, made.tokens(texts))
    for text, loss in zip(texts, found, strict=True):
        batch = made.tokens([text])
        states = np.array(encoded(model, batch["ids"], batch["mask"]))
        if bound:
            states = np.minimum(np.maximum(states, -bound), bound)
        states[:, :, PRUNED] = 0
        ids = np.array(made.pretrained.tokenizer(text)["input_ids"])
        inputs = np.array([[made.pretrained.config.decoder_start_token_id, *ids[:-1]]])
        logits = decoded(model, inputs, states)[0]
        expected = -np.mean([jax.nn.log_softmax(logits[place])[token] for place, token in enumerate(ids)])
        assert loss == pytest.approx(float(expected), rel=1e-4)


def test_per_example_gradients_with_noise_are_those_of_vmap():
    made = micro(pruned=PRUNED)
    model, batch = made.pretrained.model, jax.tree.map(jnp.asarray, made.tokens(sentences(4)))

    def noisy(model, batch):
        return keyed(lambda model, batch: made.loss(model, batch, noise=NOISE, masked=0.3))(model, batch)

    given = keys(4), batch
    found = clipped_sum(noisy, model, given, jnp.ones(4), 0.3)
    assert_equal(found, *reference(noisy, model, given, jnp.ones(4), 0.3))
    assert not np.allclose(found.losses, losses(made, batch), rtol=1e-2)


# Noise and masks in training


@pytest.mark.parametrize(
    ("noise", "law"), [(NOISE, stats.norm(scale=NOISE.sigma)), (Laplace(1.0, 2.0), stats.laplace(scale=0.5))]
)
def test_each_example_and_step_has_noise_of_its_own_and_of_the_right_size(noise, law):
    bottleneck = Bottleneck(8, 6, 0.5, PRUNED)
    states = jnp.asarray(np.random.default_rng(0).normal(size=(400, 6, 8)), jnp.float32)

    def held(states, keys):
        with dropout.dropping(keys):
            return np.asarray(bottleneck.held(states, noise))

    calm, found = np.asarray(bottleneck.held(states, noise)), held(states, keys(400))
    np.testing.assert_array_equal(calm[..., bottleneck.kept], np.clip(states, -0.5, 0.5)[..., bottleneck.kept])
    assert not found[..., PRUNED].any()
    assert not calm[..., PRUNED].any()
    drawn = (found - calm)[..., bottleneck.kept]
    assert stats.kstest(drawn.ravel(), law.cdf).pvalue > 1e-4
    assert abs(np.corrcoef(drawn[0].ravel(), drawn[1].ravel())[0, 1]) < 0.6
    assert not np.isclose(drawn[0], drawn[1]).any()
    assert not np.allclose(held(states, keys(400, seed=1)), found)
    np.testing.assert_array_equal(held(states[7:9], keys(400)[7:9]), found[7:9])


def test_tokens_are_hidden_at_random_and_special_ones_never():
    made = fresh()
    ids = jnp.asarray(made.tokens(sentences(300, longest=9))["ids"])
    special = np.isin(ids, made.pretrained.tokenizer.all_special_ids)
    with dropout.dropping(keys(300)):
        shown = made._shown(ids, 0.25)
    assert np.mean((shown != ids)[~special]) == pytest.approx(0.25, abs=0.05)
    np.testing.assert_array_equal(shown[special], ids[special])
    assert set(np.unique(shown[shown != ids])) == {made.pretrained.tokenizer.unk_token_id}
    np.testing.assert_array_equal(made._shown(ids, 0.25), ids)


# Training


def test_training_lowers_the_loss_and_leaves_the_model_that_was_given():
    made, texts = fresh().within(2.0), sentences(16)
    batch = made.tokens(texts)
    before = losses(made, batch).mean()
    training = Training(steps=40, batch=8, optimizer=Optimizer(1e-2), masked=0.1)
    learnt = made.trained(texts, training, private=True, source=FixedSeed(0))
    assert losses(learnt, batch).mean() < 0.6 * before
    assert losses(made, batch).mean() == pytest.approx(before)
    assert (made.exposures, learnt.exposures) == ((), (Exposure.PRETRAINING,))


def test_hardening_is_training_with_the_noise_of_rewriting(monkeypatch):
    seen = []

    def train(model, loss, data, plan, optimizer, options, **how):
        seen.append((loss.keywords["noise"], plan.noise_multiplier, len(data), plan.schedule.steps))
        return type("Outcome", (), {"model": model})

    monkeypatch.setattr(bart_autoencoder, "train", train)
    made = micro(pruned=PRUNED).hardened(sentences(9), Training(steps=3), epsilon=30.0, delta=1e-5)
    assert seen == [(Gaussian(2 * 0.5 * math.sqrt(36), 30.0, 1e-5), 0.0, 9, 3)]
    assert made.trained_for == Budget(30.0, 1e-5)
    assert made.exposures == ()
    with pytest.raises(BadInput, match="epsilon = inf: it must be a finite number above 0"):
        micro().hardened(sentences(9), Training(), epsilon=math.inf, delta=1e-5)


def test_a_vocabulary_of_private_texts_is_named():
    made = Autoencoder.from_scratch(sentences(50), vocabulary=300, private=True, **SHAPE)
    assert made.exposures == (Exposure.VOCABULARY,)
    assert made.exposing(Exposure.PRETRAINING, Exposure.VOCABULARY).exposures == (
        Exposure.VOCABULARY,
        Exposure.PRETRAINING,
    )


# Refusals


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"length": 1}, "length = 1: it must be a whole number of at least 2"),
        ({"length": 2000}, "length = 2000: the model has 1024 positions"),
        ({"width": 9}, "width = 9: the model's is 8"),
        ({"bound": 0.0}, "bound = 0.0: it must be a finite number above 0"),
        ({"pruned": (8,)}, "pruned = 8: neurons are numbered from 0 to 7"),
        ({"pruned": tuple(range(8))}, "pruned = all 8 neurons: at least one must be left"),
    ],
)
def test_bottlenecks_that_make_no_sense_are_refused(changes, sentence):
    with pytest.raises(BadInput, match=sentence):
        replace(micro(), bottleneck=replace(micro().bottleneck, **changes))


def test_models_that_are_no_bart_or_read_no_text_are_refused():
    marian = from_scratch(learned(sentences(50), 300), **SHAPE)
    with pytest.raises(BadInput, match="model_type = 'marian': DP-BART is built from a BART"):
        Autoencoder.of(marian)
    with pytest.raises(BadInput, match="its folder has no tokenizer"):
        Autoencoder.of(replace(micro().pretrained, tokenizer=None))


@pytest.mark.parametrize("changes", [{"masked": 1.0}, {"steps": 0}, {"batch": 0}])
def test_training_that_makes_no_sense_is_refused(changes):
    with pytest.raises(BadInput, match=f"{next(iter(changes))} = "):
        Training(**changes)
