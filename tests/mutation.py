"""Mutation testing: small changes all over the code, a seeded sample of them, and whether the tests notice.

    make mutation                  goes on where it was stopped, and prints the score and what survives
    make mutation ONLY=accounting  only files whose path contains the word
    make mutation SAMPLE=1000 JOBS=4

Where `mutants` plants defects that somebody thought of, here Cosmic Ray changes an operator, a number or a condition
wherever there is one. It changes the text of a file and nothing else, so that decorated functions and whatever JAX
traces are changed too. Each change is tried with the tests that should notice it: those named after the file, those of
the defects that are planted in it, and those of its package that import it.

Of each place one change can be drawn. Which ones are follows from the seed and from the lines around a place, so that
work on one function leaves the rest of the sample as it is. What was tried is kept in mutation.jsonl, a line for each
change: one that was noticed stays noticed until its lines change, and one that survived is tried again when its tests
change. survivors.toml says of each change that no test can notice why that is so.
"""

import ast
import hashlib
import json
import os
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from bench import HERE, ROOT, Bench, Outcome, on_benches
from mutants import DEFECTS

RESULTS, SURVIVORS = HERE / "mutation.jsonl", HERE / "survivors.toml"
UNCHANGED = ROOT / ".cache" / "unchanged.jsonl"
SEED, SAMPLE = 22, 600
LEAST = 0.95
"""The share of the sample that has to be noticed or explained."""
SECONDS, TIMES, ENDLESS = 60, 4, 3600
"""How long all tests of one change may take: at least so long, and so many times what they take without it."""

CODE = (
    *("guarantee.py", "events.py", "accounting", "mechanisms", "runs/provenance.py", "runs/privacy.py", "cli/start.py"),
    *("federated", "rewriting", "training"),
)
"""What is changed, cheapest tests first."""


@dataclass(frozen=True)
class Place:
    """Where one change is made in a file under src/dpnlp, and which."""

    key: str
    file: str
    operator: str
    occurrence: int
    line: int


@dataclass(frozen=True)
class Mutant(Place):
    """A change, and the lines before and after it."""

    old: str
    new: str
    text: str


@dataclass(frozen=True)
class Result:
    """What became of a mutant: noticed, and by which test; survived; or endless, where the tests came to no end."""

    key: str
    file: str
    fate: str
    by: str
    tests: str


# Which changes


def sample(files: list[str], many: int) -> list[Mutant]:
    """So many changes, drawn by the hashes of their places from all files, in the order of CODE."""
    chosen = sorted((place for file in files for place in places_in(file)), key=lambda place: place.key)[:many]
    return [_mutated(place) for place in sorted(chosen, key=lambda place: (files.index(place.file), place.key))]


def places_in(file: str) -> list[Place]:
    """One change for each place of a file, but for types."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator

    source = (ROOT / "src/dpnlp" / file).read_text(encoding="utf-8")
    nodes, lines, types = list(ast_nodes(get_ast(source))), source.splitlines(), _types(source)
    drawn: dict[tuple[int, int], Place] = {}
    for name in _operators():
        operator, occurrence = get_operator(name)(), -1
        for node in nodes:
            for start, _ in operator.mutation_positions(node):
                occurrence += 1
                if any(first <= start < last for first, last in types):
                    continue
                around = lines[max(0, start[0] - 4) : start[0] + 3]
                place = Place(_digest(SEED, file, name, start[1], *around), file, name, occurrence, start[0])
                if start not in drawn or place.key < drawn[start].key:
                    drawn[start] = place
    return list(drawn.values())


def _mutated(place: Place) -> Mutant:
    """The change itself."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    source = (ROOT / "src/dpnlp" / place.file).read_text(encoding="utf-8")
    text = mutate_code(source, get_operator(place.operator)(), place.occurrence)
    return Mutant(**asdict(place), **_difference(source.splitlines(), text.splitlines()), text=text)


