"""`dpnlp demo`: a clinic's notes, one model with privacy and one without, and what each of them gives away."""

import json
import math
import shutil
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dpnlp.accounting.subsampling import Sampling
from dpnlp.atomic import write
from dpnlp.checks import BadInput
from dpnlp.cli.config import option
from dpnlp.cli.output import figure, print_json, print_table
from dpnlp.cli.ranges import EPSILON
from dpnlp.cli.sections import Learning, TextPrivacy
from dpnlp.cli.translation import TrainTranslation, opened
from dpnlp.cli.translation_settings import Data, Model, Scoring
from dpnlp.runs.folder import Run
from dpnlp.runs.page import page_of_run, page_of_runs
from dpnlp.runs.provenance import Door
from dpnlp.runs.tables import scores

if TYPE_CHECKING:
    from dpnlp.audit.exposure import Exposed
    from dpnlp.data.pairs import Pair
    from dpnlp.demo.grammar import Secret

NOTES, TESTED, SEED = 20_000, 200, 0
TIMES = (1, 2, 4, 8, 8)
"""How often each of the secrets stands in the notes."""
CANDIDATES = 1024
"""Among how many codes, all equally likely, a secret is looked for."""
LONGEST = 32
PRIVATELY = Learning(lot_size=512, steps=110, rate=5e-3, physical_batch=64, lengths=(24, LONGEST))
PLAINLY = Learning(lot_size=64, steps=625, rate=2e-3, warmup=20, physical_batch=64, lengths=(24, LONGEST))


@dataclass(frozen=True, kw_only=True)
class Demo:
    """See it at work in a few minutes: notes of a clinic are made up, with secrets among them; a small model that has
    learned public sentences is trained on them with privacy and without; both translate notes that they have not seen,
    and both are asked for the secrets. Or, with --rewriting, what patients write is exchanged for public sentences with
    more and more noise, and a classifier learns from these. All that comes out is in the folder, with pages to look at.
    """

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp demo",
        "dpnlp demo --folder clinic --epsilon 1",
        "dpnlp demo --folder desk --rewriting",
    )

    folder: Path = option(Path("demo"), help="Where everything is written")
    epsilon: float = option(5.0, within=EPSILON, help="The ε of the private model")
    rewriting: bool = option(False, help="Show how texts are rewritten instead, in a minute")
    json: bool = option(False, help="Print one JSON object at the end instead of words", group="output")

    def run(self) -> None:
        """Tells what it does on stderr, and what came out on stdout."""
        from dpnlp.demo import grammar

        if self.folder.exists() and any(self.folder.iterdir()):
            raise BadInput(f"folder = {self.folder}: there is something in it already; choose another, or delete it.")
        if self.rewriting:
            from dpnlp.cli.rewriting_demo import show

            show(self.folder, _say, as_json=self.json)
            return
        started = time.perf_counter()
        secrets = grammar.secrets(TIMES, SEED)
        _say(f"1. {NOTES:,} notes of a clinic, German with English, are made up; {len(secrets)} hold an access code.")
        with as_file(files("dpnlp.demo") / "model") as start:
            shutil.copytree(start, self.folder / "start")
        _write(self.folder / "notes.jsonl", grammar.private(NOTES, SEED, secrets))
        _write(self.folder / "test.jsonl", grammar.test(TESTED, SEED))
        _say(
            f"2. A small model that knows everyday sentences learns from them with privacy, ε = {figure(self.epsilon)}."
        )
        private = self._trained("private", TextPrivacy(self.epsilon, delta=1e-5, clip_norm=0.1), PRIVATELY)
        _say("3. The same model learns from them without privacy.")
        plain = self._trained("non-private", TextPrivacy(math.inf, sampling=Sampling.SHUFFLED), PLAINLY)
        _say(f"4. Both are asked for the codes: do they prefer the true one to {CANDIDATES - 1:,} others?")
        rows = [_row(run, _audited(run, secrets)) for run in (private, plain)]
        page = self.folder / "report.html"
        write(page, page_of_runs([private, plain], page))
        if self.json:
            print_json({"runs": rows, "seconds": time.perf_counter() - started})
        else:
            _print(rows, time.perf_counter() - started)
            print(f"Look at {page}, {private.report} and {plain.report}.")

    def _trained(self, name: str, privacy: TextPrivacy, learning: Learning) -> Run:
        data = Data(
            train=(str(self.folder / "notes.jsonl"),),
            test=(str(self.folder / "test.jsonl"),),
            owner="owner",
            longest=LONGEST,
            cache=self.folder / "cache",
        )
        return TrainTranslation(
            name=name,
            runs=self.folder,
            data=data,
            model=Model(str(self.folder / "start")),
            privacy=privacy,
            learning=learning,
            scoring=Scoring(beams=1, batch=64),
        ).made()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _write(path: Path, pairs: "Iterable[Pair]") -> None:
    lines = (json.dumps(pair._asdict(), ensure_ascii=False) for pair in pairs)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _audited(run: Run, secrets: "Sequence[Secret]") -> "list[tuple[Exposed, bool]]":
    """How far each secret is exposed, and whether the model writes it when it is given the note; kept in the run."""
    from dpnlp.audit.exposure import exposures
    from dpnlp.tasks.translation import Writing

    task, _ = opened(str(run.path), Data(), "float32", Door())
    pairs = [secret.pair for secret in secrets]
    found = exposures(pairs, [secret.others(CANDIDATES - 1, SEED) for secret in secrets], task.surprise)
    written = task.translate([pair.source for pair in pairs], Writing(LONGEST))
    told = [secret.code in "".join(text.split()) for secret, text in zip(secrets, written, strict=True)]
    entries = [
        exposed.to_json() | {"text": f"{secret.with_code('…').target} In {secret.times} of the notes"}
        for exposed, secret in zip(found, secrets, strict=True)
    ]
    note = (
        f"{sum(told)} of {len(told)} codes are written out when the model is given the note they belong to. At most "
        f"{found[0].ceiling:.0f} bits can be seen; about 1.4 are expected of a model that knows nothing."
    )
    run.add_audit("secrets", {"secrets": entries, "note": note})
    run.write_report(page_of_run(run))
    return list(zip(found, told, strict=True))


