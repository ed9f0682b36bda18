"""The PLD accountant against closed forms, brute force and dp-accounting's own."""

import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as dp_pld
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom, norm

from dpnlp.accounting import pld, profiles, rdp
from dpnlp.accounting.subsampling import Sampling, Schedule
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

ADD, ZERO, REPLACE = Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT, Adjacency.REPLACE
RELATION = {
    ADD: dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
    ZERO: dp_accounting.NeighboringRelation.REPLACE_SPECIAL,
    REPLACE: dp_accounting.NeighboringRelation.REPLACE_ONE,
}


def library(event, count, delta, adjacency=ADD, grid=1e-4):
    accountant = PLDAccountant(RELATION[adjacency], grid)
    return accountant.compose(event, count).get_epsilon(delta)


@pytest.mark.parametrize(
    ("q", "z", "steps", "delta"),
    [(0.01, 4.0, 10_000, 1e-5), (2048 / 22051, 2.0, 275, 1e-8), (0.3, 0.7, 20, 1e-6), (0.5, 8.0, 1, 1e-3)],
)
@pytest.mark.parametrize("adjacency", Adjacency)
def test_poisson_sampled_gaussian_agrees_with_dp_accounting(q, z, steps, delta, adjacency):
    event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z))
    ours = pld.epsilon(Repeated(PoissonSampled(q, Gaussian(z)), steps), delta, adjacency)
    assert ours == pytest.approx(library(event, steps, delta, adjacency), rel=3e-4)


@pytest.mark.parametrize(("largest_lot", "adjacency"), [(2048, ADD), (2200, ADD), (2200, REPLACE), (3000, ZERO)])
def test_truncated_poisson_agrees_with_dp_accounting(largest_lot, adjacency):
    q = 2048 / 22051
    records = 22052 if adjacency is ADD else 22051  # one more may come
    theirs = dp_accounting.dp_event.TruncatedSubsampledGaussianDpEvent(records, q, largest_lot, 2.0)
    event = TruncatedPoissonSampled(22051, q, largest_lot, Gaussian(2.0))
    ours = pld.epsilon(Repeated(event, 50), 1e-7, adjacency)
    assert ours == pytest.approx(library(theirs, 50, 1e-7, adjacency, 1e-3), rel=1e-3)


@pytest.mark.parametrize("lot_size", [12, 11, 9])
def test_a_record_more_is_covered_where_its_lots_are_cut(lot_size):
    """Records of −1 and one more of +1, summed up with noise; a lot of all of them and of that one is cut."""
    records, z, delta = 12, 4.0, 1e-6
    schedule = Schedule(records, lot_size, 1, Sampling.TRUNCATED_POISSON)
    q, cap, sums = schedule.q, schedule.cap, {}
    for others in range(records + 1):
        chance = binom.pmf(others, records, q)
        taken = q * min(1, cap / (others + 1))
        for sum_of_lot, share in (
            (1 - min(others, cap - 1), taken),
            (-min(others + 1, cap), q - taken),
            (-others, 1 - q),
        ):
            sums[sum_of_lot] = sums.get(sum_of_lot, 0) + chance * share
    x = np.linspace(-records - 60, 60, 400_001)
    more = sum(chance * norm.pdf(x, mean, z) for mean, chance in sums.items())
    less = sum(binom.pmf(k, records, q) * norm.pdf(x, -k, z) for k in range(records + 1))
    stated = math.exp(pld.epsilon(schedule.event(z), delta, ADD))
    for first, second in ((more, less), (less, more)):
        assert np.trapezoid(np.maximum(first - stated * second, 0), x) <= delta


@pytest.mark.parametrize("steps", [1, 30, 1000])
def test_laplace_agrees_with_dp_accounting(steps):
    ours = pld.epsilon(Repeated(Laplace(5.0), steps), 1e-6, ADD)
    assert ours == pytest.approx(library(dp_accounting.LaplaceDpEvent(5.0), steps, 1e-6), rel=5e-4)
    # Under replace the distance doubles, which is half the noise.
    assert pld.epsilon(Repeated(Laplace(10.0), steps), 1e-6, REPLACE) == pytest.approx(ours, rel=1e-9)


