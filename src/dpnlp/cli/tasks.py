"""The tasks that verbs know, and which of them is meant: each has settings of its own."""

import math
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from dpnlp.checks import BadInput
from dpnlp.cli.config import nearest, options_of, shown
from dpnlp.cli.settings import read_settings
from dpnlp.cli.values import Kind
from dpnlp.runs.provenance import run_of

TASKS = {
    "translation": "translation",
    "modelling": "modelling",
    "classification": "reading",
    "tagging": "reading",
    "answering": "reading",
    "nodes": "nodes",
}
"""The module of the command line that has the verbs of a task, such as TrainTagging; it is imported when it is used."""
USUAL = "translation"


def flag_of(name: str, arguments: Sequence[str]) -> str:
    """What a flag is given, the last time that it is, before anything else is known of the flags; or nothing."""
    pairs = [(*word.partition("="), after) for word, after in zip(arguments, [*arguments, ""][1:], strict=True)]
    return next((value or after for flag, _, value, after in reversed(pairs) if flag == name), "")


def first_of(verb: str, arguments: Sequence[str]) -> str:
    """The settings file or the run that comes first among the arguments of a verb, or nothing.

    A word after a flag is the flag's, or one of many, so that it matters what the flags of all tasks take.
    """
    if not arguments or not arguments[0].startswith("-"):
        return arguments[0] if arguments else ""
    kinds = _flags(verb)
    left = 0.0  # words that still belong to the last flag
    for word in arguments:
        if word.startswith("-") and not word.lstrip("-.")[:1].isdigit():
            flag, given, _ = word.partition("=")
            kind = kinds.get(flag)
            left = 0 if given or kind is None or kind.is_switch else math.inf if kind.is_list else 1
        elif not left:
            return word
        else:
            left -= 1
    return ""


def _flags(verb: str) -> dict[str, Kind]:
    """The flags that a verb has for one task or another, and what they take."""
    modules = (import_module(f"dpnlp.cli.{name}") for name in dict.fromkeys(TASKS.values()))
    names = {f"{verb}{task.title()}" for task in TASKS}
    verbs = (getattr(module, name) for module in modules for name in names if hasattr(module, name))
    return {option.typed: option.kind for verb in verbs for option in options_of(verb).values()}


def task_of(verb: str, arguments: Sequence[str]) -> str:
    """The task that a flag names, else that of the settings file or the run that comes first."""
    if named := flag_of("--task", arguments):
        return named
    first = first_of(verb, arguments)
    if first.endswith((".yaml", ".yml")):
        return str(read_settings(first).get("task", USUAL))
    run = run_of(first) if first else None
    return str(run.config.get("task", USUAL)) if run else USUAL


def verb_of(verb: str, task: str) -> Any:
    """The settings of a verb for a task."""
    if task not in TASKS:
        raise BadInput(
            f"--task = {shown(task)}: it must be one of {', '.join(TASKS)}; the nearest is {nearest(task, TASKS)}."
        )
    return getattr(import_module(f"dpnlp.cli.{TASKS[task]}"), f"{verb}{task.title()}")
