"""A small public sentence encoder, made of public sentences in a second: the mean of its words' vectors.

A word's vector is what the words beside it tell: the first singular vectors of the positive pointwise mutual
information of words in one sentence (Levy and Goldberg 2014); rare words have none. It is laid out as a BERT whose one
layer adds nothing, so that it is loaded like any other.
"""

from collections.abc import Sequence
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray
from transformers import BertConfig

from dpnlp.models import word_vectors
from dpnlp.models.bert import BERT, Config
from dpnlp.models.pretrained.encoders import Encoder

WIDTH, LONGEST, WORDS = 64, 64, 600


def encoder(texts: Sequence[str]) -> Encoder:
    """The encoder of these public texts."""
    tokenizer = word_vectors.tokenizer(word_vectors.words(texts, WORDS))
    ids = [{*tokenizer(text)["input_ids"]} for text in texts]
    table = _vectors(ids, len(tokenizer))
    table[[tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id]] = 0
    model = BERT(Config(len(table), WIDTH, 1, 1, 1, LONGEST, types=1, pooler=False), rngs=nnx.Rngs(0))
    layer, types = cast(Any, model.layers[0]), cast(Any, model.types)
    for silent in (model.positions.table, types.table, layer.attention.output.kernel, layer.down.kernel):
        silent.set_value(jnp.zeros_like(silent.get_value()))
    model.tokens.table.set_value(jnp.asarray(table))
    config = BertConfig(
        vocab_size=len(table),
        hidden_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=1,
        max_position_embeddings=LONGEST,
        type_vocab_size=1,
    )
    return Encoder(model, config, tokenizer, "words")


def _vectors(texts: Sequence[set[int]], words: int) -> NDArray[np.float32]:  # [words, WIDTH]
    together = np.zeros((words, words))
    for ids in texts:
        rows = np.array(sorted(ids))
        together[np.ix_(rows, rows)] += 1
    alone = np.maximum(np.diag(together), 1)
    information = np.log(np.maximum(together * len(texts) / np.outer(alone, alone), 1))
    u, s, _ = np.linalg.svd(information, full_matrices=False)
    return np.asarray(u[:, :WIDTH] * np.sqrt(s[:WIDTH]), np.float32)
