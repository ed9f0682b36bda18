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
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp.accounting import pld
from dpnlp.accounting.ledger import Budget, BudgetExceeded, Ledger, Release, fingerprint
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


@settings(max_examples=50, deadline=None)
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
    assert ledger.spent(DELTA).epsilon == 0
    assert not ledger.path.exists()


def test_the_ledger_is_beside_the_data(tmp_path: Path, dataset: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "other.jsonl").symlink_to(dataset)
    assert Ledger.beside(dataset).path == tmp_path.resolve() / "corpus.jsonl.ledger"
    assert Ledger.beside(f"{tmp_path}/corpus/").path == tmp_path.resolve() / "corpus.ledger"
    assert Ledger.beside(tmp_path / "other.jsonl") == Ledger.beside(dataset)


@pytest.mark.parametrize("use", [Ledger.beside, fingerprint])
def test_a_missing_data_set_is_named(tmp_path: Path, use: object) -> None:
    assert callable(use)
    with pytest.raises(BadInput, match=r"^dataset = .*absent: there is no such file or directory; check the path\.$"):
        use(tmp_path / "absent")
    assert list(tmp_path.iterdir()) == []


def test_a_release_is_on_the_disk_before_its_run_starts(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    charge(ledger, Gaussian(4.0))
    file, folder = ledger.path.stat().st_ino, ledger.path.parent.stat().st_ino
    assert synced == [file, folder]
    charge(ledger, Gaussian(4.0))
    assert synced == [file, folder, file]


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
    ],
)
def test_the_default_unit_is_the_largest_that_all_protect(ledger: Ledger, units: list[Unit], largest: Unit) -> None:
    for unit in units:
        charge(ledger, Gaussian(4.0), unit=unit)
    spent = ledger.spent(DELTA)
    assert spent.unit is largest
    assert spent.epsilon == pld.epsilon(Repeated(Gaussian(4.0), len(units)), DELTA, ADD_REMOVE)


def test_no_unit_in_common_is_reported(ledger: Ledger) -> None:
    charge(ledger, Gaussian(4.0), unit=Unit.USER)
    charge(ledger, Gaussian(4.0), unit=Unit.GRAPH)
    spent = ledger.spent(DELTA)
    assert (spent.epsilon, spent.unit) == (math.inf, None)
    assert spent.reasons == ("The releases protect no unit in common, but graph, user.",)


