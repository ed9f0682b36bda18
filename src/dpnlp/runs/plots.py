"""Pictures of runs: scores against ε over many runs, and the curves of one.

Colours are those of Okabe and Ito, which colour-blind readers tell apart; markers and dashes tell lines apart in print.
"""

import io
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dpnlp.checks import BadInput
from dpnlp.runs.folder import Run
from dpnlp.runs.tables import LABELS, OF_THE_GUARANTEE, Row, Table, cost, label

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_MARKERS, _DASHES = "osD^vP", ("-", "--", "-.", ":")
_INK = "#333333"


def scores_by_epsilon(table: Table) -> Figure | None:
    """Figure 2 of DP-NMT: a line per setting over ε up to ∞, with the deviation over seeds; None without scores."""
    score = next(iter(table.scores), "")
    rows = [row for row in table.rows if score in row.scores]
    if not rows:
        return None
    figure, axes = _axes(width=4.5, height=3.4)
    ticks = sorted({row.epsilon for row in rows})
    for number, (name, line) in enumerate(_lines(rows).items()):
        points = sorted(line, key=lambda row: row.epsilon)
        axes.errorbar(
            [ticks.index(row.epsilon) for row in points],
            [row.scores[score].mean for row in points],
            [row.scores[score].std or 0 for row in points],
            label=_text(name),
            capsize=3,
            clip_on=False,
            **_look(number),
        )
    axes.set_xticks(range(len(ticks)), [cost(tick) for tick in ticks])
    axes.set(xlabel="ε (less is more private; ∞ is no privacy)", ylabel=label(score), ylim=(0, None))
    axes.margins(x=0.08)
    _legend(axes)
    return figure


def _lines(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each line, by its name. Every line ends with the run without privacy that is most like it."""

    def name(row: Row, but: Iterable[str] = ()) -> str:
        return ", ".join(value for key, value in row.settings.items() if key not in but)

    lines: dict[str, list[Row]] = {}
    for row in rows:
        if math.isfinite(row.epsilon):
            lines.setdefault(name(row), []).append(row)
    open_ended = [row for row in rows if math.isinf(row.epsilon)]
    for line in lines.values():
        alike = [row for row in open_ended if name(row, OF_THE_GUARANTEE) == name(line[0], OF_THE_GUARANTEE)]
        same = [row for row in alike if row.settings.get("sampling") == line[0].settings.get("sampling")]
        line += (same or alike)[:1]
    drawn = [row for line in lines.values() for row in line]
    for row in (row for row in open_ended if row not in drawn):
        lines.setdefault(name(row), []).append(row)
    return lines


def curves(run: Run) -> list[Figure]:
    """The first known score over the steps, and ε over the steps; each only where there are enough points."""
    rows = run.metrics()
    score = next((name for name in LABELS if any(name in row for row in rows)), "")
    splits = sorted({str(row.get("split", "")) for row in rows}, reverse=True)
    lines = {split: _points([row for row in rows if str(row.get("split", "")) == split], score) for split in splits}
    drawn = _curve({split: points for split, points in lines.items() if points}, label(score))
    promised = run.guarantee
    if promised.is_private:
        drawn += _curve({"": _points(rows, "epsilon")}, f"ε at δ = {promised.delta:g}")
    return drawn


def _points(rows: Iterable[dict[str, Any]], name: str) -> list[tuple[float, float]]:
    """(step, value), with one value for a step."""
    found = {row["step"]: row[name] for row in rows if "step" in row and isinstance(row.get(name), (int, float))}
    return sorted((step, value) for step, value in found.items() if math.isfinite(value))


def _curve(lines: dict[str, list[tuple[float, float]]], title: str) -> list[Figure]:
    """A line through three points or more; fewer are points. Without any line there is nothing to draw."""
    if max((len(points) for points in lines.values()), default=0) < 3:
        return []
    figure, axes = _axes(width=4.0, height=2.6)
    for number, (name, points) in enumerate(lines.items()):
        look = _look(number) if len(points) > 2 else {**_look(number), "linestyle": "none"}
        axes.plot(*zip(*points, strict=True), label=_text(name), clip_on=False, **look)
    axes.set(xlabel="steps", ylabel=title, ylim=(0, None))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    _legend(axes)
    return [figure]


def _axes(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained", dpi=200)
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_INK)
    axes.tick_params(colors=_INK, labelsize=9)
    axes.xaxis.label.set_color(_INK)
    axes.yaxis.label.set_color(_INK)
    axes.grid(axis="y", alpha=0.25, color=_INK, linewidth=0.6)
    return figure, axes


def _look(number: int) -> dict[str, Any]:
    return {
        "color": COLORS[number % len(COLORS)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "linestyle": _DASHES[number % len(_DASHES)],
        "markersize": 5,
        "linewidth": 1.6,
    }


def _text(name: str) -> str:
    """The name as it is: no $ begins mathematics, and no _ at its head hides it."""
    return (" " if name.startswith("_") else "") + name.replace("$", r"\$")


def _legend(axes: Axes) -> None:
    names = axes.get_legend_handles_labels()[1]
    if len(names) > 1:
        columns = 1 if max(map(len, names)) > 24 else 2
        axes.figure.legend(frameon=False, loc="outside lower center", ncols=columns, fontsize=9, labelcolor=_INK)


def save(figure: Figure, file: Path) -> None:
    """Writes the picture; the file's ending chooses the format."""
    try:
        figure.savefig(file)
    except (OSError, ValueError) as error:
        raise BadInput(f"--plot = {file}: it cannot be written ({error}); try a path that ends in .png.") from None


def as_svg(figure: Figure, name: str) -> str:
    """The picture as an element of a page, in the page's font and in colours that its style sheet may change.

    The ink becomes the page's, and the n-th colour becomes the variable --line-n. `name` keeps its ids apart from those
    of other pictures on the page.
    """
    out = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", text)
    text = text.replace(_INK, "currentColor")
    for number, color in enumerate(COLORS):
        text = text.replace(color, f"var(--line-{number}, {color})")
    return text
