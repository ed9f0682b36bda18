"""Which parameters of a model are trained, by patterns on names such as decoder.1.cross_attention.key.kernel.

    encoder.*                the layers of the encoder; encoder alone means the same
    encoder*                 these, and all else whose name starts so, such as encoder_norm
    *.cross_attention.*      the attention of every layer to the input
    cross_attention          the same: a pattern without a dot names a part at any depth
    last:2                   the last two layers, of encoder and decoder each
    decoder.last:1           the decoder's last layer

A star stands for anything, also across dots, and a pattern that names a part means all that is in it. What is frozen is
not differentiated, so that a run is faster, and is neither clipped nor noised.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from math import prod
from typing import Any, NamedTuple

from flax import nnx

from dpnlp.checks import BadInput

Filter = nnx.filterlib.Filter
"""A type of variable, or a predicate of path and variable."""


class Parameter(NamedTuple):
    """A line of a summary."""

    name: str
    size: int
    trained: bool


def trained(model: nnx.Module, trains: Sequence[str] = ("*",), frozen: Sequence[str] = ()) -> Filter:
    """The parameters that a pattern of `trains` names and none of `frozen`, for a run to train these."""
    names = [parameter.name for parameter in summary(model)]
    chosen = matching("trains", trains, names) - matching("frozen", frozen, names)
    if not chosen:
        raise BadInput(f"frozen = {', '.join(_listed(frozen))}: nothing is left to be trained; freeze less.")
    return lambda path, variable: isinstance(variable, nnx.Param) and dotted(path) in chosen


def summary(model: nnx.Module, trains: Filter = nnx.Param) -> list[Parameter]:
    """All parameters of a model, and whether a run that trains these would train each."""
    of_run = {dotted(path) for path, _ in nnx.to_flat_state(nnx.state(model, trains))}
    return [
        Parameter(dotted(path), prod(variable.shape), dotted(path) in of_run)
        for path, variable in nnx.to_flat_state(nnx.state(model, nnx.Param))
    ]


def matching(field: str, patterns: Sequence[str], names: Iterable[str]) -> set[str]:
    """The names that one of the patterns names. A pattern that names none is refused."""
    names = list(names)
    from_the_end = _from_the_end(names)
    found: set[str] = set()
    for pattern in _listed(patterns):
        ways = list(_ways(pattern))
        own = {
            name
            for name, other in zip(names, from_the_end, strict=True)
            if any(fnmatchcase(part, way) for way in ways for part in (*_parts(name), *_parts(other)))
        }
        if not own:
            nearest = ", ".join(_nearest(pattern, names))
            raise BadInput(f"{field} = {pattern!r}: nothing in the model is named so; the nearest are {nearest}.")
        found |= own
    return found


def dotted(path: Sequence[Any]) -> str:
    """The name of what lies at this path."""
    return ".".join(map(str, path))


def _listed(patterns: Sequence[str]) -> Sequence[str]:
    return (patterns,) if isinstance(patterns, str) else patterns


def _parts(name: str) -> Iterator[str]:
    """a, a.b and a.b.c for a.b.c."""
    words = name.split(".")
    return (".".join(words[: length + 1]) for length in range(len(words)))


def _ways(pattern: str) -> Iterator[str]:
    """All that a pattern stands for: last:2 for last:1 too, and one without a dot for what is at any depth."""
    last = re.search(r"\blast:(\d+)", pattern)
    each = [pattern.replace(last[0], f"last:{k + 1}") for k in range(int(last[1]))] if last else [pattern]
    for one in each:
        yield one
        if "." not in one:
            yield f"*.{one}"


def _from_the_end(names: Sequence[str]) -> list[str]:
    """The names with layers counted from the last one: encoder.5 of six is encoder.last:1."""
    counts: dict[str, int] = {}
    for name in names:
        for part in _parts(name):
            above, _, own = part.rpartition(".")
            if own.isdigit():
                counts[above] = max(counts.get(above, 0), int(own) + 1)

    def word(part: str) -> str:
        above, _, own = part.rpartition(".")
        return f"last:{counts[above] - int(own)}" if own.isdigit() else own

    return [".".join(map(word, _parts(name))) for name in names]


def _nearest(pattern: str, names: Sequence[str]) -> list[str]:
    """What may have been meant: the words nearest to one that the model does not know, else the nearest names."""
    words = {word for name in names for word in name.split(".") if not word.isdigit()}
    unknown = [word for word in pattern.split(".") if word not in words and word.strip("*?") and not word.isdigit()]
    if unknown:
        return get_close_matches(unknown[0], sorted(words), cutoff=0)
    return get_close_matches(pattern, sorted({part for name in names for part in _parts(name)}), cutoff=0)
