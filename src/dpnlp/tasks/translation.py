"""Translation (Sutskever et al. 2014): an encoder-decoder learns pairs of texts, and is scored on texts it writes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.data.cache import Examples, Ragged
from dpnlp.data.pairs import Pair, Pairs
from dpnlp.data.tokens import encoded, in_memory, tokenized
from dpnlp.metrics.bleu import bleu, chrf
from dpnlp.metrics.score import Score
from dpnlp.models import cross_entropy
from dpnlp.models.generation import Generation, generate
from dpnlp.models.pretrained import Pretrained
from dpnlp.models.seq2seq import Seq2Seq


@dataclass(frozen=True)
class Writing:
    """How texts are written. One is at most `longest` tokens long."""

    longest: int = 64
    beams: int = 1
    length_penalty: float = 1.0
    batch: int = 32
    sample: bool | None = None  # draw each token, or take the most probable; without it as the model's files say

    def __post_init__(self) -> None:
        for name in ("longest", "beams", "batch"):
            checks.count(name, getattr(self, name))

    def options(self, pretrained: Pretrained, language: str | None = None) -> Generation:
        """The same for a model, in all else by its own files; `language` is the one that it is to write."""
        changes = {"max_length": self.longest, "beams": self.beams, "length_penalty": self.length_penalty}
        if self.sample is not None:
            changes["sample"] = self.sample
        return pretrained.options(language=language, min_length=0, **changes)


@dataclass(frozen=True)
class Translation:
    """A model and how texts are put to it: `prefix` goes before each, `languages` are those of source and target.

    Texts are cut to `longest` tokens, in both languages.
    """

    pretrained: Pretrained
    longest: int = 64
    prefix: str = ""
    languages: tuple[str, str] | None = None
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        if self.pretrained.tokenizer is None:
            raise BadInput("model: its folder has no tokenizer, without which no text can be read; add its files.")
        checks.count("longest", self.longest, least=2)

    def of(self, model: nnx.Module) -> "Translation":
        """The same with another model of the same shape, such as one that was trained."""
        return replace(self, pretrained=replace(self.pretrained, model=cast(Seq2Seq, model)))

    @property
    def tokenizer(self) -> Any:
        return self.pretrained.tokenizer

    def dataset(self, pairs: Pairs, cache: Path) -> Examples:
        """Pairs of texts as the engine takes them, tokenized once and kept in the cache."""
        return tokenized(pairs, self.tokenizer, cache=cache, **self._settings)

    def examples(self, pairs: Sequence[Pair]) -> Examples:
        """The same of a few pairs, kept nowhere."""
        return in_memory(pairs, self.tokenizer, **self._settings)

    def made_up(self, words: Sequence[str], choices: Sequence[int]) -> Pair:
        """Nobody's pair: one half of the words is said to be the translation of the other."""
        half = len(words) // 2
        return Pair(" ".join(words[:half]), " ".join(words[half:]), None)

    def loss(self, model: nnx.Module, batch: dict[str, jax.Array]) -> jax.Array:  # [batch]
        """The cross-entropy of each target, as the mean over its own tokens (law 4)."""
        inputs = self.pretrained.decoder_inputs(batch["targets"], batch["target_mask"])
        whole = {**batch, "inputs": inputs}
        return cross_entropy.losses(cast(Seq2Seq, model), whole, smoothing=self.smoothing)

    def surprise(self, pairs: Sequence[Pair], batch: int = 64) -> NDArray[np.float32]:
        """−log p of each target as a whole, [pairs]: how little the model expects it."""
        sources = self._sources([pair.source for pair in pairs])
        targets = self._encoded([pair.target for pair in pairs], target=True)
        length = max(map(len, (*sources, *targets)))
        structure, state = nnx.split(self.pretrained.model)

        @jax.jit
        def sums(state: Any, ids: jax.Array, mask: jax.Array, targets: jax.Array, target_mask: jax.Array) -> jax.Array:
            inputs = self.pretrained.decoder_inputs(targets, target_mask)
            arrays = {"ids": ids, "mask": mask, "inputs": inputs, "targets": targets, "target_mask": target_mask}
            return cross_entropy.losses(nnx.merge(structure, state), arrays, mean=False)

        sides, pad, found = [Ragged.of(sources), Ragged.of(targets)], self.tokenizer.pad_token_id, []
        for start in range(0, len(pairs), batch):
            place = np.minimum(np.arange(start, start + batch), len(pairs) - 1)
            arrays = [array for side in sides for array in side.padded(place, length, pad)]
            found.append(np.asarray(sums(state, *arrays)))
        return np.concatenate(found)[: len(pairs)]

    def translate(self, texts: Sequence[str], writing: Writing) -> list[str]:
        """The translation of each text, by the model alone: it never sees a reference."""
        ids = self._sources(texts)
        found = generate(self.pretrained.model, ids, self._options(writing), batch=min(writing.batch, len(ids)))
        return [text.strip() for text in self.tokenizer.batch_decode(found, skip_special_tokens=True)]

    def score(self, pairs: Sequence[Pair], writing: Writing) -> "Scored":
        """The model's own translations of the sources, to be compared with the targets."""
        return Scored(tuple(pairs), tuple(self.translate([pair.source for pair in pairs], writing)))

    def _sources(self, texts: Sequence[str]) -> list[list[int]]:
        return self._encoded([self.prefix + text for text in texts])

    def _encoded(self, texts: Sequence[str], target: bool = False) -> list[list[int]]:
        return encoded(texts, self.tokenizer, longest=self.longest, languages=self.languages, target=target)

    @property
    def _settings(self) -> dict[str, Any]:
        return {"longest": self.longest, "prefix": self.prefix, "languages": self.languages}

    def _options(self, writing: Writing) -> Generation:
        return writing.options(self.pretrained, self.languages[1] if self.languages else None)


@dataclass(frozen=True)
class Scored:
    """Pairs of texts and what a model made of the sources."""

    pairs: tuple[Pair, ...]
    hypotheses: tuple[str, ...]

    @property
    def references(self) -> list[str]:
        return [pair.target for pair in self.pairs]

    def bleu(self, tokenizer: str = "13a") -> Score:
        return bleu(self.hypotheses, self.references, tokenizer=tokenizer)

    def chrf(self) -> Score:
        return chrf(self.hypotheses, self.references)

    def lines(self) -> Iterator[dict[str, str]]:
        """Source, reference and hypothesis of each pair."""
        for pair, hypothesis in zip(self.pairs, self.hypotheses, strict=True):
            yield {"source": pair.source, "reference": pair.target, "hypothesis": hypothesis}
