"""What is predicted without a look at any example: scores that a model has to exceed.

Both baselines know the classes of the training set alone. They are told without noise, so that they belong into tables
of research; of private labels they are not covered by a guarantee.
"""

import random
from collections import Counter

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.metrics.score import Texts


def majority(training: Texts, count: int) -> list[str]:
    """The most frequent class of the training set, `count` times; of several the first by name."""
    counts = _counted(training)
    return [max(sorted(counts), key=counts.__getitem__)] * checks.count("count", count, least=0)


def at_random(training: Texts, count: int, seed: int) -> list[str]:
    """`count` classes, each drawn as often as it is in the training set: the expected accuracy is Σ p² if the test set
    has the same shares p."""
    counts = _counted(training)
    names = sorted(counts)
    return random.Random(seed).choices(names, [counts[name] for name in names], k=checks.count("count", count, least=0))


def _counted(training: Texts) -> Counter[str]:
    if not len(training):
        raise BadInput("training = 0 labels: a baseline needs at least one; give those of the training set.")
    return Counter(training)
