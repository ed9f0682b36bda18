"""Book-keeping clips the gradients of the tasks' own losses exactly.

Losses see no more of a model than its logits, so a few strategies stand for all: `models/test_readers.py` has each with
each head.
"""

import jax.numpy as jnp
import pytest

from dpnlp.models.readers import Head, Strategy
from dpnlp.tasks.answering import Answering
from dpnlp.tasks.classification import Classification
from dpnlp.tasks.tagging import Tagging

from ..models.test_readers import batch, made
from ..training.test_clipping import assert_equal, clipped_sum, reference

TASKS = {Head.SEQUENCES: Classification, Head.TOKENS: Tagging, Head.SPANS: Answering}


@pytest.mark.parametrize("head", Head)
def test_the_clipped_sum_of_a_task_is_that_of_the_definition(head):
    reader, given = made(Strategy.TR_NO, head), batch(head)
    loss = TASKS[head](reader, None).loss
    found = clipped_sum(loss, reader, given, jnp.ones(4), 0.1, reader.trained())
    assert_equal(found, *reference(loss, reader, given, jnp.ones(4), 0.1, reader.trained()))
    assert max(found.norms) > 0.1


def test_the_windows_of_a_question_are_clipped_as_one():
    reader, given = made(Strategy.TR_LAST2, Head.SPANS), batch(Head.SPANS)
    loss, weights = Answering(reader, None).loss, jnp.array([0.5, 0.5, 1.0, 0.0])
    found = clipped_sum(loss, reader, given, weights, 0.1, reader.trained(), 2)
    assert found.norms.shape == (2,)
    assert_equal(found, *reference(loss, reader, given, weights, 0.1, reader.trained(), 2))
