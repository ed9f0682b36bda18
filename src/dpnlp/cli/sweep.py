"""`dpnlp sweep`: a grid of runs from one file, ending in a table and a plot."""

import copy
import itertools
import math
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import yaml

from dpnlp.atomic import alone, refusals, write
from dpnlp.checks import BadInput
from dpnlp.cli.config import from_dict, nearest, option, shown, to_dict, warn
from dpnlp.cli.places import PICTURES, check_file
from dpnlp.cli.ranges import FEW
from dpnlp.cli.report import Report
from dpnlp.cli.rewrite import Rewrite
from dpnlp.cli.settings import read_settings
from dpnlp.cli.tasks import USUAL, verb_of
from dpnlp.cli.train import Train

if TYPE_CHECKING:
    from dpnlp.data.identity import Fingerprints

MOST = 10_000
"""The most runs of one grid."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Train, or rewrite, with every combination of some settings, one run after the other or several at once, and
    compare the runs in a table and a plot. The file holds under `settings` those of a run, or the names of files that
    have them, under `grid` lists of values by dotted name, and `seeds`; names with commas between them change together,
    each value then being a list. What is finished is not made again; what was stopped goes on. Every run is charged to
    the ledger, so that its sum also covers choosing the best of them; the ε of one run does not, which its statement
    names."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp sweep configs/nmt/bsd-grid.yaml",
        "dpnlp sweep configs/nmt/clinspen-grid.yaml --at-once 2 --plot clinspen.png",
    )

    file: Path = option(help="The YAML file of the grid", positional=True)
    runs: Path | None = option(None, help="The folder of the runs; by default runs/ and the name of the file")
    at_once: int = option(1, within=FEW, help="How many runs to make at the same time")
    plot: Path | None = option(None, help="Draw the scores into this file, over ε or over what varies")
    dry_run: bool = option(False, help="Only say which runs there are")
    json: bool = option(False, help="Print one JSON object instead of a table", group="output")

    def run(self) -> None:
        """Makes the runs, and compares them on stdout."""
        check_file("--plot", self.plot, endings=PICTURES)
        folder = self.runs or Path("runs") / self.file.stem
        grid = named_as_tuned(list(planned(self.file, folder)))
        for one in grid if self.dry_run else ():
            print(f"{one.name}{'   finished' if one.finished else ''}")
        if self.dry_run:
            return
        with refusals(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with alone(folder, f"--runs = {folder}: another process is making the runs in it; wait until it ends."):
            for file in (file for one in grid if one.finished for file in _beside(one)):
                file.unlink(missing_ok=True)  # A process was killed when nothing but this was left to do.
            failed = self._made([one for one in grid if not one.finished])
        for why in failed:
            warn(why)
        made = tuple(one.runs / one.name for one in grid if one.finished)  # Others may lie in the folder, too.
        if made:
            Report(runs=made, output=folder / "report.html", plot=self.plot, json=self.json).run()
        if failed:
            raise BadInput(
                f"{self.file}: {len(failed)} of its {len(grid)} runs could not be made; see the notes above."
            )

    def _made(self, waiting: Sequence[Train | Rewrite]) -> list[str]:
        """Makes the runs, and says what went wrong. Whoever interrupts it lets those at hand keep what they have."""
        running = _Running()
        with ThreadPoolExecutor(max(1, self.at_once)) as workers:
            tasks = list[Future[str]]()
            try:
                tasks += [workers.submit(running.make, one) for one in waiting]
                return [why for task in tasks if (why := task.result())]
            except KeyboardInterrupt:
                for task in tasks:
                    task.cancel()
                running.stop()
        chosen = ["--runs", str(self.runs)] if self.runs else []
        command = shlex.join(["dpnlp", "sweep", str(self.file), *chosen])
        raise KeyboardInterrupt(f"interrupted; what is done is kept. Go on with: {command}")


def named_as_tuned(grid: Sequence[Train | Rewrite]) -> list[Train | Rewrite]:
    """The runs, of which those that share private texts say so: who takes the best of them has seen all.

    Texts are known by what they say, under whatever names the files of two runs go.
    """
    from dpnlp.data.ledgers import alike

    own = [_private_data(one) for one in grid]
    times, known = Counter(own), dict(zip(own, grid, strict=True))
    seen = {data: _texts(one) for data, one in known.items()} if len(known) > 1 else {}
    shared = {
        data
        for data in known
        if times[data] > 1 or any(alike(seen[data], texts) for other, texts in seen.items() if other != data)
    }
    return [replace(one, tuned=one.tuned or data in shared) for one, data in zip(grid, own, strict=True)]


def _private_data(asked: Train | Rewrite) -> tuple[Any, ...]:
    """What says which data are private."""
    return tuple(getattr(asked.data, name, None) for name in ("train", "texts", "edges", "corpus", "folder"))


def _texts(asked: Train | Rewrite) -> "Fingerprints":
    """The fingerprints of the private texts. Where they cannot be read, the run itself will say so."""
    from dpnlp.data.ledgers import NOTHING

    try:
        found: Fingerprints = asked.data.seen().texts
    except BadInput:
        return NOTHING
    return found


def planned(file: Path, folder: Path) -> Iterator[Train | Rewrite]:
    """The runs of a grid, each with a name of its own that says where in the grid it is."""
    asked, known = read_settings(str(file)), ("settings", "grid", "seeds")
    for key in asked:
        if key not in known:
            raise BadInput(f"{key} in {file}: unknown key; the nearest known one is {nearest(str(key), known)}.")
    grid = asked.get("grid") or {}
    if not isinstance(grid, Mapping) or not all(isinstance(name, str) for name in grid):
        raise BadInput(f"grid in {file}: it must hold settings, each with a list of values; write NAME: [a, b].")
    axes = [_axis(file, name, _values(file, name, values)) for name, values in grid.items()]
    axes.append(_axis(file, "privacy.seed", _seeds(file, asked)))
    _refuse_twice(file, axes, seeds=asked.get("seeds") is not None)
    starts = list(_starts(file, asked.get("settings") or {}))
    if (count := len(starts) * math.prod(map(len, axes))) > MOST:
        raise BadInput(f"{file}: its grid has {count:,} runs; ask for at most {MOST:,} at once.")
    seen = set()
    for start, settings in starts:
        for places in itertools.product(*axes):
            chosen = {name: value for place in places for name, value in place.items()}
            words = (_word(name, value) for name, value in chosen.items() if value is not None)
            name = "-".join(filter(None, (start, *words))) or "run"
            if name in seen:
                raise BadInput(f"{file}: two of its runs would be named {name}; leave one of the equal values out.")
            seen.add(name)
            yield replace(_run(file, {**_nested(file, settings, chosen), "name": name}), runs=folder)


def _run(file: Path, whole: Mapping[str, Any]) -> Train | Rewrite:
    try:
        kind = Rewrite if "rewriter" in whole else verb_of("Train", str(whole.get("task", USUAL)))
        run: Train | Rewrite = from_dict(kind, whole)
    except BadInput as error:
        raise BadInput(f"{file}: {error}") from None
    return run


def _values(file: Path, name: str, values: Any) -> list[Any]:
    if not isinstance(values, list) or not values:
        raise BadInput(f"{name} in {file}: it must be a list of values; write [a, b].")
    return values


def _seeds(file: Path, asked: Mapping[Any, Any]) -> list[Any]:
    """The seeds, or none for noise that nobody can repeat."""
    if asked.get("seeds") is None:
        return [None]
    seeds = _values(file, "seeds", asked["seeds"])
    if any(seed is None for seed in seeds):
        raise BadInput(f"seeds in {file}: one of them is null; give whole numbers, or leave seeds out to have none.")
    return seeds


def _axis(file: Path, name: str, values: list[Any]) -> list[dict[str, Any]]:
    """What is chosen at each place of one axis: a value, or one for each of several names that change together."""
    names = [part.strip() for part in name.split(",")]
    if len(names) == 1:
        return [{name: value} for value in values]
    for value in values:
        if not isinstance(value, list) or len(value) != len(names):
            raise BadInput(f"{name} in {file}: {value} must be a list of {len(names)} values, one for each name.")
    if len({*names}) < len(names):
        raise BadInput(f"{name} in {file}: a name stands in it twice; keep one of them.")
    return [dict(zip(names, value, strict=True)) for value in values]


_OURS = ("name", "runs", "resume", "task", "json")
"""What the sweep itself says of its runs, or what would make other runs of them."""


def _refuse_twice(file: Path, axes: Sequence[list[dict[str, Any]]], seeds: bool) -> None:
    """What varies must be up to the grid, and vary in one place alone: else a run is not what its name says."""
    *chosen, last = [[*axis[0]] for axis in axes]
    names = Counter(name for axis in (*chosen, last if seeds else []) for name in axis)
    for name, times in names.items():
        if name in _OURS:
            raise BadInput(f"{name} in {file}: it cannot vary in a grid; leave it out, or write another grid for it.")
        others = [other for other in names if other.startswith(f"{name}.")]
        if times > 1 or others:
            raise BadInput(f"{name} in {file}: it varies in two places, of which one would be lost; keep one of them.")


def _starts(file: Path, settings: Any) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    """The settings that the grid starts from, and what tells them apart where there are several."""
    if isinstance(settings, Mapping):
        yield "", settings
    elif isinstance(settings, str):
        yield "", read_settings(str(file.parent / settings))
    elif isinstance(settings, list) and all(isinstance(name, str) for name in settings):
        yield from ((Path(name).stem, read_settings(str(file.parent / name))) for name in settings)
    else:
        raise BadInput(f"settings in {file}: they must be settings of a run, or names of files that have them.")


def _nested(file: Path, settings: Mapping[Any, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with some of them, by dotted name, replaced."""
    whole = copy.deepcopy(dict(settings))
    for name, value in chosen.items():
        *above, own = name.split(".")
        place = whole
        for part in above:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise BadInput(f"{name} in {file}: {part} holds no settings, but {shown(place)}; name another.")
        place[own] = value
    return whole


