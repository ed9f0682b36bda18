"""Lines that come in and go out: from and to files, or standard input and output."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TextIO, cast

from dpnlp.atomic import whole_file
from dpnlp.checks import BadInput
from dpnlp.foreign import visible


class _Terminal:
    """Standard output where a person looks at it: nothing that is written steers the terminal."""

    def write(self, text: str) -> int:
        return sys.stdout.write(visible(text))

    def flush(self) -> None:
        sys.stdout.flush()


@contextmanager
def texts(path: Path | None) -> Iterator[Iterator[str]]:
    """The lines of a file, or of standard input."""
    if path is not None and not path.is_file():
        raise BadInput(f"INPUT = {path}: there is no such file; give one with a text on each line.")
    try:
        if path is None:
            yield iter(sys.stdin)
        else:
            with path.open(encoding="utf-8") as file:
                yield file
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path or 'standard input'}: it is not valid UTF-8 ({error.reason}); convert it first."
        ) from None


def refuse_answers(by: str, *paths: str | Path | None) -> None:
    """Refuses to answer to texts in files that have a budget: an answer says much of what is in a text."""
    from dpnlp.data.ledgers import DataSet

    if files := [Path(path) for path in paths if path and Path(path).is_file()]:
        reduce(or_, map(DataSet.at, files)).check_written_out(f"{by}: what it answers")


@contextmanager
def written(path: Path | None) -> Iterator[TextIO]:
    """A file to write to, which is there when all of it is, or standard output."""
    if path is None:
        yield cast(TextIO, _Terminal()) if sys.stdout.isatty() else sys.stdout
    else:
        with whole_file(path) as file:
            yield file
