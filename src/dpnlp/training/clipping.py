"""Per-example clipping by book-keeping (Bu et al. 2022, arXiv 2210.00038), exact for shared and tied weights.

One forward pass notes the inputs a of every weight, one backward pass with respect to zero taps gives all g and no
weight gradient. The squared norm of an example's gradient is ⟨aaᵀ, ggᵀ⟩, summed over all pairs of uses of a weight, and
the clipped sum is one contraction of a, g and the clip factors c. So a private step is a non-private one plus norms.

A parameter that no layer notes, that is also used outside the layers, or in a layer whose input has another axis than
the batch first, gets its gradients one record at a time, by `vmap`: slower, and never unclipped.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from dpnlp import bookkeeping, checks
from dpnlp.bookkeeping import Array, Kind, Tape, recording
from dpnlp.checks import BadInput
from dpnlp.training import rounding
from dpnlp.training.contractions import contract, gram, over_pairs
from dpnlp.training.parameters import Parameters, Parts
from dpnlp.training.rounding import FAINT, UNIT, far_from_the_ends

Loss = Callable[[nnx.Module, Any], Array]
"""Per-example losses [batch] of a model on a batch; each may depend on its own example alone (law 4)."""


class Rule(StrEnum):
    """How a record's gradient is brought within the clip norm C. Each bounds what a record adds to the sum by C."""

    FLAT = "flat"  # the whole gradient by min(1, C/‖g‖) (Abadi et al. 2016)
    PER_LAYER = "per-layer"  # each of m parameters by min(1, (C/√m)/‖g_l‖) (McMahan et al. 2018)
    AUTOMATIC = "automatic"  # the whole gradient by C/(‖g‖ + γ), so that C is no setting any more (Bu et al. 2023)


class Method(StrEnum):
    """How norms and sums are computed. The result is the same."""

    BOOK_KEEPING = "book-keeping"
    VMAP = "vmap"  # a gradient for each record: needs memory for all of them


@dataclass(frozen=True)
class Clipping:
    """The clip norm C, which bounds the contribution of a record, and how it is kept."""

    norm: float
    rule: Rule = Rule.FLAT
    method: Method = Method.BOOK_KEEPING
    stabiliser: float = 0.01  # γ of automatic clipping

    def __post_init__(self) -> None:
        if self.norm != math.inf:
            checks.positive("clip_norm", self.norm, "inf stands for no clipping")
            far_from_the_ends("clip_norm", self.norm, "scale the loss instead")
        checks.positive("stabiliser", self.stabiliser)
        far_from_the_ends("stabiliser", self.stabiliser, "0.01 is usual")
        if self.rule is Rule.AUTOMATIC and self.norm == math.inf:
            raise BadInput("clip_norm = inf: automatic clipping scales every gradient to the clip norm; give one.")

    def factors(self, books: Mapping[str, "_Book"], whole: "_Size") -> dict[str, Array]:
        """c for each parameter and record: the same for all parameters, but for per-layer clipping."""
        if self.rule is Rule.PER_LAYER:
            share = self.norm / math.sqrt(len(books))
            return {name: jnp.minimum(1.0, share / _size([book]).bound) for name, book in books.items()}
        if self.rule is Rule.AUTOMATIC:
            return dict.fromkeys(books, self.norm / (whole.bound + self.stabiliser))
        return dict.fromkeys(books, jnp.minimum(1.0, self.norm / whole.bound))


class Clipped(NamedTuple):
    """The sum over the records of clipped gradients, in float32, and what clipping saw of each record."""

    gradients: Parameters
    norms: Array  # [records], before clipping; not finite where a gradient was not, which then counts as zero
    losses: Array  # [batch]


