"""What comes out again of the texts that a rewriter was made of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.rewriting.leakage import leakage

BEHIND = ["how many people fly on a turboprop", "show me the cheapest flight", "play my disney spring"]


def test_texts_that_come_out_whole():
    found = leakage(["Show me the  cheapest flight", "book a table for two"], BEHIND)
    assert found.whole == 0.5
    assert found.overlap == 2 / 4
    assert found.nearest[0].nearest == "show me the cheapest flight"
    assert found.nearest[0].alike == 1.0


def test_parts_of_them_and_the_nearest():
    (near,) = leakage(["how many people fly on after a turboprop airport"], BEHIND).nearest
    assert near.nearest == BEHIND[0]
    assert near.alike == 7 / 9
    assert leakage(["how many people fly on after a turboprop airport"], BEHIND).overlap == 2 / 6
    assert leakage(["nothing alike"], BEHIND).nearest[0].alike == 0.0


texts = st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=7).map(" ".join), min_size=1, max_size=6)


@given(texts, texts)
def test_against_a_loop(released, behind):
    def jaccard(one, two):
        return len({*one.split()} & {*two.split()}) / len({*one.split()} | {*two.split()})

    found = leakage(released, behind)
    best = [max(jaccard(one, two) for two in behind) for one in released]
    assert found.alike == pytest.approx(sum(best) / len(best))
    fours = [one.split()[i : i + 4] for one in released for i in range(len(one.split()) - 3)]
    known = [two.split()[i : i + 4] for two in behind for i in range(len(two.split()) - 3)]
    assert found.overlap == pytest.approx(sum(gram in known for gram in fours) / max(1, len(fours)))
    assert found.whole == pytest.approx(sum(one in behind for one in released) / len(released))


def test_nothing_to_compare_is_refused():
    with pytest.raises(BadInput, match="there must be a text on either side"):
        leakage([], BEHIND)
    with pytest.raises(BadInput, match="there must be a text on either side"):
        leakage(BEHIND, ["", " "])
