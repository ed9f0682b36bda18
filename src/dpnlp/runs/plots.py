"""Pictures of runs: the scores of many over ε or over what varies instead, the curves of one, and those of attacks.

Colours are those of Okabe and Ito, which colour-blind readers tell apart, with a grey for their yellow; markers and
dashes tell lines apart in print. Where there are more lines than colours, the markers of the others are hollow.
"""

import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dpnlp.checks import BadInput
from dpnlp.runs.folder import Run
from dpnlp.runs.tables import LABELS, OF_THE_GUARANTEE, Row, Table, cost, label

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#767676", "#000000")
_MARKERS, _DASHES = "osD^vPX*", ("-", "--", "-.", ":")
_INK = "#333333"
EPSILON = "ε"
"""What scores are drawn over, unless it is the name of a setting."""


def comparison(table: Table) -> Figure | None:
    """Figure 2 of DP-NMT: a line per setting over ε up to ∞, with the deviation over seeds; None without scores.

    Where ε is the same in all rows, lines lead over a setting of numbers that is not. Where there are more lines than
    colours, every corpus has a panel of its own.
    """
    score = next(iter(table.scores), "")
    rows = [row for row in table.rows if score in row.scores]
    if not rows:
        return None
    over = _varies(rows)
    lines = _lines(rows, over)
    if len(lines) <= len(COLORS) or "corpus" not in rows[0].settings:
        return panels({"": lines}, score, over)
    corpora: dict[str, list[Row]] = {}
    for row in rows:
        others = {name: value for name, value in row.settings.items() if name != "corpus"}
        corpora.setdefault(row.settings["corpus"], []).append(replace(row, settings=others))
    return panels({corpus: _lines(found, over) for corpus, found in corpora.items()}, score, over)


def panels(titles: Mapping[str, Mapping[str, Sequence[Row]]], score: str, over: str = EPSILON) -> Figure:
    """The same picture for each of several titles, side by side: lines of one name look alike in all of them."""
    rows = [row for lines in titles.values() for line in lines.values() for row in line]
    ticks = {_place(row, over): _tick(row, over) for row in sorted(rows, key=lambda row: _place(row, over))}
    wide = max(2.7, 0.42 * len(ticks)) * len(titles) if len(titles) > 1 else 4.5
    figure = Figure(figsize=(wide, 3.0), layout="constrained", dpi=200)
    names = list(dict.fromkeys(name for lines in titles.values() for name in lines))
    step = min(0.04, 0.4 / len(names))  # Lines of equal scores stand side by side, and all are seen.
    each = figure.subplots(1, len(titles), sharey=True, squeeze=False)[0]
    for axes, (title, lines) in zip(each, titles.items(), strict=True):
        for name, line in lines.items():
            points = sorted(line, key=lambda row: _place(row, over))
            aside = step * (names.index(name) - (len(names) - 1) / 2)
            axes.errorbar(
                [list(ticks).index(_place(row, over)) + aside for row in points],
                [row.scores[score].mean for row in points],
                [row.scores[score].std or 0 for row in points],
                label=_text(name),
                elinewidth=1,
                capsize=2,
                clip_on=False,
                **_look(names.index(name)),
            )
        axes.set_xticks(range(len(ticks)), list(ticks.values()))
        axes.set_title(_text(title), fontsize=10)
        axes.set_xlabel(_text(_what(rows, over, short=len(titles) > 1)))
        axes.margins(x=0.08)
        _plain(axes)
    each[0].set(ylabel=label(score), ylim=(0, None))  # Once all lines are there, for the panels share it.
    _legend(figure)
    return figure


def _varies(rows: Sequence[Row]) -> str:
    """What to draw the scores over: ε, or, where it is the same in all rows, the setting with the most numbers."""
    columns = {name: [row.settings[name] for row in rows] for name in rows[0].settings}
    numbers = {name: len(set(values)) for name, values in columns.items() if all(map(_is_number, values))}
    if len({row.epsilon for row in rows}) > 1 or not numbers:
        return EPSILON
    return max(numbers, key=lambda name: numbers[name])


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _place(row: Row, over: str) -> float:
    return row.epsilon if over == EPSILON else float(row.settings[over])


def _tick(row: Row, over: str) -> str:
    return cost(row.epsilon) if over == EPSILON else row.settings[over]


