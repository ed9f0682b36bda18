"""Models that read a text and label it: as a whole, token by token, or by where an answer starts and ends.

A reader is an encoder (BERT, or word vectors), for some strategies a bidirectional LSTM on its states, and a linear
layer. The strategies are the five of Senge et al. 2022 (arXiv 2112.08159), and adapters (LoRA):

    strategy     reads with           trains                                        runs once
    bilstm       word vectors, LSTM   LSTM, head, and vectors not pre-trained       nothing
    tr-no-lstm   BERT, LSTM           LSTM, head                                    all of BERT
    tr-no        BERT                 head                                          all of BERT
    tr-last2     BERT                 the last two layers, pooler, head             the layers below
    tr-all       BERT                 all but the input embeddings and their norm   nothing
    lora         BERT                 adapters, pooler, head                        nothing

A whole text is, with an LSTM, the mean of its tokens' states; without one the pooled state of its first token, as in
BERT. The pooler counts as part of BERT where it is pre-trained, so that tr-no freezes it, and else as part of the head.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NoReturn

import jax
import jax.numpy as jnp
from flax import nnx

from dpnlp import checks, dropout
from dpnlp.bookkeeping import Array
from dpnlp.checks import BadInput
from dpnlp.models import freezing, lora
from dpnlp.models.attention import real
from dpnlp.models.bert import BERT
from dpnlp.models.layers import Dropout, Linear, relu
from dpnlp.models.lstm import BiLSTM, mean
from dpnlp.models.word_vectors import WordVectors

POOLERS = {"tanh": jnp.tanh, "relu": relu}
"""Activations of the layer that makes the state of a text from that of its first token."""


class _Choice(StrEnum):
    """One of a few names; another one is refused in a sentence."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise BadInput(f"{cls.__name__.lower()} = {value!r}: it must be one of {', '.join(cls)}.")


class Head(_Choice):
    """What is labelled."""

    SEQUENCES = "sequences"  # a text, or a pair of texts
    TOKENS = "tokens"  # each token
    SPANS = "spans"  # for each token whether an answer starts and ends there; at the first one: there is no answer


class Strategy(_Choice):
    """What reads, and which part of it is trained."""

    BILSTM = "bilstm"
    TR_NO_LSTM = "tr-no-lstm"
    TR_NO = "tr-no"
    TR_LAST2 = "tr-last2"
    TR_ALL = "tr-all"
    LORA = "lora"

    @property
    def lstm(self) -> bool:
        """Whether an LSTM reads the states of the encoder."""
        return self in (Strategy.BILSTM, Strategy.TR_NO_LSTM)

    def frozen_layers(self, layers: int) -> int:
        """How many layers at the bottom of an encoder of so many never change, and are worth running once.

        The embeddings count as one. It is 0 for a strategy that freezes no more than these: they are looked up as fast
        as what was kept of them would be read.
        """
        frozen = {Strategy.TR_NO_LSTM: layers, Strategy.TR_NO: layers, Strategy.TR_LAST2: layers - 2}
        return 1 + frozen[self] if self in frozen else 0


@dataclass(frozen=True)
class Config:
    """What is on top of an encoder."""

    head: Head
    labels: int  # of spans there are two: start and end
    strategy: Strategy = Strategy.TR_ALL
    hidden: int = 128  # the LSTM's width in each direction
    pooler: str = "tanh"
    dropout: float = 0.0  # of what the head is given
    pooler_dropout: float = 0.0  # of what the pooler is given

    def __post_init__(self) -> None:
        object.__setattr__(self, "head", Head(self.head))
        object.__setattr__(self, "strategy", Strategy(self.strategy))
        if self.pooler not in POOLERS:
            raise BadInput(f"pooler = {self.pooler!r}: it must be one of {', '.join(POOLERS)}.")
        checks.count("labels", self.labels, 2, "there is nothing to learn about fewer")
        if self.head is Head.SPANS and self.labels != 2:
            raise BadInput(f"labels = {self.labels}: a span has two, start and end; leave it out.")
        checks.count("hidden", self.hidden)


