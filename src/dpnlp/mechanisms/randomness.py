"""Where random bits come from (law 6), and coins that come up with exactly the probability they should.

Nothing here computes a probability in floating point: every decision compares whole numbers, after Canonne, Kamath and
Steinke (2020). Arrays of a million coins are tossed at once.
"""

import os
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpnlp.guarantee import NoiseSource

Integers = npt.NDArray[np.int64]
Coins = npt.NDArray[np.bool_]


class Source(Protocol):
    """Random bytes, and what a guarantee says about where they came from."""

    @property
    def kind(self) -> NoiseSource: ...

    def bytes(self, count: int) -> bytes: ...


@dataclass(frozen=True)
class OSEntropy:
    """The operating system's generator, asked anew for every draw: nothing is kept that could be read back."""

    kind: NoiseSource = field(default=NoiseSource.OS_ENTROPY, init=False)

    def bytes(self, count: int) -> bytes:
        return os.urandom(count)


class FixedSeed:
    """Reproducible noise for research. Whoever knows the seed can take the noise off."""

    kind = NoiseSource.FIXED_SEED

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.restart()

    def restart(self, *place: int) -> None:
        """Goes to a place of its own for these numbers, so that work that was stopped goes on as it would have."""
        # NumPy takes a seed for the same with zeros behind it, so that how many numbers there are goes before them.
        self._generator = np.random.default_rng((self._seed, len(place), *place) if place else self._seed)

    def bytes(self, count: int) -> bytes:
        return self._generator.bytes(count)


OS_ENTROPY = OSEntropy()


def seeded(seed: int | None) -> Source:
    """The operating system's entropy, unless a seed is given, for research."""
    return OS_ENTROPY if seed is None else FixedSeed(seed)


def below(source: Source, limit: int, count: int) -> Integers:
    """Whole numbers drawn uniformly from 0 … limit − 1, for a limit of at most 2^62.

    The remainder of a random word is uniform once the words above the last multiple of `limit` are drawn again.
    """
    width = next(width for width in (1, 2, 4, 8) if limit <= 1 << (8 * width - 2))
    multiple = (1 << 8 * width) // limit * limit

    def words(size: int) -> npt.NDArray[np.unsignedinteger]:
        return np.frombuffer(source.bytes(width * size), dtype=f"<u{width}")

    drawn = words(count)
    if multiple < 1 << 8 * width and (excess := np.flatnonzero(drawn >= multiple)).size:
        drawn = drawn.copy()
        while excess.size:
            drawn[excess] = words(excess.size)
            excess = excess[drawn[excess] >= multiple]
    if limit & (limit - 1) == 0:
        return (drawn & (limit - 1)).astype(np.int64)
    return (drawn % limit).astype(np.int64)


def bernoulli_exp(source: Source, numerator: Integers, denominator: int) -> Coins:
    """Coins that are true with probability exp(−numerator/denominator), exactly (Canonne et al. 2020, Algorithm 1)."""
    whole, rest = np.divmod(numerator, denominator)
    result = np.ones(numerator.size, dtype=np.bool_)
    # exp(−whole) is `whole` coins of exp(−1) in a row, nearly all of which stop early.
    waiting = np.flatnonzero(whole)
    while waiting.size:
        heads = bernoulli_exp_fraction(source, np.ones(waiting.size, dtype=np.int64), 1)
        result[waiting[~heads]] = False
        waiting = waiting[heads]
        whole[waiting] -= 1
        waiting = waiting[whole[waiting] > 0]
    alive = np.flatnonzero(result)
    result[alive] = bernoulli_exp_fraction(source, rest[alive], denominator)
    return result


def bernoulli_exp_fraction(source: Source, numerator: Integers, denominator: int) -> Coins:
    """The same for γ = numerator/denominator ≤ 1: toss coins of γ/1, γ/2, …; true if the first tail is an odd one."""
    result = np.ones(numerator.size, dtype=np.bool_)
    running = np.arange(numerator.size)
    turn = 1
    while running.size:
        if turn > 1:
            running = running[below(source, turn, running.size) == 0]
        if denominator > 1:
            running = running[below(source, denominator, running.size) < numerator[running]]
        elif turn == 1:
            running = running[numerator > 0]
        result[running] = turn % 2 == 0
        turn += 1
    return result
