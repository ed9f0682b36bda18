"""Hill climbing over all that an attacker may choose, for the record that moves the sum of a lot the most."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.training import Secret
from dpnlp.training.clipping import Clipping
from dpnlp.training.parameters import apart
from dpnlp.training.plan import Plan
from dpnlp.training.sampling import Layout, Lots, cut
from dpnlp.training.step import Examples, Step

from .architectures import ARCHITECTURES, IN_FLOAT32, POSITIONS, TOKENS

RECORDS, AT_ONCE = 8, 32
LAYOUT = Layout(3, (POSITIONS // 2, POSITIONS))
"""Batches of three records, of which the short ones are padded to half the length of the others."""


class Choice(NamedTuple):
    """Texts [records, positions], how long they are, how large the weights are and how large the loss: powers of 10.

    A loss that is ten times as large is a clip norm that is a tenth.
    """

    ids: np.ndarray
    targets: np.ndarray
    lengths: np.ndarray
    sizes: np.ndarray  # [weights]
    loss: np.ndarray

    def mutated(self, rng, shapes=False):
        """Another one near it: some tokens, one record like another, sizes; as long as before, or padded to as much."""
        ids, targets, lengths = self.ids.copy(), self.targets.copy(), self.lengths.copy()
        for tokens in (ids, targets):
            some = rng.random(tokens.shape) < rng.choice([0, 0.05, 0.3, 1])
            tokens[some] = rng.integers(0, rng.integers(1, TOKENS + 1), some.sum())
        if rng.random() < 0.2:
            one, other = rng.integers(RECORDS, size=2)
            ids[one], targets[one] = ids[other], targets[other]
        if rng.random() < 0.3:
            one = rng.integers(RECORDS)
            most = POSITIONS if shapes else LAYOUT.padded(lengths)[one]
            lengths[one] = rng.integers(0 if shapes else most - POSITIONS // 2, most) + 1
        jumps = rng.random(self.sizes.shape) < rng.choice([0, 0.1, 1])
        sizes = np.clip(self.sizes + jumps * rng.normal(size=self.sizes.shape) * rng.choice([0.02, 0.3, 2]), -6, 6)
        loss = np.clip(self.loss + rng.normal() * rng.choice([0, 0.02, 0.5]), -3, 5)
        return Choice(ids, targets, lengths, np.float32(sizes), np.float32(loss))


def climbed(name, dtype, rule, tries, seed=0):
    """The most, in clip norms, that the first record was found to move the sum of a lot by, in so many tries."""
    make, loss = {**ARCHITECTURES, **IN_FLOAT32}[name]
    rng, secret = np.random.default_rng(seed), Secret.drawn(FixedSeed(seed))
    parts = apart(make(dtype))
    schedule = Schedule(RECORDS, RECORDS, 1, Sampling.POISSON)
    plan = Plan(schedule, Clipping(1.0, rule), 1.0, 1e-6, schedule.sampling.adjacencies[0])
    step = Step(_scaled(loss), parts.frame, parts.rest, plan, optax.sgd(0.1))
    places, key = Lots(schedule, secret).places(0), secret.key("dropout")
    names = sorted(parts.parameters)
    noise = {one: rng.normal(size=parts.parameters[one].shape) * 0.01 for one in names}
    start = {one: jnp.asarray(parts.parameters[one] + noise[one], jnp.float32) for one in names}

    def weighted(sizes):
        return {one: start[one] * 10.0**size for one, size in zip(names, sizes, strict=True)}

    @jax.jit
    def add(sums, sizes, batch, rows, weights):
        def one(given):
            sums, sizes, batch = given
            return step.add(sums, weighted(sizes), key, Examples(batch, rows, weights), 1)

        return jax.lax.map(one, (sums, sizes, batch))

    def summed(some, lot):
        sums = jax.tree.map(lambda leaf: jnp.stack([leaf] * AT_ONCE), step.empty(start))
        for shape, rows, weights in cut(lot, LAYOUT, some.lengths[0], places):
            real = np.arange(shape.length) < some.lengths[:, rows, None]
            texts = (some.ids[:, rows, : shape.length], some.targets[:, rows, : shape.length], np.float32(real))
            scales = np.broadcast_to(10 ** some.loss[:, None], (AT_ONCE, len(rows)))
            sums = add(sums, some.sizes, (*texts, scales), jnp.asarray(rows, jnp.int32), jnp.asarray(weights))
        both = ((sums.gradients[one], sums.lost[one]) for one in names)
        return np.concatenate([np.reshape(np.float64(a) + np.float64(b), (AT_ONCE, -1)) for a, b in both], axis=1)

    best, most = None, -1.0
    for _ in range(-(-tries // AT_ONCE)):
        near = best.mutated(rng, shapes=True) if best and rng.random() < 0.9 else _any(rng, len(names))
        some = [near, *(near.mutated(rng) for _ in range(AT_ONCE - 1))]
        every = Choice(*map(np.stack, zip(*some, strict=True)))
        found = np.linalg.norm(summed(every, np.arange(RECORDS)) - summed(every, np.arange(1, RECORDS)), axis=1)
        found = np.where(np.isnan(found), np.inf, found)
        if found.max() > most:
            best, most = some[int(found.argmax())], float(found.max())
    return most


def _any(rng, weights):
    ids, targets = rng.integers(0, TOKENS, (2, RECORDS, POSITIONS))
    lengths = rng.integers(1, POSITIONS + 1, RECORDS)
    return Choice(ids, targets, lengths, np.zeros(weights, np.float32), np.float32(rng.uniform(-1, 4)))


def _scaled(loss):
    def scaled(model, batch):
        *texts, scales = batch
        return loss(model, *texts).astype(jnp.float32) * scales

    return scaled
