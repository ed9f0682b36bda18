"""A folder of Hugging Face, or one of the hub, is opened: all that is in it is checked before a weight is read.

Weights are then read one at a time, so that a model is never held twice.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import jax.numpy as jnp
from flax import nnx
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig

from dpnlp.checks import BadInput, short
from dpnlp.foreign import parse_json, text_in
from dpnlp.models.freezing import dotted
from dpnlp.models.pretrained.families import Family, M
from dpnlp.models.pretrained.weights import Checkpoint, Tensor, readable, weight_files

C = TypeVar("C", bound=Any)

_TOKENIZERS = ("tokenizer*", "*.model", "*.spm", "vocab*")
"""One of these is in the folder if a tokenizer is."""
_WITHOUT_WEIGHTS = ("*.json", "*.txt", "*.model", "*.spm")
_DOWNLOADED = (*_WITHOUT_WEIGHTS, "model*.safetensors")
_TYPES = ("float32", "bfloat16")
_OTHER_TOKENIZER = "take the tokenizer that belongs to the model."


@dataclass(frozen=True)
class Opened(Generic[M]):
    """A folder that holds one of our models, which has no weights yet."""

    folder: Path
    config: Any  # transformers.PreTrainedConfig
    tokenizer: Any | None  # transformers.PreTrainedTokenizerBase
    left_aside: tuple[str, ...]  # tensors of heads, which the model does without
    _model: M
    _names: dict[str, Tensor]
    _checkpoint: Checkpoint
    _dtype: str

    def filled(self) -> M:
        """The model with its weights."""
        fill(self._model, self._names, self._checkpoint, self._dtype)
        return self._model


def opened(
    source: str | Path,
    families: Mapping[str, Family[M]],
    *,
    dtype: str,
    computes: str | None,
    dropout: float | None,
    rematerialise: bool,
) -> Opened[M]:
    """The model of this folder, or of that id on the hub, if it is of one of these families and all of it fits."""
    computes = computed_in(dtype, computes)
    folder = found(source)
    theirs = _config(folder, families)
    family = families[theirs.model_type]
    checkpoint = Checkpoint(weight_files(folder, source, family.auto), family.heads)
    try:
        ours = family.config(theirs, checkpoint)
    except BadInput as error:
        raise BadInput(f"{folder / 'config.json'}: {error}") from error
    ours = replace(dropping(ours, dropout), dtype=computes, rematerialise=rematerialise)
    model: M = nnx.eval_shape(lambda: family.build(ours, rngs=nnx.Rngs(0)))
    names = family.names(ours)
    refuse_other_weights(folder, checkpoint, names, model, family.unused)
    tokenizer = tokenizer_in(folder, theirs.vocab_size)
    _refuse_other_tokens(folder, tokenizer, theirs)
    return Opened(folder, theirs, tokenizer, tuple(checkpoint.left_aside), model, names, checkpoint, dtype)


def variables(model: nnx.Module) -> dict[str, nnx.Variable[Any]]:
    """Everything in the model that is loaded and saved, by name, such as "encoder.0.feed_norm.scale"."""
    return {dotted(path): variable for path, variable in nnx.to_flat_state(nnx.state(model))}


def fill(model: nnx.Module, names: Mapping[str, Tensor], checkpoint: Checkpoint, dtype: str) -> None:
    """Gives those parameters of a model that have a name their weights, one at a time."""
    ours = variables(model)
    for name, tensor in names.items():
        value = checkpoint.read(checkpoint.holds(tensor)[0])
        ours[name].set_value(jnp.asarray(value.T if tensor.transposed else value, dtype))


def computed_in(dtype: str, computes: str | None) -> str:
    """What a model computes in whose parameters are of type `dtype`, once both are known to be allowed."""
    computes = dtype if computes is None else computes
    for name, given in (("dtype", dtype), ("computes", computes)):
        if given not in _TYPES:
            raise BadInput(f"{name} = {given!r}: it must be {' or '.join(_TYPES)}.")
    return computes


def dropping(config: C, rate: float | None) -> C:
    """A config of ours with this for all of its rates of dropout; with none, as it is."""
    names = [field.name for field in fields(config) if field.name.endswith("dropout") and rate is not None]
    return replace(config, **dict.fromkeys(names, rate))


def found(source: str | Path, files: Sequence[str] = _DOWNLOADED) -> Path:
    """The folder, downloaded if it has to be, as far as these files go."""
    if Path(source).is_dir():
        return Path(source)
    try:
        return Path(snapshot_download(str(source), allow_patterns=list(files)))
    except HFValidationError:
        raise BadInput(f"source = {source}: there is no such folder; give one that holds a config.json.") from None
    except Exception as error:  # Connections fail with the errors of several libraries.
        raise BadInput(
            f"source = {source}: there is no such folder, and the Hugging Face hub does not give a model of that name "
            f"({short(error)}); download it where the hub can be reached, and give the path of its folder."
        ) from error


def downloaded(source: str) -> Path:
    """Where what was downloaded of an id on the hub lies."""
    return Path(snapshot_download(source, local_files_only=True))


def kind_of(folder: Path) -> Any:
    """What the config.json in a folder calls `model_type`."""
    path = folder / "config.json"
    if not path.exists():
        raise BadInput(f"{folder}: there is no config.json in it; give the folder of a Hugging Face model.")
    with readable(path):
        return dict(parse_json(text_in(path))).get("model_type")


def _config(folder: Path, families: Mapping[str, Family[M]]) -> Any:
    """Their config, of an architecture that we have."""
    path, kind = folder / "config.json", kind_of(folder)
    if kind not in families:
        raise BadInput(f"{path}: model_type = {kind!r} is not one of {', '.join(families)}; choose another model.")
    with readable(path):
        return AutoConfig.from_pretrained(folder, local_files_only=True)


def tokenizer_in(folder: Path, vocabulary: float = math.inf, **options: Any) -> Any | None:
    """The tokenizer in a folder, if there is one; one with more tokens than the model is refused."""
    if not any(path for pattern in _TOKENIZERS for path in folder.glob(pattern)):
        return None
    with readable(f"the tokenizer in {folder}"):
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, **options)
        tokenizer("It reads.", "And two.", truncation=True, max_length=8)  # What cannot is found out here.
    if not any(path.name != "tokenizer_config.json" for pattern in _TOKENIZERS for path in folder.glob(pattern)):
        raise BadInput(f"{folder}: it has settings of a tokenizer, and no words; add the rest of its files.")
    if len(tokenizer) > vocabulary:
        raise BadInput(
            f"{folder}: the tokenizer has {len(tokenizer)} tokens, and the model's vocab_size is {vocabulary}; "
            + _OTHER_TOKENIZER
        )
    return tokenizer


def load_tokenizer(source: str | Path) -> Any:
    """The tokenizer in a folder or, where there is no such folder, of that id on the hub."""
    folder = found(source, _WITHOUT_WEIGHTS)
    # Where the model is of a kind that transformers does not know, the config keeps it from looking for its own.
    own = (folder / "config.json").exists() and str(kind_of(folder)).startswith("dpnlp-")
    tokenizer = tokenizer_in(folder, **({"config": PreTrainedConfig()} if own else {}))
    if tokenizer is None:
        raise BadInput(f"{source}: there is no tokenizer in it; give a folder or an id that has one.")
    return tokenizer


def _refuse_other_tokens(folder: Path, tokenizer: Any | None, config: Any) -> None:
    """The tokens that stand for something else than text must be the model's."""
    for name in ("pad_token_id", "eos_token_id"):
        one, its = getattr(tokenizer, name, None), getattr(config, name)
        if None not in (one, its) and one not in (its if isinstance(its, list) else [its]):
            raise BadInput(f"{folder}: {name} is {one} in the tokenizer and {its} in config.json; {_OTHER_TOKENIZER}")


