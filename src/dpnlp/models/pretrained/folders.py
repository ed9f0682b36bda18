"""Models with what belongs to them: `load` reads a folder, or one of the hub, `save` writes one.

Names and shapes are checked before the first weight is read, and weights are read one at a time, so that a model is
never held twice.
"""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError
from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from dpnlp import checks
from dpnlp.bookkeeping import Array
from dpnlp.checks import BadInput
from dpnlp.models.freezing import dotted
from dpnlp.models.generation import Generation
from dpnlp.models.lora import LoRA, adapted
from dpnlp.models.pretrained.families import FAMILIES, Family
from dpnlp.models.pretrained.weights import Checkpoint, Tensor, new_folder, readable, short, weight_files, write
from dpnlp.models.seq2seq import Seq2Seq, rotated, shifted

_TOKENIZERS = ("tokenizer*", "*.model", "*.spm", "vocab*")
"""One of these is in the folder if a tokenizer is."""
_DOWNLOADED = ("*.json", "*.txt", "*.model", "*.spm", "model*.safetensors")
_TYPES = ("float32", "bfloat16")
_GENERATION = {
    "pad": "pad_token_id",
    "end": "eos_token_id",
    "beams": "num_beams",
    "length_penalty": "length_penalty",
    "early_stopping": "early_stopping",
    "sample": "do_sample",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "forced_first": "forced_bos_token_id",
    "forced_last": "forced_eos_token_id",
    "no_repeat_ngram": "no_repeat_ngram_size",
}
"""Our options of generation, by their names."""
_NOT_GENERATED_WITH = {
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "typical_p": 1.0,
    "min_p": None,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "exponential_decay_length_penalty": None,
    "begin_suppress_tokens": None,
    "sequence_bias": None,
    "force_words_ids": None,
    "penalty_alpha": None,
}
"""Options that would change what is generated and that we do not have, and what they are when they change nothing."""


@dataclass
class Pretrained:
    """A model with what belongs to it: their config, how it generates, and its tokenizer if the folder had one."""

    model: Seq2Seq
    config: Any  # transformers.PreTrainedConfig
    generation: Any  # transformers.GenerationConfig
    tokenizer: Any | None = None  # transformers.PreTrainedTokenizerBase

    def options(self, *, language: str | None = None, **changes: Any) -> Generation:
        """How the model generates by its own files, but for the changes; `language` is the one that it is to write."""
        theirs = self.generation
        for name, usual in _NOT_GENERATED_WITH.items():
            if getattr(theirs, name, None) not in (None, usual):
                raise BadInput(
                    f"generation_config.json: {name} = {getattr(theirs, name)} is not supported; "
                    f"remove it, or set it to {usual}."
                )
        given = {ours: getattr(theirs, name) for ours, name in _GENERATION.items() if getattr(theirs, name) is not None}
        # Their lengths count the start.
        given["max_length"] = theirs.max_new_tokens or (theirs.max_length or 20) - 1
        given["min_length"] = theirs.min_new_tokens or max(0, (theirs.min_length or 0) - 1)
        listed = [*([token] for token in theirs.suppress_tokens or ()), *(theirs.bad_words_ids or ())]
        if any(len(word) > 1 for word in listed):
            raise BadInput("generation_config.json: bad_words_ids has words of several tokens; keep those of one only.")
        given["suppressed"] = tuple(token for word in listed for token in word)
        if language is not None:
            place = self._written_first
            given[place] = self._language(language)
        if (start := self._start) is not None:
            given = {"start": start} | given
        given |= changes
        if "start" not in given:
            raise BadInput("language = None: the model starts its texts with their language; give its code.")
        return Generation(**given)

    def decoder_inputs(self, targets: Array, mask: Array) -> Array:
        """What the decoder is given to learn the targets [batch, length], of which the mask shows the real tokens."""
        if self.config.model_type == "mbart":
            return rotated(targets, mask)
        if (start := self._start) is None:
            raise BadInput(
                "config.json: there is no decoder_start_token_id; add the token that the decoder starts with."
            )
        return shifted(targets, start)

    @property
    def _start(self) -> int | None:
        start = self.generation.decoder_start_token_id
        return getattr(self.config, "decoder_start_token_id", None) if start is None else start

    @property
    def _written_first(self) -> str:
        """Where a language goes: mBART-25 starts with it; all others write it first."""
        kind = self.config.model_type
        if kind == "mbart" and "50" not in type(self.tokenizer).__name__:
            return "start"
        if kind in ("mbart", "m2m_100"):
            return "forced_first"
        raise BadInput(f"language: a {kind} is told the language in its input, if at all; leave it out.")

    def _language(self, code: str) -> int:
        """The token of a language, such as fr_XX, fra_Latn or fr, as the tokenizer has it."""
        if self.tokenizer is None:
            raise BadInput("language: a folder without a tokenizer knows no languages; add the files of the tokenizer.")
        special = [token for token in self.tokenizer.all_special_tokens if not token.startswith("<")]
        languages = {token.strip("_"): token for token in special}
        if code not in languages:
            near = [known for known in languages if known[:2] == code[:2]] or sorted(languages)[:3]
            raise BadInput(
                f"language = {code!r}: the tokenizer has no such code among its {len(languages)}; "
                f"it has {', '.join(near)}."
            )
        return int(self.tokenizer.convert_tokens_to_ids(languages[code]))


