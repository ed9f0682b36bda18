"""What canaries show: of models with privacy and without, of planted defects, and what looking for them costs.

python -m benchmarks.canaries seeds [--seeds 20] [--canaries 2400] [--notes 1200]
python -m benchmarks.canaries open [--seeds 5]
python -m benchmarks.canaries defects [--seeds 3] [--only 'noise halved']
python -m benchmarks.canaries best [--seeds 3] [--canaries 2400]
python -m benchmarks.canaries cost [--canaries 100] [--notes 20000]

The texts are the notes of the demo's clinic, and the model that learns from them is the demo's.

`seeds`    at ε = 5, with so many canaries that guesses without a mistake would refute the claim: what is shown
`open`     the same notes with 100 canaries, learned by heart without privacy, and with ε = 5
`defects`  where the audit is strongest, one step of all records with ε = 1: what it shows when training is broken
`best`     what the best of all scores would show where there is less noise than is claimed
`cost`     a run as the demo's private one, with 100 canaries: how much of its time is theirs
"""

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from dpnlp.accounting.subsampling import Sampling
from dpnlp.audit.canaries import Canaries, Canary, Found
from dpnlp.cli.canaries import Planted
from dpnlp.cli.demo import PRIVATELY
from dpnlp.cli.sections import Audit, Learning, TextPrivacy
from dpnlp.cli.translation import TrainTranslation
from dpnlp.cli.translation_settings import Data, Model, Scoring
from dpnlp.demo import grammar
from dpnlp.mechanisms.gaussian import Gaussian
from dpnlp.runs.folder import Run
from dpnlp.training.clipping import Clipping
from dpnlp.training.plan import Plan
from dpnlp.training.sampling import Lots

LONGEST, DELTA = 32, 1e-6
LAYERS = ("decoder.0.cross_attention.query.kernel", "decoder.1.feed_forward.down.kernel", "tokens.table")
"""What is not clipped, where clipping is off for one layer."""


def trained(
    folder: Path, name: str, seed: int, notes: int, canaries: int, privacy: TextPrivacy, learning: Learning
) -> Run:
    """A run on so many notes of the clinic, with so many canaries."""
    file = folder / f"notes-{notes}-{seed}.jsonl"
    if not file.exists():
        lines = (json.dumps(pair._asdict(), ensure_ascii=False) for pair in grammar.private(notes, seed))
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    with as_file(files("dpnlp.demo") / "model") as start:
        asked = TrainTranslation(
            name=name,
            runs=folder / "runs",
            data=Data(train=(str(file),), longest=LONGEST, cache=folder / "cache"),
            model=Model(str(start)),
            privacy=privacy,
            learning=learning,
            scoring=Scoring(beams=1, batch=64),
            audit=Audit(canaries),
        )
        return asked.made()


def said(run: Run, seconds: float) -> dict[str, Any]:
    """What the audit of a run found, in short."""
    found = run.audit()["canaries"]
    scores = {score["score"]: round(score["auc"], 3) for score in found["scores"]}
    written = found["written"] or {"written": 0, "canaries": 0}
    return {
        "run": run.name,
        "claimed": found["claimed"],
        "above": round(found["above"], 3),
        "most": round(found["most"], 2),
        "auc": scores,
        "exposure": round(found["exposure"]["mean"], 2),
        "by_chance": round(found["exposure"]["by_chance"], 2),
        "at_most": round(found["exposure"]["at_most"], 2),
        "written": f"{written['written']} of {written['canaries']}",
        "seconds": round(seconds, 1),
    }


def show(entry: Mapping[str, Any]) -> None:
    print(json.dumps(entry, ensure_ascii=False), flush=True)


def timed(*asked: Any) -> dict[str, Any]:
    start = time.perf_counter()
    run = trained(*asked)
    entry = said(run, time.perf_counter() - start)
    show(entry)
    return entry


def private(epsilon: float, seed: int) -> TextPrivacy:
    return TextPrivacy(epsilon, delta=DELTA, clip_norm=0.1, seed=seed)


# With privacy and without


def seeds(folder: Path, given: argparse.Namespace) -> None:
    """ε = 5: the bound, for each of many seeds."""
    learning = Learning(lot_size=200, steps=10, rate=5e-3, physical_batch=64, lengths=(24, LONGEST))
    rows = [
        timed(folder, f"seed-{seed}", seed, given.notes, given.canaries, private(5.0, seed), learning)
        for seed in range(given.seeds)
    ]
    bounds = [row["above"] for row in rows]
    show({"below the claim": sum(row["above"] <= row["claimed"] for row in rows), "of": len(rows)})
    show({"highest bound": max(bounds), "mean bound": round(statistics.fmean(bounds), 3), "most": rows[0]["most"]})


def in_the_open(folder: Path, given: argparse.Namespace) -> None:
    """100 canaries among 300 notes, learned by heart, and with ε = 5."""
    plainly = Learning(lot_size=64, epochs=50, rate=3e-3, warmup=20, physical_batch=64, lengths=(24, LONGEST))
    privately = Learning(lot_size=64, steps=60, rate=5e-3, physical_batch=64, lengths=(24, LONGEST))
    for seed in range(given.seeds):
        without = TextPrivacy(math.inf, delta=DELTA, sampling=Sampling.SHUFFLED, seed=seed)
        timed(folder, f"open-{seed}", seed, 300, 100, without, plainly)
        timed(folder, f"private-{seed}", seed, 300, 100, private(5.0, seed), privately)


