"""What tasks of texts have in common: records can be made up for them, and be put among those to learn from."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from dpnlp.cli.training import Job

if TYPE_CHECKING:
    from dpnlp.data.cache import Examples
    from dpnlp.data.identity import Fingerprints, Seen
    from dpnlp.data.records import Records


class TextTask(Protocol):
    """What is learned from texts."""

    @property
    def tokenizer(self) -> Any:
        """What it reads them with."""
        ...

    def made_up(self, words: Sequence[str], choices: Sequence[int]) -> Any:
        """Nobody's record, in the shape of the task."""
        ...

    def examples(self, records: Any) -> "Examples":
        """A few records as the loss takes them."""
        ...


class TextJob(Job):
    """A job whose records are texts, none of which changes what another one is."""

    train: "Records[Any]"
    task: TextTask

    @cached_property
    def seen(self) -> "Seen":
        from dpnlp.data.identity import Identity

        return Identity.of_owner().seen(self.train)

    def texts_of(self, records: Sequence[Any]) -> "Fingerprints":
        from dpnlp.data.identity import Identity

        return Identity.of_owner().seen(records).texts

    def plant(self, records: Sequence[Any]) -> None:
        """Puts more records among those that are learned from, each with an owner of its own."""
        from dpnlp.data.views import Joined, owners_of_both

        more, others = self.task.examples(records), len(self.dataset)
        self.owners = owners_of_both(self.owners, others, more.records, len(more))
        self.dataset = Joined(self.dataset, self.entering(more))

    def entering(self, examples: "Examples") -> Any:
        """Examples as they are learned from."""
        return examples

    def written(self, model: Any, records: Sequence[Any]) -> list[bool] | None:
        """Whether a model writes each record out when it is given its first half; None where it writes nothing."""
        return None


def told(texts: Sequence[str], written: Sequence[str]) -> list[bool]:
    """Whether each text stands in what was written, but for blanks."""
    return ["".join(text.split()) in "".join(its.split()) for text, its in zip(texts, written, strict=True)]