def _row(run: Run, found: "Sequence[tuple[Exposed, bool]]") -> dict[str, Any]:
    """What the demonstration is about, for one of the models."""
    from dpnlp.audit.exposure import expected_by_chance

    tested = scores(run)[0]
    return {
        "run": str(run.path),
        "epsilon": run.guarantee.epsilon,
        "bleu_before": tested.before["bleu"],
        "bleu": tested.after["bleu"],
        "exposure_bits": statistics.fmean(exposed.exposure for exposed, _ in found),
        "exposure_at_most": found[0][0].ceiling,
        "exposure_by_chance": expected_by_chance(CANDIDATES),
        "codes_written_out": sum(told for _, told in found),
        "codes": len(found),
    }


def _print(rows: Sequence[dict[str, Any]], seconds: float) -> None:
    first = rows[0]
    print_table(
        "What came out",
        ["model", "ε", "BLEU on unseen notes", "exposure of the codes", "codes written out"],
        [
            ["before", "–", f"{first['bleu_before']:.1f}", "–", "–"],
            *(
                [
                    Path(row["run"]).name,
                    figure(row["epsilon"]),
                    f"{row['bleu']:.1f}",
                    f"{row['exposure_bits']:.1f} of {row['exposure_at_most']:.0f} bits",
                    f"{row['codes_written_out']} of {row['codes']}",
                ]
                for row in rows
            ),
        ],
        "Exposure (Carlini et al. 2019): a model that never saw a code reaches "
        f"{first['exposure_by_chance']:.1f} bits on average. All of it took {seconds:.0f} s.",
    )
