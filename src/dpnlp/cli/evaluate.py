"""`dpnlp evaluate`: the scores of a model on texts that it has not learned from."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dpnlp.cli.config import option
from dpnlp.cli.output import print_facts, print_json
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
        count, scored = self.scored()
        if self.output:
            lines = (json.dumps(line, ensure_ascii=False) for line in scored.lines)
            self.output.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
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
