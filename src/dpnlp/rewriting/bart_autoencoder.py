"""BART as the autoencoder of DP-BART: it learns to write a text out again from what passes the bottleneck.

A model comes from a folder of Hugging Face, or starts from nothing. All texts that it sees here are meant to be public;
where they are not, what it is used for says so (law 10).
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from dpnlp import checks, dropout
from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.checks import BadInput
from dpnlp.data.arrays import Arrays
from dpnlp.data.cache import Ragged
from dpnlp.data.tokens import encoded, refuse_endless
from dpnlp.data.vocabulary import learned
from dpnlp.foreign import parse_json, text_in
from dpnlp.guarantee import Exposure
from dpnlp.mechanisms import Gaussian, Laplace
from dpnlp.mechanisms.randomness import OS_ENTROPY, Source
from dpnlp.models import cross_entropy, pretrained
from dpnlp.models.alone import each_alone
from dpnlp.models.pretrained import Pretrained
from dpnlp.models.pretrained.weights import readable
from dpnlp.models.seq2seq import Seq2Seq
from dpnlp.rewriting import latent
from dpnlp.rewriting.bottleneck import Bottleneck, Spread
from dpnlp.training import Optimizer, Options, Plan, Secret, train

FILE = "dp_bart.json"
"""What lies in a model's folder beside the files of Hugging Face."""
_FORMAT = 1


