"""Language models with what belongs to them: GPT-2 in folders of Hugging Face, and LSTMs, which transformers has not.

Those of an LSTM are folders of our own: in config.json model_type is dpnlp-lstm, the tensors have our names, and the
tokenizer's files are the usual ones.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from flax import nnx
from transformers import GenerationConfig, GPT2Config, PreTrainedConfig

from dpnlp.checks import BadInput
from dpnlp.models import gpt2, language
from dpnlp.models.generation import Generation
from dpnlp.models.language import LanguageModel, LSTMLanguageModel
from dpnlp.models.pretrained.families import Family, activation, norm_names
from dpnlp.models.pretrained.folders import generates, generation_in
from dpnlp.models.pretrained.opening import computed_in, dropping, found, kind_of, opened, tokenizer_in
from dpnlp.models.pretrained.own import SHARD_BYTES, fill_own, read_own, write_own
from dpnlp.models.pretrained.weights import Checkpoint, Tensor, new_folder, readable
from dpnlp.models.pretrained.writing import written

KIND = "dpnlp-lstm"
"""What config.json of an LSTM calls `model_type`."""

_HEAD = "lm_head.weight"


def _config(theirs: Any, checkpoint: Checkpoint) -> gpt2.Config:
    """The output layer is the table unless the file has another one."""
    if theirs.add_cross_attention:
        raise BadInput("add_cross_attention = true: the model must see nothing but its text; choose another one.")
    table = next((name for name in ("transformer.wte.weight", "wte.weight") if name in checkpoint.shapes), "")
    return gpt2.Config(
        vocabulary=theirs.vocab_size,
        width=theirs.n_embd,
        layers=theirs.n_layer,
        heads=theirs.n_head,
        hidden=theirs.n_inner or 4 * theirs.n_embd,
        positions=theirs.n_positions,
        tied=theirs.tie_word_embeddings and (_HEAD not in checkpoint.shapes or checkpoint.same(_HEAD, table)),
        activation=activation("activation_function", theirs.activation_function),
        scaled=theirs.scale_attn_weights,
        scaled_by_layer=theirs.scale_attn_by_inverse_layer_idx,
        epsilon=theirs.layer_norm_epsilon,
        dropout=theirs.resid_pdrop,
        attention_dropout=theirs.attn_pdrop,
        embedding_dropout=theirs.embd_pdrop,
    )


def _names(config: gpt2.Config) -> dict[str, Tensor]:
    """Linear layers of GPT-2 are [inputs, outputs], as ours are. A file may lack the first word of all names."""
    names = {"tokens.table": Tensor("transformer.wte.weight", also=(_HEAD,) if config.tied else ())}
    if not config.tied:
        names["head.kernel"] = Tensor(_HEAD, transposed=True)
    names["positions.table"] = Tensor("transformer.wpe.weight")
    linears = {"self_attention.projection": "attn.c_attn", "self_attention.output": "attn.c_proj"}
    linears |= {"up": "mlp.c_fc", "down": "mlp.c_proj"}
    for layer in range(config.layers):
        here, there = f"layers.{layer}", f"transformer.h.{layer}"
        names |= norm_names(f"{here}.self_norm", f"{there}.ln_1") | norm_names(f"{here}.feed_norm", f"{there}.ln_2")
        for ours, theirs in linears.items():
            names[f"{here}.{ours}.kernel"] = Tensor(f"{there}.{theirs}.weight")
            names[f"{here}.{ours}.bias.value"] = Tensor(f"{there}.{theirs}.bias")
    names |= norm_names("norm", "transformer.ln_f")
    prefix = "transformer."
    return {
        name: tensor._replace(also=(*tensor.also, tensor.name.removeprefix(prefix)))
        if tensor.name.startswith(prefix)
        else tensor
        for name, tensor in names.items()
    }


LANGUAGE_MODELS: dict[str, Family[LanguageModel]] = {
    "gpt2": Family(
        _config,
        gpt2.GPT2,
        _names,
        heads=("*.attn.bias", "*.attn.masked_bias"),  # masks, which old files hold
        auto="AutoModelForCausalLM",
    )
}
"""Those of Hugging Face, by what config.json calls `model_type`."""


@dataclass(frozen=True)
class PretrainedLanguageModel:
    """A language model with its tokenizer. A GPT-2 has their config and how it generates, too."""

    model: LanguageModel
    tokenizer: Any | None  # transformers.PreTrainedTokenizerBase
    config: Any | None = None  # transformers.GPT2Config
    generation: Any | None = None  # transformers.GenerationConfig

    def options(self, end: int, **changes: Any) -> Generation:
        """How texts are written that end with this token: as the model's own files say, but for the changes."""
        given = {} if self.generation is None else generates(self.generation)
        return Generation(**{**given, "start": end, "end": end, "pad": end, **changes})


