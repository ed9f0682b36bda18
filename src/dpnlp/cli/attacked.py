"""A finished run that is attacked: its model, what that started from, and what it learned from."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpnlp.accounting.fingerprint import fingerprint, key_path
from dpnlp.accounting.ledger import Ledger
from dpnlp.audit.units import Units, numbered, units
from dpnlp.checks import BadInput
from dpnlp.cli.config import warn
from dpnlp.cli.splits import apart, refuse_another_number, remembered
from dpnlp.guarantee import Unit
from dpnlp.runs.folder import Run
from dpnlp.runs.provenance import Door

if TYPE_CHECKING:
    from dpnlp.audit.membership import Scores
    from dpnlp.cli.train import TrainTexts
    from dpnlp.data.cache import Examples
    from dpnlp.data.learned import Learned


class Attacked(ABC):
    """What attacks need of a run, whatever it has learned."""

    ATTACKS: ClassVar[tuple[str, ...]] = ("membership",)

    def __init__(self, run: Run, asked: "TrainTexts", others: Sequence[str]) -> None:
        self.run, self.asked, self.unit = run, asked, Unit(asked.privacy.unit)
        self.door = Door()
        self.task = self.opened(str(run.path), self.door)
        self.training, self.others = self._records(others)

    @property
    def attacks(self) -> tuple[str, ...]:
        """Those that fit."""
        return self.ATTACKS

    # The models

    @abstractmethod
    def opened(self, model: str, door: Door) -> Any:
        """The task with a model, which reads texts as the run does."""

    @property
    @abstractmethod
    def started_from(self) -> str | None:
        """The model that the run started from, if that one had learned the task, or to write."""

    def reference(self, named: str | None) -> Any:
        """The task with a model that has not seen the records: the one that is named, or what the run started from.

        None where there is none.
        """
        if named is not None:
            return self._unlearned("reference", named)
        if self.started_from is None:
            return None
        try:
            return self._unlearned("model.start", self.started_from)
        except BadInput as error:
            warn(f"nothing is compared with what the run started from: {error}")
            return None

    def _unlearned(self, what: str, model: str) -> Any:
        """The task with a model, which has learned from none of the records."""
        door = Door()
        task, learned = self.opened(model, door), remembered(door)
        if any(map(learned.has, chain(self.training, self.others))):
            raise BadInput(f"{what} = {model}: it has learned from some of the records itself; give another model.")
        return task

    # The records

    def _records(self, others: Sequence[str]) -> tuple[list[Any], list[Any]]:
        data = self.asked.data
        own = replace(data, validation=(), test=()) if others and data.corpus is None else data
        try:
            splits = own.splits()
            if splits.train is None:
                raise BadInput("data.train is not given.")
            self._refuse_changed(splits.train)
            training = list(splits.train)
        except BadInput as error:
            raise BadInput(f"{self.run.path}: what it learned from is not there as it was: {error}") from None
        refuse_another_number(self.run, training)
        learned = self._learned(training)
        if others:
            named = {"train": (), "validation": (), "test": tuple(others), "corpus": None, "held_out": 0.0}
            splits = replace(data, **named).splits()
        outside = [record for split in (splits.test, splits.validation) if split for record in split]
        if not outside:
            raise BadInput("others is not given: the run has no test data; name a file of records it has not seen.")
        what = "others" if others else "data.test"
        return training, [record for record in apart(what, outside, learned.has) if self._known(record)]

    def _learned(self, training: Sequence[Any]) -> "Learned":
        """What the run and all behind it learned from, which must be what its data are by now."""
        from dpnlp.data.learned import Learned

        its, began = Learned.of(training), Learned.recall(self.run.id)
        if began is not None and began != its:
            raise BadInput(
                f"{self.run.path}: what its settings name as training data is not what it learned from; put back the "
                "files and the settings."
            )
        return its | remembered(self.door)

    def _known(self, record: Any) -> bool:
        """Whether the model knows all labels of a record, which then differs from members in no such thing."""
        return True

    def _refuse_changed(self, train: Any) -> None:
        """A private run left a fingerprint of its data in their ledger."""
        chosen, files = self.asked.privacy.ledger, sorted(train.files)
        what = f"dpnlp train {self.asked.name}"
        for ledger in [Ledger(chosen)] if chosen else map(Ledger.beside, train.places):
            if ledger.path.exists() and key_path(ledger).exists():
                releases = ledger.read().releases
                charged = [entry for entry in releases if entry.what == what or entry.what.startswith(f"{what} by ")]
                if charged and fingerprint(*files, ledger=ledger) not in {entry.fingerprint for entry in charged}:
                    raise BadInput(f"{files[0]} has changed since then; put back the file that it was.")

    def drawn(self, most: int, seed: int) -> Units[Any]:
        """Members, and as many others."""
        return units(self.training, self.others, self.unit, most, seed, self.asked.privacy.examples_of_one)

    # Losses

    def examples(
        self, task: Any, records: Sequence[Any], of: NDArray[np.int64]
    ) -> tuple["Examples", NDArray[np.int64]]:
        """Records as a loss takes them, and the unit of each example, where `of` says it of each record."""
        made = task.examples(records)
        return made, of if made.records is None else of[made.records]

    def losses(self, task: Any, model: Any, attacked: Sequence[Sequence[Any]]) -> "Scores":
        """The loss of each unit: the mean over its examples."""
        from dpnlp.audit import membership

        examples, of = self.examples(task, *numbered(attacked))
        each = membership.losses(model, task.loss, examples, task.longest)
        found: Scores = np.bincount(of, each) / np.bincount(of)
        return found

    def own_losses(self, task: Any, attacked: Sequence[Sequence[Any]]) -> "Scores":
        """The losses of the task's own model."""
        return self.losses(task, self.model_of(task), attacked)

    @abstractmethod
    def model_of(self, task: Any) -> Any:
        """The model of a task."""

    def confidences(self, losses: "Scores") -> "Scores":
        """The scores φ of the likelihood ratio attack."""
        return -losses

    # Runs like it

    @cached_property
    def job(self) -> Any:
        """What the run started with, to be trained again."""
        return self.asked.job(Door())