def _word(name: str, value: Any) -> str:
    """A setting as part of a name: epsilon_8, sampling_poisson, seed_0."""
    spelled = re.sub(r"[^A-Za-z0-9.]+", "_", Path(str(value)).name)
    return f"{name.rpartition('.')[2]}_{spelled}"


class _Running:
    """Runs in processes of their own, which hear of an interruption from here alone."""

    def __init__(self) -> None:
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def make(self, asked: Train | Rewrite) -> str:
        """Makes a run, and says what went wrong, if anything did."""
        settings, log = _beside(asked)
        settings.parent.mkdir(parents=True, exist_ok=True)
        write(settings, yaml.safe_dump({**to_dict(asked), "resume": asked.begun}, sort_keys=False))
        command = [sys.executable, "-m", "dpnlp", asked.VERB, str(settings)]
        with log.open("a", encoding="utf-8") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
            self._processes.add(process)
            if self._stopped:
                self._end(process)
            code = process.wait()
        if code == 0:
            settings.unlink()
            log.unlink()
            return ""
        return f"{asked.name}: it ended with exit code {code}; {log} says why."

    def stop(self) -> None:
        """Asks all of them to end."""
        self._stopped = True
        for process in list(self._processes):
            self._end(process)

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        """Asks one to end, once, for a second signal would end it before it has kept anything."""
        with suppress(KeyError):
            self._processes.remove(process)
            process.terminate()


def _beside(asked: Train | Rewrite) -> tuple[Path, Path]:
    """The settings of a run, and what it says, while it is made."""
    path = asked.runs / asked.name
    return path.with_name(f"{asked.name}.yaml"), path.with_name(f"{asked.name}.log")
