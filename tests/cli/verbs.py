"""All verbs, each with the settings of every task and method that it has some for."""

from collections.abc import Iterator
from typing import Any

from dpnlp.checks import BadInput
from dpnlp.cli.main import COMMANDS, import_verb
from dpnlp.cli.pretrain import METHODS
from dpnlp.cli.tasks import TASKS


def verbs() -> Iterator[tuple[tuple[str, ...], Any]]:
    """The words that a command line of the verb begins with, and the verb."""
    for words, command in COMMANDS.items():
        verb = import_verb(command)
        if not hasattr(verb, "chosen"):
            yield words, verb
            continue
        flag, names = ("--method", METHODS) if words == ("pretrain",) else ("--task", TASKS)
        for name in names:
            try:
                yield (*words, flag, name), verb.chosen([flag, name])
            except BadInput:  # Not every verb is for every task.
                continue
