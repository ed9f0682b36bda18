"""Per-example clipping by book-keeping (Bu et al. 2022, arXiv 2210.00038), exact for shared and tied weights.

One forward pass notes the inputs a of every weight, one backward pass with respect to zero taps gives all g and no
weight gradient. The squared norm of an example's gradient is ⟨aaᵀ, ggᵀ⟩, summed over all pairs of uses of a weight, and
the clipped sum is one contraction of a, g and the clip factors c. So a private step is a non-private one plus norms.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from dpnlp.bookkeeping import Array, Kind, Tape, Use, recording
from dpnlp.checks import BadInput

Path = tuple[Any, ...]
Loss = Callable[[nnx.Module, Any], Array]
"""Per-example losses [batch] of a model on a batch; each may depend on its own example alone (law 4)."""


class Clipped(NamedTuple):
    """The sum over the records of clipped gradients, for each trained weight by its path, and what clipping saw."""

    gradients: dict[Path, Array]
    norms: Array  # [records], before clipping; not finite where a gradient was not, which then counts as zero
    losses: Array  # [batch]


def clipped_sum(
    loss: Loss,
    model: nnx.Module,
    batch: Any,
    weights: Array,
    clip_norm: float,
    trains: nnx.filterlib.Filter = nnx.Param,
    examples_per_record: int = 1,
) -> Clipped:
    """Σ_r w_r min(1, C/‖g_r‖) g_r over the records of a batch, in float32 (Abadi et al. 2016, Algorithm 1, lines 5-6).

    `weights` [records] is 1 for a record and 0 for padding. A record of several examples is clipped as one: its
    examples follow each other in the batch, `examples_per_record` of them.
    """
    trained = _variables(model, trains)
    measured = Tape(frozenset(trained))
    with recording(measured):
        jax.eval_shape(lambda: loss(model, batch))
    _refuse_unnoted(trained, measured.uses)

    def forward(taps: list[Array]) -> tuple[Array, tuple[Array, list[Array | None]]]:
        with recording(Tape(frozenset(trained), taps)) as tape:
            losses = loss(model, batch)
        return jnp.sum(losses), (losses, [use.note for use in tape.uses])

    zeros = [jnp.zeros(shape.shape, shape.dtype) for shape in measured.shapes]
    tap_gradients, (losses, notes) = jax.grad(forward, has_aux=True)(zeros)

    records = losses.shape[0] // examples_per_record
    books = {key: _Book(records) for key in trained}
    for use, noted, gradient in zip(measured.uses, notes, tap_gradients, strict=True):
        books[id(use.weight)].enter(use, noted, gradient)
    sizes = [book.size() for book in books.values()]
    norms = jnp.sqrt(sum((size.squared for size in sizes), start=jnp.zeros(records)))
    # Law 5. What is summed is fl(c a) ⊗ g: scaling rounds each entry by at most half a unit, so that it differs from
    # c Σ a_t ⊗ g_t by at most that share of c Σ‖a_t‖‖g_t‖. Counting it as part of the norm keeps the bound for certain.
    unit = max(float(jnp.finfo(gradient.dtype).eps) for gradient in tap_gradients)  # type: ignore[no-untyped-call]
    slack = unit * jnp.sqrt(sum((size.spread**2 for size in sizes), start=jnp.zeros(records)))
    sound = jnp.isfinite(norms + slack)
    factors = jnp.where(sound, weights * jnp.minimum(1.0, clip_norm / jnp.maximum(norms + slack, 1e-30)), 0.0)

    def summed(silenced: bool) -> dict[Path, Array]:
        return {path: books[key].weighted_sum(factors, silenced) for key, path in trained.items()}

    # Silencing what is no number costs another pass over the largest arrays, so it is done only when there is some.
    gradients = jax.lax.cond(jnp.all(sound), lambda: summed(False), lambda: summed(True))
    return Clipped(gradients, norms, losses)


class _Size(NamedTuple):
    """How large a weight's gradient is, for each record: its squared norm, and Σ‖a_t‖‖g_t‖, which no sum cancels."""

    squared: Array
    spread: Array


class _Outer(NamedTuple):
    """A use of a weight [i, o] as Σ_t left_t ⊗ right_t. `left` is [records, T, i], or row numbers [records, T]."""

    left: Array
    right: Array  # [records, T, o]

    @property
    def one_hot(self) -> bool:
        return self.left.ndim == 2


