"""Files and folders that are whole or not there, and one process at a time at a place.

All is written beside its place as `.<name>.dpnlp-unfinished`, brought to the disk, and renamed. Whoever does so holds a
lock of the operating system, which ends with its process, also at `kill -9`: so what a killed process left is known
for what it is, and the next one that works there sweeps it away.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from dpnlp.checks import BadInput

_UNFINISHED, _LOCK = ".dpnlp-unfinished", ".dpnlp-lock"


class Taken(BadInput):
    """There is something already where something new was to be."""


def fsync_path(path: Path) -> None:
    """Waits until a file or a directory is on the disk. A new file survives a power failure only with its directory."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def unfinished(folder: Path) -> Path:
    """Where a folder is made that is not in its place yet."""
    return _beside(folder, _UNFINISHED)


def is_passing(name: str) -> bool:
    """Whether a file or folder of this name is there only while something is written or somebody works beside it."""
    return name.startswith(".") and name.endswith((_UNFINISHED, _LOCK))


# Files


def write(file: Path, content: str | bytes, *, mode: int | None = None, fresh: bool = False) -> None:
    """Puts a file in its place in one go. A `fresh` one must not be there yet, whoever else is at it too."""
    with refusals(file):
        data = content.encode("utf-8") if isinstance(content, str) else content
        with prepared(file, data, mode) as put:
            if fresh and file.exists():
                raise Taken(f"{file}: it is there already; choose another name.")
            put()


@contextmanager
def prepared(file: Path, data: bytes, mode: int | None = None) -> Iterator[Callable[[], None]]:
    """Gives what puts a file in its place, once all of it is on the disk beside that; it is gone if it is not put.

    One process at a time can have the same file prepared; others wait.
    """
    beside = _beside(file, _UNFINISHED)
    with _removed_after(beside, 0o666 if mode is None else 0o600) as opened:
        assert opened is not None
        if mode is not None:
            os.fchmod(opened, mode)
        with os.fdopen(opened, "wb", closefd=False) as writing:
            writing.write(data)
        os.fsync(opened)

        def put() -> None:
            beside.replace(file)
            fsync_path(file.parent)

        yield put


@contextmanager
def whole_file(file: Path) -> Iterator[TextIO]:
    """A text to write, which becomes the file when all of it is on the disk, and is gone if that fails.

    What is no file, such as a terminal or /dev/null, is written to as it is.
    """
    with refusals(file):
        if file.exists() and not file.is_file():
            with file.open("w", encoding="utf-8") as writing:
                yield writing
            return
        beside = _beside(file, _UNFINISHED)
        with _removed_after(beside, 0o666) as opened:
            assert opened is not None
            with os.fdopen(opened, "w", encoding="utf-8", closefd=False) as writing:
                yield writing
            os.fsync(opened)
            beside.replace(file)
            fsync_path(file.parent)


class Growing:
    """A file of lines that grows by some of them at a time. Nothing in it ever changes, or comes in two versions.

    Lines are put into a log, as `.<name>.next` beside the file, before any of them is in it. If a process is killed
    while it writes them, those lines are written to their end by the next one: they are never made a second time.

    A `log` that is there already, in another place, stays. With it a copy of the file, or an older one, is refused
    where the file has grown elsewhere since: it would get other lines in place of those.
    """

    def __init__(self, file: Path, log: Path | None = None) -> None:
        """Goes on after the last lines; half a line that nothing is known of is cut off."""
        self._file, self._log, self._stays = file, log or file.with_name(f".{file.name}.next"), log is not None
        with refusals(file):
            waiting = self._log.read_bytes() if self._stays or self._log.exists() else b""
            self.lines, self._end = 0, 0
            if file.exists():
                with file.open("rb") as opened:
                    for line in opened:
                        if line.endswith(b"\n"):
                            self.lines, self._end = self.lines + 1, self._end + len(line)
            place, _, data = waiting.partition(b"\n")
            if self._stays and not int(place) <= self._end <= int(place) + len(data):
                raise BadInput(
                    f"{file}: it is not as it was last written, but a copy or a backup of it, and what followed would "
                    "come in two versions; go on where it was last written, or begin another run."
                )
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
            if waiting:
                self._end = min(self._end, int(place))
                self.lines = self._count() + data.count(b"\n")
                self._put(data)
            else:
                os.truncate(file, self._end)

    def append(self, lines: Sequence[str]) -> None:
        """Adds the lines; when this returns, they are on the disk."""
        data = "".join(f"{line}\n" for line in lines).encode("utf-8")
        write(self._log, str(self._end).encode() + b"\n" + data, mode=0o600)
        with refusals(self._file):
            self._put(data)
        self.lines += len(lines)

    def _count(self) -> int:
        with self._file.open("rb") as opened:
            return opened.read(self._end).count(b"\n")

    def _put(self, data: bytes) -> None:
        with self._file.open("rb+") as opened:
            opened.truncate(self._end)
            opened.seek(self._end)
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        self._end += len(data)
        if not self._stays:
            self._log.unlink()


