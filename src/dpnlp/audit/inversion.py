"""Model inversion (Fredrikson et al. 2015): the text that a classifier believes in most, for each of its labels.

For a label y, with E the table of token vectors, x = (x_1, …, x_T) vectors in place of those of T tokens, and p the
classifier's probability,

    1. maximise  ln p(y | x) − (λ/2) Σ_t ‖x_t − μ‖²/s²  over x, by gradient ascent, from several random texts. The prior
       is the Gaussian of the table: μ is the mean of its rows and s² the variance of a coordinate, so that vectors stay
       where those of tokens are;
    2. put the nearest token in the place of each vector;
    3. exchange one token at a time (HotFlip, Ebrahimi et al. 2018). Exchanging x_t for a row e changes ln p by about
       (e − x_t)·∂ln p/∂x_t; the exchanges that promise most are tried, and the best is made if it helps.

A probability that is told is that of the tokens, as the classifier reads them. What is found is what the model makes of
a label, and no text of its training set; whoever has that set compares the two by `rewriting.leakage`.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from numpy.typing import NDArray

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.guarantee import percent
from dpnlp.models.readers import Head, Reader, Strategy
from dpnlp.models.word_vectors import WordVectors
from dpnlp.tasks.classification import Classification

Array = jax.Array


@dataclass(frozen=True)
class Search:
    """How a text is sought."""

    length: int = 8  # tokens, T
    starts: int = 4  # random texts to begin with
    steps: int = 100  # of gradient ascent
    rate: float = 0.1  # of Adam, in deviations s
    prior: float = 1e-3  # λ
    tries: int = 32  # exchanges that are tried before one is made
    exchanges: int = 64  # at most, from each start

    def __post_init__(self) -> None:
        for name in ("length", "starts", "tries"):
            checks.count(name, getattr(self, name))
        for name in ("steps", "exchanges"):
            checks.count(name, getattr(self, name), least=0)
        checks.positive("rate", self.rate)
        checks.non_negative("prior", self.prior)


class Classifier(NamedTuple):
    """What is inverted: logits from vectors, and the vectors that tokens have."""

    logits: Callable[[Any, Array], Array]  # of weights and x [texts, T, width], [texts, labels]
    weights: Any
    table: Array  # [tokens, width]


@dataclass(frozen=True)
class Inverted:
    """The text that was found for a label."""

    label: str
    text: str
    tokens: tuple[str, ...]
    probability: float  # of the label, given these tokens
    by_chance: float  # its mean over the random texts that the search began with

    def statement(self) -> str:
        """What was found."""
        return (
            f"The model believes in {self.label!r} with {percent(self.probability)} where it reads {self.text!r}; "
            f"random tokens make it believe in that with {percent(self.by_chance)}."
        )

    def to_json(self) -> dict[str, Any]:
        """For a record of the run."""
        return {**asdict(self), "tokens": list(self.tokens)}


def inverted(task: Classification, search: Search, seed: int = 0, words: Sequence[str] = ()) -> list[Inverted]:
    """The text for each label that the task's model knows, of tokens that are no special ones, or of these words."""
    known, special = task.tokenizer.get_vocab(), set(task.tokenizer.all_special_ids)
    unknown = [word for word in words if word not in known]
    if unknown:
        raise BadInput(f"words: {unknown[0]!r} is no token of the model; give words that are.")
    allowed = sorted({known[word] for word in words or known} - special)
    if not allowed:
        raise BadInput("words: none of them is left to write a text with; give words that are no special tokens.")
    classifier, found = reading(task), []
    for place, label in enumerate(task.labels):
        best = invert(classifier, place, np.array(allowed), search, seed)
        tokens = tuple(task.tokenizer.convert_ids_to_tokens(best.tokens.tolist()))
        text = task.tokenizer.decode(best.tokens.tolist())
        found.append(Inverted(label, text, tokens, best.probability, best.by_chance))
    return found


class Best(NamedTuple):
    """Tokens [T], the probability of the label given them, and its mean over the random texts."""

    tokens: NDArray[np.int64]
    probability: float
    by_chance: float


def invert(classifier: Classifier, label: int, allowed: NDArray[np.int64], search: Search, seed: int = 0) -> Best:
    """The tokens, of those allowed, that make a classifier believe in a label most, from the best of the starts."""
    begun = np.random.default_rng(seed).choice(allowed, (search.starts, search.length))
    table = np.asarray(classifier.table)
    ascent = nearest(ascended(classifier, label, table[begun], search), table, allowed)
    # The random texts are gone on from too: where the ascent misleads, nothing is lost by it.
    texts = np.concatenate([begun, ascent])
    at_first = np.exp(_believed(classifier, label, texts))
    texts = exchanged(classifier, label, allowed, texts, search)
    reached = np.exp(_believed(classifier, label, texts))
    best = int(np.argmax(reached))
    return Best(texts[best], float(reached[best]), float(at_first[: search.starts].mean()))


def ascended(classifier: Classifier, label: int, start: NDArray[Any], search: Search) -> NDArray[np.float32]:
    """Step 1: vectors [texts, T, width] of the highest probability, in the light of the prior."""
    mean = jnp.mean(classifier.table, axis=0)
    spread = jnp.sqrt(jnp.mean((classifier.table - mean) ** 2))
    found = _ascended(classifier.logits, search, classifier.weights, label, jnp.asarray(start), mean, spread)
    return np.asarray(found)


