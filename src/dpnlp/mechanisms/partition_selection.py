"""Which words may be named at all: partition selection by the weighted Gaussian (Gopi et al. 2020, DP Set Union).

Every unit (a user, a text) names at most m items of an alphabet that nobody knows beforehand, as words are. Each of the
k ≤ m items that it names gets the weight 1/√k from it, so that its vector of weights has an ℓ2 norm of at most 1. Noise
N(0, σ²) is added to the sum for every item that occurs, and those above a threshold ρ come out. Items that do not occur
get no noise and can never come out: that an item is there at all gives somebody away, and ρ pays for that.

The theorem. If σ is that of the analytic Gaussian for (ε, δ/2) and Δ₂ = 1, and

    ρ = max over 1 ≤ t ≤ m of 1/√t + σ Φ⁻¹((1 − δ/2)^{1/t}),

what comes out is (ε, δ)-DP for one unit under add-remove.

Proof. Let D' be D and one unit more, and let U be the items that only this unit names, t = |U| ≤ k ≤ m.

1. On U the noise is independent, and each sum is 1/√k ≤ 1/√t. So none of U comes out with probability at least
   Φ((ρ − 1/√t)/σ)^t ≥ 1 − δ/2, by the choice of ρ.
2. All other items that occur in D' occur in D as well. There the sums of D and D' are at most 1 apart in ℓ2, the noise
   is that of the Gaussian mechanism, and the threshold is post-processing of it.
3. The noise on U is independent of the rest. So the release on D' is that of 2 with something added, where the addition
   is empty but for a probability of at most δ/2; on D it is always empty. Nobody can tell more from it than from the
   Gaussian mechanism together with a (0, δ/2)-DP one. That pair is the event for an accountant (`event`), and it is
   (ε, δ/2 + δ/2)-DP in itself by basic composition. ∎

The items that a unit names may depend on its own data and on coins of its own, and on nothing else. Here they are the
first m that it is given.

On a computer. The weights are whole numbers of grid steps, rounded down so that the norm is at most 1 exactly, sums of
whole numbers are exact in any order, and the scale of the noise does not depend on how many items occur, which is
private too. A discrete Gaussian X of s steps has P[X ≥ n] ≤ P[N(0, s²) ≥ n − 1] for n ≥ 1, since the sum of
exp(−x²/2s²) from n on is at most its integral from n − 1, and over all whole numbers at least √(2π) s (Canonne et al.
2020, Proposition 25). An item comes out if its noisy sum is above T steps, that is if X ≥ T − weight + 1, so that T is
ρ by the formula above for the continuous noise of s steps.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
from scipy.stats import norm

from dpnlp import checks, events
from dpnlp.guarantee import Adjacency, Term
from dpnlp.mechanisms.base import Mechanism
from dpnlp.mechanisms.gaussian import Gaussian
from dpnlp.mechanisms.grid import discrete_gaussian
from dpnlp.mechanisms.randomness import OS_ENTROPY, Source


@dataclass(frozen=True)
class PartitionSelection(Mechanism):
    """Items that many units share, at a chosen (ε, δ) for one unit under add-remove; a unit names at most `items`."""

    items: int
    epsilon: float
    delta: float
    source: Source = OS_ENTROPY

    def __post_init__(self) -> None:
        checks.probability("delta", self.delta)
        checks.count("items", self.items)
        self.noise.sigma  # noqa: B018  (a wrong ε is refused here, not at the first release)

    @cached_property
    def noise(self) -> Gaussian:
        """How large the noise on each sum of weights is: it has half of δ."""
        return Gaussian(1.0, self.epsilon, self.delta / 2)

    def contribution(self, named: Iterable[str]) -> Counter[str]:
        """What one unit adds to the sums, in grid steps: each of the first m different items that it names gets 1/√k.

        ⌊√⌊1/(step² k)⌋⌋ steps for each of k items are at most one in ℓ2, exactly.
        """
        kept = list(islice(dict.fromkeys(named), self.items))
        return Counter(dict.fromkeys(kept, self._weight(len(kept)))) if kept else Counter()

    def release(self, sums: Mapping[str, int]) -> dict[str, float]:
        """The items that come out, of the sums of all contributions, with their noisy sums, largest first."""
        known = sorted(sums)
        noisy = np.array([sums[item] for item in known], dtype=np.int64)
        noisy += discrete_gaussian(self.source, self.noise.scale(), len(known))
        chosen = sorted(np.flatnonzero(noisy > self._threshold), key=noisy.__getitem__, reverse=True)
        return {known[place]: float(noisy[place] * self.noise.step) for place in chosen}

    @property
    def threshold(self) -> float:
        """ρ, in the weight of a unit that names a single item."""
        return self._threshold * self.noise.step

    @cached_property
    def _threshold(self) -> int:
        """T: ρ in grid steps, and one more for what the arithmetic may round off."""
        t = np.arange(1, self.items + 1)
        weights = np.array([self._weight(k) for k in range(1, self.items + 1)])
        slip = -np.expm1(np.log1p(-self.delta / 2) / t)  # 1 − (1 − δ/2)^{1/t}
        return math.ceil(float(np.max(weights + self.noise.scale() * norm.isf(slip)))) + 1

    def _weight(self, k: int) -> int:
        per_unit = math.floor(1 / self.noise.step)
        return math.isqrt(per_unit * per_unit // k)

    def event(self) -> events.Composed:
        """What an accountant sees: the noise, and the failure that the threshold allows."""
        noise = self.noise.event(Adjacency.ADD_REMOVE)
        return events.Composed((noise, events.ApproximateDP(0.0, self.delta / 2)))

    @property
    def term(self) -> Term:
        """The name and the public parameters."""
        return Term.of("partition-selection", sigma=self.noise.sigma, threshold=self.threshold, items=self.items)
