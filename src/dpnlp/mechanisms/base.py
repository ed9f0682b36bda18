"""What every mechanism has: the ε and δ of one release, its name with its parameters, and so its guarantee."""

from abc import ABC, abstractmethod

from dpnlp.guarantee import Adjacency, Guarantee, Term, Trust, Unit
from dpnlp.mechanisms.randomness import Source


class Mechanism(ABC):
    """Noise on one answer. It carries its source of noise, so that a guarantee cannot name another (law 6)."""

    epsilon: float
    delta: float = 0.0
    source: Source

    @property
    @abstractmethod
    def term(self) -> Term:
        """The name and the public parameters."""

    def guarantee(self, unit: Unit, adjacency: Adjacency, trust: Trust = Trust.CENTRAL) -> Guarantee:
        """What one release promises, if the sensitivity is the one for this unit and these neighbours."""
        return Guarantee(
            epsilon=self.epsilon,
            delta=self.delta,
            unit=unit,
            adjacency=adjacency,
            trust=trust,
            mechanism=self.term,
            noise_source=self.source.kind,
        )
