"""How BERT and its relatives are read: their configs, and the names of their parameters."""

from functools import partial
from typing import Any

from dpnlp.checks import BadInput
from dpnlp.models import bert
from dpnlp.models.pretrained.families import Family, activation, linear_names, norm_names
from dpnlp.models.pretrained.weights import Checkpoint, Tensor


def _bert_config(theirs: Any, checkpoint: Checkpoint) -> bert.Config:
    """RoBERTa's table of positions starts with rows for padding and what is before it. DistilBERT has other words."""
    _refuse_unlike_bert(theirs)
    kind = theirs.model_type
    counted = kind in ("roberta", "xlm-roberta")
    shape = {
        "vocabulary": theirs.vocab_size,
        "width": theirs.hidden_size,
        "layers": theirs.num_hidden_layers,
        "heads": theirs.num_attention_heads,
        "positions": theirs.max_position_embeddings - (theirs.pad_token_id + 1 if counted else 0),
        "padding": theirs.pad_token_id if counted else None,
        "pooler": any(name.endswith("pooler.dense.weight") for name in checkpoint.shapes),
    }
    if kind == "distilbert":
        return bert.Config(
            **shape,
            types=0,
            hidden=theirs.hidden_dim,
            activation=activation("activation", theirs.activation),
            dropout=theirs.dropout,
            attention_dropout=theirs.attention_dropout,
        )
    return bert.Config(
        **shape,
        types=theirs.type_vocab_size,
        hidden=theirs.intermediate_size,
        activation=activation("hidden_act", theirs.hidden_act),
        epsilon=theirs.layer_norm_eps,
        dropout=theirs.hidden_dropout_prob,
        attention_dropout=theirs.attention_probs_dropout_prob,
        attended_dropout=theirs.hidden_dropout_prob,
    )


def _refuse_unlike_bert(theirs: Any) -> None:
    """What a config of BERT may say and ours does not compute."""
    for name, usual in {"position_embedding_type": "absolute", "is_decoder": False}.items():
        if (value := getattr(theirs, name, usual)) != usual:
            raise BadInput(f"{name} = {value!r}: it must be {usual!r}; choose another model.")


def _bert_names(prefix: str, config: bert.Config) -> dict[str, Tensor]:
    """With a head on top, all names start with the prefix. Norms of old files have gammas and betas."""
    distilled = prefix == "distilbert."
    names = {"tokens.table": Tensor("embeddings.word_embeddings.weight")}
    names["positions.table"] = Tensor("embeddings.position_embeddings.weight")
    if config.types:
        names["types.table"] = Tensor("embeddings.token_type_embeddings.weight")
    names |= _bert_norm_names("norm", "embeddings.LayerNorm")
    linears = _DISTILBERT_LINEARS if distilled else _BERT_LINEARS
    attention_norm, feed_norm = (
        ("sa_layer_norm", "output_layer_norm") if distilled else ("attention.output.LayerNorm", "output.LayerNorm")
    )
    for layer in range(config.layers):
        here, there = f"layers.{layer}", f"{'transformer' if distilled else 'encoder'}.layer.{layer}"
        for one, its in linears.items():
            names |= linear_names(f"{here}.{one}", f"{there}.{its}")
        names |= _bert_norm_names(f"{here}.attention_norm", f"{there}.{attention_norm}")
        names |= _bert_norm_names(f"{here}.feed_norm", f"{there}.{feed_norm}")
    if config.pooler:
        names |= linear_names("pooler", "pooler.dense")
    return {
        name: tensor._replace(also=(*tensor.also, *(prefix + each for each in (tensor.name, *tensor.also))))
        for name, tensor in names.items()
    }


def _bert_norm_names(ours: str, theirs: str) -> dict[str, Tensor]:
    old = {"weight": "gamma", "bias": "beta"}
    return {
        name: tensor._replace(also=(f"{theirs}.{old[tensor.name.rpartition('.')[2]]}",))
        for name, tensor in norm_names(ours, theirs).items()
    }


_BERT_LINEARS = {
    "attention.query": "attention.self.query",
    "attention.key": "attention.self.key",
    "attention.value": "attention.self.value",
    "attention.output": "attention.output.dense",
    "up": "intermediate.dense",
    "down": "output.dense",
}
_DISTILBERT_LINEARS = {
    "attention.query": "attention.q_lin",
    "attention.key": "attention.k_lin",
    "attention.value": "attention.v_lin",
    "attention.output": "attention.out_lin",
    "up": "ffn.lin1",
    "down": "ffn.lin2",
}
_BERT_HEADS = (
    *("cls.*", "lm_head.*", "vocab_*", "classifier.*", "pre_classifier.*", "qa_outputs.*"),
    *("*embeddings.position_ids", "*embeddings.token_type_ids"),  # the numbers 0, 1, 2, … and zeros
)


def _bert(prefix: str) -> Family[bert.BERT]:
    return Family(_bert_config, bert.BERT, partial(_bert_names, prefix), heads=_BERT_HEADS, auto="AutoModel")


ENCODERS: dict[str, Family[bert.BERT]] = {
    "bert": _bert("bert."),
    "roberta": _bert("roberta."),
    "xlm-roberta": _bert("roberta."),
    "distilbert": _bert("distilbert."),
}
"""Those that read texts, by what config.json calls `model_type`."""
