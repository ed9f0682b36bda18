"""A model is written as a folder that transformers opens, with its adapters folded into the weights on request."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.models.lora import LoRA, adapted
from dpnlp.models.pretrained.opening import variables
from dpnlp.models.pretrained.weights import Tensor, new_folder, write


@contextmanager
def written(
    folder: str | Path,
    model: nnx.Module,
    names: Mapping[str, Tensor],
    config: Any,
    tokenizer: Any | None,
    *,
    merge: bool,
    shard_bytes: int,
    **changes: Any,
) -> Iterator[Path]:
    """A folder with the model in it, open for more files; then it is there, all of it or nothing.

    `names` has each parameter by its path in the model, joined by dots. `changes` are fields of the config that are
    written in place of its own.
    """
    shard_bytes = checks.count("shard_bytes", shard_bytes)
    config = copy.deepcopy(config)
    tensors = _tensors(model, names, config.model_type, merge)
    config.dtype = str(jnp.result_type(*(value.dtype for value, _ in tensors.values())))
    for name, value in changes.items():
        setattr(config, name, value)
    with new_folder(folder) as whole:
        config.save_pretrained(whole)
        if tokenizer is not None:
            tokenizer.save_pretrained(whole)
        yield whole
        write(tensors, whole, shard_bytes)


def _tensors(model: nnx.Module, names: Mapping[str, Tensor], kind: str, merge: bool) -> dict[str, tuple[Any, bool]]:
    """What is saved, by their name: the value, and whether it is transposed."""
    values: dict[str, Any] = {name: variable[...] for name, variable in variables(model).items()}
    layers = adapted(model)
    if layers and not merge:
        raise BadInput(
            "merge = False: the model has adapters, which have no place in its folder; save it with merge=True, or "
            "the adapters alone with `save_adapters`."
        )
    for name, layer in layers.items():
        for side in variables(layer):
            del values[f"{name}.{side}"]
        values |= {f"{name}.{part}": variable[...] for part, variable in variables(layer.base).items()}
        values[f"{name}.kernel"] = _Merged(layer)
    for name in values:
        if name not in names:
            raise BadInput(f"{name}: a {kind} has no such parameter; take it out of the model before saving.")
    return {tensor.name: (values[name], tensor.transposed) for name, tensor in names.items()}


class _Merged:
    """The weight of an adapted layer, which is computed when an array is made of it."""

    def __init__(self, layer: LoRA) -> None:
        self.layer, self.dtype, self.nbytes = layer, layer.base.kernel.dtype, layer.base.kernel[...].nbytes

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.asarray(self.layer.weight(), dtype)