def test_sampled_laplace_agrees_with_dp_accounting():
    ours = pld.epsilon(Repeated(PoissonSampled(0.02, Laplace(1.0)), 500), 1e-6, ADD)
    theirs = dp_accounting.PoissonSampledDpEvent(0.02, dp_accounting.LaplaceDpEvent(1.0))
    assert ours == pytest.approx(library(theirs, 500, 1e-6), rel=1e-3)


@pytest.mark.parametrize(("categories", "count"), [(2, 1), (2, 50), (5, 50), (100, 10)])
def test_repeated_randomized_response_is_brute_force(categories, count):
    """Losses ε, 0, −ε: the composed loss is ε(a − b) with multinomial weights, summed here without any grid."""
    e, delta = 0.8, 1e-5
    true = 1 / (1 + (categories - 1) * math.exp(-e))
    wrong = true * math.exp(-e)
    one = np.array([wrong, (categories - 2) * wrong, true])
    total = np.ones(1)
    for _ in range(count):
        total = np.convolve(total, one)
    losses = e * np.arange(-count, count + 1)

    def excess(x):
        return float(np.sum(total * np.maximum(0, -np.expm1(x - losses))))

    ours = pld.epsilon(Repeated(RandomizedResponse(e, categories), count), delta, REPLACE)
    assert excess(ours) <= delta
    assert excess(ours - 2e-4 * max(ours, 1)) > delta


def responses(parts):
    """All losses of some randomized responses (ε, categories, times), and their probabilities, without any grid."""
    losses, masses = np.zeros(1), np.ones(1)
    for e, categories, times in parts:
        true = 1 / (1 + (categories - 1) * math.exp(-e))
        one = np.array([true * math.exp(-e), 1 - true - true * math.exp(-e), true])
        together = np.ones(1)
        for _ in range(times):
            together = np.convolve(together, one)
        losses = np.add.outer(losses, e * np.arange(-times, times + 1)).ravel()
        masses = np.outer(masses, together).ravel()
    order = np.argsort(losses)
    return losses[order], masses[order]


def assert_is_brute_force(parts, delta):
    losses, masses = responses(parts)

    def excess(x):
        return float(np.sum(masses * np.maximum(0, -np.expm1(np.minimum(x - losses, 0)))))

    exact = brentq(lambda x: excess(x) - delta, 0, losses[-1], xtol=1e-12) if excess(0) > delta else 0.0
    event = Composed(tuple(Repeated(RandomizedResponse(e, categories), times) for e, categories, times in parts))
    assert exact - 1e-9 <= pld.epsilon(event, delta, REPLACE) <= exact + 0.01 * max(exact, 0.1)


RESPONSES = st.tuples(st.floats(1e-3, 4), st.sampled_from([2, 3, 10, 100]), st.integers(1, 30))


@settings(max_examples=150)
@given(parts=st.lists(RESPONSES, min_size=1, max_size=2), place=st.floats(0, 1), below=st.floats(0.3, 6))
def test_few_possible_losses_are_brute_force_where_delta_lies_just_below_a_probability(parts, place, below):
    """Between the probabilities that the loss is at least one value and at least the next, one mass decides."""
    _, masses = responses(parts)
    tails = np.cumsum(masses[::-1])
    tails = tails[(tails > 1e-14) & (tails < 0.9)]
    assume(len(tails))
    assert_is_brute_force(parts, float(tails[int(place * (len(tails) - 1))]) * (1 - 10**-below))


@pytest.mark.parametrize(
    ("parts", "delta"),
    [
        ([(0.9026132679148062, 2, 9)], 0.04438355848909077),
        ([(0.4978082554072694, 2, 29)], 1e-6),
        ([(1.6915076034344132, 10, 2)], 0.13968933590726426),
        ([(0.0029, 10, 1), (1.8, 2, 3)], 0.6318380716242081),
        ([(0.0051, 10, 3), (0.225, 1000, 1)], 1.7366e-4),
        ([(0.00227, 100, 32), (0.1496, 3, 5)], 5.5387e-3),
        ([(2.99, 2, 5), (9.22, 2, 5)], 0.7824),
    ],
)
def test_losses_of_which_one_is_large_and_one_is_small_are_brute_force(parts, delta):
    """The tilt that makes a mass at the end likely enough would hide the one below it, which decides."""
    assert_is_brute_force(parts, delta)


