"""Text from a model that writes: greedy, by beam search, or drawn at random, as transformers' `generate` defines them.

The keys and values of all tokens so far are kept in arrays of a fixed size, and one compiled loop runs until every text
of a batch has ended. Inputs are padded to a few lengths, so that few programs are compiled. What becomes of an input
does not depend on the others of its batch.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from dpnlp import checks
from dpnlp.bookkeeping import Array
from dpnlp.checks import BadInput
from dpnlp.models.drawing import categorical
from dpnlp.models.layers import PositionBuckets
from dpnlp.models.writer import SoFar, Writer

LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
"""The lengths that inputs are padded to, unless told otherwise."""

_NEVER = -1.0e9
"""The score of what has not ended, and of what has, where it must not be chosen. Finite, so that sums stay numbers."""


@dataclass(frozen=True)
class Generation:
    """How a text is made. Lengths are in new tokens, the end among them."""

    max_length: int
    start: int  # what the decoder begins with
    end: int | tuple[int, ...]  # what a text ends with; with () it goes on to the maximum length
    pad: int
    min_length: int = 0
    beams: int = 1
    length_penalty: float = 1.0  # a text's score is its log-probability over its length to this power
    early_stopping: bool | str = False  # True: at as many ends as beams; False: by a guess; "never": when it is certain
    sample: bool = False
    temperature: float = 1.0
    top_k: int | None = None  # draw among the so many most probable
    top_p: float = 1.0  # draw among the most probable that have this probability together
    forced_first: int | None = None
    forced_last: int | None = None  # where the maximum length is reached
    suppressed: tuple[int, ...] = ()
    no_repeat_ngram: int = 0  # so many tokens in a row occur only once; 0 allows all
    bounds: tuple[float, float] | None = None  # what the logits are clipped to, before all else

    def __post_init__(self) -> None:
        object.__setattr__(self, "end", tuple(np.atleast_1d(self.end).tolist()))
        object.__setattr__(self, "suppressed", tuple(self.suppressed))
        for name in ("max_length", "beams"):
            checks.count(name, getattr(self, name))
        for name in ("min_length", "no_repeat_ngram"):
            checks.count(name, getattr(self, name), least=0)
        for name, token in self.tokens:
            checks.count(name, token, least=0)
        if self.min_length > self.max_length:
            raise BadInput(
                f"min_length = {self.min_length}: it must be at most max_length = {self.max_length}; lower the one or "
                "raise the other."
            )
        if not math.isfinite(self.length_penalty):
            raise BadInput(f"length_penalty = {self.length_penalty}: it must be a finite number; 1 is the usual one.")
        if not isinstance(self.early_stopping, bool) and self.early_stopping != "never":
            raise BadInput(
                f"early_stopping = {self.early_stopping!r}: it must be false, true or 'never'; false is the usual one."
            )
        checks.positive("temperature", self.temperature, "for the most probable text set sample to false")
        checks.share("top_p", self.top_p, "1 keeps all tokens")
        if self.top_k is not None:
            checks.count("top_k", self.top_k, remedy="leave it out to keep all tokens")
        if self.bounds is not None and not -math.inf < self.bounds[0] < self.bounds[1] < math.inf:
            raise BadInput(f"bounds = {self.bounds}: it must be two finite numbers, the lower one first.")
        if self.sample and self.beams > 1:
            raise BadInput(
                f"beams = {self.beams}: it must be 1 where texts are drawn; set beams to 1, or sample to false."
            )

    @property
    def ends(self) -> tuple[int, ...]:
        """What a text ends with."""
        return self.end if isinstance(self.end, tuple) else (self.end,)

    @property
    def tokens(self) -> Iterator[tuple[str, int]]:
        """All tokens that are named here, each with the field."""
        for name in ("start", "end", "pad", "forced_first", "forced_last", "suppressed"):
            value = getattr(self, name)
            for token in value if isinstance(value, tuple) else (value,):
                if token is not None:
                    yield name, token


def generate(
    model: Writer,
    inputs: Sequence[Sequence[int]],
    options: Generation,
    *,
    batch: int = 32,
    lengths: Sequence[int] = LENGTHS,
    key: Array | None = None,
    mesh: Mesh | None = None,
) -> list[list[int]]:
    """The text for each input, as tokens without start, end and padding, in the order of the inputs.

    Inputs of similar length share a batch and are padded to the next of `lengths`; longer ones are refused. Where texts
    are drawn, the i-th is drawn with `key` and i alone. With a `mesh` each batch is spread over its axis "data".
    """
    limit = model.longest_input(options.max_length)
    lengths = sorted({length if limit is None else min(length, limit) for length in lengths})
    _check(inputs, lengths[-1], model.config.vocabulary)

    def padded(rows: list[int]) -> tuple[NDArray[Any], NDArray[Any]]:
        length = next(length for length in lengths if length >= len(inputs[rows[0]]))
        ids, mask = np.full((len(rows), length), options.pad, np.int32), np.zeros((len(rows), length), np.int32)
        for place, row in enumerate(rows):
            ids[place, : len(inputs[row])], mask[place, : len(inputs[row])] = inputs[row], 1
        return ids, mask

    order = sorted(range(len(inputs)), key=lambda index: -len(inputs[index]))
    return _in_batches(model, order, padded, options, batch, key, mesh)


def generate_from(
    model: Writer,
    states: NDArray[Any],
    options: Generation,
    *,
    batch: int = 32,
    key: Array | None = None,
    mesh: Mesh | None = None,
) -> list[list[int]]:
    """The same for inputs that are no tokens, but states to be taken for the encoder's: [inputs, positions, width].

    The decoder attends to all positions, and sees nothing else of an input.
    """

    def taken(rows: list[int]) -> tuple[NDArray[Any], NDArray[Any]]:
        return states[np.array(rows)], np.ones((len(rows), states.shape[1]), np.int32)

    return _in_batches(model, range(len(states)), taken, options, batch, key, mesh)


def _in_batches(
    model: Writer,
    order: Sequence[int],
    inputs: Callable[[list[int]], tuple[NDArray[Any], NDArray[Any]]],
    options: Generation,
    batch: int,
    key: Array | None,
    mesh: Mesh | None,
) -> list[list[int]]:
    """The text for each input, by their numbers. They are taken in this order; `inputs` has some, and their mask."""
    checks.count("batch", batch)
    if options.sample and key is None:
        raise BadInput("key = None: texts that are drawn need a random key; give one, or set sample to false.")
    devices = 1 if mesh is None else mesh.shape["data"]
    structure, weights = nnx.split(model)
    if mesh is not None:
        weights = jax.device_put(weights, NamedSharding(mesh, PartitionSpec()))  # type: ignore[no-untyped-call]

    texts: list[list[int]] = [[] for _ in order]
    for first in range(0, len(order), batch):
        rows = list(order[first : first + batch])
        size = devices  # doubled until they fit, so that what is left over at last has one of a few sizes
        while size < len(rows):
            size = min(2 * size, -(-batch // devices) * devices)
        filled = rows + rows[-1:] * (size - len(rows))
        keys = None
        if options.sample and key is not None:
            keys = jax.vmap(partial(jax.random.fold_in, key))(np.array(filled))
        found = np.asarray(search(structure, weights, *inputs(filled), keys, options=options, mesh=mesh))
        for row, text in zip(rows, found.tolist(), strict=False):
            texts[row] = _trimmed(text, options)
    return texts


@partial(jax.jit, static_argnames=("structure", "options", "mesh"))
def search(
    structure: Any,
    weights: Any,
    inputs: Array,
    mask: Array,
    keys: Array | None = None,
    *,
    options: Generation,
    mesh: Mesh | None = None,
) -> Array:
    """The texts for inputs [batch, source], with keys [batch] where they are drawn: [batch, maximum length].

    `structure` and `weights` are the model, as `nnx.split` takes it apart. Inputs may be states in place of the
    encoder's, [batch, source, width]. After its end a text is padded.
    """

    def local(weights: Any, inputs: Array, mask: Array, keys: Array | None) -> Array:
        model = _cast(nnx.merge(structure, weights))
        memory, starts = model.read(inputs, mask, options.start)
        return (
            _beams(model, memory, starts, options) if options.beams > 1 else _one(model, memory, starts, keys, options)
        )

    if mesh is None:
        return local(weights, inputs, mask, keys)
    # Each device goes its own way and stops when its own texts have ended.
    whole, rows = PartitionSpec(), PartitionSpec("data")  # type: ignore[no-untyped-call]
    spread = jax.shard_map(local, mesh=mesh, in_specs=(whole, rows, rows, rows), out_specs=rows, check_vma=False)
    texts: Array = spread(weights, inputs, mask, keys)
    return texts


def compiled() -> int:
    """How many programs `search` has compiled so far: one for each model, options and shape of a batch."""
    return int(search._cache_size())  # type: ignore[attr-defined]


class _Text(NamedTuple):
    """One text for each input, as far as it has come."""

    step: Array
    past: SoFar
    tokens: Array  # [batch, 1 + maximum length]: the start, and what came after it
    done: Array  # [batch]


def _one(model: Writer, memory: Any, starts: Array, keys: Array | None, options: Generation) -> Array:
    """The most probable token after the other, or one that is drawn: [batch, maximum length]."""

    def turn(now: _Text) -> _Text:
        logits, past = _next(model, memory, now.past, now.tokens, now.step, options)
        scores = _allowed(logits, now.tokens, now.step, options)
        token = _best(scores, 1)[1][:, 0] if keys is None else _drawn(scores, _folded(keys, now.step), options)
        token = jnp.where(now.done, options.pad, token)
        tokens = now.tokens.at[:, now.step + 1].set(token)
        return _Text(now.step + 1, past, tokens, now.done | _is_in(token, options.ends))

    past = model.empty(memory, 1, options.max_length)
    begin = _Text(jnp.asarray(0), past, _blank(starts, options), jnp.zeros(starts.shape, bool))
    return jax.lax.while_loop(lambda now: _goes_on(now, options), turn, begin).tokens[:, 1:]


class _Beams(NamedTuple):
    """The best texts of each input that have not ended, and the best that have."""

    step: Array
    past: SoFar
    tokens: Array  # [batch, beams, 1 + maximum length]
    scores: Array  # [batch, beams], log-probabilities, the best first
    ended_tokens: Array  # [batch, beams, 1 + maximum length]
    ended_scores: Array  # [batch, beams], the best first
    ended: Array  # [batch, beams]: whether there is such a text yet
    done: Array  # [batch]


def _beams(model: Writer, memory: Any, starts: Array, options: Generation) -> Array:
    """Beam search: [batch, maximum length]."""
    batch, beams = starts.shape[0], options.beams
    kept = max(2, 1 + len(options.ends)) * beams  # so many that as many as there are beams do not end
    penalties = jnp.asarray(np.arange(1, options.max_length + 1) ** float(options.length_penalty), jnp.float32)

    def turn(now: _Beams) -> _Beams:
        flat = now.tokens.reshape(batch * beams, -1)
        logits, past = _next(model, memory, now.past, flat, now.step, options)
        logits = logits - jax.nn.logsumexp(logits, axis=-1, keepdims=True)
        scores = _allowed(logits, flat, now.step, options) + now.scores.reshape(-1, 1)
        scores, token = (a.reshape(batch, -1) for a in _best(scores, min(kept, logits.shape[-1])))
        origin = jnp.arange(scores.shape[1]) // (scores.shape[1] // beams)  # the beam that a candidate continues

        scores, chosen = jax.lax.top_k(scores, kept)  # [batch, kept], the best first
        token, origin = jnp.take_along_axis(token, chosen, axis=1), origin[chosen]
        tokens = _taken(now.tokens, origin).at[:, :, now.step + 1].set(token)
        ends = _is_in(token, options.ends) | (now.step + 1 == options.max_length)

        running, chosen = jax.lax.top_k(scores + _NEVER * ends, beams)
        past = past.sorted(_taken(origin, chosen))

        counts = ends & (jnp.arange(kept) < beams) & ~now.done[:, None]
        new = jnp.where(counts, scores / penalties[now.step], _NEVER)
        ended_scores, best = jax.lax.top_k(jnp.concatenate([now.ended_scores, new], axis=1), beams)
        ended = _taken(jnp.concatenate([now.ended, counts], axis=1), best)
        ended_tokens = _taken(jnp.concatenate([now.ended_tokens, tokens], axis=1), best)

        longest = options.early_stopping == "never" and options.length_penalty > 0
        hoped = running[:, :1] / penalties[-1 if longest else now.step]
        better = jnp.any(hoped > jnp.where(ended, ended_scores[:, -1:], _NEVER), axis=1)
        done = now.done | ~better | (jnp.all(ended, axis=1) & (options.early_stopping is True))
        return _Beams(now.step + 1, past, _taken(tokens, chosen), running, ended_tokens, ended_scores, ended, done)

    blank = _blank(jnp.broadcast_to(starts[:, None], (batch, beams)), options)
    begin = _Beams(
        step=jnp.asarray(0),
        past=model.empty(memory, beams, options.max_length),
        tokens=blank,
        scores=jnp.broadcast_to(jnp.where(jnp.arange(beams) > 0, _NEVER, 0.0), (batch, beams)),  # all are the same yet
        ended_tokens=blank,
        ended_scores=jnp.full((batch, beams), _NEVER),
        ended=jnp.zeros((batch, beams), bool),
        done=jnp.zeros(batch, bool),
    )
    return jax.lax.while_loop(lambda now: _goes_on(now, options), turn, begin).ended_tokens[:, 0, 1:]


def _goes_on(now: _Text | _Beams, options: Generation) -> Array:
    return (now.step < options.max_length) & ~jnp.all(now.done)


def _next(
    model: Writer, memory: Any, past: SoFar, tokens: Array, step: Array, options: Generation
) -> tuple[Array, SoFar]:
    """The logits of the token after the last one, in float32: [rows, vocabulary], and the past with the last one."""
    last = jax.lax.dynamic_slice_in_dim(tokens, step, 1, axis=1)
    states, past = model.decode(last, memory, past, step)
    logits = model.logits(states)[:, 0].astype(jnp.float32)
    if options.bounds is not None:  # NaN would come through a clip, and win
        logits = jnp.clip(jnp.nan_to_num(logits, nan=options.bounds[0]), *options.bounds)
    return logits, past


def _allowed(scores: Array, tokens: Array, step: Array, options: Generation) -> Array:
    """Scores [rows, vocabulary], with −∞ for the tokens that the options forbid here."""
    vocabulary = scores.shape[1]
    for name, token in options.tokens:
        if token >= vocabulary:
            raise BadInput(f"{name} = {token}: a token must be below {vocabulary}, the size of the model's vocabulary.")

    def without(scores: Array, forbidden: tuple[int, ...], when: Array | bool = True) -> Array:
        if not forbidden:
            return scores
        listed = np.isin(np.arange(vocabulary), forbidden)
        return jnp.where(listed & when, -jnp.inf, scores)

    def forced(scores: Array, token: int | None, when: Array) -> Array:
        if token is None:
            return scores
        return jnp.where(when, jnp.where(np.arange(vocabulary) == token, 0.0, -jnp.inf), scores)

    if options.no_repeat_ngram:
        scores = _without_repeats(scores, tokens, step, options.no_repeat_ngram)
    if options.min_length:
        scores = without(scores, options.ends, step < options.min_length)
    scores = forced(scores, options.forced_first, step == 0)
    scores = forced(scores, options.forced_last, step == options.max_length - 1)
    return without(scores, options.suppressed)


def _without_repeats(scores: Array, tokens: Array, step: Array, size: int) -> Array:
    """Scores with −∞ for each token that would make `size` tokens in a row a second time."""
    ends = np.arange(size - 1, tokens.shape[1])  # where such a row may have ended
    latest = jax.lax.dynamic_slice_in_dim(tokens, jnp.maximum(step - size + 2, 0), size - 1, axis=1)
    same = jnp.broadcast_to((ends <= step) & (step >= size - 1), (tokens.shape[0], len(ends)))
    for back in range(1, size):
        same &= tokens[:, ends - back] == latest[:, -back, None]
    banned = jnp.where(same, tokens[:, ends], scores.shape[1])  # out of range, where nothing is banned
    return scores.at[np.arange(tokens.shape[0])[:, None], banned].set(-jnp.inf, mode="drop")


def _drawn(scores: Array, keys: Array, options: Generation) -> Array:
    """A token for each row [rows], by the softmax of its scores, of the most probable ones only if so wished."""
    scores = scores / options.temperature
    if options.top_k is None and options.top_p == 1:
        return jax.vmap(categorical)(keys, scores)
    scores, tokens = _best(scores, min(options.top_k or scores.shape[1], scores.shape[1]))
    shares = jax.nn.softmax(scores, axis=1)
    before = jnp.cumsum(shares, axis=1) - shares
    place = jax.vmap(categorical)(keys, jnp.where(before < options.top_p, scores, -jnp.inf))
    return jnp.take_along_axis(tokens, place[:, None], axis=1)[:, 0]


def _best(scores: Array, count: int, block: int = 128) -> tuple[Array, Array]:
    """The largest scores of each row and their tokens, the best first: [rows, vocabulary] -> [rows, count] each.

    They lie in the `count` blocks with the largest maxima, so that a whole row is read only for these.
    """
    rows, vocabulary = scores.shape
    if vocabulary < 4 * block * count:
        found, where = jax.lax.top_k(scores, count)
        return found, where
    padding = -vocabulary % block
    blocks = jnp.pad(scores, ((0, 0), (0, padding)), constant_values=-jnp.inf).reshape(rows, -1, block)
    _, chosen = jax.lax.top_k(jnp.max(blocks, axis=2), count)
    found, where = jax.lax.top_k(_taken(blocks, chosen).reshape(rows, -1), count)
    return found, jnp.take_along_axis(chosen, where // block, axis=1) * block + where % block


def _taken(values: Array, chosen: Array) -> Array:
    """Some entries of the second axis: [batch, n, …], [batch, m] -> [batch, m, …]."""
    return jnp.take_along_axis(values, chosen.reshape(*chosen.shape, *(1,) * (values.ndim - 2)), axis=1)


def _blank(starts: Array, options: Generation) -> Array:
    """Texts of which only the start is there, [..., 1 + maximum length]."""
    return jnp.full((*starts.shape, 1 + options.max_length), options.pad, jnp.int32).at[..., 0].set(starts)


def _is_in(tokens: Array, listed: tuple[int, ...]) -> Array:
    return jnp.isin(tokens, np.array(listed, np.int32))


def _folded(keys: Array, step: Array) -> Array:
    return jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, step)


def _cast(model: Writer) -> Writer:
    """Casts the weights to the type that the model computes in, once and not at each token.

    Those of relative positions are added to scores in float32 and stay as they are.
    """
    for _, module in nnx.iter_modules(model):
        for variable in () if isinstance(module, PositionBuckets) else vars(module).values():
            if isinstance(variable, nnx.Variable):
                variable.set_value(variable[...].astype(model.dtype))
    return model


def _check(inputs: Sequence[Sequence[int]], longest: int, vocabulary: int) -> None:
    for index, text in enumerate(inputs):
        if not len(text):
            raise BadInput(f"Input {index} has no tokens: at least one is needed; leave it out, or add the end token.")
        if len(text) > longest:
            raise BadInput(f"Input {index} has {len(text)} tokens: at most {longest} are allowed; shorten it.")
        if min(text) < 0 or max(text) >= vocabulary:
            wrong = next(token for token in text if not 0 <= token < vocabulary)
            raise BadInput(
                f"Input {index} has the token {wrong}: tokens must be from 0 to {vocabulary - 1}; use the model's own "
                "tokenizer."
            )


def _trimmed(tokens: list[int], options: Generation) -> list[int]:
    """Up to the first end, without what only marks a text."""
    length = next((place for place, token in enumerate(tokens) if token in options.ends), None)
    return [token for token in tokens[:length] if token not in (options.pad, options.start)]