def clipped_sum(
    loss: Loss, parts: Parts, batch: Any, weights: Array, clipping: Clipping, examples_per_record: int = 1
) -> Clipped:
    """Σ_r c_r g_r over the records of a batch, with c_r = min(1, C/‖g_r‖) (Abadi et al. 2016, Algorithm 1).

    g_r is the gradient of Σ w_i loss_i over the examples of the record, which follow each other in the batch,
    `examples_per_record` of them. The weights w [batch] of padding are 0.
    """
    uses = [] if clipping.method is Method.VMAP else _planned(loss, parts, batch)
    stray = parts.parameters.keys() - {use.name for use in uses}
    records = weights.shape[0] // examples_per_record
    books = {name: _Book(records, value.shape) for name, value in parts.parameters.items()}
    if uses:
        notes, tap_gradients, losses = _tapped(loss, parts, uses, batch, weights)
        for use, noted, gradient in zip(uses, notes, tap_gradients, strict=True):
            books[use.name].enter(use.kind, noted, gradient)
    if stray:
        own, losses = _one_by_one(loss, parts, stray, batch, weights, records)
        for name, gradient in own.items():
            books[name].enter(Kind.DIRECT, None, gradient)

    real = jnp.any(weights.reshape(records, -1) > 0, axis=1)
    return Clipped(*_summed(books, real.astype(jnp.float32), clipping)[:2], losses)


def rounding_of(loss: Loss, parts: Parts, example: Any, clipping: Clipping, records: int, examples: int) -> float:
    """What rounding may add to η in batches of so many records, with so many examples each as long as this one."""
    uses: dict[str, list[_PlannedUse]] = {}
    for use in [] if clipping.method is Method.VMAP else _planned(loss, parts, example):
        uses.setdefault(use.name, []).append(use)

    def of_weight(own: Sequence[_PlannedUse]) -> float:
        looked_up = [use for use in own if use.kind is Kind.ROWS]
        products = [use for use in own if use.kind in (Kind.INPUT, Kind.OUTPUT)]
        whole = not (looked_up and products)
        rows = rounding.of_terms(records, rounding.length(len(looked_up), whole)) if looked_up else 0.0
        if not products:
            return rows
        positions = examples * sum(math.prod(use.tap.shape[1:-1]) for use in products)
        length = rounding.length(len(products), whole)
        return rows + rounding.of_products(records, positions, own[0].tap.dtype, length)

    return max(rounding.of_terms(records), *map(of_weight, uses.values()), 0.0) + rounding.of_parts(records)


class Summed(NamedTuple):
    """The sum over the records of clipped vectors, in float32, and what clipping saw of each record."""

    total: Parameters
    norms: Array  # [records], before clipping; not finite where a vector was not, which then counts as zero
    whole: Array  # [records], whether a record's vector was left as it was


def clipped_total(own: Parameters, shares: Array, clipping: Clipping) -> Summed:
    """Σ_r w_r c_r v_r over records whose vectors v_r are at hand: `own` is [records, *shape], `shares` are the w_r."""
    books = {name: _Book(value.shape[0], value.shape[1:]) for name, value in own.items()}
    for name, value in own.items():
        books[name].enter(Kind.DIRECT, None, value)
    return _summed(books, shares, clipping)


def _summed(books: Mapping[str, "_Book"], shares: Array, clipping: Clipping) -> Summed:
    whole = _size(books.values())
    sound, factors = jnp.isfinite(whole.bound), clipping.factors(books, whole)
    weighted = {name: jnp.where(sound, shares * factor, 0.0) for name, factor in factors.items()}
    total = {name: book.weighted_sum(weighted[name]) for name, book in books.items()}
    uncut = jnp.all(jnp.stack([factor >= 1 for factor in factors.values()]), axis=0)
    return Summed(total, whole.norm, sound & uncut)


class _PlannedUse(NamedTuple):
    """A use of a parameter that the forward pass is going to note, and the shape of its tap."""

    name: str
    kind: Kind
    tap: jax.ShapeDtypeStruct


