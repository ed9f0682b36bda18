"""An encoder-decoder with random weights, as if it had been loaded: what a run from scratch starts with."""

from dataclasses import replace
from typing import Any

from flax import nnx
from transformers import BartConfig, GenerationConfig, MarianConfig, T5Config

from dpnlp.checks import BadInput
from dpnlp.models.pretrained.families import FAMILIES
from dpnlp.models.pretrained.folders import Pretrained
from dpnlp.models.pretrained.weights import Checkpoint

ARCHITECTURES = ("marian", "t5", "bart")
_POSITIONS = 1024
"""The most tokens of a text that a fresh Marian or BART reads."""


def from_scratch(
    tokenizer: Any,
    *,
    width: int,
    layers: int,
    heads: int,
    hidden: int,
    dropout: float,
    computes: str,
    seed: int,
    architecture: str = "marian",
) -> Pretrained:
    """A model of this shape, for the tokens of this tokenizer: the transformer of Marian, a T5 1.0, or a BART.

    Marian's is that of Vaswani et al. (2017), and learns faster than a T5 with Adam.
    """
    if architecture not in ARCHITECTURES:
        raise BadInput(f"architecture = {architecture}: it must be one of {', '.join(ARCHITECTURES)}.")
    shape: dict[str, Any] = {"width": width, "layers": layers, "heads": heads, "hidden": hidden, "dropout": dropout}
    theirs = {"marian": _marian, "t5": _t5, "bart": _bart}[architecture](tokenizer, **shape)
    family = FAMILIES[architecture]
    config = replace(family.config(theirs, Checkpoint(())), dtype=computes)
    model = family.build(config, rngs=nnx.Rngs(seed))
    return Pretrained(model, theirs, GenerationConfig.from_model_config(theirs), tokenizer)


def _marian(tokenizer: Any, **shape: Any) -> MarianConfig:
    kind = {"activation_function": "relu", "scale_embedding": True, "share_encoder_decoder_embeddings": True}
    return MarianConfig(**_special(tokenizer), **_two_sides(**shape), **kind)


def _bart(tokenizer: Any, **shape: Any) -> BartConfig:
    return BartConfig(**_special(tokenizer), **_two_sides(**shape), bos_token_id=tokenizer.bos_token_id)


def _two_sides(*, width: int, layers: int, heads: int, hidden: int, dropout: float) -> dict[str, Any]:
    """The shape of an encoder and a decoder that are alike, as a Marian's and a BART's config name it."""
    return {
        "d_model": width,
        "encoder_layers": layers,
        "encoder_attention_heads": heads,
        "encoder_ffn_dim": hidden,
        "decoder_layers": layers,
        "decoder_attention_heads": heads,
        "decoder_ffn_dim": hidden,
        "max_position_embeddings": _POSITIONS,
        "dropout": dropout,
        "forced_eos_token_id": None,
    }


def _t5(tokenizer: Any, *, width: int, layers: int, heads: int, hidden: int, dropout: float) -> T5Config:
    return T5Config(
        **_special(tokenizer),
        d_model=width,
        d_kv=max(1, width // heads),
        d_ff=hidden,
        num_layers=layers,
        num_heads=heads,
        dropout_rate=dropout,
    )


def _special(tokenizer: Any) -> dict[str, int]:
    """The tokens that their configs name; texts start with the padding."""
    return {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": tokenizer.pad_token_id,
    }
