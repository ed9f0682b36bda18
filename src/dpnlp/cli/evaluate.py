"""`dpnlp evaluate`: the scores of a model on texts that it has not learned from."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dpnlp.atomic import is_passing
from dpnlp.checks import BadInput
from dpnlp.cli.config import option
from dpnlp.cli.output import print_facts, print_json
from dpnlp.cli.places import check_file
from dpnlp.cli.splits import apart, remembered
from dpnlp.cli.streams import written
from dpnlp.cli.tasks import task_of, verb_of
from dpnlp.runs.folder import NOT_COVERED, SCORED_ON_TRAINING_DATA
from dpnlp.runs.provenance import Door, run_of

if TYPE_CHECKING:
    from dpnlp.cli.sections import Files
    from dpnlp.cli.training import Scored


_TAKEN = ("audit.json", "audit.html")
"""What `dpnlp audit` writes beside answers to training records."""


@dataclass(frozen=True, kw_only=True)
class Evaluate(ABC):
    """What all tasks have in common; `data` and `scoring` are those of the task."""

    model: str = option(help="A run, or a folder or id of Hugging Face", positional=True)
    task: str
    data: Any
    scoring: Any
    computes: Literal["float32", "bfloat16"] = option("float32", help="The type that it computes in; bfloat16 on a GPU")
    output: Path | None = option(None, help="Write texts, what is right and what it answers here, as JSON lines")
    on_training_data: bool = option(
        False,
        help="Score a run on what it was trained on. The guarantee does not cover that: --output is then the name of a "
        "file in RUN/not-covered",
    )
    json: bool = option(False, help="Print one JSON object instead of words", group="output")

    @abstractmethod
    def scored(self, door: Door) -> "tuple[int, Scored]":
        """How many records there are, and the answers to them of the model, which this door opens."""

    def run(self) -> None:
        """Scores on stdout."""
        uncovered = {"not_covered": SCORED_ON_TRAINING_DATA} if self.on_training_data else {}
        output = self._uncovered_output() if self.on_training_data else self.output
        check_file("--output", None if uncovered else output, (self.model, *_files(self.data)))
        door = Door()
        count, scored = self.scored(door)
        if output:
            with written(output) as file:
                for line in scored.lines:
                    print(json.dumps({**line, **uncovered}, ensure_ascii=False), file=file)
            door.remember(output)
        if self.json:
            found = {
                name: {"score": score.value, "signature": score.signature} for name, score in scored.scores.items()
            }
            print_json(uncovered | found | ({"details": dict(scored.details)} if scored.details else {}))
        else:
            facts = {name: f"{score.value:.4g}   {score.signature}" for name, score in scored.scores.items()}
            what = "training records" if uncovered else "records"
            print_facts(f"{self.model} on {count:,} {what}", facts | ({"written to": str(output)} if output else {}))
            print("".join(f"{text}\n" for text in uncovered.values()), end="")

    def records(
        self, data: "Files", door: Door, check: Callable[[str, Sequence[Any]], None] = lambda *_: None
    ) -> list[Any]:
        """What a model that was opened by this door is scored on: nothing that it learned from, unless asked for.

        What `check` refuses, by the name of the split, is in no ledger.
        """
        splits = data.splits()
        if self.on_training_data:
            if splits.train is None:
                raise BadInput("data.train is not given: only a run has training data of its own; leave out --data.")
            return list(splits.train)
        name, records = ("test", splits.test) if splits.test else ("validation", splits.validation)
        if records is None:
            raise BadInput("data.test is not given: name the file to score the model on, or a corpus.")
        chosen = apart(f"data.{name}", records, remembered(door).has)
        check(f"data.{name}", chosen)
        self._enter(splits.train, records, chosen)
        return chosen

    def _enter(self, train: Any, records: Any, chosen: Sequence[Any]) -> None:
        """Tells the ledgers of the records that exact scores on those that were chosen are written out."""
        from dpnlp.data.identity import Identity
        from dpnlp.data.ledgers import NOTHING, DataSet

        same = train is not None and {*train.files} & {*records.files}
        others = DataSet.read(train).texts if same else NOTHING
        data = DataSet.of(records, Identity.of_owner().seen(chosen).texts)
        data.write_out(f"dpnlp evaluate {Path(self.model).name}", others)

    def _uncovered_output(self) -> Path | None:
        """Where answers to training records are written: apart from what may be published, or not at all."""
        run = run_of(self.model)
        if run is None:
            raise BadInput(f"on_training_data: {self.model} is no run, so that nothing is known of its training data.")
        if self.output is not None and self.output.parent not in (Path(), run.path / NOT_COVERED):
            raise BadInput(
                f"output = {self.output}: answers to training records are not covered by the guarantee; give a file "
                f"name alone, which then lies in {run.path / NOT_COVERED}."
            )
        if self.output is not None and (self.output.name in ("", "..", *_TAKEN) or is_passing(self.output.name)):
            raise BadInput(f"output = {self.output}: it is the name of something else; choose another file name.")
        return None if self.output is None else run.apart(self.output.name)

    @classmethod
    def chosen(cls, arguments: Sequence[str]) -> Any:
        """The settings for what is typed: those of the task that a flag names, or of the run that is scored."""
        return verb_of("Evaluate", task_of("Evaluate", arguments))


def _files(data: Any) -> list[str]:
    """All that settings of data name as files, and more."""
    values = [getattr(data, item.name) for item in fields(data)]
    listed = (value if isinstance(value, tuple) else (value,) for value in values)
    return [str(value) for value in chain.from_iterable(listed) if isinstance(value, (str, Path))]