# Folders


@contextmanager
def whole_folder(folder: Path, mode: int = 0o777, busy: str = "") -> Iterator[Path]:
    """A place to write into, which becomes the folder when all of it is on the disk, and is gone if that fails.

    While another process is making it, this one waits, or is refused by the sentence `busy`.
    """
    beside = _beside(folder, _UNFINISHED)
    with alone(folder, busy):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise Taken(f"folder = {folder}: there is something in it already; choose another one.")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(mode)
        try:
            yield beside
            for path in (*beside.rglob("*"), beside):
                fsync_path(path)
            beside.rename(folder)
            fsync_path(folder.parent)
        finally:
            shutil.rmtree(beside, ignore_errors=True)


# One process at a time


@contextmanager
def alone(place: Path, busy: str = "") -> Iterator[None]:
    """Has a place, which need not be there yet, for this process. Another waits, or is refused by the sentence `busy`.

    What killed processes left beside the place is swept away.
    """
    with _removed_after(_beside(place, _LOCK), 0o600, wait=not busy) as lock:
        if lock is None:
            raise BadInput(busy)
        sweep(place.parent)
        yield


def sweep(folder: Path) -> None:
    """Removes what killed processes left in a folder, and nothing that a living one is at."""
    for path in [path for path in folder.iterdir() if is_passing(path.name)]:
        with suppress(OSError):
            beside = path.with_name(path.name.removesuffix(_UNFINISHED) + _LOCK) if path.is_dir() else path
            with _removed_after(beside, 0o600, wait=False) as lock:
                if lock is not None and beside != path:
                    shutil.rmtree(path, ignore_errors=True)


def _beside(place: Path, ending: str) -> Path:
    return place.with_name(f".{place.name}{ending}")


@contextmanager
def _removed_after(path: Path, mode: int, wait: bool = True) -> Iterator[int | None]:
    """A new file at this path, open for this process alone; nothing where another has it and we do not wait.

    Who waits for it sees that it is gone, and makes another.
    """
    opened = _open_alone(path, mode, wait)
    try:
        yield opened
    finally:
        try:
            if opened is not None and _is_at(opened, path):
                path.unlink()
        finally:
            if opened is not None:
                os.close(opened)


def _open_alone(path: Path, mode: int, wait: bool) -> int | None:
    """The same, not removed afterwards. What lies there already was left by a killed process."""
    while True:
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, mode)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if _is_at(opened, path):
                if not os.fstat(opened).st_size:
                    return opened
                path.unlink()
        except BlockingIOError:
            os.close(opened)
            return None
        except BaseException:
            os.close(opened)
            raise
        os.close(opened)


def _is_at(opened: int, path: Path) -> bool:
    """Whether an open file still has this path."""
    try:
        return os.path.samestat(os.fstat(opened), path.lstat())
    except FileNotFoundError:
        return False


# Refusals


@contextmanager
def refusals(place: Path) -> Iterator[None]:
    """What the operating system refuses, as one sentence."""
    try:
        yield
    except UnicodeEncodeError:
        raise BadInput(
            f"{place}: half of a character stands in what is to be written; repair the text first."
        ) from None
    except OSError as error:
        remedy = {
            errno.ENOSPC: "make room on the disk, then run it again",
            errno.EDQUOT: "make room in your quota, then run it again",
            errno.ENOENT: "the folder has vanished; put it back, or begin another run",
        }.get(error.errno or 0, "check the folder and its permissions")
        raise BadInput(f"{place}: it cannot be written ({error.strerror or error}); {remedy}.") from None
