"""The report page: one file without scripts and without anything from elsewhere, for a reader who trusts nobody.

What stands on it comes from the run's folder alone. All text is escaped (`runs/markup.py`).
"""

import json
import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from os.path import relpath
from pathlib import Path
from typing import Any

from dpnlp.events import to_json
from dpnlp.guarantee import Guarantee, NoiseSource, Trust
from dpnlp.runs.attacks import attacked, exposed, refuted
from dpnlp.runs.classes import classes
from dpnlp.runs.files import understood
from dpnlp.runs.folder import AUDIT, DETAILS, LEAKAGE, METRICS, NOT_COVERED, NOT_COVERED_BY, PRIVACY, Run
from dpnlp.runs.markup import Html, box, div, element, paragraph, section, table
from dpnlp.runs.tables import Table, cost, label, scores, settings
from dpnlp.runs.unigram import unigram


def page_of_run(run: Run, samples: int = 8) -> str:
    """The page of one run, with so many sentences of each split as examples of what the model writes."""
    return _page(
        run.name,
        _header("Report of a run", run.name, _about(run)),
        _made_of(AUDIT, refuted, run),
        _banner(run.guarantee),
        _headline(run.guarantee),
        _statement(run.guarantee),
        _made_of(METRICS, _scores, run),
        _made_of(DETAILS, classes, run),
        _made_of(DETAILS, unigram, run),
        _made_of(METRICS, _curves, run),
        _rewritten(run, samples),
        _made_of(LEAKAGE, _leakage, run),
        _samples(run, samples),
        _made_of(AUDIT, attacked, run),
        _made_of(PRIVACY, _verification, run),
        _settings(run),
    )


def _made_of(file: str, part: Callable[[Run], Html], run: Run) -> Html:
    """A part of the page that is made of one file, of which nothing is known but that it is JSON."""
    with understood(run.path / file):
        return part(run)


def page_of_audit(run: Run) -> str:
    """The page of all attacks on a run, which is not covered by the guarantee."""
    promised = run.guarantee
    said = (
        f"The run promises ε ≤ {cost(promised.epsilon)} at δ = {promised.delta:g} for one {promised.unit}."
        if promised.is_private
        else "The run promises nothing."
    )
    return _page(
        f"Audit of {run.name}",
        _header("Audit of a run", run.name, _about(run)),
        _made_of(AUDIT, refuted, run),
        div(element("strong", "Not to be published. "), NOT_COVERED_BY, class_="banner caution", role="alert"),
        section(
            paragraph(said, " What it reached is in ", element("a", "its report", href=f"../{run.report.name}"), ".")
        ),
        _made_of(f"{NOT_COVERED}/{AUDIT}", exposed, run),
        _made_of(AUDIT, attacked, run),
    )


def page_of_runs(runs: Sequence[Run], place: Path) -> str:
    """The page of several runs: table and plot on top, then each run in short. `place` is where the page will lie."""
    grouped = Table.of(runs)
    first, cells = 0, grouped.cells()
    for row, line in zip(grouped.rows, cells, strict=True):
        line[grouped.columns.index("runs")] = element("a", str(len(row.runs)), href=f"#run-{first}")
        first += len(row.runs)
    in_order = [run for row in grouped.rows for run in row.runs]
    return _page(
        f"{len(runs)} runs",
        _header("Report of several runs", f"{len(runs)} runs", "Runs that differ in nothing but the seed are one row."),
        section(
            element("h2", "Scores"),
            table(grouped.columns, cells, "scores", figures_from=grouped.columns.index("ε")),
            *(paragraph(note, class_="note") for note in grouped.notes),
            _comparison(grouped),
        ),
        section(element("h2", "The runs"), *(_in_short(run, n, place) for n, run in enumerate(in_order))),
    )


def _page(title: str, *parts: str) -> str:
    style = files("dpnlp.runs").joinpath("page.css").read_text(encoding="utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title} – dpnlp"),
        element("style", Html(style)),
    )
    return f"<!doctype html>\n{element('html', head, element('body', element('main', *parts)), lang='en')}\n"


def _header(kind: str, title: str, about: str) -> Html:
    return element("header", paragraph(f"dpnlp · {kind}", class_="kind"), element("h1", title), paragraph(about))


def _about(run: Run) -> str:
    given = {name: value for name, value in settings(run.config).items() if value != "none"}
    data = next((given[name] for name in ("data.corpus", "data.train", "data.texts") if name in given), "")
    if method := run.privacy.plan.get("method"):
        return f"{data}, rewritten by {method}"
    model = "a graph network" if given.get("task") == "nodes" else given.get("model.start", "")
    words = [model, f"trained on {data}" if data else ""]
    return ", ".join(word for word in words if word)


# What is promised


