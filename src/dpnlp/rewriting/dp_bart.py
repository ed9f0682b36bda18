"""DP-BART (Igamberdiev and Habernal 2023; thesis chapter 6): texts rewritten by way of the encoder's noisy states.

The decoder attends to all l positions of the noisy states and to nothing else: a mask would show how long the text was.
What an autoencoder has been through makes it the CLV, PR or PR+ of the thesis; rewriting is the same.
"""

import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpnlp import checks
from dpnlp.foreign import spelled
from dpnlp.guarantee import Guarantee, NoiseSource
from dpnlp.mechanisms import Gaussian, Laplace
from dpnlp.mechanisms.randomness import OS_ENTROPY, Source
from dpnlp.models.generation import generate_from
from dpnlp.rewriting.bart_autoencoder import Autoencoder, Budget
from dpnlp.rewriting.latent import Clip, LatentRewriter, Latents, noise
from dpnlp.tasks.translation import Writing
from dpnlp.training.sampling import prefetch

_AS_IN_THE_THESIS = Writing(longest=20, beams=10)


@dataclass(frozen=True)
class DPBart(LatentRewriter):
    """An autoencoder with the noise of one ε and δ: analytic Gaussian, or Laplace where δ = 0; none where ε = ∞.

    A text of more than l tokens is cut to its first l − 1 and the end. One that was trained for another ε or δ rewrites
    with the noise that is asked for here all the same, so that its promise holds; it warns, as its texts may be poor.
    """

    autoencoder: Autoencoder
    epsilon: float
    delta: float
    writing: Writing = _AS_IN_THE_THESIS
    source: Source = OS_ENTROPY
    threads: int = 4  # that draw noise; from a fixed seed one does, so that it can be drawn again
    clip: Clip = field(init=False)
    mechanism: Laplace | Gaussian | None = field(init=False)

    def __post_init__(self) -> None:
        checks.count("threads", self.threads)
        object.__setattr__(self, "clip", self.autoencoder.bottleneck.clip)
        object.__setattr__(self, "mechanism", noise(self.clip, self.epsilon, self.delta, self.source))
        trained_for = self.autoencoder.trained_for
        if trained_for not in (None, Budget(self.epsilon, self.delta)):
            warnings.warn(
                f"epsilon = {self.epsilon}, delta = {self.delta}: the model was trained for the noise of "
                f"ε = {trained_for.epsilon}, δ = {trained_for.delta}. What is promised holds, but the texts may be "
                "poor; use the ε it was trained for, or train it for this one.",
                stacklevel=3,
            )

    def encode(self, texts: Sequence[str]) -> npt.ArrayLike:
        """z = ENC(x): [texts, n]. No text is refused, for a refusal would tell something of it, without noise.

        An entry that is no number becomes 0.
        """
        return np.nan_to_num(self.autoencoder.encode(spelled(texts), self.writing.batch), nan=0.0)

    def latents(self, texts: Sequence[str]) -> Latents:
        """z': the clipped latents with their noise, which is drawn by several threads for some of the texts each."""
        clipped = self.clip(self.encode(texts))
        if self.mechanism is None or not len(texts):
            return clipped
        seeded = self.source.kind is NoiseSource.FIXED_SEED
        shares = np.array_split(clipped, min(1 if seeded else self.threads, len(texts)))
        with ThreadPoolExecutor(len(shares), "noise") as threads:
            return np.concatenate(list(threads.map(self.mechanism.release, shares)))

    def decode(self, latents: Latents) -> list[str]:
        pretrained, states = self.autoencoder.pretrained, self.autoencoder.bottleneck.states(latents)
        tokenizer: Any = pretrained.tokenizer
        found = generate_from(pretrained.model, states, self.writing.options(pretrained), batch=self.writing.batch)
        return [text.strip() for text in tokenizer.batch_decode(found, skip_special_tokens=True)]

    def rewrite(self, texts: Sequence[str]) -> list[str]:
        """One text for each. The next batch is read and noised while the device writes this one."""
        size = self.writing.batch
        parts = (texts[start : start + size] for start in range(0, len(texts), size))
        with closing(prefetch(map(self.latents, parts))) as ahead:
            return [text for latents in ahead for text in self.decode(latents)]

    def guarantee(self) -> Guarantee:
        return super().guarantee().with_exposures(*self.autoencoder.exposures)


def load(folder: Path, epsilon: float, delta: float = 0.0, source: Source = OS_ENTROPY) -> DPBart:
    """The one in the folder of a rewriter, whose model `Autoencoder.save` wrote."""
    return DPBart(Autoencoder.load(folder / "model"), epsilon, delta, source=source)
