"""The ledger: nothing spent is ever lost or overlooked, no budget is overrun, and the data is not given away."""

import fcntl
import hashlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp import atomic
from dpnlp.accounting import pld
from dpnlp.accounting.fingerprint import fingerprint
from dpnlp.accounting.ledger import BudgetExceeded, Ledger
from dpnlp.accounting.releases import Budget, Contents, Release, Spent
from dpnlp.checks import BadInput
from dpnlp.events import (
    ApproximateDP,
    Composed,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
    TruncatedPoissonSampled,
)
from dpnlp.guarantee import Adjacency, Unit

ADD_REMOVE, REPLACE, ZERO_OUT = Adjacency.ADD_REMOVE, Adjacency.REPLACE, Adjacency.ZERO_OUT
DELTA = 1e-6
PRINT = "ab" * 32


@pytest.fixture(autouse=True, scope="module")
def no_waiting_for_the_disk() -> Iterator[None]:
    """What is synced, and when, has tests of its own; elsewhere it would only cost time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b'{"text": "a secret"}\n')
    return path


@pytest.fixture
def ledger(dataset: Path) -> Ledger:
    return Ledger.beside(dataset)


def charge(
    ledger: Ledger, event: Event, what: str = "run", unit: Unit = Unit.EXAMPLE, adjacency: Adjacency = ADD_REMOVE
) -> str:
    return ledger.charge(what, event, unit, adjacency, PRINT)


def ids(ledger: Ledger) -> list[str]:
    return [release.id for release in ledger.read().releases]


def anchor_of(data: bytes) -> bytes:
    """The anchor of a ledger with these lines, made without the ledger's help."""
    lines = data.splitlines()
    return f"{len(lines)} {hashlib.sha256(lines[-1]).hexdigest()}\n".encode()


def assert_anchored(ledger: Ledger) -> None:
    assert ledger.head_path.read_bytes() == anchor_of(ledger.path.read_bytes())


def interrupt(ledger: Ledger, data: bytes, anchored: bytes) -> None:
    """What a crash leaves: the ledger as far as it was written, and the anchor of before."""
    ledger.path.write_bytes(data)
    ledger.head_path.write_bytes(anchored)


def sealed(entry: dict[str, object]) -> bytes:
    """A line of the format, made without the ledger's help."""
    body = json.dumps(entry).encode()
    return body[:-1] + b', "checksum": "' + hashlib.sha256(body).hexdigest().encode() + b'"}\n'


# What is written is what is read


_MULTIPLIER = st.floats(0.01, 100)
_NOISE = st.builds(Gaussian, _MULTIPLIER) | st.builds(Laplace, _MULTIPLIER)
_APPROXIMATE = st.builds(ApproximateDP, st.floats(0, 50), st.just(0.0) | st.floats(1e-12, 0.5))
_Q = st.floats(1e-6, 1)
_ATOM = st.one_of(
    _NOISE,
    _APPROXIMATE,
    st.builds(RandomizedResponse, _MULTIPLIER, st.integers(2, 9)),
    st.just(NonPrivate()),
    st.builds(PoissonSampled, _Q, _NOISE | _APPROXIMATE),
    st.builds(
        TruncatedPoissonSampled, st.integers(1, 10**9), _Q, st.integers(1, 999), st.builds(Gaussian, _MULTIPLIER)
    ),
    st.builds(FixedSizeSampled, st.integers(1000, 10**9), st.integers(1, 999), st.builds(Gaussian, _MULTIPLIER)),
)
_EVENT: st.SearchStrategy[Event] = st.recursive(
    _ATOM,
    lambda inner: (
        st.builds(Repeated, inner, st.integers(1, 10**6))
        | st.builds(Composed, st.lists(inner, max_size=3).map(tuple[Event, ...]))
    ),
    max_leaves=6,
)
_CHARGE = st.tuples(st.text(), _EVENT, st.sampled_from(Unit), st.sampled_from(Adjacency), st.text("0123456789abcdef"))