def _planned(loss: Loss, parts: Parts, batch: Any) -> list[_PlannedUse]:
    """The uses of all parameters that are used through layers only, found by abstract forward passes.

    A use is noted by example, so that its first axis must be the batch. Whether it is shows in a second pass, with one
    example more: positions that all examples share, and a time axis that stands first, may be as long as this batch.
    Neither is there a rule for a parameter that is noted both as a whole and by inputs.
    """
    size = jax.tree.leaves(batch)[0].shape[0]
    uses, behind = _noted(loss, parts, batch, size)
    more, _ = _noted(loss, parts, batch, size + 1)
    elsewhere = {
        use.name for some, axis in ((uses, size), (more, size + 1)) for use in some if use.tap.shape[:1] != (axis,)
    }
    whole = {use.name for use in uses if use.kind is Kind.DIRECT}
    mixed = {use.name for use in uses if use.kind is not Kind.DIRECT and use.name in whole}
    return [use for use in uses if use.name not in behind | elsewhere | mixed]


def _noted(loss: Loss, parts: Parts, batch: Any, size: int) -> tuple[list[_PlannedUse], set[str]]:
    """All uses that an abstract forward pass notes over so many examples like these, and what it does not note.

    There the layers read zeros instead of the parameters. Whatever parameter still enters the computation is used
    behind the layers' backs, and what they note of it would not be all of its gradient.
    """
    uses: list[_PlannedUse] = []

    def forward(parameters: Parameters, batch: Any) -> Array:
        model = parts.model(parameters)
        names = parts.frame.names(model)
        with recording(Tape(frozenset(names))) as tape:
            losses = loss(model, batch)
        uses.extend(_PlannedUse(names[id(u.weight)], u.kind, s) for u, s in zip(tape.uses, tape.shapes, strict=True))
        return losses

    like = jax.eval_shape(lambda: jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], (size, *leaf.shape[1:])), batch))
    computation = jax.make_jaxpr(forward)(parts.parameters, like).jaxpr
    entering = {id(variable) for equation in computation.eqns for variable in equation.invars}
    named = zip(sorted(parts.parameters), computation.invars, strict=False)  # before those of the batch
    return uses, {name for name, variable in named if id(variable) in entering}


def losses_moved(loss: Loss, parts: Parts, batch: Any, moved: Array) -> Array:
    """The losses [batch] where the outer products that book-keeping notes come out otherwise for some of the examples.

    Direct uses stay as they are: where all examples have a copy of one weight, a layer may compute with the first.
    """
    uses = _planned(loss, parts, batch)

    def tap(key: Array, use: _PlannedUse) -> Array:
        some = moved.reshape(-1, *[1] * (len(use.tap.shape) - 1)) & (use.kind is not Kind.DIRECT)
        return jnp.where(some, jax.random.normal(key, use.tap.shape) / 8, 0).astype(use.tap.dtype)

    keys = jax.random.split(jax.random.key(0), len(uses))
    return _forward(loss, parts, uses, batch, list(map(tap, keys, uses)))[1]


def _tapped(
    loss: Loss, parts: Parts, uses: Sequence[_PlannedUse], batch: Any, weights: Array
) -> tuple[list[Array | None], list[Array], Array]:
    """One forward and one backward pass: what was noted of each use, the gradients of their taps, and the losses."""

    def forward(taps: list[Array]) -> tuple[Array, tuple[list[Array | None], Array]]:
        notes, losses = _forward(loss, parts, uses, batch, taps)
        return jnp.sum(weights * losses), (notes, losses)

    gradients, (notes, losses) = jax.grad(forward, has_aux=True)([jnp.zeros(u.tap.shape, u.tap.dtype) for u in uses])
    return notes, gradients, losses


def _forward(
    loss: Loss, parts: Parts, uses: Sequence[_PlannedUse], batch: Any, taps: list[Array]
) -> tuple[list[Array | None], Array]:
    """What is noted of each use when its tap is added to what comes out of it, and the losses."""
    model, noted = parts.model(), {use.name for use in uses}
    trains = frozenset(key for key, name in parts.frame.names(model).items() if name in noted)
    with recording(Tape(trains, taps)) as tape:
        losses = loss(model, batch)
    return [use.note for use in tape.uses], losses