def load_language_model(
    source: str | Path,
    *,
    dtype: str = "float32",
    computes: str | None = None,
    dropout: float | None = None,
    rematerialise: bool = False,
) -> PretrainedLanguageModel:
    """The language model in a folder or, where there is no such folder, of that id on the hub.

    Its parameters are of type `dtype`, and it computes in `computes`, or else in the same. `dropout` replaces all rates
    of the config.
    """
    folder = found(source)
    if kind_of(folder) == KIND:
        return _load_lstm(folder, dtype, computed_in(dtype, computes), dropout)
    options: dict[str, Any] = {"computes": computes, "dropout": dropout, "rematerialise": rematerialise}
    whole = opened(folder, LANGUAGE_MODELS, dtype=dtype, **options)
    generation = generation_in(whole.folder, whole.config)
    return PretrainedLanguageModel(whole.filled(), whole.tokenizer, whole.config, generation)


def _load_lstm(folder: Path, dtype: str, computes: str, dropout: float | None) -> PretrainedLanguageModel:
    path, said = folder / "config.json", read_own(folder, KIND, "an LSTM that is a language model")
    with readable(path):
        config = replace(dropping(language.Config(**said["lstm"]), dropout), dtype=computes)
    model: LSTMLanguageModel = nnx.eval_shape(lambda: LSTMLanguageModel(config, rngs=nnx.Rngs(0)))
    fill_own(model, folder, dtype)
    # The config only keeps transformers from looking for its own, of a kind that it does not know.
    return PretrainedLanguageModel(model, tokenizer_in(folder, config.vocabulary, config=PreTrainedConfig()))


def save_language_model(
    pretrained: PretrainedLanguageModel, folder: str | Path, *, merge: bool = False, shard_bytes: int = SHARD_BYTES
) -> None:
    """Writes a folder that `load_language_model` reads and, of a GPT-2, transformers too: all of it or nothing.

    `merge` folds adapters into the weights that are written; the model itself keeps them.
    """
    model, tokenizer, config = pretrained.model, pretrained.tokenizer, pretrained.config
    if config is None:
        with new_folder(folder) as whole:
            if tokenizer is not None:
                tokenizer.save_pretrained(whole)
            write_own(model, {"model_type": KIND, "lstm": asdict(model.config)}, whole, shard_bytes)
        return
    names = LANGUAGE_MODELS[config.model_type].names(model.config)
    changes = {"tie_word_embeddings": model.config.tied, "architectures": ["GPT2LMHeadModel"]}
    with written(folder, model, names, config, tokenizer, merge=merge, shard_bytes=shard_bytes, **changes) as whole:
        if pretrained.generation is not None:
            pretrained.generation.to_json_file(whole / "generation_config.json")


def fresh_lstm(
    tokenizer: Any, *, width: int, hidden: int, dropout: float, computes: str, seed: int
) -> PretrainedLanguageModel:
    """An LSTM with random weights, for the tokens of this tokenizer."""
    config = language.Config(len(tokenizer), width, hidden, dropout, computes)
    return PretrainedLanguageModel(LSTMLanguageModel(config, rngs=nnx.Rngs(seed)), tokenizer)


def fresh_decoder(
    tokenizer: Any,
    *,
    width: int,
    layers: int,
    heads: int,
    hidden: int,
    positions: int,
    dropout: float,
    computes: str,
    seed: int,
) -> PretrainedLanguageModel:
    """A GPT-2 of this shape with random weights, for the tokens of this tokenizer."""
    end = tokenizer.eos_token_id
    theirs = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=positions,
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        n_inner=hidden,
        resid_pdrop=dropout,
        attn_pdrop=dropout,
        embd_pdrop=dropout,
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=tokenizer.pad_token_id,
    )
    config = replace(_config(theirs, Checkpoint(())), dtype=computes)
    model = gpt2.GPT2(config, rngs=nnx.Rngs(seed))
    return PretrainedLanguageModel(model, tokenizer, theirs, GenerationConfig.from_model_config(theirs))
