"""Inversion: the optimum of linear classifiers in closed form and by brute force, and words that give a label away."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from scipy.optimize import brentq

from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.audit import inversion
from dpnlp.audit.inversion import Classifier, Inverted, Search, ascended, exchanged, invert, inverted, nearest, reading
from dpnlp.checks import BadInput
from dpnlp.data.arrays import Arrays
from dpnlp.data.cache import Examples
from dpnlp.data.labelled import Labelled
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.models import bert, word_vectors
from dpnlp.models.pretrained import word_reader
from dpnlp.models.readers import Config, Head, Reader, Strategy
from dpnlp.models.word_vectors import WordVectors
from dpnlp.rewriting.leakage import leakage
from dpnlp.tasks.classification import Classification
from dpnlp.tasks.reading import logits_of
from dpnlp.training.loop import Options, train
from dpnlp.training.plan import Plan
from dpnlp.training.secret import Secret

WORDS = [first + second for first in "bdgkl" for second in "aeiou"]


def mean_times(weights, x):
    return x.mean(axis=1) @ weights


def linear(tokens, width, labels, seed):
    """A bag of words: the logits are linear in the mean of the vectors."""
    rng = np.random.default_rng(seed)
    table, weights = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((tokens, width), (width, labels)))
    return Classifier(mean_times, weights, table)


def probabilities(classifier, texts):
    x = np.asarray(classifier.table)[np.array(texts)].mean(axis=1) @ np.asarray(classifier.weights)
    return np.asarray(jax.nn.softmax(x))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("label", [0, 1])
def test_of_two_labels_the_optimum_is_the_word_that_speaks_most_for_one_in_every_place(label, seed):
    given = linear(12, 5, 2, seed)
    votes = np.asarray(given.table @ (given.weights[:, label] - given.weights[:, 1 - label]))
    found = invert(given, label, np.arange(12), Search(length=4, steps=20))
    assert found.tokens.tolist() == [votes.argmax()] * 4
    assert found.probability == pytest.approx(1 / (1 + math.exp(-votes.max())), rel=1e-5)


@pytest.mark.parametrize("label", [0, 1, 2])
def test_of_three_labels_the_optimum_is_that_of_all_texts(label):
    given, allowed = linear(9, 4, 3, 1), np.array([0, 2, 3, 5, 7, 8])
    every = list(itertools.product(allowed, repeat=3))
    best = probabilities(given, every)[:, label].max()
    found = invert(given, label, allowed, Search(length=3, steps=50))
    assert set(found.tokens) <= set(allowed.tolist())
    assert found.probability == pytest.approx(best, rel=1e-5)
    assert found.probability == pytest.approx(probabilities(given, [found.tokens])[0, label], rel=1e-5)
    begun = np.random.default_rng(0).choice(allowed, (4, 3))
    assert found.by_chance == pytest.approx(probabilities(given, begun)[:, label].mean(), rel=1e-5)


def test_the_ascent_ends_where_the_slopes_of_belief_and_prior_are_equal():
    """x_t = μ + c s² w with c T λ = 1 − p, w the difference of the labels' weights and ln p/(1 − p) = w·x̄."""
    given, search = linear(30, 4, 2, 0), Search(length=3, starts=2, steps=3000, rate=0.02, prior=0.05)
    table, w = np.asarray(given.table), np.asarray(given.weights[:, 1] - given.weights[:, 0])
    mean, variance = table.mean(axis=0), ((table - table.mean(axis=0)) ** 2).mean()

    def slope(c):
        return (1 - 1 / (1 + math.exp(-w @ (mean + c * variance * w)))) / (search.length * search.prior) - c

    expected = mean + brentq(slope, 0, 1000) * variance * w
    found = ascended(given, 1, table[np.array([[0, 1, 2], [3, 4, 5]])], search)
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), atol=2e-3)


def test_nearest_is_the_nearest_of_those_allowed():
    rng = np.random.default_rng(0)
    table, vectors, allowed = rng.normal(size=(40, 3)), rng.normal(size=(2, 5, 3)), np.arange(3, 40, 3)
    expected = [[min(allowed, key=lambda row: np.sum((x - table[row]) ** 2)) for x in text] for text in vectors]
    assert nearest(vectors, table, allowed).tolist() == expected


def test_each_exchange_helps_and_no_other_one_would():
    given, allowed, search = linear(8, 3, 3, 2), np.arange(8), Search(length=4, tries=1000)
    few = [Search(length=4, exchanges=exchanges) for exchanges in (0, 1)]
    begun = np.array([[1, 1, 2, 3], [7, 0, 5, 0]])
    for found in exchanged(given, 0, allowed, begun, search):
        others = []
        for place, token in itertools.product(range(4), allowed):
            others.append(found.copy())
            others[-1][place] = token
        assert probabilities(given, others)[:, 0].max() <= probabilities(given, [found])[0, 0] + 1e-6
    before, once = (probabilities(given, exchanged(given, 0, allowed, begun, search)) for search in few)
    np.testing.assert_array_equal(before, probabilities(given, begun))
    assert (once[:, 0] > before[:, 0]).all()


