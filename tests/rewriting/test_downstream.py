"""A classifier learns from randomized texts and labels, and is told how they were randomized."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from dpnlp.checks import BadInput
from dpnlp.mechanisms import RandomizedResponse
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.rewriting.downstream import Randomized, learn

LABELS = ("a", "b", "c")
CENTRES = np.array([[2.0, 0, 0, 0], [0, 2.0, 0, 0], [0, 0, 2.0, 0]])


def drawn(count, seed, shares=(0.4, 0.3, 0.3)):
    rng = np.random.default_rng(seed)
    y = rng.choice(3, count, p=shares)
    return (CENTRES[y] + rng.normal(size=(count, 4))).astype(np.float32), [LABELS[one] for one in y]


def theirs(vectors, labels, penalty):
    """As scikit-learn has it, whose C is 1/(2 n penalty)."""
    return LogisticRegression(C=1 / (2 * len(labels) * penalty), max_iter=5000, tol=1e-8).fit(vectors, labels)


def assert_alike(found, their, others):
    logits = others @ found.weights + found.bias
    centred = logits - logits.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(centred, their.decision_function(others), atol=0.02)
    assert found(others) == list(their.predict(others))


def test_it_is_logistic_regression():
    vectors, labels = drawn(400, 0)
    assert_alike(learn(vectors, labels), theirs(vectors, labels, 1e-4), drawn(200, 1)[0])


def accuracy(classifier, data):
    return np.mean(np.array(classifier(data[0])) == data[1])


def test_it_learns_more_when_it_is_told_that_texts_were_drawn_blindly():
    """Every other text is a random one, and two labels are rare: untold, the classifier forgets them."""
    shares = (0.8, 0.15, 0.05)
    vectors, labels = drawn(6000, 2, shares)
    blind = np.random.default_rng(3).random(len(labels)) < 0.5
    vectors[blind] = drawn(int(blind.sum()), 4, (1 / 3, 1 / 3, 1 / 3))[0]
    test = drawn(3000, 5, (1 / 3, 1 / 3, 1 / 3))
    told, untold = (accuracy(learn(vectors, labels, None, how), test) for how in (Randomized(0.5), Randomized()))
    assert told > untold + 0.15


def test_it_undoes_randomized_response():
    vectors, labels = drawn(6000, 6, (0.8, 0.15, 0.05))
    response = RandomizedResponse(1.0, 3, FixedSeed(0))
    answers = [LABELS[one] for one in response.release([LABELS.index(label) for label in labels])]
    test = drawn(3000, 7)
    assert accuracy(learn(vectors, answers, None, Randomized(labels=response)), test) > 0.8
    np.testing.assert_allclose(Randomized(labels=response).transition(3).sum(axis=1), 1)
    assert Randomized(labels=response).transition(3)[0, 0] == pytest.approx(response.theta)


def test_labels_that_were_drawn_together_with_the_texts_are_uniform_where_these_are_blind():
    """From texts that say nothing it learns the true shares of the labels, of which two in three were drawn blindly."""
    labels = ["a"] * 800 + ["b"] * 150 + ["c"] * 50 + [*LABELS] * 666 + ["a", "b"]
    found = learn(np.zeros((3000, 4), np.float32), labels, None, Randomized(1 / 3, together=True))
    np.testing.assert_allclose(np.exp(found.bias) / np.exp(found.bias).sum(), [0.8, 0.15, 0.05], atol=0.002)


def test_validation_data_choose_the_penalty():
    vectors, labels = drawn(300, 8)
    held = drawn(100, 9)
    assert accuracy(learn(vectors, labels, (held[0], [*held[1][:-1], "unheard of"])), drawn(500, 10)) > 0.8


@pytest.mark.parametrize(("count", "scale", "best"), [(300, 0.03, 1e-5), (60, 0.1, 1e-4), (30, 1.0, 1e-3)])
def test_of_three_penalties_that_is_chosen_by_which_validation_data_are_most_likely(count, scale, best):
    """Short vectors need large weights, and few examples small ones."""
    (vectors, labels), (others, told) = drawn(count, 8), drawn(100, 9)
    vectors, others = scale * vectors, scale * others
    fitted = {penalty: theirs(vectors, labels, penalty) for penalty in (1e-5, 1e-4, 1e-3)}
    assert best == min(fitted, key=lambda penalty: log_loss(told, fitted[penalty].predict_proba(others)))
    assert_alike(learn(vectors, labels, (others, told)), fitted[best], others)


def test_where_all_labels_came_out_alike_there_is_one_answer():
    """So a rewriting is scored, and comes to its end, whatever was drawn for its labels."""
    assert learn(np.ones((2, 3), np.float32), ["a", "a"])(np.ones((3, 3), np.float32)) == ["a"] * 3


def test_refusals():
    with pytest.raises(BadInput, match="labels: there are none"):
        learn(np.zeros((0, 3), np.float32), [])
    with pytest.raises(BadInput, match="carried = 0"):
        Randomized(0.0)