@pytest.mark.parametrize(("e", "categories", "count", "delta"), [(0.655, 3, 3, 8.6e-4), (0.063, 2, 8, 1e-4)])
def test_a_largest_loss_that_is_likelier_than_delta(e, categories, count, delta):
    """Then ε lies just below count·e, where only the largest loss counts: δ = P(largest)(1 − e^{ε − count·e})."""
    largest = (1 + (categories - 1) * math.exp(-e)) ** -count
    expected = count * e + math.log1p(-delta / largest)
    ours = pld.epsilon(Repeated(RandomizedResponse(e, categories), count), delta, REPLACE)
    assert ours == pytest.approx(expected, rel=1e-4)


def test_a_bounded_loss_has_no_infinite_one():
    """Rounding must not leave a sliver of infinite loss, which would count against a tiny δ five thousand times."""
    event = Repeated(PoissonSampled(0.3, Laplace(2.63)), 5002)
    assert math.isfinite(pld.epsilon(event, 1e-14, ADD))


@pytest.mark.parametrize(
    ("event", "adjacency"),
    [
        (Repeated(RandomizedResponse(14.8), 100_000), REPLACE),
        (Composed((Repeated(PoissonSampled(3e-5, Gaussian(0.19)), 8598), Gaussian(2.2))), ADD),
        (Composed((Repeated(TruncatedPoissonSampled(100_000, 5e-5, 11, Gaussian(1.8)), 51_787), Gaussian(8.8))), ADD),
    ],
)
def test_extremes_take_neither_minutes_nor_gigabytes(event, adjacency):
    assert math.isfinite(pld.epsilon(event, 1e-6, adjacency))


def test_dp_accounting_ignores_the_count_of_randomized_response():
    """The reason why repeated randomized response is not left to dp-accounting."""
    theirs = dp_accounting.RandomizedResponseDpEvent(0.5, 2)
    assert library(theirs, 50, 1e-5, REPLACE) == library(theirs, 1, 1e-5, REPLACE)


@pytest.mark.parametrize(("z", "delta"), [(2.4e13, 3.6e-101), (6.4e12, 2.6e-300), (5.2e11, 5.6e-222), (1e12, 1e-13)])
def test_delta_holds_where_there_is_hardly_any_privacy_loss(z, delta):
    """There a difference of two probabilities has no digits left."""
    with mpmath.workdps(400):
        a, b = 1 / mpmath.mpf(2 * z), mpmath.mpf(pld.epsilon(Gaussian(z), delta, Adjacency.ADD_REMOVE)) * z
        assert mpmath.ncdf(a - b) - mpmath.exp(b / z) * mpmath.ncdf(-a - b) <= delta


@pytest.mark.parametrize("steps", [1, 100, 10_000, 1_000_000])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10, 1e-14])
def test_many_steps_and_a_small_delta_stay_on_the_safe_side(steps, delta):
    """A million Gaussians, convolved one grid step at a time, are one Gaussian, whose ε is known in closed form."""
    exact = dp_accounting.get_epsilon_gaussian(0.5, delta)
    profile = profiles.gaussian(2 / math.sqrt(steps), math.sqrt(2 * (math.log(steps / delta) + 20)))
    step = pld._grid_step([(profile, steps)])
    ours = pld.compose([(profile.losses(step), steps)], delta).epsilon(delta)
    assert exact <= ours * (1 + 1e-9) <= exact * (1 + 5e-4)


@settings(max_examples=30)
@given(
    q=st.floats(1e-4, 0.9),
    z=st.floats(0.3, 20),
    x=st.floats(0.0, 5.0),
    replace=st.booleans(),
)
def test_profiles_of_sampled_gaussians_are_integrals(q, z, x, replace):
    """The closed forms against numerical integration of [P − e^x Q]₊, in both directions."""
    profile = (
        profiles.poisson_sampled_gaussian_replace(z, q, 10)
        if replace
        else profiles.poisson_sampled(profiles.gaussian(1 / z, 10), q)
    )

    def p(t):
        return (1 - q) * norm.pdf(t, 0, z) + q * norm.pdf(t, 1, z)

    def other(t):
        return (1 - q) * norm.pdf(t, 0, z) + q * norm.pdf(t, -1, z) if replace else norm.pdf(t, 0, z)

    points = np.linspace(-12 * z - 1, 12 * z + 1, 200_001)
    for divergence, first, second in ((profile.above, p, other), (profile.below, other, p)):
        expected = np.trapezoid(np.maximum(first(points) - math.exp(x) * second(points), 0), points)
        assert divergence(np.array([x]))[0] == pytest.approx(expected, rel=1e-3, abs=1e-9)