def reader(strategy, seed=0):
    """A micro reader of words, on word vectors or on a BERT."""
    tokenizer, rngs = word_vectors.tokenizer(WORDS), nnx.Rngs(seed)
    if strategy is Strategy.BILSTM:
        entrance = WordVectors(word_vectors.Config(len(tokenizer), 8), rngs=rngs)
        model = word_reader(entrance, tokenizer, Head.SEQUENCES, ("bad", "good"), hidden=6).model
    else:
        config = bert.Config(
            len(tokenizer), 16, 2, 2, 24, positions=24, padding=1 if strategy is Strategy.TR_ALL else None
        )
        model = Reader(bert.BERT(config, rngs=rngs), Config(Head.SEQUENCES, 2, strategy, 6), rngs=rngs)
    return Classification(model, tokenizer, ("bad", "good"), 16)


BERTS = [strategy for strategy in Strategy if strategy not in (Strategy.BILSTM, Strategy.LORA)]


@pytest.mark.parametrize("strategy", [Strategy.BILSTM, *BERTS])
def test_vectors_of_tokens_are_read_like_the_tokens_and_every_one_has_a_slope(strategy):
    task = reader(strategy)
    texts = ["ba de gi", "ku ku lo"]
    expected = logits_of(
        task.model,
        Examples.of(task.columns[:2], task._texts([Labelled(text, None, "", None) for text in texts])).batch(
            np.arange(2), 5
        ),
    )
    given = reading(task)
    rows = np.array(task.tokenizer(texts, add_special_tokens=False)["input_ids"])
    np.testing.assert_allclose(given.logits(given.weights, given.table[rows]), expected, rtol=1e-5, atol=1e-6)
    slopes = np.abs(inversion._slopes(given.logits, given.weights, given.table[rows], 1)).sum(axis=-1)
    assert (slopes > 1e-8).all()


def taught(task, told):
    """The task's model, trained on random texts; one with a word of `told` has that word's label."""
    rng = np.random.default_rng(0)
    others = [word for word in WORDS if word not in told]
    records = []
    for number in range(256):
        words = rng.choice(others, 5).tolist()
        word, label = list(told.items())[number % len(told)]
        words[rng.integers(5)] = word
        records.append(Labelled(" ".join(words), None, label, None))
    batch = Examples.of(task.columns, task.numbers(records)).batch(np.arange(256), 7)
    outcome = train(
        task.model,
        task.loss,
        Arrays(batch),
        Plan.without_privacy(Schedule(256, 64, 120, Sampling.SHUFFLED)),
        optax.adam(0.01),
        Options(physical_batch=64),
        secret=Secret.drawn(FixedSeed(0)),
    )
    return task.of(outcome.model), [record.text for record in records]


@pytest.mark.parametrize("strategy", [Strategy.BILSTM, Strategy.TR_ALL])
def test_the_word_that_gives_a_label_away_is_found(strategy):
    task, texts = taught(reader(strategy), {"ba": "good", "lu": "bad"})
    bad, good = inverted(task, Search(length=3, starts=2, steps=30))
    assert (bad.label, good.label) == ("bad", "good")
    assert "lu" in bad.tokens
    assert "ba" in good.tokens
    for found in (bad, good):
        record = Labelled(found.text, None, found.label, None)
        assert task.predict([record]) == [found.label]
        assert found.text.split() == list(found.tokens)
        assert found.probability > max(0.95, found.by_chance)
        loss = task.loss(task.model, Examples.of(task.columns, task.numbers([record])).batch(np.arange(1), 5))
        assert found.probability == pytest.approx(math.exp(-loss[0]), rel=1e-4)
    assert leakage([bad.text, good.text], texts).whole == 0


def test_a_text_is_of_the_words_that_are_given_and_of_no_special_tokens():
    found = inverted(reader(Strategy.BILSTM), Search(length=3, starts=1, steps=1), words=["da", "de", "[SEP]"])
    assert {token for one in found for token in one.tokens} <= {"da", "de"}


def test_what_is_said_and_recorded():
    found = Inverted("good", "ba ba", ("ba", "ba"), 0.987, 0.4)
    assert found.statement() == (
        "The model believes in 'good' with 98.7 % where it reads 'ba ba'; random tokens make it believe in that with "
        "40 %."
    )
    assert found.to_json() == {
        "label": "good",
        "text": "ba ba",
        "tokens": ["ba", "ba"],
        "probability": 0.987,
        "by_chance": 0.4,
    }


def test_what_cannot_be_inverted_is_refused():
    task = reader(Strategy.BILSTM)
    with pytest.raises(BadInput, match="words: 'xx' is no token of the model; give words that are"):
        inverted(task, Search(), words=["ba", "xx"])
    with pytest.raises(BadInput, match="words: none of them is left to write a text with"):
        inverted(task, Search(), words=["[SEP]"])
    with pytest.raises(BadInput, match="model = WordVectors: only a reader that labels whole texts is inverted"):
        reading(task.of(task.model.encoder))
    with pytest.raises(BadInput, match="length = 0"):
        Search(length=0)
