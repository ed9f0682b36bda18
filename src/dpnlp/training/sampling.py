"""How a lot is drawn, and how it is cut into physical batches of a few fixed shapes.

A lot is a pure function of the secret and the step, so that a run which goes on needs to know the step alone (law 7).
Lots have random sizes and texts have all lengths, while XLA compiles every shape anew. So records of one shape go
together, and their batches are filled up with rows that weigh exactly zero (law 4).

The shape in which a record is computed follows from that record alone, and its place among the records of its shape is
random (law 13). `rounding` says why both are needed.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dpnlp import checks
from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.checks import BadInput
from dpnlp.training.secret import Secret

Integers = NDArray[np.int64]
Numbers = NDArray[np.integer[Any]]
Item = TypeVar("Item")


class Lots:
    """The lots of a run. Nothing is kept but, where the sampler has one, an order of the records at 4 bytes each."""

    def __init__(self, schedule: Schedule, secret: Secret) -> None:
        self.schedule = schedule
        self._secret = secret
        self._epoch = -1
        self._order: Numbers = np.empty(0, np.int32)
        if schedule.sampling in (Sampling.CYCLIC_POISSON, Sampling.CYCLIC):
            # A random order, cut into groups of multinomial sizes: every record is in each of them with the same
            # probability, independently of the others.
            generator = secret.generator("groups")
            sizes = generator.multinomial(schedule.records, np.full(schedule.groups, 1 / schedule.groups))
            self._groups = np.split(_shuffled(schedule.records, generator), np.cumsum(sizes)[:-1])

    def draw(self, step: int) -> Integers:
        """The numbers of the records of lot `step`, ascending; the first step is 0."""
        if checks.count("step", step, least=0) >= self.schedule.steps:
            raise BadInput(f"step = {step}: only {self.schedule.steps} steps are planned and paid for; plan more.")
        return np.sort(self._drawn(step).astype(np.int64))

    def _drawn(self, step: int) -> Numbers:
        plan, generator = self.schedule, self._secret.generator("lot", step)
        match plan.sampling:
            case Sampling.POISSON:
                return _poisson(plan.records, plan.q, generator)
            case Sampling.TRUNCATED_POISSON:
                lot = _poisson(plan.records, plan.q, generator)
                return lot if len(lot) <= plan.cap else generator.choice(lot, plan.cap, replace=False, shuffle=False)
            case Sampling.FIXED_SIZE:
                return generator.choice(plan.records, plan.lot_size, replace=False, shuffle=False)
            case Sampling.SHUFFLED:
                epoch, place = divmod(step, plan.lots_per_epoch)
                return self._permutation(epoch)[place * plan.lot_size :][: plan.lot_size]
            case Sampling.CYCLIC_POISSON:
                group: Numbers = self._groups[step % plan.bands]
                rate = plan.bands * plan.lot_size / plan.records
                return group[_poisson(len(group), rate, generator)]
            case Sampling.CYCLIC:
                return self._groups[step % plan.groups]

    def places(self, step: int) -> "Places":
        """The randomness by which the records of lot `step` are placed in batches, for each shape its own."""
        return lambda examples, length: self._secret.generator(f"places {examples} {length}", step)

    def _permutation(self, epoch: int) -> Numbers:
        """The order of the records in an epoch; only one is kept at a time."""
        if epoch != self._epoch:
            self._order = np.empty(0, np.int32)
            self._order = _shuffled(self.schedule.records, self._secret.generator("epoch", epoch))
            self._epoch = epoch
        return self._order


class Owners:
    """Whose each example is. An owner with all its examples is one record, and is drawn and clipped as one.

    `of` names the owner of each example. An owner of more than `most` examples takes part with a random choice of
    `most` of them, the same in all steps. `offsets` and `members` hold what each owner takes part with.
    """

    def __init__(self, of: NDArray[Any], most: int, secret: Secret) -> None:
        of = np.asarray(of)
        if of.ndim != 1 or not of.size or of.dtype.kind not in "iuSUT":
            raise BadInput(
                f"owners = {of.dtype} of shape {of.shape}: it must be one whole number or one text for each example; "
                "give every example an owner."
            )
        self.most = checks.count("most", most)
        _, number, counts = np.unique(of, return_inverse=True, return_counts=True)
        order = _shuffled(of.size, secret.generator("owners"))
        order = order[np.argsort(number[order], kind="stable")]
        place = np.arange(of.size) - np.repeat(np.cumsum(counts) - counts, counts)  # among those of its owner
        self.members = order[place < self.most]
        self.offsets = np.append(0, np.cumsum(np.minimum(counts, self.most))).astype(_index_type(of.size))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def counts(self, owners: Integers) -> Integers:
        """How many examples each of these owners takes part with."""
        return (self.offsets[owners + 1] - self.offsets[owners]).astype(np.int64)

    def examples(self, owners: Integers, width: int) -> Integers:
        """The examples of these owners, [owners, width]; the last one is repeated where there are fewer."""
        place = np.minimum(np.arange(width), self.counts(owners)[:, None] - 1)
        found: Integers = self.members[self.offsets[owners][:, None] + place].astype(np.int64)
        return found


class Shape(NamedTuple):
    """A physical batch as XLA sees it: `records` of `examples` each, padded to `length` tokens."""

    records: int
    examples: int
    length: int


Places = Callable[[int, int], np.random.Generator]
"""What places the records of so many examples, padded to so many tokens."""


@dataclass(frozen=True)
class Layout:
    """What the device can take: `physical_batch` examples at once, each padded to one of `lengths`.

    A longer example counts as one of the largest length, to which the dataset cuts it. `multiple` devices share every
    batch evenly. The batches of all lots have one shape for each length; with owners, for each length and each power of
    two of examples. In a batch of another size the last bits of a row would be other ones.
    """

    physical_batch: int
    lengths: tuple[int, ...]
    multiple: int = 1

    def __post_init__(self) -> None:
        checks.count("physical_batch", self.physical_batch)
        checks.count("multiple", self.multiple)
        if self.physical_batch % self.multiple:
            nearest = -(-self.physical_batch // self.multiple) * self.multiple
            raise BadInput(
                f"physical_batch = {self.physical_batch}: it must be a multiple of the {self.multiple} devices that "
                f"share it; use {nearest}."
            )
        for length in self.lengths:
            checks.count("lengths", length)
        if not self.lengths or list(self.lengths) != sorted(set(self.lengths)):
            raise BadInput(f"lengths = {self.lengths}: it must be one or more lengths in ascending order; sort them.")

    def size(self, examples: int) -> int:
        """The number of records in a batch; one of more examples than fit on a device is still a record of its own."""
        return max(1, self.physical_batch // (examples * self.multiple)) * self.multiple

    def padded(self, longest: Integers) -> Integers:
        """For each of these numbers of tokens the smallest length that holds it, or else the largest."""
        found = np.searchsorted(self.lengths, np.minimum(longest, self.lengths[-1]))
        return np.asarray(self.lengths, np.int64)[found]


class Batch(NamedTuple):
    """One physical batch: which examples, and how much the loss of each counts for its record.

    The examples of a record follow each other. Those of an owner weigh 1/n each, so that its loss is their mean.
    Padding repeats some row of the same batch and weighs 0.
    """

    shape: Shape
    rows: Integers  # [records * examples]
    weights: NDArray[np.float32]  # [records * examples]


def cut(lot: Integers, layout: Layout, lengths: Numbers, places: Places, owners: Owners | None = None) -> list[Batch]:
    """The physical batches of a lot, the longest first; an empty one has none. `lengths` are those of all examples.

    With `owners` a lot holds owners: the shape of one follows from the next power of two of its own examples, and from
    the longest of them.
    """
    widths = np.ones(len(lot), np.int64)
    if owners is not None:
        widths = np.minimum(2 ** np.ceil(np.log2(owners.counts(lot))).astype(np.int64), owners.most)
    batches = []
    for width in np.unique(widths).tolist():
        examples, weights = _of_width(lot[widths == width], width, owners)
        padded = layout.padded(lengths[examples].max(axis=1).astype(np.int64))
        for length in np.unique(padded)[::-1].tolist():
            alike = np.flatnonzero(padded == length)
            placed = alike[_placed(len(alike), places(width, length))]
            batches += _filled(Shape(0, width, length), examples[placed], weights[placed], layout.size(width))
    return sorted(batches, key=lambda batch: -batch.shape.length)


def _of_width(records: Integers, width: int, owners: Owners | None) -> tuple[Integers, NDArray[np.float32]]:
    """The examples of the records, [records, width], and how much each of them counts."""
    if owners is None:
        return records[:, None], np.ones((len(records), 1), np.float32)
    counts = owners.counts(records)[:, None]
    weights = np.where(np.arange(width) < counts, 1 / counts, 0).astype(np.float32)
    return owners.examples(records, width), weights


def _placed(count: int, generator: np.random.Generator) -> list[int]:
    """A uniformly random order of 0 … count − 1, in which one more changes two places: its own, and the last one.

    Each takes the place of a random one before it, or stays at the end, and that one goes to the end (Fisher and Yates
    1938, inside out).
    """
    order = list(range(count))
    for number, place in enumerate(generator.integers(0, np.arange(1, count + 1)).tolist()):
        order[number] = order[place]
        order[place] = number
    return order


def _filled(shape: Shape, examples: Integers, weights: NDArray[np.float32], size: int) -> list[Batch]:
    """The batches of records of one shape, in their order; the last one is filled up with a row that weighs nothing."""
    records = len(examples)
    filled = np.minimum(np.arange(-(-records // size) * size), records - 1)
    weights = weights[filled]
    weights[records:] = 0
    rows = examples[filled]
    return [
        Batch(shape._replace(records=size), rows[start:][:size].ravel(), weights[start:][:size].ravel())
        for start in range(0, len(filled), size)
    ]


def prefetch(items: Iterable[Item], depth: int = 2) -> Generator[Item, None, None]:
    """The same items, with the next `depth` of them prepared by a thread while the device works on this one."""
    checks.count("depth", depth)
    iterator, end = iter(items), cast(Item, object())
    worker = ThreadPoolExecutor(1, "prefetch")
    try:
        waiting = deque(worker.submit(next, iterator, end) for _ in range(depth))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(worker.submit(next, iterator, end))
            yield item
    finally:
        worker.shutdown(cancel_futures=True)


def _poisson(records: int, q: float, generator: np.random.Generator) -> Integers:
    """Each of 0 … records − 1 with probability q, independently: the gaps between them are geometric."""
    enough = int(records * q + 6 * np.sqrt(records * q)) + 16
    drawn = np.array([-1])
    while drawn[-1] < records:
        gaps = np.maximum(1, generator.geometric(q, enough))  # NumPy rounds to 0 once in 2^53
        drawn = np.append(drawn, drawn[-1] + np.cumsum(gaps))
    return drawn[1 : np.searchsorted(drawn, records)]


def _shuffled(count: int, generator: np.random.Generator) -> Numbers:
    """0 … count − 1 in random order."""
    order = np.arange(count, dtype=_index_type(count))
    generator.shuffle(order)
    return order


def _index_type(count: int) -> type[np.integer[Any]]:
    """Four bytes where they are enough."""
    return np.int32 if count < 2**31 else np.int64
