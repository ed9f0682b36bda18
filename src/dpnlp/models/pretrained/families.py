"""How each architecture is read: its config, and the names of its parameters; `encoder_families` has the encoders."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from flax import nnx

from dpnlp.checks import BadInput
from dpnlp.models import bart, m2m100, marian, t5
from dpnlp.models.pretrained.weights import Checkpoint, Tensor
from dpnlp.models.seq2seq import Seq2Seq

M = TypeVar("M", bound=nnx.Module)


@dataclass(frozen=True)
class Family(Generic[M]):
    """How an architecture is read.

    `config` makes ours from theirs and from the weights that are there; a config of ours has the fields `dtype`,
    `rematerialise` and one or more that end in `dropout`. `names` has each parameter by its path in the model, joined
    by dots. `unused` are tensors that old files hold and no model reads; `heads` are patterns for more of these, as for
    those of whatever was put on top of an encoder. `auto` is the class of transformers that opens such a model.
    """

    config: Callable[[Any, Checkpoint], Any]
    build: Callable[..., M]
    names: Callable[[Any], dict[str, Tensor]]
    unused: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    auto: str = "AutoModelForSeq2SeqLM"


_ACTIVATIONS = {
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}


def activation(field: str, name: str) -> str:
    """Our name of an activation."""
    if name not in _ACTIVATIONS:
        raise BadInput(f"{field} = {name!r}: the activation must be one of {', '.join(_ACTIVATIONS)}.")
    return _ACTIVATIONS[name]


_T5_TABLE = Tensor("shared.weight", also=("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"))
_T5_HEAD = "lm_head.weight"


def _t5_config(theirs: Any, checkpoint: Checkpoint) -> t5.Config:
    """The output layer is the table unless the file has another one. T5 1.0 alone scales what goes into it."""
    tables = checkpoint.holds(_T5_TABLE)
    return t5.Config(
        vocabulary=theirs.vocab_size,
        width=theirs.d_model,
        heads=theirs.num_heads,
        head_width=theirs.d_kv,
        hidden=theirs.d_ff,
        encoder_layers=theirs.num_layers,
        decoder_layers=theirs.num_decoder_layers,
        activation=activation("feed_forward_proj", theirs.dense_act_fn),
        gated=theirs.is_gated_act,
        tied=_T5_HEAD not in checkpoint.shapes or not tables or checkpoint.same(_T5_HEAD, tables[0]),
        scaled_output=theirs.model_type == "t5" and theirs.scale_decoder_outputs,
        buckets=theirs.relative_attention_num_buckets,
        furthest=theirs.relative_attention_max_distance,
        epsilon=theirs.layer_norm_epsilon,
        dropout=theirs.dropout_rate,
    )


def _t5_names(config: t5.Config) -> dict[str, Tensor]:
    names = {"tokens.table": _T5_TABLE}
    if config.tied:
        names["tokens.table"] = _T5_TABLE._replace(also=(*_T5_TABLE.also, _T5_HEAD))
    else:
        names["head.kernel"] = Tensor(_T5_HEAD, transposed=True)
    attention = {"query": "q", "key": "k", "value": "v", "output": "o"}
    feed_forward = {"gate": "wi_0", "up": "wi_1", "down": "wo"} if config.gated else {"up": "wi", "down": "wo"}
    own = ("self_norm", "self_attention", "SelfAttention", attention)
    cross = ("cross_norm", "cross_attention", "EncDecAttention", attention)
    feed = ("feed_norm", "feed_forward", "DenseReluDense", feed_forward)
    sides = {"encoder": (config.encoder_layers, (own, feed)), "decoder": (config.decoder_layers, (own, cross, feed))}
    for side, (layers, parts) in sides.items():
        names[f"{side}_positions.table"] = Tensor(
            f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        )
        names[f"{side}_norm.scale"] = Tensor(f"{side}.final_layer_norm.weight")
        for layer in range(layers):
            for place, (norm, ours, theirs, linears) in enumerate(parts):
                there = f"{side}.block.{layer}.layer.{place}"
                names[f"{side}.{layer}.{norm}.scale"] = Tensor(f"{there}.layer_norm.weight")
                for one, its in linears.items():
                    kernel = Tensor(f"{there}.{theirs}.{its}.weight", transposed=True)
                    names[f"{side}.{layer}.{ours}.{one}.kernel"] = kernel
    return names


_T5: Family[Seq2Seq] = Family(
    _t5_config,
    t5.T5,
    _t5_names,
    unused=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",),
)


def _bart_config(kind: Callable[..., bart.Config], theirs: Any, checkpoint: Checkpoint) -> bart.Config:
    """One table serves encoder, decoder and output where the words are tied, unless a Marian has two vocabularies."""
    shared = theirs.tie_word_embeddings and getattr(theirs, "share_encoder_decoder_embeddings", True)
    return kind(
        vocabulary=theirs.vocab_size,
        width=theirs.d_model,
        encoder_layers=theirs.encoder_layers,
        encoder_heads=theirs.encoder_attention_heads,
        encoder_hidden=theirs.encoder_ffn_dim,
        decoder_layers=theirs.decoder_layers,
        decoder_heads=theirs.decoder_attention_heads,
        decoder_hidden=theirs.decoder_ffn_dim,
        positions=theirs.max_position_embeddings,
        decoder_vocabulary=None if shared else getattr(theirs, "decoder_vocab_size", theirs.vocab_size),
        tied=theirs.tie_word_embeddings,
        output_bias=_OUTPUT_BIAS in checkpoint.shapes,
        norm_first=theirs.model_type in ("mbart", "m2m_100"),
        scaled=theirs.scale_embedding,
        activation=activation("activation_function", theirs.activation_function),
        dropout=theirs.dropout,
        attention_dropout=theirs.attention_dropout,
        activation_dropout=theirs.activation_dropout,
    )


def _m2m100_config(theirs: Any, checkpoint: Checkpoint) -> bart.Config:
    return _bart_config(partial(m2m100.Config, padding=theirs.pad_token_id), theirs, checkpoint)


def _bart_names(config: bart.Config, *, learned: bool) -> dict[str, Tensor]:
    """With `learned` positions, as BART and mBART have them, the sum of token and position is normed too."""
    head, encoder, decoder = "lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
    names = {}
    if config.decoder_vocabulary is None:
        names["tokens.table"] = Tensor("model.shared.weight", also=(encoder, decoder, head))
    else:
        names["tokens.table"] = Tensor(encoder)
        names["decoder_tokens.table"] = Tensor(decoder, also=(head,) if config.tied else ())
    if not config.tied:
        names["head.kernel"] = Tensor(head, transposed=True)
    if config.output_bias:
        names["output_bias"] = Tensor(_OUTPUT_BIAS)
    attention = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
    own = ("self", {f"self_attention.{one}": f"self_attn.{its}" for one, its in attention.items()}, "self_attn")
    cross = (
        "cross",
        {f"cross_attention.{one}": f"encoder_attn.{its}" for one, its in attention.items()},
        "encoder_attn",
    )
    feed = ("feed", {"feed_forward.up": "fc1", "feed_forward.down": "fc2"}, "final")
    sides = {"encoder": (config.encoder_layers, (own, feed)), "decoder": (config.decoder_layers, (own, cross, feed))}
    for side, (layers, parts) in sides.items():
        if learned:
            names[f"{side}_entrance.positions.table"] = Tensor(f"model.{side}.embed_positions.weight")
            names |= norm_names(f"{side}_entrance.norm", f"model.{side}.layernorm_embedding")
        if config.norm_first:
            names |= norm_names(f"{side}_norm", f"model.{side}.layer_norm")
        for layer in range(layers):
            here, there = f"{side}.{layer}", f"model.{side}.layers.{layer}"
            for part, linears, norm in parts:
                names |= norm_names(f"{here}.{part}_norm", f"{there}.{norm}_layer_norm")
                for one, its in linears.items():
                    names |= linear_names(f"{here}.{one}", f"{there}.{its}")
    return {name: tensor._replace(also=(*tensor.also, *_bare(tensor))) for name, tensor in names.items()}


def linear_names(ours: str, theirs: str) -> dict[str, Tensor]:
    """Those of a linear layer with a bias."""
    return {
        f"{ours}.kernel": Tensor(f"{theirs}.weight", transposed=True),
        f"{ours}.bias.value": Tensor(f"{theirs}.bias"),
    }


def norm_names(ours: str, theirs: str) -> dict[str, Tensor]:
    """Those of a norm with a bias."""
    return {f"{ours}.scale": Tensor(f"{theirs}.weight"), f"{ours}.bias.value": Tensor(f"{theirs}.bias")}


def _bare(tensor: Tensor) -> list[str]:
    """The names in a file that was saved without its output layer."""
    return [name.removeprefix("model.") for name in (tensor.name, *tensor.also) if name.startswith("model.")]


_OUTPUT_BIAS = "final_logits_bias"
_BART_UNUSED = (
    "model.shared.weight",  # where encoder and decoder have tables of their own
    *(f"model.{side}.version" for side in ("encoder", "decoder")),
    *(f"model.{side}.embed_positions.weight{s}" for side in ("encoder", "decoder") for s in ("", "s")),  # of sinusoids
)

_BART: Family[Seq2Seq] = Family(
    partial(_bart_config, bart.Config), bart.BART, partial(_bart_names, learned=True), unused=_BART_UNUSED
)
_MARIAN: Family[Seq2Seq] = Family(
    partial(_bart_config, marian.Config), marian.Marian, partial(_bart_names, learned=False), unused=_BART_UNUSED
)
_M2M100: Family[Seq2Seq] = Family(
    _m2m100_config, m2m100.M2M100, partial(_bart_names, learned=False), unused=_BART_UNUSED
)

FAMILIES: dict[str, Family[Seq2Seq]] = {
    "t5": _T5,
    "mt5": _T5,
    "bart": _BART,
    "mbart": _BART,
    "marian": _MARIAN,
    "m2m_100": _M2M100,
}
"""Those that write texts, by what config.json calls `model_type`."""
