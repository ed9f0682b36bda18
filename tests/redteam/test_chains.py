"""Chains (law 14): does the ε of a run that others went into ever stay below what all of their events cost?"""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp.accounting import accountant, composition, pld
from dpnlp.events import ApproximateDP, Composed, Gaussian, PoissonSampled, Repeated
from dpnlp.guarantee import Adjacency, Guarantee, Term, Trust, Unit
from dpnlp.runs.privacy import Origin, Privacy, composed, new_id, united

from .conftest import THOROUGH

DELTA = 1e-5

NOISY = st.builds(Gaussian, st.floats(1, 30))
SAMPLED = st.builds(
    lambda q, noise, count: Repeated(PoissonSampled(q, Gaussian(noise)), count),
    st.floats(0.01, 0.5),
    st.floats(1, 8),
    st.integers(1, 50),
)
WORDS = st.builds(
    lambda noise, failure: Composed((Gaussian(noise), ApproximateDP(0.0, failure))),
    st.floats(2, 30),
    st.floats(1e-9, 4e-6),
)
"""As a vocabulary of private texts is made: a threshold that fails with a small probability."""


@st.composite
def chains(draw):
    """Releases one after another, each of which is made of all before it, for units and neighbours of its own."""
    made: list[Origin] = []
    for event, unit in draw(
        st.lists(
            st.tuples(st.one_of(NOISY, SAMPLED, WORDS), st.sampled_from([Unit.EXAMPLE, Unit.USER])),
            min_size=2,
            max_size=4,
        )
    ):
        cost = accountant.epsilon(event, DELTA, Adjacency.ADD_REMOVE)
        promised = Guarantee(cost, DELTA, unit, Adjacency.ADD_REMOVE, Trust.CENTRAL, Term("gaussian"))
        made.append(Origin(new_id(), "a run", event, promised))
    return tuple(made)


def costs(chain):
    """What all of the events cost for neighbours that all of them can be compared under, by group privacy at the least.

    A unit of its own for each release means that the smaller one is exchanged where the larger one comes or goes.
    """
    alike = len({origin.promised.unit for origin in chain}) == 1
    if alike:
        return pld.epsilon(Composed(tuple(origin.event for origin in chain)), DELTA, Adjacency.ADD_REMOVE)
    return pld.epsilon(Composed(tuple(map(doubled, (origin.event for origin in chain)))), DELTA, Adjacency.REPLACE)


def doubled(event):
    """The event for neighbours that are two records apart: noise is told by the accountant, a bare (ε, δ) doubles."""
    match event:
        case Composed(parts):
            return Composed(tuple(map(doubled, parts)))
        case ApproximateDP(epsilon, failure):
            return ApproximateDP(*composition.group(epsilon, failure, 2))
        case _:
            return event


@settings(max_examples=2000 if THOROUGH else 25)
@given(chains())
def test_no_part_of_a_chain_is_lost(chain):
    """However the chain was told: at once, or run by run, each of which says what went into it."""
    step_by_step: tuple[Origin, ...] = ()
    for origin in chain:
        step_by_step = Privacy.from_json(Privacy(united(step_by_step, [origin])).to_json()).origins
    assert step_by_step == chain
    stated, true = composed(step_by_step).epsilon, costs(chain)
    assert stated >= true * (1 - 1e-9)


@pytest.mark.parametrize("copies", [2, 5])
def test_a_failure_probability_doubles_where_records_are_exchanged(copies, report):
    """6.21 was stated once where a ledger had 6.62: the (0, δ/2) of a vocabulary was not doubled under replace."""
    words = Composed((Gaussian(1.6), ApproximateDP(0.0, 4.9e-6)))
    lots = Repeated(PoissonSampled(0.05, Gaussian(1.2)), 40)
    kinds = [(words, Unit.USER), *[(lots, Unit.EXAMPLE)] * (copies - 1)]
    chain = [
        Origin(
            new_id(),
            "a run",
            event,
            Guarantee(
                accountant.epsilon(event, DELTA, Adjacency.ADD_REMOVE),
                DELTA,
                unit,
                Adjacency.ADD_REMOVE,
                Trust.CENTRAL,
                Term("gaussian"),
            ),
        )
        for event, unit in kinds
    ]
    stated, true = composed(chain).epsilon, costs(chain)
    report(f"a vocabulary and {copies - 1} runs", stated, true)
    assert math.isfinite(true)
    lost = pld.epsilon(Composed(tuple(origin.event for origin in chain)), DELTA, Adjacency.REPLACE)
    assert stated > lost
