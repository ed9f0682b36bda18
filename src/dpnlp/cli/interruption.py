"""Ctrl-C in long work: the step at hand is finished and kept."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dpnlp.cli.config import warn


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Gives a function that says whether Ctrl-C was pressed. Pressed a second time, it ends the work at once."""
    asked = False

    def remember(number: int, frame: Any) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        warn("finishing the step at hand to keep a checkpoint; press Ctrl-C again to stop at once.")

    earlier = signal.signal(signal.SIGINT, remember)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, earlier)
