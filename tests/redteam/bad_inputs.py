"""Bad inputs, made from the declared settings of every verb and from damaged files."""

import json
import os
import random
import shlex
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpnlp.cli.config import Option, options_of

from ..cli.verbs import verbs

DIGITS = "9" * 5000


@dataclass(frozen=True)
class Bad:
    """A command line that must be refused, with files that are put in place before, by name."""

    name: str
    line: tuple[str, ...]
    files: dict[str, bytes] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)  # folders or files that are copied before, from where to where
    says: str = ""  # what the refusal must name
    may_pass: bool = False  # what is damaged may be beside the point
    odd: dict[str, str] = field(default_factory=dict)  # what is put there that is no file, by its name in ODD


# Settings


def out_of_range(option: Option) -> list[str]:
    """Texts that no such setting takes."""
    kind = option.kind
    if kind.metavar in ("NUMBER", "INTEGER"):
        found = ["nan", "-inf", "x", "", "1e400", DIGITS, "1,5", "0x10", "٣", "1__0", "010"]
        found += [text for text in ("inf", "-1", "0", "1e300", "-1e-9", "1") if not _taken(kind, text)]
        return found + (["0.5", "1e-300"] if kind.metavar == "INTEGER" else [])
    if kind.metavar == "CHOICE":
        return ["", "x", "0", "\x1b[31mpoisson"]
    if kind.is_switch:
        return ["=x"]
    return [text for text in ("", " ", "a\nb", "\x1b[31mred", "\udcff") if not _taken(kind, text)]


def _taken(kind: Any, text: str) -> bool:
    try:
        kind.read([text] if kind.is_list else text)
    except Exception:
        return False
    return True


def settings() -> Iterator[Bad]:
    """Every setting of every verb out of its range, by flag."""
    for words, verb in verbs():
        for option in options_of(verb).values():
            for text in out_of_range(option):
                shown = text if len(text) < 20 else f"{text[:8]}..."
                name = f"{' '.join(words)} {option.typed}={shown!r}"
                if option.name in ("task", "method"):
                    yield Bad(name, (words[0], f"{option.typed}={text}"), says=option.name)
                elif option.positional:
                    yield Bad(name, (*words, text))
                else:
                    yield Bad(
                        name, (*words, f"{option.typed}{'' if option.kind.is_switch else '='}{text}"), says=option.typed
                    )


def settings_in_files() -> Iterator[Bad]:
    """The same in a file of settings, whose values have types."""
    texts: list[Any] = [7, True, {"a": "b"}, [["a"]], 1.5, "", "a\nb"]
    wrong: dict[str, list[Any]] = {
        "NUMBER": [None, True, [1, [2]], {"a": 1}, float("nan"), "x"],
        "INTEGER": [1.5, False, [[]], {}, "x", 10**30],
        "TEXT": texts,
        "PATH": texts,
    }
    for words, verb in verbs():
        if any(option.positional for option in options_of(verb).values()):
            continue
        for option in options_of(verb).values():
            for value in wrong.get(option.kind.metavar, ["yes?", 3]):
                if option.name in ("task", "method") or _takes(option.kind, value):
                    continue
                content = value
                for part in reversed(option.name.split(".")):
                    content = {part: content}
                file = {"bad/settings.yaml": json.dumps(content).encode()}
                name = f"{' '.join(words)}: {option.name}: {value!r}"
                yield Bad(name, (*words, "bad/settings.yaml"), file, says=option.name)


def _takes(kind: Any, value: Any) -> bool:
    return _taken(kind, value) if not kind.is_list or isinstance(value, list) else False


def sample(cases: list[Bad], most: int, seed: int = 0) -> list[Bad]:
    """So many of the cases, always the same ones."""
    return random.Random(seed).sample(cases, min(most, len(cases)))


# Files

ODD: dict[str, Callable[[Path], None]] = {
    "a pipe": os.mkfifo,
    "a device that never ends": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a link to itself": lambda path: path.symlink_to(path.name),
}
"""What may lie where a file should be."""
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "no UTF-8": lambda content: b"\xff\xfe" + content,
    "zeros": lambda content: bytes(len(content)),
    "noise": lambda content: random.Random(1).randbytes(max(64, len(content))),
    "deep JSON": lambda content: b'{"a":' * 10**4,
    "deep lists": lambda content: b"[" * 10**5 + b"]" * 10**5,
    "long number": lambda content: b'{"a": ' + b"9" * 5000 + b"}",
    "NaN": lambda content: b'{"a": NaN}',
    "a list": lambda content: b"[1, 2]",
    "a text": lambda content: b'"text"',
    "null": lambda content: b"null",
    "an empty object": lambda content: b"{}",
    "turned bits": lambda content: bytes(byte ^ (place % 97 == 13) for place, byte in enumerate(content)),
    "more behind it": lambda content: content + content[-64:] + b"}",
}
LIES: list[Any] = [None, -1, 10**30, "x", "\x1b[2J", [], {}, [[[]]], True, 1e308, 0, "../../etc"]


