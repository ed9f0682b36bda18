"""What is drawn for a text: in other batches other randomness, and the same whatever the batches are."""

import math

import pytest

from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.tasks.translation import Writing

from . import test_clipped_sampling as sampling
from . import test_retell as retell

TEXTS = ["a"] * 24


def clipped(batch, seed=0):
    return sampling.rewriter(sampling.logits(scale=0.1), 0.5, tokens=4, batch=batch, source=FixedSeed(seed))


def retold(batch, seed=0):
    return retell.rewriter(math.inf, writing=Writing(8, batch=batch, sample=True), source=FixedSeed(seed))


@pytest.mark.parametrize("made", [clipped, retold])
def test_equal_texts_of_all_batches_are_drawn_apart(made):
    batches = [made(4).rewrite(TEXTS)[start : start + 4] for start in range(0, 24, 4)]
    assert len({tuple(batch) for batch in batches}) == 6
    for column in zip(*batches, strict=True):  # not even the texts in one place of their batches
        assert len({*column}) > 1


@pytest.mark.parametrize("made", [clipped, retold])
def test_how_many_are_drawn_at_once_does_not_matter(made):
    assert made(4).rewrite(TEXTS) == made(24).rewrite(TEXTS)


@pytest.mark.parametrize("made", [clipped, retold])
def test_every_call_draws_anew(made):
    rewriter = made(8)
    assert rewriter.rewrite(TEXTS) != rewriter.rewrite(TEXTS)
    assert made(8, seed=1).rewrite(TEXTS) != made(8).rewrite(TEXTS)
