"""Words as vectors, for a model that reads them without a transformer: trained, or pre-trained (GloVe) and frozen.

The vocabulary is that of the file of vectors, or another public one. The words of private texts (`words`) are none:
which words are known would tell what those texts hold, and a guarantee has to name it (law 10).
"""

import gzip
import math
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from dpnlp import checks
from dpnlp.bookkeeping import Array
from dpnlp.checks import BadInput
from dpnlp.foreign import opened
from dpnlp.models.layers import Embedding

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
"""Tokens that are no words, in the order of their rows: padding, an unknown word, the start, the end of a part."""


@dataclass(frozen=True)
class Config:
    """The shape of a table of word vectors, and whether it is trained."""

    vocabulary: int
    width: int
    trained: bool = True
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width"):
            checks.count(name, getattr(self, name))


class WordVectors(nnx.Module):
    """A vector for each token, whatever stands around it. It is an encoder like `BERT`, with no layers."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.config, self.dtype = config, jnp.dtype(config.dtype)
        self.tokens = Embedding(config.vocabulary, config.width, rngs=rngs)
        self.layers: nnx.List[Any] = nnx.List([])

    def embed(self, ids: Array, types: Array | None = None) -> Array:  # [batch, length] -> [batch, length, width]
        """The vectors of the tokens. Types of tokens mean nothing here: parts of a text are told apart by [SEP]."""
        return self.tokens(ids, self.dtype)


class Vectors(NamedTuple):
    """Words and their vectors, as a file has them."""

    words: tuple[str, ...]
    table: NDArray[np.float32]  # [words, width]

    def entrance(self, *, trained: bool = False, dtype: str = "float32") -> WordVectors:
        """These vectors as the entrance of a model, for the tokens of `tokenizer`.

        Padding is 0, an unknown word is the mean of all words, and the other special tokens are random vectors of the
        words' size, the same ones each time.
        """
        rows = np.random.default_rng(0).normal(0, self.table.std(), (len(SPECIAL), self.table.shape[1]))
        rows[0], rows[1] = 0, self.table.mean(axis=0)
        table = np.concatenate([rows.astype(np.float32), self.table])
        config = Config(len(table), table.shape[1], trained, dtype)
        made: WordVectors = nnx.eval_shape(lambda: WordVectors(config, rngs=nnx.Rngs(0)))
        made.tokens.table.set_value(jnp.asarray(table))
        return made

    def tokenizer(self) -> Any:
        """A tokenizer that knows these words."""
        return tokenizer(self.words)


def tokenizer(words: Sequence[str]) -> Any:  # transformers.PreTrainedTokenizerFast
    """One that splits and lower-cases as BERT's does, and knows these words; their rows follow the special tokens'.

    A text is [CLS] … [SEP], a pair is [CLS] … [SEP] … [SEP], with types 0 and 1. A word that it does not know is [UNK].
    """
    rows = {word: row for row, word in enumerate((*SPECIAL, *words))}
    if len(rows) < len(SPECIAL) + len(words):
        twice = next(word for place, word in enumerate((*SPECIAL, *words)) if rows[word] != place)
        raise BadInput(f"words: {twice!r} is there twice; give each word once.")
    made = Tokenizer(WordLevel(rows, unk_token="[UNK]"))
    made.normalizer = BertNormalizer(lowercase=True, strip_accents=False)
    made.pre_tokenizer = BertPreTokenizer()
    made.post_processor = TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(token, rows[token]) for token in ("[CLS]", "[SEP]")],
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), SPECIAL, strict=True))
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=made, model_input_names=inputs, **names)


def words(texts: Iterable[str], most: int | None = None) -> tuple[str, ...]:
    """The words of some texts as `tokenizer` splits them, the most frequent first; `most` keeps that many of them."""
    limit = None if most is None else checks.count("most", most)
    splits, counts = tokenizer(()).backend_tokenizer, Counter[str]()
    for text in texts:
        parts = splits.pre_tokenizer.pre_tokenize_str(splits.normalizer.normalize_str(text))
        counts.update(word for word, _ in parts)
    return tuple(sorted(counts, key=lambda word: (-counts[word], word))[:limit])


def read_vectors(path: str | Path, *, wanted: Collection[str] | None = None, most: int | None = None) -> Vectors:
    """The vectors in a file of GloVe's format: each line is a word and its numbers. The file may end in .gz.

    `wanted` are the words to keep, from a public list; `most` keeps that many of the first ones, which are the most
    frequent. Words are lower-cased; of those that are then the same the first is kept. A line of several words is left
    out: no tokenizer makes such a token.
    """
    path, found = Path(path), dict[str, list[float]]()
    limit = math.inf if most is None else checks.count("most", most)
    keep = None if wanted is None else {word.lower() for word in wanted}
    width = 0
    for number, line in enumerate(_lines(path), start=1):
        if len(found) == limit:
            break
        word, *numbers = line.rsplit(" ", width or -1)
        width = width or len(numbers)
        if len(numbers) != width or not width or not word or _one_too_many(word):
            raise _bad_line(path, number, f"it has to be a word and {width or 'its'} numbers")
        word = word.lower()
        if " " in word or word in found or (keep is not None and word not in keep):
            continue
        try:
            found[word] = list(map(float, numbers))
        except ValueError:
            raise _bad_line(path, number, f"the vector of {word!r} has to be {width} numbers") from None
        if not all(map(math.isfinite, found[word])):
            raise _bad_line(path, number, f"the numbers of {word!r} have to be finite")
    if not found:
        lacking = "none of the wanted words is in it" if width else "there is no word in it"
        raise BadInput(f"{path}: {lacking}; give a file of word vectors in GloVe's format.")
    return Vectors(tuple(found), np.array(list(found.values()), np.float32))


def _lines(path: Path) -> Iterator[str]:
    """The lines of a file, without their ends."""
    try:
        with opened(path) as raw, gzip.open(raw) if path.suffix == ".gz" else raw as file:
            for number, line in enumerate(file, start=1):
                try:
                    yield line.decode("utf-8").rstrip(" \r\n")
                except UnicodeDecodeError:
                    raise _bad_line(path, number, "it has to be text in UTF-8") from None
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path}: it cannot be read ({checks.short(error)}); give a file of word vectors.") from error


def _one_too_many(word: str) -> bool:
    """Whether what stands before the numbers of a line ends in one more of them."""
    several, _, last = word.rpartition(" ")
    try:
        return bool(several) and not math.isnan(float(last))
    except ValueError:
        return False


def _bad_line(path: Path, number: int, rule: str) -> BadInput:
    return BadInput(f"{path}, line {number}: {rule}; correct the line, or take it out.")