@settings(max_examples=50)
@given(st.lists(_CHARGE, max_size=4))
def test_a_release_is_read_as_it_was_written(charges: list[tuple[str, Event, Unit, Adjacency, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder, "corpus.ledger"))
        before = datetime.now(UTC) - timedelta(seconds=1)
        given_ids = [ledger.charge(*one) for one in charges]
        releases = Ledger(ledger.path).read().releases
    assert [release.id for release in releases] == given_ids
    assert len(set(given_ids)) == len(given_ids)
    assert [(r.what, r.event, r.unit, r.adjacency, r.fingerprint) for r in releases] == charges
    assert all(before <= datetime.fromisoformat(release.time) <= datetime.now(UTC) for release in releases)


@pytest.mark.parametrize("epsilon", [0.5, 8, math.inf])
def test_the_last_budget_counts(ledger: Ledger, epsilon: float) -> None:
    assert ledger.read().budget is None
    ledger.set_budget(3.0, 1e-5, Unit.EXAMPLE, ADD_REMOVE)
    ledger.set_budget(epsilon, 1e-6, Unit.USER, REPLACE)
    assert ledger.read().budget == Budget(epsilon, 1e-6, Unit.USER, REPLACE)


def test_the_lines_are_json_in_a_chain(ledger: Ledger) -> None:
    ledger.set_budget(math.inf, DELTA, Unit.EXAMPLE, ADD_REMOVE)
    charge(ledger, Gaussian(4.0), what="naïve\nrun")
    charge(ledger, Gaussian(4.0))
    previous = hashlib.sha256(b"dpnlp ledger").hexdigest()
    for line in ledger.path.read_bytes().splitlines(keepends=True):
        entry = json.loads(line)
        assert (entry["version"], entry["previous"]) == (1, previous)
        del entry["checksum"]
        assert line == sealed(entry)
        previous = hashlib.sha256(line[:-1]).hexdigest()


def test_a_data_set_without_a_ledger_has_spent_nothing(ledger: Ledger) -> None:
    assert (ledger.read().releases, ledger.read().budget, ledger.read().warnings) == ((), None, ())
    spent = ledger.spent(DELTA)
    assert (spent.epsilon, spent.unit, spent.owner, spent.whose) == (0, None, "", None)
    assert not ledger.path.exists()


def test_the_ledger_is_beside_the_data(tmp_path: Path, dataset: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "other.jsonl").symlink_to(dataset)
    assert Ledger.beside(dataset).path == tmp_path.resolve() / "corpus.jsonl.ledger"
    assert Ledger.beside(f"{tmp_path}/corpus/").path == tmp_path.resolve() / "corpus.ledger"
    assert Ledger.beside(tmp_path / "other.jsonl") == Ledger.beside(dataset)


def test_a_missing_data_set_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^dataset = .*absent: there is no such file or directory; check the path\.$"):
        Ledger.beside(tmp_path / "absent")
    assert list(tmp_path.iterdir()) == []


def test_a_release_is_on_the_disk_before_its_run_starts(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    file, folder = 0, ledger.path.parent.stat().st_ino
    for expected in (["anchor", "file", "folder", "folder"], ["anchor", "file", "folder"]):
        charge(ledger, Gaussian(4.0))
        file, anchor = ledger.path.stat().st_ino, ledger.head_path.stat().st_ino
        names = {file: "file", folder: "folder", anchor: "anchor"}
        assert [names[inode] for inode in synced] == expected
        synced.clear()


# What was spent


def test_releases_compose_and_do_not_add_up(ledger: Ledger) -> None:
    for _ in range(4):
        charge(ledger, Gaussian(4.0))
    spent = ledger.spent(DELTA)
    # Four Gaussians of z = 4 are one of z = 2, as their 1/z² add up.
    assert spent.epsilon == pytest.approx(pld.epsilon(Gaussian(2.0), DELTA, ADD_REMOVE), rel=1e-9)
    assert spent.epsilon < 4 * pld.epsilon(Gaussian(4.0), DELTA, ADD_REMOVE)
    assert (spent.delta, spent.unit, spent.adjacency, spent.reasons) == (DELTA, Unit.EXAMPLE, ADD_REMOVE, ())


def test_different_events_are_composed_by_pld(ledger: Ledger) -> None:
    events = (Repeated(PoissonSampled(0.01, Gaussian(1.0)), 100), Laplace(5.0), ApproximateDP(0.3, 1e-8))
    for event in events:
        charge(ledger, event)
    assert ledger.spent(DELTA).epsilon == pld.epsilon(Composed(events), DELTA, ADD_REMOVE)
    assert ledger.spent(DELTA).epsilon < sum(pld.epsilon(event, DELTA / 3, ADD_REMOVE) for event in events)


def test_releases_on_another_state_of_the_data_count_too(ledger: Ledger) -> None:
    ledger.charge("before", Gaussian(4.0), Unit.EXAMPLE, ADD_REMOVE, "00" * 32)
    ledger.charge("after", Gaussian(4.0), Unit.EXAMPLE, ADD_REMOVE, "11" * 32)
    assert ledger.spent(DELTA).epsilon == pld.epsilon(Repeated(Gaussian(4.0), 2), DELTA, ADD_REMOVE)


def test_delta_is_the_callers_or_the_budgets(ledger: Ledger) -> None:
    charge(ledger, Gaussian(4.0))
    with pytest.raises(BadInput, match=r"^delta: the ledger has no budget that would give it; give delta, or set a"):
        ledger.spent()
    ledger.set_budget(5.0, 1e-7, Unit.EXAMPLE, ADD_REMOVE)
    assert ledger.spent() == ledger.spent(1e-7)
    assert ledger.spent(1e-5).epsilon < ledger.spent().epsilon


@pytest.mark.parametrize("delta", [0.0, 1.0, math.nan])
def test_a_delta_must_be_a_probability(ledger: Ledger, delta: float) -> None:
    with pytest.raises(BadInput, match=r"^delta = .*: it must lie strictly between 0 and 1"):
        ledger.spent(delta)
    with pytest.raises(BadInput, match=r"^delta = .*: it must lie strictly between 0 and 1"):
        ledger.set_budget(1.0, delta, Unit.USER, REPLACE)


# For whom


@pytest.mark.parametrize(
    ("units", "largest"),
    [
        ([Unit.USER], Unit.USER),
        ([Unit.USER, Unit.EXAMPLE], Unit.EXAMPLE),
        ([Unit.DOCUMENT, Unit.USER, Unit.EXAMPLE], Unit.EXAMPLE),
        ([Unit.TEXT, Unit.DOCUMENT], Unit.WORD),
        ([Unit.GRAPH, Unit.NODE], Unit.NODE),
        ([Unit.GRAPH, Unit.SUBGRAPH], Unit.SUBGRAPH),
    ],
)
def test_the_default_unit_is_the_largest_that_all_protect(ledger: Ledger, units: list[Unit], largest: Unit) -> None:
    for unit in units:
        charge(ledger, Gaussian(4.0), unit=unit)
    spent = ledger.spent(DELTA)
    assert spent.unit is largest
    alike = len(set(units)) == 1
    assert spent.adjacency is (ADD_REMOVE if alike else REPLACE)
    assert spent.epsilon == pld.epsilon(Repeated(Gaussian(4.0), len(units)), DELTA, spent.adjacency)


@pytest.mark.parametrize("one", Unit)
@pytest.mark.parametrize("other", Unit)
def test_no_unit_that_both_protect_is_larger_than_the_default(one: Unit, other: Unit) -> None:
    contents = Contents(tuple(Release.now(None, "run", Gaussian(4.0), unit, ADD_REMOVE) for unit in (one, other)))
    common = [unit for unit in Unit if one.protects(unit) and other.protects(unit)]
    assert contents.unit in (common or [None])
    assert not any(unit.protects(contents.unit) for unit in common if contents.unit and unit is not contents.unit)


def test_what_promises_nothing_has_no_say_in_whom_the_others_protect(ledger: Ledger) -> None:
    charge(ledger, Gaussian(4.0), unit=Unit.USER)
    charge(ledger, NonPrivate(), unit=Unit.EXAMPLE, adjacency=REPLACE)
    contents = ledger.read()
    assert (contents.unit, contents.adjacency) == (Unit.USER, ADD_REMOVE)
    alone = replace(contents, releases=contents.releases[1:])
    assert (alone.unit, alone.adjacency) == (Unit.EXAMPLE, REPLACE)


@pytest.mark.parametrize(
    ("events", "private"),
    [
        ([], False),
        ([NonPrivate()], False),
        ([Repeated(Composed((Gaussian(4.0), NonPrivate())), 3)], False),
        ([NonPrivate(), Gaussian(4.0)], True),
    ],
)
def test_a_budget_or_one_release_with_noise_is_a_promise(ledger: Ledger, events: list[Event], private: bool) -> None:
    for event in events:
        charge(ledger, event)
    assert ledger.read().is_private is private
    ledger.set_budget(math.inf, DELTA, Unit.EXAMPLE, ADD_REMOVE)
    assert ledger.read().is_private is True


def test_a_part_of_a_record_that_goes_leaves_another_record_behind(ledger: Ledger) -> None:
    """A user's sum, clipped to 1, moves by 2 when one of her examples is taken away: from −1 to 1."""

    def released(*examples: float) -> float:
        return max(-1.0, min(1.0, sum(examples)))

    moved = abs(released(2.0, -4.0) - released(2.0))
    charge(ledger, Gaussian(4.0), unit=Unit.USER)
    truth = pld.epsilon(Gaussian(4.0 / moved), DELTA, ADD_REMOVE)
    for adjacency in (ADD_REMOVE, REPLACE):
        spent = ledger.spent(DELTA, Unit.EXAMPLE, adjacency)
        assert (spent.epsilon, spent.adjacency) == (truth, adjacency)
    assert ledger.spent(DELTA, Unit.USER).epsilon == pld.epsilon(Gaussian(4.0), DELTA, ADD_REMOVE) < truth


def test_no_unit_in_common_is_reported(ledger: Ledger) -> None:
    charge(ledger, Gaussian(4.0), unit=Unit.USER)
    charge(ledger, Gaussian(4.0), unit=Unit.GRAPH)
    spent = ledger.spent(DELTA)
    assert (spent.epsilon, spent.unit, spent.whose) == (math.inf, None, None)
    assert spent.reasons == ("The releases protect no unit in common, but graph, user.",)


@pytest.mark.parametrize("made_for", Unit)
@pytest.mark.parametrize("asked", Unit)
def test_a_release_counts_only_for_what_it_protects(ledger: Ledger, made_for: Unit, asked: Unit) -> None:
    charge(ledger, Gaussian(4.0), unit=Unit.GRAPH if Unit.GRAPH.protects(asked) else Unit.USER)
    guilty = charge(ledger, Gaussian(4.0), what="the second", unit=made_for)
    spent = ledger.spent(DELTA, asked)
    if made_for.protects(asked):
        assert (math.isfinite(spent.epsilon), spent.reasons) == (True, ())
    else:
        sentence = f"release {guilty} (the second) protects one {made_for} and promises nothing for one {asked}."
        assert (spent.epsilon, spent.reasons) == (math.inf, (sentence,))


# Against which comparison


@pytest.mark.parametrize(
    ("made_for", "default"),
    [
        ([], ADD_REMOVE),
        ([ADD_REMOVE, ADD_REMOVE], ADD_REMOVE),
        ([ZERO_OUT, ZERO_OUT], ZERO_OUT),
        ([ADD_REMOVE, ZERO_OUT], REPLACE),
        ([REPLACE, ADD_REMOVE], REPLACE),
        ([REPLACE], REPLACE),
    ],
)
def test_the_default_adjacency_fits_all(ledger: Ledger, made_for: list[Adjacency], default: Adjacency) -> None:
    for adjacency in made_for:
        charge(ledger, Gaussian(4.0), adjacency=adjacency)
    spent = ledger.spent(DELTA)
    assert (spent.adjacency, spent.reasons) == (default, ())


@pytest.mark.parametrize("made_for", Adjacency)
@pytest.mark.parametrize("asked", Adjacency)
def test_a_release_holds_under_its_own_adjacency_and_replace(
    ledger: Ledger, made_for: Adjacency, asked: Adjacency
) -> None:
    guilty = charge(ledger, Gaussian(4.0), adjacency=made_for)
    spent = ledger.spent(DELTA, adjacency=asked)
    if asked in (made_for, REPLACE):
        # Under replace neighbours are twice as far apart, which is half the noise.
        same = Gaussian(2.0 if asked is REPLACE else 4.0)
        assert spent.epsilon == pytest.approx(pld.epsilon(same, DELTA, ADD_REMOVE), rel=1e-9)
    else:
        sentence = f"release {guilty} (run) was made for {made_for} and has no bound under {asked}."
        assert (spent.epsilon, spent.reasons) == (math.inf, (sentence,))


_SAMPLED = math.log(1 + 0.1 * (math.e - 1))


@pytest.mark.parametrize("made_for", [ADD_REMOVE, ZERO_OUT])
@pytest.mark.parametrize(
    ("event", "doubled"),
    [
        (ApproximateDP(0.5), ApproximateDP(1.0)),
        (ApproximateDP(0.5, 1e-8), ApproximateDP(1.0, 1e-8 * (1 + math.exp(0.5)))),
        (PoissonSampled(0.1, ApproximateDP(1.0)), ApproximateDP(2 * _SAMPLED)),
        (
            PoissonSampled(0.1, ApproximateDP(1.0, 1e-7)),
            ApproximateDP(2 * _SAMPLED, 1e-8 * (1 + math.exp(_SAMPLED))),
        ),
        (
            Composed((Repeated(ApproximateDP(0.5), 3), Gaussian(4.0))),
            Composed((Repeated(ApproximateDP(1.0), 3), Gaussian(4.0))),
        ),
        (PoissonSampled(0.1, Gaussian(1.0)), PoissonSampled(0.1, Gaussian(1.0))),
        (Laplace(3.0), Laplace(3.0)),
    ],
)
def test_only_a_bare_bound_is_doubled_for_replace(
    ledger: Ledger, made_for: Adjacency, event: Event, doubled: Event
) -> None:
    charge(ledger, event, adjacency=made_for)
    expected = pld.epsilon(doubled, DELTA, REPLACE)
    assert ledger.spent(DELTA, adjacency=REPLACE).epsilon == pytest.approx(expected, rel=1e-9)


def test_a_bare_bound_made_for_replace_is_left_as_it_is(ledger: Ledger) -> None:
    charge(ledger, ApproximateDP(0.5, 1e-8), adjacency=REPLACE)
    assert ledger.spent(DELTA).epsilon == pld.epsilon(ApproximateDP(0.5, 1e-8), DELTA, REPLACE)


# Where nothing can be promised


@pytest.mark.parametrize(
    ("event", "asked", "reason"),
    [
        (NonPrivate(), ADD_REMOVE, "it was made without privacy."),
        (ApproximateDP(0.5, 1e-5), ADD_REMOVE, f"no finite ε holds at δ = {DELTA}."),
        (ApproximateDP(20.0, 1e-7), REPLACE, f"no finite ε holds at δ = {DELTA}."),
        (RandomizedResponse(1.0), ADD_REMOVE, "pld knows no bound for RandomizedResponse(epsilon=1.0, categories=2)"),
    ],
)
def test_the_release_that_spoils_the_total_is_named(
    ledger: Ledger, event: Event, asked: Adjacency, reason: str
) -> None:
    charge(ledger, Gaussian(4.0))
    guilty = charge(ledger, event, what="careless")
    spent = ledger.spent(DELTA, adjacency=asked)
    assert spent.epsilon == math.inf
    (sentence,) = spent.reasons
    assert sentence.startswith(f"release {guilty} (careless): {reason}")


def test_releases_may_be_too_much_only_together(ledger: Ledger) -> None:
    charge(ledger, ApproximateDP(0.5, 0.9 * DELTA))
    charge(ledger, ApproximateDP(0.5, 0.9 * DELTA))
    spent = ledger.spent(DELTA)
    assert spent.epsilon == math.inf
    assert spent.reasons == (f"All releases together: no finite ε holds at δ = {DELTA}.",)


# The budget


def test_a_release_beyond_the_budget_is_refused_before_anything_is_written(ledger: Ledger) -> None:
    ledger.set_budget(1.5, DELTA, Unit.EXAMPLE, ADD_REMOVE)
    charge(ledger, Gaussian(4.0))
    before = ledger.path.read_bytes()
    with pytest.raises(BudgetExceeded) as refusal:
        charge(ledger, Gaussian(3.0), what="one too many")
    assert ledger.path.read_bytes() == before
    found = re.fullmatch(
        re.escape(f"{ledger.path}: ε = ") + r"(\S+) is spent and 'one too many' would bring it to (\S+), but the "
        r"budget is 1.5 at δ = 1e-06 for one example under add-remove; add noise, take fewer steps, or set a larger "
        r"budget\.",
        str(refusal.value),
    )
    assert found
    events: list[Event] = [Gaussian(4.0), Composed((Gaussian(4.0), Gaussian(3.0)))]
    for shown, event in zip(found.groups(), events, strict=True):
        epsilon = pld.epsilon(event, DELTA, ADD_REMOVE)
        assert epsilon <= float(shown) <= 1.001 * epsilon
    charge(ledger, Gaussian(50.0))


def test_a_budget_may_be_spent_to_the_last_bit_and_no_further(ledger: Ledger) -> None:
    limit = pld.epsilon(Repeated(Gaussian(4.0), 2), DELTA, ADD_REMOVE)
    ledger.set_budget(math.nextafter(limit, 0), DELTA, Unit.EXAMPLE, ADD_REMOVE)
    charge(ledger, Gaussian(4.0))
    with pytest.raises(BudgetExceeded):
        charge(ledger, Gaussian(4.0))
    ledger.set_budget(limit, DELTA, Unit.EXAMPLE, ADD_REMOVE)
    charge(ledger, Gaussian(4.0))
    assert ledger.spent().epsilon == limit


@pytest.mark.parametrize(
    ("event", "unit", "adjacency", "reason"),
    [
        (NonPrivate(), Unit.USER, ADD_REMOVE, r"\(run\): it was made without privacy\)"),
        (Gaussian(9.0), Unit.EXAMPLE, ADD_REMOVE, r"protects one example and promises nothing for one user\)"),
        (Gaussian(9.0), Unit.USER, REPLACE, r"was made for replace and has no bound under add-remove\)"),
        (RandomizedResponse(0.1), Unit.USER, ADD_REMOVE, r"pld knows no bound for RandomizedResponse"),
    ],
)
def test_a_release_without_a_bound_exceeds_every_finite_budget(
    ledger: Ledger, event: Event, unit: Unit, adjacency: Adjacency, reason: str
) -> None:
    ledger.set_budget(1e6, DELTA, Unit.USER, ADD_REMOVE)
    with pytest.raises(BudgetExceeded, match=r"ε = 0\.0 is spent and 'run' would bring it to inf \(.*" + reason):
        charge(ledger, event, unit=unit, adjacency=adjacency)
    ledger.set_budget(math.inf, DELTA, Unit.USER, ADD_REMOVE)
    charge(ledger, event, unit=unit, adjacency=adjacency)


_RACER = """
import sys, time
from pathlib import Path
from dpnlp.accounting.fingerprint import fingerprint
from dpnlp.accounting.ledger import BudgetExceeded, Ledger
from dpnlp.events import Gaussian
from dpnlp.guarantee import Adjacency, Unit
dataset = Path(sys.argv[1])
Path(sys.argv[2]).touch()
while not dataset.with_name("go").exists():
    time.sleep(0.001)
state = fingerprint(dataset)
print(state)
for _ in range(5):
    try:
        print(Ledger.beside(dataset).charge("race", Gaussian(8.0), Unit.EXAMPLE, Adjacency.ADD_REMOVE, state))
    except BudgetExceeded:
        print("refused")
    assert Ledger.beside(dataset).read().warnings == ()
"""


def race(dataset: Path, code: str) -> list[str]:
    """What four processes were answered that charge five times each, and start all at once."""
    ready = [dataset.with_name(f"ready{n}") for n in range(4)]
    racers = [
        subprocess.Popen([sys.executable, "-c", code, dataset, path], stdout=subprocess.PIPE, text=True)
        for path in ready
    ]
    while not all(path.exists() for path in ready):
        assert all(racer.poll() is None for racer in racers), "a racer fell before the start"
        time.sleep(0.01)
    dataset.with_name("go").touch()
    states, answers = set(), []
    for racer in racers:
        state, *lines = racer.communicate(timeout=60)[0].split()
        states.add(state)
        answers += lines
    assert states == {fingerprint(dataset)}, "all racers must use the one key"
    return answers


def test_racing_processes_never_exceed_the_budget_together(ledger: Ledger, dataset: Path) -> None:
    limit = pld.epsilon(Repeated(Gaussian(8.0), 13), DELTA, ADD_REMOVE)
    ledger.set_budget(limit, DELTA, Unit.EXAMPLE, ADD_REMOVE)
    answers = race(dataset, _RACER)
    assert (len(answers), answers.count("refused")) == (20, 7)
    assert sorted(ids(ledger)) == sorted(answer for answer in answers if answer != "refused")
    assert ledger.spent().epsilon == limit
    assert_anchored(ledger)
    assert not list(dataset.parent.glob(".*")), "nothing temporary may stay behind"


@pytest.mark.parametrize(
    ("held", "blocks_reading"), [(fcntl.LOCK_EX, True), (fcntl.LOCK_SH, False)], ids=["writer", "reader"]
)
def test_a_writer_waits_for_all_and_a_reader_for_writers(ledger: Ledger, held: int, blocks_reading: bool) -> None:
    charge(ledger, Gaussian(4.0))
    threads = [threading.Thread(target=ledger.read), threading.Thread(target=charge, args=(ledger, Gaussian(4.0)))]
    with ledger.path.open("rb") as other:
        fcntl.flock(other, held)
        for thread in threads:
            thread.start()
            thread.join(0.3)
        assert [thread.is_alive() for thread in threads] == [blocks_reading, True]
    for thread in threads:
        thread.join(10)
    assert len(ids(ledger)) == 2


# Interrupted writes


def test_a_write_interrupted_anywhere_loses_nothing_and_is_reported(ledger: Ledger) -> None:
    first = charge(ledger, Gaussian(4.0))
    start, anchored = len(ledger.path.read_bytes()), ledger.head_path.read_bytes()
    last = charge(ledger, Gaussian(3.0), what='a "}" in the name')
    whole = ledger.path.read_bytes()
    for size in range(start + 1, len(whole)):
        interrupt(ledger, whole[:size], anchored)
        kept = [first, last] if size == len(whole) - 1 else [first]
        assert ids(ledger) == kept
        (warning,) = ledger.read().warnings
        assert warning.startswith(f"{ledger.path}, line 2: its writing was interrupted, ")
        kept.append(charge(ledger, Gaussian(2.0)))
        assert_anchored(ledger)
        kept.append(charge(ledger, Gaussian(1.0)))
        assert_anchored(ledger)
        assert ids(ledger) == kept
        assert ledger.path.read_bytes().startswith(whole[:size]), "a ledger is only ever appended to"
        assert ledger.read().warnings == (() if size == len(whole) - 1 else (warning,))


def test_an_interrupted_repair_is_completed(ledger: Ledger) -> None:
    first = charge(ledger, Gaussian(4.0))
    start, anchored = len(ledger.path.read_bytes()), ledger.head_path.read_bytes()
    charge(ledger, Gaussian(3.0))
    torn = ledger.path.read_bytes()[: start + 50]
    interrupt(ledger, torn, anchored)
    second = charge(ledger, Gaussian(2.0))
    whole = ledger.path.read_bytes()
    assert json.loads(whole.splitlines()[2])["sha256"] == hashlib.sha256(torn[start:]).hexdigest()
    for size in range(len(torn), len(whole)):
        interrupt(ledger, whole[:size], anchored)
        kept = [first, second] if size == len(whole) - 1 else [first]
        assert ids(ledger) == kept
        kept.append(charge(ledger, Gaussian(1.0)))
        assert ids(ledger) == kept
        assert_anchored(ledger)
        assert ledger.path.read_bytes().startswith(whole[:size])
        assert f"{ledger.path}, line 2: its writing was interrupted, " in ledger.read().warnings[0]


def test_a_refusal_leaves_an_interrupted_line_as_it_is(ledger: Ledger) -> None:
    ledger.set_budget(1.0, DELTA, Unit.EXAMPLE, ADD_REMOVE)
    anchored = ledger.head_path.read_bytes()
    charge(ledger, Gaussian(50.0))
    interrupt(ledger, ledger.path.read_bytes()[:-20], anchored)
    before = ledger.path.read_bytes()
    with pytest.raises(BudgetExceeded):
        charge(ledger, Gaussian(0.1))
    assert (ledger.path.read_bytes(), ledger.head_path.read_bytes()) == (before, anchored)


def test_a_full_disk_is_an_error_and_can_be_recovered_from(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    first = charge(ledger, Gaussian(4.0))
    anchored = ledger.head_path.read_bytes()
    with monkeypatch.context() as patched:
        write = os.write
        patched.setattr(os, "write", lambda file, data: write(file, data[:40]))
        with pytest.raises(BadInput, match=r"ledger: only 40 of \d+ bytes could be written; make room on the disk\.$"):
            charge(ledger, Gaussian(4.0))
    assert ledger.head_path.read_bytes() == anchored
    assert ids(ledger) == [first]
    assert len(ledger.read().warnings) == 1
    second = charge(ledger, Gaussian(4.0))
    assert ids(ledger) == [first, second]
    assert_anchored(ledger)


def test_a_line_is_anchored_only_after_it_is_on_the_disk(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    charge(ledger, Gaussian(4.0))
    state = [(ledger.path.read_bytes(), ledger.head_path.read_bytes())]

    def watched(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any) -> Any:
            result = call(*arguments)
            state.append((ledger.path.read_bytes(), ledger.head_path.read_bytes()))
            return result

        return wrapper

    with monkeypatch.context() as patched:
        for name in ("write", "fsync", "replace"):
            patched.setattr(os, name, watched(getattr(os, name)))
        charge(ledger, Gaussian(4.0))
    (old, old_anchor), (new, new_anchor) = state[0], state[-1]
    assert (old_anchor, new_anchor) == (anchor_of(old), anchor_of(new))
    # The new anchor is synced under another name; the line is written and synced; the anchor is replaced; the folder.
    assert state[1:] == [(old, old_anchor), *[(new, old_anchor)] * 2, *[(new, new_anchor)] * 2]


def crashing_charge(ledger: Ledger, event: Event) -> None:
    """The line is written, but then the power fails, before its anchor is replaced."""

    def power_failure(*_: object) -> None:
        raise OSError("power failure")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "replace", power_failure)
        with pytest.raises(BadInput, match="power failure"):
            charge(ledger, event)


def test_a_crash_before_the_line_is_anchored_loses_nothing(ledger: Ledger) -> None:
    first = charge(ledger, Gaussian(4.0))
    anchored = ledger.head_path.read_bytes()
    for count in (1, 2):
        crashing_charge(ledger, Gaussian(3.0))
        assert ledger.head_path.read_bytes() == anchored
        contents = ledger.read()
        assert (len(contents.releases), contents.warnings) == (1 + count, ())
    last = charge(ledger, Gaussian(2.0))
    assert [release.event for release in ledger.read().releases] == [Gaussian(z) for z in (4.0, 3.0, 3.0, 2.0)]
    assert (ids(ledger)[0], ids(ledger)[-1]) == (first, last)
    assert_anchored(ledger)
    assert len(list(ledger.path.parent.iterdir())) == 3, "nothing temporary may stay behind"


def test_a_crash_before_the_first_line_is_anchored_loses_nothing(ledger: Ledger) -> None:
    crashing_charge(ledger, Gaussian(4.0))
    (warning,) = ledger.read().warnings
    assert warning.startswith(f"{ledger.head_path}: it is missing, ")
    assert len(ids(ledger)) == 1
    charge(ledger, Gaussian(4.0))
    assert (len(ids(ledger)), ledger.read().warnings) == (2, ())
    assert_anchored(ledger)


def test_a_crash_before_a_repair_is_anchored_loses_nothing(ledger: Ledger) -> None:
    charge(ledger, Gaussian(4.0))
    start, anchored = len(ledger.path.read_bytes()), ledger.head_path.read_bytes()
    charge(ledger, Gaussian(3.0))
    whole = ledger.path.read_bytes()
    for size in range(start + 1, len(whole)):
        interrupt(ledger, whole[:size], anchored)
        kept = [Gaussian(4.0), Gaussian(3.0)] if size == len(whole) - 1 else [Gaussian(4.0)]
        crashing_charge(ledger, Gaussian(2.0))
        assert ledger.head_path.read_bytes() == anchored
        assert [release.event for release in ledger.read().releases] == [*kept, Gaussian(2.0)]
        charge(ledger, Gaussian(1.0))
        assert [release.event for release in ledger.read().releases] == [*kept, Gaussian(2.0), Gaussian(1.0)]
        assert_anchored(ledger)


def test_nothing_is_charged_where_no_anchor_can_be_made(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    charge(ledger, Gaussian(4.0))
    before = ledger.path.read_bytes()

    def write_protected(*_: object) -> None:
        raise PermissionError("write-protected")

    with monkeypatch.context() as patched:
        patched.setattr(atomic, "_open_alone", write_protected)
        with pytest.raises(BadInput, match="write-protected"):
            charge(ledger, Gaussian(4.0))
    assert ledger.path.read_bytes() == before


# Changed files


@pytest.fixture
def lines(ledger: Ledger) -> list[bytes]:
    """A budget, a release, an interrupted line, its repair, and two more releases."""
    ledger.set_budget(math.inf, DELTA, Unit.EXAMPLE, ADD_REMOVE)
    charge(ledger, Gaussian(4.0))
    anchored = ledger.head_path.read_bytes()
    charge(ledger, Gaussian(3.0))
    interrupt(ledger, ledger.path.read_bytes()[:-100], anchored)
    charge(ledger, Gaussian(2.0))
    charge(ledger, Gaussian(1.0))
    written = ledger.path.read_bytes().splitlines(keepends=True)
    assert len(written) == 6
    assert len(ledger.read().releases) == 3
    return written


def refuses(ledger: Ledger, data: bytes, number: int, why: str = "") -> None:
    ledger.path.write_bytes(data)
    anchored = ledger.head_path.read_bytes() if ledger.head_path.exists() else None
    pattern = f"^{re.escape(str(ledger.path))}, line {number}: .*{why}.*restore the newest copy of the ledger\\.$"
    with pytest.raises(BadInput, match=pattern):
        ledger.read()
    with pytest.raises(BadInput, match=pattern):
        charge(ledger, Gaussian(4.0))
    assert ledger.path.read_bytes() == data
    assert (ledger.head_path.read_bytes() if ledger.head_path.exists() else None) == anchored


@pytest.mark.parametrize("number", [1, 2, 5, 6])
@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(lambda line, at: line[:at] + bytes([line[at] ^ 1]) + line[at + 1 :], id="flipped"),
        pytest.param(lambda line, at: line[:at] + b" " + line[at:], id="inserted"),
        pytest.param(lambda line, at: line[:at] + b"\n" + line[at:], id="split"),
        pytest.param(lambda line, at: line[:at] + line[at + 1 :], id="deleted"),
    ],
)
def test_every_changed_byte_is_noticed(ledger: Ledger, lines: list[bytes], number: int, changed: object) -> None:
    assert callable(changed)
    before, line, after = b"".join(lines[: number - 1]), lines[number - 1], b"".join(lines[number:])
    for at in range(len(line) - 1):
        if changed(line, at) != line:
            refuses(ledger, before + changed(line, at) + after, number, "changed after it was written")


@pytest.mark.parametrize("at", [2, 3])
def test_an_interrupted_line_and_its_repair_cannot_be_changed_either(
    ledger: Ledger, lines: list[bytes], at: int
) -> None:
    for place in range(len(lines[at])):
        changed = lines[at][:place] + bytes([lines[at][place] ^ 1]) + lines[at][place + 1 :]
        refuses(ledger, b"".join([*lines[:at], changed, *lines[at + 1 :]]), 3, "changed after it was written")


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("end", [b"\x0b", b" \n", b"\r\n"])
def test_a_damaged_end_of_line_is_noticed(ledger: Ledger, lines: list[bytes], number: int, end: bytes) -> None:
    ended = [*lines[: number - 1], lines[number - 1][:-1] + end, *lines[number:]]
    refuses(ledger, b"".join(ended), 3 if number == 4 else number)


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6])
def test_a_removed_line_is_noticed(ledger: Ledger, lines: list[bytes], number: int) -> None:
    remaining = lines[: number - 1] + lines[number:]
    refuses(ledger, b"".join(remaining), 3 if number == 4 else number)


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_exchanged_lines_are_noticed(ledger: Ledger, lines: list[bytes], number: int) -> None:
    lines[number - 1 : number + 1] = lines[number], lines[number - 1]
    refuses(ledger, b"".join(lines), 3 if number == 4 else number)


