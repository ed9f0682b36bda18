"""Retell, a method of our own: a fluent sentence is written from a small noisy latent (thesis §6.6.2 and §7.3).

A public sentence encoder gives the vector of a text, which is taken along n principal directions of public texts,
clipped in ℓ2 to C, and gets analytic Gaussian noise for Δ₂ = 2C. A decoder writes from the noisy latent and from σ,
which is public. So n is small from the start, where DP-BART has l·d_tok entries to prune, and the decoder is trained
with clipping and noise from its first step, for a whole range of ε at once.
"""

import json
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from flax import nnx
from safetensors.numpy import save_file

from dpnlp import checks
from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.checks import BadInput
from dpnlp.data.arrays import Arrays
from dpnlp.data.cache import Ragged
from dpnlp.data.tokens import encoded, refuse_endless
from dpnlp.foreign import parse_json, text_in
from dpnlp.guarantee import Exposure, Guarantee
from dpnlp.mechanisms import Gaussian, Laplace
from dpnlp.mechanisms.randomness import OS_ENTROPY, Source
from dpnlp.models import cross_entropy, freezing, pretrained
from dpnlp.models.generation import generate_from
from dpnlp.models.layers import Linear
from dpnlp.models.pretrained import Pretrained, save_encoder
from dpnlp.models.pretrained.weights import read_arrays, readable
from dpnlp.models.sentence_vectors import SentenceEncoder
from dpnlp.rewriting.directions import Directions
from dpnlp.rewriting.latent import Clip, LatentRewriter, Latents, noise
from dpnlp.rewriting.teller import Budgets, Channel, Teller
from dpnlp.tasks.translation import Writing
from dpnlp.training import Optimizer, Options, Plan, Secret, train

_ARRAYS, _FILE, _FORMAT = "retell.safetensors", "retell.json", 1
_OPTIMIZER = Optimizer(1e-4)
_BEAMS = Writing(longest=32, beams=4, sample=False)


