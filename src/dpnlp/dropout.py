"""Randomness that belongs to an example: the same whoever shares its batch and wherever in it the example stands.

`training.step` opens the keys of a batch, one per example, and `models.layers.Dropout` takes from them. Where no keys
are open, as in evaluation and generation, nothing is dropped.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from itertools import count

import jax

_OPEN: ContextVar[Iterator[jax.Array] | None] = ContextVar("dropout", default=None)


def dropping(keys: jax.Array) -> AbstractContextManager[None]:
    """Inside this context layers drop, with the randomness of `keys` [batch]."""
    fold = jax.vmap(jax.random.fold_in, in_axes=(0, None))
    return _opened(fold(keys, use) for use in count())


def paused() -> AbstractContextManager[None]:
    """Inside this context nothing is dropped, even where keys are open around it."""
    return _opened(None)


@contextmanager
def _opened(stream: Iterator[jax.Array] | None) -> Iterator[None]:
    token = _OPEN.set(stream)
    try:
        yield
    finally:
        _OPEN.reset(token)


def is_on() -> bool:
    """Whether layers drop here."""
    return _OPEN.get() is not None


def next_keys() -> jax.Array | None:
    """Keys [batch] for one use of dropout, different from those of every other use in the same forward pass."""
    stream = _OPEN.get()
    return None if stream is None else next(stream)
