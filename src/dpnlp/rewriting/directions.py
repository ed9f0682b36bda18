"""The vector of a text along the principal directions of public texts, where most of their differences lie.

z = Aᵀ(v − v̄), with the mean v̄ of public vectors and the eigenvectors A of their n largest variances. Noise grows with
√n, so that n is to be far below the width of a vector. All of this but the text is public.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.models.sentence_vectors import Vectors
from dpnlp.rewriting.latent import Clip, Rule

Places = npt.NDArray[np.float32]
"""[texts, n]"""

_WITHIN = 0.9


@dataclass(frozen=True, eq=False)
class Directions:
    """v̄, A, and the bound C that nine of ten public vectors stay within along A."""

    mean: npt.NDArray[np.float32]  # [width]
    axes: npt.NDArray[np.float32]  # [width, n]
    bound: float

    @classmethod
    def of(cls, vectors: Vectors, n: int) -> "Directions":
        """The first n of public vectors."""
        most = vectors.shape[1]
        if checks.count("directions", n) > most:
            raise BadInput(f"directions = {n}: the vectors have {most} entries; take no more.")
        mean = vectors.mean(axis=0)
        centred = (vectors - mean).astype(np.float64)
        _, found = np.linalg.eigh(centred.T @ centred)
        axes = found[:, ::-1][:, :n].astype(np.float32)
        lengths = np.linalg.norm((vectors - mean) @ axes, axis=1)
        return cls(mean, axes, float(np.quantile(lengths, _WITHIN)))

    def __call__(self, vectors: Vectors) -> Places:
        """z of each vector, not clipped. An entry that is no number counts as 0: a refusal would tell of the text.

        Each is a product of its own: in one of all vectors the last bits of each depend on how many there are.
        """
        places = np.matmul((vectors - self.mean)[:, None, :], self.axes)[:, 0]
        return np.nan_to_num(np.asarray(places, np.float32), nan=0.0)

    @property
    def clip(self) -> Clip:
        """In ℓ2 to C, so that Δ₂ = 2C."""
        return Clip(Rule.L2, self.bound, self.axes.shape[1])
