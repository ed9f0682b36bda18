"""Paraphrasing by a public encoder-decoder whose logits are clipped, and whose tokens are drawn.

At every token the logits are clipped to [b₁, b₂], and a token is drawn with a probability ∝ exp(logit/T) (Mattern et
al. 2022; Utpala et al. 2023, DP-Prompt). This is the exponential mechanism with a sensitivity of b₂ − b₁, whatever the
text that the encoder reads: 2(b₂ − b₁)/T for a token, and m times that for a text of at most m tokens, its end among
them, which is drawn like any other. All else is public: the model, the prefix, forced and forbidden tokens. Beams, and
a choice among the most probable tokens, would let the text decide what can be drawn at all; they are not used, whatever
the model's own settings say.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dpnlp import checks, events
from dpnlp.checks import BadInput
from dpnlp.data.cache import Ragged
from dpnlp.data.tokens import encoded
from dpnlp.events import Event, NonPrivate
from dpnlp.foreign import parse_json, spelled, text_in
from dpnlp.guarantee import Term
from dpnlp.mechanisms.base import Mechanism
from dpnlp.mechanisms.randomness import OS_ENTROPY, Source
from dpnlp.models import pretrained
from dpnlp.models.generation import Generation, search
from dpnlp.models.pretrained import Pretrained
from dpnlp.models.seq2seq import shifted
from dpnlp.rewriting.base import Rewriter
from dpnlp.training.secret import Secret

_ROUNDING = 2.0**-12
_ROUNDING_OF_SCORES = 2.0**-18
"""What float32 can add to the loss of one draw: so much, and so much for each unit of the largest score."""

_LEAST, _MOST = 2.0**-10, 80.0
"""The ε of one token. Up to there 96 bits give the chance of the least of a million tokens to 10⁻⁵ of itself."""


@dataclass(frozen=True)
class ClippedDraws(Mechanism):
    """At most m `tokens`, each drawn from logits that are clipped to the `bounds` b₁ and b₂, at ε for all of them.

    The draws are made on the device in float32 from 96 random bits a number (`models.drawing`), with a key from the
    source. In float32 a token's log-probability is off by up to 10⁻⁴, for which T makes up, so that ε holds for the
    draws as they are made. Drawing by `mechanisms.Exponential` would be exact, and 20 to 100 times slower for a
    vocabulary of 32,000, as all logits would have to leave the device for each token.
    """

    bounds: tuple[float, float]
    tokens: int
    epsilon: float
    source: Source = OS_ENTROPY

    def __post_init__(self) -> None:
        low, high = (float(bound) for bound in self.bounds)
        object.__setattr__(self, "bounds", (low, high))
        object.__setattr__(self, "tokens", checks.count("tokens", self.tokens))
        if not -math.inf < low < high < math.inf:
            raise BadInput(f"bounds = {self.bounds}: it must be two finite numbers, the lower one first.")
        if not _LEAST <= checks.positive("epsilon", self.epsilon) / self.tokens <= _MOST:
            limits = f"between {_LEAST * self.tokens:g} and {_MOST * self.tokens:g}"
            raise BadInput(f"epsilon = {self.epsilon}: for {self.tokens} tokens it must lie {limits}.")

    @classmethod
    def from_temperature(
        cls, bounds: tuple[float, float], tokens: int, temperature: float, source: Source = OS_ENTROPY
    ) -> "ClippedDraws":
        """The same for a chosen T: ε = m·2(b₂ − b₁)/T, and what rounding can add to it."""
        checks.positive("temperature", temperature)
        one = _ROUNDING + _spread(bounds) / temperature
        return cls(bounds, tokens, checks.count("tokens", tokens) * one, source)

    @property
    def sensitivity(self) -> float:
        """b₂ − b₁: how far a logit can move when the text is exchanged."""
        return self.bounds[1] - self.bounds[0]

    @property
    def temperature(self) -> float:
        """T = 2(b₂ − b₁)/(ε/m), and slightly more for the rounding."""
        return _spread(self.bounds) / (self.epsilon / self.tokens - _ROUNDING)

    def event(self) -> events.Repeated:
        """What an accountant sees: m draws of ε/m each, every one in the light of those before."""
        return events.Repeated(events.ApproximateDP(self.epsilon / self.tokens), self.tokens)

    @property
    def term(self) -> Term:
        """The name and the public parameters."""
        low, high = self.bounds
        return Term.of("clipped-sampling", low=low, high=high, temperature=self.temperature, tokens=self.tokens)


@dataclass(frozen=True, eq=False)
class ClippedSampling(Rewriter):
    """A public model that paraphrases at ε for a whole text of at most so many `tokens`; any text may be exchanged.

    The `prefix` goes before each text, such as "paraphrase: ". The `bounds` of the logits have to be chosen without the
    private texts. Of a text `longest` tokens are read, prefix and end among them, and all texts are padded to as many,
    so that nothing depends on how long others are. With an infinite ε each token is the most probable one.
    """

    pretrained: Pretrained
    bounds: tuple[float, float]
    tokens: int
    epsilon: float
    prefix: str = ""
    longest: int = 128
    batch: int = 32
    source: Source = OS_ENTROPY
    mechanism: ClippedDraws | None = field(init=False)

    def __post_init__(self) -> None:
        if self.pretrained.tokenizer is None:
            raise BadInput("model: its folder has no tokenizer, without which no text can be read; add its files.")
        checks.count("batch", self.batch)
        most = getattr(self.pretrained.model.config, "positions", math.inf)
        for name in ("longest", "tokens"):
            if checks.count(name, getattr(self, name)) > most:
                raise BadInput(f"{name} = {getattr(self, name)}: the model has positions for at most {most}.")
        (public,) = encoded([self.prefix], self.pretrained.tokenizer, longest=1_000_000)
        if len(public) >= self.longest:
            raise BadInput(
                f"longest = {self.longest}: it must be above {len(public)}, the tokens of the prefix and the end, or "
                "nothing of a text is read."
            )
        infinite = checks.budget("epsilon", self.epsilon) == math.inf
        draws = None if infinite else ClippedDraws(self.bounds, self.tokens, self.epsilon, self.source)
        object.__setattr__(self, "mechanism", draws)
        self.options  # noqa: B018  (settings of the folder that cannot be kept to are refused here)

    @property
    def event(self) -> Event:
        return NonPrivate() if self.mechanism is None else self.mechanism.event()

    @property
    def options(self) -> Generation:
        """How a text is made: as the model's folder says, but drawn from all tokens that are not forbidden."""
        changes: dict[str, Any] = {"max_length": self.tokens, "min_length": 0, "beams": 1, "top_k": None, "top_p": 1.0}
        if self.mechanism is None:
            return self.pretrained.options(sample=False, temperature=1.0, **changes)
        drawn: dict[str, Any] = {
            "sample": True,
            "temperature": self.mechanism.temperature,
            "bounds": self.mechanism.bounds,
        }
        return self.pretrained.options(**drawn, **changes)

    def rewrite(self, texts: Sequence[str]) -> list[str]:
        """One text for each, drawn with a key of its own; batches are filled up, so that all calls have one shape."""
        if not texts:
            return []
        tokenizer: Any = self.pretrained.tokenizer
        options = self.options
        rows = Ragged.of(encoded([self.prefix + text for text in spelled(texts)], tokenizer, longest=self.longest))
        structure, weights = nnx.split(self.pretrained.model)
        key, found = Secret.drawn(self.source).key("draws"), []
        for start in range(0, len(texts), self.batch):
            place = np.minimum(np.arange(start, start + self.batch), len(texts) - 1)
            ids, mask = rows.padded(place, self.longest, options.pad)
            keys = jax.vmap(partial(jax.random.fold_in, key))(place) if options.sample else None
            found.append(np.asarray(search(structure, weights, ids, mask, keys, options=options)))
        written = tokenizer.batch_decode(np.concatenate(found)[: len(texts)], skip_special_tokens=True)
        return [text.strip() for text in written]


