"""`dpnlp evaluate`: the scores of a model on texts that it has not learned from."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dpnlp.cli.config import option
from dpnlp.cli.output import print_facts, print_json
from dpnlp.cli.places import check_file
from dpnlp.cli.streams import written
from dpnlp.cli.tasks import task_of, verb_of

if TYPE_CHECKING:
    from dpnlp.cli.training import Scored


@dataclass(frozen=True, kw_only=True)
class Evaluate(ABC):
    """What all tasks have in common; `data` and `scoring` are those of the task."""

    model: str = option(help="A run, or a folder or id of Hugging Face", positional=True)
    task: str
    data: Any
    scoring: Any
    computes: Literal["float32", "bfloat16"] = option("float32", help="The type that it computes in; bfloat16 on a GPU")
    output: Path | None = option(None, help="Write texts, what is right and what it answers here, as JSON lines")
    json: bool = option(False, help="Print one JSON object instead of words", group="output")

    @abstractmethod
    def scored(self) -> "tuple[int, Scored]":
        """How many records there are, and the model's answers to them."""

    def run(self) -> None:
        """Scores on stdout."""
        check_file("--output", self.output, (self.model, *_files(self.data)))
        count, scored = self.scored()
        if self.output:
            with written(self.output) as file:
                file.writelines(f"{json.dumps(line, ensure_ascii=False)}\n" for line in scored.lines)
        if self.json:
            found = {
                name: {"score": score.value, "signature": score.signature} for name, score in scored.scores.items()
            }
            print_json(found | ({"details": dict(scored.details)} if scored.details else {}))
        else:
            facts = {name: f"{score.value:.4g}   {score.signature}" for name, score in scored.scores.items()}
            print_facts(f"{self.model} on {count:,} records", facts)

    @classmethod
    def chosen(cls, arguments: Sequence[str]) -> Any:
        """The settings for what is typed: those of the task that a flag names, or of the run that is scored."""
        return verb_of("Evaluate", task_of("Evaluate", arguments))


def _files(data: Any) -> list[str]:
    """All that settings of data name as files, and more."""
    values = [getattr(data, item.name) for item in fields(data)]
    listed = (value if isinstance(value, tuple) else (value,) for value in values)
    return [str(value) for value in chain.from_iterable(listed) if isinstance(value, (str, Path))]
