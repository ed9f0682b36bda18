"""How a training run draws its lots, and the event that each way of drawing has (law 1).

A `Schedule` is the only place where a sampler becomes an event. A sampler that has no proved event for an adjacency
is refused by name; it never borrows another sampler's.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.events import (
    Composed,
    Event,
    FixedSizeSampled,
    Gaussian,
    NonPrivate,
    PoissonSampled,
    Repeated,
    SharedPoissonSampled,
    TruncatedPoissonSampled,
)
from dpnlp.guarantee import Adjacency, Term


def amplified(epsilon: float, delta: float, q: float) -> tuple[float, float]:
    """Amplification by Poisson sampling, ε₂ = ln(1 + q(e^ε₁ − 1)) and δ₂ = qδ₁ (Li, Qardaji and Su 2012).

    Holds for any (ε₁, δ₁) mechanism under add-remove.
    """
    checks.share("q", q)
    if epsilon > 700:
        return epsilon + math.log(q), q * delta
    return math.log1p(q * math.expm1(epsilon)), q * delta


class Sampling(StrEnum):
    """The ways of drawing lots."""

    POISSON = "poisson"
    TRUNCATED_POISSON = "truncated-poisson"
    FIXED_SIZE = "fixed-size"
    SHUFFLED = "shuffled"
    CYCLIC_POISSON = "cyclic-poisson"
    CYCLIC = "cyclic"

    @property
    def adjacencies(self) -> tuple[Adjacency, ...]:
        """The neighbours for which this sampler has a proved event; the first is the usual choice.

        A fixed lot size only makes sense while the number of records is public, so that one can be replaced but
        not added. Shuffled lots move when a record is added; the bound is proved for a record that is blanked out
        (Chua et al. 2024) or replaced.
        """
        if self is Sampling.FIXED_SIZE:
            return (Adjacency.REPLACE,)
        if self is Sampling.SHUFFLED:
            return (Adjacency.ZERO_OUT, Adjacency.REPLACE)
        return (Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT, Adjacency.REPLACE)


@dataclass(frozen=True)
class Schedule:
    """`steps` lots of `lot_size` records, drawn from `records` of them. A record may be an owner with all its texts.

    For Poisson sampling the lot size L is the expected one and every record enters with q = L/N, with N the true
    number of records, never rounded up to a multiple of L.

    Cyclic Poisson sampling gives each record one of b = `bands` groups at random; step t draws from group t mod b, each
    of its members with probability bq. With noise C⁻¹z on the sums, C lower triangular with b diagonals and columns of
    norm at most 1, T steps cost no more than ⌈T/b⌉ of Poisson sampling at rate bq (Choquette-Choo et al. 2023, arXiv
    2306.08153, Theorem 4). For to see all x + C⁻¹z is to see Cx + z, where what a record adds at one of its turns stays
    within b rows, so ends before its next turn. Independent noise, C = 1, is covered too. A record's group depends on
    no other record: one that is added gets a group of its own, and what replaces a record or blanks it out takes over
    its group. So all others have the same groups in both of two neighbours, whatever the adjacency.

    Cyclic lots are without sampling, as DP-FTRL has them (Kairouz et al. 2021, arXiv 2103.00039): each record is dealt
    once to one of G = ⌈N/L⌉ groups, in the same way, and step t takes all of group t mod G. Who takes part when might
    as well be known, so that no amplification is claimed. With noise C⁻¹z as above in b ≤ G bands, a record moves Cx at
    each of its k ≤ ⌈T/G⌉ turns by at most the clip norm, in b rows that end before its next turn. So the moves of its
    turns are at right angles, and at most √k clip norms together, also where a turn's answer depends on what was
    released before (Denisov et al. 2022, arXiv 2202.08312): k Gaussians, for every adjacency.

    `sharing` is M, the number of records that one unit has a part in, its own included: a node is in the records of
    its neighbours, too (Daigavane et al. 2021). With more than one, a unit that is removed takes its own record away
    and changes the others, so that each of them that is drawn moves the sum by up to 2C.

    `aggregations` are Gaussian releases made of the same data before the first step, as GAP makes them (Sajadmanesh et
    al. 2023): for each, its noise multiplier, relative to what one unit can change in it, over that of the steps.
    """

    records: int
    lot_size: int
    steps: int
    sampling: Sampling = Sampling.POISSON
    largest_lot: int | None = None
    bands: int = 1
    sharing: int = 1
    aggregations: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        checks.count("records", self.records)
        checks.count("lot_size", self.lot_size)
        checks.count("steps", self.steps)
        if self.lot_size > self.records:
            raise BadInput(
                f"lot_size = {self.lot_size}: it must not exceed the {self.records} records; choose a smaller lot."
            )
        if self.largest_lot is not None:
            if self.sampling is not Sampling.TRUNCATED_POISSON:
                raise BadInput(f"largest_lot = {self.largest_lot}: only truncated-poisson sampling has one.")
            if checks.count("largest_lot", self.largest_lot) < self.lot_size:
                raise BadInput(f"largest_lot = {self.largest_lot}: it must be at least the lot size {self.lot_size}.")
        if checks.count("bands", self.bands) > 1:
            if self.sampling not in (Sampling.CYCLIC_POISSON, Sampling.CYCLIC):
                raise BadInput(
                    f"bands = {self.bands}: only cyclic-poisson and cyclic sampling have more than one; choose one of "
                    "them, or 1."
                )
            if self.bands > self.groups:
                raise BadInput(
                    f"bands = {self.bands}: a record has its turn every {self.groups} lots, and noise in more bands "
                    f"would reach into the next one; use at most {self.groups}, or smaller lots."
                )
            if self.sampling is Sampling.CYCLIC_POISSON and self.bands * self.lot_size > self.records:
                raise BadInput(
                    f"bands = {self.bands}: a lot of {self.lot_size} does not fit into one of as many groups of the "
                    f"{self.records} records; use at most {self.records // self.lot_size}, or smaller lots."
                )
        if checks.count("sharing", self.sharing) > 1 and self.sampling is not Sampling.POISSON:
            raise BadInput(
                f"sharing = {self.sharing}: {self.sampling} sampling has no proved ε for a unit that has a part in "
                "several records, so none is given; use poisson, or 1."
            )
        ratios = tuple(checks.positive("aggregations", ratio) for ratio in self.aggregations)
        object.__setattr__(self, "aggregations", ratios)

    @property
    def q(self) -> float:
        """The share of the records that a lot holds, L/N."""
        return self.lot_size / self.records

    @property
    def lots_per_epoch(self) -> int:
        """⌈N/L⌉, the number of steps that is called an epoch."""
        return -(-self.records // self.lot_size)

    @property
    def groups(self) -> int:
        """How many groups of records take turns; 1 where every lot is drawn from all of them."""
        return self.lots_per_epoch if self.sampling is Sampling.CYCLIC else self.bands

    @property
    def epochs(self) -> int:
        """How often a record is used at most when the lots are shuffled."""
        return -(-self.steps // self.lots_per_epoch)

    @property
    def cap(self) -> int:
        """Where truncated Poisson sampling cuts a lot: six standard deviations above L unless told otherwise."""
        return self.largest_lot or min(self.records, math.ceil(self.lot_size + 6 * math.sqrt(self.lot_size)))

    @property
    def term(self) -> Term:
        """The sampler and its public parameters, as a guarantee names them."""
        match self.sampling:
            case Sampling.POISSON:
                shared = {"sharing": self.sharing} if self.sharing > 1 else {}
                return Term.of("poisson", q=self.q, **shared)
            case Sampling.TRUNCATED_POISSON:
                return Term.of("truncated-poisson", q=self.q, largest_lot=self.cap)
            case Sampling.FIXED_SIZE:
                return Term.of("fixed-size", lot=self.lot_size, records=self.records)
            case Sampling.SHUFFLED:
                return Term.of("shuffled", epochs=self.epochs)
            case Sampling.CYCLIC_POISSON:
                return Term.of("cyclic-poisson", q=self.q, bands=self.bands)
            case Sampling.CYCLIC:
                return Term.of("cyclic", groups=self.groups, bands=self.bands)

    def event(self, noise_multiplier: float) -> Event:
        """All the lots of the run, with Gaussian noise of `noise_multiplier` clip norms on the sum over each.

        The aggregations stand before them.
        """
        if noise_multiplier == 0:
            return NonPrivate()
        lots = self._lots(Gaussian(noise_multiplier))
        return Composed((*self._released(noise_multiplier), lots)) if self.aggregations else lots

    def before(self, noise_multiplier: float) -> Event:
        """What is released before the first step."""
        return Composed(self._released(noise_multiplier)) if noise_multiplier else NonPrivate()

    def _released(self, noise_multiplier: float) -> tuple[Gaussian, ...]:
        return tuple(Gaussian(ratio * noise_multiplier) for ratio in self.aggregations)

    def _lots(self, noise: Gaussian) -> Event:
        match self.sampling:
            case Sampling.POISSON if self.sharing > 1 and self.q == 1:
                # All M records are drawn: one comes or goes, which is C, and M − 1 change, which is 2C each.
                return Repeated(Gaussian(noise.noise_multiplier / (2 * self.sharing - 1)), self.steps)
            case Sampling.POISSON if self.sharing > 1:
                return Repeated(SharedPoissonSampled(self.q, self.sharing, noise), self.steps)
            case Sampling.POISSON:
                return Repeated(noise if self.q == 1 else PoissonSampled(self.q, noise), self.steps)
            case Sampling.TRUNCATED_POISSON:
                return Repeated(TruncatedPoissonSampled(self.records, self.q, self.cap, noise), self.steps)
            case Sampling.FIXED_SIZE:
                return Repeated(FixedSizeSampled(self.records, self.lot_size, noise), self.steps)
            case Sampling.SHUFFLED:
                # Each record is in one lot per epoch, and no amplification is proved (law 8).
                return Repeated(noise, self.epochs)
            case Sampling.CYCLIC_POISSON:
                # A record has at most ⌈T/b⌉ turns, and takes each of them with probability bq.
                rate = self.bands * self.lot_size / self.records
                return Repeated(noise if rate == 1 else PoissonSampled(rate, noise), -(-self.steps // self.bands))
            case Sampling.CYCLIC:
                # A record has at most ⌈T/G⌉ turns, and takes them all.
                return Repeated(noise, -(-self.steps // self.groups))

    def check(self, adjacency: Adjacency) -> None:
        """Refuses neighbours for which this sampler has no proved event (law 1)."""
        if adjacency not in self.sampling.adjacencies:
            known = " or ".join(self.sampling.adjacencies)
            raise BadInput(
                f"adjacency = {adjacency}: {self.sampling} sampling has no proved ε for it, so none is given; "
                f"use {known}."
            )
        if self.sharing > 1 and adjacency is not Adjacency.ADD_REMOVE:
            raise BadInput(
                f"adjacency = {adjacency}: a unit that has a part in {self.sharing} records has no proved ε for it, so "
                "none is given; use add-remove."
            )
