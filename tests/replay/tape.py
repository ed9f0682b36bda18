"""A release on one data set, and again on its neighbour with the same random words, after dp-recorder (PETS 2026).

Whatever a program does with private data either goes through noise or must be the same for two neighbours. So the first
run is recorded: the random words that it drew, and what it put into each noisy answer. The second run is given the same
words. What it puts into an answer may differ by as much as the answer was declared to move, and it is then given the
answer of the first run, as if noise had hidden the difference. Everything else has to be equal: how many words are
drawn, how many answers are asked for, of what shape, what is printed, and every byte of what is written.
"""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest

from dpnlp.accounting import releases
from dpnlp.guarantee import NoiseSource
from dpnlp.mechanisms.exponential import Exponential
from dpnlp.mechanisms.gaussian import Gaussian
from dpnlp.mechanisms.laplace import Laplace
from dpnlp.mechanisms.metric import Metric
from dpnlp.mechanisms.partition_selection import PartitionSelection
from dpnlp.mechanisms.randomized_response import RandomizedResponse
from dpnlp.mechanisms.subset_response import SubsetResponse
from dpnlp.rewriting import clipped_sampling
from dpnlp.tasks import aggregation
from dpnlp.training.rounding import ROUNDING
from dpnlp.training.step import Step


@dataclass(frozen=True)
class Answer:
    """What went into noise, and what came out."""

    what: str
    value: np.ndarray
    released: Any


class Tape:
    """The random words and the answers of a run; one that is made after another replays it."""

    kind = NoiseSource.OS_ENTROPY

    def __init__(self, before: "Tape | None" = None) -> None:
        self.before = before
        self.words: list[bytes] = []
        self.answers: list[Answer] = []
        self.moved: list[float] = []
        """How far each answer moved from the first run to the second, as a share of what was declared."""
        self._fresh = np.random.default_rng(0)

    def bytes(self, count: int) -> bytes:
        """The next random words: fresh ones, or those of the run before."""
        if self.before is None:
            drawn = self._fresh.bytes(count)
        else:
            assert len(self.words) < len(self.before.words), f"{count} bytes are drawn that the first run did not draw"
            drawn = self.before.words[len(self.words)]
            assert len(drawn) == count, f"{count} bytes are drawn where the first run drew {len(drawn)}"
        self.words.append(drawn)
        return drawn

    def answer(self, what: str, value: Any, distance: Callable[[Any], float], most: float, released: Any) -> Any:
        """What is released of a value that one record may move by `most`: for the second run what the first one got."""
        value = np.array(value)
        if self.before is not None:
            assert len(self.answers) < len(self.before.answers), f"{what}: an answer that the first run did not ask for"
            was = self.before.answers[len(self.answers)]
            assert (was.what, was.value.shape) == (what, value.shape)
            apart = float(distance(value - was.value if value.dtype.kind == "f" else value != was.value))
            assert apart <= most, f"{what}: moved by {apart}, and at most {most} was declared"
            self.moved.append(apart / most)
            released = was.released
        self.answers.append(Answer(what, value, released))
        return released

    def end(self) -> None:
        """The second run must not stop short of the first one, and somewhere the two must have differed."""
        assert self.before is not None
        assert len(self.words) == len(self.before.words)
        assert len(self.answers) == len(self.before.answers)
        assert max(self.moved) > 0, "the neighbours differ in nothing that was released, so that nothing was tried"


def l1(difference: np.ndarray) -> float:
    return float(np.sum(np.abs(difference)))


def l2(difference: np.ndarray) -> float:
    return float(np.sqrt(np.sum(difference**2)))


def rows(different: np.ndarray) -> float:
    """How many rows differ."""
    return float(np.sum(np.any(different.reshape(len(different), -1), axis=1)))


class _Clock:
    """One moment for all entries of a ledger."""

    @classmethod
    def now(cls, zone: Any) -> Any:
        from datetime import datetime

        return datetime(2026, 1, 1, tzinfo=zone)


