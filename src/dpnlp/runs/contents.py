"""Keyed digests of tensors and files, by which a thing is recognised wherever a copy of it lies."""

import json
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from dpnlp.checks import BadInput
from dpnlp.home import owner_key

_TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt", "*.model", "*.spm")
_OTHERS = ("*.npz", "*.npy", "*.gz", "*.xz")
_LEAST = 16
"""Bytes of a tensor or file below which another may be equal to it by chance."""
_BLOCK = 1 << 24


def contents_of(place: Path, made: bool = False) -> set[bytes]:
    """The digests of all tensors in the files of a thing, and of its other files that hold what it was made of.

    A tokenizer that is saved beside weights is a copy of another one's: of what was just `made` it counts only where
    there are no weights.
    """
    key = owner_key()
    if place.is_file():
        return {*_tensors(place, key)} if place.suffix == ".safetensors" else {*_whole(place, key)}
    files = [file for file in place.rglob("*") if file.is_file()]
    weights = [file for file in files if file.suffix == ".safetensors"]
    patterns = _OTHERS if made and weights else _OTHERS + _TOKENIZERS
    others = [file for file in files if any(file.match(pattern) for pattern in patterns)]
    return {digest for file in weights for digest in _tensors(file, key)} | {
        digest for file in others for digest in _whole(file, key)
    }


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
