"""The folder of a run: what was asked for, what it promises, and what came out.

    runs/<name>/
      config.yaml        all that is needed to run it again
      privacy.json       the guarantee, and the events that it is computed from whenever it is read (`runs/privacy.py`)
      metrics.jsonl      one line per evaluation
      predictions/       one .jsonl per split
      rewritten/         one .jsonl per split: texts that were rewritten to be published, and provenance.json
      details.json       what is behind the scores of each split: classes, or what a guess without context reaches
      leakage.json       how much comes out again of what a rewriter was made of, where that was measured
      audit.json         what attacks on the model found that did not look at the training set, by attack
      canaries.json      made-up records, and which of them were put among the training data to be looked for
      model/             Hugging Face format
      checkpoints/       to go on from after a crash
      report.html        one self-contained page
      not-covered/       audit.json and audit.html of attacks that looked at the training set; not to be published

Every file is whole or not there (`dpnlp.atomic`). No function here takes sentences of the training set but for those
that are made up, so that what lies in the folder is covered by the guarantee, but for what is named as not covered (law
9).
"""

import math
import re
import shutil
from collections.abc import Iterable, Mapping
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dpnlp.atomic import Taken, refusals, write
from dpnlp.checks import BadInput
from dpnlp.foreign import parse_yaml
from dpnlp.guarantee import Guarantee
from dpnlp.runs.files import as_json, json_lines, json_object, read
from dpnlp.runs.memory import Memory
from dpnlp.runs.privacy import Privacy

CONFIG, PRIVACY, METRICS = "config.yaml", "privacy.json", "metrics.jsonl"
PROVENANCE = "provenance.json"
"""What lies in the folder of whatever dpnlp makes, beside the thing itself."""
DETAILS, AUDIT, LEAKAGE = "details.json", "audit.json", "leakage.json"
CANARIES = "canaries.json"
NOT_COVERED = "not-covered"

ATTACKS: Mapping[str, bool] = {
    "secrets": True,
    "canaries": True,
    "inversion": True,
    "membership": False,
    "extraction": False,
}
"""The attacks on a run, and whether the guarantee covers what they find. It does where only the model and made-up
records were looked at; one that tells the training set from other texts, or looks for it, is not covered (law 9)."""

_PROMISES = Memory("promises")
"""What each run that was made on this machine promised last, by its id."""
_MADE = (".", "model", "rewritten")
"""Where in its folder lies what a run made, and what says of what."""

SCORED_ON_TRAINING_DATA = (
    "This is scored on training data, so that it is not covered by the guarantee of the run: keep it as you keep the "
    "data."
)
NOT_COVERED_BY = (
    "This audit has looked at the training set, so that what it found is not covered by the guarantee of the run: keep "
    "it as you keep the data."
)


