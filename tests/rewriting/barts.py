"""A micro BART with random weights for made-up words, whose texts differ with what its decoder reads."""

import functools
from dataclasses import replace

import jax
import numpy as np
from flax import nnx

from dpnlp.rewriting.bart_autoencoder import Autoencoder

WORDS = ["ba", "be", "bi", "bo", "bu", "da", "de", "di", "do", "du"]
SHAPE = {"width": 8, "layers": 1, "heads": 2, "hidden": 16, "dropout": 0.0, "computes": "float32", "seed": 0}


def sentences(count, seed=0, longest=4):
    """Texts of one word or more."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, longest + 1))) for _ in range(count)]


@functools.cache
def fresh():
    """As it starts from scratch, with room for 6 tokens."""
    return Autoencoder.from_scratch(sentences(50), vocabulary=300, length=6, **SHAPE)


@functools.cache
def micro(bound=0.5, pruned=()):
    """One with weights large enough that it says something."""
    made = fresh()
    model = nnx.clone(made.pretrained.model)
    keys = iter(jax.random.split(jax.random.key(1), 100))
    for _, value in nnx.to_flat_state(nnx.state(model, nnx.Param)):
        if value.ndim > 1:
            value.set_value(value[...] + 0.7 * jax.random.normal(next(keys), value.shape))
    bottleneck = replace(made.bottleneck, bound=bound, pruned=pruned)
    return replace(made, pretrained=replace(made.pretrained, model=model), bottleneck=bottleneck)
