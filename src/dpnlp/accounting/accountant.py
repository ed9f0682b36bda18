"""One door to the accountants: the ε of an event, and the guarantee of a schedule of noisy lots."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache

from dpnlp import checks
from dpnlp.accounting import pld, rdp
from dpnlp.accounting.losses import Overlong
from dpnlp.accounting.subsampling import Schedule
from dpnlp.checks import BadInput
from dpnlp.events import Event
from dpnlp.guarantee import Adjacency, Guarantee, Term, Trust, Unit, round_up


class Accountant(StrEnum):
    """How the cost of many releases is added up. All are proved; they differ in how much they overstate."""

    PLD = "pld"
    RDP = "rdp"
    MOMENTS = "moments"


_EPSILON = {Accountant.PLD: pld.epsilon, Accountant.RDP: rdp.epsilon, Accountant.MOMENTS: rdp.moments_epsilon}

DIGITS = 5
"""Significant digits of a stated ε; it is rounded up to them."""


@lru_cache(maxsize=1024)
def epsilon(event: Event, delta: float, adjacency: Adjacency, accountant: Accountant = Accountant.PLD) -> float:
    """ε at δ of an event, by one of the accountants; infinite where the event promises nothing."""
    with computable():
        return _EPSILON[accountant](event, delta, adjacency)


@contextmanager
def computable() -> Iterator[None]:
    """What no float64 and no grid can hold, as one sentence."""
    try:
        yield
    except BadInput:
        raise
    except (ArithmeticError, ValueError, MemoryError, Overlong):
        raise BadInput(
            "epsilon: what these numbers cost cannot be computed, as some of them are too large or too small; choose "
            "fewer steps, or an ε, a δ and noise of an ordinary size."
        ) from None


def epsilon_after(
    steps: int,
    schedule: Schedule,
    noise_multiplier: float,
    delta: float,
    adjacency: Adjacency,
    accountant: Accountant = Accountant.PLD,
) -> float:
    """The ε of the first `steps` steps and of what was released before them, which is not nothing at step 0."""
    if steps == 0 and not schedule.aggregations:
        return 0.0
    event = replace(schedule, steps=steps).event(noise_multiplier) if steps else schedule.before(noise_multiplier)
    return epsilon(event, delta, adjacency, accountant)


def guarantee(
    schedule: Schedule,
    noise_multiplier: float,
    delta: float,
    adjacency: Adjacency,
    accountant: Accountant = Accountant.PLD,
    unit: Unit = Unit.EXAMPLE,
    target: float | None = None,
) -> Guarantee:
    """The guarantee of Gaussian noise on lots drawn by the schedule, as DP-SGD does it, and on what goes before them.

    Where noise, steps or lot size were chosen to stay within a `target`, rounding does not lift ε above it.
    """
    schedule.check(adjacency)
    checks.non_negative("noise_multiplier", noise_multiplier)
    spent = epsilon(schedule.event(noise_multiplier), delta, adjacency, accountant)
    stated = round_up(spent, DIGITS)
    before = len(schedule.aggregations)
    aggregations = {"aggregations": before} if before else {}
    return Guarantee(
        epsilon=min(stated, target) if target is not None and spent <= target else stated,
        delta=delta,
        unit=unit,
        adjacency=adjacency,
        trust=Trust.CENTRAL,
        mechanism=Term.of("gaussian", noise_multiplier=float(noise_multiplier), **aggregations),
        sampler=schedule.term,
        accountant=Term(accountant),
        steps=before + schedule.steps,
    )


def delta_warning(delta: float, records: int) -> str | None:
    """Why a δ of 1/N or more promises too little, or None where δ is small enough."""
    if delta < 1 / records:
        return None
    return (
        f"delta = {delta:g} is not below 1/{records} = {1 / records:.2g}: publishing one record in clear, drawn at "
        f"random, would also be (0, {1 / records:.2g})-private. Choose at most {0.1 / records:.0e}."
    )