@settings(max_examples=20)
@given(share=st.floats(0.001, 1.0), z=st.floats(0.5, 10), x=st.floats(0.0, 3.0))
def test_fixed_size_profile_is_the_amplified_one(share, z, x):
    """Balle, Barthe and Gaboardi 2018, Theorem 9, applied point by point to the Gaussian under replace."""
    base = profiles.gaussian(2 / z, 10)
    sampled = profiles.fixed_size_sampled(base, share)
    amplified = math.log1p(share * math.expm1(x))
    expected = share * base.above(np.array([x]))[0]
    assert sampled.above(np.array([amplified]))[0] == pytest.approx(expected, rel=1e-6, abs=1e-300)


def test_fixed_size_lies_between_poisson_and_renyi():
    """Under replace, a fixed size costs more than Poisson sampling and less than Wang et al.'s Rényi bound says."""
    poisson = pld.epsilon(Repeated(PoissonSampled(0.01, Gaussian(4.0)), 1000), 1e-5, REPLACE)
    event = Repeated(FixedSizeSampled(60_000, 600, Gaussian(4.0)), 1000)
    fixed = pld.epsilon(event, 1e-5, REPLACE)
    assert poisson < fixed < rdp.epsilon(event, 1e-5, REPLACE)
    assert pld.epsilon(Repeated(FixedSizeSampled(50, 50, Gaussian(4.0)), 9), 1e-5, REPLACE) == pytest.approx(
        pld.epsilon(Repeated(Gaussian(4.0), 9), 1e-5, REPLACE), rel=1e-3
    )


def test_fixed_size_monte_carlo_is_below_the_bound():
    """A real fixed-size sampler on the worst neighbours: no threshold test may show more than the claimed (ε, δ)."""
    rng = np.random.default_rng(1)
    records, lot, z, delta, n = 10, 3, 1.0, 0.05, 400_000
    epsilon = pld.epsilon(FixedSizeSampled(records, lot, Gaussian(z)), delta, REPLACE)
    drawn = rng.random(n) < lot / records
    noise = rng.normal(0, z, n)
    # All others contribute −1: with the record in, the sum is higher by 2, and its neighbour differs by 2C.
    first = np.where(drawn, -lot + 2.0, -lot) + noise
    second = np.full(n, -float(lot)) + rng.normal(0, z, n)
    for threshold in np.linspace(-lot, -lot + 5, 26):
        for p, q in ((first > threshold, second > threshold), (second < threshold, first < threshold)):
            slack = 5 * math.sqrt(0.25 / n) * (1 + math.exp(epsilon))
            assert p.mean() <= math.exp(epsilon) * q.mean() + delta + slack


@pytest.mark.parametrize("e", [0.01, 0.5, 3.0, 25.0, 800.0])
@pytest.mark.parametrize("failure", [0.0, 1e-8])
def test_a_single_approximate_release_is_what_it_says(e, failure):
    ours = pld.epsilon(ApproximateDP(e, failure), 1e-6, ADD)
    assert ours <= e * (1 + 1e-9)
    assert ours == pytest.approx(e, abs=1e-5)
    assert pld.epsilon(ApproximateDP(e, 1e-5), 1e-6, ADD) == math.inf


