"""The files of a run, read: texts, JSON objects, and lines of them."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from dpnlp.checks import BadInput, short
from dpnlp.foreign import parse_json, text_in


def read(file: Path) -> str:
    """All of a text file."""
    try:
        return text_in(file)
    except OSError as error:
        raise BadInput(f"{file}: it cannot be read ({error.strerror}); give the folder of a run.") from None
    except UnicodeDecodeError:
        raise BadInput(f"{file}: it is not text in UTF-8; restore the file that the run wrote.") from None


@contextmanager
def understood(file: Path) -> Iterator[None]:
    """What is made of a file that somebody changed, and whose entries are not what they were, becomes one sentence."""
    try:
        yield
    except BadInput:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        raise BadInput(f"{file}: {short(error)}, which no run writes; restore the file that the run wrote.") from error


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
