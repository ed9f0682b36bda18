"""Tables of many runs: those that differ in nothing but the seed are one row, with mean ± standard deviation.

The rows and columns are those of Table 3 of DP-NMT: what differs between the runs, the ε, and the scores.
"""

import csv
import io
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dpnlp.guarantee import round_up
from dpnlp.runs.folder import Run
from dpnlp.runs.privacy import composed, united

LABELS = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "bertscore": "BERTScore",
    "accuracy_top1": "AccuracyTop1",
    "perplexity": "perplexity",
    "macro_f1": "macro-F1",
    "f1": "F1",
    "entity_f1": "entity F1",
    "micro_f1": "micro-F1",
}
"""How scores are written; others keep the name that they have in metrics.jsonl."""

_NO_SCORE = {"step", "epsilon", "epoch", "seconds"}
_OF_ONE_RUN = {"seed", "name", "runs", "output", "resume", "cache", "folder", "ledger", "physical_batch"}
_OF_ONE_RUN |= {"checkpoint_every", "evaluate_every", "diagnostics", "json"}
"""Settings that are no part of what is compared: who runs it, where, and what changes speed and memory alone."""
_IN_THE_GUARANTEE = {"epsilon", "delta", "sampling", "unit", "adjacency", "noise_multiplier"}
"""Settings that are taken from the guarantee instead, which says what they came to."""
OF_THE_GUARANTEE = ("sampling", "unit", "neighbours", "δ")
"""What a table calls these."""
_FIRST = {"model.start": "model", "data.corpus": "corpus", "data.train": "data"}
_FIRST |= {name: name for name in OF_THE_GUARANTEE}
"""Settings that a table shows wherever they differ, and what it calls them; others only where rows need them."""


def label(score: str) -> str:
    """The name of a score for people."""
    return LABELS.get(score, score.replace("_", " "))


def cost(epsilon: float) -> str:
    """An ε for people, rounded up."""
    return "∞" if math.isinf(epsilon) else f"{round_up(epsilon, 5):,.10g}"


# One run


@dataclass(frozen=True)
class Scores:
    """What a run reached on one split; `before` and `after` training, each empty where it was not scored then."""

    split: str
    before: Mapping[str, float]
    after: Mapping[str, float]
    signatures: Mapping[str, str]


def scores(run: Run) -> list[Scores]:
    """The scores on every split, those on test data first."""
    rows = run.metrics()
    splits = sorted(
        {str(row.get("split", "")) for row in rows}, key=lambda split: (not split.startswith("test"), split)
    )
    found = []
    for split in splits:
        of_split = [row for row in rows if str(row.get("split", "")) == split]
        first: dict[str, Any] = next((row for row in of_split if row.get("step") == 0), {})
        last: dict[str, Any] = next((row for row in reversed(of_split) if row.get("step") != 0), {})
        signatures = {name: str(text) for name, text in (last or first).items() if name.endswith("_signature")}
        found.append(Scores(split, _numbers(first), _numbers(last), signatures))
    return found


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The scores in a line of metrics.jsonl, the known ones first."""
    numbers = {
        name: float(value)
        for name, value in row.items()
        if name not in _NO_SCORE and isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    return {name: numbers[name] for name in (*LABELS, *numbers) if name in numbers}


def settings(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """A nested config as one level of dotted names, with values as they would be typed."""
    flat: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= settings(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = _typed(value)
    return flat


def _typed(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(map(_typed, value)) or "none"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def budget(run: Run) -> float:
    """The ε that the run was made for, where it comes within 1 % of it; else the ε that it came to.

    Runs that were made for one ε come to slightly less, and not all to the same; what holds for less holds for it too.
    """
    reached, target = run.guarantee.epsilon, run.privacy.plan.get("target")
    return float(target) if target is not None and 0.99 * float(target) <= reached <= float(target) else reached


# Many runs


@dataclass(frozen=True)
class Spread:
    """A score over several seeds: the mean, and the standard deviation of a sample where there are several."""

    mean: float
    std: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Of at least one value."""
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.std is None else f"{self.mean:.2f} ± {self.std:.2f}"


@dataclass(frozen=True)
class Row:
    """The runs that differ in nothing but the seed."""

    settings: Mapping[str, str]
    epsilon: float
    scores: Mapping[str, Spread]
    runs: tuple[Run, ...]

    @cached_property
    def together(self) -> float:
        """The ε of all its runs composed: what the figures of the row cost where they learned from one data set."""
        if len(self.runs) == 1:
            return self.epsilon
        return composed(united(*(run.privacy.origins for run in self.runs))).epsilon


