"""What a run learned from, remembered by keyed fingerprints for its owner alone, so that a split is decided once.

A record counts as learned from if any text in it was. So a copy of the training file is known in whatever format, order
or packing, with other labels, owners and pairs, and so is a text that is in both parts of a file. A text that is
changed by a word is another text.
"""

import io
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from dpnlp.atomic import write
from dpnlp.checks import BadInput
from dpnlp.data.graphs import GraphCorpus
from dpnlp.data.identity import Fingerprints, HasTexts, Identity, Seen
from dpnlp.home import home, owner_key


@dataclass(frozen=True, eq=False)
class Learned:
    """What was learned from, to be recognised."""

    seen: Seen

    @classmethod
    def of(cls, records: Iterable[HasTexts]) -> "Learned":
        """These records, which are read once."""
        return cls(Identity.of_owner().seen(records))

    @classmethod
    def nothing(cls) -> "Learned":
        """Nothing at all."""
        empty = Fingerprints.of(())
        return cls(Seen(empty, empty))

    @classmethod
    def recall(cls, run: str) -> "Learned | None":
        """What the run of this id learned from, if this machine remembers it."""
        if not (path := _place(run)).exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as kept:
                return cls(Seen(Fingerprints(kept["records"]), Fingerprints(kept["texts"])))
        except (OSError, ValueError, KeyError, BadZipFile):
            raise BadInput(f"{path}: what a run learned from cannot be read; restore the file.") from None

    def keep(self, run: str) -> None:
        """Remembers under the run's id, on the disk when this returns, that it learned from these."""
        path, whole = _place(run), io.BytesIO()
        np.savez(whole, records=self.seen.records.numbers, texts=self.seen.texts.numbers)
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write(path, whole.getvalue(), mode=0o600)
        except OSError as error:
            raise BadInput(
                f"{path}: what the run learns from cannot be kept there ({error.strerror}); make room, or set "
                "DPNLP_HOME to another folder of your own."
            ) from None

    def __eq__(self, other: object) -> bool:
        """Whether the same records are learned from."""
        return isinstance(other, Learned) and np.array_equal(self.seen.records.numbers, other.seen.records.numbers)

    def __or__(self, other: "Learned") -> "Learned":
        one, two = self.seen, other.seen
        return Learned(Seen(one.records | two.records, one.texts | two.texts))

    def has(self, record: HasTexts) -> bool:
        """Whether any text of the record was learned from."""
        return any(self._identity.text(text) in self.seen.texts for text in record.texts if text.strip())

    def has_node(self, corpus: GraphCorpus, node: int) -> bool:
        """Whether this node of a graph was learned from, in whatever graph and under whatever name."""
        return self._identity.node(corpus, node) in self.seen.texts

    @property
    def id(self) -> str:
        """What stands for it where no run has learned from it: the same whenever the same texts are learned from."""
        return blake2b(self.seen.texts.to_bytes(), key=owner_key(), digest_size=8, person=b"dpnlp learned").hexdigest()

    @property
    def others(self) -> "Others":
        """A bound, within which are all records that were not learned from."""
        return Others(self)

    @cached_property
    def _identity(self) -> Identity:
        return Identity.of_owner()


@dataclass(frozen=True)
class Others:
    """Bounds of records: none that was learned from is within."""

    learned: Learned

    def __contains__(self, record: HasTexts) -> bool:
        return not self.learned.has(record)


def forget(run: str) -> None:
    """Forgets what a run was to learn from that never began."""
    _place(run).unlink(missing_ok=True)


def _place(run: str) -> Path:
    if not run.isalnum():
        raise BadInput(f"run = {run!r}: the id of a run is made of letters and digits; restore its privacy.json.")
    return home() / "learned" / f"{run}.npz"
