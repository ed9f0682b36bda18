"""The part of a report that shows, class by class, what a model gets right, and whether it fell for the largest one."""

from collections.abc import Mapping, Sequence
from typing import Any

from dpnlp.runs.folder import Run
from dpnlp.runs.markup import Html, div, element, paragraph, section, table

MOST = 20
"""A confusion table of more classes than this is too wide to be read."""


def classes(run: Run) -> Html:
    """A table of the classes of every split, and which was taken for which; nothing where there are no classes."""
    splits = sorted(run.details().items(), key=lambda item: not item[0].startswith("test"))
    parts = [part for split, found in splits if "classes" in found for part in _split(split, found)]
    return section(element("h2", "Class by class"), *parts) if parts else Html("")


def _split(split: str, found: Mapping[str, Any]) -> list[Html]:
    parts = [element("h3", split), _majority(found), _table("class", found["classes"])]
    if len(found["labels"]) <= MOST:
        parts.append(_taken(found["labels"], found["counts"]))
    if "entities" in found:
        parts += [element("h3", f"{split}, whole entities"), _table("type", found["entities"]["types"])]
    return parts


def _majority(found: Mapping[str, Any]) -> Html:
    """Private models often end up giving everything the most frequent label, which accuracy does not show."""
    largest = found["majority"]
    shares = (
        f"The most frequent class is {largest['label']}: {_percent(largest['in_references'])} of all, and "
        f"{_percent(largest['in_predictions'])} of what the model says. Whoever always says it has a macro-F1 of "
        f"{largest['baseline']:.2f}; the model has {found['macro_f1']:.2f}."
    )
    if not largest["prevails"]:
        return paragraph(shares)
    fallen = f"The model has fallen for it: {_percent(largest['taken'])} of everything else is taken for it. "
    return div(element("strong", fallen), shares, class_="banner caution", role="alert")


def _table(kind: str, tallies: Mapping[str, Mapping[str, Any]]) -> Html:
    rows = [
        [name, *(f"{tally[score]:.2f}" for score in ("f1", "precision", "recall")), *_counts(tally)]
        for name, tally in tallies.items()
    ]
    return table([kind, "F1", "precision", "recall", "in the data", "predicted"], rows, "scores", 1)


def _counts(tally: Mapping[str, Any]) -> list[str]:
    return [f"{tally[name]:,}" for name in ("support", "predicted")]


def _taken(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> Html:
    """Rows are what is true, columns what the model says; the darker, the larger a share of the row."""
    rows = []
    for label, row in zip(labels, counts, strict=True):
        total = max(1, sum(row))
        cells = (element("span", f"{count:,}", class_="share", style=f"--share: {count / total:.2f}") for count in row)
        rows.append([label, *cells])
    return table(["true \\ said", *labels], rows, "confusion", 1)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
