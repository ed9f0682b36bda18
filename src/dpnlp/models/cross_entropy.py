"""The loss of a model that writes, −Σ_v q_v log p_v for each token, also for vocabularies of 250,112 tokens.

q is 1 − s for the true token, plus s/V for each of the V tokens (label smoothing, Szegedy et al. 2016). With the logits
z and L = log Σ_v exp(z_v) the loss is L − (1−s) z_true − (s/V) Σ_v z_v, and its gradient ∂/∂z is softmax(z) − q.

In 16 bits the logits are held as a whole, and the gradient is made from them again: nothing of their size is ever in
float32. In float32 with a large vocabulary they are not held at all: a chunk of the vocabulary is looked at after the
other, and its logits are computed once more for the gradient.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from dpnlp import bookkeeping, checks
from dpnlp.bookkeeping import Array, Kind
from dpnlp.checks import BadInput
from dpnlp.models.layers import Embedding, Linear
from dpnlp.models.seq2seq import Seq2Seq
from dpnlp.models.writer import Writer

LARGE = 32_768
"""Above this vocabulary, float32 logits are not held as a whole."""

CHUNK = 8_192
"""How many tokens of such a vocabulary are looked at together."""


def losses(
    model: Seq2Seq, batch: Mapping[str, Array], *, smoothing: float = 0.0, mean: bool = True, chunk: int | None = None
) -> Array:
    """The loss of each example [batch]: the mean over its own target tokens, or their sum. Without any it is 0.

    The batch has `ids` and `mask` [batch, source], and `inputs` (of the decoder), `targets` and `target_mask`
    [batch, target].
    """
    states = model.states(batch["ids"], batch["mask"], batch["inputs"])
    return of_states(model, states, batch["targets"], batch["target_mask"], smoothing=smoothing, mean=mean, chunk=chunk)


def of_states(
    model: Writer,
    states: Array,
    targets: Array,
    mask: Array,
    *,
    smoothing: float = 0.0,
    mean: bool = True,
    chunk: int | None = None,
) -> Array:
    """The same from the decoder's states [batch, target, width]; the mask shows the real ones of the targets."""
    real = mask > 0
    total = jnp.sum(jnp.where(real, token_losses(model, states, targets, smoothing, chunk), 0), axis=1)
    return total / jnp.maximum(jnp.sum(real, axis=1), 1) if mean else total


def token_losses(
    model: Writer, states: Array, targets: Array, smoothing: float = 0.0, chunk: int | None = None
) -> Array:
    """The loss of each token [batch, target], in float32, from the decoder's states [batch, target, width].

    `chunk` is how many tokens of the vocabulary are looked at together; by default all, unless that is too much.
    """
    if not 0 <= smoothing < 1:
        raise BadInput(f"smoothing = {smoothing}: it must be at least 0 and below 1; 0.1 is usual, 0 smooths nothing.")
    layer, scale, bias = model.output_layer()
    matrix = _Matrix.of(layer)
    if chunk is None and matrix is not None and matrix.vocabulary > LARGE and states.dtype == jnp.float32:
        chunk = CHUNK
    if chunk is None:
        return _whole(smoothing, model.logits(states), targets)
    if matrix is None:
        raise BadInput(f"chunk = {chunk}: the output layer is no plain matrix; merge its adapters, or give no chunk.")
    form = _Form(min(checks.count("chunk", chunk), matrix.vocabulary), matrix.kind is Kind.OUTPUT, smoothing)
    x, tap = bookkeeping.tap_alone(matrix.weight, matrix.kind, states * scale, matrix.vocabulary)
    return _chunked(form, x, bookkeeping.read(matrix.weight), bias, tap, targets)


class _Matrix(NamedTuple):
    """The weight of an output layer: [width, vocabulary], or a table [vocabulary, width]."""

    weight: nnx.Variable[Array]
    kind: Kind

    @classmethod
    def of(cls, layer: nnx.Module) -> "_Matrix | None":
        """That of a layer that has nothing else, else none."""
        if isinstance(layer, Embedding):
            return cls(layer.table, Kind.OUTPUT)
        return cls(layer.kernel, Kind.INPUT) if isinstance(layer, Linear) and layer.bias is None else None

    @property
    def vocabulary(self) -> int:
        return self.weight.shape[0 if self.kind is Kind.OUTPUT else 1]


class _Seen(NamedTuple):
    """What the loss needs of the logits z that were seen so far, [batch, target] each, in float32."""

    top: Array  # the largest z
    sum: Array  # Σ exp(z − top)
    true: Array  # z of the true token, or 0 before it was seen
    total: Array  # Σ z

    @classmethod
    def of(cls, logits: Array, targets: Array) -> "_Seen":
        """Of some logits [batch, target, size]; the true tokens are counted from the first of them."""
        z = logits.astype(jnp.float32)
        top = jnp.max(z, axis=-1, initial=_LEAST)
        true = jnp.sum(jnp.where(_is_true(logits, targets), z, 0), axis=-1)
        return cls(top, jnp.sum(jnp.exp(z - top[..., None]), axis=-1), true, jnp.sum(z, axis=-1))

    def and_more(self, more: "_Seen") -> "_Seen":
        """Of both together."""
        top = jnp.maximum(self.top, more.top)
        sums = self.sum * jnp.exp(self.top - top) + more.sum * jnp.exp(more.top - top)
        return _Seen(top, sums, self.true + more.true, self.total + more.total)

    @property
    def L(self) -> Array:
        return self.top + jnp.log(self.sum)

    def loss(self, smoothing: float, vocabulary: int) -> Array:
        """L − (1−s) z_true − (s/V) Σ z."""
        plain = self.L - (1 - smoothing) * self.true
        return plain - smoothing / vocabulary * self.total if smoothing else plain


