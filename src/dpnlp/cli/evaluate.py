"""`dpnlp evaluate`: the scores of a model on pairs of texts."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from dpnlp.checks import BadInput
from dpnlp.cli.config import option
from dpnlp.cli.output import print_facts, print_json
from dpnlp.cli.translation import opened
from dpnlp.cli.translation_settings import Data, Scoring


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Score a model on pairs of texts: it translates the sources by itself, and what it writes is compared with the
    targets. A run is scored on its own test texts unless others are given."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp evaluate runs/first",
        "dpnlp evaluate google/mt5-small --data.test pairs.jsonl --data.source de --data.target en --json",
    )

    model: str = option(help="A run, or a folder or id of Hugging Face", positional=True)
    data: Data = option(Data(), help="texts")
    scoring: Scoring = option(Scoring(), help="scoring")
    computes: Literal["float32", "bfloat16"] = option("float32", help="The type that it computes in; bfloat16 on a GPU")
    output: Path | None = option(None, help="Write sources, references and translations here, as JSON lines")
    json: bool = option(False, help="Print one JSON object instead of words", group="output")

    def run(self) -> None:
        """Scores on stdout."""
        task, data = opened(self.model, self.data, self.computes)
        splits = data.splits()
        pairs = splits.test or splits.validation
        if pairs is None:
            raise BadInput("data.test is not given: name the file of the pairs to score the model on, or a corpus.")
        scored = task.score(list(pairs), self.scoring.of(task.longest))
        scores = self.scoring.scores(scored)
        if self.output:
            lines = (json.dumps(line, ensure_ascii=False) for line in scored.lines())
            self.output.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        if self.json:
            print_json({name: {"score": score.value, "signature": score.signature} for name, score in scores.items()})
        else:
            facts = {name: f"{score.value:.2f}   {score.signature}" for name, score in scores.items()}
            print_facts(f"{self.model} on {len(scored.pairs):,} pairs", facts)
