"""A small private run that tells, outside its folder, what it does, so that it can be killed in the midst of it.

`test_resume` starts it again and again. Every line of its diary is one write, so that a kill leaves whole lines.
"""

import hashlib
import json
import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from dpnlp.accounting.ledger import Ledger
from dpnlp.accounting.subsampling import Schedule
from dpnlp.data.arrays import Arrays
from dpnlp.guarantee import Adjacency
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.models.layers import Dropout, Linear
from dpnlp.training.checkpoints import Checkpoints
from dpnlp.training.clipping import Clipping
from dpnlp.training.loop import Charge, Options, train
from dpnlp.training.parameters import apart
from dpnlp.training.plan import Plan
from dpnlp.training.sampling import Lots
from dpnlp.training.secret import Secret
from dpnlp.training.step import Step

STEPS, EVERY = 60, 3
PLAN = Plan(Schedule(60, 12, STEPS), Clipping(1.0), 1.0, 1e-5, Adjacency.ADD_REMOVE)


class Net(nnx.Module):
    """Four numbers to eight to one."""

    def __init__(self, rngs):
        self.up = Linear(4, 8, rngs=rngs)
        self.dropout = Dropout(0.2)
        self.down = Linear(8, 1, rngs=rngs)

    def __call__(self, x):
        return self.down(self.dropout(jnp.tanh(self.up(x))))


def loss(model, batch):
    x, y = batch
    return jnp.sum((model(x) - y) ** 2, axis=-1)


def digest(tree):
    """A hash of all bits in a tree of arrays."""
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree))).hexdigest()[:16]


def run(home: Path, progress=None, last_words=None):
    """Trains in `home`, or goes on there, and leaves its outcome. Who is to be killed does not begin a checkpoint after
    `last_words`, which are an event and its number in this life, so that he cannot outrun a slow executioner."""
    diary = os.open(home / "diary", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    seen: list[str] = []

    def note(event, *details):
        doomed = last_words is not None and seen.count(last_words[0]) >= last_words[1]
        if doomed and event in ("saving", "over"):
            time.sleep(600)
        os.write(diary, (json.dumps([event, *details]) + "\n").encode())
        seen.append(event)
        if progress is not None:
            progress.send(event)

    def noted(kind, name, before=None, after=None):
        original = getattr(kind, name)

        def wrapper(self, *arguments):
            if before:
                note(*before(*arguments))
            result = original(self, *arguments)
            if after:
                note(*after(result, *arguments))
            return result

        setattr(kind, name, wrapper)

    def made(following, state, sums, key):
        # Adam counts the steps by itself, and knows nothing of the loop's counter.
        inputs = (int(following.optimizer[0].count), digest(jax.random.key_data(key)), digest(sums.gradients))
        return "step", *inputs, digest(following)

    noted(Checkpoints, "save", lambda step, *_: ("saving", step), lambda _, step, *__: ("saved", step))
    noted(Checkpoints, "load", after=lambda found, *_: ("loaded", found[0]))
    noted(Ledger, "enter", lambda *_: ("charging",), lambda *_: ("charged",))
    noted(Lots, "draw", after=lambda lot, step: ("lot", step, digest(lot)))
    noted(Step, "finish", after=made)

    note("begun")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4)).astype(np.float32)
    examples = (x, 2 * x[:, :1])
    kept = Checkpoints(home / "checkpoints")
    begun = kept.last is not None  # One that is not whole does not count.
    kept.close()
    outcome = train(
        Net(nnx.Rngs(0)),
        loss,
        Arrays(examples),
        PLAN,
        optax.adam(0.05),
        Options(physical_batch=5, evaluate_every=EVERY, checkpoint_every=EVERY, average=0.9),
        secret=Secret.drawn(FixedSeed(8 if begun else 7)),  # a run that has begun has its own, and keeps it
        folder=home / "checkpoints",
        resume=True,
        charge=Charge(Ledger.beside(home / "corpus").enter, "the run"),
        evaluate=lambda model: {"loss": float(jnp.mean(loss(model, examples)))},
        publish=lambda history: note("published", [[each.step, each.scores["loss"]] for each in history]),
    )
    entry = {
        "parameters": {name: np.asarray(value).tolist() for name, value in apart(outcome.model).parameters.items()},
        "digest": digest(apart(outcome.model).parameters),
        "guarantee": outcome.guarantee.signature(),
        "history": [[each.step, each.scores["loss"]] for each in outcome.history],
        "steps": outcome.steps,
    }
    (home / "outcome.json").write_text(json.dumps(entry))
    note("over")
