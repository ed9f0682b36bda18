"""How a verb shows its figures: tables for a person, one JSON object for a program."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dpnlp.foreign import visible
from dpnlp.guarantee import Guarantee, round_up


def print_json(entry: Mapping[str, Any]) -> None:
    """One JSON object. Infinity, which JSON lacks, is written as the string "inf"."""
    print(visible(json.dumps(_plain(entry), indent=2, ensure_ascii=False, allow_nan=False)))


def print_facts(title: str, facts: Mapping[str, str]) -> None:
    """Names and values under a title, one pair to a line."""
    table = Table(box=None, show_header=False, pad_edge=False, title=_text(title, "bold"), title_justify="left")
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(_text(name), _text(value))
    _console().print(table, "")


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str = "", figures_from: int = 1
) -> None:
    """A table with a title; the first column is text, or some more, and the others are figures."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=_text(title, "bold"), title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(_text(column), justify="left" if index < figures_from else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(_text, row))
    _console().print(table)
    if note:
        _console().print(_text(note, "dim"), "")


def print_guarantee(guarantee: Guarantee) -> None:
    """The statement in plain words, and the signature."""
    console = _console()
    for paragraph in guarantee.statement().split("\n\n"):
        heading, _, text = paragraph.partition(". ")
        console.print(_text(heading, "bold"), Padding(_text(text), (0, 0, 1, 2)))
    console.print(_text(guarantee.signature(), "dim"), soft_wrap=True)


def attack_facts(guarantee: Guarantee) -> dict[str, float]:
    """The bounds on an attacker that a guarantee has, under the names that JSON uses."""
    return {
        "attack_success_at_even_odds": guarantee.attack_success(),
        "detection_at_1_percent_false_alarms": guarantee.detection(0.01),
    }


def figure(value: float, digits: int = 5) -> str:
    """A privacy cost, rounded up."""
    return "∞" if math.isinf(value) else f"{round_up(value, digits):.{digits}g}"


def _console() -> Console:
    """A pipe has no width of its own, so lines are not cut to eighty columns there."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=120)


def _text(text: str, style: str = "") -> Text:
    """Text as it stands, of which the terminal obeys nothing."""
    return Text(visible(text), style)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    return value
