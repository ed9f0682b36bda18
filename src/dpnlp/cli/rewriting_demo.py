"""`dpnlp demo --rewriting`: what patients write is exchanged for public sentences, at several ε."""

import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from dpnlp.atomic import write
from dpnlp.cli.output import figure, print_json, print_table
from dpnlp.cli.pretrain import Data
from dpnlp.cli.rewrite import Privacy, Rewrite, Scoring, Texts
from dpnlp.cli.rewriters import Encoder, PretrainEcho
from dpnlp.runs import provenance
from dpnlp.runs.folder import Run
from dpnlp.runs.page import page_of_runs
from dpnlp.runs.tables import scores

PUBLIC, PRIVATE, TESTED, SEED = 4_000, 5_000, 500, 0
EPSILONS = (math.inf, 10.0, 3.0, 1.0)
"""Rewritten without noise, and with more and more of it."""


def show(folder: Path, say: Callable[[str], None], *, as_json: bool) -> None:
    """All of it, from the texts to the table."""
    from dpnlp.demo import encoder, grammar, requests
    from dpnlp.models.pretrained.encoders import save_encoder

    started = time.perf_counter()
    say(f"1. {PRIVATE:,} requests of patients, with what they are about, and {PUBLIC:,} public sentences are made up.")
    public = [pair.target for pair in grammar.public(PUBLIC, SEED)]
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "public.txt", "".join(f"{text}\n" for text in public))
    _write(folder / "requests.jsonl", requests.private(PRIVATE, SEED))
    _write(folder / "test.jsonl", requests.test(TESTED, SEED))
    say("2. A sentence encoder and a rewriter are made of the public sentences.")
    save_encoder(encoder.encoder(public), folder / "encoder")
    provenance.Door().keep(folder / "encoder", provenance.PUBLIC)
    PretrainEcho(
        output=folder / "rewriter",
        data=Data(train=(str(folder / "public.txt"),), public=True),
        model=Encoder(encoder=str(folder / "encoder")),
    ).make()
    say("3. Every request is exchanged for a public sentence; a classifier learns from these what requests are about.")
    runs = [_rewritten(folder, epsilon) for epsilon in EPSILONS]
    page = folder / "report.html"
    write(page, page_of_runs(runs, page))
    original = requests.private(1, SEED)[0].text
    rows = [{**_row(run), "original": original} for run in runs]
    if as_json:
        print_json({"runs": rows, "seconds": time.perf_counter() - started})
    else:
        _print(rows, time.perf_counter() - started)
        print(f"Look at {page} and at the report.html of each run beside it.")


def _print(rows: Sequence[dict[str, Any]], seconds: float) -> None:
    first = rows[0]
    print_table(
        "What came out",
        ["the first request", "learned from", "ε for a text", "macro-F1 on original requests"],
        [
            [first["original"], "the originals", "–", f"{first['macro_f1_of_originals']:.2f}"],
            *(
                [
                    row["rewritten"],
                    "rewritten with noise" if math.isfinite(row["epsilon"]) else "rewritten without noise",
                    figure(row["epsilon"]),
                    f"{row['macro_f1']:.2f}",
                ]
                for row in rows
            ),
        ],
        f"All of it took {seconds:.0f} s. What requests are about is in clear here; --privacy.label-epsilon of dpnlp "
        "rewrite randomizes that, too.",
    )


def _write(path: Path, records: "Iterable[Any]") -> None:
    write(path, "".join(f"{json.dumps(record._asdict())}\n" for record in records))


def _rewritten(folder: Path, epsilon: float) -> Run:
    from dpnlp.demo.requests import TOPICS

    return Rewrite(
        name=f"epsilon-{figure(epsilon)}" if math.isfinite(epsilon) else "without-noise",
        runs=folder,
        rewriter=folder / "rewriter",
        data=Texts(
            train=(str(folder / "requests.jsonl"),), test=(str(folder / "test.jsonl"),), label="label", labels=TOPICS
        ),
        privacy=Privacy(epsilon=epsilon, diagnostics=math.isinf(epsilon)),
        scoring=Scoring(encoder=str(folder / "encoder"), made_of=(str(folder / "public.txt"),)),
    ).made()


def _row(run: Run) -> dict[str, Any]:
    score = scores(run)[0]
    return {
        "run": str(run.path),
        "epsilon": run.guarantee.epsilon,
        "macro_f1_of_originals": score.before.get("macro_f1"),
        "macro_f1": score.after["macro_f1"],
        "rewritten": run.rewritten_texts("train", 1)[0]["text"],
    }