def test_approximate_releases_compose_as_kairouz_oh_and_viswanath_have_it():
    """Their Theorem 3.3 for k equal (ε, δ): a maximum over i of Σ binomials, evaluated here directly."""
    e, failure, k, delta = 0.2, 1e-9, 30, 1e-6
    ours = pld.epsilon(Repeated(ApproximateDP(e, failure), k), delta, ADD)

    def total_delta(i):
        terms = (
            sum(math.comb(k, m) * (math.exp((k - m) * e) - math.exp((k - 2 * i + m) * e)) for m in range(i))
            / (1 + math.exp(e)) ** k
        )
        return 1 - (1 - failure) ** k * (1 - terms)

    exact = min((k - 2 * i) * e for i in range(k // 2 + 1) if total_delta(i) <= delta)
    # Their ε are multiples of e; between two of them ours interpolates.
    assert exact - 2 * e <= ours <= exact * (1 + 1e-6)


def test_releases_of_different_kinds_compose_below_their_sum():
    parts = (
        Repeated(Laplace(10.0), 100),
        Repeated(PoissonSampled(0.01, Gaussian(4.0)), 1000),
        ApproximateDP(0.3, 1e-9),
        Gaussian(5.0),
    )
    together = pld.epsilon(Composed(parts), 1e-5, ADD)
    assert max(pld.epsilon(part, 1e-5, ADD) for part in parts) < together
    assert together < sum(pld.epsilon(part, 1e-5, ADD) for part in parts)
    theirs = PLDAccountant(RELATION[ADD], 1e-4)
    theirs.compose(dp_accounting.LaplaceDpEvent(10.0), 100)
    theirs.compose(dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(4.0)), 1000)
    theirs.compose(dp_accounting.GaussianDpEvent(5.0), 1)
    approximate = dp_pld.from_privacy_parameters(dp_pld.common.DifferentialPrivacyParameters(0.3, 1e-9), 1e-4)
    oracle = theirs._pld.compose(approximate).get_epsilon_for_delta(1e-5)
    assert together == pytest.approx(oracle, rel=1e-3)


@settings(max_examples=12)
@given(q=st.floats(0.001, 1.0), z=st.floats(0.5, 10), steps=st.integers(1, 300), delta=st.floats(1e-9, 1e-2))
def test_epsilon_grows_with_sampling_and_steps_and_falls_with_noise(q, z, steps, delta):
    def cost(q, z, steps):
        return pld.epsilon(Repeated(PoissonSampled(q, Gaussian(z)), steps), delta, ADD)

    slack = 1e-3
    here = cost(q, z, steps)
    assert cost(q, 1.2 * z, steps) <= here * (1 + slack) + 1e-6
    assert here <= cost(q, z, 2 * steps) * (1 + slack) + 1e-6
    assert cost(q / 2, z, steps) <= here * (1 + slack) + 1e-6
    assert here <= rdp.epsilon(Repeated(PoissonSampled(q, Gaussian(z)), steps), delta, ADD) * (1 + slack) + 1e-6


def test_nothing_promised_is_infinite():
    assert pld.epsilon(Composed((Gaussian(1.0), NonPrivate())), 1e-5, ADD) == math.inf
    assert pld.epsilon(Composed(()), 1e-5, ADD) == 0


@pytest.mark.parametrize(
    ("event", "adjacency"),
    [
        (RandomizedResponse(1.0), ADD),
        (RandomizedResponse(500.0), ADD),
        (FixedSizeSampled(100, 10, Gaussian(1.0)), ADD),
        (PoissonSampled(0.1, Laplace(1.0)), REPLACE),
    ],
)
def test_law_1_no_bound_no_epsilon(event, adjacency):
    with pytest.raises(BadInput, match=f"pld knows no bound for .* under {adjacency}, so no ε is given"):
        pld.epsilon(event, 1e-5, adjacency)


def test_double_integral_of_the_composed_profile():
    """Two Poisson-sampled releases: δ(ε) by a double integral over both outputs, against the convolution."""
    q, z, x = 0.3, 1.5, 0.4
    t = np.linspace(-9 * z, 9 * z + 1, 3001)
    density = norm.pdf(t, 0, z)
    ratio = 1 - q + q * np.exp((2 * t - 1) / (2 * z * z))
    excess = np.maximum(np.outer(ratio, ratio) - math.exp(x), 0)
    exact = np.trapezoid(np.trapezoid(excess * density, t, axis=1) * density, t)
    losses = pld._compose({PoissonSampled(q, Gaussian(z)): 2}, exact, ADD)[0]
    assert losses.delta(np.array([x]))[0] == pytest.approx(exact, rel=1e-4)
