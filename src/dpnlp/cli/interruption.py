"""Ctrl-C, and the signals by which a machine that shuts down or a terminal that closes ends a process.

The first is heard: what is at hand is kept, and the way to go on is printed. A second one ends the process at once,
which is safe too, since whatever it leaves is gone on with.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dpnlp.cli.config import warn

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stoppable() -> Iterator[None]:
    """Whichever signal asks the process to end becomes a KeyboardInterrupt."""

    def stop() -> None:
        raise KeyboardInterrupt

    with _heard(stop):
        yield


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Gives a function that says whether the process was asked to end, for work that ends between two steps."""
    asked = False

    def remember() -> None:
        nonlocal asked
        asked = True
        warn("finishing the step at hand, to keep it; press Ctrl-C again to stop at once.")

    with _heard(remember):
        yield lambda: asked
    if asked:  # after the last step
        raise KeyboardInterrupt


@contextmanager
def _heard(answer: Callable[[], None]) -> Iterator[None]:
    """The first of the signals is answered so. Those that the process was started to ignore stay ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Signals reach the main thread alone.
        return

    def hear(number: int, frame: Any) -> None:
        for one in heard:
            signal.signal(one, signal.SIG_DFL)
        answer()

    heard = {one: signal.getsignal(one) for one in _SIGNALS if signal.getsignal(one) is not signal.SIG_IGN}
    for one in heard:
        signal.signal(one, hear)
    try:
        yield
    finally:
        for one, before in heard.items():
            signal.signal(one, before)
