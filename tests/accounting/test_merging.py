"""Releases that are taken for alike cost no less than they are, and little more; thousands are added to in a moment."""

import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp.accounting import pld
from dpnlp.accounting.ledger import Ledger, _seal, _sha256
from dpnlp.accounting.merging import EXACT, MOST, costlier, merged
from dpnlp.accounting.releases import Contents, Release
from dpnlp.events import (
    ApproximateDP,
    Composed,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
)
from dpnlp.guarantee import Adjacency, Unit

SOME = st.floats(0.3, 20)
ATOMS = st.one_of(
    SOME.map(Laplace),
    SOME.map(RandomizedResponse),
    st.builds(ApproximateDP, SOME, st.floats(0, 1e-3)),
    st.builds(PoissonSampled, st.floats(1e-3, 1), SOME.map(Gaussian)),
    st.builds(PoissonSampled, st.floats(1e-3, 1), SOME.map(Laplace)),
)


@settings(max_examples=40)
@given(ATOMS, st.sampled_from([2.0**-10, 0.05, 0.5, 1.0]), st.sampled_from([1e-6, 1e-2]))
def test_what_a_release_is_taken_for_costs_no_less(atom, width, delta):
    for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE):
        try:
            true = pld.epsilon(atom, delta, adjacency)
        except ValueError:
            continue  # no bound is known
        assert pld.epsilon(costlier(atom, width), delta, adjacency) >= true * (1 - 1e-3) - 1e-9


def releases(many):
    return [
        Release.now(f"{n:016x}", "a run", PoissonSampled(0.01, Gaussian(3 + (n * 0.37) % 2)), Unit.EXAMPLE, ADD_REMOVE)
        for n in range(many)
    ]


ADD_REMOVE = Adjacency.ADD_REMOVE


def test_few_unlike_releases_stay_as_they_are_and_many_become_few():
    for many in (EXACT, 200):
        atoms = Counter(release.event for release in releases(many))
        found = merged(atoms)
        assert (found == atoms) == (many == EXACT)
        assert found.total() == many
        assert len(found) <= (EXACT if many == EXACT else MOST)


@pytest.mark.parametrize(
    "unlike",
    [
        [Gaussian(20 + n * 0.37) for n in range(30)],
        [Gaussian(1e200), *(Gaussian(30 + n * 0.37) for n in range(30))],
        [FixedSizeSampled(10_000 + n, 10, Gaussian(4.0)) for n in range(30)],
    ],
)
def test_what_cannot_be_merged_makes_nothing_else_costlier(unlike):
    """Many releases with normal noise, or of unlike numbers of records, beside one that could be taken for another."""
    atoms = Counter({**dict.fromkeys(unlike, 3), PoissonSampled(0.01, Gaussian(1.0)): 300})
    adjacency = Adjacency.REPLACE if isinstance(unlike[-1], FixedSizeSampled) else ADD_REMOVE
    exact, found = (
        pld.epsilon(Composed(tuple(Repeated(atom, times) for atom, times in some.items())), 1e-6, adjacency)
        for some in (atoms, merged(atoms))
    )
    assert exact * (1 - 1e-9) <= found <= 1.02 * exact


def test_releases_that_are_nearly_alike_are_merged_no_further_than_that():
    atoms = Counter(Laplace(scale * (1 + 1e-9 * n)) for scale in (1.0, 2.0, 4.0) for n in range(10))
    for atom in merged(atoms):
        assert min(abs(atom.noise_multiplier / scale - 1) for scale in (1.0, 2.0, 4.0)) < 2.0**-9


def test_many_unlike_releases_cost_no_less_together_and_little_more():
    many = releases(60)
    exact = pld.epsilon(Composed(tuple(Repeated(one.event, 30) for one in many)), 1e-6, ADD_REMOVE)
    found = Contents(tuple(many) * 30).spent(1e-6).epsilon
    assert exact * 0.9999 <= found <= exact * 1.06


@pytest.mark.parametrize("budget", [100.0])
def test_a_ledger_of_ten_thousand_entries_takes_one_more_in_a_moment(tmp_path, budget):
    """And is as strict as ever: what exceeds the budget is refused, and a line that was changed is noticed."""
    ledger = Ledger(tmp_path / "corpus.ledger")
    ledger.set_budget(budget, 1e-6, Unit.EXAMPLE, ADD_REMOVE)
    lines = ledger.path.read_bytes().splitlines()
    for release in releases(10_000):
        lines.append(_seal(release, _sha256(lines[-1])))
    ledger.path.write_bytes(b"".join(line + b"\n" for line in lines))
    ledger.head_path.write_text(f"{len(lines)} {_sha256(lines[-1])}\n")
    started = time.process_time()
    ledger.charge("one more", PoissonSampled(0.01, Gaussian(3.3)), Unit.EXAMPLE, ADD_REMOVE, "ab")
    assert time.process_time() - started < 3  # of which a machine that is busy may need more than the one it needs
    assert len(ledger.read().releases) == 10_001
    whole = ledger.path.read_bytes()
    ledger.path.write_bytes(whole.replace(b"a run", b"b run", 1))
    with pytest.raises(ValueError, match="line 2: the line was changed"):
        ledger.read()
