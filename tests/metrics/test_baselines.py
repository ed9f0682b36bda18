"""Baselines know the classes of the training set and nothing else."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.metrics.baselines import at_random, majority

LABELS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=20)


@given(LABELS, st.integers(0, 5))
def test_the_majority_is_what_nothing_exceeds(training, count):
    found = majority(training, count)
    assert len(found) == count
    assert all(training.count(found[0]) >= training.count(label) for label in training if count)
    assert found == majority(training[::-1], count)


@given(LABELS, st.integers(0, 5))
def test_random_classes_are_those_of_the_training_set(training, seed):
    found = at_random(training, 10, seed)
    assert len(found) == 10
    assert set(found) <= set(training)
    assert found == at_random(training[::-1], 10, seed)


def test_random_classes_are_as_frequent_as_in_the_training_set():
    counts = Counter(at_random(["a"] * 6 + ["b"] * 3 + ["c"], 20_000, seed=0))
    assert [counts[label] / 20_000 for label in "abc"] == pytest.approx([0.6, 0.3, 0.1], abs=0.015)


@pytest.mark.parametrize("predict", [majority, lambda training, count: at_random(training, count, 0)])
def test_nothing_to_count_is_refused(predict):
    with pytest.raises(BadInput, match=r"training = 0 labels: a baseline needs at least one"):
        predict([], 3)
    with pytest.raises(BadInput, match=r"count = -1: it must be a whole number of at least 0"):
        predict(["a"], -1)
