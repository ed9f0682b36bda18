"""What attacks need to know of each task: how its models are opened, prompted and compared."""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpnlp.checks import BadInput
from dpnlp.cli import reading_job
from dpnlp.cli.attacked import Attacked
from dpnlp.cli.config import from_dict
from dpnlp.cli.tasks import TASKS, verb_of
from dpnlp.guarantee import Unit
from dpnlp.runs.folder import Run
from dpnlp.runs.provenance import Door, place_of, run_of

if TYPE_CHECKING:
    from dpnlp.audit.membership import Scores
    from dpnlp.data.cache import Examples
    from dpnlp.data.pairs import Pair
    from dpnlp.data.plain import Text
    from dpnlp.tasks.modelling import Modelling
    from dpnlp.tasks.reading import Reading
    from dpnlp.tasks.translation import Translation

DRAWN_AMONG = 40
"""The most probable tokens, of which one is drawn for a text without a prompt (Carlini et al. 2021, §4.2)."""


class AttackedWriter(Attacked):
    """A run whose model writes texts."""

    ATTACKS = ("membership", "extraction")

    def model_of(self, task: Any) -> Any:
        return task.pretrained.model

    @property
    def started_from(self) -> str | None:
        return None if self.asked.model.from_scratch else str(self.asked.model.start)

    @abstractmethod
    def given(self, prefix: int) -> str:
        """What the model is given, in words."""

    @abstractmethod
    def prompted(self, record: Any, prefix: int) -> tuple[str, str]:
        """A prompt, and what the model should not be able to say then."""

    @abstractmethod
    def written(self, prompts: Sequence[str]) -> list[str]:
        """What the model says to each prompt, by itself."""

    @abstractmethod
    def surprise(self, task: Any, prompts: Sequence[str], written: Sequence[str]) -> NDArray[np.float32]:
        """−ln p of what was written, by the model of a task."""

    @abstractmethod
    def text(self, record: Any) -> str:
        """All that a model may write of a record."""

    def unprompted(self, samples: int, seed: int) -> list[str]:
        """Different texts that the model writes of itself, if it can."""
        return []


class AttackedTranslation(AttackedWriter):
    """A run that has learned to translate."""

    def opened(self, model: str, door: Door) -> "Translation":
        from dpnlp.models.pretrained import load
        from dpnlp.tasks.translation import Translation

        data, pretrained = self.asked.data, door.open(load, model, computes=self.asked.model.computes, dropout=0.0)
        return Translation(pretrained, data.longest, data.prefix, data.languages)

    def given(self, prefix: int) -> str:
        return "the source"

    def prompted(self, record: "Pair", prefix: int) -> tuple[str, str]:
        return record.source, record.target

    def written(self, prompts: Sequence[str]) -> list[str]:
        from dpnlp.tasks.translation import Writing

        found: list[str] = self.task.translate(prompts, Writing(self.task.longest, sample=False))
        return found

    def surprise(self, task: Any, prompts: Sequence[str], written: Sequence[str]) -> NDArray[np.float32]:
        from dpnlp.data.pairs import Pair

        found: NDArray[np.float32] = task.surprise([Pair(*both, None) for both in zip(prompts, written, strict=True)])
        return found

    def text(self, record: "Pair") -> str:
        return record.target


class AttackedModelling(AttackedWriter):
    """A run that has learned what comes next in texts."""

    def opened(self, model: str, door: Door) -> "Modelling":
        from dpnlp.models.pretrained import load_language_model
        from dpnlp.tasks.modelling import Modelling

        data, computes = self.asked.data, self.asked.model.computes
        pretrained = door.open(load_language_model, model, computes=computes, dropout=0.0)
        return Modelling(pretrained, data.longest, data.tokens_per_owner)

    def examples(
        self, task: Any, records: Sequence[Any], of: NDArray[np.int64]
    ) -> tuple["Examples", NDArray[np.int64]]:
        made = task.examples(records, None if self.unit is Unit.EXAMPLE else of)
        return made, of if made.owners is None else made.owners

    def given(self, prefix: int) -> str:
        return f"the first {prefix} words"

    def prompted(self, record: "Text", prefix: int) -> tuple[str, str]:
        words = record.text.split()
        return " ".join(words[:prefix]), " ".join(words[prefix:])

    def written(self, prompts: Sequence[str]) -> list[str]:
        from dpnlp.tasks.modelling import Continuing

        longest = max(len(ids) for ids in self.task.tokenizer(list(prompts), add_special_tokens=False)["input_ids"])
        found: list[str] = self.task.proceed(prompts, Continuing(max(1, self.task.longest - longest - 1)))
        return found

    def surprise(self, task: Any, prompts: Sequence[str], written: Sequence[str]) -> NDArray[np.float32]:
        from dpnlp.data.plain import Text

        whole = [Text(prompt + added, None) for prompt, added in zip(prompts, written, strict=True)]
        found: NDArray[np.float32] = task.surprise(whole)
        return found

    def text(self, record: "Text") -> str:
        return record.text

    def unprompted(self, samples: int, seed: int) -> list[str]:
        from dpnlp.tasks.modelling import Continuing

        if not samples:
            return []
        how = Continuing(self.task.longest - 1, sample=True, top_k=DRAWN_AMONG, seed=seed)
        found = dict.fromkeys(text.strip() for text in self.task.proceed([""] * samples, how))
        return [text for text in found if text]


class AttackedReading(Attacked):
    """A run that has learned to read."""

    @property
    def attacks(self) -> tuple[str, ...]:
        of_texts = self.asked.task == "classification" and self.training[0].pair is None
        return (*self.ATTACKS, "inversion") if of_texts else self.ATTACKS

    def opened(self, model: str, door: Door) -> "Reading[Any]":
        return reading_job.opened(model, self.asked.task, self.asked.model.computes, self.asked.data.longest, door)

    def model_of(self, task: Any) -> Any:
        return task.model

    @property
    def started_from(self) -> str | None:
        """Only a run has learned the task; what else there is has a new head, which knows nothing."""
        start = str(self.asked.model.start)
        run = run_of(start)
        learned = run is not None and run.config.get("task") == self.asked.task
        return start if learned and set(self.opened(start, Door()).labels) >= set(self.task.labels) else None

    def confidences(self, losses: "Scores") -> "Scores":
        from dpnlp.audit.lira import confidence

        return confidence(losses) if self.asked.task == "classification" else -losses

    def _known(self, record: Any) -> bool:
        return not self.task.labels or set(record.labels) <= set(self.task.labels)


KINDS: dict[str, type[Attacked]] = {
    "translation": AttackedTranslation,
    "modelling": AttackedModelling,
    "classification": AttackedReading,
    "tagging": AttackedReading,
    "answering": AttackedReading,
}


def attacked(folder: Path, others: Sequence[str] = ()) -> Attacked:
    """The run in a folder, if it is one that can be attacked."""
    run = Run.open(folder)
    task = str(run.config.get("task", "none"))
    if task not in KINDS:
        what = f"has learned {task}" if task in TASKS else "has trained no model"
        raise BadInput(f"{folder}: the run {what}, and what is attacked is one of {', '.join(KINDS)}; give another.")
    place_of(folder)
    return KINDS[task](run, from_dict(verb_of("Train", task), run.config), others)
