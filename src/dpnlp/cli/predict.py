"""`dpnlp predict`: labels, tags or answers for what comes in, line by line."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from dpnlp.checks import BadInput
from dpnlp.cli.config import option, shown
from dpnlp.cli.generate import WRITING
from dpnlp.cli.places import check_file
from dpnlp.cli.ranges import SIZE
from dpnlp.cli.streams import refuse_answers, texts, written
from dpnlp.cli.tasks import first_of, flag_of, task_of, verb_of
from dpnlp.runs.provenance import Door

AT_ONCE = 4096
"""Lines that are read before the first is answered."""


@dataclass(frozen=True, kw_only=True)
class Predict(ABC):
    """What all tasks of reading have in common."""

    model: str = option(help="A run, or a folder or id of Hugging Face", positional=True)
    input: Path | None = option(None, help="A file of lines; without it standard input", positional=True)
    task: str
    output: Path | None = option(None, help="Where to write the answers; without it standard output")
    longest: int | None = option(
        None, within=SIZE, help="Texts are cut to this many tokens; by default as when it was trained"
    )
    batch: int = option(64, within=SIZE, help="Texts that are read at once")
    computes: Literal["float32", "bfloat16"] = option("float32", help="The type that it computes in; bfloat16 on a GPU")

    @abstractmethod
    def record(self, line: str, number: int) -> Any:
        """What a line asks for."""

    @abstractmethod
    def answered(self, task: Any, records: Sequence[Any]) -> Iterator[str]:
        """The answer to each, as a line."""

    def run(self) -> None:
        """Answers, one a line, in the order of the lines."""
        from dpnlp.cli.reading_job import opened

        check_file("--output", self.output, (self.model, self.input))
        door = Door()
        task = opened(self.model, self.task, self.computes, self.longest, door)
        refuse_answers(f"dpnlp predict {Path(self.model).name}", self.input)
        with texts(self.input) as lines, written(self.output) as output:
            numbered = enumerate((line.rstrip("\r\n") for line in lines), 1)
            while some := list(islice(numbered, AT_ONCE)):
                asked = [self.record(line, number) for number, line in some if line.strip()]
                found = self.answered(task, asked) if asked else iter(())
                for _, line in some:  # An empty line stays one, so that both files stay aligned.
                    print(next(found) if line.strip() else "", file=output)
        if self.output:
            door.remember(self.output)

    @classmethod
    def chosen(cls, arguments: Sequence[str]) -> Any:
        """The settings for what is typed: those of the task that a flag names, or of the run."""
        task, first = task_of("Predict", arguments), first_of("Predict", arguments)
        if task in WRITING and not flag_of("--task", arguments) and (not first or {"-h", "--help"} & {*arguments}):
            task = "classification"
        elif task in WRITING:
            raise BadInput(
                f"MODEL = {shown(first)}: it is no run of classification, tagging, answering or nodes; name the task "
                "by --task, or translate with dpnlp generate."
            )
        return verb_of("Predict", task)