def _caution(promised: Guarantee) -> tuple[str, str, str]:
    """What has to be said before anything else: how bad it is, in a few words, and in a sentence. Or nothing."""
    if not promised.is_private:
        what = "These texts were rewritten" if promised.trust is Trust.LOCAL else "This model was trained"
        without = f"{what} without privacy. Treat it as you would treat the data behind it."
        return "bad", "Nothing is promised", without
    if promised.noise_source is NoiseSource.FIXED_SEED:
        seed = "The noise came from a fixed seed. Against whoever knows the seed, nothing is promised."
        return "caution", "A run for research", seed
    return "", "", ""


def _banner(promised: Guarantee) -> Html:
    kind, short, sentence = _caution(promised)
    return div(element("strong", f"{short}. "), sentence, class_=f"banner {kind}", role="alert") if kind else Html("")


def _headline(promised: Guarantee) -> Html:
    """ε in large, what it is for, and what it leaves to an attacker."""
    facts = {
        "δ": f"{promised.delta:g}",
        "unit": f"one {promised.unit}",
        "neighbours": promised.adjacency,
        "trust": promised.trust,
        "sampler": promised.sampler.name,
        "accountant": promised.accountant.name,
    }
    shown = facts if promised.is_private else {"protected": "nobody"}
    bound = element("span", "ε ≤ " if promised.is_private else "ε = ", class_="symbol")
    return section(
        div(
            paragraph(bound, cost(promised.epsilon), class_="epsilon"),
            element("dl", *(div(element("dt", name), element("dd", value)) for name, value in shown.items())),
        ),
        _attacker(promised),
        class_="headline" if promised.is_private else "headline open",
    )


def _attacker(promised: Guarantee) -> Html:
    success = math.ceil(1e4 * promised.attack_success() - 1e-8) / 100
    bar = div(
        div(class_="reach", style=f"width: {success:.2f}%"),
        div(class_="coin"),
        class_="bar",
        role="img",
        aria_label=f"right guesses: at most {success:.2f} %, a coin 50 %",
    )
    return div(
        element("h2", "The best attacker"),
        paragraph("is right in at most ", element("strong", f"{success:.2f} %"), " of the cases; a coin in 50 %."),
        bar,
        div(*(element("span", text) for text in ("0 %", "a coin: 50 %", "100 %")), class_="scale"),
        class_="attacker",
    )


def _statement(promised: Guarantee) -> Html:
    """The paragraphs of the statement; what is not covered stands out, one sentence to a line."""
    parts: list[Html] = []
    for text in promised.statement().split("\n\n"):
        heading, _, rest = text.partition(". ")
        if heading == "What is not covered":
            sentences = re.split(r"(?<=\.) (?=[A-Z])", rest)
            items = element("ul", *(element("li", sentence) for sentence in sentences))
            parts.append(div(element("h3", heading), items, class_="limits"))
        else:
            parts.append(div(element("h3", heading), paragraph(rest)))
    return section(element("h2", "The promise, in words"), *parts)


def _verification(run: Run) -> Html:
    promised, previous = run.guarantee, run.privacy.earlier
    parts = [
        element("h2", "Check it yourself"),
        paragraph("The promise in one line, for a paper or a table. It is a summary, and proves nothing by itself:"),
        box(promised.signature()),
    ]
    if command := account_command(run):
        what = "the ε of this run alone" if previous else "ε anew"
        parts += [paragraph(f"This computes {what}, from what the run did:"), box(command)]
    if previous:
        together = "The run continues others, and the promise is for all of them together. These are theirs:"
        parts += [paragraph(together), *(box(earlier.promised.signature()) for earlier in previous)]
    events = json.dumps([to_json(origin.event) for origin in run.privacy.origins], indent=2, ensure_ascii=False)
    parts.append(element("details", element("summary", "The events, as an accountant sees them"), box(events)))
    return section(*parts)


def account_command(run: Run) -> str:
    """The call of `dpnlp account` that computes ε anew, or nothing where no plan with noise was recorded.

    Where the run continues others, whose ε is in its promise, it is the ε of this one alone.
    """
    plan: Mapping[str, Any] = run.privacy.plan
    schedule: Mapping[str, Any] = plan.get("schedule", {})
    if not schedule or not plan.get("noise_multiplier"):
        return ""
    flags = {"examples": schedule["records"], **{name: schedule[name] for name in ("lot_size", "steps", "sampling")}}
    flags |= {
        name: schedule[name]
        for name in ("largest_lot", "bands", "sharing", "aggregations")
        if schedule.get(name) not in (None, 1, [])
    }
    flags |= {name: plan[name] for name in ("noise_multiplier", "delta", "unit", "adjacency", "accountant")}
    words = [
        word
        for name, value in flags.items()
        for word in (f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, list) else [value]))
    ]
    return shlex.join(["dpnlp", "account", *words])


# What came out


