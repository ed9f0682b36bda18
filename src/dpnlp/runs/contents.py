"""Keyed digests of tensors and files, by which a thing is recognised wherever a copy of it lies."""

import json
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from dpnlp.checks import BadInput
from dpnlp.foreign import text_in
from dpnlp.home import owner_key

_LISTS = ("tokenizer.json", "vocab.json", "vocab.txt")
_OTHERS = ("*.model", "*.spm", "*.jsonl", "*.npz", "*.npy", "*.gz", "*.xz")
_LEAST = 16
"""Bytes of a tensor or file below which another may be equal to it by chance."""
_BLOCK = 1 << 24


def contents_of(place: Path) -> set[bytes]:
    """The digests of all tensors and lists of words in the files of a thing, and of others that hold what made it."""
    key = owner_key()
    files = [place] if place.is_file() else [file for file in place.rglob("*") if file.is_file()]
    return {digest for file in files for digest in _digests(file, key, file == place)}


def _digests(file: Path, key: bytes, named: bool) -> Iterator[bytes]:
    """Those of one file. Of a folder some files are left out, such as settings; one that is named is not."""
    if file.suffix == ".safetensors":
        yield from _tensors(file, key)
    elif file.name in _LISTS:
        yield from _words(file, key)
    elif named or any(file.match(pattern) for pattern in _OTHERS):
        yield from _whole(file, key)


def _words(file: Path, key: bytes) -> Iterator[bytes]:
    """The digest of the words of a tokenizer, which are the same in whatever format it is saved anew."""
    try:
        text = text_in(file)
        entry: Any = text.rstrip("\n").split("\n") if file.suffix == ".txt" else json.loads(text)
        found = entry["model"]["vocab"] if file.name == "tokenizer.json" else entry
        words = sorted({str(one if isinstance(one, str) else one[0]) for one in found})
    except (OSError, LookupError, ValueError, TypeError, RecursionError):
        yield from _whole(file, key)
        return
    listed = json.dumps(words).encode()
    if len(listed) >= _LEAST:
        yield blake2b(listed, key=key, digest_size=16, person=b"dpnlp words").digest()


def _whole(file: Path, key: bytes) -> Iterator[bytes]:
    """The digest of a file, unless it is nearly empty."""
    if file.stat().st_size >= _LEAST:
        digest = blake2b(key=key, digest_size=16, person=b"dpnlp file")
        with file.open("rb") as opened:
            while block := opened.read(_BLOCK):
                digest.update(block)
        yield digest.digest()


def _tensors(file: Path, key: bytes) -> Iterator[bytes]:
    """A digest of each tensor in a file of safetensors but for those of one value, such as zeros: nobody made them."""
    try:
        size = int.from_bytes(np.fromfile(file, np.uint8, 8).tobytes(), "little")
        entries: dict[str, Any] = json.loads(np.fromfile(file, np.uint8, size, offset=8).tobytes())
        data = np.memmap(file, np.uint8, "r", 8 + size)
        places = [
            (*entry["data_offsets"], int(np.prod(entry["shape"], dtype=np.int64)))
            for name, entry in entries.items()
            if name != "__metadata__"
        ]
    except (OSError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise BadInput(
            f"{file}: it cannot be read ({type(error).__name__}); correct it, or download it again."
        ) from None
    for start, end, count in places:
        tensor = data[start:end]
        if len(tensor) < _LEAST or count < 1 or len(tensor) % count:
            continue
        entry = tensor.reshape(count, -1)
        if count > 1 and (entry[:4096] == entry[0]).all() and (entry == entry[0]).all():
            continue
        digest = blake2b(key=key, digest_size=16, person=b"dpnlp tensor")
        for first in range(0, len(tensor), _BLOCK):
            digest.update(tensor[first : first + _BLOCK].tobytes())
        yield digest.digest()
