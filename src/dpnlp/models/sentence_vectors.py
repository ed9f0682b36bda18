"""One vector for a whole text, from an encoder that was trained for it (Reimers and Gurevych 2019).

The vector is the mean of the states of a text's tokens, brought to length 1. Texts that mean alike have vectors that
point alike. A text's vector depends on that text alone, to the last bit (law 13).
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from dpnlp import checks
from dpnlp.bookkeeping import Array
from dpnlp.checks import BadInput
from dpnlp.foreign import spelled
from dpnlp.models.alone import each_alone
from dpnlp.models.lstm import mean
from dpnlp.models.pretrained.encoders import Encoder, load_encoder

LENGTHS = (16, 32, 64, 128, 256, 512)
"""The lengths that texts are padded to, so that few programs are compiled."""

Vectors = NDArray[np.float32]
"""[texts, width], each of length 1."""


class SentenceEncoder:
    """Texts to vectors. A text of more than `longest` tokens is cut.

    How far a text is padded follows from its own length, and `batch` of one shape are computed at once, always as many.
    """

    def __init__(self, encoder: Encoder, longest: int = 128, batch: int = 32) -> None:
        if encoder.tokenizer is None:
            raise BadInput(f"encoder = {encoder.name}: its folder has no tokenizer; add the files of the tokenizer.")
        self.encoder, self.width = encoder, encoder.model.config.width
        self.longest = min(checks.count("longest", longest, least=2), encoder.model.config.positions)
        self.batch = checks.count("batch", batch)
        self._tokenizer: Any = encoder.tokenizer
        self._structure, self._weights = nnx.split(encoder.model)

    @classmethod
    def load(cls, source: str | Path, *, longest: int = 128, computes: str | None = None) -> "SentenceEncoder":
        """From a folder of Hugging Face, or an id on the hub."""
        return cls(load_encoder(source, computes=computes), longest)

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """The vectors of the texts, in their order."""
        if not len(texts):
            return np.zeros((0, self.width), np.float32)
        tokens = self._tokenizer(spelled(texts), truncation=True, max_length=self.longest)["input_ids"]
        found = np.zeros((len(tokens), self.width), np.float32)
        ladder = np.array([*(length for length in LENGTHS if length < self.longest), self.longest])
        lengths = ladder[np.searchsorted(ladder, [len(ids) for ids in tokens])]
        for length in np.unique(lengths).tolist():
            alike = np.flatnonzero(lengths == length)
            for start in range(0, len(alike), self.batch):
                rows = alike[start : start + self.batch]
                found[rows] = self._encoded([tokens[row] for row in rows], length)
        return found

    def refuse_unknown(self, texts: Sequence[str]) -> None:
        """Refuses public texts of a language that the vocabulary lacks: most of the first thousand have no token in it.

        Of private texts nothing may be told, so that these are encoded whatever they say.
        """
        special, first = set(self._tokenizer.all_special_ids), list(texts[:1000])
        found = self._tokenizer(first)["input_ids"] if first else []
        unknown = sum(special.issuperset(ids) for ids in found)
        if 2 * unknown > len(first):
            raise BadInput(
                f"encoder = {self.encoder.name}: of {unknown} of the first {len(first)} texts it knows no token; take "
                "one for their language."
            )

    def _encoded(self, tokens: list[list[int]], length: int) -> Vectors:
        ids = np.full((self.batch, length), self._tokenizer.pad_token_id, np.int32)
        mask = np.zeros((self.batch, length), np.int32)
        for row, found in enumerate(tokens):
            ids[row, : len(found)], mask[row, : len(found)] = found, 1
        return np.asarray(_vectors(self._structure, self._weights, ids, mask))[: len(tokens)]


@partial(jax.jit, static_argnums=0)
def _vectors(structure: Any, weights: Any, ids: Array, mask: Array) -> Array:  # [batch, length] -> [batch, width]
    def vectors(ids: Array, mask: Array) -> Array:
        pooled = mean(nnx.merge(structure, weights)(ids, mask), mask)
        return pooled / jnp.maximum(jnp.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)

    return each_alone(vectors, ids, mask)
