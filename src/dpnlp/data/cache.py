"""Examples as whole numbers: made once of private texts, kept on the disk, and mapped from there into memory.

The cache holds the private texts in another form, and must be kept as they are. Its folders and files are for their
owner alone (0700 and 0600). The name of a folder in it is a hash of the texts under the owner's key, on which nobody
else can test a guess. A folder whose name starts with a dot belongs to a process that is writing it, or to one that was
killed; then the next one that writes removes it.
"""

import hashlib
import hmac
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpnlp import home
from dpnlp.atomic import Taken, sweep, whole_folder
from dpnlp.checks import BadInput
from dpnlp.data.formats import readable
from dpnlp.data.records import Records
from dpnlp.foreign import parse_json, text_in

FORMAT = 3
"""Version of the files in the cache."""

_BATCH = 4096
"""How many records are made into numbers at once."""
_ABOUT = "about.json"


class Column(NamedTuple):
    """Numbers of each example: as many as it has tokens or, where it is not `ragged`, one.

    A batch fills a ragged one up with `pad`. `mask` is the name under which it shows which of them are real. Only where
    `pad` is negative other numbers may be, too.
    """

    name: str
    pad: int = 0
    mask: str | None = None
    ragged: bool = True

    def dtype(self, largest: int) -> str:
        """The smallest type for numbers up to this."""
        return "uint16" if self.pad >= 0 and largest < 2**16 else "int32"


Numbers = Mapping[str, Sequence[Any]]
"""What is made of some records: for each column a list of numbers for each example, or a number.

Where a record becomes several examples, "record" says for each of them the place of its record in what was given.
"""