@partial(jax.jit, static_argnums=(0, 1))
def _ascended(
    logits: Callable[[Any, Array], Array],
    search: Search,
    weights: Any,
    label: Array,
    start: Array,
    mean: Array,
    spread: Array,
) -> Array:
    adam = optax.adam(search.rate)

    def lost(z: Array) -> Array:  # z = (x − μ)/s
        return 0.5 * search.prior * jnp.sum(z * z) - jnp.sum(
            _log_probability(logits, weights, mean + spread * z, label)
        )

    def step(state: Any, _: None) -> tuple[Any, None]:
        z, moments = state
        updates, moments = adam.update(jax.grad(lost)(z), moments)
        return (optax.apply_updates(z, updates), moments), None

    z = (start - mean) / spread
    (z, _), _ = jax.lax.scan(step, (z, adam.init(z)), length=search.steps)
    return mean + spread * z


def nearest(vectors: NDArray[Any], table: NDArray[Any], allowed: NDArray[np.int64]) -> NDArray[np.int64]:
    """Step 2: for each vector [..., width] the allowed token whose row is nearest."""
    rows = table[allowed]
    distances = (rows * rows).sum(-1) - 2 * vectors @ rows.T  # and ‖x‖², which is the same for all rows
    found: NDArray[np.int64] = allowed[np.argmin(distances, axis=-1)]
    return found


def exchanged(
    classifier: Classifier, label: int, allowed: NDArray[np.int64], texts: NDArray[np.int64], search: Search
) -> NDArray[np.int64]:
    """Step 3: the texts [texts, T] after exchanges of one token each, until none of those that are tried helps."""
    table, reached, every = np.asarray(classifier.table), _believed(classifier, label, texts), np.arange(len(texts))
    for _ in range(search.exchanges):
        slopes = np.asarray(_slopes(classifier.logits, classifier.weights, table[texts], label))
        promised = slopes @ table[allowed].T - (slopes * table[texts]).sum(-1, keepdims=True)  # [texts, T, allowed]
        promised[allowed == texts[..., None]] = -np.inf
        tried = np.argsort(-promised.reshape(len(texts), -1), axis=1)[:, : search.tries]
        places, choices = np.divmod(tried, len(allowed))
        others = np.repeat(texts[:, None], tried.shape[1], axis=1)  # [texts, tries, T]
        np.put_along_axis(others, places[..., None], allowed[choices][..., None], axis=2)
        found = _believed(classifier, label, others.reshape(-1, texts.shape[1])).reshape(tried.shape)
        helps = found.max(axis=1) > reached
        if not helps.any():
            break
        texts = np.where(helps[:, None], others[every, found.argmax(axis=1)], texts)
        reached = np.maximum(reached, found.max(axis=1))
    return texts


def _believed(classifier: Classifier, label: int, texts: NDArray[np.int64]) -> NDArray[np.float32]:
    """ln p(label) of texts [texts, T]."""
    return np.asarray(_believes(classifier.logits, classifier.weights, classifier.table[texts], label))


def _log_probability(logits: Callable[[Any, Array], Array], weights: Any, x: Array, label: Array) -> Array:
    return jax.nn.log_softmax(logits(weights, x))[:, label]


_believes = partial(jax.jit, static_argnums=0)(_log_probability)


@partial(jax.jit, static_argnums=0)
def _slopes(logits: Callable[[Any, Array], Array], weights: Any, x: Array, label: Array) -> Array:
    """∂ln p/∂x, [texts, T, width]."""
    slopes: Array = jax.grad(lambda x: jnp.sum(_log_probability(logits, weights, x, label)))(x)
    return slopes


def reading(task: Classification) -> Classifier:
    """A task's model as a function of vectors, between the special tokens that the tokenizer puts around a text.

    The vectors become further rows of the model's table, and the tokens are the numbers of these rows.
    """
    model = _differentiable(task.model)
    frame = task.tokenizer("")["input_ids"]
    before, after = frame[: len(frame) // 2], frame[len(frame) // 2 :]
    structure, weights = nnx.split(model)

    def logits(weights: Any, x: Array) -> Array:
        reader: Reader = nnx.merge(structure, weights, copy=True)
        texts, length, width = x.shape
        table = reader.encoder.tokens.table
        rows = table.shape[0] + jnp.arange(texts * length).reshape(texts, length)
        around = [jnp.broadcast_to(jnp.array(side, rows.dtype), (texts, len(side))) for side in (before, after)]
        ids = jnp.concatenate([around[0], rows, around[1]], axis=1)
        table.set_value(jnp.concatenate([table[...], x.reshape(-1, width).astype(table.dtype)]))
        found: Array = reader({"ids": ids, "types": jnp.zeros_like(ids), "mask": jnp.ones_like(ids, bool)})
        return found

    return Classifier(logits, weights, jnp.asarray(model.encoder.tokens.table[...], jnp.float32))


def _differentiable(model: nnx.Module) -> Reader:
    """A copy of the reader without the barrier that keeps gradients from the layers below those that are trained."""
    if not isinstance(model, Reader) or model.config.head is not Head.SEQUENCES:
        raise BadInput(f"model = {type(model).__name__}: only a reader that labels whole texts is inverted; give one.")
    copy: Reader = nnx.clone(model)
    if not isinstance(copy.encoder, WordVectors):
        copy.config = replace(copy.config, strategy=Strategy.TR_ALL)
    return copy