class Reader(nnx.Module):
    """An encoder, which becomes part of the reader, and what is on top of it, at random first.

    A pooler of the encoder becomes that of the reader, or is dropped where no text is labelled as a whole.
    """

    def __init__(self, encoder: BERT | WordVectors, config: Config, *, rngs: nnx.Rngs) -> None:
        _refuse_other_encoders(encoder, config.strategy)
        self.config, self.encoder = config, encoder
        width, pooler = encoder.config.width, None
        if isinstance(encoder, BERT):
            pooler, encoder.pooler = encoder.pooler, None
            encoder.config = replace(encoder.config, pooler=False)
        pools = config.head is Head.SEQUENCES and not config.strategy.lstm
        self.fresh_pooler = pools and pooler is None
        self.pooler = (pooler or Linear(width, width, rngs=rngs)) if pools else None
        self.lstm = BiLSTM(width, config.hidden, rngs=rngs) if config.strategy.lstm else None
        self.head = Linear(2 * config.hidden if config.strategy.lstm else width, config.labels, rngs=rngs)
        self.dropout, self.pooler_dropout = Dropout(config.dropout), Dropout(config.pooler_dropout)

    def __call__(self, batch: Mapping[str, Array]) -> Array:
        """Logits in float32: [batch, labels] for sequences, else [batch, length, labels].

        The batch has the "mask" [batch, length] and either "ids" and "types" of the same shape or, where `bottom` was
        run before, its "states" [batch, length or 1, width], of any float type.
        """
        states, mask = self._states(batch), batch["mask"]
        for layer in list(self.encoder.layers)[self._run_once :]:
            states = layer(states, real(mask))
        if self.lstm is not None:
            states = self.lstm(states, mask)
        if self.config.head is Head.SEQUENCES:
            states = mean(states, mask) if self.pooler is None else self._pooled(states, self.pooler)
        return self.head(self.dropout(states).astype(jnp.float32))

    def bottom(self, ids: Array, mask: Array, types: Array | None = None) -> Array:
        """The states of the frozen part, [batch, length] -> [batch, length, width], with nothing dropped in it.

        They never change, so that they can be kept over a whole training. Of a text that is labelled as a whole by a
        wholly frozen BERT the first token's state is all that is used: [batch, 1, width].
        """
        if not self.frozen_layers:
            raise BadInput(f"strategy = {self.config.strategy}: it freezes no layer that could run once; run them all.")
        with dropout.paused():
            states = self.encoder.embed(ids, types)
            for layer in list(self.encoder.layers)[: self._run_once]:
                states = layer(states, real(mask))
        return jax.lax.stop_gradient(states[:, :1] if self._first_alone else states)

    @property
    def frozen_layers(self) -> int:
        """How many layers, the embeddings among them, `bottom` runs; 0 where it is not worth it."""
        return self.config.strategy.frozen_layers(len(self.encoder.layers))

    def trained(self) -> freezing.Filter:
        """The parameters that the strategy trains, for a run to train these."""
        return freezing.trained(self, self.trains)

    @property
    def trains(self) -> tuple[str, ...]:
        """The parameters that the strategy trains, as patterns of `freezing`."""
        strategy = self.config.strategy
        pools = self.pooler is not None and (self.fresh_pooler or strategy is not Strategy.TR_NO)
        top = ("pooler", "head") if pools else ("head",)
        if strategy.lstm:
            vectors = isinstance(self.encoder, WordVectors) and self.encoder.config.trained
            return (*(("encoder",) if vectors else ()), "lstm", *top)
        if strategy is Strategy.LORA and not lora.adapted(self):
            raise BadInput("strategy = lora: the reader has no adapters yet; put some in with `lora.adapt`.")
        return (*_LAYERS[strategy], *top)

    def start_from(self, shares: Sequence[float]) -> None:
        """Sets the head's bias to log share, so that at first each label is expected as often as this says.

        Shares that were counted on private data are private; take public ones.
        """
        if self.config.head is Head.SPANS:
            raise BadInput("shares: an answer's start and end are places, not labels; leave the shares out.")
        if len(shares) != self.config.labels:
            raise BadInput(f"shares: there are {len(shares)} for {self.config.labels} labels; give one for each.")
        given = jnp.array([checks.positive("shares", share) for share in shares])
        bias = self.head.bias
        assert bias is not None
        bias.value.set_value(jnp.log(given / given.sum()).astype(bias.value.dtype))

    @property
    def _run_once(self) -> int:
        """The layers that `bottom` runs, the embeddings aside."""
        return max(0, self.frozen_layers - 1)

    @property
    def _first_alone(self) -> bool:
        return self.config.strategy is Strategy.TR_NO and self.config.head is Head.SEQUENCES

    def _states(self, batch: Mapping[str, Array]) -> Array:  # [batch, length or 1, width]
        """What the layers that may change are given."""
        if "states" not in batch:
            enter = self.bottom if self.frozen_layers else lambda ids, _, types: self.encoder.embed(ids, types)
            return enter(batch["ids"], batch["mask"], batch.get("types"))
        if not self.frozen_layers:
            raise BadInput(f"states: with the strategy {self.config.strategy} there are none to keep; give ids.")
        return batch["states"].astype(self.encoder.dtype)

    def _pooled(self, states: Array, pooler: Linear) -> Array:  # [batch, length or 1, width] -> [batch, width]
        return POOLERS[self.config.pooler](pooler(self.pooler_dropout(states[:, 0])))


_LAYERS = {
    Strategy.TR_NO: (),
    Strategy.TR_LAST2: ("encoder.layers.last:2",),
    Strategy.TR_ALL: ("encoder.layers",),
    Strategy.LORA: ("encoder.*.A", "encoder.*.B"),
}
"""What each strategy without an LSTM trains of the encoder."""


def _refuse_other_encoders(encoder: BERT | WordVectors, strategy: Strategy) -> None:
    if isinstance(encoder, WordVectors) != (strategy is Strategy.BILSTM):
        wants, has = ("word vectors", "a BERT") if strategy is Strategy.BILSTM else ("a BERT", "word vectors")
        raise BadInput(f"strategy = {strategy}: it reads with {wants}, and the encoder is {has}; choose another one.")
    if strategy is Strategy.TR_LAST2 and len(encoder.layers) < 2:
        raise BadInput(f"strategy = {strategy}: the encoder has 1 layer, and must have at least 2; choose tr-all.")