@dataclass(frozen=True)
class Table:
    """Rows that are told apart by their settings and ε. `notes` are what a reader must know before comparing."""

    rows: tuple[Row, ...]
    scores: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, runs: Iterable[Run]) -> "Table":
        """Groups the runs and averages their final scores, on test data where there are any."""
        groups: dict[tuple[tuple[tuple[str, str], ...], float], list[Run]] = {}
        for run in runs:
            groups.setdefault((tuple(sorted(_compared(run).items())), budget(run)), []).append(run)
        names = _columns([(dict(told_apart), epsilon) for told_apart, epsilon in groups])
        rows = []
        for (told_apart, epsilon), members in groups.items():
            found = [final.after for final in map(_final, members) if final]
            known = dict.fromkeys(name for after in found for name in after)
            spreads = {name: Spread.of([after[name] for after in found if name in after]) for name in known}
            shown = {called: dict(told_apart).get(name, "none") for name, called in names.items()}
            rows.append(Row(shown, epsilon, spreads, tuple(members)))
        rows.sort(key=_order)
        return cls(tuple(rows), tuple(dict.fromkeys(name for row in rows for name in row.scores)), _notes(groups))

    @property
    def columns(self) -> list[str]:
        """The heads: what differs, ε of one run, how many runs, what several cost together, the scores."""
        return [*self._settings, "ε", "runs", *(["ε together"] if self._averages else []), *map(label, self.scores)]

    @property
    def _averages(self) -> bool:
        """Whether a row has more than one run."""
        return any(len(row.runs) > 1 for row in self.rows)

    @property
    def _settings(self) -> list[str]:
        return list(self.rows[0].settings) if self.rows else []

    def cells(self) -> list[list[str]]:
        """The rows as text, in the order of the columns."""
        return [
            [
                *row.settings.values(),
                cost(row.epsilon),
                str(len(row.runs)),
                *([cost(row.together)] if self._averages else []),
                *(str(row.scores[name]) if name in row.scores else "–" for name in self.scores),
            ]
            for row in self.rows
        ]

    def markdown(self) -> str:
        """A table for a README."""
        lines = [self.columns, ["---" for _ in self.columns], *self.cells()]
        rows = ["| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in line) + " |" for line in lines]
        return "\n".join([*rows, *(f"\n{note}" for note in self.notes)]) + "\n"

    def csv(self) -> str:
        """A table for a program: mean and standard deviation in columns of their own, ε of no privacy as inf."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        parts = [part for name in self.scores for part in (name, f"{name}_std")]
        writer.writerow([*self._settings, "epsilon", "runs", "epsilon_together", *parts])
        for row in self.rows:
            spreads = [row.scores.get(name) for name in self.scores]
            figures = [figure for spread in spreads for figure in ((spread.mean, spread.std) if spread else ("", ""))]
            writer.writerow([*row.settings.values(), row.epsilon, len(row.runs), row.together, *figures])
        return out.getvalue()

    def to_json(self) -> list[dict[str, Any]]:
        """One object a row."""
        return [
            {
                "settings": dict(row.settings),
                "epsilon": row.epsilon,
                "epsilon_together": row.together,
                "runs": [run.name for run in row.runs],
                "scores": {name: {"mean": s.mean, "std": s.std, "count": s.count} for name, s in row.scores.items()},
            }
            for row in self.rows
        ]


def _final(run: Run) -> Scores | None:
    """The scores that a table shows: on test data where there are any."""
    return next((found for found in scores(run) if found.after), None)


def _compared(run: Run) -> dict[str, str]:
    """What sets a run apart from one that may be averaged with it, by name."""
    promised, final = run.guarantee, _final(run)
    told_apart = {
        name: value
        for name, value in settings(run.config).items()
        if name.rpartition(".")[2] not in _OF_ONE_RUN | _IN_THE_GUARANTEE
    }
    neighbours = (promised.unit, promised.adjacency, f"{promised.delta:g}") if promised.is_private else ("–",) * 3
    of_guarantee = dict(zip(OF_THE_GUARANTEE, (promised.sampler.name, *neighbours), strict=True))
    return {**told_apart, **of_guarantee, "split": final.split if final else "none"}


def _columns(groups: Sequence[tuple[Mapping[str, str], float]]) -> dict[str, str]:
    """The fewest settings that tell all groups apart, and what they are called; some are shown wherever they differ."""
    names = list(dict.fromkeys(name for told_apart, _ in groups for name in (*_FIRST, *told_apart)))
    chosen: dict[str, str] = {}

    def distinct(columns: Iterable[str]) -> int:
        return len({(epsilon, *(told_apart.get(name) for name in columns)) for told_apart, epsilon in groups})

    for name in names:
        differs = len({told_apart.get(name) for told_apart, _ in groups} - {"–"}) > 1
        if differs and (name in _FIRST or distinct([*chosen, name]) > distinct(chosen)):
            chosen[name] = _FIRST.get(name, name)
    return chosen


def _order(row: Row) -> tuple[list[str], float, list[str]]:
    """By what was trained on what, then from no privacy to much of it, then by the rest: as in DP-NMT's table."""
    trained = [value for name, value in row.settings.items() if name not in OF_THE_GUARANTEE]
    return trained, -row.epsilon, list(row.settings.values())


def _notes(groups: Mapping[Any, Sequence[Run]]) -> tuple[str, ...]:
    members = [run for of_group in groups.values() for run in of_group]
    private = [run.guarantee for run in members if run.guarantee.is_private]
    finals = [final for final in map(_final, members) if final]
    notes = []
    if any(len(of_group) > 1 and of_group[0].guarantee.is_private for of_group in groups.values()):
        notes.append("ε is that of one run. Whoever sees all runs of a row has seen them together.")
    kinds = {(promised.unit, promised.adjacency, promised.delta) for promised in private}
    if len(kinds) == 1:
        notes.append("ε is for one {}, under {}, at δ = {:g}.".format(*kinds.pop()))
    elif kinds:
        notes.append("ε is not comparable between rows that are for different units, neighbours or δ.")
    for name in dict.fromkeys(name for final in finals for name in final.signatures):
        found = sorted({final.signatures.get(name, "not known") for final in finals})
        score = label(name.removesuffix("_signature"))
        notes.append(
            f"{score}: {found[0]}"
            if len(found) == 1
            else f"{score} was computed in different ways: {'; '.join(found)}."
        )
    return tuple(notes)
