"""Whether models fail on the same cases (thesis 3.6.5).

The hard cases are those that one run, the network without privacy and with all data, gets wrong. Of another run the
share of these that it gets wrong, too, is |wrong ∩ hard| / |hard|. A share that stays high says that it is the data
which are hard; one that falls while the scores fall says that the mistakes become random.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpnlp.checks import BadInput
from dpnlp.runs.folder import Run
from dpnlp.runs.tables import Spread, Table, scores

SCORE = "hard_cases"
"""What the share is called among the scores of a table."""


def hard_cases(run: Run) -> tuple[str, list[int]]:
    """The split that the run is judged by, the test data where there are any, and which of its answers are wrong."""
    split = next((found.split for found in scores(run) if found.after), "")
    answers = run.predictions(split) if split else []
    wrong = [place for place, line in enumerate(answers) if _is_wrong(line)]
    if not wrong:
        why = "none of its answers is wrong" if answers else "there are no answers in it"
        raise BadInput(f"--hard-cases = {run.path}: {why}, so that no case is hard; give another run.")
    return split, wrong


def share(run: Run, split: str, hard: Sequence[int], of: Run) -> float:
    """The share of the hard cases, which are those of another run on this split, that the run gets wrong, too."""
    answers, theirs = run.predictions(split), of.predictions(split)
    if [_case(line) for line in answers] != [_case(line) for line in theirs]:
        raise BadInput(
            f"{run.path}: its {len(answers)} answers for {split} are not for the same cases as those of {of.path}; "
            "compare runs with the same data held out."
        )
    return sum(_is_wrong(answers[place]) for place in hard) / len(hard)


def with_hard_cases(table: Table, of: Run) -> Table:
    """The table with one more score: the share of the hard cases of a run that each row gets wrong, too."""
    split, hard = hard_cases(of)
    rows = tuple(
        replace(row, scores={**row.scores, SCORE: Spread.of([share(run, split, hard, of) for run in row.runs])})
        for row in table.rows
    )
    note = f"Hard cases: the share of the {len(hard):,} mistakes of {of.name} on {split} that are made again."
    return replace(table, rows=rows, scores=(*table.scores, SCORE), notes=(*table.notes, note))


def _case(line: Mapping[str, Any]) -> tuple[Any, Any]:
    return line.get("source"), line.get("reference")


def _is_wrong(line: Mapping[str, Any]) -> bool:
    return bool(line.get("hypothesis") != line.get("reference"))
