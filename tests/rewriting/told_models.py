"""Encoder-decoders that write by a table: the logits of the next token, by the text's first one and by the last one."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from flax import nnx
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import GenerationConfig, PreTrainedTokenizerFast

from dpnlp.models.pretrained import Pretrained
from dpnlp.models.seq2seq import Memory, Seq2Seq

SPECIAL = ("<pad>", "</s>", "<unk>")
PAD, END, UNKNOWN = range(3)


@dataclass(frozen=True)
class Config:
    vocabulary: int


class Told(Seq2Seq):
    """Logits [vocabulary, vocabulary, vocabulary]: of the next token, by the first of the text and the last so far."""

    embed = bias = finish = output_layer = None  # not needed

    def __init__(self, logits):
        self.config, self.dtype = Config(len(logits)), jnp.dtype("float32")
        self.table = nnx.Param(jnp.asarray(logits, jnp.float32))

    def encode(self, ids, mask):
        return self.table[...][ids[:, :1]]  # [batch, 1, last, next]

    def remember(self, states, mask):
        return Memory(((states, states),), mask)

    def decode(self, ids, memory, before=None, position=0):
        rows = memory.crossed[0].keys[:, :, 0]  # [batch, last, next]
        return jnp.take_along_axis(rows, ids[:, :, None], axis=1), before

    def logits(self, states):
        return states


def tokenizer(words):
    """Each word is a token, after three special ones; a text ends in its end."""
    made = Tokenizer(models.WordLevel({word: row for row, word in enumerate((*SPECIAL, *words))}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", END)])
    names = dict(zip(("pad_token", "eos_token", "unk_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=made, **names)


def told(logits, **generation):
    """A model whose words are a, b, c, …, for logits as `Told` takes them, or [texts, next] whatever came before."""
    table = np.asarray(logits, np.float32)
    if table.ndim == 2:
        table = np.broadcast_to(table[:, None], (len(table), *table.shape))
    words = [chr(ord("a") + place) for place in range(len(table) - len(SPECIAL))]
    marks = {"pad_token_id": PAD, "eos_token_id": END, "decoder_start_token_id": PAD}
    return Pretrained(Told(table), None, GenerationConfig(**marks | generation), tokenizer(words))
