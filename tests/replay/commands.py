"""Commands that are run twice, on neighbouring files, with everything compared that they leave behind."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dpnlp.accounting.ledger import Ledger

from ..cli.commands import run_in
from .tape import Tape, running

PRIVATE = ("cache", "dpnlp")
"""Folders of the owner alone: what was made of the texts, and by which key they are recognised."""


def exchange(file: str, number: int, **fields: object) -> Callable[[Path], None]:
    """One line of a JSON Lines file says something else."""

    def edit(home: Path) -> None:
        lines = (home / file).read_text(encoding="utf-8").splitlines()
        changed = json.loads(lines[number]) | fields
        assert changed != json.loads(lines[number])
        lines[number] = json.dumps(changed)
        (home / file).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    return edit


def replayed(template: Path, edit: Callable[[Path], None], *lines: str, private: tuple[str, ...]) -> Tape:
    """Runs commands on the files of a folder, and again after an edit of the private ones; the two must look alike."""
    before, looks = None, []
    home = template.with_name(f"{template.name}-run")
    for change in (lambda home: None, edit):
        tape = Tape(before)
        shutil.copytree(template, home)
        try:
            change(home)
            with pytest.MonkeyPatch.context() as patch, running(tape):
                patch.setenv("DPNLP_HOME", str(home / "dpnlp"))
                shown = [run_in(home, line) for line in lines]
            assert [code for code, _, _ in shown] == [0] * len(lines), shown
            looks.append((shown, _left(home, private), _charged(home, private)))
        finally:
            shutil.rmtree(home)
        before = tape
    _assert_alike(*looks)
    tape.end()
    return tape


def _left(home: Path, private: tuple[str, ...]) -> dict[str, bytes | None]:
    """Every file that others may see, and of the owner's own that they are there."""
    found: dict[str, bytes | None] = {}
    for path in sorted(home.rglob("*")):
        name = path.relative_to(home)
        own = name.parts[0] in PRIVATE or any(name.name.startswith(file) for file in private)
        if path.is_file() and name.parts[0] not in PRIVATE:
            found[str(name)] = None if own else path.read_bytes()
    return found


def _charged(home: Path, private: tuple[str, ...]) -> list[object]:
    """What was charged, but for the fingerprints of the data."""
    releases = [release for file in private for release in Ledger.beside(home / file).read().releases]
    return [(one.what, one.event, one.unit, one.adjacency) for one in releases]


def _assert_alike(first: tuple, second: tuple) -> None:
    assert first[0] == second[0], "something else is printed"
    assert first[1].keys() == second[1].keys(), "other files are written"
    different = [name for name, written in first[1].items() if written != second[1][name]]
    assert not different, f"something else is written to {different}"
    assert first[2] == second[2], "something else is charged"
