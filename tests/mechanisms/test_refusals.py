"""What cannot be used is refused in one sentence that names the field, its value and what is allowed."""

import math
import re
from collections.abc import Callable

import numpy as np
import pytest

from dpnlp.checks import BadInput
from dpnlp.guarantee import Adjacency
from dpnlp.mechanisms import (
    Exponential,
    Gaussian,
    Laplace,
    RandomizedResponse,
    analytic_epsilon,
    analytic_sigma,
    classical_sigma,
)
from dpnlp.mechanisms.sensitivity import (
    Contribution,
    Sensitivity,
    clip_by_norm,
    clip_by_value,
    of_histogram,
    of_mean,
    of_range,
)

NOT_POSITIVE = [0, 0.0, -1, -1e-300, math.nan, math.inf, -math.inf, True, "1", None]
NOT_PROBABLE = [0, 1, -0.1, 1.5, math.nan, math.inf, True, "0.5", None]
POSITIVE = "it must be a finite number above 0"
PROBABLE = "it must lie strictly between 0 and 1"


def refused(message: str, call: Callable[[], object]) -> None:
    with pytest.raises(BadInput, match=message) as refusal:
        call()
    assert str(refusal.value).endswith(".")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("wrong", NOT_POSITIVE)
def test_a_sensitivity_is_positive(wrong: float) -> None:
    shown = re.escape(repr(wrong) if isinstance(wrong, str) else str(wrong))
    message = f"^sensitivity = {shown}: {POSITIVE}"
    refused(f"{message}; the ℓ1 distance between the answers on two neighbours", lambda: Laplace(wrong, 1.0))
    refused(f"{message}; the ℓ2 distance between the answers on two neighbours", lambda: Gaussian(wrong, 1.0, 1e-5))
    refused(f"{message}; the most that one record can change a score by", lambda: Exponential(wrong, 1.0))
    refused(f"{message}; the ℓ2 distance", lambda: analytic_sigma(1.0, 1e-5, wrong))
    refused(f"{message}; the ℓ2 distance", lambda: classical_sigma(0.5, 1e-5, wrong))
    refused(message, lambda: analytic_epsilon(1.0, 1e-5, wrong))


@pytest.mark.parametrize("wrong", NOT_POSITIVE)
def test_epsilon_is_positive(wrong: float) -> None:
    for call in (
        lambda: Laplace(1.0, wrong),
        lambda: Gaussian(1.0, wrong, 1e-5),
        lambda: Exponential(1.0, wrong),
        lambda: RandomizedResponse(wrong),
        lambda: analytic_sigma(wrong, 1e-5, 1.0),
        lambda: classical_sigma(wrong, 1e-5, 1.0),
    ):
        refused(f"^epsilon = .*: {POSITIVE}", call)


@pytest.mark.parametrize("wrong", NOT_PROBABLE)
def test_delta_is_a_probability(wrong: float) -> None:
    for call in (
        lambda: Gaussian(1.0, 1.0, wrong),
        lambda: analytic_sigma(1.0, wrong, 1.0),
        lambda: analytic_epsilon(1.0, wrong, 1.0),
        lambda: classical_sigma(0.5, wrong, 1.0),
    ):
        refused(f"^delta = .*: {PROBABLE}", call)


@pytest.mark.parametrize("wrong", NOT_POSITIVE)
def test_sigma_and_bounds_are_positive(wrong: float) -> None:
    refused(f"^sigma = .*: {POSITIVE}", lambda: analytic_epsilon(wrong, 1e-5, 1.0))
    for call in (
        lambda: clip_by_norm([1.0], wrong),
        lambda: clip_by_value([1.0], wrong),
        lambda: Contribution.clipped_by_norm(wrong, 3, 2),
        lambda: Contribution.clipped_by_value(wrong, 3),
    ):
        refused(f"^bound = .*: {POSITIVE}", call)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, math.nan, math.inf, True, "2"])
def test_counts_are_whole_and_positive(wrong: float) -> None:
    total = Sensitivity(1.0, 1.0)
    for name, call in (
        ("dimension", lambda: Contribution.clipped_by_norm(1.0, wrong, 2)),
        ("dimension", lambda: Contribution.clipped_by_value(1.0, wrong)),
        ("bins", lambda: Contribution.counted(wrong)),
        ("bins", lambda: of_histogram(Adjacency.REPLACE, wrong)),
        ("records", lambda: of_mean(total, wrong, Adjacency.REPLACE)),
        ("people", lambda: RandomizedResponse(1.0).estimate_from_counts(0, wrong)),
    ):
        refused(f"^{name} = .*: it must be a whole number of at least 1", call)


@pytest.mark.parametrize("release", [Laplace(1.0, 1.0).release, Gaussian(1.0, 1.0, 1e-5).release])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, [0.0, math.nan]])
def test_answers_are_finite(release: Callable, wrong: float) -> None:
    refused("^value: it has entries that are NaN or infinite; an answer must be finite", lambda: release(wrong))


@pytest.mark.parametrize("mechanism", [Laplace(1e300, 1e-5), Laplace(1e-300, 1.0), Gaussian(1e-300, 1.0, 1e-5)])
def test_noise_has_a_grid(mechanism: Laplace | Gaussian) -> None:
    refused("^scale = .*: noise of this size cannot be put on a grid; rescale the answer", lambda: mechanism.release(0))


