"""ADePT's first mechanism is found out by an audit at the ε that it claims, and the corrected ones are not."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import laplace, norm

from dpnlp.checks import BadInput
from dpnlp.mechanisms import Gaussian, Laplace
from dpnlp.mechanisms.base import Mechanism
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.rewriting import flawed
from dpnlp.rewriting.flawed import OverclaimingLaplace
from dpnlp.rewriting.latent import Clip, Rule, noise

from ..mechanisms.audit import epsilon_lower_bound

EPSILON, BOUND, N, TRIALS = 1.0, 5.0, 16, 20_000


def bound(release, rule, delta, log_ratio):
    """A lower bound on ε from two latents that differ in all entries, and lie as far out as clipping lets them.

    They are (C/√n, …) and (−C/√n, …), or C/n by the ℓ1 norm. The events are that the likelihood of the first is e^ε
    times that of the second, which is the most that Laplace noise may let come out, and that it is e² times as much.
    """
    each = BOUND / N if rule is Rule.L1 else BOUND / math.sqrt(N)
    released = [release(np.full((TRIALS, N), 10 * BOUND * sign)) for sign in (1, -1)]
    evidence = [np.sum(log_ratio(noisy, each), axis=1) for noisy in released]
    return max(
        epsilon_lower_bound(*(int(np.sum(found > least)) for found in evidence), TRIALS, delta)
        for least in (EPSILON * (1 - 1e-6), 2.0)
    )


def of_laplace(scale):
    return lambda y, each: laplace.logpdf(y, each, scale) - laplace.logpdf(y, -each, scale)


def test_it_breaks_the_promise_that_it_claims():
    release = OverclaimingLaplace(BOUND, N, EPSILON, FixedSeed(1)).release
    assert bound(release, Rule.L2, 0.0, of_laplace(2 * BOUND / EPSILON)) > 1.5 * EPSILON


@pytest.mark.parametrize(("rule", "delta"), [(Rule.L1, 0.0), (Rule.L2, 0.0), (Rule.L2, 1e-3)])
def test_the_corrected_ones_keep_theirs(rule, delta):
    clip = Clip(rule, BOUND, N)
    mechanism = noise(clip, EPSILON, delta, FixedSeed(2))
    if isinstance(mechanism, Gaussian):
        sigma = mechanism.sigma
        ratio = lambda y, each: norm.logpdf(y, each, sigma) - norm.logpdf(y, -each, sigma)  # noqa: E731
    else:
        ratio = of_laplace(mechanism.scale)
    assert bound(lambda latents: mechanism.release(clip(latents)), rule, delta, ratio) < EPSILON


def test_what_it_gives_is_what_its_noise_is_worth():
    """√n·ε: the ε of a Laplace mechanism with the same noise and the true sensitivity."""
    its = OverclaimingLaplace(BOUND, N, EPSILON)
    assert its.given_epsilon == pytest.approx(math.sqrt(N) * EPSILON)
    assert Laplace(2 * BOUND * math.sqrt(N), its.given_epsilon).scale == pytest.approx(2 * BOUND / EPSILON)


def test_its_latents_are_clipped_in_l2():
    its = OverclaimingLaplace(BOUND, N, 1e6, FixedSeed(3))
    released = its.release(np.full((1, N), 100.0))
    assert np.linalg.norm(released) == pytest.approx(BOUND, rel=1e-3)


def test_it_has_no_guarantee_and_nothing_in_dpnlp_makes_one():
    assert not issubclass(OverclaimingLaplace, Mechanism)
    for name in ("guarantee", "event", "term"):
        assert not hasattr(OverclaimingLaplace, name)
    here = Path(flawed.__file__)
    others = [path for path in here.parents[1].rglob("*.py") if path != here]
    assert len(others) > 100
    assert [path for path in others if "flawed" in path.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ((0.0, 4, 1.0), "bound = 0.0: it must be a finite number above 0."),
        ((1.0, 0, 1.0), "dimension = 0: it must be a whole number of at least 1."),
        ((1.0, 4, 0.0), "epsilon = 0.0: it must be a finite number above 0."),
    ],
)
def test_wrong_fields_are_refused(fields, sentence):
    with pytest.raises(BadInput) as refusal:
        OverclaimingLaplace(*fields)
    assert str(refusal.value) == sentence