def _difference(lines: list[str], changed: list[str]) -> dict[str, str]:
    """The lines that differ, before and after."""
    first = next(at for at, (one, other) in enumerate(zip(lines, changed, strict=False)) if one != other)
    last = next(at for at, (one, other) in enumerate(zip(lines[::-1], changed[::-1], strict=False)) if one != other)
    cut = [" ".join(line.strip() for line in text[first : len(text) - last]) for text in (lines, changed)]
    return {"old": cut[0], "new": cut[1]}


_BITS, _IDENTITY = {"BitAnd", "BitOr", "BitXor", "LShift", "RShift"}, {"Is", "IsNot"}


@cache
def _operators() -> tuple[str, ...]:
    """What Cosmic Ray can change, but for what would only be refused by every number: 0.5 << 2, or 1 is 1."""
    from cosmic_ray.plugins import operator_names

    def plausible(name: str) -> bool:
        was, _, becomes = name.rpartition("_")[0].rpartition("_")[2], "", name.rpartition("_")[2]
        return not any(becomes in kind and was not in kind for kind in (_BITS, _IDENTITY))

    return tuple(name for name in sorted(operator_names()) if "/Variable" not in name and plausible(name))


def _types(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where types are, as annotations or under a name: they decide nothing when the program runs."""
    tree, found = ast.parse(source), list[ast.expr]()
    for node in ast.walk(tree):
        found += [part for name in ("annotation", "returns") if (part := getattr(node, name, None)) is not None]
    found += [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.BitOr)
    ]
    return [((part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)) for part in found]


def files_of(word: str = "") -> list[str]:
    """The files that are changed, those with cheap tests first."""
    package = ROOT / "src/dpnlp"
    found = [path for place in CODE for path in (sorted((package / place).glob("*.py")) or [package / place])]
    names = [str(path.relative_to(package)) for path in found if path.is_file() and path.name != "__init__.py"]
    return [name for name in names if word in name]


# Which tests


@cache
def tests_of(file: str) -> tuple[str, ...]:
    """The tests that should notice changes of a file, the most likely first."""
    package, stem = Path(file).parent, Path(file).stem
    own = [HERE / package / f"test_{stem}.py"]
    planted = [test for defect in DEFECTS if defect.file == file for test in defect.tests]
    near = sorted((HERE / package).glob("test_*.py")) if package.name else []
    files = [str(path.relative_to(HERE)) for path in (*own, *_importing(file, near)) if path.exists()]
    whole = [test for test in planted if "::" not in test]
    single = [test for test in planted if "::" in test and test.partition("::")[0] not in (*files, *whole)]
    found = tuple(f"tests/{test}" for test in dict.fromkeys((*files[:1], *whole, *files[1:], *single)))
    if found:
        return found
    code = ROOT / "src/dpnlp"
    users = _importing(file, sorted((code / package).glob("*.py")))
    return tuple(dict.fromkeys(test for user in users for test in tests_of(str(user.relative_to(code)))))


def _importing(file: str, others: list[Path]) -> list[Path]:
    """Those of other files that import a file."""
    module = ".".join(("dpnlp", *Path(file).with_suffix("").parts))
    parent, _, name = module.rpartition(".")
    imported = re.compile(rf"(from {re.escape(module)} import|from {re.escape(parent)} import .*\b{name}\b)")
    return [path for path in others if imported.search(path.read_text(encoding="utf-8"))]


# Trying


def fate(mutant: Mutant, tests: tuple[str, ...], plain: list[Outcome], bench: Bench) -> Result:
    """What these tests say to a mutant; `plain` is what they do without it. Those that fail anyway are not asked."""
    took = {name: seconds for outcome in plain for name, seconds in outcome.took.items()}
    asked = [*tests, *(f"--deselect={name}" for outcome in plain for name in outcome.failed)]
    limit = max(SECONDS, TIMES * sum(outcome.seconds for outcome in plain))
    outcome = bench.change(mutant.file, mutant.text, asked, limit, took)
    said = {0: "survived", None: "endless"}.get(outcome.code, "noticed")
    print(f"{said:8} {outcome.seconds:6.1f} s  {mutant.file}:{mutant.line}  {mutant.new}", flush=True)
    return Result(mutant.key, mutant.file, said, outcome.noticed, _digests(tests))


@cache
def _digest_of(test: str) -> str:
    """Of a file of tests, or of a single one and the file that it is in."""
    return _digest(test, (ROOT / test.partition("::")[0]).read_text(encoding="utf-8"))


def _digests(tests: tuple[str, ...]) -> str:
    return _digest(*map(_digest_of, tests))


# The score


def main(word: str = "", many: int = SAMPLE, jobs: int = 1) -> int:
    """Tries what has not been tried, and prints the score."""
    if word == "--score":
        return _report(sample(files_of(), many), _kept())
    mutants, kept = sample(files_of(), many), _kept()
    plain = {digest: Outcome(*rest) for digest, *rest in _lines(UNCHANGED)}

    def is_open(mutant: Mutant) -> bool:
        known = kept.get(mutant.key)
        return not known or (known.fate == "survived" and known.tests != _digests(tests_of(mutant.file)))

    def run(bench: Bench, test: str) -> None:
        """What a file of tests, or a single test, does without any change."""
        outcome = bench.run([test], ENDLESS)
        if not outcome.took:
            sys.exit(f"{test}: it cannot be run.\n{outcome.shown[-2000:]}")
        digest = _digest_of(test)
        plain[digest] = replace(outcome, shown="")
        _append(UNCHANGED, [digest, *astuple(plain[digest])])

    def attempt(bench: Bench, mutant: Mutant) -> None:
        tests = tests_of(mutant.file)
        _append(RESULTS, asdict(fate(mutant, tests, [plain[_digest_of(test)] for test in tests], bench)))

    chosen = [mutant for mutant in mutants if word in mutant.file and is_open(mutant)]
    needed = dict.fromkeys(test for mutant in chosen for test in tests_of(mutant.file))
    on_benches(run, [test for test in needed if _digest_of(test) not in plain], jobs)
    on_benches(attempt, chosen, jobs)
    kept = _kept()
    RESULTS.write_text("".join(_line(asdict(kept[one.key])) for one in mutants if one.key in kept), encoding="utf-8")
    return _report(mutants, kept)


def _report(mutants: list[Mutant], kept: dict[str, Result]) -> int:
    """A line for each package, and the survivors that nobody has explained."""
    explained = {(one["file"], one["old"], one["new"]) for one in _explained()}
    counts: dict[str, Counter[str]] = {}
    for mutant in mutants:
        found = kept.get(mutant.key)
        fate = "waiting" if found is None else found.fate
        if fate == "survived" and (mutant.file, mutant.old, mutant.new) in explained:
            fate = "explained"
        counts.setdefault(mutant.file.partition("/")[0], Counter())[fate] += 1
        if fate == "survived":
            print(f"SURVIVED  {mutant.file}:{mutant.line}\n  - {mutant.old}\n  + {mutant.new}")
    for name, own in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
        done = own.total() - own["waiting"]
        caught = own["noticed"] + own["endless"]
        score = f"{100 * caught / done:5.1f} %" if done else "      –"
        print(f"{name:14} {done:4} of {own.total():4} tried, {score} noticed, {own['explained']:3} explained")
    whole = sum(counts.values(), Counter())
    return 0 if whole["noticed"] + whole["endless"] + whole["explained"] >= LEAST * whole.total() else 1


def _kept() -> dict[str, Result]:
    return {result.key: result for result in (Result(**line) for line in _lines(RESULTS))}


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _append(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(_line(value))


def _line(value: Any) -> str:
    return json.dumps(value) + "\n"


def _explained() -> Iterator[dict[str, str]]:
    yield from tomllib.loads(SURVIVORS.read_text(encoding="utf-8")).get("survivor", [])


def _digest(*parts: object) -> str:
    return hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=12).hexdigest()


if __name__ == "__main__":
    sys.exit(main(os.environ.get("ONLY", ""), int(os.environ.get("SAMPLE", SAMPLE)), int(os.environ.get("JOBS", 1))))