class Run:
    """One run, in its folder. `Run.create` begins one, `Run.open` reads or continues one."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, path: str | Path, config: Mapping[str, Any], command: str) -> "Run":
        """Makes the folder and writes the config, with the command that it came from in the first line."""
        import yaml

        run = cls(path)
        settings = yaml.safe_dump(dict(config), sort_keys=False, width=1000)
        shown = "".join(filter(str.isprintable, " ".join(command.split())))
        head = f"# dpnlp {version('dpnlp')}: {shown}\n"
        with refusals(run.path):
            run.path.mkdir(parents=True, exist_ok=True)
            others = sorted(entry.name for entry in run.path.iterdir() if not entry.name.startswith("."))
        if others and CONFIG not in others:
            raise BadInput(f"{run.path}: there is {others[0]} in it already; choose another name with --name.")
        try:
            write(run.path / CONFIG, head + settings, fresh=True)
        except Taken:
            raise BadInput(
                f"{run.path}: a run of this name exists already; choose another with --name, or continue it with "
                "--resume."
            ) from None
        return run

    @classmethod
    def open(cls, path: str | Path) -> "Run":
        """A run that exists already."""
        run = cls(path)
        if not run.path.is_dir():
            raise BadInput(f"{run.path}: there is no such folder; give the folder of a run.")
        if not (run.path / CONFIG).is_file():
            raise BadInput(f"{run.path}: it is not the folder of a run, for it has no {CONFIG}.")
        return run

    @staticmethod
    def find(path: str | Path) -> list["Run"]:
        """The run in this folder, or else all runs that lie in it at any depth, by name."""
        path = Path(path)
        if not path.is_dir() or (path / CONFIG).is_file():
            return [Run.open(path)]
        found = [Run(file.parent) for file in sorted(path.rglob(CONFIG))]
        if not found:
            raise BadInput(f"{path}: there is no run in this folder, for no {CONFIG} lies in it.")
        return found

    @property
    def name(self) -> str:
        return self.path.resolve().name

    # Places that others write to

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def write_report(self, page: str) -> None:
        """The page for people."""
        write(self.report, page)

    def rewritten(self, split: str) -> Path:
        """Where the rewritten texts of a split are."""
        return self.path / "rewritten" / f"{split}.jsonl"

    def rewritten_splits(self) -> list[str]:
        """The splits that were rewritten."""
        return sorted(file.stem for file in (self.path / "rewritten").glob("*.jsonl"))

    def rewritten_texts(self, split: str, most: int | None = None) -> list[dict[str, Any]]:
        """The rewritten texts, or so many of the first, each with its label if it has one."""
        return json_lines(self.rewritten(split), most)

    # What was asked for

    @cached_property
    def config(self) -> dict[str, Any]:
        """The settings, nested as they were given."""
        return dict(parse_yaml(read(self.path / CONFIG), self.path / CONFIG))

    @property
    def command(self) -> str:
        """The command that began the run, or nothing where the config was written by hand."""
        match = re.match(r"# dpnlp \S+: (.*)", read(self.path / CONFIG))
        return match[1] if match else ""

    # What it promises

    def write_privacy(self, privacy: Privacy) -> None:
        """Writes what the run promises, with all that this follows from, and remembers it."""
        own, entry = bytes.fromhex(privacy.run), privacy.to_json()
        kept = {name: entry[name] for name in ("origins", "learned_from")}
        _PROMISES.remember([own], kept)  # Until the file is there what it said before is remembered, too.
        write(self.path / PRIVACY, as_json(PRIVACY, entry, indent=2) + "\n")
        _PROMISES.keep_only(own, kept)
        self.__dict__.pop("privacy", None)

    def remove(self) -> None:
        """Removes a run that released nothing, and what is remembered of its promise."""
        if (self.path / PRIVACY).exists():
            _PROMISES.forget(bytes.fromhex(self.id))
            del self.privacy
        shutil.rmtree(self.path, ignore_errors=True)

    @cached_property
    def privacy(self) -> Privacy:
        """What privacy.json says, computed from its events. Whatever does not follow from them is refused."""
        return read_privacy(self.path / PRIVACY)

    @property
    def id(self) -> str:
        """What the run is known by, wherever its folder lies."""
        return self.privacy.run

    @property
    def guarantee(self) -> Guarantee:
        """What the run promises."""
        return self.privacy.guarantee

    # What came out

    def write_metrics(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """All evaluations so far, one line each; the file is written anew, so that none stands there twice."""
        write(self.path / METRICS, "".join(as_json(METRICS, row) + "\n" for row in rows))

    def metrics(self) -> list[dict[str, Any]]:
        """The evaluations, earliest first; an ε of "inf" becomes a number."""
        rows = json_lines(self.path / METRICS)
        return [{**row, "epsilon": math.inf} if row.get("epsilon") == "inf" else row for row in rows]

    def write_predictions(self, split: str, rows: Iterable[Mapping[str, str]]) -> None:
        """What the model wrote for a split: source, reference, hypothesis and, if known, before (training)."""
        file = self._predictions(split)
        with refusals(file.parent):
            file.parent.mkdir(exist_ok=True)
        write(file, "".join(as_json(file.name, row) + "\n" for row in rows))

    def predictions(self, split: str) -> list[dict[str, Any]]:
        """What was written for the split; empty where nothing was."""
        return json_lines(self._predictions(split))

    def splits(self) -> list[str]:
        """The splits that there are predictions of."""
        return sorted(file.stem for file in (self.path / "predictions").glob("*.jsonl"))

    def details(self) -> dict[str, Any]:
        """What is behind the scores, by split; empty where a task has nothing to say about that."""
        file = self.path / DETAILS
        return json_object(file, read(file)) if file.exists() else {}

    def write_details(self, entry: Mapping[str, Any]) -> None:
        """Counts over data held out, by split."""
        write(self.path / DETAILS, as_json(DETAILS, entry, indent=2) + "\n")

    def canaries(self) -> dict[str, Any] | None:
        """The made-up records that the run began with; None where there are none."""
        file = self.path / CANARIES
        return json_object(file, read(file)) if file.exists() else None

    def write_canaries(self, entry: Mapping[str, Any]) -> None:
        """Made-up records, and which of them were put in: those that a run that is stopped goes on with."""
        write(self.path / CANARIES, as_json(CANARIES, entry) + "\n")

    @property
    def audit_report(self) -> Path:
        """The page of all attacks, which is not covered by the guarantee."""
        return self.path / NOT_COVERED / "audit.html"

    def write_audit_report(self, page: str) -> None:
        """The page of all attacks, apart from what may be published."""
        write(self.apart("audit.html"), page)

    def audit(self, covered: bool = True) -> dict[str, Any]:
        """What attacks found, by attack: those that the guarantee covers, or those that it does not."""
        file = self._audit(covered)
        return json_object(file, read(file)) if file.exists() else {}

    def add_audit(self, attack: str, finding: Mapping[str, Any]) -> None:
        """Puts what an attack found beside what others did, in place of what the same one found before."""
        if attack not in ATTACKS:
            raise BadInput(f"attack = {attack}: it must be one of {', '.join(ATTACKS)}.")
        covered = ATTACKS[attack]
        file = self._audit(covered) if covered else self.apart(AUDIT)
        own = finding if covered else {**finding, "not_covered": NOT_COVERED_BY}
        write(file, as_json(AUDIT, {**self.audit(covered), attack: own}, indent=2) + "\n")

    def _audit(self, covered: bool) -> Path:
        return self.path / AUDIT if covered else self.path / NOT_COVERED / AUDIT

    def apart(self, name: str) -> Path:
        """A file in the folder that is not to be published, and that nobody else may look into."""
        file = self.path / NOT_COVERED / name
        with refusals(file.parent):
            file.parent.mkdir(mode=0o700, exist_ok=True)
        return file

    def leakage(self) -> dict[str, Any] | None:
        """How much of what the rewriter was made of comes out again, where that was measured."""
        file = self.path / LEAKAGE
        return json_object(file, read(file)) if file.exists() else None

    def write_leakage(self, entry: Mapping[str, Any]) -> None:
        """The shares, and some released texts beside the nearest of those behind the rewriter."""
        write(self.path / LEAKAGE, as_json(LEAKAGE, entry, indent=2) + "\n")

    def _predictions(self, split: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", split) or "train" in split.lower():
            raise BadInput(f"split = {split!r}: it must be validation, test or another name of data held out.")
        return self.path / "predictions" / f"{split}.jsonl"


def read_privacy(file: Path) -> Privacy:
    """What a privacy.json says, if it follows from the events in it, and nothing that is known says otherwise."""
    if not file.exists():
        raise BadInput(f"{file}: it is missing, so nothing is known of what this run promises; let it run first.")
    try:
        privacy = Privacy.from_json(json_object(file, read(file)))
        _refuse_contradicted(privacy, file.parent)
        return privacy
    except BadInput as error:
        said = str(error).removeprefix(f"{file}: ")
        raise BadInput(f"{file}: {said.rstrip('.')}; restore the file that the run wrote.") from None


def _refuse_contradicted(privacy: Privacy, folder: Path) -> None:
    """Refuses what says less than this machine remembers of the run, or than what lies beside the things it made."""
    own = bytes.fromhex(privacy.run)
    remembered = _PROMISES.of([own]).get(own)
    if remembered and not any(map(privacy.tells, remembered)):
        raise BadInput("it says otherwise than this machine remembers of the run.")
    for file in (folder / place / PROVENANCE for place in _MADE):
        if file.is_file():
            beside = json_object(file, read(file))
            if not isinstance(beside.get("origins"), list) or not privacy.tells(beside):
                raise BadInput(f"{file.relative_to(folder)} says otherwise of what was done.")