@pytest.mark.parametrize("number", [1, 2, 3, 5, 6])
def test_a_repeated_line_is_noticed(ledger: Ledger, lines: list[bytes], number: int) -> None:
    lines.insert(number, lines[number - 1])
    refuses(ledger, b"".join(lines), 3 if number == 3 else number + 1)


@pytest.mark.parametrize("number", [1, 2, 5, 6])
def test_a_forged_line_is_noticed_by_the_next_or_the_anchor(ledger: Ledger, lines: list[bytes], number: int) -> None:
    entry = json.loads(lines[number - 1])
    del entry["checksum"]
    lines[number - 1] = sealed(entry | {"unit": "word"})
    refuses(ledger, b"".join(lines), min(number + 1, 6))


def test_the_last_line_cannot_be_changed_and_passed_off_as_interrupted(ledger: Ledger, lines: list[bytes]) -> None:
    changed = lines[5].replace(b'"noise_multiplier": 1.0', b'"noise_multiplier": 9.0')
    assert changed != lines[5]
    for end in (b"", b"\n", b"x", b"\n\n"):
        refuses(ledger, b"".join(lines[:5]) + changed.rstrip(b"\n") + end, 6, "changed after it was written")


# A lost end


@pytest.mark.parametrize("left", range(6))
def test_lines_cut_off_the_end_are_noticed(ledger: Ledger, lines: list[bytes], left: int) -> None:
    refuses(ledger, b"".join(lines[:left]), 6, "says that this line was written, but it is missing; ")