def _scores(run: Run) -> Html:
    parts = []
    for found in scores(run):
        names = dict.fromkeys((*found.before, *found.after))
        heads = ("original", "rewritten") if run.rewritten_splits() else ("before training", "after training")
        sides = dict(zip(heads, (found.before, found.after), strict=True))
        known = {head: side for head, side in sides.items() if side}
        rows = [[label(name), *(_figure(side.get(name)) for side in known.values())] for name in names]
        shown = table([found.split, *known], rows, "scores", 1)
        notes = (paragraph(signature, class_="note") for signature in found.signatures.values())
        parts.append(div(shown, *notes))
    return section(element("h2", "Scores"), div(*parts, class_="pairs")) if parts else Html("")


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _curves(run: Run) -> Html:
    from dpnlp.runs import plots

    drawn = _figures(plots.as_svg(figure, f"{run.name}-{number}") for number, figure in enumerate(plots.curves(run)))
    return section(element("h2", "While it learned"), drawn) if drawn else Html("")


def _comparison(grouped: Table) -> Html:
    from dpnlp.runs import plots

    figure = plots.comparison(grouped)
    return _figures([plots.as_svg(figure, "scores")] if figure else [])


def _figures(drawings: Iterable[str]) -> Html:
    drawn = [element("figure", Html(drawing)) for drawing in drawings]
    return div(*drawn, class_="figures") if drawn else Html("")


def _rewritten(run: Run, most: int) -> Html:
    """The first texts of every split that was rewritten, without the texts that they stand for."""
    parts = []
    for split in run.rewritten_splits():
        rows = run.rewritten_texts(split, most)
        heads = [head for head in ("text", "label") if any(head in row for row in rows)]
        cells = [[str(row.get(head, "–")) for head in heads] for row in rows]
        parts += [element("h3", split), table(heads, cells, "samples stacked")]
    if not parts:
        return Html("")
    note = "Each stands for a private text that is not shown here."
    return section(element("h2", "What is published"), *parts, paragraph(note, class_="note"))


def _leakage(run: Run) -> Html:
    """How much of what the rewriter was made of comes out again."""
    found = run.leakage()
    if not found:
        return Html("")
    shares = {
        "texts that come out whole": f"{100 * found['whole']:.1f} %",
        "four words in a row that come out": f"{100 * found['overlap']:.1f} %",
        "words in common with the nearest text": f"{100 * found['alike']:.1f} %",
    }
    pairs = [[near["released"], near["nearest"] or "–", f"{100 * near['alike']:.0f} %"] for near in found["nearest"]]
    return section(
        element("h2", "What the rewriter was made of"),
        paragraph(f"How much of it is found again in {found['texts']:,} released texts."),
        table(["of the rewriter's own texts", "share"], list(shares.items()), "scores", 1),
        table(["released", "the nearest of its own", "in common"], pairs, "samples stacked"),
        paragraph(
            "Where its texts are public this is as it should be; where they are private, they leak.", class_="note"
        ),
    )


def _samples(run: Run, most: int) -> Html:
    """The first sentences, or nodes, of every split, side by side."""
    parts = []
    of_nodes = run.config.get("task") == "nodes"
    heads = {
        "source": "node" if of_nodes else "source",
        "reference": "true class" if of_nodes else "reference",
        "before": "before training",
        "hypothesis": "what the model says" if of_nodes else "after training",
    }
    for split in run.splits():
        rows = run.predictions(split)[:most]
        shown = {key: head for key, head in heads.items() if any(key in row for row in rows)}
        if rows:
            cells = [[str(row.get(key, "–")) for key in shown] for row in rows]
            parts += [element("h3", split), table(list(shown.values()), cells, "samples stacked")]
    if not parts:
        return Html("")
    note = (
        f"These {'nodes' if of_nodes else 'sentences'} were held out of training, and the promise does not cover them: "
        "mind who may read this page."
    )
    return section(element("h2", "What it answers"), *parts, paragraph(note, class_="note"))


def _settings(run: Run) -> Html:
    """What was asked for, but for seeds: whoever knows the one of the noise can take the noise off."""
    hidden = "given, and left to config.yaml"
    given = {
        name: hidden if name.rpartition(".")[2] == "seed" and value != "none" else value
        for name, value in settings(run.config).items()
    }
    begun = re.sub(r"(seed[ =])\S+", r"\1…", run.command)
    command = [paragraph("It was begun by:"), box(begun)] if begun else []
    return section(element("h2", "Settings"), *command, table(["setting", "value"], list(given.items()), "settings"))


def _in_short(run: Run, number: int, place: Path) -> Html:
    """A run on the page of many, with a link to its own page where it has one."""
    promised = run.guarantee
    kind, short, _ = _caution(promised)
    reached = [f"{label(name)} {value:.2f}" for found in scores(run)[:1] for name, value in found.after.items()]
    name = element("a", run.name, href=relpath(run.report, place.parent)) if run.report.exists() else run.name
    return element(
        "article",
        element("h3", name, element("span", short, class_=f"tag {kind}") if kind else ""),
        paragraph(", ".join([f"ε {'≤' if promised.is_private else '='} {cost(promised.epsilon)}", *reached])),
        box(promised.signature()),
        id=f"run-{number}",
    )
