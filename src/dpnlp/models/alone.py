"""Rows of a batch that are computed so that none has a bit of another in it (law 13)."""

from collections.abc import Callable

import jax

from dpnlp.bookkeeping import Array


def each_alone(compute: Callable[..., Array], *rows: Array) -> Array:
    """`compute(*rows)`, which looks at each row by itself: [batch, …] each -> [batch, …].

    On a CPU it is one row after the other, each by the same instructions, which for rows of some hundred positions is
    no slower. Elsewhere it is all of them, in a batch whose shape must be the same in all calls: a kernel goes through
    the same steps for each row of a product, whatever stands in the others.
    """

    def in_turn(*rows: Array) -> Array:
        found: Array = jax.lax.map(lambda row: compute(*(part[None] for part in row))[0], rows)
        return found

    found: Array = jax.lax.platform_dependent(*rows, cpu=in_turn, default=compute)
    return found