def lies(content: bytes) -> Iterator[tuple[str, bytes]]:
    """A JSON object with one entry, at any depth, left out or exchanged."""
    whole = json.loads(content)
    for path in _paths(whole):
        place = ".".join(map(str, path))
        yield f"{place} left out", _changed(whole, path, None, leave_out=True)
        for lie in LIES:
            yield f"{place} = {lie!r}", _changed(whole, path, lie)


def _paths(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, entry in inside:
        yield (*above, key)
        yield from _paths(entry, (*above, key))


def _changed(whole: Any, path: tuple[Any, ...], value: Any, leave_out: bool = False) -> bytes:
    copy = json.loads(json.dumps(whole))
    place = copy
    for key in path[:-1]:
        place = place[key]
    if leave_out:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return json.dumps(copy).encode()


def damaged(home: Path, source: str, file: str, line: str, must: Collection[str] = ()) -> Iterator[Bad]:
    """A command on a copy, in the folder `bad`, of a folder of which one file is damaged or lies.

    What is done to a file `must` be noticed, or may be beside the point.
    """
    copy, content = f"bad/{Path(source).name}", (home / source / file).read_bytes()
    words = tuple(shlex.split(line.format(copy)))
    found = {name: damage(content) for name, damage in DAMAGES.items()}
    if file.endswith(".json"):
        found |= dict(lies(content))
    if file.endswith(".safetensors"):
        found |= dict(lying_tensors(content))
    for name, changed in found.items():
        if changed != content:
            where = {f"{copy}/{file}": changed}
            yield Bad(f"{words[0]} {source}/{file}: {name}", words, where, {copy: source}, may_pass=name not in must)


def lying_tensors(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Weights that are no numbers, and a header that does not tell what lies in the file."""
    size = int.from_bytes(content[:8], "little")
    header, rest = json.loads(content[8 : 8 + size]), content[8 + size :]

    def written(entries: Any) -> bytes:
        text = json.dumps(entries).encode()
        return len(text).to_bytes(8, "little") + text + rest

    first = next(name for name in header if name != "__metadata__")
    about = header[first]
    yield "NaN", content[: 8 + size] + np.full(len(rest) // 4, np.nan, np.float32).tobytes()
    yield "one NaN", content[:-4] + np.float32(np.nan).tobytes()
    yield "one infinity", content[:-4] + np.float32(np.inf).tobytes()
    yield "a header of many bytes", (2**62).to_bytes(8, "little") + content[8:]
    yield "a header of no bytes", (0).to_bytes(8, "little") + content[8:]
    yield "another shape", written({**header, first: {**about, "shape": [*about["shape"][::-1], 1]}})
    yield "a shape of nothing", written({**header, first: {**about, "shape": [0, 3]}})
    yield "a shape below zero", written({**header, first: {**about, "shape": [-1, 3]}})
    yield "a huge shape", written({**header, first: {**about, "shape": [2**40, 2**40]}})
    yield "offsets beyond the end", written({**header, first: {**about, "data_offsets": [0, 2**50]}})
    yield "offsets backwards", written({**header, first: {**about, "data_offsets": [8, 0]}})
    yield "another type", written({**header, first: {**about, "dtype": "F64"}})
    yield "an unknown type", written({**header, first: {**about, "dtype": "X99"}})
    yield "another name", written({("x" if name == first else name): entry for name, entry in header.items()})
    yield "no tensors", (2).to_bytes(8, "little") + b"{}"


def tree(folder: Path) -> dict[str, tuple[int, int, int]]:
    """All that lies in a folder, and when it was last changed, but for what is remembered of things that were seen."""
    found = {}
    for path in sorted(
        path for path in folder.rglob("*") if not path.name.startswith(("provenance.sqlite", "promises.sqlite"))
    ):
        about = path.lstat()
        changed = (0, 0) if path.is_dir() else (about.st_size, about.st_mtime_ns)
        found[str(path.relative_to(folder))] = (about.st_mode, *changed)
    return found
