"""The part of a report that shows how a model was attacked: a small function for each attack, from what it found."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dpnlp.guarantee import percent
from dpnlp.runs.folder import Run
from dpnlp.runs.markup import Html, div, element, joined, paragraph, section, table
from dpnlp.runs.tables import cost

Finding = Mapping[str, Any]


class Shown(NamedTuple):
    """What an attack found, for a page or a terminal: a question, what was done, a table, and how much it says."""

    title: str
    lead: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]
    style: str = "scores"
    figures_from: int = 1  # the first column that holds figures
    more: Sequence[Html] = ()  # below the table, on a page alone

    def on_page(self) -> list[Html]:
        """The same as a part of a page."""
        return [
            element("h3", self.title),
            paragraph(self.lead),
            table(self.heads, self.rows, self.style, self.figures_from),
            *self.more,
            *(paragraph(note, class_="note") for note in self.notes),
        ]


def attacked(run: Run) -> Html:
    """What those attacks found that the guarantee covers; nothing where there was none."""
    return _section("How it was attacked", run.audit())


def exposed(run: Run) -> Html:
    """What those attacks found that the guarantee does not cover."""
    return _section("With the training set at hand", run.audit(covered=False))


def _section(title: str, found: Mapping[str, Finding]) -> Html:
    parts = [part for attack, show in _PLANTED.items() if attack in found for part in show(found[attack])]
    parts += [part for attack, show in SHOWN.items() if attack in found for part in show(found[attack]).on_page()]
    return section(element("h2", title), *parts) if parts else Html("")


def refuted(run: Run) -> Html:
    """What has to be said before anything else where an attack has shown more than is claimed."""
    found = run.audit().get("canaries", {})
    if not found.get("refuted"):
        return Html("")
    sentence = (
        f"Canaries show ε > {found['above']:.2f}, with {percent(found['confidence'], 6)} confidence, and ε ≤ "
        f"{cost(found['claimed'])} is claimed. Do not rely on the promise below, and do not publish the model."
    )
    return div(element("strong", "The claim is refuted. "), sentence, class_="banner bad", role="alert")


def _canaries(found: Finding) -> list[Html]:
    """What guesses at the coins say of ε, beside what is claimed, and how far canaries are exposed."""
    at = f"at δ = {found['delta']:g}"
    claimed = float(found["claimed"])
    rows = [
        [f"claimed, {at}", f"ε ≤ {cost(claimed)}" if math.isfinite(claimed) else "nothing"],
        [f"shown by canaries, with {percent(found['confidence'], 6)} confidence", _above(found["above"])],
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


def _membership(found: Finding) -> Shown:
    """How well attacks tell members from others, with the curves of found over false alarms."""
    from dpnlp.runs import plots

    levels = [point["level"] for point in found["attacks"][0]["points"]]
    rows = [
        [attack["attack"], f"{attack['auc']:.3f}", *(percent(point["tpr"]) for point in attack["points"])]
        for attack in found["attacks"]
    ]
    if found["promised"]:
        rows.append(["at most, by the promise", "–", *map(percent, found["promised"])])
    figure = plots.roc({attack["attack"]: attack["roc"] for attack in found["attacks"]})
    return Shown(
        "Who was trained on?",
        f"{found['members']:,} {found['unit']}s that the model learned from, and as many others, are told apart by how "
        "well it knows them.",
        ["attack by", "AUC", *(f"at {percent(level)}" for level in levels)],
        [*rows, ["guessing", "0.500", *map(percent, levels)]],
        [_AT_RATES, *found["notes"]],
        more=[div(element("figure", Html(plots.as_svg(figure, "membership"))), class_="figures")],
    )


_AT_RATES = (
    "AUC is the probability that a member gets a higher score than another. The other columns are the members that are "
    "found at these rates of false alarms, or lower ones."
)


def _extraction(found: Finding) -> Shown:
    """What of the training texts comes out, beside what of other texts is guessed."""
    sides, own, texts = (found["members"], found["others"]), found.get("unprompted"), found.get("texts", [])
    rows = [
        ["texts written out to the end", *(f"{side['whole']:,} of {side['texts']:,}" for side in sides)],
        ["their words, in a row", *(percent(side["verbatim_share"]) for side in sides)],
    ]
    if own:
        rows.append(["four words in a row, unprompted", *(percent(own[f"overlap{of}"]) for of in ("", "_of_others"))])
    return Shown(
        "What comes out of it?",
        f"The model is given {found['given']}, and what it writes is compared with the text, word by word.",
        ["what it writes", "of training texts", "of other texts"],
        rows,
        [found["statement"], *([own["statement"]] if own else [])],
        more=[table(["written out to the end"], [[text] for text in texts], "samples stacked")] if texts else [],
    )


def _inversion(found: Finding) -> Shown:
    """The text that the model believes in most, for each label."""
    return Shown(
        "What does it take for a label?",
        "Of all texts of a few tokens, the one that the model is most certain of, found by its gradients.",
        ["label", "text", "believed", "random tokens"],
        [
            [one["label"], one["text"], percent(one["probability"]), percent(one["by_chance"])]
            for one in found["labels"]
        ],
        found["notes"],
        "stacked",
        2,
    )


_PLANTED: Mapping[str, Callable[[Finding], list[Html]]] = {"secrets": _secrets, "canaries": _canaries}
"""How is shown what attacks found of records that are made up."""

SHOWN: Mapping[str, Callable[[Finding], Shown]] = {
    "membership": _membership,
    "extraction": _extraction,
    "inversion": _inversion,
}
"""How is shown what attacks found of the model, and of what it was trained on."""