def test_a_last_line_cut_short_anywhere_is_noticed(ledger: Ledger, lines: list[bytes]) -> None:
    before, last = b"".join(lines[:5]), lines[5]
    for size in range(1, len(last)):
        refuses(ledger, before + last[:size], 6, "says that this line was written, but it is cut short; ")


def test_a_line_cut_short_further_up_is_noticed(ledger: Ledger, lines: list[bytes]) -> None:
    for size in range(1, len(lines[4]), 50):
        refuses(
            ledger, b"".join(lines[:4]) + lines[4][:size], 6, "says that this line was written, but it is missing; "
        )


def test_an_anchored_line_cannot_be_passed_off_as_interrupted(tmp_path: Path) -> None:
    """Not even with the repair that a crash would have brought about."""
    ledger, other = Ledger(tmp_path / "corpus.ledger"), Ledger(tmp_path / "other.ledger")
    charge(ledger, Gaussian(4.0))
    start, anchored = len(ledger.path.read_bytes()), ledger.head_path.read_bytes()
    charge(ledger, Gaussian(3.0))
    interrupt(other, ledger.path.read_bytes()[: start + 50], anchored)
    charge(other, Gaussian(2.0))
    refuses(ledger, other.path.read_bytes(), 2, "says that this line was written, but another stands in its place; ")


