"""The part of a report that shows how a model was attacked: a small function for each attack, from what it found."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dpnlp.runs.folder import Run
from dpnlp.runs.markup import Html, div, element, joined, paragraph, section, table
from dpnlp.runs.tables import cost

Finding = Mapping[str, Any]


def attacked(run: Run) -> Html:
    """What those attacks found that the guarantee covers; nothing where there was none."""
    return _section("How it was attacked", run.audit())


def _section(title: str, found: Mapping[str, Finding]) -> Html:
    parts = [part for attack, show in _SHOWN.items() if attack in found for part in show(found[attack])]
    return section(element("h2", title), *parts) if parts else Html("")


def refuted(run: Run) -> Html:
    """What has to be said before anything else where an attack has shown more than is claimed."""
    found = run.audit().get("canaries", {})
    if not found.get("refuted"):
        return Html("")
    sentence = (
        f"Canaries show ε > {found['above']:.2f}, with {100 * found['confidence']:g} % confidence, and ε ≤ "
        f"{cost(found['claimed'])} is claimed. Do not rely on the promise below, and do not publish the model."
    )
    return div(element("strong", "The claim is refuted. "), sentence, class_="banner bad", role="alert")


def _canaries(found: Finding) -> list[Html]:
    """What guesses at the coins say of ε, beside what is claimed, and how far canaries are exposed."""
    at = f"at δ = {found['delta']:g}"
    claimed = float(found["claimed"])
    rows = [
        [f"claimed, {at}", f"ε ≤ {cost(claimed)}" if math.isfinite(claimed) else "nothing"],
        [f"shown by canaries, with {100 * found['confidence']:g} % confidence", _above(found["above"])],
        ["the most that so many could show", _above(found["most"])],
    ]
    rows += [
        [
            f"guesses by {score['score']}: right about a canary that is in and one that is not",
            f"{100 * score['auc']:.1f} %",
        ]
        for score in found["scores"]
    ]
    if told := found["written"]:
        rows.append(["canaries that it writes out", f"{told['written']:,} of {told['canaries']:,}"])
    drawn = f"{found['canaries']:,} canaries, {found['put_in']:,} of them put in"
    parts = [element("h3", "Canaries"), table([drawn, ""], rows, "scores", 1)]
    if exposure := found["exposure"]:
        average = (
            f"Exposure of those that were put in, among those that were not: {exposure['mean']:.1f} bits on average, "
            f"where a model that never saw them has {exposure['by_chance']:.1f}. The highest:"
        )
        parts += [paragraph(average, class_="note"), _exposed(exposure["highest"], "canary")]
    return [*parts, paragraph(found["statement"], class_="note")]


def _above(bound: float) -> str:
    return f"ε > {bound:.2f}" if bound else "no ε"


def _secrets(found: Finding) -> list[Html]:
    """How strongly the model gives away secrets that were planted in the data."""
    return [
        element("h3", "Planted secrets"),
        paragraph("How far ahead of other candidates the model puts a secret that stood in its training data."),
        _exposed(found["secrets"], "secret"),
        paragraph(str(found.get("note", "")), class_="note"),
    ]


def _exposed(secrets: Iterable[Finding], what: str) -> Html:
    """The rank and the exposure of each."""
    rows = []
    for secret in secrets:
        most = math.log2(max(2, secret["candidates"]))
        width = f"width: {100 * min(1.0, max(0.0, secret['exposure'] / most)):.1f}%"
        bar = div(div(class_="reach", style=width), class_="bar", role="img", aria_label=f"of {most:.1f} bits")
        place = f"{secret['rank']:,} of {secret['candidates']:,}"
        rows.append([secret["text"], place, joined(f"{secret['exposure']:.1f} of {most:.1f} bits", bar)])
    return table([what, "rank", "exposure"], rows, "secrets stacked")


_SHOWN: Mapping[str, Callable[[Finding], list[Html]]] = {
    "secrets": _secrets,
    "canaries": _canaries,
}
"""How what an attack found is shown, in this order."""