_LEAST = float(jnp.finfo(jnp.float32).min)  # type: ignore[no-untyped-call]


def _gradient(logits: Array, targets: Array, L: Array, smoothing: float, vocabulary: int, upstream: Array) -> Array:
    """upstream · (softmax(z) − q) for some of the logits, in their type."""
    p = jnp.exp(logits.astype(jnp.float32) - L[..., None])
    q = jnp.where(_is_true(logits, targets), 1 - smoothing, 0) + smoothing / vocabulary
    return (upstream[..., None] * (p - q)).astype(logits.dtype)


def _is_true(logits: Array, targets: Array) -> Array:
    """Compared, not looked up: a comparison fuses with what is done with it, and the gradient is no slow scatter."""
    return targets[..., None] == jnp.arange(logits.shape[-1])


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _whole(smoothing: float, logits: Array, targets: Array) -> Array:  # [batch, target, vocabulary] -> [batch, target]
    return _whole_forward(smoothing, logits, targets)[0]


def _whole_forward(smoothing: float, logits: Array, targets: Array) -> tuple[Array, tuple[Array, ...]]:
    seen = _Seen.of(logits, targets)
    return seen.loss(smoothing, logits.shape[-1]), (logits, targets, seen.L)


def _whole_backward(smoothing: float, kept: tuple[Array, ...], upstream: Array) -> tuple[Array, None]:
    logits, targets, L = kept
    return _gradient(logits, targets, L, smoothing, logits.shape[-1], upstream), None


_whole.defvjp(_whole_forward, _whole_backward)


class _Form(NamedTuple):
    """How the vocabulary is looked at."""

    chunk: int
    by_rows: bool  # the weight is a table [vocabulary, width], else a matrix [width, vocabulary]
    smoothing: float

    @property
    def axis(self) -> int:
        return 0 if self.by_rows else 1

    def over(self, vocabulary: int, look: Callable[[Array | int, int, Any], Any], start: Any) -> Any:
        """`look(first token, how many, what was carried so far)` over all chunks; a smaller one at the end comes first.

        What a loop returns lies in memory once. After it, the compiler would put in the smaller one at every use.
        """
        whole, rest = divmod(vocabulary, self.chunk)
        carried = look(whole * self.chunk, rest, start) if rest else start
        return jax.lax.fori_loop(0, whole, lambda i, carried: look(i * self.chunk, self.chunk, carried), carried)

    def part(self, weight: Array, first: Array | int, size: int, x: Array) -> Array:
        """The weight of a chunk as [width, size], in the type of x."""
        part = jax.lax.dynamic_slice_in_dim(weight, first, size, self.axis).astype(x.dtype)
        return part.T if self.by_rows else part

    def logits(self, x: Array, part: Array, bias: Array | None, first: Array | int) -> Array:
        """Those of a chunk, [tokens, size]."""
        z = x @ part
        return z if bias is None else z + jax.lax.dynamic_slice_in_dim(bias, first, z.shape[-1]).astype(z.dtype)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _chunked(form: _Form, x: Array, weight: Array, bias: Array | None, tap: Array | None, targets: Array) -> Array:
    """[batch, target, width] -> [batch, target]. The bias is fixed. The tap, which is zeros, only gets its gradient."""
    return _chunked_forward(form, x, weight, bias, tap, targets)[0]


def _chunked_forward(
    form: _Form, x: Array, weight: Array, bias: Array | None, tap: Array | None, targets: Array
) -> tuple[Array, tuple[Any, ...]]:
    flat, true, vocabulary = x.reshape(-1, x.shape[-1]), targets.reshape(-1), weight.shape[form.axis]

    def look(first: Array | int, size: int, seen: _Seen) -> _Seen:
        logits = form.logits(flat, form.part(weight, first, size, x), bias, first)
        return seen.and_more(_Seen.of(logits, true - first))

    zero = jnp.zeros(true.shape)
    seen = form.over(vocabulary, look, _Seen(zero + _LEAST, zero, zero, zero))
    kept = x, weight, bias, None if tap is None else (), targets, seen.L
    return seen.loss(form.smoothing, vocabulary).reshape(targets.shape), kept


def _chunked_backward(form: _Form, kept: tuple[Any, ...], upstream: Array) -> tuple[Array | None, ...]:
    x, weight, bias, tapped, targets, L = kept
    flat, true, vocabulary = x.reshape(-1, x.shape[-1]), targets.reshape(-1), weight.shape[form.axis]
    wide = partial(jnp.matmul, preferred_element_type=jnp.float32)

    def look(first: Array | int, size: int, gradients: tuple[Array, Array, Array | None]) -> tuple[Any, ...]:
        of_x, of_weight, of_tap = gradients
        part = form.part(weight, first, size, x)
        of_logits = _gradient(
            form.logits(flat, part, bias, first), true - first, L, form.smoothing, vocabulary, upstream.reshape(-1)
        )
        own = wide(of_logits.T, flat) if form.by_rows else wide(flat.T, of_logits)
        put = jax.lax.dynamic_update_slice_in_dim
        return (
            of_x + wide(of_logits, part.T),
            put(of_weight, own.astype(weight.dtype), first, form.axis),
            None if of_tap is None else put(of_tap, bookkeeping.finite(of_logits), first, 1),
        )

    empty = None if tapped is None else jnp.zeros((len(flat), vocabulary), x.dtype)
    start = jnp.zeros(flat.shape), jnp.zeros_like(weight), empty
    of_x, of_weight, of_tap = form.over(vocabulary, look, start)
    of_tap = None if of_tap is None else of_tap.reshape(*targets.shape, vocabulary)
    return of_x.reshape(x.shape).astype(x.dtype), of_weight, None, of_tap, None


_chunked.defvjp(_chunked_forward, _chunked_backward)
