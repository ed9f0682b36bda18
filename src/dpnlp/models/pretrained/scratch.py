"""A T5 with random weights, as if it had been loaded: what a run from scratch starts with."""

from typing import Any

from flax import nnx
from transformers import GenerationConfig, T5Config

from dpnlp.models import t5
from dpnlp.models.pretrained.folders import Pretrained


def from_scratch(
    tokenizer: Any, *, width: int, layers: int, heads: int, hidden: int, dropout: float, computes: str, seed: int
) -> Pretrained:
    """A T5 1.0 of this shape, for the tokens of this tokenizer."""
    ours = t5.Config(
        vocabulary=len(tokenizer),
        width=width,
        heads=heads,
        head_width=max(1, width // heads),
        hidden=hidden,
        encoder_layers=layers,
        decoder_layers=layers,
        dropout=dropout,
        dtype=computes,
    )
    theirs = T5Config(
        vocab_size=ours.vocabulary,
        d_model=ours.width,
        d_kv=ours.head_width,
        d_ff=ours.hidden,
        num_layers=layers,
        num_heads=heads,
        dropout_rate=dropout,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
    )
    model = t5.T5(ours, rngs=nnx.Rngs(seed))
    return Pretrained(model, theirs, GenerationConfig.from_model_config(theirs), tokenizer)
