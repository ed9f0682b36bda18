"""Files that are whole or not there: written beside their place, brought to the disk, and renamed."""

import errno
import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from dpnlp.atomic import fsync_path
from dpnlp.checks import BadInput
from dpnlp.foreign import parse_json

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
"""What a file system answers that knows no links."""


def write(file: Path, text: str, fresh: bool = False) -> None:
    """Puts the file in its place in one go. A `fresh` one must not be there yet, whoever else is at it too."""
    beside = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    with refusals(file):
        try:
            with beside.open("w", encoding="utf-8", newline="\n") as opened:
                opened.write(text)
                opened.flush()
                os.fsync(opened.fileno())
            if fresh:
                _claim(beside, file)
            else:
                beside.replace(file)
            fsync_path(file.parent)
        finally:
            with suppress(OSError):
                beside.unlink(missing_ok=True)


def _claim(beside: Path, file: Path) -> None:
    """Gives the file its name unless another has it: a link is refused then, which a renaming is not."""
    try:
        file.hardlink_to(beside)
    except OSError as error:
        if file.exists():
            raise BadInput(
                f"{file.parent}: a run of this name exists already; choose another with --name, or continue it with "
                "--resume."
            ) from None
        if error.errno not in _NO_LINKS:
            raise
        beside.replace(file)


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


def read(file: Path) -> str:
    """All of a text file."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{file}: it cannot be read ({error.strerror}); give the folder of a run.") from None
    except UnicodeDecodeError:
        raise BadInput(f"{file}: it is not text in UTF-8; restore the file that the run wrote.") from None


# JSON


def as_json(name: str, entry: Mapping[str, Any], indent: int | None = None) -> str:
    """One JSON object. Infinity, which JSON lacks, is written as the string "inf"."""
    try:
        return json.dumps(_plain(entry), indent=indent, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise BadInput(f"{name}: a figure in it is nan; leave out what is not known.") from None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(inner) for inner in value]
    return "inf" if isinstance(value, float) and value == math.inf else value


def json_object(file: Path, text: str, line: int | None = None) -> dict[str, Any]:
    """The JSON object that stands in a file, or in one line of it."""
    place = f"{file}, line {line}" if line else str(file)
    try:
        entry = parse_json(text)
    except ValueError:
        raise BadInput(f"{place}: it is not valid JSON; restore the file that the run wrote.") from None
    if not isinstance(entry, dict):
        raise BadInput(f"{place}: it must be a JSON object; restore the file that the run wrote.")
    return entry


def json_lines(file: Path, most: int | None = None) -> list[dict[str, Any]]:
    """A JSON object from every line, or from so many of the first; none where there is no file."""
    if not file.exists():
        return []
    lines = islice(read(file).split("\n"), most)
    return [json_object(file, line, number) for number, line in enumerate(lines, start=1) if line.strip()]


class Growing:
    """A file of lines that grows by a few of them at a time, each time brought to the disk."""

    def __init__(self, file: Path) -> None:
        """Goes on after the last whole line: half a line, written when the power went, is cut off."""
        self._file = file
        with refusals(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
            with file.open("rb+") as opened:
                self.lines, end = 0, 0
                for line in opened:
                    if line.endswith(b"\n"):
                        self.lines, end = self.lines + 1, end + len(line)
                opened.truncate(end)

    def append(self, lines: Sequence[str]) -> None:
        """Adds the lines."""
        with refusals(self._file), self._file.open("a", encoding="utf-8", newline="\n") as opened:
            opened.write("".join(f"{line}\n" for line in lines))
            opened.flush()
            os.fsync(opened.fileno())
        self.lines += len(lines)
