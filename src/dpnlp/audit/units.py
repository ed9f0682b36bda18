"""Who is attacked: some of those that a model was trained on, and as many others, in the unit of the guarantee.

A unit is a record by what it says, or an owner with all records. What is in the training set is none of the others,
from whatever file it comes: that a model knows it would be taken for a false alarm of the attack.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.guarantee import Unit

R = TypeVar("R", bound=NamedTuple)

LEAST = 10
"""With fewer units on each side nothing can be told."""

_NO_CONTENT = ("id", "owner")
"""Fields of a record that say nothing of what it is."""


@dataclass(frozen=True)
class Units(Generic[R]):
    """The records of each unit: of members, of as many others, and of all further members."""

    members: tuple[tuple[R, ...], ...]
    others: tuple[tuple[R, ...], ...]
    rest: tuple[tuple[R, ...], ...]

    @property
    def attacked(self) -> tuple[tuple[R, ...], ...]:
        """Members first, then others."""
        return self.members + self.others

    @property
    def are_members(self) -> NDArray[np.bool_]:
        """Of each that is attacked."""
        return np.arange(len(self.attacked)) < len(self.members)


def units(training: Iterable[R], others: Iterable[R], unit: Unit, most: int, seed: int, each: int = 1) -> Units[R]:
    """Draws up to `most` members, and as many others, none of which is in the training set.

    An owner has no more than `each` records, the first ones.
    """
    checks.count("records", most, LEAST, "fewer tell nothing")
    inside, outside = (_grouped(records, unit, each) for records in (training, others))
    apart = [key for key in outside if key not in inside]
    count = min(most, len(inside), len(apart))
    if count < LEAST:
        what = f"the training set has {len(inside)}, and {len(apart)} others are not in it"
        raise BadInput(
            f"others: there must be at least {LEAST} {unit}s on each side, and {what}; give more by --others."
        )
    rng = np.random.default_rng(seed)
    drawn, chosen = ([keys[place] for place in rng.permutation(len(keys))] for keys in (list(inside), apart))
    return Units(
        tuple(inside[key] for key in drawn[:count]),
        tuple(outside[key] for key in chosen[:count]),
        tuple(inside[key] for key in drawn[count:]),
    )


def numbered(groups: Sequence[Sequence[R]]) -> tuple[list[R], NDArray[np.int64]]:
    """All records one after the other, and the place of the unit that each belongs to."""
    return list(chain.from_iterable(groups)), np.repeat(np.arange(len(groups)), [len(group) for group in groups])


def _grouped(records: Iterable[R], unit: Unit, each: int) -> dict[str, tuple[R, ...]]:
    found: dict[str, list[R]] = {}
    for record in records:
        its = found.setdefault(_key(record, unit), [])
        if unit is Unit.EXAMPLE or len(its) < each:
            its.append(record)
    return {key: tuple(its) for key, its in found.items()}


def _key(record: Any, unit: Unit) -> str:
    if unit is Unit.EXAMPLE:
        return repr([value for name, value in record._asdict().items() if name not in _NO_CONTENT])
    if record.owner is None:
        raise BadInput(f"owner is not given: the unit is one {unit}, and nothing says whose each of the others is.")
    return str(record.owner)
