"""Rényi accounting and the moments accountant, against closed forms and numerical integration."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from dpnlp.accounting import pld, rdp
from dpnlp.checks import BadInput
from dpnlp.events import (
    ApproximateDP,
    Composed,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
    TruncatedPoissonSampled,
)
from dpnlp.guarantee import Adjacency

ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE


def test_moments_of_a_gaussian_in_closed_form():
    """RDP(α) = α/2z², so ε = min over integer α of kα/2z² + ln(1/δ)/(α − 1)."""
    k, z, delta = 50, 6.0, 1e-5
    expected = min(k * a / (2 * z * z) + math.log(1 / delta) / (a - 1) for a in rdp.MOMENTS)
    assert rdp.moments_epsilon(Repeated(Gaussian(z), k), delta, ADD) == pytest.approx(expected)


def test_the_smallest_moment_decides_where_epsilon_is_large():
    assert rdp.moments_epsilon(Gaussian(0.3), 0.1, ADD) == pytest.approx(2 / (2 * 0.3**2) + math.log(10))


@pytest.mark.parametrize("noise", [Gaussian(2.0), Laplace(2.0), ApproximateDP(0.5, 1e-6)])
@pytest.mark.parametrize("accountant", [rdp.epsilon, rdp.moments_epsilon, pld.epsilon])
def test_a_blanked_record_costs_what_a_removed_one_does_in_a_poisson_lot(noise, accountant):
    event = Repeated(PoissonSampled(0.1, noise), 20)
    assert accountant(event, 1e-4, Adjacency.ZERO_OUT) == accountant(event, 1e-4, ADD) > 0


@pytest.mark.parametrize(("q", "z", "order"), [(0.01, 4.0, 20), (0.3, 1.0, 3), (0.05, 0.8, 2)])
def test_sampled_gaussian_moment_by_integration(q, z, order):
    """Abadi et al. 2016, Eqn 4: the α-th moment of the mixture's density ratio under N(0, z²)."""
    t = np.linspace(-15 * z, 15 * z + order, 400_001)
    ratio = 1 - q + q * np.exp((2 * t - 1) / (2 * z * z))
    expected = math.log(np.trapezoid(ratio**order * norm.pdf(t, 0, z), t)) / (order - 1)
    assert rdp._of_atom(PoissonSampled(q, Gaussian(z)), ADD, [order])[0][0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("categories", [2, 7])
def test_randomized_response_by_its_definition(categories):
    e, order = 1.3, 4.0
    true = math.exp(e) / (math.exp(e) + categories - 1)
    wrong = (1 - true) / (categories - 1)
    moment = true**order * wrong ** (1 - order) + wrong**order * true ** (1 - order) + (categories - 2) * wrong
    expected = math.log(moment) / (order - 1)
    assert rdp._of_atom(RandomizedResponse(e, categories), REPLACE, [order])[0][0] == pytest.approx(expected)


@pytest.mark.parametrize("accountant", [rdp.epsilon, rdp.moments_epsilon])
@pytest.mark.parametrize(
    ("event", "adjacency"),
    [
        (Repeated(Gaussian(3.0), 40), ADD),
        (Repeated(Gaussian(3.0), 40), REPLACE),
        (Repeated(Laplace(4.0), 40), ADD),
        (Repeated(Laplace(4.0), 40), REPLACE),
        (Repeated(RandomizedResponse(0.4, 3), 40), REPLACE),
        (Repeated(ApproximateDP(0.2, 1e-9), 40), ADD),
        (Repeated(PoissonSampled(0.05, Gaussian(1.0)), 40), ADD),
        (Repeated(PoissonSampled(0.05, Laplace(1.0)), 40), ADD),
        (Repeated(PoissonSampled(0.05, ApproximateDP(1.0, 1e-9)), 40), ADD),
        (Repeated(FixedSizeSampled(1000, 20, Gaussian(2.0)), 40), REPLACE),
        (Composed((Gaussian(3.0), Laplace(4.0), ApproximateDP(0.5, 1e-8))), ADD),
    ],
)
def test_never_below_pld(event, adjacency, accountant):
    exact = pld.epsilon(event, 1e-5, adjacency)
    assert exact <= accountant(event, 1e-5, adjacency) * (1 + 1e-4)
    assert accountant(event, 1e-5, adjacency) < 4 * exact + 1


@pytest.mark.parametrize("accountant", [rdp.epsilon, rdp.moments_epsilon])
@pytest.mark.parametrize("z", [0.4, 0.7, 1.0, 3.0])
def test_sampled_laplace_noise_is_amplified_as_any_pure_bound_is(z, accountant):
    """ε = 1/z becomes ln(1 + q(e^ε − 1)) (Li, Qardaji and Su 2012)."""
    amplified = ApproximateDP(math.log1p(0.05 * math.expm1(1 / z)))
    sampled = accountant(Repeated(PoissonSampled(0.05, Laplace(z)), 40), 1e-5, ADD)
    assert sampled == pytest.approx(accountant(Repeated(amplified, 40), 1e-5, ADD), rel=1e-9)


def test_the_moments_accountant_is_never_below_rdp():
    event = Repeated(PoissonSampled(0.01, Gaussian(4.0)), 10_000)
    assert rdp.epsilon(event, 1e-5, ADD) < rdp.moments_epsilon(event, 1e-5, ADD)


def test_what_is_lost_with_certainty_or_with_too_much_probability():
    assert rdp.epsilon(NonPrivate(), 1e-5, ADD) == math.inf
    assert rdp.epsilon(ApproximateDP(0.1, 1e-4), 1e-5, ADD) == math.inf
    assert rdp.epsilon(ApproximateDP(900.0), 1e-5, ADD) == pytest.approx(900, rel=1e-4)


@pytest.mark.parametrize(
    ("event", "adjacency", "remedy"),
    [
        (PoissonSampled(0.1, Gaussian(1.0)), REPLACE, "use the pld accountant"),
        (TruncatedPoissonSampled(100, 0.1, 20, Gaussian(1.0)), ADD, "use the pld accountant"),
        (FixedSizeSampled(100, 10, Gaussian(1.0)), ADD, "choose another adjacency or sampler"),
        (RandomizedResponse(1.0), ADD, "choose another adjacency or sampler"),
    ],
)
def test_law_1_no_bound_no_epsilon(event, adjacency, remedy):
    with pytest.raises(BadInput, match=f"rdp knows no bound for .* so no ε is given; {remedy}"):
        rdp.epsilon(event, 1e-5, adjacency)


def test_nothing_is_printed_where_an_order_does_not_converge(capfd):
    rdp.epsilon(Repeated(PoissonSampled(0.09, Gaussian(0.5)), 200), 1e-8, ADD)
    assert capfd.readouterr() == ("", "")