def test_an_older_copy_is_noticed_at_every_later_time(ledger: Ledger) -> None:
    copies = [b""]
    for z in (4.0, 3.0, 2.0, 1.0):
        charge(ledger, Gaussian(z))
        now = ledger.path.read_bytes()
        for copy in copies:
            refuses(ledger, copy, len(copies), "but it is missing; ")
        ledger.path.write_bytes(now)
        copies.append(now)
    assert len(ids(ledger)) == 4


def test_an_older_copy_that_was_continued_elsewhere_is_noticed(tmp_path: Path) -> None:
    ledger, other = Ledger(tmp_path / "corpus.ledger"), Ledger(tmp_path / "other.ledger")
    charge(ledger, Gaussian(4.0))
    interrupt(other, ledger.path.read_bytes(), ledger.head_path.read_bytes())
    charge(ledger, Gaussian(1.0))
    for _ in range(2):
        charge(other, Gaussian(9.0))
        refuses(ledger, other.path.read_bytes(), 2, "but another stands in its place; ")


def test_a_deleted_ledger_is_noticed(ledger: Ledger, lines: list[bytes]) -> None:
    ledger.path.unlink()
    message = re.escape(f"{ledger.path}, line 6: {ledger.head_path.name} says that this line was written, but it is ")
    for _ in range(2):
        with pytest.raises(BadInput, match=f"^{message}missing; restore the newest copy of the ledger\\.$"):
            ledger.read()
        with pytest.raises(BadInput, match=f"^{message}missing; restore the newest copy of the ledger\\.$"):
            charge(ledger, Gaussian(4.0))
    assert ledger.head_path.read_bytes() == anchor_of(b"".join(lines))


