"""What others wrote: JSON and YAML are read without trusting them, and texts are shown without obeying them."""

import errno
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from dpnlp.checks import BadInput

DEEPEST = 100
"""Lists and mappings inside one another: all that we write has fewer than ten."""
LARGEST = 2**20
"""Bytes of settings."""

_CONTROLS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal would obey or a reader cannot see: controls but for line breaks and tabs, separators of lines, turns
of direction, half characters."""


def visible(text: str) -> str:
    """The text with all that steers a terminal spelled out, as JSON spells it: an escape is \\u001b."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


# Files


def opened(path: str | Path) -> BinaryIO:
    """A file to read. A pipe or a device, which may never end or never begin, is an OSError."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(number).st_mode
        if not stat.S_ISREG(mode):
            kind = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
            what = os.strerror(kind) if kind == errno.EISDIR else "it is no file, but a pipe or a device"
            raise OSError(kind, what, str(path))
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def text_in(path: str | Path) -> str:
    """All of a text in UTF-8, from a file that ends."""
    with TextIOWrapper(opened(path), encoding="utf-8") as file:
        return file.read()


def bytes_in(path: str | Path) -> bytes:
    """All that is in a file that ends."""
    with opened(path) as file:
        return file.read()


# Numbers

NUMERAL = re.compile(
    r"[+-]?((0|[1-9]\d*(_\d+)*)(\.\d*)?|\.\d+)(e[+-]?\d+)?|[+-]?\.?(inf(inity)?|nan)", re.IGNORECASE | re.ASCII
)
"""How a number is spelled, the same on a command line and in YAML: 8, 1_000_000, 1e-5, .5, inf. To YAML 010 is 8, 1:30
is 90 and 0x10 is 16, which hardly anybody means."""


# JSON


def parse_json(text: str) -> Any:
    """The JSON value in a text. Whatever is wrong is a ValueError: a number that is none, or too large, or too deep."""
    if text.count("[") + text.count("{") > DEEPEST:
        _refuse_deep(text)
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=once)
    except RecursionError:
        raise ValueError("it is too deep") from None


class Repeated(ValueError):
    """A name stands twice in a JSON object."""


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, in which no name stands twice: of two values that one has, one would be lost unseen."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise Repeated(f"{twice[:99]!r} stands in it twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _refuse_deep(text: str) -> None:
    """Counts brackets outside of texts."""
    depth = 0
    for found in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', text, re.DOTALL):
        depth += (found[0] in "[{") - (found[0] in "]}")
        if depth > DEEPEST:
            raise ValueError(f"it has more than {DEEPEST} lists and objects inside one another")


# YAML


def parse_yaml(text: str, where: object) -> Mapping[Any, Any]:
    """The settings in a text, nested as they stand there.

    A key that stands twice is an error and not a choice; tags and aliases, through which a file can ask for anything
    and become of any size, are refused.
    """
    import yaml  # Here, because most commands need no YAML.

    if len(text) > LARGEST:
        raise BadInput(f"{where}: it has more than {LARGEST:,} characters, which no settings have; give another file.")
    try:
        _refuse_tricks(yaml.parse(text, Loader=yaml.SafeLoader), where)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_repeated(root, where)
        _refuse_odd_numbers(root, where)
        entries = yaml.SafeLoader("").construct_document(root) if root else {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" near line {mark.line + 1}" if mark else ""
        raise BadInput(f"{where}: it is not valid YAML; correct it{place}.") from None
    except BadInput:
        raise
    except (ValueError, OverflowError, TypeError):  # A number of thousands of digits, the 45th of a month.
        raise BadInput(f"{where}: a number or a date in it cannot be read; correct it, or put it in quotes.") from None
    if not isinstance(entries, Mapping):
        raise BadInput(f"{where}: it must hold settings as key: value, one to a line.")
    return entries


def _refuse_tricks(events: Any, where: object) -> None:
    import yaml

    depth = 0
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise BadInput(f"{where}: *{event.anchor} in line {line} stands for something else; write that out.")
        if getattr(event, "tag", None) is not None:
            raise BadInput(f"{where}: a tag, {event.tag}, stands in line {line}; settings have none, so leave it out.")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise BadInput(
                f"{where}: line {line} has lists and mappings inside one another, {depth} deep; write fewer."
            )


def _refuse_odd_numbers(node: Any, where: object) -> None:
    """A number must be spelled as on a command line, wherever it stands below the node."""
    if isinstance(node.value if node else None, list):
        for entry in node.value:
            for inner in entry if isinstance(entry, tuple) else (entry,):
                _refuse_odd_numbers(inner, where)
    elif node and node.tag.endswith((":int", ":float")) and not NUMERAL.fullmatch(node.value):
        line = node.start_mark.line + 1
        raise BadInput(
            f"{where}: {node.value[:40]} in line {line} is a number in disguise, which YAML reads as another one; "
            "write it with decimal digits, without zeros before them, or put it in quotes if it is a text."
        )


def _refuse_repeated(node: Any, where: object) -> None:
    """A key must be a word or number, and stand once in its mapping, anywhere below the node."""
    import yaml

    if isinstance(node, yaml.SequenceNode):
        for entry in node.value:
            _refuse_repeated(entry, where)
    if not isinstance(node, yaml.MappingNode):
        return
    seen = set()
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise BadInput(f"{where}: a list or a mapping is a key in line {line}; write settings as key: value.")
        if key.value in seen:
            raise BadInput(f"{where}: {key.value} stands there again in line {line}; keep one of them.")
        seen.add(key.value)
        _refuse_repeated(value, where)


def spelled(texts: Iterable[str]) -> list[str]:
    """Private texts as a tokenizer takes them: half a character becomes "?", for a refusal would tell of the text."""
    return [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