@contextmanager
def running(tape: Tape) -> Iterator[None]:
    """Inside, all randomness is the tape's, and all that goes through noise is heard."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", tape.bytes)
        patch.setattr(random, "_urandom", tape.bytes)  # what `secrets` takes from the operating system
        patch.setattr(releases, "datetime", _Clock)
        _hear_mechanisms(tape, patch)
        _hear_training(tape, patch)
        _hear_aggregations(tape, patch)
        _hear_draws(tape, patch)
        yield


def _hear_mechanisms(tape: Tape, patch: pytest.MonkeyPatch) -> None:
    """The answers of mechanisms. What moves them is one record: one row of those that are released together."""

    def heard(kind: Any, method: str, distance: Callable[[Any], float], most: Callable[[Any], float], as_: Any) -> None:
        ordinary = getattr(kind, method)

        def replacement(self: Any, value: Any) -> Any:
            value, released = np.array(value), ordinary(self, value)
            return tape.answer(kind.__name__, value.astype(as_), distance, most(self), released)

        patch.setattr(kind, method, replacement)

    heard(Laplace, "release", l1, lambda mechanism: mechanism.sensitivity, np.float64)
    heard(Gaussian, "release", l2, lambda mechanism: mechanism.sensitivity, np.float64)
    heard(Metric, "release", l2, lambda mechanism: mechanism.diameter, np.float64)
    heard(RandomizedResponse, "release", rows, lambda mechanism: 1, np.int64)
    heard(SubsetResponse, "release", rows, lambda mechanism: 1, np.int64)
    _hear_selection(tape, patch)
    heard(Exponential, "choose", lambda moved: float(np.max(np.abs(moved))), lambda m: m.sensitivity, np.float64)


def _hear_selection(tape: Tape, patch: pytest.MonkeyPatch) -> None:
    """Sums of weights over users, in grid steps, of which all users together name the same words."""
    ordinary = PartitionSelection.release

    def release(self: PartitionSelection, sums: Any) -> Any:
        value = np.array([sums[word] for word in sorted(sums)], np.float64)
        return tape.answer("PartitionSelection", value, l2, 1 / self.noise.step, ordinary(self, sums))

    patch.setattr(PartitionSelection, "release", release)


def _hear_training(tape: Tape, patch: pytest.MonkeyPatch) -> None:
    """The sum over a lot, before its noise: an exchanged record moves it by up to 2C, with what rounding adds."""
    ordinary = Step.finish

    def finish(self: Step, state: Any, sums: Any, key: Any) -> Any:
        answer, lost = self.plan.contribution.query(self.plan, sums)
        exact = [np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(answer)]
        if lost:
            exact = [a + np.asarray(b, np.float64).ravel() for a, b in zip(exact, jax.tree.leaves(lost), strict=True)]
        most = 2 * self.plan.clipping.norm * (1 + ROUNDING)
        following = jax.tree.map(np.array, ordinary(self, state, sums, key))
        released = tape.answer("lot", np.concatenate(exact), l2, most, following)
        return self.placement.state(jax.tree.map(jax.numpy.asarray, released))

    patch.setattr(Step, "finish", finish)


def _hear_aggregations(tape: Tape, patch: pytest.MonkeyPatch) -> None:
    """Sums over neighbours with their noise, of the same shape for two graphs that differ in one node's own data."""
    ordinary, scaled = aggregation.aggregated, aggregation.scaled

    def aggregated(graph: Any, hops: int, noise: Any = None) -> Any:
        if noise is None:
            return ordinary(graph, hops)
        own = iter([True])

        def hear(values: Any) -> Any:
            if next(own, False):  # of each node by itself, which is a part of its record
                return scaled(values)
            edges = np.bincount(graph.edges.ravel()).max()
            most = 2 * np.sqrt(edges)  # in the row of each neighbour a row of length 1 is exchanged
            return tape.answer("sum over neighbours", values, l2, most, scaled(values))

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(aggregation, "scaled", hear)
            return ordinary(graph, hops, noise)

    patch.setattr(aggregation, "aggregated", aggregated)


def _hear_draws(tape: Tape, patch: pytest.MonkeyPatch) -> None:
    """Texts that a model draws from clipped logits; what it reads is one row for each text, all of one length."""
    ordinary = clipped_sampling.search

    def search(structure: Any, weights: Any, ids: Any, mask: Any, keys: Any, *, options: Any) -> Any:
        written = np.asarray(ordinary(structure, weights, ids, mask, keys, options=options))
        return tape.answer("draws", np.where(mask, ids, -1), rows, 1, written)

    patch.setattr(clipped_sampling, "search", search)
