"""Which values a setting may have. Every number, text and path is in one of these ranges, checked before anything else
is done, and shown by --help.

Where nothing else bounds a number there is a bound all the same, far above what makes sense, so that no slip of a
finger ends in an overflow or in a machine without memory.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Range:
    """`words`, if any, go on after "it must be a number" or "text"; `remedy` says what to do instead."""

    words: str
    holds: Callable[[Any], bool]
    remedy: str = ""

    @property
    def sentence(self) -> str:
        """The words as one more sentence, for a help."""
        words = self.words.removeprefix("of ").removeprefix("that ")
        return f" {words[0].upper()}{words[1:]}." if words else ""


def _spelled(bound: float) -> str:
    return (
        f"{bound:,}"
        if isinstance(bound, int) and bound < 10**9
        else f"{bound:g}".replace("e+0", "e").replace("e+", "e")
    )


def between(least: float, most: float, *, above: bool = False, below: bool = False, remedy: str = "") -> Range:
    """Numbers from `least` to `most`, without the one where `above`, without the other where `below`."""

    def holds(value: float) -> bool:
        return (least < value if above else least <= value) and (value < most if below else value <= most)

    low, high = _spelled(least), _spelled(most)
    if math.isinf(most):
        words = f"above {low}" if above else f"of at least {low}"
    elif above:
        words = f"above {low} and {'below' if below else 'at most'} {high}"
    else:
        words = f"from {low} and below {high}" if below else f"from {low} to {high}"
    return Range(words, holds, remedy)


# Numbers

EPSILON = between(0, math.inf, above=True, remedy="inf stands for no privacy")
TARGET = Range(
    "above 0 and at most 1e4, or inf", lambda value: 0 < value <= 1e4 or value == math.inf, "inf stands for no privacy"
)
"""An ε that noise is computed for, or compared with."""
PROMISED = between(0, 1e6, above=True)
"""An ε where there is nothing without privacy."""
SPENT = between(0, 1e6)
"""An ε that may be none at all."""
DELTA = between(0, 1, above=True, below=True, remedy="choose it well below one in the number of records")
DELTA_OR_0 = between(0, 1, below=True)
SHARE = between(0, 1, above=True)
PART = between(0, 1, below=True)
"""A share that may be nothing, but not all."""
NOISE = Range("of 0, or from 0.01 to 1e6", lambda value: value == 0 or 0.01 <= value <= 1e6, "0 takes none")
LENGTH = between(0, 1e9, above=True)
"""A norm, a sensitivity, a distance."""
CLIP_NORM = between(1e-9, 1e9, remedy="scale the loss instead")
RATE = between(0, 1e4, above=True)
SMALL = between(0, 1e4)
EPOCHS = between(0, 1e6, above=True)
ANY = between(-1e100, 1e100)

FREQUENCY = between(0, 10**12, above=True)
COUNT = between(1, 10**12)
"""Records, steps: what is counted."""
STEPS = between(1, 10**9)
COUNT_OR_0 = between(0, 10**12)
ATTACKED = between(10, 10**12, remedy="fewer tell nothing")
"""Records that an attack looks at."""
SIZE = between(1, 2**20)
"""What is in memory at once: a batch, a text, the width of a layer."""
SIZE_OR_0 = between(0, 2**20)
FEW = between(1, 1024)
"""Layers, heads, beams, processes."""
FEW_OR_0 = between(0, 1024)
SEED = between(0, 2**63 - 1)


# Texts and paths


def _is_line(text: str) -> bool:
    return text.isprintable()


def _is_name(text: str) -> bool:
    return _is_line(text) and text[:1] not in ("", ".", "-") and text == text.strip() and not {"/", "\\"} & {*text}


_ONE_LINE = "give one line that is not blank, without control characters"

TEXT = Range("", lambda text: _is_line(text) and bool(text.strip()), _ONE_LINE)
LINE = Range("", _is_line, "give one line, without control characters")
"""Text that may be nothing."""
FREE = Range("", lambda text: True)
NAME = Range(
    "that can name a folder",
    lambda text: _is_name(text) and len(text.encode()) <= 200,
    "give one word or a few, without a dot or a dash before them",
)
PATH = Range("", lambda path: _is_line(str(path)), _ONE_LINE)


def usual(kind: type) -> Range | None:
    """The range of a setting that declares none."""
    return TEXT if kind is str else PATH if kind is Path else None