def test_a_ledger_that_another_process_starts_meanwhile_is_not_taken_for_a_deleted_one(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_now = Path.open

    def too_early(path: Path, *arguments: Any, **options: Any) -> Any:
        if path == ledger.path and arguments == ("rb",):
            charge(ledger, Gaussian(4.0))
            raise FileNotFoundError
        return open_now(path, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", too_early)
        assert ledger.read().releases == ()
    assert len(ids(ledger)) == 1


def test_the_anchor_is_read_while_no_writer_can_change_it(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    charge(ledger, Gaussian(4.0))
    locked, read_now = list[bool](), Path.read_bytes

    def watched(path: Path) -> bytes:
        with ledger.path.open("rb") as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                locked.append(True)
            else:
                locked.append(False)
        return read_now(path)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", watched)
        ledger.read()
    assert locked[-1]


def test_a_missing_anchor_is_reported_until_the_next_line(ledger: Ledger, lines: list[bytes]) -> None:
    ledger.head_path.unlink()
    contents = ledger.read()
    assert len(contents.releases) == 3
    assert contents.warnings[1:] == (
        f"{ledger.head_path}: it is missing, so that lines lost from the end of the ledger would go unnoticed; compare "
        "the ledger with its newest copy before the next line brings this file back.",
    )
    refuses(ledger, b"".join([*lines[:4], lines[5]]), 5, "lines before it were removed")
    ledger.path.write_bytes(b"".join(lines))
    charge(ledger, Gaussian(4.0))
    assert ledger.read().warnings == contents.warnings[:1]
    assert_anchored(ledger)


def test_an_anchor_that_cannot_be_read_is_named(ledger: Ledger) -> None:
    charge(ledger, Gaussian(4.0))
    ledger.head_path.unlink()
    ledger.head_path.mkdir()
    with pytest.raises(BadInput, match=rf"{re.escape(str(ledger.head_path))}: it cannot be read \(Is a directory\)"):
        ledger.read()


def test_an_empty_ledger_needs_no_anchor(ledger: Ledger) -> None:
    ledger.path.touch()
    assert ledger.read().warnings == ()
    charge(ledger, Gaussian(4.0))
    assert_anchored(ledger)


_HASH = b"5e" * 32


@pytest.mark.parametrize(
    "anchor",
    [
        b"",
        b"\n",
        b"1\n",
        _HASH + b"\n",
        b"1 " + _HASH,
        b"1 " + _HASH + b"\r\n",
        b"1 " + _HASH + b"\n\n",
        b"1 " + _HASH[:-1] + b"\n",
        b"1 " + _HASH.upper() + b"\n",
        b"0 " + _HASH + b"\n",
        b"-1 " + _HASH + b"\n",
        b"9" * 5000 + b" " + _HASH + b"\n",
        b"\xff",
    ],
)
def test_a_malformed_anchor_is_named(ledger: Ledger, anchor: bytes) -> None:
    charge(ledger, Gaussian(4.0))
    before = ledger.path.read_bytes()
    ledger.head_path.write_bytes(anchor)
    pattern = re.escape(
        f"{ledger.head_path}: it must be one line, the number of lines in the ledger and the SHA-256 of the last; "
        "restore the newest copy of it, or delete it if the ledger is known to be complete."
    )
    with pytest.raises(BadInput, match=f"^{pattern}$"):
        ledger.read()
    with pytest.raises(BadInput, match=f"^{pattern}$"):
        charge(ledger, Gaussian(4.0))
    assert (ledger.path.read_bytes(), ledger.head_path.read_bytes()) == (before, anchor)


def test_every_changed_byte_of_the_anchor_is_noticed(ledger: Ledger, lines: list[bytes]) -> None:
    anchor = ledger.head_path.read_bytes()
    assert anchor == anchor_of(b"".join(lines))
    for at in range(len(anchor)):
        ledger.head_path.write_bytes(anchor[:at] + bytes([anchor[at] ^ 1]) + anchor[at + 1 :])
        with pytest.raises(BadInput):
            ledger.read()


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_whoever_may_read_the_ledger_may_read_its_anchor(ledger: Ledger, mode: int) -> None:
    ledger.path.touch()
    ledger.path.chmod(mode)
    charge(ledger, Gaussian(4.0))
    assert ledger.head_path.stat().st_mode & 0o777 == mode


# Lines that no ledger writes


def test_a_line_that_is_not_json_is_named(ledger: Ledger) -> None:
    body = b'{"version": 1, oops}'
    seal = b', "checksum": "' + hashlib.sha256(body).hexdigest().encode() + b'"}\n'
    refuses(ledger, body[:-1] + seal, 1, "changed after it was written")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, r"line 1: version = 2, but this dpnlp reads ledgers of version 1; use a newer one\."),
        (
            {"kind": "repair"},
            r"line 1: this repair line cannot be read \(its kind must be release or budget\); restore",
        ),
        ({"unit": "planet"}, r"line 1: this release line cannot be read \('planet' is not a valid Unit\); restore"),
        ({"event": {"event": "magic"}}, r"line 1: this release line cannot be read \(event = .*magic.*\); restore"),
        ({"colour": "red"}, r"line 1: this release line cannot be read \(.*colour.*\); restore"),
    ],
)
def test_a_line_that_is_not_of_this_format_is_named(ledger: Ledger, change: dict[str, object], message: str) -> None:
    charge(ledger, Gaussian(4.0))
    entry = json.loads(ledger.path.read_bytes())
    del entry["checksum"]
    ledger.path.write_bytes(sealed(entry | change))
    with pytest.raises(BadInput, match=message):
        ledger.read()