def refuse_other_weights(
    where: Path, checkpoint: Checkpoint, names: Mapping[str, Tensor], model: nnx.Module, unused: Iterable[str] = ()
) -> None:
    """Each tensor must be there in its shape, copies must be equal, and there must be no other but the unused ones."""
    remedy = "check that config.json and the weights belong together."
    shapes = {name: variable.shape for name, variable in variables(model).items()}
    for name, tensor in names.items():
        found = checkpoint.holds(tensor)
        if not found:
            raise BadInput(f"{where}: the tensor {tensor.name} is missing; {remedy}")
        expected = shapes[name][::-1] if tensor.transposed else shapes[name]
        for copied in found:
            if checkpoint.shapes[copied] != expected:
                raise BadInput(
                    f"{where}: the tensor {copied} has the shape {list(checkpoint.shapes[copied])}, and by config.json "
                    f"it is {list(expected)}; {remedy}"
                )
            if copied != found[0] and not checkpoint.same(copied, found[0]):
                raise BadInput(f"{where}: the tensors {found[0]} and {copied} differ, and the model has one; {remedy}")
    known = {name for tensor in names.values() for name in (tensor.name, *tensor.also)}.union(unused)
    for name in checkpoint.shapes:
        if name not in known:
            raise BadInput(f"{where}: the tensor {name} has no place in the model; {remedy}")