def usual_bounds(
    pretrained: Pretrained,
    texts: Sequence[str],
    *,
    prefix: str = "",
    tokens: int = 32,
    longest: int = 128,
    batch: int = 32,
) -> tuple[float, float]:
    """Bounds from public texts: the mean μ of all logits and μ + 4σ (Meisenbacher et al. 2024, DP-MLM).

    The model is asked to write each text again, and is told what stands before each token. What is below the mean does
    not fit anyway, what is above four deviations is rare, and ε grows with the distance between the bounds.
    """
    if not texts:
        raise BadInput("texts: there are none to choose the bounds from; give public ones.")
    tokenizer, start = pretrained.tokenizer, pretrained.options().start
    rows = Ragged.of(encoded([prefix + text for text in texts], tokenizer, longest=longest))
    told = Ragged.of(encoded(list(texts), tokenizer, longest=tokens))
    structure, weights = nnx.split(pretrained.model)
    totals = np.zeros(3)
    for first in range(0, len(texts), batch):
        place = np.minimum(np.arange(first, first + batch), len(texts) - 1)
        ids, mask = rows.padded(place, longest, 0)
        targets, real = told.padded(place, tokens, 0)
        real[len(texts) - first :] = False  # repeated to fill the batch
        totals += np.asarray(_moments(structure, weights, ids, mask, shifted(jnp.asarray(targets), start), real))
    mean, square = totals[1:] / totals[0]
    return float(mean), float(mean + 4 * math.sqrt(max(square - mean**2, 0.0)))


@partial(jax.jit, static_argnums=0)
def _moments(structure: Any, weights: Any, ids: Any, mask: Any, inputs: Any, real: Any) -> jax.Array:
    """How many logits there are at real tokens, their sum and the sum of their squares."""
    logits = nnx.merge(structure, weights)(ids, mask, inputs).astype(jnp.float32)
    powers = jnp.stack([jnp.ones_like(logits), logits, logits**2])
    return jnp.sum(jnp.where(real[None, ..., None], powers, 0), axis=(1, 2, 3))


def _spread(bounds: tuple[float, float]) -> float:
    """ε for one token, times T: twice the sensitivity, and what rounding adds for scores of this size."""
    low, high = bounds
    return 2 * (high - low) + _ROUNDING_OF_SCORES * max(abs(low), abs(high))


def save(rewriter: ClippedSampling, folder: Path) -> None:
    """Writes the model, and how it is used, into the folder of a rewriter; ε is no part of it."""
    pretrained.save(rewriter.pretrained, folder / "model")
    how = {"bounds": rewriter.bounds, "tokens": rewriter.tokens, "prefix": rewriter.prefix, "longest": rewriter.longest}
    (folder / "sampling.json").write_text(json.dumps(how, indent=2) + "\n", encoding="utf-8")


def load(folder: Path, epsilon: float, delta: float = 0.0, source: Source = OS_ENTROPY) -> ClippedSampling:
    """The one in the folder of a rewriter. It needs no δ, and promises none."""
    try:
        how = parse_json(text_in(folder / "sampling.json"))
        bounds, tokens, prefix, longest = tuple(how["bounds"]), how["tokens"], how["prefix"], how["longest"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise BadInput(
            f"{folder}: how texts are drawn cannot be read ({checks.short(error)}); make it again."
        ) from None
    return ClippedSampling(
        pretrained.load(folder / "model"), bounds, tokens, epsilon, prefix=prefix, longest=longest, source=source
    )
