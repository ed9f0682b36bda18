"""What a value may be. Every refusal is one sentence: the field, the value, what is allowed, what to do."""

import math
from typing import Any


class BadInput(ValueError):
    """A value from the user that cannot be used. Its text is shown to the user as it stands."""


def positive(name: str, value: float, remedy: str = "") -> float:
    """A finite number above 0."""
    if not (_is_number(value) and math.isfinite(value) and value > 0):
        raise BadInput(_sentence(name, value, "must be a finite number above 0", remedy))
    return float(value)


def non_negative(name: str, value: float, remedy: str = "") -> float:
    """A finite number of at least 0."""
    if not (_is_number(value) and math.isfinite(value) and value >= 0):
        raise BadInput(_sentence(name, value, "must be a finite number of at least 0", remedy))
    return float(value)


def budget(name: str, value: float) -> float:
    """A target ε: above 0, with infinity standing for no privacy at all."""
    if not (_is_number(value) and value > 0):
        raise BadInput(_sentence(name, value, "must be a number above 0", "inf stands for no privacy"))
    return float(value)


def probability(name: str, value: float, remedy: str = "") -> float:
    """A number strictly between 0 and 1."""
    if not (_is_number(value) and 0 < value < 1):
        raise BadInput(_sentence(name, value, "must lie strictly between 0 and 1", remedy))
    return float(value)


def share(name: str, value: float, remedy: str = "") -> float:
    """A number in (0, 1]."""
    if not (_is_number(value) and 0 < value <= 1):
        raise BadInput(_sentence(name, value, "must lie above 0 and be at most 1", remedy))
    return float(value)


def count(name: str, value: float, least: int = 1, remedy: str = "") -> int:
    """A whole number of at least `least`."""
    if not _is_number(value) or not math.isfinite(value) or value != int(value) or value < least:
        raise BadInput(_sentence(name, value, f"must be a whole number of at least {least}", remedy))
    return int(value)


def _is_number(value: Any) -> bool:
    """True for anything that behaves as one real number; NaN is none."""
    if isinstance(value, (bool, str)):
        return False
    try:
        return not math.isnan(float(value))
    except (TypeError, ValueError):
        return False


def _sentence(name: str, value: object, allowed: str, remedy: str) -> str:
    return f"{name} = {value}: it {allowed}" + (f"; {remedy}." if remedy else ".")
