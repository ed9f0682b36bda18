"""Hard cases against plain sets: which mistakes of one run others make again."""

import math
import tempfile
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.runs.hard_cases import hard_cases, with_hard_cases
from dpnlp.runs.tables import Table

from .fakes import fake

CLASSES = ("theory", "rules", "cases")
ANSWERS = st.lists(st.tuples(*[st.sampled_from(CLASSES)] * 4), min_size=1, max_size=12)


def answered(path, references, hypotheses, split="test", **about):
    """A run with these answers for nodes a, b, and so on."""
    run = fake(path, **about)
    pairs = enumerate(zip(references, hypotheses, strict=True))
    run.write_predictions(
        split, [{"source": f"node {n}", "reference": right, "hypothesis": said} for n, (right, said) in pairs]
    )
    return run


def wrong(references, hypotheses):
    """The places of the mistakes, as a set."""
    return {n for n, right in enumerate(references) if hypotheses[n] != right}


@settings(max_examples=15, deadline=None)
@given(ANSWERS)
def test_the_share_is_that_of_the_sets_of_mistakes(answers):
    right, base, first, second = zip(*answers, strict=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        of = answered(path / "open", right, base, epsilon=math.inf)
        runs = [answered(path / f"seed-{n}", right, said, seed=n) for n, said in enumerate((first, second))]
        hard = wrong(right, base)
        if not hard:
            with pytest.raises(BadInput, match="none of its answers is wrong"):
                with_hard_cases(Table.of(runs), of)
            return
        assert hard_cases(of) == ("test", sorted(hard))
        table = with_hard_cases(Table.of(runs), of)
    (row,) = table.rows
    shares = [Fraction(len(wrong(right, said) & hard), len(hard)) for said in (first, second)]
    assert row.scores["hard_cases"].mean == pytest.approx(float(sum(shares) / 2))
    assert row.scores["hard_cases"].count == 2
    assert table.columns[-1] == "hard cases"


def test_the_run_itself_makes_all_of_them_and_the_note_says_whose_they_are(tmp_path):
    of = answered(tmp_path / "open", CLASSES, ("theory", "cases", "rules"), epsilon=math.inf)
    table = with_hard_cases(Table.of([of]), of)
    assert table.rows[0].scores["hard_cases"].mean == 1
    assert table.notes[-1] == "Hard cases: the share of the 2 mistakes of open on test that are made again."


@pytest.mark.parametrize("references", [CLASSES[::-1], CLASSES[:2]])
def test_answers_for_other_cases_are_refused(tmp_path, references):
    of = answered(tmp_path / "open", CLASSES, ["rules"] * 3)
    other = answered(tmp_path / "other", references, references)
    said = rf"other: its {len(references)} answers for test are not for the same cases as those of .*open; compare"
    with pytest.raises(BadInput, match=said):
        with_hard_cases(Table.of([other]), of)


def test_a_run_without_answers_has_no_hard_cases(tmp_path):
    run = fake(tmp_path / "run")
    run.write_predictions("test", [])
    with pytest.raises(BadInput, match=r"--hard-cases = .*run: there are no answers in it, so that no case is hard"):
        hard_cases(run)