def test_records_cannot_be_changed_in_memory(ledger: Ledger) -> None:
    charge(ledger, Gaussian(4.0))
    ledger.set_budget(5.0, DELTA, Unit.EXAMPLE, ADD_REMOVE)
    contents = ledger.read()
    (release,), budget, spent = contents.releases, contents.budget, contents.spent()
    assert (type(release), type(budget), type(spent)) == (Release, Budget, Spent)
    for record in (release, budget, spent, contents):
        for field in fields(record):
            with pytest.raises(FrozenInstanceError):
                setattr(record, field.name, getattr(record, field.name))


# A run that is resumed


RUN = "0123456789abcdef"


def test_a_run_is_charged_once_however_often_it_starts(ledger: Ledger) -> None:
    for _ in range(3):
        assert ledger.charge("run", Gaussian(4.0), Unit.EXAMPLE, ADD_REMOVE, PRINT, RUN) == RUN
    other = charge(ledger, Gaussian(4.0))
    assert ids(ledger) == [RUN, other]
    assert ledger.spent(DELTA).epsilon == pld.epsilon(Repeated(Gaussian(4.0), 2), DELTA, ADD_REMOVE)
    assert_anchored(ledger)


def test_a_run_that_starts_again_writes_nothing(ledger: Ledger) -> None:
    ledger.charge("run", Gaussian(4.0), Unit.EXAMPLE, ADD_REMOVE, PRINT, RUN)
    charge(ledger, Gaussian(4.0))
    before = ledger.path.read_bytes(), ledger.head_path.read_bytes()
    ledger.charge("run", Gaussian(4.0), Unit.EXAMPLE, ADD_REMOVE, PRINT, RUN)
    assert (ledger.path.read_bytes(), ledger.head_path.read_bytes()) == before