class Ragged(NamedTuple):
    """Lists of different lengths, one behind the other: list i is numbers[offsets[i] : offsets[i + 1]]."""

    numbers: NDArray[Any]  # [all of them], or [all of them, width]
    offsets: NDArray[np.int64]  # [lists + 1]

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]]) -> "Ragged":
        sizes = np.fromiter(map(len, lists), np.int64, len(lists))
        numbers = np.fromiter(chain.from_iterable(lists), np.int32, sizes.sum())
        return cls(numbers, np.append(0, np.cumsum(sizes)))

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def padded(self, rows: NDArray[np.int64], length: int, pad: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Some of the lists, cut or padded to `length`, and where they are real, [rows, length] each.

        Where each number is a whole vector, [rows, length, width] of them.
        """
        starts = self.offsets[rows]
        places = np.arange(length)
        real = places < (self.offsets[rows + 1] - starts)[:, None]
        whole = np.int32 if self.numbers.dtype.kind in "iu" else self.numbers.dtype
        numbers = np.full((*real.shape, *self.numbers.shape[1:]), pad, whole)
        numbers[real] = self.numbers[(starts[:, None] + places)[real]]
        return numbers, real

    def lists(self, rows: Iterable[int]) -> list[list[int]]:
        """Some of the lists, without padding."""
        return [self.numbers[self.offsets[row] : self.offsets[row + 1]].tolist() for row in rows]


@dataclass(frozen=True)
class Examples:
    """Examples by number, as the engine takes them. Only what is asked for is read from the disk."""

    columns: tuple[Column, ...]
    ragged: Mapping[str, Ragged]
    single: Mapping[str, NDArray[Any]]
    lengths: NDArray[Any]  # [examples], of the longest column that has a mask
    records: NDArray[Any] | None = None  # [examples], which record each was made of, where one may become several
    owners: NDArray[Any] | None = None  # [examples], whose it is, where that is known
    folder: Path | None = None

    @classmethod
    def of(cls, columns: Sequence[Column], numbers: Numbers) -> "Examples":
        """Examples that are made for now, and kept in memory alone."""
        ragged = {column.name: Ragged.of(numbers[column.name]) for column in columns if column.ragged}
        single = {column.name: np.asarray(numbers[column.name], np.int32) for column in columns if not column.ragged}
        lengths = _longest(columns, {name: column.lengths for name, column in ragged.items()})
        records = np.asarray(numbers["record"], np.int32) if "record" in numbers else None
        return cls(tuple(columns), ragged, single, lengths, records)

    @classmethod
    def opened(cls, folder: Path) -> "Examples":
        """Those that `kept` has put into a folder."""
        try:
            about = parse_json(text_in(folder / _ABOUT))
        except (OSError, ValueError):
            raise damaged(folder / _ABOUT) from None
        examples, columns = about["examples"], tuple(Column(*column) for column in about["columns"])

        def mapped(name: str, dtype: str, size: int) -> NDArray[Any]:
            path = folder / name
            if not path.is_file() or path.stat().st_size != size * np.dtype(dtype).itemsize:
                raise damaged(path)
            return np.asarray(np.memmap(path, dtype, "r", shape=(size,)))

        ragged, single = {}, {}
        for column in columns:
            if column.ragged:
                offsets = mapped(f"{column.name}.offsets", "int64", examples + 1)
                ragged[column.name] = Ragged(
                    mapped(column.name, column.dtype(about["largest"]), int(offsets[-1])), offsets
                )
            else:
                single[column.name] = mapped(column.name, "int32", examples)
        return cls(
            columns,
            ragged,
            single,
            mapped("lengths", "int32", examples),
            mapped("records", "int32", examples) if about["several"] else None,
            mapped("owners", "int32", examples) if about["owners"] else None,
            folder,
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, rows: NDArray[np.int64], length: int) -> dict[str, NDArray[Any]]:
        """What a loss takes: each ragged column [len(rows), length], cut or padded, and each other one [len(rows)]."""
        found: dict[str, NDArray[Any]] = {}
        for column in self.columns:
            if column.ragged:
                found[column.name], real = self.ragged[column.name].padded(rows, length, column.pad)
                if column.mask:
                    found[column.mask] = real
            else:
                found[column.name] = np.asarray(self.single[column.name][rows])
        return found

    def by_length(self, size: int, longest: int) -> Iterator[tuple[NDArray[np.int64], dict[str, NDArray[Any]]]]:
        """All of them, up to `size` at a time: which they are, and their batch, which is filled up with some of them.

        An example is padded to 16, 32, 64, … or `longest` tokens, as its own length asks for. So few shapes are
        compiled, and what a model makes of one example does not depend on the others.
        """
        powers = 16 * 2 ** np.arange(28)
        lengths = np.minimum(powers[np.searchsorted(powers, self.lengths)], longest)
        for length in np.unique(lengths):
            alike = np.flatnonzero(lengths == length)
            for start in range(0, len(alike), size):
                rows = alike[start : start + size]
                yield rows, self.batch(np.resize(rows, size), int(length))


def kept(
    records: Records[Any],
    columns: Sequence[Column],
    numbers: Callable[[list[Any]], Numbers],
    made_by: Sequence[Any],
    *,
    cache: Path,
    largest: int = 2**31 - 1,
) -> Examples:
    """What `numbers` makes of the records, from the cache if it is there, else put there: all of it or nothing.

    It is found again as long as the bytes of the files, the way they are read, the columns and `made_by` are the same,
    which is to name all that decides about the numbers. No ragged number is above `largest`. Several processes may do
    this at once; the first to finish has done it for all.
    """
    before = [_stamp(path) for path in records.files]
    settings = [FORMAT, records.reading, tuple(columns), *made_by]
    key = keyed(repr([*map(_digest, records.files), settings]))

    def write(folder: Path) -> None:
        _write(folder, records, columns, numbers, largest)
        if [_stamp(path) for path in records.files] != before:
            raise BadInput(f"{records.files[0]}: it changed while it was read; start again when it is complete.")

    return Examples.opened(finished(cache, key, write))


def finished(cache: Path, name: str, write: Callable[[Path], None]) -> Path:
    """The folder of this name in the cache; where there is none it is written, all of it or nothing.

    Whoever finds it removes what a killed process left beside it.
    """
    folder = Path(cache) / name
    if folder.is_dir():
        sweep(folder.parent)
        return folder
    try:
        if folder.parent == home.cache():
            home.owned(folder.parent)
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(Taken), whole_folder(folder, mode=0o700) as unfinished:  # Another process may be faster.
            write(unfinished)
    except OSError as error:  # Only of the cache: what goes wrong with the records is another error.
        raise BadInput(
            f"cache = {cache}: the tokens cannot be written there ({error.strerror or error}); "
            "make room, or choose another folder."
        ) from error
    return folder


def keyed(content: str) -> str:
    """A name for this content under the owner's key: whoever lacks the key can test no guess on it."""
    return hmac.digest(home.owner_key(), content.encode(), "sha256").hex()


def sha256(content: bytes) -> str:
    """A name for this content, different from that of any other."""
    return hashlib.sha256(content).hexdigest()


def _longest(columns: Sequence[Column], lengths: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    longest: NDArray[Any] = np.max([lengths[column.name] for column in columns if column.mask], axis=0)
    return longest.astype(np.int32)


class _RaggedFiles:
    """A `Ragged` in the making: lists are put behind those that are there."""

    def __init__(self, numbers: BinaryIO, offsets: BinaryIO, dtype: str) -> None:
        self._numbers, self._offsets, self._dtype, self._total = numbers, offsets, dtype, 0
        offsets.write(np.int64(0).tobytes())

    def add(self, lists: Sequence[Sequence[int]]) -> NDArray[np.int64]:
        """Writes the lists, and returns how long each is."""
        sizes = np.fromiter(map(len, lists), np.int64, len(lists))
        offsets = self._total + np.cumsum(sizes)
        self._total = int(offsets[-1]) if len(lists) else self._total
        self._numbers.write(np.fromiter(chain.from_iterable(lists), self._dtype, sizes.sum()).tobytes())
        self._offsets.write(offsets.tobytes())
        return sizes


def _write(
    folder: Path,
    records: Records[Any],
    columns: Sequence[Column],
    numbers: Callable[[list[Any]], Numbers],
    largest: int,
) -> None:
    """Everything that `Examples` reads, one batch of records after the other."""
    seen, examples, owners = 0, 0, dict[str | None, int]()
    with ExitStack() as stack:

        def created(name: str) -> BinaryIO:
            """A new file that nobody else may read, and that is on the disk when all is done."""
            path = folder / name
            path.touch(mode=0o600, exist_ok=False)
            file = stack.enter_context(path.open("wb"))
            stack.callback(_flush, file)
            return file

        files = {column.name: created(column.name) for column in columns}
        ragged = {
            column.name: _RaggedFiles(files[column.name], created(f"{column.name}.offsets"), column.dtype(largest))
            for column in columns
            if column.ragged
        }
        lengths, of_record, codes = created("lengths"), created("records"), created("owners")
        several = False
        for batch in _batches(records):
            made = numbers(batch)
            sizes = {name: file.add(made[name]) for name, file in ragged.items()}
            for column in columns:
                if not column.ragged:
                    files[column.name].write(np.asarray(made[column.name], np.int32).tobytes())
            lengths.write(_longest(columns, sizes).tobytes())
            several = "record" in made
            place = np.asarray(made.get("record", range(len(batch))), np.int32)
            of_record.write((seen + place).astype(np.int32).tobytes())
            whose = np.array([owners.setdefault(record.owner, len(owners)) for record in batch], np.int32)
            codes.write(whose[place].tobytes())
            seen, examples = seen + len(batch), examples + len(place)
        about = {"examples": examples, "largest": largest, "columns": list(columns)}
        about |= {"several": several, "owners": None not in owners}
        created(_ABOUT).write(json.dumps(about).encode())


def damaged(path: Path) -> BadInput:
    """What is said of a file in the cache that is not what was put there."""
    return BadInput(f"{path}: it is damaged or missing; delete its folder, which is then made again.")


def _batches(records: Records[Any]) -> Iterator[list[Any]]:
    stream = iter(records)
    while batch := list(islice(stream, _BATCH)):
        yield batch


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _stamp(path: Path) -> tuple[int, int, int]:
    """What changes when someone writes to the file."""
    with readable(path):
        stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _digest(path: Path) -> str:
    with readable(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
