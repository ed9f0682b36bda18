"""The tasks that verbs know, and which of them is meant: each has settings of its own."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from dpnlp.checks import BadInput
from dpnlp.cli.config import nearest
from dpnlp.cli.settings import read_settings
from dpnlp.cli.start import located

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
    pairs = [(*word.partition("="), after) for word, after in zip(arguments, [*arguments[1:], ""], strict=True)]
    return next((value or after for flag, _, value, after in reversed(pairs) if flag == name), "")


def task_of(arguments: Sequence[str]) -> str:
    """The task that a flag names, else that of the settings file or the run that comes first."""
    if named := flag_of("--task", arguments):
        return named
    first = next((word for word in arguments if not word.startswith("-")), "")
    if first.endswith((".yaml", ".yml")):
        return str(read_settings(first).get("task", USUAL))
    run = located(first)[1] if first and Path(first).exists() else None
    return str(run.config.get("task", USUAL)) if run else USUAL


def verb_of(verb: str, task: str) -> Any:
    """The settings of a verb for a task."""
    if task not in TASKS:
        raise BadInput(f"task = {task}: it must be one of {', '.join(TASKS)}; the nearest is {nearest(task, TASKS)}.")
    return getattr(import_module(f"dpnlp.cli.{TASKS[task]}"), f"{verb}{task.title()}")