@pytest.mark.parametrize(
    "other",
    [
        ("another", Gaussian(4.0), Unit.EXAMPLE, ADD_REMOVE, PRINT),
        ("run", Gaussian(3.0), Unit.EXAMPLE, ADD_REMOVE, PRINT),
        ("run", Repeated(Gaussian(4.0), 2), Unit.EXAMPLE, ADD_REMOVE, PRINT),
        ("run", Gaussian(4.0), Unit.USER, ADD_REMOVE, PRINT),
        ("run", Gaussian(4.0), Unit.EXAMPLE, REPLACE, PRINT),
        ("run", Gaussian(4.0), Unit.EXAMPLE, ADD_REMOVE, "cd" * 32),
    ],
    ids=["name", "noise", "steps", "unit", "adjacency", "data"],
)
def test_a_run_cannot_become_another_one(ledger: Ledger, other: tuple[str, Event, Unit, Adjacency, str]) -> None:
    ledger.charge("run", Gaussian(4.0), Unit.EXAMPLE, ADD_REMOVE, PRINT, RUN)
    before = ledger.path.read_bytes()
    with pytest.raises(BadInput) as refusal:
        ledger.charge(*other, RUN)
    assert str(refusal.value) == (
        f"{ledger.path}: release {RUN} is charged already, but for something else; start another run instead of "
        "resuming this one."
    )
    assert ledger.path.read_bytes() == before


def test_a_run_may_start_again_though_it_used_up_the_budget(ledger: Ledger) -> None:
    ledger.set_budget(pld.epsilon(Gaussian(4.0), DELTA, ADD_REMOVE), DELTA, Unit.EXAMPLE, ADD_REMOVE)
    for _ in range(2):
        ledger.charge("run", Gaussian(4.0), Unit.EXAMPLE, ADD_REMOVE, PRINT, RUN)
    with pytest.raises(BudgetExceeded):
        charge(ledger, Gaussian(50.0))
    ledger.set_budget(0.01, DELTA, Unit.EXAMPLE, ADD_REMOVE)
    ledger.charge("run", Gaussian(4.0), Unit.EXAMPLE, ADD_REMOVE, PRINT, RUN)
    assert ids(ledger) == [RUN]


@pytest.mark.parametrize("size", [1, 60, -1])
def test_a_run_whose_line_was_interrupted_is_charged_once(ledger: Ledger, size: int) -> None:
    charge(ledger, Gaussian(8.0))
    start, anchored = len(ledger.path.read_bytes()), ledger.head_path.read_bytes()
    ledger.charge("run", Gaussian(4.0), Unit.EXAMPLE, ADD_REMOVE, PRINT, RUN)
    whole = ledger.path.read_bytes()
    interrupt(ledger, whole[:size] if size < 0 else whole[: start + size], anchored)
    for _ in range(2):
        ledger.charge("run", Gaussian(4.0), Unit.EXAMPLE, ADD_REMOVE, PRINT, RUN)
    assert ids(ledger).count(RUN) == 1
    assert [release.event for release in ledger.read().releases] == [Gaussian(8.0), Gaussian(4.0)]


_SAME_RUN = _RACER.replace("Adjacency.ADD_REMOVE, state)", f'Adjacency.ADD_REMOVE, state, "{RUN}")')


def test_processes_that_race_with_one_run_record_it_once(ledger: Ledger, dataset: Path) -> None:
    assert RUN in _SAME_RUN
    ledger.set_budget(pld.epsilon(Gaussian(8.0), DELTA, ADD_REMOVE), DELTA, Unit.EXAMPLE, ADD_REMOVE)
    answers = race(dataset, _SAME_RUN)
    assert answers == [RUN] * 20
    assert ids(ledger) == [RUN]
    assert_anchored(ledger)


def test_users_by_one_column_are_not_users_by_another(ledger: Ledger) -> None:
    """Each alone, for both together nothing but what both protect: the example, under replace."""
    for owner in ("author", "row", "author"):
        release = Release.now(None, f"by {owner}", Gaussian(4.0), Unit.USER, ADD_REMOVE, owner)
        ledger.enter(release)
    contents = ledger.read()
    assert [release.owner for release in contents.releases] == ["author", "row", "author"]
    assert (contents.unit, contents.owner) == (Unit.EXAMPLE, "")
    together = contents.spent(DELTA)
    assert together.epsilon == pytest.approx(pld.epsilon(Composed((Gaussian(4.0),) * 3), DELTA, REPLACE))
    assert together.whose == "example"
    assert contents.spent(DELTA, Unit.USER, owner="author").reasons == (
        f"{contents.releases[1]} protects one user by row and promises nothing for one user by author.",
    )
    alike = replace(contents, releases=contents.releases[::2])
    assert (alike.unit, alike.owner, alike.spent(DELTA).whose) == (Unit.USER, "author", "user by author")
    assert alike.spent(DELTA).epsilon == pytest.approx(pld.epsilon(Composed((Gaussian(4.0),) * 2), DELTA, ADD_REMOVE))
    ledger.set_budget(2.0, DELTA, Unit.USER, ADD_REMOVE, "author")
    with pytest.raises(BudgetExceeded, match="for one user by author under add-remove"):
        ledger.enter(Release.now(None, "more", Gaussian(4.0), Unit.USER, ADD_REMOVE, "author"))