def _one_by_one(
    loss: Loss, parts: Parts, stray: Iterable[str], batch: Any, weights: Array, records: int
) -> tuple[Parameters, Array]:
    """The gradients of some parameters for each record, [records, *shape], by vmap, and the losses."""

    def of_record(own: Parameters, examples: Any, their_weights: Array) -> tuple[Array, Array]:
        losses = loss(parts.model(parts.parameters | own), examples)
        return jnp.sum(their_weights * losses), losses

    own = {name: parts.parameters[name] for name in stray}
    by_record = jax.tree.map(lambda leaf: leaf.reshape(records, -1, *leaf.shape[1:]), (batch, weights))
    gradients, losses = jax.vmap(jax.grad(of_record, has_aux=True), in_axes=(None, 0, 0))(own, *by_record)
    return gradients, losses.reshape(-1)


class _Size(NamedTuple):
    """How large a gradient is, for each record, and how far rounding may have led that figure astray.

    Let m = Σ_t‖a_t‖‖g_t‖ ≤ √(T S), with S = Σ_t‖a_t‖²‖g_t‖² the `spread`. What is summed is fl(c a) ⊗ g, where c is
    rounded down to the type that the model computes in. Scaling rounds each entry of a by at most half a unit of that
    type, so that the sum differs from c Σ a_t ⊗ g_t by at most that times c m. A gradient that is built has entries of
    T roundings each, and is off by T u m. Where the squared norm is a sum over pairs of positions, an entry of a Gram
    matrix over i columns is off by i u‖a_t‖‖a_s‖, and the pairs may nearly cancel: the sum is known up to (i + o + 2T +
    4) u m², with two stages of T roundings for the T² pairs, and one for each weight that is added up before. All of it
    counts as part of the norm, which keeps the clip bound (law 5). The norm counts as no less than √S/2, so that no t
    positions of a clipped record are longer than 2√t C (`rounding`). Where what a record contributes to a weight is in
    two sums, S has the squared norm of each of its parts, too, so that none is longer than 2C. Squares that are too
    small for float32 are counted in S: ‖a_t‖² and ‖g_t‖² stand in it with 2⁻¹²⁶/u more (`rounding.FAINT`).
    """

    squared: Array
    doubt: Array  # of the squared norm
    slack: Array  # of the norm, squared
    spread: Array

    @property
    def norm(self) -> Array:
        """‖g‖ as computed; not finite where the gradient is not."""
        return jnp.sqrt(jnp.where(self.squared < 0, 0, self.squared))

    @property
    def bound(self) -> Array:
        """What ‖g‖ is at most, no less than √S/2, and more than 0."""
        squared = jnp.where(self.squared < 0, 0, self.squared) + self.doubt
        largest = jnp.maximum(jnp.sqrt(squared) + jnp.sqrt(self.slack), jnp.sqrt(self.spread) / 2)
        return jnp.maximum(largest * _MORE, 1e-30)


_MORE = 1 + 2**-19
"""Covers the rounding of what a bound is computed from: square roots, spreads, doubts and factors."""


def _size(books: Iterable["_Book"]) -> _Size:
    """The size of the gradient of several weights together, for each record, in float32.

    What has the same shape is added up before it is summed over: a device spends more time on starting a hundred small
    sums than on making one of them.
    """
    books = list(books)
    squared = doubt = slack = spread = jnp.zeros(())
    if direct := [book.direct.reshape(book.records, -1) for book in books if book.direct is not None]:
        squared = rounding.total(jnp.concatenate(direct, axis=1) ** 2)
        slack = UNIT**2 * squared
    sums: dict[tuple[int, ...], Array] = {}
    alike: dict[Any, list[_Outer]] = {}
    for book in books:
        own, off = book.built_spread()
        slack, spread = slack + off**2 * own, spread + own
        for terms in book.terms():
            sums[terms.shape] = sums[terms.shape] + terms if terms.shape in sums else terms
        for use in book.pairs():
            kind = (book.whole, book.positions, book.scaling, book.depth, use.left.shape, use.right.shape)
            alike.setdefault(kind, []).append(use)
    for terms in sums.values():
        squared = squared + rounding.total(terms)
    for (whole, positions, scaling, depth, _, _), uses in alike.items():
        pairs, own = over_pairs(*zip(*uses, strict=True))
        off = (depth + len(uses)) * UNIT * positions * own
        squared, doubt, spread = squared + pairs, doubt + off, spread + own + (0 if whole else pairs + off)
        slack = slack + scaling**2 * positions * own
    sizes = [sum(math.prod(book.shape) for book in books if book.direct is not None)]
    entries = 2 * math.isqrt(max(sizes + [math.prod(book.shape) for book in books])) + 2
    return _Size(squared, doubt + (entries + len(books)) * UNIT * jnp.abs(squared), slack, spread)