@pytest.mark.parametrize("made_for", Unit)
@pytest.mark.parametrize("asked", Unit)
def test_a_release_counts_only_for_what_it_protects(ledger: Ledger, made_for: Unit, asked: Unit) -> None:
    charge(ledger, Gaussian(4.0), unit=Unit.GRAPH if asked in (Unit.NODE, Unit.GRAPH) else Unit.USER)
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
        (NonPrivate(), ADD_REMOVE, f"no finite ε holds at δ = {DELTA}."),
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
        (NonPrivate(), Unit.USER, ADD_REMOVE, r"\(run\): no finite ε holds at δ = 1e-06\)"),
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
from dpnlp.accounting.ledger import BudgetExceeded, Ledger, fingerprint
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
"""


def test_racing_processes_never_exceed_the_budget_together(ledger: Ledger, dataset: Path) -> None:
    limit = pld.epsilon(Repeated(Gaussian(8.0), 13), DELTA, ADD_REMOVE)
    ledger.set_budget(limit, DELTA, Unit.EXAMPLE, ADD_REMOVE)
    ready = [dataset.with_name(f"ready{n}") for n in range(4)]
    racers = [
        subprocess.Popen([sys.executable, "-c", _RACER, dataset, path], stdout=subprocess.PIPE, text=True)
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
    assert (len(answers), answers.count("refused")) == (20, 7)
    assert sorted(ids(ledger)) == sorted(answer for answer in answers if answer != "refused")
    assert ledger.spent().epsilon == limit


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
    start = len(ledger.path.read_bytes())
    last = charge(ledger, Gaussian(3.0), what='a "}" in the name')
    whole = ledger.path.read_bytes()
    for size in range(start + 1, len(whole)):
        ledger.path.write_bytes(whole[:size])
        kept = [first, last] if size == len(whole) - 1 else [first]
        assert ids(ledger) == kept
        (warning,) = ledger.read().warnings
        assert warning.startswith(f"{ledger.path}, line 2: its writing was interrupted, ")
        kept.append(charge(ledger, Gaussian(2.0)))
        kept.append(charge(ledger, Gaussian(1.0)))
        assert ids(ledger) == kept
        assert ledger.path.read_bytes().startswith(whole[:size]), "a ledger is only ever appended to"
        assert ledger.read().warnings == (() if size == len(whole) - 1 else (warning,))


def test_an_interrupted_repair_is_completed(ledger: Ledger) -> None:
    first = charge(ledger, Gaussian(4.0))
    start = len(ledger.path.read_bytes())
    charge(ledger, Gaussian(3.0))
    torn = ledger.path.read_bytes()[: start + 50]
    ledger.path.write_bytes(torn)
    second = charge(ledger, Gaussian(2.0))
    whole = ledger.path.read_bytes()
    assert json.loads(whole.splitlines()[2])["sha256"] == hashlib.sha256(torn[start:]).hexdigest()
    for size in range(len(torn), len(whole)):
        ledger.path.write_bytes(whole[:size])
        kept = [first, second] if size == len(whole) - 1 else [first]
        assert ids(ledger) == kept
        kept.append(charge(ledger, Gaussian(1.0)))
        assert ids(ledger) == kept
        assert ledger.path.read_bytes().startswith(whole[:size])
        assert f"{ledger.path}, line 2: its writing was interrupted, " in ledger.read().warnings[0]


def test_a_refusal_leaves_an_interrupted_line_as_it_is(ledger: Ledger) -> None:
    ledger.set_budget(1.0, DELTA, Unit.EXAMPLE, ADD_REMOVE)
    charge(ledger, Gaussian(50.0))
    ledger.path.write_bytes(ledger.path.read_bytes()[:-20])
    before = ledger.path.read_bytes()
    with pytest.raises(BudgetExceeded):
        charge(ledger, Gaussian(0.1))
    assert ledger.path.read_bytes() == before


def test_a_full_disk_is_an_error_and_can_be_recovered_from(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    first = charge(ledger, Gaussian(4.0))
    with monkeypatch.context() as patched:
        write = os.write
        patched.setattr(os, "write", lambda file, data: write(file, data[:40]))
        with pytest.raises(BadInput, match=r"ledger: only 40 of \d+ bytes could be written; make room on the disk\.$"):
            charge(ledger, Gaussian(4.0))
    assert ids(ledger) == [first]
    assert len(ledger.read().warnings) == 1
    second = charge(ledger, Gaussian(4.0))
    assert ids(ledger) == [first, second]


# Changed files


@pytest.fixture
def lines(ledger: Ledger) -> list[bytes]:
    """A budget, a release, an interrupted line, its repair, and two more releases."""
    ledger.set_budget(math.inf, DELTA, Unit.EXAMPLE, ADD_REMOVE)
    charge(ledger, Gaussian(4.0))
    charge(ledger, Gaussian(3.0))
    ledger.path.write_bytes(ledger.path.read_bytes()[:-100])
    charge(ledger, Gaussian(2.0))
    charge(ledger, Gaussian(1.0))
    written = ledger.path.read_bytes().splitlines(keepends=True)
    assert len(written) == 6
    assert len(ledger.read().releases) == 3
    return written


def refuses(ledger: Ledger, data: bytes, number: int, why: str = "") -> None:
    ledger.path.write_bytes(data)
    pattern = f"^{re.escape(str(ledger.path))}, line {number}: .*{why}.*restore the newest copy of the ledger\\.$"
    with pytest.raises(BadInput, match=pattern):
        ledger.read()
    with pytest.raises(BadInput, match=pattern):
        charge(ledger, Gaussian(4.0))
    assert ledger.path.read_bytes() == data


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


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
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


@pytest.mark.parametrize("number", [1, 2, 5])
def test_a_forged_line_is_noticed_by_the_next(ledger: Ledger, lines: list[bytes], number: int) -> None:
    entry = json.loads(lines[number - 1])
    del entry["checksum"]
    lines[number - 1] = sealed(entry | {"unit": "word"})
    refuses(ledger, b"".join(lines), number + 1)


def test_the_last_line_cannot_be_changed_and_passed_off_as_interrupted(ledger: Ledger, lines: list[bytes]) -> None:
    changed = lines[5].replace(b'"noise_multiplier": 1.0', b'"noise_multiplier": 9.0')
    assert changed != lines[5]
    for end in (b"", b"\n", b"x", b"\n\n"):
        refuses(ledger, b"".join(lines[:5]) + changed.rstrip(b"\n") + end, 6, "changed after it was written")


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
    (release,) = ledger.read().releases
    assert isinstance(release, Release)
    with pytest.raises(AttributeError):
        release.unit = Unit.WORD  # type: ignore[misc]


# The fingerprint


def fill(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


_FILES = st.dictionaries(
    st.sampled_from(["a", "b", "ab", "d/a", "d/b", "da"]), st.sampled_from([b"", b"a", b"ba", b"b"])
)


@settings(max_examples=50, deadline=None)
@given(_FILES, _FILES)
def test_two_directories_have_one_fingerprint_only_if_they_are_equal(
    one: dict[str, bytes], other: dict[str, bytes]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "first"), Path(folder, "second")
        for path, files in ((first, one), (second, other)):
            path.mkdir()
            fill(path, files)
            Path(folder, f"{path.name}.ledger.key").write_bytes(bytes(range(32)))
        assert (fingerprint(first) == fingerprint(second)) == (one == other)


def test_a_fingerprint_follows_the_content(dataset: Path) -> None:
    before = fingerprint(dataset)
    assert fingerprint(dataset) == before
    assert re.fullmatch("[0-9a-f]{64}", before)
    content = dataset.read_bytes()
    dataset.write_bytes(content + b" ")
    assert fingerprint(dataset) != before
    dataset.write_bytes(content)
    assert fingerprint(dataset) == before


def test_the_order_of_the_file_system_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = fill(tmp_path / "corpus", {name: name.encode() for name in ("c", "a", "b/d", "b/c")})
    before = fingerprint(corpus)
    listed = Path.rglob
    monkeypatch.setattr(Path, "rglob", lambda path, pattern: sorted(listed(path, pattern), reverse=True))
    assert fingerprint(corpus) == before


def test_ledgers_and_keys_are_no_part_of_the_data(tmp_path: Path) -> None:
    corpus = fill(tmp_path / "corpus", {"train.jsonl": b"x"})
    before = fingerprint(corpus)
    fingerprint(corpus / "train.jsonl")
    charge(Ledger.beside(corpus / "train.jsonl"), Gaussian(4.0))
    assert len(list(corpus.iterdir())) == 3
    assert fingerprint(corpus) == before


def test_the_key_is_a_secret_of_its_own(dataset: Path, ledger: Ledger) -> None:
    old = os.umask(0)
    try:
        value = fingerprint(dataset)
    finally:
        os.umask(old)
    ledger.charge("run", Gaussian(4.0), Unit.EXAMPLE, ADD_REMOVE, value)
    assert sorted(path.name for path in dataset.parent.iterdir()) == [
        "corpus.jsonl",
        "corpus.jsonl.ledger",
        "corpus.jsonl.ledger.key",
    ]
    assert ledger.key_path.stat().st_mode & 0o777 == 0o600
    key, content, written = ledger.key_path.read_bytes(), dataset.read_bytes(), ledger.path.read_bytes()
    assert len(key) == 32
    assert key not in written
    assert key.hex().encode() not in written
    for name in hashlib.algorithms_guaranteed - {"shake_128", "shake_256"}:
        assert hashlib.new(name, content).hexdigest()[:64].encode() not in written
    assert hashlib.blake2b(content, digest_size=32).hexdigest().encode() not in written
    ledger.key_path.unlink()
    assert fingerprint(dataset) != value


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_damaged_key_is_named(dataset: Path, ledger: Ledger, size: int) -> None:
    ledger.key_path.write_bytes(bytes(size))
    message = (
        f"ledger.key: the key has {size} bytes and must have 32; restore it from a copy, or delete it, after which "
    )
    with pytest.raises(BadInput, match=re.escape(message)):
        fingerprint(dataset)
    assert ledger.key_path.read_bytes() == bytes(size)


def test_of_two_keys_made_at_once_the_first_stays(
    dataset: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = bytes(range(32))

    def while_another_process_is_faster(size: int) -> bytes:
        ledger.key_path.write_bytes(first)
        return bytes(size)

    monkeypatch.setattr(os, "urandom", while_another_process_is_faster)
    assert fingerprint(dataset) == fingerprint(dataset)
    assert ledger.key_path.read_bytes() == first
    assert sorted(dataset.parent.iterdir()) == [dataset, ledger.key_path]