def test_noise_is_not_too_many_steps() -> None:
    refused("^scale = .* grid steps: it must be at most", lambda: Laplace(1.0, 1e-18).release(0.0))


@pytest.mark.parametrize("wrong", [[], [math.nan, 1.0], [math.inf], [0.0, -math.inf]])
def test_scores_are_finite_and_there_are_some(wrong: list[float]) -> None:
    message = "^scores: there must be at least one, and all must be finite numbers"
    refused(message, lambda: Exponential(1.0, 1.0).choose(wrong))
    refused(message, lambda: Exponential(1.0, 1.0).noisy_max(wrong))


@pytest.mark.parametrize("wrong", [0.9e-5, 1.1e5])
def test_a_choice_needs_a_moderate_epsilon(wrong: float) -> None:
    refused(f"^epsilon = {wrong}: it must lie between 1e-5 and 1e5 for a choice", lambda: Exponential(1.0, wrong))


@pytest.mark.parametrize("wrong", [0.5, 0.3, 1e-300])
def test_theta_is_above_one_half(wrong: float) -> None:
    message = f"^theta = {wrong}: it must lie strictly between 0.5, pure chance, and 1, the plain truth"
    refused(message, lambda: RandomizedResponse.from_theta(wrong))


@pytest.mark.parametrize("wrong", NOT_PROBABLE)
def test_theta_and_confidence_are_probabilities(wrong: float) -> None:
    refused(f"^theta = .*: {PROBABLE}", lambda: RandomizedResponse.from_theta(wrong))
    refused(f"^confidence = .*: {PROBABLE}", lambda: RandomizedResponse(1.0).estimate([1], confidence=wrong))


@pytest.mark.parametrize("wrong", [0, 0.5, -0.1, 0.75, math.nan])
def test_gamma_is_below_one_half(wrong: float) -> None:
    message = f"^gamma = {wrong}: it must lie strictly between 0, pure chance, and 0.5, the plain truth"
    refused(message, lambda: RandomizedResponse.from_gamma(wrong))


def test_gamma_is_for_two_categories() -> None:
    refused("^categories = 3: γ is defined for two of them", lambda: RandomizedResponse(1.0, 3).gamma)


@pytest.mark.parametrize("wrong", [1, 0, -2, 2.5, math.nan, math.inf, "3"])
def test_there_are_two_categories_at_least(wrong: float) -> None:
    refused("^categories = .*: it must be a whole number of at least 2", lambda: RandomizedResponse(1.0, wrong))


@pytest.mark.parametrize("wrong", [[3], [-1], [0, 1, 5], np.array([2**63], dtype=np.uint64), [0.5], [1.0], ["1"]])
def test_answers_are_categories(wrong: object) -> None:
    mechanism = RandomizedResponse(1.0, 3)
    refused("^answers: they must be whole numbers from 0 to 2", lambda: mechanism.release(wrong))
    refused("^answers: they must be whole numbers from 0 to 2", lambda: mechanism.estimate(wrong))


@pytest.mark.parametrize("wrong", [3, -1, 0.5])
def test_a_share_is_that_of_a_category(wrong: float) -> None:
    message = f"^category = {wrong}: it must be a whole number from 0 to 2"
    refused(message, lambda: RandomizedResponse(1.0, 3).estimate([0, 1, 2], wrong))


def test_counts_of_answers_are_possible() -> None:
    mechanism = RandomizedResponse(1.0)
    refused("^people = 0: it must be a whole number of at least 1", lambda: mechanism.estimate([]))
    refused("^hits = 4: it must not exceed the 3 people", lambda: mechanism.estimate_from_counts(4, 3))
    refused("^hits = -1: it must be a whole number of at least 0", lambda: mechanism.estimate_from_counts(-1, 3))


@pytest.mark.parametrize("wrong", [0, 3, -1, math.inf])
def test_norms_are_l1_or_l2(wrong: int) -> None:
    message = f"^order = {wrong}: it must be 1 or 2"
    refused(message, lambda: clip_by_norm([1.0], 1.0, wrong))
    refused(message, lambda: Contribution.clipped_by_norm(1.0, 1, wrong))


def test_clipped_vectors_are_numbers() -> None:
    for wrong in (math.nan, math.inf):
        message = "^vectors: they have entries that are NaN or infinite; such a record has no clipped value"
        refused(message, lambda wrong=wrong: clip_by_norm([[1.0, wrong]], 1.0))
    message = "^vectors: they have entries that are NaN; such a record has no clipped value"
    refused(message, lambda: clip_by_value([[1.0, math.nan]], 1.0))


@pytest.mark.parametrize("wrong", [(1, 0), (math.nan, 1), (0, math.inf), (-math.inf, 0)])
def test_a_range_is_in_order(wrong: tuple[float, float]) -> None:
    message = f"^range = \\[{wrong[0]}, {wrong[1]}\\]: it must be two finite numbers, the lower one first"
    for adjacency in Adjacency:
        refused(message, lambda adjacency=adjacency: of_range(*wrong, adjacency))


def test_a_mean_needs_a_public_number_of_records() -> None:
    message = "^adjacency = add-remove: a mean divides by the number of records, which is then private"
    refused(message, lambda: of_mean(Sensitivity(1.0, 1.0), 10, Adjacency.ADD_REMOVE))
