"""Hill climbing over all that an attacker may choose, for the record that moves the sum of a batch the most."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpnlp.training.clipping import Clipping, clipped_sum
from dpnlp.training.parameters import apart

from .architectures import ARCHITECTURES, IN_FLOAT32, POSITIONS, TOKENS

RECORDS, AT_ONCE = 4, 32


class Choice(NamedTuple):
    """Texts [records, positions], how long they are, and how large the weights are, and the clip norm: powers of 10."""

    ids: np.ndarray
    targets: np.ndarray
    lengths: np.ndarray
    sizes: np.ndarray  # [weights]
    norm: np.ndarray

    def mutated(self, rng):
        """Another one near it: some tokens, one record like another, sizes."""
        ids, targets, lengths = self.ids.copy(), self.targets.copy(), self.lengths.copy()
        for tokens in (ids, targets):
            some = rng.random(tokens.shape) < rng.choice([0, 0.05, 0.3, 1])
            tokens[some] = rng.integers(0, rng.integers(1, TOKENS + 1), some.sum())
        if rng.random() < 0.2:
            one, other = rng.integers(RECORDS, size=2)
            ids[one], targets[one] = ids[other], targets[other]
        if rng.random() < 0.3:
            lengths[rng.integers(RECORDS)] = rng.integers(1, POSITIONS + 1)
        jumps = rng.random(self.sizes.shape) < rng.choice([0, 0.1, 1])
        sizes = np.clip(self.sizes + jumps * rng.normal(size=self.sizes.shape) * rng.choice([0.02, 0.3, 2]), -6, 6)
        norm = np.clip(self.norm + rng.normal() * rng.choice([0, 0.02, 0.5]), -5, 3)
        return Choice(ids, targets, lengths, np.float32(sizes), np.float32(norm))


def climbed(name, dtype, rule, tries, seed=0):
    """The most, in clip norms, that one record was found to move the sum of a batch by, in so many tries."""
    make, loss = {**ARCHITECTURES, **IN_FLOAT32}[name]
    parts, rng = apart(make(dtype)), np.random.default_rng(seed)
    names = sorted(parts.parameters)
    noise = {key: jnp.asarray(rng.normal(size=parts.parameters[key].shape) * 0.01, jnp.float32) for key in names}

    def moved(given):
        mask = (jnp.arange(POSITIONS) < given.lengths[:, None]).astype(jnp.float32)
        own = {
            key: (parts.parameters[key] + noise[key]) * 10.0**size for key, size in zip(names, given.sizes, strict=True)
        }
        norm = 10.0**given.norm

        def summed(weights):
            batch = (given.ids, given.targets, mask)
            whole = partial(_of_batch, loss)
            return clipped_sum(whole, parts._replace(parameters=own), batch, weights, _traced(norm, rule)).gradients

        with_it, without = summed(jnp.ones(RECORDS)), summed(jnp.ones(RECORDS).at[0].set(0))
        squared = sum(jnp.sum((with_it[key] - without[key]) ** 2) for key in names)
        return jnp.sqrt(squared) / norm

    every = jax.jit(lambda given: jax.lax.map(moved, given))
    best, most = None, -1.0
    for _ in range(-(-tries // AT_ONCE)):
        start = best or _any(rng, len(names))
        some = [start.mutated(rng) if rng.random() < 0.9 else _any(rng, len(names)) for _ in range(AT_ONCE)]
        found = np.asarray(every(Choice(*map(np.stack, zip(*some, strict=True)))))
        found = np.where(np.isnan(found), np.inf, found)
        if found.max() > most:
            best, most = some[int(found.argmax())], float(found.max())
    return most


def _any(rng, weights):
    ids, targets = rng.integers(0, TOKENS, (2, RECORDS, POSITIONS))
    lengths = rng.integers(1, POSITIONS + 1, RECORDS)
    return Choice(ids, targets, lengths, np.zeros(weights, np.float32), np.float32(rng.uniform(-4, 1)))


def _of_batch(loss, model, batch):
    return loss(model, *batch).astype(jnp.float32)


def _traced(norm, rule):
    """Clipping to a norm that is only known when it is computed."""
    clipping = object.__new__(Clipping)
    for name, value in (("norm", norm), ("rule", rule), ("method", Clipping(1.0).method), ("stabiliser", 0.01)):
        object.__setattr__(clipping, name, value)
    return clipping