@dataclass(frozen=True)
class Budget:
    """The ε and δ that a model was trained for (DP-BART-PR+)."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Training:
    """How a model learns. The thesis trains for 500 steps of 32 texts (§6.4.3)."""

    steps: int = 500
    batch: int = 32  # texts in a step
    optimizer: Optimizer = field(default_factory=lambda: Optimizer(1e-4))
    masked: float = 0.0  # the share of its tokens that the encoder is not shown (Lewis et al. 2020)
    physical_batch: int = 32  # texts on the devices at once

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "physical_batch"):
            checks.count(name, getattr(self, name))
        if not 0 <= self.masked < 1:
            raise BadInput(f"masked = {self.masked}: it must be at least 0 and below 1; 0 hides no token.")


@dataclass(frozen=True)
class Autoencoder:
    """A BART and its bottleneck. `exposures` is what of private texts went into them, uncounted."""

    pretrained: Pretrained
    bottleneck: Bottleneck
    trained_for: Budget | None = None
    exposures: tuple[Exposure, ...] = ()

    def __post_init__(self) -> None:
        config, length = self.pretrained.config, self.bottleneck.length
        if config.model_type != "bart":
            raise BadInput(f"model_type = {config.model_type!r}: DP-BART is built from a BART; choose one.")
        if self.pretrained.tokenizer is None:
            raise BadInput("model: its folder has no tokenizer, without which no text can be read; add its files.")
        if config.d_model != self.bottleneck.width:
            raise BadInput(f"width = {self.bottleneck.width}: the model's is {config.d_model}; take that.")
        if length > config.max_position_embeddings:
            raise BadInput(
                f"length = {length}: the model has {config.max_position_embeddings} positions; take no more."
            )
        refuse_endless(self.pretrained.tokenizer, encoded([""], self.pretrained.tokenizer, longest=length)[0])

    @classmethod
    def of(cls, pretrained: Pretrained, *, length: int = 20, bound: float | None = None) -> "Autoencoder":
        """A BART as it was loaded, all of whose neurons are kept (DP-BART-CLV)."""
        return cls(pretrained, Bottleneck(pretrained.config.d_model, length, bound))

    @classmethod
    def from_scratch(
        cls, texts: Iterable[str], *, vocabulary: int, length: int = 20, private: bool = False, **shape: Any
    ) -> "Autoencoder":
        """A BART with random weights and a tokenizer made of these texts; `shape` is that of `pretrained.from_scratch`.

        A tokenizer made of private texts shows their words.
        """
        fresh = pretrained.from_scratch(learned(texts, vocabulary), architecture="bart", **shape)
        made = cls.of(fresh, length=length)
        return made.exposing(Exposure.VOCABULARY) if private else made

    def within(self, bound: float) -> "Autoencoder":
        """The same with another bound C."""
        return replace(self, bottleneck=replace(self.bottleneck, bound=bound))

    def exposing(self, *exposures: Exposure) -> "Autoencoder":
        """The same, naming what of private texts is in it."""
        return replace(self, exposures=tuple(dict.fromkeys((*self.exposures, *exposures))))

    def tokens(self, texts: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Each text as l tokens, "ids" and "mask" [texts, l]: cut so that its end stays last, or padded."""
        tokenizer, length = self.pretrained.tokenizer, self.bottleneck.length
        rows = Ragged.of(encoded(texts, tokenizer, longest=length))
        ids, mask = rows.padded(np.arange(len(texts)), length, cast(Any, tokenizer).pad_token_id)
        return {"ids": ids, "mask": mask}

    def encode(self, texts: Sequence[str], batch: int = 32) -> NDArray[np.float32]:
        """z = ENC(x), without the pruned neurons: [texts, n]."""
        tokens, (structure, weights) = self.tokens(texts), nnx.split(self.pretrained.model)
        found = [np.zeros((0, self.bottleneck.dimension), np.float32)]
        for start in range(0, len(texts), batch):
            rows = np.minimum(np.arange(start, start + batch), len(texts) - 1)
            states = _encoded(structure, weights, tokens["ids"][rows], tokens["mask"][rows])
            found.append(np.asarray(self.bottleneck.latents(states)[: len(texts) - start], np.float32))
        return np.concatenate(found)

    def spread(self, texts: Sequence[str]) -> Spread:
        """Mean and standard deviation of all entries of the latents of public texts (§6.3.3)."""
        z = self.encode(texts).astype(np.float64)
        return Spread(float(np.mean(z)), float(np.std(z)))

    def loss(
        self,
        model: nnx.Module,
        batch: dict[str, jax.Array],
        *,
        noise: Gaussian | Laplace | None = None,
        masked: float = 0.0,
    ) -> jax.Array:  # [batch]
        """The cross-entropy of each text given its own held states, as the mean over its tokens (law 4).

        The decoder attends to all l positions, as it will when it rewrites: which of them are padding it is not told.
        """
        bart, ids, mask = cast(Seq2Seq, model), batch["ids"], batch["mask"]
        held = self.bottleneck.held(bart.encode(self._shown(ids, masked), mask), noise)
        memory = bart.remember(held, jnp.ones_like(mask))
        states, _ = bart.decode(self.pretrained.decoder_inputs(ids, mask), memory)
        return cross_entropy.of_states(bart, states, ids, mask)

    def _shown(self, ids: jax.Array, masked: float) -> jax.Array:
        """The encoder's input, some of whose tokens are hidden in training, others for each text and step."""
        tokenizer: Any = self.pretrained.tokenizer
        if not masked or (keys := dropout.next_keys()) is None:
            return ids
        hidden = jax.vmap(lambda key: jax.random.bernoulli(key, masked, ids.shape[1:]))(keys)
        blank = tokenizer.unk_token_id if tokenizer.mask_token_id is None else tokenizer.mask_token_id
        return jnp.where(hidden & ~jnp.isin(ids, np.array(tokenizer.all_special_ids)), blank, ids)

    def trained(
        self,
        texts: Sequence[str],
        training: Training,
        *,
        noise: Gaussian | Laplace | None = None,
        private: bool = False,
        source: Source = OS_ENTROPY,
    ) -> "Autoencoder":
        """The same after training on these texts, with clipping where there is a bound, and with noise on request.

        Nothing of this is accounted for: what is learned of private texts is named as not covered.
        """
        schedule = Schedule(len(texts), min(training.batch, len(texts)), training.steps, Sampling.SHUFFLED)
        outcome = train(
            self.pretrained.model,
            partial(self.loss, noise=noise, masked=training.masked),
            Arrays(self.tokens(texts)),
            Plan.without_privacy(schedule),
            training.optimizer.build(training.steps),
            Options(physical_batch=min(training.physical_batch, schedule.lot_size)),
            secret=Secret.drawn(source),
        )
        learnt = replace(self, pretrained=replace(self.pretrained, model=cast(Seq2Seq, outcome.model)))
        return learnt.exposing(Exposure.PRETRAINING) if private else learnt

    def hardened(
        self,
        texts: Sequence[str],
        training: Training,
        *,
        epsilon: float,
        delta: float,
        private: bool = False,
        source: Source = OS_ENTROPY,
    ) -> "Autoencoder":
        """DP-BART-PR+ (§6.3.5): the same after more training, with the noise that rewriting has at this ε and δ."""
        noise = latent.noise(self.bottleneck.clip, checks.positive("epsilon", epsilon), delta)
        learnt = self.trained(texts, training, noise=noise, private=private, source=source)
        return replace(learnt, trained_for=Budget(epsilon, delta))

    def save(self, folder: str | Path) -> None:
        """Writes a folder that `load`, and as a plain BART transformers, open."""
        entry = {
            "format": _FORMAT,
            **self.bottleneck.to_json(),
            "epsilon": self.trained_for and self.trained_for.epsilon,
            "delta": self.trained_for and self.trained_for.delta,
            "exposures": [str(exposure) for exposure in self.exposures],
        }
        pretrained.save(self.pretrained, folder, beside={FILE: json.dumps(entry) + "\n"})

    @classmethod
    def load(cls, folder: str | Path, **options: Any) -> "Autoencoder":
        """Reads what `save` wrote; the options are those of `pretrained.load`."""
        path = Path(folder) / FILE
        if not path.exists():
            raise BadInput(
                f"{folder}: there is no {FILE} in it; load a BART with `pretrained.load`, make an `Autoencoder` of it "
                "with a bound, and save that."
            )
        with readable(path):
            entry = parse_json(text_in(path))
            if entry["format"] != _FORMAT:
                raise BadInput(f"{path}: format = {entry['format']}, and this dpnlp reads {_FORMAT}; save it anew.")
            bottleneck = Bottleneck.from_json(entry)
            budget = None if entry["epsilon"] is None else Budget(entry["epsilon"], entry["delta"])
            exposures = tuple(Exposure(word) for word in entry["exposures"])
        return cls(pretrained.load(folder, **options), bottleneck, budget, exposures)


@partial(jax.jit, static_argnames="structure")
def _encoded(structure: Any, weights: Any, ids: jax.Array, mask: jax.Array) -> jax.Array:
    """The encoder's last states, [batch, l, d_tok]."""

    def states(ids: jax.Array, mask: jax.Array) -> jax.Array:
        model: Seq2Seq = nnx.merge(structure, weights)
        return model.encode(ids, mask)

    return each_alone(states, ids, mask)
