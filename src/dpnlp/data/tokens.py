"""Pairs as tokens: tokenized once into a cache on the disk, from which they are mapped into memory.

The cache holds the private texts in another form, and must be kept as they are. Its folders and files are for their
owner alone (0700 and 0600), and so should the cache be, since the name of a folder in it is a hash of the texts, on
which guesses at them can be tested. A folder whose name starts with a dot belongs to a process that is writing it, or
that was killed; then it can be deleted.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.data.formats import readable
from dpnlp.data.pairs import Pair, Pairs

FORMAT = 1
"""Version of the files in the cache."""

_BATCH = 4096
"""How many pairs are tokenized at once."""
_ABOUT = "about.json"
_SIDES = ("source", "target")
_LAST_USE = {"is_local", "local_files_only", "max_length", "stride", "truncation_strategy", "truncation_side"} | {
    "pad_to_multiple_of",
    "pad_token_type_id",
    "padding_side",
}
"""What a tokenizer saves about how it was loaded and last called, which does not matter here."""


Sides = tuple[list[list[int]], list[list[int]]]
"""The tokens of some sources, and of their targets."""


class Ragged(NamedTuple):
    """Texts of different lengths, one behind the other: text i is tokens[offsets[i] : offsets[i + 1]]."""

    tokens: NDArray[Any]  # [all tokens]
    offsets: NDArray[np.int64]  # [texts + 1]

    @classmethod
    def of(cls, texts: Sequence[Sequence[int]]) -> "Ragged":
        """Texts that lie in lists."""
        sizes = np.fromiter(map(len, texts), np.int64, len(texts))
        tokens = np.fromiter(chain.from_iterable(texts), np.int32, sizes.sum())
        return cls(tokens, np.append(0, np.cumsum(sizes)))

    def padded(self, rows: NDArray[np.int64], length: int, pad: int) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """The tokens of some texts, cut or padded to `length`, and where they are real, [rows, length] each."""
        starts = self.offsets[rows]
        places = np.arange(length)
        real = places < (self.offsets[rows + 1] - starts)[:, None]
        tokens = np.full(real.shape, pad, np.int32)
        tokens[real] = self.tokens[(starts[:, None] + places)[real]]
        return tokens, real

    def lists(self, rows: NDArray[np.int64]) -> list[list[int]]:
        """The tokens of some texts, without padding."""
        return [self.tokens[self.offsets[row] : self.offsets[row + 1]].tolist() for row in rows]


class TokenPairs:
    """Pairs of token texts in a folder of the cache, by number. Only what is asked for is read from the disk."""

    def __init__(self, folder: Path) -> None:
        try:
            about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise _damaged(folder / _ABOUT) from None
        self.folder, self._pad, examples = folder, about["pad"], about["examples"]

        def mapped(name: str, dtype: str, size: int) -> NDArray[Any]:
            path = folder / name
            if not path.is_file() or path.stat().st_size != size * np.dtype(dtype).itemsize:
                raise _damaged(path)
            return np.asarray(np.memmap(path, dtype, "r", shape=(size,)))

        self.lengths: NDArray[np.int32] = mapped("lengths", "int32", examples)  # [examples], of the longer side
        self.owners: NDArray[np.int32] | None = mapped("owners", "int32", examples) if about["owners"] else None
        sides = []
        for side in _SIDES:
            offsets = mapped(f"{side}.offsets", "int64", examples + 1)
            sides.append(Ragged(mapped(f"{side}.tokens", about["dtype"], int(offsets[-1])), offsets))
        self._source, self._target = sides

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, rows: NDArray[np.int64], length: int) -> dict[str, NDArray[Any]]:
        """What a loss of translation takes, each [len(rows), length]; texts are cut or padded to `length`."""
        ids, mask = self._source.padded(rows, length, self._pad)
        targets, target_mask = self._target.padded(rows, length, self._pad)
        return {"ids": ids, "mask": mask, "targets": targets, "target_mask": target_mask}

    def sources(self, rows: NDArray[np.int64]) -> list[list[int]]:
        """The tokens of these sources, for a model to translate."""
        return self._source.lists(rows)


def encoded(
    texts: Sequence[str],
    tokenizer: Any,
    *,
    longest: int,
    languages: tuple[str, str] | None = None,
    target: bool = False,
) -> list[list[int]]:
    """The tokens of each text, cut to `longest` so that the end token stays last.

    A tokenizer that knows languages is set to these, of source and target; to another they mean nothing.
    """
    added = tokenizer.num_special_tokens_to_add()
    checks.count("longest", longest, added + 1, f"the tokenizer adds {added} to each text")
    _speak(tokenizer, languages)
    if not texts:
        return []
    given = {"text_target" if target else "text": list(texts)}
    options = {"return_attention_mask": False, "return_token_type_ids": False}
    found: list[list[int]] = tokenizer(**given, truncation=True, max_length=longest, **options)["input_ids"]
    return found


def tokenized(
    pairs: Pairs,
    tokenizer: Any,
    *,
    longest: int,
    prefix: str = "",
    cache: Path,
    languages: tuple[str, str] | None = None,
) -> TokenPairs:
    """The pairs as tokens, from the cache if they are there, else put there: all of them or nothing.

    `prefix` goes before each source; for the rest see `encoded`. They are found again as long as the bytes of the
    files, the way they are read, the tokenizer and all that is given here are the same. Several processes may do this
    at once; the first to finish has done it for all.
    """

    def sides(batch: list[Pair]) -> Sides:
        sources = [prefix + pair.source for pair in batch]
        targets = [pair.target for pair in batch]
        settings: dict[str, Any] = {"longest": longest, "languages": languages}
        return encoded(sources, tokenizer, **settings), encoded(targets, tokenizer, **settings, target=True)

    _, (ends,) = sides([Pair("", "", None)])
    if tokenizer.eos_token_id not in ends:
        raise BadInput(
            "tokenizer: it puts no end token after a text, and a model would not learn where to stop; "
            "take one with an eos_token and a template that adds it."
        )
    before = [_stamp(path) for path in pairs.files]
    settings = [FORMAT, pairs.reading, prefix, languages, longest]
    key = _sha256(repr([*map(_digest, pairs.files), _state(tokenizer), settings]).encode())
    folder = Path(cache) / key
    if folder.is_dir():
        return TokenPairs(folder)
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".") as unfinished:
            whole = Path(unfinished) / key
            whole.mkdir(mode=0o700)
            _write(whole, pairs, sides, tokenizer)
            if [_stamp(path) for path in pairs.files] != before:
                raise BadInput(f"{pairs.files[0]}: it changed while it was read; start again when it is complete.")
            _put(whole, folder)
    except OSError as error:  # Only of the cache: what goes wrong with the pairs is another error.
        raise BadInput(
            f"cache = {cache}: the tokens cannot be written there ({error.strerror or error}); "
            "make room, or choose another folder."
        ) from error
    return TokenPairs(folder)


class _RaggedFiles:
    """A `Ragged` in the making: texts are put behind those that are there."""

    def __init__(self, tokens: BinaryIO, offsets: BinaryIO, dtype: str) -> None:
        self._tokens, self._offsets, self._dtype, self._total = tokens, offsets, dtype, 0
        offsets.write(np.int64(0).tobytes())

    def add(self, texts: Sequence[Sequence[int]]) -> NDArray[np.int64]:
        """Writes the texts, and returns how long each is."""
        sizes = np.fromiter(map(len, texts), np.int64, len(texts))
        offsets = self._total + np.cumsum(sizes)
        self._total = int(offsets[-1])
        self._tokens.write(np.fromiter(chain.from_iterable(texts), self._dtype, sizes.sum()).tobytes())
        self._offsets.write(offsets.tobytes())
        return sizes


def _write(folder: Path, pairs: Pairs, sides: Callable[[list[Pair]], Sides], tokenizer: Any) -> None:
    """Everything that `TokenPairs` reads, one batch of pairs after the other."""
    dtype = "uint16" if max(tokenizer.get_vocab().values()) < 2**16 else "int32"
    examples, owners = 0, dict[str | None, int]()
    with ExitStack() as stack:

        def created(name: str) -> BinaryIO:
            """A new file that nobody else may read, and that is on the disk when all is done."""
            path = folder / name
            path.touch(mode=0o600, exist_ok=False)
            file = stack.enter_context(path.open("wb"))
            stack.callback(_flush, file)
            return file

        written = [_RaggedFiles(created(f"{side}.tokens"), created(f"{side}.offsets"), dtype) for side in _SIDES]
        lengths, codes = created("lengths"), created("owners")
        for batch in _batches(pairs):
            sizes = [side.add(texts) for side, texts in zip(written, sides(batch), strict=True)]
            lengths.write(np.maximum(*sizes).astype(np.int32).tobytes())
            codes.write(np.array([owners.setdefault(pair.owner, len(owners)) for pair in batch], np.int32).tobytes())
            examples += len(batch)
        about = {"examples": examples, "dtype": dtype, "pad": tokenizer.pad_token_id or 0, "owners": None not in owners}
        created(_ABOUT).write(json.dumps(about).encode())


def _damaged(path: Path) -> BadInput:
    return BadInput(f"{path}: it is damaged or missing; delete its folder, which is then made again.")


def _batches(pairs: Pairs) -> Iterator[list[Pair]]:
    stream = iter(pairs)
    while batch := list(islice(stream, _BATCH)):
        yield batch


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _put(whole: Path, folder: Path) -> None:
    """Gives the folder its name, unless another process was faster."""
    try:
        whole.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def _speak(tokenizer: Any, languages: tuple[str, str] | None) -> None:
    if languages is not None and hasattr(tokenizer, "src_lang"):
        tokenizer.src_lang, tokenizer.tgt_lang = languages


def _stamp(path: Path) -> tuple[int, int, int]:
    """What changes when someone writes to the file."""
    with readable(path):
        stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _digest(path: Path) -> str:
    with readable(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _state(tokenizer: Any) -> str:
    """The SHA-256 of all that the tokenizer saves and that decides about tokens."""
    if tokenizer.is_fast:
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
    total = [("truncation_side", tokenizer.truncation_side)]
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        for path in sorted(Path(folder).iterdir()):
            content = path.read_bytes()
            if path.name == "tokenizer_config.json":
                config = json.loads(content)
                content = repr([(name, config[name]) for name in sorted(config) if name not in _LAST_USE]).encode()
            total.append((path.name, _sha256(content)))
    return _sha256(repr(total).encode())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