_AT_ONCE = 4
"""How many sums as large as a weight are made at once."""


class _Outer(NamedTuple):
    """A use of a weight [i, o] as Σ_t left_t ⊗ right_t. `left` is [records, T, i], or row numbers [records, T]."""

    left: Array
    right: Array  # [records, T, o]

    @property
    def one_hot(self) -> bool:
        return self.left.ndim == 2


class _Book:
    """All that was noted of one weight: its uses as outer products, or its gradient itself, for each record."""

    def __init__(self, records: int, shape: tuple[int, ...]) -> None:
        self.records, self.shape = records, shape
        self.outer: list[_Outer] = []
        self.direct: Array | None = None  # [records, *shape]

    def enter(self, kind: Kind, noted: Array | None, gradient: Array) -> None:
        """Adds a use, with all positions of a record on one axis, in the orientation of the weight."""
        if noted is None:
            own = gradient.astype(jnp.float32).reshape(self.records, -1, *self.shape).sum(axis=1)
            self.direct = own if self.direct is None else self.direct + own
            return
        gradient = gradient.reshape(self.records, -1, gradient.shape[-1])
        if kind is Kind.ROWS:  # Counted from the end, a row has another number, and is the same row.
            rows = jnp.where(noted < 0, noted + self.shape[0], noted)
            self.outer.append(_Outer(rows.reshape(self.records, -1), gradient))
            return
        noted = noted.reshape(self.records, -1, noted.shape[-1])
        self.outer.append(_Outer(gradient, noted) if kind is Kind.OUTPUT else _Outer(noted, gradient))

    @property
    def positions(self) -> int:
        """T, of all uses together."""
        return sum(use.right.shape[1] for use in self.outer)

    @property
    def whole(self) -> bool:
        """Whether all that a record contributes to the weight is in one sum."""
        return len({use.one_hot for use in self.outer}) == 1

    @property
    def scaling(self) -> float:
        """How far scaling rounds a side: half a unit of its type, and T of float32 where equal rows are added up."""
        sides = [side for use in self.outer for side in (use[1:] if use.one_hot else use)]
        added_up = self.positions * UNIT if any(use.one_hot for use in self.outer) else 0.0
        return max(_half_unit(side.dtype) for side in sides) + added_up

    @property
    def depth(self) -> int:
        """How often what a pair of positions adds to the squared norm is rounded (`_Size`)."""
        dtype = self.outer[0].right.dtype
        return sum(rounding.depth(width, dtype) for width in self.shape) + 2 * self.positions + 4

    @property
    def built(self) -> bool:
        """Whether to build the gradient, which costs T·i·o, because its Gram matrices cost more, T²(i + o)."""
        return self.positions * sum(self.shape) > math.prod(self.shape) and not any(use.one_hot for use in self.outer)

    def pairs(self) -> list[_Outer]:
        """The uses of which the squared norm has the sum over all pairs of positions."""
        if self.built or not self.outer:
            return []
        return self.outer if any(use.one_hot for use in self.outer) else [_joined(self.outer)]

    def terms(self) -> Iterator[Array]:
        """What else is to be summed up for the squared norm: [records, …, …]."""
        if self.built:
            yield contract("bti,bto->bio", *_joined(self.outer)) ** 2
        for first, second in itertools.combinations(self.pairs(), 2):
            yield 2 * gram(first.left, second.left) * gram(first.right, second.right)

    def built_spread(self) -> tuple[Array, float]:
        """S where the gradient is built, and how far its norm is off, in √S; else both come with the pairs."""
        if not self.built:
            return jnp.zeros(()), 0.0
        left, right = (jnp.sum(side.astype(jnp.float32) ** 2, axis=-1) + FAINT for side in _joined(self.outer))
        return jnp.sum(left * right, axis=1), (self.scaling + self.positions * UNIT) * math.sqrt(self.positions)

    def weighted_sum(self, factors: Array) -> Array:
        """Σ over the records of their factor times their gradient, in float32.

        The factor goes into the narrower side, in the type that the model computes in. A record with a factor of 0 adds
        nothing, even if its gradient is no number: that side is set to 0, and the other one is finite in any case.
        """
        each, parts = factors[:, None, None], list[Array]()
        if self.direct is not None:
            own = _scaled(self.direct.reshape(self.records, 1, -1), each)
            parts = [jnp.sum(own[group], axis=0).reshape(self.shape) for group in rounding.groups(self.records)]
        looked_up = [use for use in self.outer if use.one_hot]
        products = [use for use in self.outer if not use.one_hot]
        if looked_up:
            rows = jnp.concatenate([use.left for use in looked_up], axis=1)
            values = _by_row(rows, jnp.concatenate([_scaled(use.right, each) for use in looked_up], axis=1))
            for group in rounding.groups(self.records, rounding.length(len(looked_up), self.whole)):
                flat = values[group].reshape(-1, self.shape[1])
                parts.append(jnp.zeros(self.shape, jnp.float32).at[rows[group].reshape(-1)].add(flat))
        if products:
            left, right = _joined(products)
            if bookkeeping.scales_rows(self.shape):
                left = _scaled(left, each)
            else:
                right = _scaled(right, each)
            parts += _sums(left, right, rounding.length(len(products), self.whole))
        return rounding.added(parts) if parts else jnp.zeros(self.shape, jnp.float32)