def load(
    source: str | Path,
    *,
    dtype: str = "float32",
    computes: str | None = None,
    dropout: float | None = None,
    rematerialise: bool = False,
) -> Pretrained:
    """The model in a folder or, where there is no such folder, of that id on the hub.

    Its parameters are of type `dtype`, and it computes in `computes`, or else in the same. `dropout` replaces all rates
    of the config. The tokenizer has to belong to the model.
    """
    computes = dtype if computes is None else computes
    for name, given in (("dtype", dtype), ("computes", computes)):
        if given not in _TYPES:
            raise BadInput(f"{name} = {given!r}: it must be {' or '.join(_TYPES)}.")
    folder = _found(source)
    theirs = _config(folder)
    family, checkpoint = FAMILIES[theirs.model_type], Checkpoint(weight_files(folder, source))
    try:
        ours = family.config(theirs, checkpoint)
    except BadInput as error:
        raise BadInput(f"{folder / 'config.json'}: {error}") from error
    rates = {field.name: dropout for field in fields(ours) if field.name.endswith("dropout") and dropout is not None}
    ours = replace(ours, dtype=computes, rematerialise=rematerialise, **rates)
    model: Seq2Seq = nnx.eval_shape(lambda: family.build(ours, rngs=nnx.Rngs(0)))
    names, variables = family.names(ours), _variables(model)
    shapes = {name: variable.shape for name, variable in variables.items()}
    _refuse_other_weights(folder, checkpoint, names, shapes, family)
    tokenizer, generation = _tokenizer(folder, theirs), _generation(folder, theirs)
    for name, variable in variables.items():
        tensor = names[name]
        value = checkpoint.read(checkpoint.holds(tensor)[0])
        variable.set_value(jnp.asarray(value.T if tensor.transposed else value, dtype))
    return Pretrained(model, theirs, generation, tokenizer)


def save(pretrained: Pretrained, folder: str | Path, *, merge: bool = False, shard_bytes: int = 5 * 10**9) -> None:
    """Writes a folder that `load` and transformers read, all of it or nothing.

    `merge` folds adapters into the weights that are written; the model itself keeps them. Weights of more than
    `shard_bytes` are split over several files; no more than one of them is in memory at a time.
    """
    shard_bytes = checks.count("shard_bytes", shard_bytes)
    tensors = _tensors(pretrained, merge)
    config = copy.deepcopy(pretrained.config)
    config.dtype = str(jnp.result_type(*(value.dtype for value, _ in tensors.values())))
    config.tie_word_embeddings = pretrained.model.config.tied
    with new_folder(folder) as whole:
        config.save_pretrained(whole)
        pretrained.generation.to_json_file(whole / "generation_config.json")
        if pretrained.tokenizer is not None:
            pretrained.tokenizer.save_pretrained(whole)
        write(tensors, whole, shard_bytes)


