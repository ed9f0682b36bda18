"""The weights in a folder of Hugging Face: safetensors, in one file or in several, read one tensor at a time.

A folder is written whole or not at all.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from dpnlp.atomic import whole_folder
from dpnlp.checks import BadInput, short
from dpnlp.foreign import parse_json, text_in

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"


class Tensor(NamedTuple):
    """Where a parameter of ours lies in their file, and under which other names copies of it may be there too."""

    name: str
    transposed: bool = False  # a linear layer of theirs is [outputs, inputs]
    also: tuple[str, ...] = ()


class Checkpoint:
    """The tensors in some files. Opening it reads names and shapes; a tensor is read when it is asked for.

    Those whose names match one of the patterns in `without` are left aside.
    """

    def __init__(self, files: Iterable[Path], without: Sequence[str] = ()) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.left_aside: list[str] = []
        self._files: dict[str, Path] = {}
        for path in files:
            with readable(path), safe_open(path, framework="numpy") as file:
                for name in file.keys():  # noqa: SIM118, it is no dict
                    if any(fnmatchcase(name, pattern) for pattern in without):
                        self.left_aside.append(name)
                        continue
                    part = file.get_slice(name)
                    if part.get_dtype() not in ("F32", "F16", "BF16"):
                        raise BadInput(
                            f"{path}: the tensor {name} is of type {part.get_dtype()}, which must be F32, F16 or BF16; "
                            "take the weights that were not quantized."
                        )
                    self.shapes[name], self._files[name] = tuple(part.get_shape()), path

    def read(self, name: str) -> np.ndarray[Any, Any]:
        """One tensor, which must be finite. Its file is mapped for it alone: no more of the file stays in memory."""
        with readable(self._files[name]), safe_open(self._files[name], framework="numpy") as file:
            tensor: np.ndarray[Any, Any] = file.get_tensor(name)
            return finite(tensor, name, self._files[name])

    def same(self, one: str, other: str) -> bool:
        """Whether both tensors are there and equal."""
        both = one in self.shapes and other in self.shapes
        return both and self.shapes[one] == self.shapes[other] and np.array_equal(self.read(one), self.read(other))

    def holds(self, tensor: Tensor) -> list[str]:
        """Those of the tensor's names that are there."""
        return [name for name in (tensor.name, *tensor.also) if name in self.shapes]


def finite(tensor: np.ndarray[Any, Any], name: str, path: Path) -> np.ndarray[Any, Any]:
    """The tensor, which holds neither nan nor infinity: one of them would be in all that is computed."""
    if tensor.dtype.kind not in "iub" and not np.isfinite(tensor).all():
        raise BadInput(f"{path}: the tensor {name} has an entry that is no finite number; take undamaged weights.")
    return tensor


def read_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """All arrays of a file, by name."""
    with readable(path):
        return {name: finite(array, name, path) for name, array in load_file(path).items()}


def weight_files(folder: Path, source: str | Path, auto: str) -> list[Path]:
    """The files that hold the weights of a model, which the class `auto` of transformers opens."""
    if (folder / _WEIGHTS).exists():
        return [folder / _WEIGHTS]
    if not (folder / _INDEX).exists():
        raise BadInput(
            f"{folder}: there is no {_WEIGHTS} in it; convert other weights with python -c "
            f'"from transformers import {auto} as M, AutoTokenizer as T; '
            f"[X.from_pretrained('{source}').save_pretrained('{Path(source).name}-safetensors') for X in (M, T)]\"."
        )
    with readable(folder / _INDEX):
        index = parse_json(text_in(folder / _INDEX))
        files = {folder / name for name in index["weight_map"].values()}
    for path in files:
        if not path.exists():
            raise BadInput(f"{path}: it is named in {_INDEX} and does not exist; download it too.")
    return sorted(files)


def write(tensors: Mapping[str, tuple[Any, bool]], folder: Path, shard_bytes: int) -> None:
    """The weights in one file, or in several with an index of what lies where."""
    shards: list[list[str]] = [[]]
    size = 0
    for name, (value, _) in tensors.items():
        if shards[-1] and size + value.nbytes > shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += value.nbytes
    places = {}
    for number, shard in enumerate(shards, start=1):
        file = _WEIGHTS if len(shards) == 1 else f"model-{number:05}-of-{len(shards):05}.safetensors"
        write_file({name: tensors[name] for name in shard}, folder / file)
        places.update(dict.fromkeys(shard, file))
    if len(shards) > 1:
        total = sum(value.nbytes for value, _ in tensors.values())
        index = {"metadata": {"total_size": total}, "weight_map": places}
        (folder / _INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def write_file(tensors: Mapping[str, tuple[Any, bool]], path: Path) -> None:
    """One file of tensors, each with whether it is transposed."""
    values = ((name, *tensor) for name, tensor in tensors.items())
    arrays = {name: np.ascontiguousarray(np.asarray(v).T if transposed else v) for name, v, transposed in values}
    save_file(arrays, path, metadata={"format": "pt"})
    path.chmod(path.parent.stat().st_mode & 0o666)  # safetensors lets nobody else read it


@contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """A place to write files to, which becomes the folder when all are written, and is gone if that fails."""
    Path(folder).parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(Path(folder)) as whole:
        yield whole


@contextmanager
def readable(what: str | Path) -> Iterator[None]:
    """Whatever a library says to a file that it cannot read becomes one sentence."""
    try:
        yield
    except BadInput:
        raise
    except BaseException as error:  # They raise nearly anything for a damaged file.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # what is written in Rust
            raise
        raise BadInput(f"{what}: it cannot be read ({short(error)}); correct it, or download it again.") from error
