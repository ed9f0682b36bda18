"""Keyed fingerprints, by which a record is recognised in whatever file it lies.

A fingerprint follows from what a record says, not from where or how it is written: order, packing, format, columns,
labels, owners, capital letters, spaces and punctuation make no difference. So a copy, a hard link, a shuffled or packed
file, a join and a subset are known for what they are.

It is a hash of 63 bits under the owner's key, and tells nothing to whoever lacks that key. Two of N different records
share one with a probability below N²/2⁶⁴, about 6e-6 for ten million; then a record is taken for one that is known,
which errs on the cautious side.
"""

import hashlib
import re
import unicodedata
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dpnlp.data.formats import readable
from dpnlp.data.graphs import GraphCorpus
from dpnlp.home import owner_key

_BETWEEN = re.compile(r"[\W_]+")
"""What stands between letters and digits."""
_NO_LETTERS = bytes(byte for byte in range(128) if not chr(byte).isalnum())
_BYTES = 8
_BRIEF = 16
"""Texts of fewer letters and digits may well be the same by coincidence. The last bit of a fingerprint says which."""
_NEARLY_EMPTY = 64
"""Files of so few bytes may well be the same by coincidence, too."""


class HasTexts(Protocol):
    """A record, as far as it is recognised."""

    @property
    def texts(self) -> tuple[str, ...]:
        """All that was written in it, without labels and owner."""


@dataclass(frozen=True, eq=False)
class Fingerprints:
    """A set of fingerprints, in ascending order."""

    numbers: NDArray[np.uint64]

    @classmethod
    def of(cls, numbers: Iterable[int]) -> "Fingerprints":
        """The set of these."""
        return cls(np.unique(np.fromiter(numbers, np.uint64)))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Fingerprints":
        """The set that `to_bytes` wrote; what is none is a ValueError."""
        numbers = np.frombuffer(data, "<u8").astype(np.uint64)
        if not (numbers[1:] > numbers[:-1]).all():
            raise ValueError("they are not in ascending order")
        return cls(numbers)

    def to_bytes(self) -> bytes:
        """The set, eight bytes each."""
        return self.numbers.astype("<u8").tobytes()

    def __len__(self) -> int:
        return len(self.numbers)

    def __contains__(self, number: int) -> bool:
        place = int(np.searchsorted(self.numbers, np.uint64(number)))
        return place < len(self.numbers) and int(self.numbers[place]) == number

    def __or__(self, other: "Fingerprints") -> "Fingerprints":
        return Fingerprints(np.union1d(self.numbers, other.numbers))

    def without(self, other: "Fingerprints") -> "Fingerprints":
        """Those that are not in the other set."""
        return Fingerprints(np.setdiff1d(self.numbers, other.numbers, assume_unique=True))

    @property
    def longer(self) -> int:
        """How many are of texts that are too long to be the same by coincidence."""
        return int(np.count_nonzero(self.numbers & np.uint64(1) == 0))

    def common(self, other: "Fingerprints") -> "Fingerprints":
        """Those that are in both sets."""
        fewer, more = sorted((self.numbers, other.numbers), key=len)
        places = np.searchsorted(more, fewer)
        there = places < len(more)
        there[there] = more[places[there]] == fewer[there]
        return Fingerprints(fewer[there])

    def overlaps(self, other: "Fingerprints") -> bool:
        """Whether any is in both sets."""
        return len(self.common(other)) > 0


class Seen(NamedTuple):
    """What was read of a data set: the records, and the texts in them, each apart.

    So what was paired with another text, or asked about another context, is recognised too.
    """

    records: Fingerprints
    texts: Fingerprints


@dataclass(frozen=True)
class Identity:
    """How records are recognised under a key. `Identity.of_owner()` has that of whoever runs this."""

    key: bytes

    @classmethod
    def of_owner(cls) -> "Identity":
        """Under the key that is kept for its owner alone, made on first use."""
        return cls(owner_key())

    @cached_property
    def _keyed(self) -> "blake2b":
        return blake2b(key=self.key, digest_size=_BYTES, person=b"dpnlp record")

    def text(self, text: str) -> int:
        """The fingerprint of one text."""
        return self._number(normal_form(text))

    def record(self, record: HasTexts) -> int:
        """The fingerprint of a record: of all its texts together. One of a single text has that text's."""
        return self._number("\0".join(map(normal_form, record.texts)))

    def records(self, records: Iterable[HasTexts]) -> Fingerprints:
        """The fingerprints of all records."""
        return Fingerprints.of(map(self.record, records))

    def seen(self, records: Iterable[HasTexts]) -> Seen:
        """The fingerprints of all records and of all texts in them, by reading them once."""
        whole, apart = array("Q"), array("Q")
        for record in records:
            texts = [normal_form(text) for text in record.texts]
            if any(texts):
                whole.append(self._number("\0".join(texts)))
            if len(texts) > 1:
                apart.extend(self._number(text) for text in texts if text)
            elif any(texts):
                apart.append(whole[-1])
        return Seen(Fingerprints(np.unique(np.asarray(whole))), Fingerprints(np.unique(np.asarray(apart))))

    def files(self, paths: Iterable[Path]) -> Fingerprints:
        """The fingerprints of files byte by byte, of whatever kind they are, but for those that are nearly empty."""
        found = []
        for path in paths:
            with readable(path), path.open("rb") as file:
                digest = hashlib.file_digest(file, lambda: blake2b(key=self.key, digest_size=_BYTES, person=b"file"))
                if file.tell() > _NEARLY_EMPTY:
                    found.append(int.from_bytes(digest.digest()) >> 1 << 1)
        return Fingerprints.of(found)

    def nodes(self, corpus: GraphCorpus, nodes: Iterable[int]) -> Fingerprints:
        """The fingerprints of these nodes of a graph."""
        return Fingerprints.of(self.node(corpus, node) for node in nodes)

    def node(self, corpus: GraphCorpus, node: int) -> int:
        """The fingerprint of a node: of its text or, without one, of its features; of its name if it has neither."""
        if corpus.texts and corpus.texts[node].strip():
            return self.text(corpus.texts[node])
        features = corpus.graph.features[node]
        if not features.any():
            return self._number(f"node {corpus.graph.names[node]}")
        filled = np.flatnonzero(features)
        return self._number(f"features {filled.tolist()} {features[filled].tolist()}")

    def _number(self, content: str) -> int:
        hashed = self._keyed.copy()
        hashed.update(content.encode("utf-8", "surrogatepass"))
        return int.from_bytes(hashed.digest()) >> 1 << 1 | (len(content) < _BRIEF)


def normal_form(text: str) -> str:
    """What is left of a text however it is written: its letters and digits, or all but spaces where it has neither."""
    if text.isascii() and (found := text.encode().lower().translate(None, _NO_LETTERS)):
        return found.decode()  # The same, several times as fast.
    folded = unicodedata.normalize("NFKC", text).casefold()
    return _BETWEEN.sub("", folded) or "".join(folded.split())