def _joined(uses: Sequence[_Outer]) -> _Outer:
    """All uses as one, with the positions of one after those of the other."""
    return _Outer(*(jnp.concatenate([use[side] for use in uses], axis=1) for side in (0, 1)))


def _sums(left: Array, right: Array, length: float) -> Iterator[Array]:
    """Σ_t left_t ⊗ right_t of both sides [records, T, …], in pieces that one contraction may sum up (`rounding.piece`).

    Several pieces are made at once, without a copy of what goes into them.
    """
    together, part = rounding.piece(left.shape[0], left.shape[1], left.dtype, length)
    left, right = (side.reshape(-1, together * part, side.shape[-1]) for side in (left, right))
    for some in rounding.slices(len(left), _AT_ONCE):
        yield from contract("pti,pto->pio", left[some], right[some])


def _by_row(rows: Array, values: Array) -> Array:
    """The values [records, T, o] of equal rows [records, T] of a record added up at the first of them, 0 at the others.

    So a row of the table has one term for each record.
    """
    same = rows[:, :, None] == rows[:, None, :]
    first = jnp.argmax(same, axis=2) == jnp.arange(rows.shape[1])
    return contract("bts,bso->bto", (same & first[:, :, None]).astype(values.dtype), values)


def _scaled(values: Array, factors: Array) -> Array:
    """values · factors, rounded down, in the type of the values; 0 where the factor is, even for what is no number."""
    near = factors.astype(values.dtype)
    near = jnp.where(near > factors, jnp.nextafter(near, jnp.zeros_like(near)), near)
    return jnp.where(factors == 0, jnp.zeros((), values.dtype), values * near)


def _half_unit(dtype: Any) -> float:
    return float(jnp.finfo(dtype).eps) / 2  # type: ignore[no-untyped-call]
