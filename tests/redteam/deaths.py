"""Ends commands at any change of the disk, as a kill would, and brings them to their end afterwards.

A command runs in this process, which spares it the start. From its n-th change of the disk on every change raises
`Dead`, whichever thread makes it and whatever is done about it: so nothing that is written, renamed or removed later
reaches the disk, just as if the process were gone. `really_killed` runs it in a process of its own instead, which gets
SIGKILL at that moment.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from dpnlp.cli.main import main

OWNER = "owner"
CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


_ID = re.compile(rb"\b[0-9a-f]{16}\b")


class Dead(BaseException):
    """The process is no more."""


class Disk:
    """Counts the changes of the disk below a folder, and ends the process at one of them."""

    def __init__(self) -> None:
        self.home, self.left, self.seen, self.end, self.ended = "", -1, list[str](), _die, False
        sys.addaudithook(self._hear)
        self._fsync = os.fsync
        os.fsync = self._waited_for  # which no hook is told of

    @contextlib.contextmanager
    def watched(self, home: Path, number: int = -1, end: "Callable[[], None] | None" = None) -> Any:
        """From the change of this number on there is none; with -1 all are counted."""
        self.home, self.left, self.seen, self.end, self.ended = os.path.realpath(home), number, [], end or _die, False
        try:
            yield
        finally:
            self.home = ""

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.home:
            return
        if event == "open":
            path, mode, flags = arguments
            written = set("wax+") & set(mode) if isinstance(mode, str) else isinstance(flags, int) and flags & WRITES
            if written:
                self._change(event, path)
        elif event in CHANGES:
            self._change(event, arguments[0])

    def _waited_for(self, opened: int) -> None:
        if self.home:
            self._change("fsync", opened)
        self._fsync(opened)

    def _change(self, event: str, path: Any) -> None:
        if not isinstance(path, int):
            where = os.path.realpath(os.fspath(path))
            where = where.decode() if isinstance(where, bytes) else where
            if not where.startswith(self.home):
                return
        else:
            where = str(path)
        if 0 <= self.left <= len(self.seen):
            self.ended = True
            self.end()
        self.seen.append(f"{event} {Path(where).name}")


def _die() -> None:
    raise Dead


DISK = Disk()


def run(home: Path, line: str) -> tuple[int, str]:
    """The exit code of a command in this folder, and what it said."""
    before, said = Path.cwd(), io.StringIO()
    os.chdir(home)
    try:
        with (
            mock.patch.dict(os.environ, DPNLP_HOME=str(home / OWNER)),  # What one life remembers, no other knows.
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(said),
        ):
            return main(shlex.split(line)), said.getvalue()
    finally:
        os.chdir(before)


def killed(home: Path, line: str, number: int) -> bool:
    """Ends the command at this change of the disk; whether it was not over before."""
    with DISK.watched(home, number):
        try:
            code, said = run(home, line)
        except Dead:
            code, said = 1, ""
    _let_go(home)
    assert code or not DISK.ended, "it went on after its end"
    assert code in (0, 1), said
    return code == 1  # Somebody took the end for an error; nothing was written after it all the same.


def _let_go(home: Path) -> None:
    """A process that is gone holds no locks, whoever still has its traceback."""
    opened = os.open(os.devnull, os.O_RDWR)
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            place = str(path.readlink())
            if place.startswith(os.path.realpath(home)) and ".dpnlp-" in place:
                os.dup2(opened, int(path.name))
    os.close(opened)


_IN_ITS_OWN = """
import os, signal, sys
from pathlib import Path
from deaths import DISK, run
home, line, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with DISK.watched(home, number, lambda: os.kill(os.getpid(), signal.SIGKILL)):
    sys.exit(run(home, line)[0])
"""


def really_killed(home: Path, line: str, number: int) -> bool:
    """The same in a process of its own, by SIGKILL."""
    words = [sys.executable, "-c", _IN_ITS_OWN, str(home), line, str(number)]
    code = subprocess.run(words, cwd=Path(__file__).parent, stderr=subprocess.DEVNULL, check=False).returncode
    assert code in (0, -signal.SIGKILL)
    return code != 0


def changes(home: Path, line: str) -> list[str]:
    """All changes of the disk that a command makes."""
    with DISK.watched(home):
        code, said = run(home, line)
    assert code == 0, said
    return list(DISK.seen)


def copied(start: Path, place: Path) -> Path:
    """A folder of its own for one life."""
    shutil.copytree(start, place)
    return place


def left_in(home: Path) -> dict[str, bytes]:
    """All that lies in a folder, but for what differs from run to run by chance or by the clock: ledgers, and ids."""
    return {
        path.relative_to(home).as_posix(): _ID.sub(b"id", path.read_bytes())
        for path in sorted(home.rglob("*"))
        if path.is_file() and ".ledger" not in path.name and path.parts[len(home.parts)] not in ("cache", OWNER)
    }
