"""privacy.json is computed from its events whenever it is read; what does not follow from them is refused."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpnlp import events
from dpnlp.accounting import accountant, pld
from dpnlp.accounting.releases import Contents
from dpnlp.checks import BadInput
from dpnlp.events import ApproximateDP, Composed, Gaussian, Laplace, NonPrivate, PoissonSampled, Repeated
from dpnlp.guarantee import Adjacency, Exposure, Guarantee, NoiseSource, Term, Trust, Unit
from dpnlp.runs.privacy import Origin, Privacy, composed, new_id, united

DELTA = 1e-5


def promise(event, unit=Unit.EXAMPLE, adjacency=Adjacency.ADD_REMOVE, delta=DELTA, **changes):
    cost = accountant.epsilon(event, delta, adjacency)
    return Guarantee(cost, delta, unit, adjacency, Trust.CENTRAL, Term("gaussian"), accountant=Term("pld"), **changes)


def origin(event, what="a run", **changes):
    return Origin(new_id(), what, event, promise(event, **changes))


TRAINED = origin(Repeated(PoissonSampled(0.01, Gaussian(1.0)), 100), "dpnlp train first")


def written(privacy):
    return json.loads(json.dumps(privacy.to_json()).replace("Infinity", '"inf"'))


def test_what_is_written_comes_back():
    privacy = Privacy((TRAINED,), {"noise_multiplier": 1.0})
    assert Privacy.from_json(written(privacy)) == privacy
    assert privacy.guarantee == TRAINED.promised


@pytest.mark.parametrize(
    "edit",
    [
        lambda entry: entry["guarantee"].update(epsilon=0.1),
        lambda entry: entry["guarantee"].update(delta=1e-9),
        lambda entry: entry["guarantee"].update(unit="user"),
        lambda entry: entry["guarantee"].update(adjacency="replace"),
        lambda entry: entry["guarantee"].update(noise_source="os-entropy"),
        lambda entry: entry["guarantee"].update(not_covered=[]),
        lambda entry: entry["guarantee"].update(canaries=0),
        lambda entry: entry["guarantee"].update(trust="local"),
        lambda entry: entry["guarantee"].update(steps=1),
        lambda entry: entry.update(signature=TRAINED.promised.signature()),
        lambda entry: entry.update(statement="Everything is promised."),
        lambda entry: entry.update(run=new_id()),
        lambda entry: entry.update(version=1),
        lambda entry: entry.update(origins=[]),
        lambda entry: entry.update(origins={}),
        lambda entry: entry["origins"][0].update(run="../first"),
        lambda entry: entry["origins"][0].pop("event"),
        lambda entry: entry["origins"][0].update(note="all is well"),
        lambda entry: entry["origins"][0].update(Event=entry["origins"][0].pop("event")),
        lambda entry: entry["origins"][0].update(event={"event": "approximate-dp", "epsilon": 9.0, "delta": 0.0}),
        lambda entry: entry["origins"][0]["guarantee"].update(epsilon=0.1),
        lambda entry: entry["origins"][0]["guarantee"].update(delta=1e-12),
    ],
)
def test_what_was_changed_is_refused_even_where_the_signature_is_changed_along(edit):
    """With its signature and statement written anew, as whoever changes it on purpose would."""
    event = Repeated(PoissonSampled(0.01, Gaussian(1.0)), 100)
    exposed = origin(event, noise_source=NoiseSource.FIXED_SEED, canaries=4, not_covered=(Exposure.CLASSES,), steps=100)
    entry = written(Privacy((exposed,)))
    edit(entry)
    said = entry["guarantee"]
    if entry["signature"] != TRAINED.promised.signature():
        entry["signature"] = Guarantee.from_json(said).signature()
    if entry["statement"] != "Everything is promised.":
        entry["statement"] = Guarantee.from_json(said).statement()
    with pytest.raises(BadInput):
        Privacy.from_json(entry)


def test_a_weaker_claim_than_what_was_paid_for_is_taken():
    weaker = replace(TRAINED, promised=replace(TRAINED.promised, epsilon=9.0))
    assert Privacy.from_json(written(Privacy((weaker,)))).guarantee.epsilon == 9.0


def test_each_origin_keeps_its_own_neighbours_so_that_no_failure_is_lost_in_a_chain():
    """A vocabulary's (0, δ/2) doubles where records are exchanged, whatever the run between was composed to."""
    words = origin(Composed((Gaussian(4.0), ApproximateDP(0.0, 4e-6))), unit=Unit.USER, delta=1e-5)
    steps = Repeated(PoissonSampled(0.05, Gaussian(1.5)), 50)
    first, second = origin(steps, delta=1e-4), origin(steps, delta=1e-4)
    short = composed([words, first])
    assert short.adjacency is Adjacency.REPLACE  # for a user's words and one example there is no other
    whole = composed([*Privacy((words, first)).origins, second])
    ledger = Contents(tuple(one.release() for one in (words, first, second))).spent(1e-4)
    assert whole.epsilon == pytest.approx(ledger.epsilon, rel=1e-4)
    assert whole.epsilon >= ledger.epsilon
    lost = Composed((words.event, first.event, second.event))
    assert whole.epsilon > pld.epsilon(lost, 1e-4, Adjacency.REPLACE) * (1 + 1e-6)


def test_an_origin_counts_once_however_many_ways_lead_to_it():
    other = origin(Gaussian(2.0))
    assert united([TRAINED, other], [TRAINED]) == (TRAINED, other)
    with pytest.raises(BadInput, match="two things say differently what it did"):
        united([TRAINED], [replace(other, run=TRAINED.run)])


@given(st.lists(st.floats(0.5, 20), min_size=1, max_size=3), st.sampled_from([*Adjacency]), st.data())
def test_what_is_composed_is_never_below_what_the_accountant_says_of_all_events(noises, adjacency, data):
    made = [origin(Gaussian(noise), adjacency=adjacency) for noise in noises]
    whole = composed(made)
    together = pld.epsilon(Composed(tuple(one.event for one in made)), DELTA, adjacency)
    assert whole.epsilon >= together * (1 - 1e-9)
    read = Privacy.from_json(written(Privacy(tuple(made))))
    assert read.guarantee == whole


@given(st.floats(0.1, 10), st.integers(1, 5), st.sampled_from([Adjacency.ADD_REMOVE, Adjacency.REPLACE]))
def test_pure_releases_are_computed_at_a_delta_of_zero(noise, times, adjacency):
    event = Repeated(Laplace(noise), times)
    cost = times * adjacency.distance / noise
    assert accountant.epsilon(event, 0.0, adjacency) == pytest.approx(cost)
    claimed = Guarantee(cost, 0.0, Unit.TEXT, adjacency, Trust.LOCAL, Term("laplace"))
    Origin(new_id(), "texts", event, claimed).check()
    with pytest.raises(BadInput, match="but what it did costs"):
        Origin(new_id(), "texts", event, replace(claimed, epsilon=0.99 * cost)).check()
    with pytest.raises(BadInput, match="but what it did costs"):
        Origin(new_id(), "texts", Composed((event, Gaussian(9.0))), claimed).check()


def test_where_one_origin_promises_nothing_neither_does_the_whole():
    nothing = Origin(new_id(), "open", NonPrivate(), replace(TRAINED.promised, epsilon=math.inf))
    assert composed([nothing, TRAINED]).epsilon == math.inf
    assert events.from_json(nothing.to_json()["event"]) == NonPrivate()
