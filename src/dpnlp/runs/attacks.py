"""The part of a report that shows how a model was attacked: a small function for each attack, from what it found."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from dpnlp.runs.folder import Run
from dpnlp.runs.markup import Html, div, element, joined, paragraph, section, table

Finding = Mapping[str, Any]


def attacked(run: Run) -> Html:
    """What those attacks found that the guarantee covers; nothing where there was none."""
    return _section("How it was attacked", run.audit())


def _section(title: str, found: Mapping[str, Finding]) -> Html:
    parts = [part for attack, show in _SHOWN.items() if attack in found for part in show(found[attack])]
    return section(element("h2", title), *parts) if parts else Html("")


def _secrets(found: Finding) -> list[Html]:
    """How strongly the model gives away secrets that were planted in the data."""
    rows = []
    for secret in found["secrets"]:
        most = math.log2(max(2, secret["candidates"]))
        width = f"width: {100 * min(1.0, max(0.0, secret['exposure'] / most)):.1f}%"
        bar = div(div(class_="reach", style=width), class_="bar", role="img", aria_label=f"of {most:.1f} bits")
        place = f"{secret['rank']:,} of {secret['candidates']:,}"
        rows.append([secret["text"], place, joined(f"{secret['exposure']:.1f} of {most:.1f} bits", bar)])
    return [
        element("h3", "Planted secrets"),
        paragraph("How far ahead of other candidates the model puts a secret that stood in its training data."),
        table(["secret", "rank", "exposure"], rows, "secrets stacked"),
        paragraph(str(found.get("note", "")), class_="note"),
    ]


_SHOWN: Mapping[str, Callable[[Finding], list[Html]]] = {
    "secrets": _secrets,
}
"""How what an attack found is shown, in this order."""
