"""Adapters by themselves, as the library PEFT keeps them: adapter_config.json and adapter_model.safetensors.

They are a thousandth of the model or so, and whoever has the model puts them in with `load_adapters`, or with PEFT.
"""

import json
import re
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from flax import nnx

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.foreign import parse_json, text_in
from dpnlp.models.lora import adapt, adapted, linear
from dpnlp.models.pretrained.families import FAMILIES
from dpnlp.models.pretrained.folders import Pretrained
from dpnlp.models.pretrained.weights import Checkpoint, new_folder, readable, write_file

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_SIDES = {"A": "lora_A", "B": "lora_B"}
_READ = ("peft_type", "r", "lora_alpha", "target_modules", "exclude_modules")
_CHANGE_NOTHING = (
    "auto_mapping",
    "base_model_name_or_path",
    "ensure_weight_tying",  # of layers that are not linear
    "eva_config",
    "fan_in_fan_out",  # PEFT itself does without it for the layers of these models
    "inference_mode",
    "layers_pattern",
    "lora_dropout",  # in training only, where the model has dropout of its own
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "task_type",
)
"""Fields that are not read: adapters that are there compute the same, whatever these say."""
_USUAL: dict[str, tuple[Any, ...]] = {"bias": ("none",), "init_lora_weights": (True, "gaussian", "eva", "orthogonal")}
"""What some other fields may be; the rest must be empty. Some ways to start change the weights of the model too."""


def save_adapters(pretrained: Pretrained, folder: str | Path, base: str) -> None:
    """Writes a folder that `load_adapters` and PEFT read, all of it or nothing.

    `base` is the folder of the model without adapters, or its id on the hub.
    """
    layers, places = adapted(pretrained.model), _places(pretrained)
    if not layers:
        raise BadInput("adapters: the model has none; put some in with `lora.adapt`, or save the model with `save`.")
    sizes = {(layer.rank, float(layer.alpha)) for layer in layers.values()}
    if len(sizes) > 1:
        shown = ", ".join(f"({rank}, {alpha:g})" for rank, alpha in sorted(sizes))
        raise BadInput(f"(rank, alpha) = {shown}: all adapters must have the same; save the model with merge=True.")
    ((rank, alpha),) = sizes
    config = {
        "base_model_name_or_path": str(base),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "lora_alpha": int(alpha) if alpha.is_integer() else alpha,
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": rank,
        "target_modules": sorted(places[name] for name in layers),
        "task_type": "SEQ_2_SEQ_LM",
    }
    tensors = {
        _tensor(places[name], side): (getattr(layer, side)[...], True)
        for name, layer in layers.items()
        for side in _SIDES
    }
    with new_folder(folder) as whole:
        (whole / _CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        write_file(tensors, whole / _WEIGHTS)


def load_adapters(pretrained: Pretrained, folder: str | Path) -> list[str]:
    """Puts the adapters of a folder around the linear layers that they were saved for, and says which these are."""
    path, file = Path(folder) / _CONFIG, Path(folder) / _WEIGHTS
    for needed in (path, file):
        if not needed.exists():
            raise BadInput(f"{folder}: there is no {needed.name} in it; give a folder of adapters that PEFT can read.")
    config = _config(path)
    rank = checks.count(f"{path}: r", config.get("r", 8))
    alpha = checks.positive(f"{path}: lora_alpha", config.get("lora_alpha", 8))
    layers = linear(pretrained.model)
    targets = {ours: theirs for ours, theirs in _places(pretrained).items() if _hit(path, config, theirs)}
    if not targets:
        raise BadInput(
            f"{path}: target_modules = {config.get('target_modules')!r} names no linear layer of this "
            f"{pretrained.config.model_type}; take the model that the adapters were made for."
        )
    shapes: dict[str, tuple[int, ...]] = {}
    for name, theirs in targets.items():
        inputs, outputs = layers[name].kernel.shape
        shapes |= {_tensor(theirs, "A"): (rank, inputs), _tensor(theirs, "B"): (outputs, rank)}
    checkpoint = Checkpoint([file])
    _refuse_other_tensors(file, checkpoint, shapes)
    values = {tensor: jnp.asarray(checkpoint.read(tensor).T, jnp.float32) for tensor in shapes}
    chosen = adapt(pretrained.model, rank, alpha=alpha, where=list(targets), rngs=nnx.Rngs(0))
    for name, layer in adapted(pretrained.model).items():
        for side in _SIDES:
            getattr(layer, side).set_value(values[_tensor(targets[name], side)])
    return chosen


def _places(pretrained: Pretrained) -> dict[str, str]:
    """Their names of the linear layers, by ours."""
    names = FAMILIES[pretrained.config.model_type].names(pretrained.model.config)
    return {
        ours.removesuffix(".kernel"): tensor.name.removesuffix(".weight")
        for ours, tensor in names.items()
        if tensor.transposed
    }


def _tensor(module: str, side: str) -> str:
    """The name of a tensor in the file."""
    return f"base_model.model.{module}.{_SIDES[side]}.weight"


def _config(path: Path) -> dict[str, Any]:
    """What adapter_config.json says, if it is of adapters that compute as ours do."""
    with readable(path):
        config = dict(parse_json(text_in(path)))
    if config.get("peft_type") != "LORA":
        raise BadInput(f"{path}: peft_type = {config.get('peft_type')!r}: it must be 'LORA'; take such adapters.")
    for name, value in config.items():
        if value and name not in (*_READ, *_CHANGE_NOTHING) and value not in _USUAL.get(name, ()):
            raise BadInput(
                f"{path}: {name} = {value!r} is not supported; take adapters that were made without it, or merge them "
                "into the model with PEFT."
            )
    return config


def _hit(path: Path, config: dict[str, Any], module: str) -> bool:
    """Whether a module is a target: by a pattern that fits its name, or by a list of names or of their ends."""

    def named(field: str) -> bool:
        said = config.get(field) or []
        if isinstance(said, str):
            return re.fullmatch(said, module) is not None
        return any(f".{module}".endswith(f".{end}") for end in said)

    with readable(path):
        return named("target_modules") and not named("exclude_modules")


def _refuse_other_tensors(file: Path, checkpoint: Checkpoint, shapes: dict[str, tuple[int, ...]]) -> None:
    """Each tensor must be there in its shape, and there must be no other."""
    remedy = "check that the adapters belong to this model."
    for name, expected in shapes.items():
        if name not in checkpoint.shapes:
            raise BadInput(f"{file}: the tensor {name} is missing; {remedy}")
        if checkpoint.shapes[name] != expected:
            raise BadInput(
                f"{file}: the tensor {name} has the shape {list(checkpoint.shapes[name])}, and by the model and r it "
                f"is {list(expected)}; {remedy}"
            )
    for name in checkpoint.shapes:
        if name not in shapes:
            raise BadInput(
                f"{file}: the tensor {name} is no adapter of a linear layer that the model has and target_modules "
                "names; leave such layers out, and save with save_embedding_layers=False."
            )