# Planted defects


@contextmanager
def noise_times(share: float) -> Iterator[None]:
    """So much of the noise that is accounted for."""
    own = Plan.stddev.fget  # type: ignore[attr-defined]
    with mock.patch.object(Plan, "stddev", property(lambda plan: share * own(plan))):
        yield


@contextmanager
def unclipped(layer: str) -> Iterator[None]:
    """One layer adds what it likes."""
    own = Clipping.factors

    def factors(self: Clipping, books: Any, whole: Any) -> dict[str, jax.Array]:
        found = own(self, books, whole)
        return found | {layer: jnp.ones_like(found[layer])}

    with mock.patch.object(Clipping, "factors", factors):
        yield


@contextmanager
def repeated(notes: int, times: int) -> Iterator[None]:
    """A canary that is in a lot is there so many times; canaries come after the notes."""
    own = Lots.draw

    def draw(self: Lots, step: int) -> Any:
        lot = own(self, step)
        return np.concatenate((lot, np.repeat(lot[lot >= notes], times - 1)))

    with mock.patch.object(Lots, "draw", draw):
        yield


def planted(notes: int) -> dict[str, Callable[[], AbstractContextManager[None]]]:
    """The defects, by what they are."""
    return {
        "none": nullcontext,
        "noise halved": partial(noise_times, 0.5),
        "a record used twice": partial(repeated, notes, 2),
        "a tenth of the noise": partial(noise_times, 0.1),
        "no noise": partial(noise_times, 0.0),
        **{f"no clipping of {layer}": partial(unclipped, layer) for layer in LAYERS},
    }


def defects(folder: Path, given: argparse.Namespace) -> None:
    """One step of nearly all records, by plain descent, so that the weights move by the noisy sum itself."""
    notes, canaries = 20, 400
    learning = Learning(
        lot_size=180, steps=1, rate=10.0, optimizer="sgd", decay="constant", physical_batch=64, lengths=(24, LONGEST)
    )
    for number, (what, defect) in enumerate(planted(notes).items()):
        if given.only not in what:
            continue
        rows = []
        for seed in range(given.seeds):
            with defect(), mock.patch("dpnlp.cli.canaries._refuse_too_many"):  # The fewer others, the more is seen.
                run = trained(folder, f"defect-{number}-{seed}", seed, notes, canaries, private(1.0, seed), learning)
            rows.append(said(run, 0.0))
        seen = sum(row["above"] > row["claimed"] for row in rows)
        shown = {"shown": [row["above"] for row in rows], "most": [row["most"] for row in rows]}
        show({"defect": what, **shown, "seen": f"{seen} of {len(rows)}", "auc": [row["auc"] for row in rows]})


def best(folder: Path, given: argparse.Namespace) -> None:
    """The bound by the best score there is, for one Gaussian of sensitivity 1: the answer itself."""
    rng = np.random.default_rng(0)
    for epsilon in (1.0, 2.0, 5.0, 8.0):
        sigma = Gaussian(1.0, epsilon, DELTA).sigma
        for share in (1.0, 1 / 2, 1 / 4, 1 / 10):
            bounds = []
            for _ in range(given.seeds):
                coins = rng.random(given.canaries) < 0.5
                drawn = Canaries(Canary((), (), bool(coin)) for coin in coins)
                answers = {"answer": coins + share * sigma * rng.normal(size=len(coins))}
                bounds.append(round(Found(drawn, answers).above(DELTA), 2))
            show({"claimed": epsilon, "noise": share, "shown": bounds})


# Cost


def cost(folder: Path, given: argparse.Namespace) -> None:
    """A run as the demo's private one with 100 canaries: how much of its time is theirs."""
    spent = []

    def clocked(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            start = time.perf_counter()
            found = call(*arguments)
            spent.append(time.perf_counter() - start)
            return found

        return called

    start = time.perf_counter()
    with (
        mock.patch.object(Planted, "__init__", clocked(Planted.__init__)),
        mock.patch.object(Planted, "found", clocked(Planted.found)),
    ):
        trained(folder, "cost", 0, given.notes, given.canaries, private(5.0, 0), PRIVATELY)
    whole = time.perf_counter() - start
    show(
        {
            "seconds of the run": round(whole, 1),
            "of these to draw canaries and put them in": round(spent[0], 2),
            "and to look for them": round(spent[1], 2),
            "added": f"{100 * sum(spent) / (whole - sum(spent)):.1f} %",
        }
    )


PARTS: Mapping[str, tuple[Callable[[Path, argparse.Namespace], None], dict[str, int | str]]] = {
    "seeds": (seeds, {"seeds": 20, "canaries": 2400, "notes": 1200}),
    "open": (in_the_open, {"seeds": 5}),
    "defects": (defects, {"seeds": 3, "only": ""}),
    "best": (best, {"seeds": 3, "canaries": 2400}),
    "cost": (cost, {"canaries": 100, "notes": 20_000}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    chosen = parser.add_subparsers(dest="part", required=True)
    for name, (_, options) in PARTS.items():
        part = chosen.add_parser(name)
        for option, usual in options.items():
            part.add_argument(f"--{option}", type=type(usual), default=usual)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.part != "cost":  # Runs share what is compiled.
            jax.config.update("jax_compilation_cache_dir", str(Path(folder) / "compiled"))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        PARTS[given.part][0](Path(folder), given)


if __name__ == "__main__":
    main()
