"""ADePT (Krishna et al. 2021), as corrected by Habernal (2021): an LSTM autoencoder with noise on its latent.

z = ENC(x) is clipped to ‖z‖ ≤ C in ℓ1 or ℓ2, z' = z + η, ŷ = DEC(z') (thesis Eqns 5.1 to 5.3 and §6.3.1). Laplace noise
is scaled to Δ₁ = 2C where ℓ1 is clipped and to Δ₁ = 2C√n where ℓ2 is; Gaussian noise is the analytic one for Δ₂ = 2C.

Of a text its first `longest` words are read, in lower case; what follows is cut off. A word that is not in the
vocabulary is read as unknown, and an empty text as its end alone: both have a latent like any other text. At most
`longest` words are written, however long the text was, and all of them are words of the vocabulary.

The autoencoder is trained with clipping and without noise (§5.4.3). It writes out what it was trained on, so that
training it on the texts that are to be hidden is no part of what the noise promises: the guarantee names it.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import numpy.typing as npt
from flax import nnx

from dpnlp import checks
from dpnlp.data.cache import Column, Examples
from dpnlp.data.tokens import encoded
from dpnlp.foreign import spelled
from dpnlp.guarantee import Exposure, Guarantee
from dpnlp.mechanisms.randomness import OS_ENTROPY, Source
from dpnlp.models import autoencoder, word_vectors
from dpnlp.models.autoencoder import Autoencoder
from dpnlp.models.generation import Generation
from dpnlp.models.pretrained import (
    PretrainedAutoencoder,
    fresh_autoencoder,
    load_autoencoder,
    save_autoencoder,
)
from dpnlp.models.word_vectors import Vectors
from dpnlp.rewriting.latent import Clip, LatentRewriter, Latents, Rule, noise
from dpnlp.training import Optimizer, Options, Plan, train

RULES = {1: Rule.L1, 2: Rule.L2}
"""How latents are clipped, by the order of the norm."""

OPTIMIZER, OPTIONS = Optimizer(0.003), Options(physical_batch=64)
"""How an autoencoder is trained, unless told otherwise."""


class Adept(LatentRewriter):
    """A trained autoencoder with noise for ε and δ: Laplace where δ = 0, else Gaussian, and none where ε is infinite.

    Texts are written greedily, or by a search with so many `beams`; `batch` of them are computed at once.
    """

    def __init__(
        self,
        pretrained: PretrainedAutoencoder,
        epsilon: float,
        delta: float = 0.0,
        *,
        source: Source = OS_ENTROPY,
        beams: int = 1,
        batch: int = 64,
    ) -> None:
        config = pretrained.model.config
        self.pretrained, self.batch = pretrained, checks.count("batch", batch)
        self.clip = Clip(RULES[config.order], config.bound, config.latent)
        self.mechanism = noise(self.clip, epsilon, delta, source)
        pad, unknown, start, end = (
            getattr(pretrained.tokenizer, f"{name}_token_id") for name in ("pad", "unk", "cls", "sep")
        )
        self._writing = Generation(
            config.longest, start=start, end=end, pad=pad, beams=beams, suppressed=(pad, unknown, start)
        )

    @classmethod
    def load(cls, folder: str | Path, epsilon: float, delta: float = 0.0, **options: Any) -> "Adept":
        """The one whose autoencoder lies in this folder; the options are those of an `Adept`."""
        return cls(load_autoencoder(folder), epsilon, delta, **options)

    def save(self, folder: str | Path) -> None:
        """Writes the autoencoder, its words, and what of private texts is in them. ε, δ and noise are no part of it."""
        save_autoencoder(self.pretrained, folder)

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        rows = read(self.pretrained, texts)
        batch = rows.batch(np.arange(len(rows)), self.pretrained.model.config.tokens)
        return autoencoder.read(self.pretrained.model, batch["ids"][:, 1:], batch["mask"][:, 1:], self.batch)

    def decode(self, latents: Latents) -> list[str]:
        written = autoencoder.write(self.pretrained.model, latents, self._writing, self.batch)
        return [self.pretrained.tokenizer.decode(text, skip_special_tokens=True) for text in written]

    def guarantee(self) -> Guarantee:
        """What the rewriting of one text promises, and what the autoencoder took from private texts before."""
        return super().guarantee().with_exposures(*self.pretrained.exposures)


def pretrain(
    texts: Sequence[str],
    plan: Plan,
    *,
    private: bool,
    words: Sequence[str] | None = None,
    most: int | None = None,
    vectors: Vectors | None = None,
    optimizer: Optimizer = OPTIMIZER,
    options: Options = OPTIONS,
    seed: int = 0,
    run: dict[str, Any] | None = None,
    **shape: Any,
) -> PretrainedAutoencoder:
    """An autoencoder that has learned to write these texts again, as planned: without privacy, or by DP-SGD.

    `private` says whether someone is promised that the texts stay hidden; then what is taken from them is named as not
    covered by the rewriting. What the training itself promises is kept in `training`. `words` is a public vocabulary;
    without one it is the words of the texts, all of them or those that are the `most` frequent. `vectors` are where
    words start from. `run` is what else `train` is told, and `shape` the autoencoder's.
    """
    known = word_vectors.words(texts, most) if words is None else words
    fresh = fresh_autoencoder(known, vectors=vectors, seed=seed, **shape)
    exposures: tuple[Exposure, ...] = (Exposure.VOCABULARY,) if private and words is None else ()
    if private:  # Noise or not, what the training costs is no part of what the rewriting promises.
        exposures += (Exposure.PRETRAINING,)
    updates = optimizer.build(plan.schedule.steps)
    outcome = train(fresh.model, losses, read(fresh, texts), plan, updates, options, **run or {})
    promised = outcome.guarantee.with_exposures(*exposures)
    return replace(fresh, model=cast(Autoencoder, outcome.model), exposures=exposures, training=promised)


def losses(model: nnx.Module, batch: Any) -> jax.Array:
    """What is learned: the cross-entropy of each text given its clipped latent, [batch]."""
    return cast(Autoencoder, model).losses(batch)


def read(pretrained: PretrainedAutoencoder, texts: Sequence[str]) -> Examples:
    """Texts as tokens, cut to the words that are read, with the start before them and the end behind."""
    ids = encoded(spelled(texts), pretrained.tokenizer, longest=pretrained.model.config.tokens)
    return Examples.of((Column("ids", pretrained.tokenizer.pad_token_id, "mask"),), {"ids": ids})


def load(folder: Path, epsilon: float, delta: float = 0.0, source: Source = OS_ENTROPY) -> Adept:
    """The one in the folder of a rewriter."""
    return Adept.load(folder / "model", epsilon, delta, source=source)
