"""PLD against other groups' accountants: the PRV accountant (Microsoft) and autodp."""

import math

import pytest

from dpnlp.accounting import pld, rdp
from dpnlp.events import Gaussian, Laplace, PoissonSampled, Repeated
from dpnlp.guarantee import Adjacency

ADD = Adjacency.ADD_REMOVE


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("q", "z", "steps", "delta"), [(0.0929, 2.0, 275, 1e-8), (0.01, 1.0, 1000, 1e-5)])
def test_the_prv_accountant_brackets_our_epsilon(q, z, steps, delta):
    prv = pytest.importorskip("prv_accountant", reason="prv-accountant is not installed")
    variables = pytest.importorskip("prv_accountant.privacy_random_variables")
    mechanism = variables.PoissonSubsampledGaussianMechanism(noise_multiplier=z, sampling_probability=q)
    accountant = prv.PRVAccountant([mechanism], max_self_compositions=[steps], eps_error=0.01, delta_error=delta / 1e3)
    low, _, high = accountant.compute_epsilon(delta=delta, num_self_compositions=[steps])
    assert low <= pld.epsilon(Repeated(PoissonSampled(q, Gaussian(z)), steps), delta, ADD) <= high


@pytest.mark.filterwarnings("ignore")
def test_autodp_has_the_same_gaussian_and_a_looser_laplace():
    zoo = pytest.importorskip("autodp.mechanism_zoo", reason="autodp is not installed")
    theirs = zoo.GaussianMechanism(sigma=2.0).get_approxDP(1e-6)
    assert pld.epsilon(Gaussian(2.0), 1e-6, ADD) == pytest.approx(theirs, rel=1e-4)
    composed = pytest.importorskip("autodp.transformer_zoo").Composition()([zoo.LaplaceMechanism(b=5.0)], [100])
    bound = composed.get_approxDP(1e-6)
    ours = pld.epsilon(Repeated(Laplace(5.0), 100), 1e-6, ADD)
    assert ours <= bound * (1 + 1e-6)
    assert bound == pytest.approx(rdp.epsilon(Repeated(Laplace(5.0), 100), 1e-6, ADD), rel=0.1)
    assert math.isfinite(bound)
