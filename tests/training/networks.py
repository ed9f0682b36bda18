"""Micro networks of every kind that clipping must be exact for, each with a loss per example and random data."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dpnlp.models.layers import LSTM, Dropout, Embedding, LayerNorm, Linear, PositionBuckets, RMSNorm
from dpnlp.models.lora import LoRA


class Tagger(nnx.Module):
    """A small network over vectors, with a bias, a norm and one weight that is used twice."""

    def __init__(self, width, hidden, rngs):
        self.up = Linear(width, hidden, rngs=rngs)
        self.norm = LayerNorm(hidden)
        self.down = Linear(hidden, width, rngs=rngs)

    def __call__(self, x):
        return self.down(self.norm(jax.nn.gelu(self.up(self.down(self.norm(jax.nn.gelu(self.up(x))))))))


class Translator(nnx.Module):
    """An encoder-decoder with one table for both inputs and the output, and one weight for keys and values."""

    def __init__(self, tokens, width, rngs, dropout=0.0, rank=0):
        self.table = Embedding(tokens, width, rngs=rngs)
        self.norm = RMSNorm(width)
        self.query = Linear(width, (2, width // 2), rngs=rngs)
        self.key = Linear(width, (2, width // 2), bias=False, rngs=rngs)
        if rank:
            self.query, self.key = LoRA(self.query, rank, rngs=rngs), LoRA(self.key, rank, rngs=rngs)
            for adapted in (self.query, self.key):
                adapted.B.set_value(0.1 * jax.random.normal(rngs.params(), adapted.B.shape))
        self.positions = PositionBuckets(3, 2, rngs=rngs)
        self.dropout = Dropout(dropout)

    def attention(self, x, memory):
        distance = jnp.arange(x.shape[1])[:, None] - jnp.arange(memory.shape[1])
        scores = jnp.einsum("bthd,bshd->bhts", self.query(x), self.key(memory))
        scores += self.positions(jnp.clip(jnp.abs(distance), 0, 2), x.shape[0])
        mixed = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), self.key(memory))
        return x + self.dropout(mixed.reshape(x.shape))

    def __call__(self, source, target):
        memory = self.norm(self.table(source))
        memory = self.attention(memory, memory)
        return self.table.attend(self.norm(self.attention(self.norm(self.table(target)), memory)))


class Recurrent(nnx.Module):
    """A bidirectional LSTM that sorts texts into two classes."""

    def __init__(self, tokens, width, rngs):
        self.table = Embedding(tokens, width, rngs=rngs)
        self.forward = LSTM(width, width, rngs=rngs)
        self.backward = LSTM(width, width, reverse=True, rngs=rngs)
        self.head = Linear(2 * width, 2, rngs=rngs)

    def __call__(self, ids, mask):
        x = self.table(ids)
        h = jnp.concatenate([self.forward(x, mask), self.backward(x, mask)], axis=-1) * mask[..., None]
        return self.head(h.sum(axis=1))


def squared_error(model, batch):
    x, y = batch
    return jnp.sum((model(x) - y) ** 2, axis=(1, 2))


def next_token(model, batch):
    source, target, mask = batch
    logs = jax.nn.log_softmax(model(source, target[:, :-1]))
    picked = jnp.take_along_axis(logs, target[:, 1:, None], axis=-1)[..., 0] * mask
    return -picked.sum(axis=1) / jnp.maximum(mask.sum(axis=1), 1)


def cross_entropy(model, batch):
    ids, mask, labels = batch
    return -jnp.take_along_axis(jax.nn.log_softmax(model(ids, mask)), labels[:, None], axis=-1)[:, 0]


def tagger_case(batch, positions, width, hidden, seed):
    rng = np.random.default_rng(seed)
    model = Tagger(width, hidden, nnx.Rngs(seed))
    x, y = (jnp.asarray(rng.normal(size=(batch, positions, width)), jnp.float32) for _ in range(2))
    return model, squared_error, (x, y)


def translator_case(batch, positions, width, tokens, seed, **options):
    rng = np.random.default_rng(seed)
    model = Translator(tokens, width, nnx.Rngs(seed), **options)
    source, target = (jnp.asarray(rng.integers(0, tokens, (batch, positions + more))) for more in (2, 1))
    mask = jnp.asarray(rng.random((batch, positions)) < 0.8, jnp.float32)
    return model, next_token, (source, target, mask)


def recurrent_case(batch, positions, width, tokens, seed):
    rng = np.random.default_rng(seed)
    model = Recurrent(tokens, width, nnx.Rngs(seed))
    ids = jnp.asarray(rng.integers(0, tokens, (batch, positions)))
    mask = jnp.asarray(np.arange(positions) < rng.integers(1, positions + 1, (batch, 1)), jnp.float32)
    return model, cross_entropy, (ids, mask, jnp.asarray(rng.integers(0, 2, batch)))


class Line(nnx.Module):
    """y = xW + b, and entries of x may be dropped: the smallest network, with gradients in closed form."""

    def __init__(self, inputs, outputs, rngs, dropout=0.0):
        self.dropout = Dropout(dropout)
        self.dense = Linear(inputs, outputs, rngs=rngs)

    def __call__(self, x):
        return self.dense(self.dropout(x))


class Zoo(nnx.Module):
    """One layer of each kind, and a parameter that no layer knows of."""

    def __init__(self, width, rngs):
        self.table = Embedding(7, width, rngs=rngs)
        self.positions = PositionBuckets(3, 2, rngs=rngs)
        self.adapted = LoRA(Linear(width, width, rngs=rngs), 2, rngs=rngs)
        self.rms = RMSNorm(width)
        self.norm = LayerNorm(width)
        self.recurrent = LSTM(width, width, rngs=rngs)
        self.stray = nnx.Param(jnp.ones(()))

    def __call__(self, ids):
        x = self.norm(self.rms(self.adapted(self.table(ids))))
        x = self.recurrent(x, jnp.ones(ids.shape))
        distance = jnp.abs(jnp.arange(ids.shape[1])[:, None] - jnp.arange(ids.shape[1]))
        weights = jax.nn.softmax(self.positions(jnp.clip(distance, 0, 2), ids.shape[0]))
        return self.stray[...] * jnp.einsum("bhts,bsd->btd", weights, x)


def squared_distance(model, batch):
    x, y = batch
    return jnp.sum((model(x) - y) ** 2, axis=1)


def line_case(examples, seed, **options):
    rng = np.random.default_rng(seed)
    x, y = (np.asarray(rng.normal(size=(examples, width)), np.float32) for width in (3, 2))
    return Line(3, 2, nnx.Rngs(seed), **options), squared_distance, (x, y)
