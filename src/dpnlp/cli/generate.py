"""`dpnlp generate`: what a model writes for what comes in, line by line."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dpnlp.checks import BadInput
from dpnlp.cli.config import option
from dpnlp.cli.places import check_file
from dpnlp.cli.streams import refuse_answers, texts, written
from dpnlp.cli.tasks import task_of, verb_of
from dpnlp.runs.provenance import Door

WRITING = ("translation", "modelling")
"""The tasks whose models write texts."""


class Lines(NamedTuple):
    """What makes a line for each line, and how many of them are read at once."""

    write: Callable[[list[str]], list[str]]
    batch: int


@dataclass(frozen=True, kw_only=True)
class Generate(ABC):
    """What all tasks have in common whose models write texts."""

    model: str = option(help="A run, or a folder or id of Hugging Face", positional=True)
    input: Path | None = option(None, help="A file of texts, one a line; without it standard input", positional=True)
    task: str
    output: Path | None = option(None, help="Where to write what comes out; without it standard output")
    computes: Literal["float32", "bfloat16"] = option("float32", help="The type that it computes in; bfloat16 on a GPU")

    @abstractmethod
    def lines(self, door: Door) -> Lines:
        """The model, opened by this door, ready to write."""

    def run(self) -> None:
        """A line for each line, in their order."""
        check_file("--output", self.output, (self.model, self.input))
        door = Door()
        lines = self.lines(door)
        refuse_answers(f"dpnlp generate {Path(self.model).name}", self.input)
        typed = self.input is None and sys.stdin.isatty()
        if typed:
            print("Type a text and press Enter; Ctrl-D ends.", file=sys.stderr)
        with texts(self.input) as given, written(self.output) as output:
            stream = (line.rstrip("\n") for line in given)
            while some := list(islice(stream, 1 if typed else 64 * lines.batch)):
                real = [line for line in some if line.strip()]
                found = iter(lines.write(real) if real else ())
                for line in some:  # An empty line stays one, so that both files stay aligned.
                    print(next(found) if line.strip() else "", file=output, flush=typed)
        if self.output:
            door.remember(self.output)

    @classmethod
    def chosen(cls, arguments: Sequence[str]) -> Any:
        """The settings for what is typed: those of the task that a flag names, or of the run."""
        task = task_of("Generate", arguments)
        if task not in WRITING:
            raise BadInput(f"task = {task}: its models write no texts; ask them by dpnlp predict.")
        return verb_of("Generate", task)
