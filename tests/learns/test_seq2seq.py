"""Small encoder-decoders learn to copy, and to translate digits, and show it on texts that they have not seen."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.data.arrays import Arrays
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.models import bart, t5
from dpnlp.models.cross_entropy import losses
from dpnlp.models.generation import Generation, generate
from dpnlp.models.seq2seq import shifted
from dpnlp.training import Optimizer, Options, Plan, Secret, train
from dpnlp.training.optimizers import Decay

PAD, END, FIRST, DIGITS = 0, 1, 2, 10
LONGEST, EXAMPLES, UNSEEN, STEPS = 6, 4000, 200, 1000
WORDS = FIRST + DIGITS  # the first token of the other vocabulary
VOCABULARY = WORDS + 2 * DIGITS

MODELS = {
    "T5": lambda: t5.T5(t5.Config(VOCABULARY, 32, 4, 8, 64, 1, 1, buckets=16, furthest=16), rngs=nnx.Rngs(0)),
    "BART": lambda: bart.BART(bart.Config(VOCABULARY, 32, 1, 4, 64, 1, 4, 64, positions=16), rngs=nnx.Rngs(0)),
}


def copied(digits):
    """The same digits."""
    return [FIRST + digit for digit in digits]


def translated(digits):
    """From the last to the first, each as a word of the other vocabulary: even digits have two tokens, odd ones one."""
    words = ([WORDS + 2 * digit, WORDS + 2 * digit + 1][: 2 - digit % 2] for digit in reversed(digits))
    return [token for word in words for token in word]


def texts(task):
    """Different inputs of three to six different digits, each with what it is to become."""
    rng, seen = np.random.default_rng(0), {}
    while len(seen) < EXAMPLES + UNSEEN:
        digits = rng.permutation(DIGITS)[: rng.integers(3, LONGEST + 1)].tolist()
        seen[(*copied(digits), END)] = [*task(digits), END]
    return list(seen.items())


def dataset(pairs):
    def padded(rows):
        filled = np.zeros((len(rows), 2 * LONGEST + 1), np.int32)
        for row, tokens in zip(filled, rows, strict=True):
            row[: len(tokens)] = tokens
        return filled

    ids, targets = map(padded, zip(*pairs, strict=True))
    batch = {"ids": ids, "mask": ids != PAD, "targets": targets, "target_mask": targets != PAD}
    batch["inputs"] = np.asarray(shifted(jnp.asarray(targets), PAD))
    return Arrays(batch)


@pytest.mark.parametrize(("name", "task"), [("T5", copied), ("BART", translated)])
def test_a_small_model_learns(name, task):
    pairs = texts(task)
    schedule = Schedule(EXAMPLES, 64, STEPS, Sampling.SHUFFLED)
    outcome = train(
        MODELS[name](),
        losses,
        dataset(pairs[:EXAMPLES]),
        Plan.without_privacy(schedule),
        optax.chain(optax.clip_by_global_norm(1.0), Optimizer(5e-3, decay=Decay.LINEAR, warmup_steps=30).build(STEPS)),
        Options(physical_batch=64),
        secret=Secret.drawn(FixedSeed(0)),
    )
    inputs, expected = zip(*pairs[EXAMPLES:], strict=True)
    found = generate(outcome.model, inputs, Generation(2 * LONGEST + 1, PAD, END, PAD), batch=UNSEEN)
    right = np.mean([[*text, END] == truth for text, truth in zip(found, expected, strict=True)])
    assert right > 0.95
