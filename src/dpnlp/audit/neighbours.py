"""Our mechanisms and rewriters as black boxes, and the two inputs of a mechanism that are hardest to keep apart."""

import math
from typing import Any, NamedTuple

import numpy as np

from dpnlp.audit.black_box import Release, one_by_one
from dpnlp.checks import BadInput
from dpnlp.mechanisms import Exponential, Gaussian, Laplace, Metric, RandomizedResponse, SubsetResponse
from dpnlp.mechanisms.base import Mechanism
from dpnlp.rewriting.base import Rewriter
from dpnlp.rewriting.latent import LatentRewriter

_CANDIDATES = 10
"""Candidates that lose while one gains, unless told otherwise: the more there are, the nearer the loss comes to ε."""


class Neighbours(NamedTuple):
    """Two inputs, and what releases outputs of either."""

    release: Release
    first: Any
    second: Any


def farthest(mechanism: Mechanism, size: int | None = None, *, noisy_max: bool = False) -> Neighbours:
    """Neighbours as far apart as a mechanism allows; `size` is the entries of a vector, or the other candidates.

    Vectors differ in all of their entries, so that it matters in which norm they are close. Outputs of numeric noise
    are drawn all at once: then each is rounded to a finer grid than it would be by itself, and no more differs.
    """
    n = size or 1
    match mechanism:
        case Laplace():
            return Neighbours(_rows(mechanism), np.zeros(n), np.full(n, mechanism.sensitivity / n))
        case Gaussian():
            return Neighbours(_rows(mechanism), np.zeros(n), np.full(n, mechanism.sensitivity / math.sqrt(n)))
        case Metric():
            return Neighbours(_rows(mechanism), np.zeros(n), np.full(n, mechanism.diameter / math.sqrt(n)))
        case RandomizedResponse():
            return Neighbours(lambda answer, count: mechanism.release(np.full(count, answer)), 0, 1)
        case SubsetResponse():
            k, m = mechanism.candidates, mechanism.preferred
            return Neighbours(_rows(mechanism), np.arange(m), np.arange(k - m, k))
        case Exponential():
            gain, others = mechanism.sensitivity, size or _CANDIDATES
            first = [gain] + [0.0] * others
            second = [0.0] + [0.0 if mechanism.monotone else gain] * others
            return Neighbours(one_by_one(mechanism.noisy_max if noisy_max else mechanism.choose), first, second)
        case _:
            raise BadInput(f"mechanism = {mechanism.term.name}: no two inputs are known for it; give them yourself.")


def _rows(mechanism: Laplace | Gaussian | Metric | SubsetResponse) -> Release:
    return lambda row, count: mechanism.release(np.tile(row, (count, 1)))


def texts_of(rewriter: Rewriter) -> Release:
    """What a rewriter writes for a text."""
    return lambda text, count: rewriter.rewrite([text] * count)


def latents_of(rewriter: Rewriter) -> Release:
    """The noisy latents behind what a rewriter writes, for which it promises as much, and which tell more."""
    if not isinstance(rewriter, LatentRewriter):
        raise BadInput("latents = true: this rewriter has none; leave it out, and its texts are audited.")
    return lambda text, count: rewriter.latents([text] * count)
