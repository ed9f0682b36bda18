"""Word by word: each word's public vector gets noise, and the nearest word of a public vocabulary takes its place.

This is the metric differential privacy of Feyisetan et al. (2020), with their η. What it promises is for one word: at
the diameter D of the vocabulary any word could have been any other one with ε = ηD. The number of words is seen, so
that nothing is promised for a whole text, and no ε of a word compares with one of a text.
"""

import itertools
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.data.cache import Ragged
from dpnlp.events import Event, NonPrivate
from dpnlp.foreign import spelled
from dpnlp.guarantee import Exposure, Guarantee, Unit
from dpnlp.mechanisms.metric import Metric, diameter
from dpnlp.mechanisms.randomness import OS_ENTROPY, Integers, Source, below
from dpnlp.models.word_vectors import SPECIAL, Vectors, read_vectors
from dpnlp.rewriting.base import Rewriter

_ROWS, _WORDS = 256, 4096
"""So many vectors are compared with so many words at once."""


@dataclass(frozen=True, eq=False)
class WordMetric(Rewriter):
    """Vectors of public words, such as `read_vectors` reads, and η. An infinite η is no noise.

    A word is what the tokenizer of the vectors makes one, in lower case; a punctuation mark is a word. One that is not
    in the vocabulary is exchanged for one that is, drawn uniformly, whose vector then gets noise as any other: what
    comes out for it is a mean of what comes out for the known words, and so as hard to tell from each as they are from
    each other. To leave it out would show that it was unknown, and to give the drawn word away without noise would show
    it by words that hardly any vector with noise is nearest to.
    """

    vectors: Vectors
    eta: float
    source: Source = OS_ENTROPY
    mechanism: Metric | None = field(init=False)

    def __post_init__(self) -> None:
        checks.budget("eta", self.eta)
        words, table = self.vectors
        if table.ndim != 2 or len(table) != len(words):
            raise BadInput(f"vectors of shape {table.shape}: there must be one row for each of the {len(words)} words.")
        self._tokenizer  # noqa: B018  (words that are no vocabulary are refused here, not at the first text)
        longest = _longest(table)
        noise = None if self.eta == math.inf else Metric(longest, self.eta * longest, self.source)
        object.__setattr__(self, "mechanism", noise)

    @property
    def unit(self) -> Unit:
        """One word, whatever text it stands in."""
        return Unit.WORD

    @property
    def event(self) -> Event:
        """The exchange of one word, which is all that is promised for."""
        return NonPrivate() if self.mechanism is None else self.mechanism.event()

    def guarantee(self) -> Guarantee:
        """What the exchange of one word promises, and that the length of a text is not covered."""
        return super().guarantee().with_exposures(Exposure.LENGTH)

    def rewrite(self, texts: Sequence[str]) -> list[str]:
        """One text for each, of as many words, with a space between any two."""
        tokens = self._tokenizer(spelled(texts), add_special_tokens=False)["input_ids"] if texts else []
        rows = Ragged.of(tokens)
        words = [self.vectors.words[row] for row in self._replaced(rows.numbers.astype(np.int64) - len(SPECIAL))]
        return [" ".join(words[start:end]) for start, end in itertools.pairwise(rows.offsets)]

    def _replaced(self, rows: Integers) -> Integers:
        """The nearest word to the noisy vector of each, by their places in the vocabulary; below 0 are unknown ones."""
        drawn = below(self.source, len(self.vectors.words), len(rows))
        known, table, found = np.where(rows < 0, drawn, rows), self.vectors.table, [np.empty(0, np.int64)]
        for start in range(0, len(rows), _ROWS):
            chosen = known[start : start + _ROWS]
            noisy = table[chosen] if self.mechanism is None else self.mechanism.release(table[chosen])
            padded = np.ones((_ROWS, table.shape[1] + 1), np.float32)
            padded[: len(chosen), :-1] = noisy - self._centre
            found.append(np.asarray(_nearest(padded, self._blocks))[: len(chosen)])
        return np.concatenate(found)

    @cached_property
    def _tokenizer(self) -> Any:
        return self.vectors.tokenizer()

    @cached_property
    def _centre(self) -> npt.NDArray[np.float64]:
        return np.asarray(self.vectors.table.mean(axis=0, dtype=np.float64))

    @cached_property
    def _blocks(self) -> jax.Array:
        """[blocks, words, d + 1]: the vectors w around their mean, where float32 is finest, and −‖w‖²/2."""
        rows = self.vectors.table - self._centre
        ends = -np.sum(rows**2, axis=1, keepdims=True) / 2
        size = min(_WORDS, len(rows))
        whole = np.pad(np.hstack((rows, ends)), ((0, -len(rows) % size), (0, 0)))
        whole[len(rows) :, -1] = -np.inf  # these are no words
        return jnp.asarray(whole.reshape(-1, size, whole.shape[1]), jnp.float32)


def _longest(table: npt.NDArray[np.float32]) -> float:
    """D, without which there is nothing to scale noise by."""
    if not (found := diameter(table)):
        raise BadInput("vectors: all of them are the same; give two different words at least.")
    return found


@jax.jit
def _nearest(vectors: jax.Array, blocks: jax.Array) -> jax.Array:
    """The nearest word to each vector (v, 1), [n, d + 1]: argmin ‖v − w‖² = argmax v·w − ‖w‖²/2, block by block."""
    words = jnp.arange(blocks.shape[1])

    def turn(best: tuple[jax.Array, jax.Array], block: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
        (most, place), (rows, first) = best, block
        scores = jnp.matmul(vectors, rows.T, precision="highest")
        here = jnp.max(scores, axis=1)
        # Where the maximum stands, without argmax, which is several times slower on a CPU.
        where = first + jnp.min(jnp.where(scores == here[:, None], words, words.size - 1), axis=1)
        return (jnp.maximum(most, here), jnp.where(here > most, where, place)), None

    begin = jnp.full(len(vectors), -jnp.inf), jnp.zeros(len(vectors), jnp.int32)
    firsts = jnp.arange(len(blocks)) * words.size
    place: jax.Array = jax.lax.scan(turn, begin, (blocks, firsts))[0][1]
    return place


def save(vectors: Path, folder: Path) -> None:
    """Puts a file of word vectors into the folder of a rewriter."""
    shutil.copyfile(vectors, folder / ("vectors.txt.gz" if vectors.suffix == ".gz" else "vectors.txt"))


def load(folder: Path, epsilon: float, delta: float = 0.0, source: Source = OS_ENTROPY) -> WordMetric:
    """The one in the folder of a rewriter, with η = ε/D for an ε of one word. It needs no δ, and promises none."""
    packed = folder / "vectors.txt.gz"
    vectors = read_vectors(packed if packed.exists() else folder / "vectors.txt")
    longest = _longest(vectors.table)
    return WordMetric(vectors, checks.budget("epsilon", epsilon) / longest, source)