class _Book:
    """All that was noted of one weight: its uses as outer products, or its gradient itself, for each record."""

    def __init__(self, records: int) -> None:
        self.records = records
        self.outer: list[_Outer] = []
        self.direct: Array | None = None  # [records, *shape]
        self.shape: tuple[int, ...] = ()

    def enter(self, use: Use, noted: Array | None, gradient: Array) -> None:
        """Adds a use, with all positions of a record on one axis, in the orientation of the weight."""
        self.shape = use.weight[...].shape
        if noted is None:
            own = gradient.astype(jnp.float32).reshape(self.records, -1, *self.shape).sum(axis=1)
            self.direct = own if self.direct is None else self.direct + own
            return
        gradient = gradient.reshape(self.records, -1, gradient.shape[-1])
        if use.kind is Kind.ROWS:
            self.outer.append(_Outer(noted.reshape(self.records, -1), gradient))
            return
        noted = noted.reshape(self.records, -1, noted.shape[-1])
        self.outer.append(_Outer(gradient, noted) if use.kind is Kind.OUTPUT else _Outer(noted, gradient))

    def size(self) -> _Size:
        """The size of the weight's gradient, for each record, in float32."""
        if self.direct is not None:
            squared = jnp.sum(self.direct.reshape(self.records, -1) ** 2, axis=1)
            return _Size(squared, jnp.sqrt(squared))
        if any(use.one_hot for use in self.outer):
            return _pairwise(self.outer)
        left = jnp.concatenate([use.left for use in self.outer], axis=1)
        right = jnp.concatenate([use.right for use in self.outer], axis=1)
        positions, (i, o) = left.shape[1], self.shape
        if positions * (i + o) > i * o:  # the gradient costs T·i·o, its Gram matrices T²(i + o): take the cheaper
            gradient = jnp.einsum("bti,bto->bio", left, right, preferred_element_type=jnp.float32)
            return _Size(jnp.sum(gradient**2, axis=(1, 2)), jnp.sum(_lengths(left) * _lengths(right), axis=1))
        lefts, rights = _gram(left, left), _gram(right, right)
        return _Size(jnp.sum(lefts * rights, axis=(1, 2)), _spread(lefts, rights))

    def weighted_sum(self, factors: Array, silenced: bool) -> Array:
        """Σ over the records of their factor times their gradient, in float32.

        The factor goes into the narrower side, in the type that the model computes in. `silenced`: a record with a
        factor of 0 adds nothing even if its entries are no numbers.
        """
        each = factors[:, None, None]
        if self.direct is not None:
            own = self.direct.reshape(self.records, 1, -1)
            return jnp.sum(_scaled(own, each, silenced), axis=0).reshape(self.shape)
        total = jnp.zeros(self.shape, jnp.float32)
        for left, right in self.outer:
            if left.ndim == 2:
                rows = _scaled(right, each, silenced).astype(jnp.float32)
                total = total.at[left.reshape(-1)].add(rows.reshape(-1, rows.shape[-1]))
                continue
            if silenced:
                left, right = (jnp.where(each > 0, side, 0).astype(side.dtype) for side in (left, right))
            if left.shape[-1] < right.shape[-1]:
                left = _scaled(left, each, silenced)
            else:
                right = _scaled(right, each, silenced)
            total += jnp.einsum("bti,bto->io", left, right, preferred_element_type=jnp.float32)
        return total


def _pairwise(uses: Sequence[_Outer]) -> _Size:
    """Σ over pairs of uses, and of their positions t and s, of ⟨left_t, left'_s⟩⟨right_t, right'_s⟩."""
    squared = spread = jnp.zeros(uses[0].right.shape[0])
    for index, first in enumerate(uses):
        for second in uses[index:]:
            lefts, rights = _left_gram(first, second), _gram(first.right, second.right)
            pair = jnp.sum(lefts * rights, axis=(1, 2))
            squared += pair if second is first else 2 * pair
            if second is first:
                spread += _spread(lefts, rights)
    return _Size(squared, spread)


def _spread(lefts: Array, rights: Array) -> Array:
    """Σ_t ‖left_t‖‖right_t‖, from the diagonals of two Gram matrices."""
    left, right = (jnp.diagonal(gram, axis1=1, axis2=2) for gram in (lefts, rights))
    return jnp.sum(jnp.sqrt(left * right), axis=1)


def _lengths(vectors: Array) -> Array:
    """‖v_t‖ for each record and position."""
    return jnp.sqrt(jnp.sum(vectors.astype(jnp.float32) ** 2, axis=-1))


def _left_gram(first: _Outer, second: _Outer) -> Array:
    """⟨left_t, left'_s⟩ [records, T, S]. A one-hot row picks an entry; two of them are equal or not."""
    if first.one_hot and second.one_hot:
        return (first.left[:, :, None] == second.left[:, None, :]).astype(jnp.float32)
    if second.one_hot:
        return jnp.take_along_axis(first.left, second.left[:, None, :], axis=2).astype(jnp.float32)
    if first.one_hot:
        return jnp.swapaxes(_left_gram(second, first), 1, 2)
    return _gram(first.left, second.left)


def _gram(first: Array, second: Array) -> Array:
    return jnp.einsum("bti,bsi->bts", first, second, preferred_element_type=jnp.float32)


def _scaled(values: Array, factors: Array, silenced: bool) -> Array:
    """values · factors in the type of the values; if silenced, 0 where the factor is 0, even for what is no number."""
    product = values * factors.astype(values.dtype)
    return jnp.where(factors == 0, jnp.zeros((), values.dtype), product) if silenced else product


def _variables(model: nnx.Module, trains: nnx.filterlib.Filter) -> dict[int, Path]:
    """The trained variables by identity, each with the first path it is found at; a shared one counts once."""
    matches = nnx.filterlib.to_predicate(trains)
    found: dict[int, Path] = {}
    for path, node in nnx.graph.iter_graph(model):
        if isinstance(node, nnx.Variable) and matches(path, node):
            found.setdefault(id(node), path)
    return found


def _refuse_unnoted(trained: dict[int, Path], uses: Sequence[Use]) -> None:
    """A weight that no layer noted would go unclipped."""
    noted = {id(use.weight) for use in uses}
    for key, path in trained.items():
        if key not in noted:
            name = ".".join(map(str, path))
            raise BadInput(f"{name}: no layer noted a use of this weight, so it cannot be clipped; use dpnlp's layers.")
