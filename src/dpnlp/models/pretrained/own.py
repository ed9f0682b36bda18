"""Folders of models that transformers has not: a config.json that names our kind, and tensors that have our names."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flax import nnx

from dpnlp.checks import BadInput
from dpnlp.foreign import parse_json, text_in
from dpnlp.models.pretrained.opening import fill, kind_of, refuse_other_weights, variables
from dpnlp.models.pretrained.weights import Checkpoint, Tensor, readable, weight_files, write

SHARD_BYTES = 5 * 10**9
"""The most that one file of tensors holds."""


def write_own(model: nnx.Module, config: Mapping[str, Any], folder: Path, shard_bytes: int = SHARD_BYTES) -> None:
    """The config and all tensors of a model."""
    (folder / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    write({name: (variable[...], False) for name, variable in variables(model).items()}, folder, shard_bytes)


def read_own(folder: Path, kind: str, noun: str) -> dict[str, Any]:
    """The config of a folder that must be of this kind; the noun says what is in such a one."""
    path, found = folder / "config.json", kind_of(folder)
    if found != kind:
        raise BadInput(f"{path}: model_type = {found!r}, which must be {kind}; give the folder of {noun}.")
    with readable(path):
        said: dict[str, Any] = dict(parse_json(text_in(path)))
        return said


def fill_own(model: nnx.Module, folder: Path, dtype: str = "float32") -> None:
    """Gives a model that is only a shape the tensors of a folder, which must be all of them and no others."""
    checkpoint = Checkpoint(weight_files(folder, folder, "AutoModel"))
    names = {name: Tensor(name) for name in variables(model)}
    refuse_other_weights(folder, checkpoint, names, model)
    fill(model, names, checkpoint, dtype)
