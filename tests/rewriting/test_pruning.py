"""Pruning against Algorithm 1 of the thesis, written out as loops over neurons."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.guarantee import Exposure
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.rewriting.bart_autoencoder import Autoencoder, Training
from dpnlp.rewriting.pruning import importance, more_pruned, prune

from .barts import micro, sentences


def naive_importance(model):
    """The sum of absolute values of all weights of K that a neuron is multiplied with."""
    K = np.asarray(model.decoder[0].cross_attention.key.kernel[...])
    return [sum(abs(float(K[j, o])) for o in range(K.shape[1])) for j in range(K.shape[0])]


def naive_round(values, P):
    """ADD_P_IDXS: the quantile lies a quarter of the way between the smallest and the largest, by rank."""
    ranked = sorted(values[j] for j in range(len(values)) if j not in P)
    place = 0.25 * (len(ranked) - 1)
    low = int(place)
    high = min(low + 1, len(ranked) - 1)
    threshold = ranked[low] + (place - low) * (ranked[high] - ranked[low])
    return tuple(sorted({*P, *(j for j in range(len(values)) if j not in P and values[j] < threshold)}))


def test_a_neuron_is_as_important_as_its_weights_in_the_first_layers_keys():
    model = micro().pretrained.model
    np.testing.assert_allclose(importance(model), naive_importance(model), rtol=1e-5)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=40), st.integers(0, 5))
def test_a_round_prunes_what_lies_below_the_quantile_of_what_is_left(values, gone):
    P = tuple(range(min(gone, len(values) - 1)))
    values = [value / 8 for value in values]  # exact, so that ties are ties
    found = more_pruned(np.array(values, np.float32), P)
    assert found == naive_round(values, P)
    assert set(P) <= set(found)
    assert len(found) < len(values)


def test_thesis_section_6_3_4():
    """A quarter of 768 neurons, five times over, leaves 182, whatever they weigh."""
    rng, P, left = np.random.default_rng(0), (), []
    for _ in range(5):
        P = more_pruned(rng.random(768, np.float32), P)
        left.append(768 - len(P))
    assert left == [576, 432, 324, 243, 182]


def test_algorithm_1(monkeypatch):
    """Training is played by a change of all weights; what comes out is the last model with the P before the last."""
    seen = []

    def train(self, texts, training, **how):
        model = nnx.clone(self.pretrained.model)
        kernel = model.decoder[0].cross_attention.key.kernel
        kernel[...] = jnp.asarray(np.random.default_rng(len(seen)).normal(size=kernel.shape), jnp.float32)
        seen.append((self.bottleneck.pruned, model))
        assert self.bottleneck.bound == 0.2
        return replace(self, pretrained=replace(self.pretrained, model=model))

    monkeypatch.setattr(Autoencoder, "trained", train)
    made = prune(micro().within(0.2), sentences(4), Training(), rounds=4)
    P, expected, model = (), [], micro().pretrained.model
    for _, trained in seen:
        P = naive_round(naive_importance(model), P)
        expected.append(P)
        model = trained
    assert [pruned for pruned, _ in seen] == expected
    assert [8 - len(pruned) for pruned in expected] == [6, 4, 3, 2]
    assert made.bottleneck.pruned == expected[-2]
    assert made.pretrained.model is seen[-1][1]


def test_a_pruned_model_is_trained_and_says_if_that_was_on_private_texts():
    made = prune(micro(), sentences(8), Training(steps=2, batch=4), rounds=2, private=True, source=FixedSeed(0))
    assert made.bottleneck.pruned == naive_round(naive_importance(micro().pretrained.model), ())
    assert made.exposures == (Exposure.PRETRAINING,)
    assert not np.array_equal(importance(made.pretrained.model), importance(micro().pretrained.model))


def test_one_round_leaves_nothing_to_keep():
    with pytest.raises(BadInput, match="rounds = 1: it must be a whole number of at least 2; the neurons of the round"):
        prune(micro(), sentences(4), Training(), rounds=1)
