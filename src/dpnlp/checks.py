"""What a value may be. Every refusal is one sentence: the field, the value, what is allowed, what to do."""

import math
import re
import textwrap
from typing import Any


class BadInput(ValueError):
    """A value from the user that cannot be used. Its text is shown to the user as it stands."""


def positive(name: str, value: float, remedy: str = "") -> float:
    """A finite number above 0."""
    number = _number(value)
    if not 0 < number < math.inf:
        raise BadInput(_sentence(name, value, "must be a finite number above 0", remedy))
    return number


def non_negative(name: str, value: float, remedy: str = "") -> float:
    """A finite number of at least 0."""
    number = _number(value)
    if not 0 <= number < math.inf:
        raise BadInput(_sentence(name, value, "must be a finite number of at least 0", remedy))
    return number


def budget(name: str, value: float) -> float:
    """A target ε: above 0, with infinity standing for no privacy at all."""
    number = _number(value)
    if not number > 0:
        raise BadInput(_sentence(name, value, "must be a number above 0", "inf stands for no privacy"))
    return number


def probability(name: str, value: float, remedy: str = "") -> float:
    """A number strictly between 0 and 1."""
    number = _number(value)
    if not 0 < number < 1:
        raise BadInput(_sentence(name, value, "must lie strictly between 0 and 1", remedy))
    return number


def share(name: str, value: float, remedy: str = "") -> float:
    """A number in (0, 1]."""
    number = _number(value)
    if not 0 < number <= 1:
        raise BadInput(_sentence(name, value, "must lie above 0 and be at most 1", remedy))
    return number


def count(name: str, value: float, least: int = 1, remedy: str = "") -> int:
    """A whole number of at least `least`."""
    if not math.isfinite(_number(value)) or value != int(value) or value < least:
        raise BadInput(_sentence(name, value, f"must be a whole number of at least {least}", remedy))
    return int(value)


_CLASS = re.compile(r"\b(\w+(Error|Exception)): ?|<class '(?:\w+\.)*(\w+)'>")
"""The name of a class of errors, which tells a reader nothing, and how Python shows other classes."""


def short(error: BaseException) -> str:
    """What the error of another library says first, on one line, to be put into a sentence of ours."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)  # The path is said already.
    said = _CLASS.sub(lambda found: found[3] or "", " ".join(text.split())).split(". ")[0].rstrip(".:")
    if isinstance(error, KeyError):
        said = f"{said} is missing"
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower()
    return textwrap.shorten(said or words, 160, placeholder=" …")


def _number(value: Any) -> float:
    """Anything that behaves as one real number, as a float; NaN for all else, truth values and texts among it."""
    if isinstance(value, (bool, str, bytes, bytearray)) or str(getattr(value, "dtype", "")) == "bool":
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _sentence(name: str, value: object, allowed: str, remedy: str) -> str:
    shown = repr(value) if isinstance(value, str) else value
    return f"{name} = {shown}: it {allowed}" + (f"; {remedy}." if remedy else ".")