@dataclass(frozen=True, eq=False)
class Retelling:
    """All that is public: who gives vectors, along which directions, how noisy, and who writes.

    A text is cut to `longest` tokens when it is learned. `exposures` is what of private texts went into it, uncounted.
    """

    encoder: SentenceEncoder
    directions: Directions
    channel: Channel
    entrance: Linear
    writer: Pretrained
    longest: int = 32
    exposures: tuple[Exposure, ...] = ()

    def __post_init__(self) -> None:
        if self.writer.tokenizer is None:
            raise BadInput("model: its folder has no tokenizer, without which no text can be written; add its files.")
        refuse_endless(self.writer.tokenizer, encoded([""], self.writer.tokenizer, longest=self.longest)[0])
        _refuse_longer("longest", self.longest, self.writer)

    @property
    def teller(self) -> Teller:
        """What is trained."""
        return Teller(self.entrance, self.writer.model)

    def tokens(self, texts: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
        """What is to be written, "ids" and "mask" [texts, longest]: cut so that the end stays last, or padded."""
        tokenizer: Any = self.writer.tokenizer
        rows = Ragged.of(encoded(texts, tokenizer, longest=self.longest))
        ids, mask = rows.padded(np.arange(len(texts)), self.longest, tokenizer.pad_token_id)
        return {"ids": ids, "mask": mask}

    def loss(self, model: nnx.Module, batch: dict[str, jax.Array]) -> jax.Array:  # [batch]
        """The cross-entropy of each text given its own noisy latent and its σ, as the mean over its tokens (law 4)."""
        teller, ids, mask = cast(Teller, model), batch["ids"], batch["mask"]
        memory = teller.memory(self.channel.seen(*self.channel.noised(batch["latents"])))
        states, _ = teller.writer.decode(self.writer.decoder_inputs(ids, mask), memory)
        return cross_entropy.of_states(teller.writer, states, ids, mask)

    def states(self, latents: Latents, sigma: float) -> npt.NDArray[np.float32]:
        """What the decoder attends to for noisy latents of one σ: [texts, n] -> [texts, k, width]."""
        seen = self.channel.seen(jnp.asarray(latents, jnp.float32), jnp.full(len(latents), sigma, jnp.float32))
        return np.asarray(self.entrance(seen), np.float32)


def pretrain(
    texts: Sequence[str],
    writer: Pretrained,
    encoder: SentenceEncoder,
    *,
    private: bool,
    steps: int,
    batch: int = 64,
    optimizer: Optimizer = _OPTIMIZER,
    directions: int = 64,
    states: int = 8,
    epsilons: tuple[float, ...] = (1.0, 1000.0),
    delta: float = 1e-6,
    longest: int = 32,
    seed: int = 0,
    source: Source = OS_ENTROPY,
) -> Retelling:
    """A retelling of these texts that has learned to write them from n = `directions` entries and noise for `epsilons`.

    Empty texts are left out. Whatever lies before the decoder is not trained, but for the entrance, which starts from
    `seed` and makes k = `states` of a latent. Nothing is accounted for: `private` says whether someone is promised that
    the texts stay hidden; then what is learned of them is named as not covered.
    """
    told = [text for text in texts if text.strip()]
    if not told:
        raise BadInput(f"texts: none of the {len(texts)} has a word in it; give public texts, one sentence each.")
    budgets, entrance = Budgets(epsilons, delta), _entrance(directions, states, writer, seed)
    vectors = encoder(told)
    along = Directions.of(vectors, directions)
    latents = along.clip(along(vectors))
    made = Retelling(
        encoder,
        along,
        Channel.of(along.clip, latents, budgets),
        entrance,
        writer,
        longest,
        (Exposure.PRETRAINING,) if private else (),
    )
    schedule = Schedule(len(told), min(checks.count("batch", batch), len(told)), steps, Sampling.SHUFFLED)
    outcome = train(
        made.teller,
        made.loss,
        Arrays({"latents": latents.astype(np.float32), **made.tokens(told)}),
        Plan.without_privacy(schedule),
        optimizer.build(steps),
        Options(physical_batch=schedule.lot_size),
        trains=trained(made.teller),
        secret=Secret.drawn(source),
    )
    learnt = cast(Teller, outcome.model)
    return replace(made, entrance=learnt.entrance, writer=replace(writer, model=learnt.writer))


def trained(teller: Teller) -> freezing.Filter:
    """Which parameters learn: all but those of the encoder, which is not used."""
    return freezing.trained(teller, frozen=["writer.encoder*"])


@dataclass(frozen=True, eq=False)
class Retell(LatentRewriter):
    """The method with noise for ε and δ: Gaussian, or Laplace where δ = 0; none where ε is infinite.

    The decoder is told σ, or the smallest that it has learned with where there is less noise or none. `writing` says
    how a text is made of a noisy latent, by beam search or drawn, which is post-processing.
    """

    retelling: Retelling
    epsilon: float
    delta: float
    writing: Writing = _BEAMS
    source: Source = OS_ENTROPY
    clip: Clip = field(init=False)
    mechanism: Laplace | Gaussian | None = field(init=False)

    def __post_init__(self) -> None:
        _refuse_longer("writing.longest", self.writing.longest, self.retelling.writer)
        object.__setattr__(self, "clip", self.retelling.directions.clip)
        object.__setattr__(self, "mechanism", noise(self.clip, self.epsilon, self.delta, self.source))
        if self.sigma > self.retelling.channel.high * (1 + 1e-6):
            warnings.warn(
                f"epsilon = {self.epsilon}, delta = {self.delta}: the noise has σ = {self.sigma:.3g}, and the model "
                f"was trained for at most {self.retelling.channel.high:.3g}. What is promised holds, but the texts may "
                "be poor; use a larger ε, or train it for this one.",
                stacklevel=3,
            )

    @property
    def sigma(self) -> float:
        """The σ that the decoder is told: the deviation of the noise, and at least the smallest of the range."""
        low, mechanism = self.retelling.channel.low, self.mechanism
        if mechanism is None:
            return low
        return max(low, mechanism.sigma if isinstance(mechanism, Gaussian) else math.sqrt(2) * mechanism.scale)

    def encode(self, texts: Sequence[str]) -> npt.ArrayLike:
        return self.retelling.directions(self.retelling.encoder(texts))

    def decode(self, latents: Latents) -> list[str]:
        writer, states = self.retelling.writer, self.retelling.states(latents, self.sigma)
        options, tokenizer = self.writing.options(writer), cast(Any, writer.tokenizer)
        key = Secret.drawn(self.source).key("draws") if options.sample else None
        found = generate_from(writer.model, states, options, batch=self.writing.batch, key=key)
        return [tokenizer.decode(text, skip_special_tokens=True).strip() for text in found]

    def guarantee(self) -> Guarantee:
        return super().guarantee().with_exposures(*self.retelling.exposures)


def save(retelling: Retelling, folder: Path) -> None:
    """Writes all that the method needs into a new folder."""
    folder.mkdir(parents=True, exist_ok=True)
    save_encoder(retelling.encoder.encoder, folder / "encoder")
    pretrained.save(retelling.writer, folder / "model")
    along, channel, entrance = retelling.directions, retelling.channel, retelling.entrance
    learnt = {path: np.asarray(value) for path, value in _variables(entrance).items()}
    public = {"mean": along.mean, "axes": np.ascontiguousarray(along.axes), "variances": channel.variances}
    save_file({**public, **{f"entrance.{name}": value for name, value in learnt.items()}}, folder / _ARRAYS)
    entry = {
        "format": _FORMAT,
        "bound": along.bound,
        "low": channel.low,
        "high": channel.high,
        "states": entrance.shape[0],
        "longest": retelling.longest,
        "read": retelling.encoder.longest,
        "exposures": [str(exposure) for exposure in retelling.exposures],
    }
    (folder / _FILE).write_text(json.dumps(entry, indent=2) + "\n", encoding="utf-8")


def opened(folder: Path) -> Retelling:
    """What `save` wrote."""
    writer = pretrained.load(folder / "model")
    with readable(folder / _FILE):
        entry = parse_json(text_in(folder / _FILE))
        if entry["format"] != _FORMAT:
            raise BadInput(
                f"{folder / _FILE}: format = {entry['format']}, and this dpnlp reads {_FORMAT}; make it again."
            )
        arrays = read_arrays(folder / _ARRAYS)
        along = Directions(arrays["mean"], arrays["axes"], entry["bound"])
        channel = Channel(entry["bound"], arrays["variances"], entry["low"], entry["high"])
        entrance = _entrance(len(channel.variances), entry["states"], writer, 0)
        for name, variable in _variables(entrance).items():
            variable.set_value(jnp.asarray(arrays[f"entrance.{name}"]))
        exposures = tuple(Exposure(word) for word in entry["exposures"])
    encoder = SentenceEncoder.load(folder / "encoder", longest=entry["read"])
    return Retelling(encoder, along, channel, entrance, writer, entry["longest"], exposures)


def load(folder: Path, epsilon: float, delta: float = 0.0, source: Source = OS_ENTROPY) -> Retell:
    """The one in the folder of a rewriter. It writes at most as many tokens as it has learned to."""
    retelling = opened(folder)
    return Retell(retelling, epsilon, delta, replace(_BEAMS, longest=retelling.longest), source)


def _entrance(directions: int, states: int, writer: Pretrained, seed: int) -> Linear:
    shape = checks.count("states", states), writer.model.config.width
    return Linear(checks.count("directions", directions) + 1, shape, rngs=nnx.Rngs(seed))


def _variables(entrance: Linear) -> dict[str, nnx.Variable[Any]]:
    return {freezing.dotted(path): variable for path, variable in nnx.to_flat_state(nnx.state(entrance))}


def _refuse_longer(name: str, longest: int, writer: Pretrained) -> None:
    most = getattr(writer.model.config, "positions", math.inf)
    if longest > most:
        raise BadInput(f"{name} = {longest}: the model has positions for at most {most}; take no more.")
