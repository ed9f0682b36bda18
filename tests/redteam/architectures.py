"""A micro network of every architecture, and its loss on texts that an attacker chooses: [batch, at most 8] tokens."""

import jax
import jax.numpy as jnp
from flax import nnx

from dpnlp.models import bart, bert, gcn, gpt2, language, m2m100, marian, t5
from dpnlp.models.cross_entropy import losses
from dpnlp.models.seq2seq import shifted

from ..training.networks import Recurrent, Translator, Zoo

TOKENS, POSITIONS = 13, 8
SHAPE = {"width": 8, "encoder_layers": 1, "decoder_layers": 1, "positions": POSITIONS + 2}
SHAPE |= {f"{side}_{part}": size for side in ("encoder", "decoder") for part, size in (("heads", 2), ("hidden", 12))}
T5 = {"width": 8, "heads": 2, "head_width": 4, "hidden": 12, "encoder_layers": 1, "decoder_layers": 1}
T5 |= {"buckets": 4, "furthest": 6}
STACK = {"width": 8, "layers": 1, "heads": 2, "hidden": 12, "positions": POSITIONS}


def translated(model, ids, targets, mask):
    inputs = shifted(targets, 0)
    return losses(model, {"ids": ids, "mask": mask, "inputs": inputs, "targets": targets, "target_mask": mask})


def told(logits, targets, mask):
    """The mean cross-entropy of the targets that are real."""
    found = jnp.take_along_axis(jax.nn.log_softmax(logits.astype(jnp.float32)), targets[..., None], axis=-1)[..., 0]
    return -jnp.sum(found * mask, axis=1) / jnp.maximum(mask.sum(axis=1), 1)


def continued(model, ids, targets, mask):
    return told(model(ids, mask), targets, mask)


def read(model, ids, targets, mask):
    return told(model(ids, mask), targets % 8, mask)


def linked(model, ids, targets, mask):
    """A graph for each example: tokens are features, and each node has an edge to the one that its target says."""
    features = jax.nn.one_hot(ids, TOKENS) * (1 + targets[..., None])
    nodes = ids.shape[1]
    edges = jnp.stack([jnp.broadcast_to(jnp.arange(nodes), ids.shape), targets % nodes], axis=-1)
    return told(model({"features": features, "edges": edges}), ids % 3, mask)


def attended(model, ids, targets, mask):
    return told(model(ids, targets), targets, mask)


def sorted_into_classes(model, ids, targets, mask):
    return told(model(ids, mask)[:, None], targets[:, :1] % 2, mask[:, :1])


def every_layer(model, ids, targets, mask):
    return jnp.sum((model(ids % 7) - targets[..., None]) ** 2 * mask[..., None], axis=(1, 2))


def _made(module, config):
    return lambda dtype: module(config(dtype), rngs=nnx.Rngs(0))


ARCHITECTURES = {
    "t5": (_made(t5.T5, lambda dtype: t5.Config(TOKENS, **T5, dtype=dtype)), translated),
    "mt5": (
        _made(t5.T5, lambda dtype: t5.Config(TOKENS, **T5, tied=False, gated=True, dtype=dtype)),
        translated,
    ),
    "bart": (_made(bart.BART, lambda dtype: bart.Config(TOKENS, **SHAPE, dtype=dtype)), translated),
    "marian": (
        _made(
            marian.Marian,
            lambda dtype: marian.Config(TOKENS, **SHAPE, decoder_vocabulary=TOKENS, tied=False, dtype=dtype),
        ),
        translated,
    ),
    "m2m100": (_made(m2m100.M2M100, lambda dtype: m2m100.Config(TOKENS, **SHAPE, dtype=dtype)), translated),
    "gpt2": (_made(gpt2.GPT2, lambda dtype: gpt2.Config(TOKENS, **STACK, dtype=dtype)), continued),
    "bert": (_made(bert.BERT, lambda dtype: bert.Config(TOKENS, **STACK, pooler=False, dtype=dtype)), read),
    "language": (
        _made(language.LSTMLanguageModel, lambda dtype: language.Config(TOKENS, 8, 12, dtype=dtype)),
        continued,
    ),
}
"""What takes a compute type, and how its loss is computed."""

IN_FLOAT32 = {
    "gcn": (lambda dtype: gcn.GCN(gcn.Config(TOKENS, 3, 6, dropout=0.0), rngs=nnx.Rngs(0)), linked),
    "lstm": (lambda dtype: Recurrent(TOKENS, 8, nnx.Rngs(0)), sorted_into_classes),
    "tied, with LoRA": (lambda dtype: Translator(TOKENS, 8, nnx.Rngs(0), rank=2), attended),
    "every layer, and a stray weight": (lambda dtype: Zoo(8, nnx.Rngs(0)), every_layer),
}
CASES = [(name, dtype) for name in ARCHITECTURES for dtype in ("float32", "bfloat16")]
CASES += [(name, "float32") for name in IN_FLOAT32]
