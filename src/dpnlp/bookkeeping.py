"""What a layer writes down in its forward pass, so that clipping needs no per-example gradients (Bu et al. 2022).

A weight's gradient for one example is a sum of outer products, Σ_t a_t ⊗ g_t: for y = xW the input x_t and ∂loss/∂y_t.
A layer therefore reads each weight through this module and hands every use of it back: the input is noted, and a tap,
an array of zeros, is added to the output; the gradient of the tap is g. Without an open `Tape` nothing is noted and
nothing is added, so that the same model trains without privacy, or generates text, at no cost.

`models.layers` writes, `training.clipping` reads; neither knows the other.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum

import jax
import jax.numpy as jnp
from flax import nnx

Array = jax.Array


class Kind(Enum):
    """How a use of a weight is noted. The weight is a matrix [i, o]; a tap has the shape of the use's output."""

    INPUT = "input"  # y_t = x_t W: the note is x [batch, …, i], the tap's gradient [batch, …, o]
    ROWS = "rows"  # y_t = W[v_t]: the note is the row numbers v [batch, …], the tap's gradient [batch, …, o]
    OUTPUT = "output"  # y_t = x_t Wᵀ: the note is x [batch, …, o], the tap's gradient [batch, …, i]
    DIRECT = "direct"  # the weight itself, once per example: no note, the tap's gradient [batch, *shape]


@dataclass
class Use:
    """One use of a weight in a forward pass; the tap of the same place in the list belongs to it."""

    weight: nnx.Variable[Array]
    kind: Kind
    note: Array | None = None


@dataclass
class Tape:
    """The uses of one forward pass in the order in which they happen.

    With `taps` they are added to the outputs. Without, this is the first, abstract pass: only shapes are noted, and
    weights read as zeros, so that whatever still depends on a weight uses it behind the layers' backs. `trains` says
    which weights are trained: a frozen one is not noted and costs nothing.
    """

    trains: frozenset[int]
    taps: Sequence[Array] | None = None
    uses: list[Use] = field(default_factory=list)
    shapes: list[jax.ShapeDtypeStruct] = field(default_factory=list)
    finite: list[Array] = field(default_factory=list)  # what was kept finite where it was made

    def tapped(self, use: Use, output: Array) -> Array:
        """The output with this use's tap added to it."""
        index = len(self.uses)
        self.uses.append(use)
        self.shapes.append(jax.ShapeDtypeStruct(output.shape, output.dtype))  # type: ignore[no-untyped-call]
        return output if self.taps is None else output + self.taps[index]


_OPEN: ContextVar[Tape | None] = ContextVar("tape", default=None)


@contextmanager
def recording(tape: Tape) -> Iterator[Tape]:
    """Uses of weights inside this context are written on the tape."""
    token = _OPEN.set(tape)
    try:
        yield tape
    finally:
        _OPEN.reset(token)


def read(weight: nnx.Variable[Array]) -> Array:
    """The weight's value, for a use that is then handed to `note`, `tap` or, by itself, to `direct`."""
    tape = _OPEN.get()
    if tape is not None and tape.taps is None and _notes(weight):
        return jnp.zeros(weight.shape, weight.dtype)
    return weight[...]


def note(weight: nnx.Variable[Array], kind: Kind, written: Array, compute: Callable[[Array, Array], Array]) -> Array:
    """The output of a use of a weight, with a tap where a tape is open and the weight is trained.

    `compute` makes it from what is written down and from the weight.
    """
    written = _guarded(weight, kind, written)
    output, use = tap(weight, kind, compute(written, read(weight)))
    use.note = written
    return output


def tap(weight: nnx.Variable[Array], kind: Kind, output: Array) -> tuple[Array, Use]:
    """Like `note`, for a layer that knows only later what it has to write down: it sets the note of the use itself."""
    tape, use = _OPEN.get(), Use(weight, kind)
    if tape is None or not _notes(weight):
        return output, use
    output = tape.tapped(use, output)
    return (_finite_backwards(output) if kind in _SIDES and _gradient_is_wide(weight, kind) else output), use


def tap_alone(weight: nnx.Variable[Array], kind: Kind, written: Array, outputs: int) -> tuple[Array, Array | None]:
    """Like `note`, for a layer that never holds its output [batch, …, outputs].

    Returns what to compute with, which is written down, and the tap, or none where nothing is noted. The layer itself
    gives the tap its gradient, and keeps it `finite`.
    """
    tape = _OPEN.get()
    if tape is None or not _notes(weight):
        return written, None
    written = _guarded(weight, kind, written)
    return written, tape.tapped(Use(weight, kind, written), jnp.zeros((*written.shape[:-1], outputs), written.dtype))


def direct(weight: nnx.Variable[Array], batch: int) -> Array:
    """A small weight, one copy per example where a tape is open: [batch, *shape], or [1, *shape] to broadcast."""
    value, tape = read(weight), _OPEN.get()
    if tape is None or not _notes(weight):
        return value[None]
    return tape.tapped(Use(weight, Kind.DIRECT), jnp.broadcast_to(value, (batch, *value.shape)))


def made_finite(make: Callable[[bool, Array], Array], x: Array) -> Array:
    """`make(guard, x)`, told to keep what it makes `finite` where a tape is open: no use of it will do so again."""
    tape = _OPEN.get()
    made = make(tape is not None, x)
    if tape is not None:
        tape.finite.append(made)
    return made


def scales_rows(shape: tuple[int, ...]) -> bool:
    """Whether clip factors are multiplied into the rows' side of Σ_t left_t ⊗ right_t, it being the narrower one.

    The other side is kept finite as it is made, at no cost: a factor of 0 could not take away what is no number. Of two
    sides as wide it is the rows', the inputs: queries, keys and values have theirs in common, which is scaled once.
    """
    return shape[0] <= shape[1]


_SIDES = (Kind.INPUT, Kind.OUTPUT)
"""The uses of which both sides, the note and the gradient, are arrays of vectors."""


def _gradient_is_wide(weight: nnx.Variable[Array], kind: Kind) -> bool:
    """Whether the gradient of a use is on the side that clip factors are not multiplied into; else its note is."""
    return scales_rows(weight.shape) == (kind is Kind.INPUT)


def _guarded(weight: nnx.Variable[Array], kind: Kind, written: Array) -> Array:
    """What is written down, kept finite where it is on the side that clip factors are not multiplied into."""
    tape = _OPEN.get()
    if tape is None or not _notes(weight) or kind not in _SIDES or _gradient_is_wide(weight, kind):
        return written
    return written if any(written is known for known in tape.finite) else finite(written)


def _notes(weight: nnx.Variable[Array]) -> bool:
    tape = _OPEN.get()
    return tape is not None and id(weight) in tape.trains


@jax.custom_jvp
def finite(x: Array) -> Array:
    """x, with the largest number there is for what is no finite one; gradients pass as they are.

    Its square is infinite, so that the norm shows it, and 0 times it is 0.
    """
    return jnp.where(jnp.isfinite(x), x, jnp.finfo(x.dtype).max)  # type: ignore[no-untyped-call]


@finite.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return finite(*primals), tangents[0]


@jax.custom_vjp
def _finite_backwards(x: Array) -> Array:
    """x, whose gradient is kept finite on its way back."""
    return x


_finite_backwards.defvjp(lambda x: (x, None), lambda _, gradient: (finite(gradient),))
