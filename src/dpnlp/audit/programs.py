"""Mechanisms of others: a Python function, or a command that reads an input and writes an output."""

import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from dpnlp import checks
from dpnlp.audit.black_box import Release
from dpnlp.audit.scores import Outputs
from dpnlp.checks import BadInput
from dpnlp.foreign import parse_json
from dpnlp.mechanisms.randomness import OS_ENTROPY, Source

_MOST = 2**26
"""Bytes that a command may write at once."""


def function_of(name: str, batch: int | None = None, source: Source = OS_ENTROPY) -> Release:
    """The function `module:function`, found from the folder where we are: function(input) or function(input, seed).

    One that takes a seed gets a new whole number each time. With a batch it is asked for so many outputs at once, by a
    list of as many inputs, and answers by a list.
    """
    function = _imported(name)
    seeds = _takes_a_seed(function)

    def answers(given: Any, count: int) -> list[Any]:
        drawn = (int.from_bytes(source.bytes(7), "little"),) if seeds else ()
        with _held(name):
            if batch is None:
                return [_plain(function(given, *drawn))]
            found = list(function([given] * count, *drawn))
        if len(found) != count:
            raise BadInput(f"batch = {batch}: {name} gave {len(found)} outputs for {count} inputs; it must be as many.")
        return [*map(_plain, found)]

    return _in_parts(answers, batch)


def command_of(command: str, batch: int | None = None) -> Release:
    """A command of the shell, run anew for each output: the input is on its standard input, the output on the other.

    With a batch it gets so many lines, the same input on each, and answers by as many lines. An input that is no text
    is written as JSON; an output that is a number or a list of numbers in JSON is read as such, all else is text.
    """

    def answers(given: Any, count: int) -> list[Any]:
        line = given if isinstance(given, str) else json.dumps(given)
        if batch is not None and len(line.splitlines()) > 1:
            raise BadInput(f"batch = {batch}: an input of several lines cannot be one of many lines; leave it out.")
        written = _run(command, f"{line}\n" * count)
        if batch is None:
            return [_read(written.removesuffix("\n"))]
        lines = written.splitlines()
        if len(lines) != count:
            raise BadInput(f"batch = {batch}: the command wrote {len(lines)} lines for {count}; it must be as many.")
        return [*map(_read, lines)]

    return _in_parts(answers, batch)


def _run(command: str, given: str) -> str:
    """What a command of the shell writes for this input. One that writes without an end is stopped."""
    with tempfile.TemporaryFile() as input_, tempfile.TemporaryFile() as errors:
        input_.write(given.encode())
        input_.seek(0)
        run = subprocess.Popen(
            command, shell=True, stdin=input_, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
        with run:
            assert run.stdout is not None
            written = run.stdout.read(_MOST + 1)
            if len(written) > _MOST:
                os.killpg(run.pid, signal.SIGKILL)
                raise BadInput(f"command = {command}: it writes more than {_MOST:,} bytes; let it write one output.")
        if run.returncode:
            errors.seek(0)
            said = (errors.read().decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
            raise BadInput(f"command = {command}: it ended with exit code {run.returncode} ({said}).")
    try:
        return written.decode()
    except UnicodeDecodeError:
        raise BadInput(f"command = {command}: what it writes is no text in UTF-8; let it write text.") from None


def _in_parts(answers: Callable[[Any, int], list[Any]], batch: int | None) -> Release:
    size = 1 if batch is None else checks.count("batch", batch)

    def parts(given: Any, count: int) -> Iterator[Any]:
        for start in range(0, count, size):
            yield from answers(given, min(size, count - start))

    def release(given: Any, count: int) -> Outputs:
        return [*parts(given, count)]

    return release


def _imported(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        with _held(name):
            found = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInput(
            f"python = {name}: there is no such function ({checks.short(error)}); write it as module:function."
        ) from None
    finally:
        sys.path.remove(here)
    if not callable(found):
        raise BadInput(f"python = {name}: it is no function; write it as module:function.")
    taken: Callable[..., Any] = found
    return taken


def _takes_a_seed(function: Callable[..., Any]) -> bool:
    try:
        named = inspect.signature(function).parameters.values()
    except ValueError:  # built in, and silent about what it takes
        return False
    free = [one for one in named if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return len(free) > 1 and (free[1].default is inspect.Parameter.empty or free[1].name == "seed")


@contextmanager
def _held(name: str) -> Iterator[None]:
    """While code of others runs: it does not end us with an exit code that would be a verdict, nor write among ours."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except SystemExit as end:
        raise BadInput(f"python = {name}: it ends the program ({end.code!r}); let it give an output.") from None


def _plain(output: Any) -> Any:
    """An array of whatever library as NumPy's. It is a copy, for a function may write its next output into the same."""
    if isinstance(output, (list, tuple, dict, set)):
        return deepcopy(output)
    return np.array(output) if hasattr(output, "__array__") and not isinstance(output, str) else output


def _read(text: str) -> Any:
    try:
        found = parse_json(text)
    except ValueError:
        return text
    return found if isinstance(found, (int, float, list)) and not isinstance(found, bool) else text
