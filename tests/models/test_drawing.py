"""Draws by scores: against the softmax, and in tails that no number of draws would show."""

import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.models.drawing import categorical, gumbel

from ..mechanisms.audit import FALSE_ALARM, chi_square

WORDS = st.lists(st.integers(0, 2**32 - 1), min_size=3, max_size=3)
NEAR_AN_END = st.tuples(st.integers(0, 95), st.booleans()).map(
    lambda end: [((2 ** end[0] if end[1] else 2**96 - 1 - 2 ** end[0]) >> shift) % 2**32 for shift in (64, 32, 0)]
)
LARGEST_ERROR = 2.0**-18 + 2.0**-22 * 68


@given(WORDS | NEAR_AN_END)
def test_a_gumbel_number_is_that_of_its_96_bits(words):
    """In both tails too, to the error that the temperature of a private draw makes up for."""
    with mpmath.workdps(60):
        u = (mpmath.mpf(words[0] << 64 | words[1] << 32 | words[2]) + 0.5) / 2**96
        exact = float(-mpmath.log(-mpmath.log(u)))
    assert abs(float(gumbel(jnp.array(words, jnp.uint32)[:, None])[0]) - exact) < LARGEST_ERROR


def test_a_token_60_nats_behind_can_still_be_drawn():
    """Of the 2^96 words those above 1 − e^−60 make a Gumbel number above 60: 693 of them, and no fewer."""
    ends = [round(2**96 * math.exp(-60) * factor) for factor in (0.99, 1.01)]
    words = jnp.array([[2**32 - 1] * 2, [2**32 - 1] * 2, [2**32 - 1 - end for end in ends]], jnp.uint32)
    above, below = gumbel(words)
    assert above > 60 > below


def drawn(scores, draws, seed=0):
    keys = jax.random.split(jax.random.key(seed), draws)
    return np.asarray(jax.jit(jax.vmap(categorical, in_axes=(0, None)))(keys, jnp.asarray(scores, jnp.float32)))


@pytest.mark.parametrize("size", [1, 5, 128, 129, 300])
def test_draws_follow_the_softmax(size):
    scores = np.random.default_rng(size).normal(0, 2, size)
    shares = np.exp(scores) / np.exp(scores).sum()
    counts = np.bincount(drawn(scores, 20_000), minlength=size)
    assert counts.size == size
    assert chi_square(counts, shares) > FALSE_ALARM


def test_many_alike_weigh_as_many():
    """One score against 128 of the same size, and 127 far behind that are drawn from with it."""
    scores = np.concatenate([[0.0], np.full(127, -30.0), np.zeros(128)])
    counts = np.bincount(drawn(scores, 20_000), minlength=256)
    assert counts[1:128].sum() == 0
    assert chi_square([counts[0], counts[128:].sum()], [1 / 129, 128 / 129]) > FALSE_ALARM


def test_what_is_forbidden_is_never_drawn():
    scores = np.full(300, -np.inf)
    scores[[3, 290]] = 0.0, 1.0
    counts = np.bincount(drawn(scores, 5000), minlength=300)
    assert counts[[3, 290]].sum() == 5000
    assert chi_square(counts[[3, 290]], [1 / (1 + math.e), math.e / (1 + math.e)]) > FALSE_ALARM


@given(st.integers(0, 10**6), st.floats(0, 40))
def test_the_logarithm_of_a_sum_is_right_however_small_its_terms(seed, width):
    """Between a block of the largest scores and one of the smallest, the chances differ by as much as they should."""
    blocks = np.random.default_rng(seed).uniform(-width, 0, (2, 128)).astype(np.float32)
    blocks[1] -= np.float32(width)
    exact = np.log(np.exp(blocks.astype(float)).sum(axis=1))
    assert np.abs(np.asarray(jax.nn.logsumexp(blocks, axis=1)) - exact).max() < 2.0**-16
