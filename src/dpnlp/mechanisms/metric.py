"""Metric differential privacy (Chatzikokolakis et al. 2013): the closer two answers are, the better they are hidden.

P(z | x) ≤ e^{η‖x − x'‖} P(z | x') for any two vectors, by noise of density ∝ exp(−η‖z‖). Where no two answers are
farther apart than a diameter D, this is ε-DP with ε = ηD, whatever the answer.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpnlp import checks, events
from dpnlp.checks import BadInput
from dpnlp.guarantee import Adjacency, Guarantee, Term, Trust, Unit
from dpnlp.mechanisms.base import Mechanism
from dpnlp.mechanisms.grid import from_grid, step_below, to_grid
from dpnlp.mechanisms.randomness import OS_ENTROPY, Source
from dpnlp.mechanisms.spherical import rounded

Rows = npt.NDArray[np.float64]
"""[vectors, d]"""

_FINENESS = 64
"""At least so many grid steps, along the grid's diagonal, fit into 1/η."""

_BLOCK = 1024
"""So many vectors are compared with as many others at once."""


@dataclass(frozen=True)
class Metric(Mechanism):
    """Noise for vectors of which no two are farther apart than the `diameter`, in ℓ2, at a chosen ε."""

    diameter: float
    epsilon: float
    source: Source = OS_ENTROPY

    def __post_init__(self) -> None:
        checks.positive("diameter", self.diameter, "the largest ℓ2 distance between two answers")
        checks.positive("epsilon", self.epsilon)

    @property
    def eta(self) -> float:
        """η = ε/D, what two answers at a distance of 1 cost. The papers call this ε."""
        return self.epsilon / self.diameter

    def release(self, vectors: npt.ArrayLike) -> Rows:
        """Each vector with its own noise, on a grid: [vectors, d] -> the same.

        What is exact: answers and noise are rounded to one public grid, so that the same sums can come out for all
        answers, and no last bit tells them apart. Noise of density ∝ exp(−η‖z‖) that is rounded to the grid changes its
        probability by a factor of at most e^{η‖v‖} between two places of the grid that are v apart, as each point of
        their cells does. Rounding moves two answers apart by at most √d steps, 1/64η, for which the noise makes up: ε
        holds for the whole diameter.

        The noise itself has the exact distribution (`spherical`), so that δ is 0. Whatever is computed from the noisy
        vector alone, such as the nearest word, adds nothing to this, in whatever precision.
        """
        rows = np.asarray(vectors, dtype=np.float64)
        if rows.ndim != 2 or not rows.shape[1]:
            raise BadInput(f"vectors of shape {rows.shape}: there must be one row of numbers for each.")
        count, d = rows.shape
        step = step_below(1 / (_FINENESS * self.eta * math.sqrt(d)))
        scale = (self.diameter + math.sqrt(d) * step) / self.epsilon / step * (1 + 2.0**-50)  # rounded up
        steps = to_grid(rows, step) + rounded(self.source, count, d, scale).ravel()
        return from_grid(steps, step, rows.shape)

    def event(self) -> events.ApproximateDP:
        """What an accountant sees: ε-DP, and no more is known."""
        return events.ApproximateDP(self.epsilon)

    @property
    def term(self) -> Term:
        """The name and the public parameters."""
        return Term.of("metric", eta=self.eta, diameter=self.diameter)

    def guarantee(
        self, unit: Unit = Unit.WORD, adjacency: Adjacency = Adjacency.REPLACE, trust: Trust = Trust.LOCAL
    ) -> Guarantee:
        """What one vector's release promises: by nature local, with any two answers as neighbours."""
        return super().guarantee(unit, adjacency, trust)


def diameter(vectors: npt.ArrayLike) -> float:
    """D, the largest ℓ2 distance between two of the vectors, rounded up.

    Two vectors are no farther apart than both are from the mean. In the order of that distance, pairs that cannot
    reach the largest one so far are left out, which are nearly all where a few vectors are far out.
    """
    rows = np.asarray(vectors, dtype=np.float64)
    if rows.ndim != 2 or not np.all(np.isfinite(rows)):
        raise BadInput("vectors: there must be one row of finite numbers for each.")
    rows = rows - rows.mean(axis=0) if len(rows) else rows
    if not (largest := float(np.max(np.abs(rows), initial=0.0))):
        return 0.0
    rows = rows / largest  # so that no square vanishes
    out = np.linalg.norm(rows, axis=1)
    order = np.argsort(-out)
    rows, out = rows[order], out[order]
    squares, farthest = out**2, 0.0
    for i in range(0, len(rows), _BLOCK):
        for j in range(i, len(rows), _BLOCK):
            if out[i] + out[j] <= farthest:
                break
            apart = (
                squares[i : i + _BLOCK, None]
                + squares[j : j + _BLOCK]
                - 2 * rows[i : i + _BLOCK] @ rows[j : j + _BLOCK].T
            )
            farthest = max(farthest, math.sqrt(max(0.0, float(apart.max()))))
    return farthest * largest * (1 + 1e-9)
