"""What a value on the command line or in a YAML file may be: one `Kind` per Python type that an option can have."""

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from dpnlp.cli.ranges import Range, usual
from dpnlp.foreign import NUMERAL


class Refused(Exception):
    """A value is not of its kind. The text, if any, says what to do."""


@dataclass(frozen=True)
class Kind:
    """A type as the user meets it: `allowed` completes "it must be ...", `read` takes flag text or a YAML value."""

    metavar: str
    allowed: str
    read: Callable[[Any], Any]
    is_list: bool = False
    within: Range | None = None

    @property
    def is_switch(self) -> bool:
        return not self.metavar


def kind_of(annotation: Any, within: Range | None = None) -> Kind:
    """The kind of a field, from its annotation, with the range that its values are in."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType) and len(inside) == 2 and NoneType in inside:
        kind = kind_of(inside[inside[0] is NoneType], within)
        return dataclasses.replace(kind, allowed=f"{kind.allowed}, or none", read=partial(_optional, kind.read))
    if origin is tuple and inside[1:] == (...,) and inside[0] is not bool:
        kind = kind_of(inside[0], within)
        allowed = f"a list, each entry {kind.allowed}"
        return Kind(kind.metavar, allowed, partial(_entries, kind.read), is_list=True, within=kind.within)
    if origin is Literal or (isinstance(annotation, type) and issubclass(annotation, StrEnum)):
        members = {str(member): member for member in inside or annotation}
        return Kind("CHOICE", f"one of {', '.join(members)}", partial(_choice, members))
    if annotation not in _SCALARS:
        raise TypeError(f"{annotation}: no option can be of this type.")
    kind, bounds = _SCALARS[annotation], within or usual(annotation)
    return kind if bounds is None else _bounded(kind, bounds)


def _bounded(kind: Kind, bounds: Range) -> Kind:
    """The kind, of which only values within the bounds are taken."""

    def read(value: Any) -> Any:
        found = kind.read(value)
        if not bounds.holds(found):
            raise Refused(bounds.remedy)
        return found

    return dataclasses.replace(kind, allowed=f"{kind.allowed} {bounds.words}".rstrip(), read=read, within=bounds)


def _optional(read: Callable[[Any], Any], value: Any) -> Any:
    """The word none unsets an option, unless it is a value of the kind itself."""
    try:
        return None if value is None else read(value)
    except Refused:
        if value in ("none", ["none"]):
            return None
        raise


def _entries(read: Callable[[Any], Any], value: Any) -> tuple[Any, ...]:
    return tuple(read(entry) for entry in (value if isinstance(value, list) else [value]))


def _choice(members: Mapping[str, Any], value: Any) -> Any:
    if isinstance(value, bool) or str(value) not in members:
        raise Refused
    return members[str(value)]


def _exactly(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise Refused("put it in quotes" if kind is str else "")
    return value


def _path(value: Any) -> Path:
    """An empty text would be the folder that one is in."""
    if not _exactly(str, value).strip():
        raise Refused("a dot stands for the folder that you are in")
    return Path(value)


def _number(value: Any) -> float:
    """A number or its text, which it may be in YAML too: there, 1e-5 is text."""
    if isinstance(value, bool) or (isinstance(value, str) and not NUMERAL.fullmatch(value.strip())):
        raise Refused
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise Refused from None
    if math.isnan(number):
        raise Refused("nan is not one")
    if math.isinf(number) and isinstance(value, str) and "inf" not in value.lower():
        raise Refused("this one is too large")
    return number


def _real(value: Any) -> float:
    """A number that is 0 only where it says so."""
    number = _number(value)
    if number == 0 and isinstance(value, str) and re.search("[1-9]", value.lower().partition("e")[0]):
        raise Refused("this one is too small")
    return number


def _whole(value: Any) -> int:
    """1e6 and 1_000_000 are whole. It goes through Decimal because 1e23 as a float is another number."""
    if type(value) is int:
        return value
    if math.isfinite(_number(value)) and (exact := Decimal(str(value))) == int(exact):
        return int(exact)
    raise Refused


_SCALARS = {
    bool: Kind("", "true or false", partial(_exactly, bool)),
    float: Kind("NUMBER", "a number", _real),
    int: Kind("INTEGER", "a whole number", _whole),
    Path: Kind("PATH", "a path", _path),
    str: Kind("TEXT", "text", partial(_exactly, str)),
}
