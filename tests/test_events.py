"""Events: JSON gives back the same event, counts agree with writing everything out, nonsense is refused by name."""

import json
from collections import Counter
from dataclasses import FrozenInstanceError, fields
from itertools import chain
from typing import get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dpnlp import events
from dpnlp.checks import BadInput
from dpnlp.events import (
    ApproximateDP,
    Atom,
    Composed,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
    SharedPoissonSampled,
    TruncatedPoissonSampled,
)

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no failure."""

above_0 = st.floats(0, exclude_min=True, allow_infinity=False)
counts = st.integers(1, 10**9)
shares = st.floats(0, 1, exclude_min=True)
gaussian, laplace = st.builds(Gaussian, above_0), st.builds(Laplace, above_0)
approximate = st.builds(
    ApproximateDP,
    st.floats(0, allow_infinity=False),
    st.just(0.0) | st.floats(0, 1, exclude_min=True, exclude_max=True),
)


@st.composite
def fixed_size(draw: st.DrawFn) -> FixedSizeSampled:
    records = draw(counts)
    return FixedSizeSampled(records, draw(st.integers(1, records)), draw(gaussian))


atom = st.one_of(
    gaussian,
    laplace,
    approximate,
    st.builds(RandomizedResponse, above_0, st.integers(2, 10**6)),
    st.just(NonPrivate()),
    st.builds(PoissonSampled, shares, gaussian | laplace | approximate),
    st.builds(SharedPoissonSampled, shares, counts, gaussian),
    st.builds(TruncatedPoissonSampled, counts, shares, counts, gaussian),
    fixed_size(),
)


def nested(times: st.SearchStrategy[int]) -> st.SearchStrategy[Event]:
    def deeper(inner: st.SearchStrategy[Event]) -> st.SearchStrategy[Event]:
        return st.builds(Repeated, inner, times) | st.builds(Composed, st.lists(inner, max_size=4).map(tuple))

    return st.recursive(atom, deeper, max_leaves=8)


Z = Gaussian(1.1)
ONE_OF_EACH = (
    Z,
    Laplace(2.0),
    RandomizedResponse(1.5, 3),
    ApproximateDP(1.0, 1e-6),
    NonPrivate(),
    PoissonSampled(0.01, Laplace(2.0)),
    SharedPoissonSampled(0.01, 9, Z),
    TruncatedPoissonSampled(1000, 0.01, 32, Z),
    FixedSizeSampled(1000, 10, Z),
    Repeated(Z, 5),
    Composed((Z, Repeated(NonPrivate(), 2))),
)


def through_json(event: Event) -> Event:
    return events.from_json(json.loads(json.dumps(events.to_json(event), allow_nan=False)))


def refusal(entry) -> str:
    with pytest.raises(BadInput) as refused:
        events.from_json(entry)
    return str(refused.value)


def test_there_is_one_of_each():
    assert {type(event) for event in ONE_OF_EACH} == set(get_args(Event))
    assert {type(event) for event in ONE_OF_EACH[:-2]} == set(get_args(Atom))


@pytest.mark.parametrize("event", ONE_OF_EACH, ids=lambda event: type(event).__name__)
def test_each_event_survives_json_under_its_own_name(event):
    assert through_json(event) == event
    assert type(through_json(event)) is type(event)
    assert hash(through_json(event)) == hash(event)
    assert events.to_json(event)["event"].replace("-", "") == type(event).__name__.lower()


@PATIENT
@given(nested(counts))
def test_nested_events_survive_json(event):
    assert through_json(event) == event


def test_the_json_of_an_event_is_as_documented():
    """The format of privacy.json and of ledgers that exist: a change here needs a new version there."""
    assert events.to_json(Composed((Repeated(PoissonSampled(0.01, Z), 5), NonPrivate()))) == {
        "event": "composed",
        "events": [
            {
                "event": "repeated",
                "of": {"event": "poisson-sampled", "q": 0.01, "of": {"event": "gaussian", "noise_multiplier": 1.1}},
                "count": 5,
            },
            {"event": "non-private"},
        ],
    }


def test_numpy_numbers_and_whole_floats_are_stored_as_plain_ones():
    event = Repeated(FixedSizeSampled(np.int64(10), 5.0, Gaussian(np.float32(0.5))), np.int32(3))
    assert through_json(event) == event == Repeated(FixedSizeSampled(10, 5, Gaussian(0.5)), 3)
    assert (
        repr(event)
        == "Repeated(event=FixedSizeSampled(records=10, lot_size=5, event=Gaussian(noise_multiplier=0.5)), count=3)"
    )


# Counting


def written_out(event: Event) -> list[Atom]:
    """Every single release, one after the other."""
    if isinstance(event, Repeated):
        return written_out(event.event) * event.count
    if isinstance(event, Composed):
        return list(chain.from_iterable(map(written_out, event.events)))
    return [event]


def releases(event: Event) -> int:
    if isinstance(event, Repeated):
        return releases(event.event) * event.count
    return sum(map(releases, event.events)) if isinstance(event, Composed) else 1


@PATIENT
@given(nested(st.integers(1, 4)))
def test_atoms_count_what_writing_out_counts(event):
    assume(releases(event) < 10**5)
    assert events.atoms(event) == Counter(written_out(event))


def test_atoms_of_equal_events_are_put_together():
    event = Composed((Repeated(Composed((Z, Z, NonPrivate())), 10), Gaussian(1.1), Composed(())))
    assert events.atoms(event) == {Z: 21, NonPrivate(): 10}


# What is refused

NUMBER_FIELDS = [
    (event, field.name)
    for event in ONE_OF_EACH
    for field in fields(event)
    if isinstance(getattr(event, field.name), (int, float))
]
ZERO_IS_FINE = {(ApproximateDP, "epsilon"), (ApproximateDP, "delta")}


@pytest.mark.parametrize(("event", "name"), NUMBER_FIELDS, ids=lambda value: getattr(type(value), "__name__", value))
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, -1e-300, 0, True, "1", None])
def test_a_parameter_that_makes_no_sense_is_refused_by_name(event, name, value):
    arguments = {field.name: getattr(event, field.name) for field in fields(event)} | {name: value}
    if value == 0 and (type(event), name) in ZERO_IS_FINE:
        assert getattr(type(event)(**arguments), name) == 0
    else:
        with pytest.raises(BadInput, match=rf"^{name} = .*: it must .*\.$"):
            type(event)(**arguments)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: RandomizedResponse(1.0, 1), "categories = 1: it must be a whole number of at least 2."),
        (lambda: PoissonSampled(1.01, Z), "q = 1.01: it must lie above 0 and be at most 1."),
        (lambda: ApproximateDP(1.0, 1.0), "delta = 1.0: it must lie strictly between 0 and 1."),
        (lambda: FixedSizeSampled(10, 11, Z), "lot_size = 11: it must not exceed the 10 records."),
        (lambda: Repeated(Z, 2.5), "count = 2.5: it must be a whole number of at least 1."),
    ],
)
def test_the_boundaries(make, sentence):
    with pytest.raises(BadInput) as refused:
        make()
    assert str(refused.value) == sentence


def test_what_lies_on_a_boundary_is_accepted():
    PoissonSampled(1, Z)
    FixedSizeSampled(10, 10, Z)
    RandomizedResponse(1e-9, 2)
    Composed(())


NAMES = (
    "gaussian, laplace, randomized-response, approximate-dp, non-private, poisson-sampled, shared-poisson-sampled, "
    "truncated-poisson-sampled, fixed-size-sampled, repeated, composed"
)
G = {"event": "gaussian", "noise_multiplier": 1.1}


@pytest.mark.parametrize(
    "entry", [{"event": "gauss"}, {}, {"event": None}, {"event": ["gaussian"]}, 5, None, "gaussian", [G]]
)
def test_an_unknown_event_is_refused_with_the_known_ones(entry):
    assert refusal(entry) == f'event = {entry!r}: it must be an object whose "event" is one of {NAMES}.'


@pytest.mark.parametrize(
    ("entry", "known"),
    [
        (G | {"sigma": 1.0}, "a gaussian event has noise_multiplier"),
        (G | {"of": G}, "a gaussian event has noise_multiplier"),
        (G | {"events": [G]}, "a gaussian event has noise_multiplier"),
        ({"event": "gaussian"}, "a gaussian event has noise_multiplier"),
        ({"event": "repeated", "count": 2}, "a repeated event has of, count"),
        ({"event": "repeated", "of": G, "times": 2}, "a repeated event has of, count"),
        ({"event": "composed"}, "a composed event has events"),
        ({"event": "composed", "events": 5}, "a composed event has events"),
        ({"event": "composed", "events": G}, "a composed event has events"),
        ({"event": "non-private", "epsilon": 1}, "a non-private event has no fields"),
        (
            {"event": "poisson-sampled", "q": 0.1, "of": {"event": "non-private"}},
            "no bound is known for a poisson-sampled event of non-private",
        ),
        (
            {
                "event": "shared-poisson-sampled",
                "q": 0.1,
                "sharing": 2,
                "of": {"event": "laplace", "noise_multiplier": 1},
            },
            "no bound is known for a shared-poisson-sampled event of laplace",
        ),
        (
            {
                "event": "fixed-size-sampled",
                "records": 9,
                "lot_size": 3,
                "of": {"event": "laplace", "noise_multiplier": 1},
            },
            "no bound is known for a fixed-size-sampled event of laplace",
        ),
    ],
)
def test_a_field_too_many_or_too_few_is_refused_with_those_there_are(entry, known):
    assert refusal(entry) == f"event = {entry!r}: {known}."


def test_a_bad_value_deep_inside_is_refused_as_itself():
    entry = {"event": "repeated", "count": 2, "of": {"event": "composed", "events": [G, G | {"noise_multiplier": 0}]}}
    assert refusal(entry) == "noise_multiplier = 0: it must be a finite number above 0."


@pytest.mark.parametrize("event", [e for e in ONE_OF_EACH if fields(e)], ids=lambda event: type(event).__name__)
def test_events_are_frozen_and_hashable(event):
    with pytest.raises(FrozenInstanceError):
        setattr(event, fields(event)[0].name, 1)
    assert len({event, through_json(event)}) == 1
