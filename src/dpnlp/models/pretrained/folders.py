"""Models that write texts, with what belongs to them: `load` reads a folder, or one of the hub, `save` writes one."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from transformers import GenerationConfig

from dpnlp.bookkeeping import Array
from dpnlp.checks import BadInput
from dpnlp.models.generation import Generation
from dpnlp.models.pretrained.families import FAMILIES
from dpnlp.models.pretrained.opening import opened
from dpnlp.models.pretrained.weights import readable
from dpnlp.models.pretrained.writing import written
from dpnlp.models.seq2seq import Seq2Seq, rotated, shifted

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
        given = generates(self.generation)
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
    found = opened(source, FAMILIES, dtype=dtype, computes=computes, dropout=dropout, rematerialise=rematerialise)
    generation = generation_in(found.folder, found.config)
    return Pretrained(found.filled(), found.config, generation, found.tokenizer)


def save(
    pretrained: Pretrained,
    folder: str | Path,
    *,
    merge: bool = False,
    shard_bytes: int = 5 * 10**9,
    beside: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Writes a folder that `load` and transformers read, all of it or nothing.

    `merge` folds adapters into the weights that are written; the model itself keeps them. Weights of more than
    `shard_bytes` are split over several files; no more than one of them is in memory at a time. `beside` has the texts
    of more files, by name.
    """
    model, config = pretrained.model, pretrained.config
    with written(
        folder,
        model,
        FAMILIES[config.model_type].names(model.config),
        config,
        pretrained.tokenizer,
        merge=merge,
        shard_bytes=shard_bytes,
        tie_word_embeddings=model.config.tied,
    ) as whole:
        pretrained.generation.to_json_file(whole / "generation_config.json")
        for name, text in beside.items():
            (whole / name).write_text(text, encoding="utf-8")


def generates(theirs: Any) -> dict[str, Any]:
    """Our options of generation, as a GenerationConfig of theirs has them."""
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
    return given


def generation_in(folder: Path, config: Any) -> Any:
    """How the model generates: as it says itself, or as its config does."""
    path = folder / "generation_config.json"
    if not path.exists():
        return GenerationConfig.from_model_config(config)
    with readable(path):
        return GenerationConfig.from_pretrained(folder, local_files_only=True)