def _what(rows: Sequence[Row], over: str, *, short: bool) -> str:
    """What is written below the axis; one of several panels is too narrow for all of it."""
    if over == EPSILON:
        open_ended = "; ∞ is no privacy" if not short and any(math.isinf(row.epsilon) for row in rows) else ""
        return f"ε (less is more private{open_ended})"
    if len({row.epsilon for row in rows}) > 1:
        return over
    return f"{over} (no privacy)" if math.isinf(rows[0].epsilon) else f"{over} (ε = {cost(rows[0].epsilon)})"


def _lines(rows: Sequence[Row], over: str) -> dict[str, list[Row]]:
    """The rows of each line, by its name. Over ε, every line ends with the run without privacy that is most like it."""

    def name(row: Row, but: Iterable[str] = ()) -> str:
        shown = {key: value for key, value in row.settings.items() if key not in (over, *but)}
        return ", ".join(f"{key.rpartition('.')[2]} {value}" if "." in key else value for key, value in shown.items())

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
    figure = Figure(figsize=(4.0, 2.4), layout="constrained", dpi=200)
    axes = figure.subplots()
    for number, (name, points) in enumerate(lines.items()):
        look = _look(number) if len(points) > 2 else {**_look(number), "linestyle": "none"}
        axes.plot(*zip(*points, strict=True), label=_text(name), clip_on=False, **look)
    axes.set(xlabel="steps", ylabel=title, ylim=(0, None))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    _plain(axes)
    _legend(figure)
    return [figure]


def roc(attacks: Mapping[str, Sequence[tuple[float, float]]]) -> Figure:
    """The share of members that each attack finds over its false alarms, both as logarithms (Carlini et al. 2022).

    A curve is its points (false alarms, found), from the fewest false alarms on. Between two of them no attack was
    made, so that it goes on at its height until the next one. What is found without a false alarm starts at the edge.
    """
    figure = Figure(figsize=(4.2, 3.6), layout="constrained", dpi=200)
    axes = figure.subplots()
    rates = [rate for points in attacks.values() for point in points for rate in point if rate > 0]
    least = 10 ** math.floor(math.log10(min(rates, default=0.1)) - 1e-9)
    for number, (name, points) in enumerate(attacks.items()):
        alarms, found = zip(*((max(rate, least), found) for rate, found in points), strict=True)
        axes.plot(alarms, found, label=_text(name), drawstyle="steps-post", markevery=(0.1, 0.25), **_look(number))
    axes.plot([least, 1], [least, 1], color=_INK, linewidth=0.8, linestyle=(0, (1, 3)), label="guessing", zorder=1)
    axes.set(xscale="log", yscale="log", xlim=(least, 1.1), ylim=(least, 1.1), aspect="equal")
    axes.set(xlabel="false alarms among the others", ylabel="found among the members")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda rate, _: f"{100 * rate:g} %")
    axes.minorticks_off()
    _plain(axes)
    _legend(figure)
    return figure


def _plain(axes: Axes) -> None:
    """Ink for what carries figures, and none for the rest."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_INK)
    axes.tick_params(colors=_INK, labelsize=9)
    axes.xaxis.label.set_color(_INK)
    axes.yaxis.label.set_color(_INK)
    axes.title.set_color(_INK)
    axes.grid(axis="y", alpha=0.25, color=_INK, linewidth=0.6)


def _look(number: int) -> dict[str, Any]:
    again, place = divmod(number, len(COLORS))
    return {
        "color": COLORS[place],
        "marker": _MARKERS[place],
        "fillstyle": "none" if again else "full",
        "linestyle": _DASHES[(place + again) % len(_DASHES)],
        "markersize": 5,
        "linewidth": 1.6,
    }


def _text(name: str) -> str:
    """The name as it is: no $ begins mathematics, and no _ at its head hides it."""
    return (" " if name.startswith("_") else "") + name.replace("$", r"\$")


def _legend(figure: Figure) -> None:
    """Below the picture, which grows by it: each name once, where there is more than one."""
    known: dict[str, Any] = {}
    for axes in figure.axes:
        handles, names = axes.get_legend_handles_labels()
        known |= dict(zip(names, handles, strict=True))
    if len(known) > 1:
        columns = 2 if max(map(len, known)) <= 24 or len(figure.axes) > 1 else 1
        figure.set_figheight(figure.get_figheight() + 0.2 * math.ceil(len(known) / columns))
        figure.legend(
            [handle[0] if isinstance(handle, ErrorbarContainer) else handle for handle in known.values()],
            list(known),
            loc="outside lower center",
            frameon=False,
            handlelength=4,
            ncols=columns,
            fontsize=9,
            labelcolor=_INK,
        )


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