def _found(source: str | Path) -> Path:
    """The folder, downloaded if it has to be."""
    if Path(source).is_dir():
        return Path(source)
    try:
        return Path(snapshot_download(str(source), allow_patterns=_DOWNLOADED))
    except HFValidationError:
        raise BadInput(f"source = {source}: there is no such folder; give one that holds a config.json.") from None
    except Exception as error:  # Connections fail with the errors of several libraries.
        raise BadInput(
            f"source = {source}: there is no such folder, and the Hugging Face hub does not give a model of that name "
            f"({short(error)}); download it where the hub can be reached, and give the path of its folder."
        ) from error


def _config(folder: Path) -> Any:
    """Their config, of an architecture that we have."""
    path = folder / "config.json"
    if not path.exists():
        raise BadInput(f"{folder}: there is no config.json in it; give the folder of a Hugging Face model.")
    with readable(path):
        kind = json.loads(path.read_text(encoding="utf-8")).get("model_type")
    if kind not in FAMILIES:
        raise BadInput(f"{path}: model_type = {kind!r} is not one of {', '.join(FAMILIES)}; choose another model.")
    with readable(path):
        return AutoConfig.from_pretrained(folder, local_files_only=True)


def _generation(folder: Path, config: Any) -> Any:
    """How the model generates: as it says itself, or as its config does."""
    path = folder / "generation_config.json"
    if not path.exists():
        return GenerationConfig.from_model_config(config)
    with readable(path):
        return GenerationConfig.from_pretrained(folder, local_files_only=True)


def _tokenizer(folder: Path, config: Any) -> Any | None:
    """The tokenizer in the folder, if there is one; one of another model is refused."""
    if not any(path for pattern in _TOKENIZERS for path in folder.glob(pattern)):
        return None
    with readable(f"the tokenizer in {folder}"):
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    remedy = "take the tokenizer that belongs to the model."
    if len(tokenizer) > config.vocab_size:
        raise BadInput(
            f"{folder}: the tokenizer has {len(tokenizer)} tokens, and the model's vocab_size is {config.vocab_size}; "
            + remedy
        )
    for name in ("pad_token_id", "eos_token_id"):
        one, its = getattr(tokenizer, name), getattr(config, name)
        if None not in (one, its) and one not in (its if isinstance(its, list) else [its]):
            raise BadInput(f"{folder}: {name} is {one} in the tokenizer and {its} in config.json; {remedy}")
    return tokenizer


def _refuse_other_weights(
    where: Path,
    checkpoint: Checkpoint,
    names: Mapping[str, Tensor],
    shapes: Mapping[str, tuple[int, ...]],
    family: Family,
) -> None:
    """Each tensor must be there in its shape, copies must be equal, and there must be no other."""
    remedy = "check that config.json and the weights belong together."
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
    known = {name for tensor in names.values() for name in (tensor.name, *tensor.also)}.union(family.unused)
    for name in checkpoint.shapes:
        if name not in known:
            raise BadInput(f"{where}: the tensor {name} has no place in the model; {remedy}")


def _variables(model: nnx.Module) -> dict[str, nnx.Variable[Any]]:
    """Everything in the model that is loaded and saved, by name, such as "encoder.0.feed_norm.scale"."""
    return {dotted(path): variable for path, variable in nnx.to_flat_state(nnx.state(model))}


def _tensors(pretrained: Pretrained, merge: bool) -> dict[str, tuple[Any, bool]]:
    """What is saved, by their name: the value, and whether it is transposed."""
    model, kind = pretrained.model, pretrained.config.model_type
    values: dict[str, Any] = {name: variable[...] for name, variable in _variables(model).items()}
    layers = adapted(model)
    if layers and not merge:
        raise BadInput(
            "merge = False: the model has adapters, which have no place in its folder; save it with merge=True, or "
            "the adapters alone with `save_adapters`."
        )
    for name, layer in layers.items():
        for side in _variables(layer):
            del values[f"{name}.{side}"]
        values |= {f"{name}.{part}": variable[...] for part, variable in _variables(layer.base).items()}
        values[f"{name}.kernel"] = _Merged(layer)
    names = FAMILIES[kind].names(model.config)
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
