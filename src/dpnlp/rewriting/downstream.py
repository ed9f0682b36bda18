"""What rewritten texts are still good for: a classifier learns from them and is tested on original texts.

It is logistic regression on the vectors of a public sentence encoder, trained in seconds, so that a whole curve over ε
costs minutes. It may be told how the data were randomized. Where a share λ of the texts was rewritten by what
they say and the rest drawn blindly, and labels went through randomized response T, a text x comes with the label y with

    p(y | x) = Σ_c T(y | c) (λ q(c | x) + (1 − λ) π(c)),

q what is to be learned and π the shares of the labels. The classifier maximises this instead of q itself (the forward
correction of Patrini et al. 2017). Where labels were drawn together with the texts, those of the blind draws are
uniform, and so is π.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.mechanisms import RandomizedResponse
from dpnlp.models.sentence_vectors import Vectors

_PENALTIES = (1e-5, 1e-4, 1e-3)
"""Weights of the squared norm of what is learned, of which the validation data choose one."""

_ITERATIONS = 300


@dataclass(frozen=True)
class Randomized:
    """How the texts and labels were randomized, as far as that is public."""

    carried: float = 1.0  # λ
    labels: RandomizedResponse | None = None  # T; without it they are true, or drawn together with the texts
    together: bool = False  # whether they were

    def __post_init__(self) -> None:
        checks.share("carried", self.carried)

    def transition(self, classes: int) -> NDArray[np.float64]:
        """T(y | c): [classes, classes], with c in the rows."""
        if self.labels is None:
            return np.eye(classes)
        other = (1 - self.labels.theta) / (classes - 1)
        return np.full((classes, classes), other) + (self.labels.theta - other) * np.eye(classes)

    def blind(self, told: NDArray[np.float64]) -> NDArray[np.float64]:
        """π, the shares of the labels of texts that were drawn blindly, from those of all labels that are released."""
        if self.together:
            return np.full(len(told), 1 / len(told))
        return np.clip(np.linalg.solve(self.transition(len(told)).T, told), 0, 1)


@dataclass(frozen=True)
class Classifier:
    """A linear classifier on vectors."""

    labels: tuple[str, ...]
    weights: NDArray[np.float64]  # [width, classes]
    bias: NDArray[np.float64]  # [classes]

    def __call__(self, vectors: Vectors) -> list[str]:
        """The labels that it gives."""
        return [self.labels[best] for best in np.argmax(vectors @ self.weights + self.bias, axis=1)]


def learn(
    vectors: Vectors,
    labels: Sequence[str],
    validation: tuple[Vectors, Sequence[str]] | None = None,
    randomized: Randomized | None = None,
) -> Classifier:
    """The classifier of rewritten texts. Validation data, rewritten like the others, choose how strongly it is held."""
    names = tuple(sorted(set(labels)))
    if not names:
        raise BadInput("labels: there are none, so that nothing can be learned; give texts with labels.")
    if len(names) == 1:
        return Classifier(names, np.zeros((vectors.shape[1], 1)), np.zeros(1))
    randomized = randomized or Randomized()
    transition = randomized.transition(len(names))
    y = _numbered(labels, names)
    pi = randomized.blind(np.bincount(y, minlength=len(names)) / len(y))
    public = (jnp.asarray(transition), jnp.asarray(pi), randomized.carried)

    def fitted(penalty: float) -> NDArray[np.float64]:
        def objective(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            value, slope = _loss(jnp.asarray(flat, jnp.float32), vectors, y, *public, penalty)
            return float(value), np.asarray(slope, np.float64)

        start = np.zeros((vectors.shape[1] + 1) * len(names))
        found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": _ITERATIONS}).x
        return np.asarray(found)

    if validation is None:
        best = fitted(_PENALTIES[1])
    else:
        known = [label in names for label in validation[1]]
        held = validation[0][known], _numbered([label for label in validation[1] if label in names], names)
        best = min(map(fitted, _PENALTIES), key=lambda flat: float(_loss(flat, *held, *public, 0.0)[0]))
    table = best.reshape(-1, len(names))
    return Classifier(names, table[:-1], table[-1])


def _numbered(labels: Sequence[str], names: tuple[str, ...]) -> NDArray[np.int64]:
    rows = {name: row for row, name in enumerate(names)}
    return np.array([rows[label] for label in labels], dtype=np.int64)


def _negative_log(
    flat: jax.Array,
    vectors: jax.Array,
    y: jax.Array,
    transition: jax.Array,
    pi: jax.Array,
    carried: float,
    penalty: float,
) -> jax.Array:
    """−log p of the labels in the mean, and the penalty."""
    table = flat.reshape(-1, len(pi))  # [width + 1, classes]
    q = jax.nn.softmax(vectors @ table[:-1] + table[-1])
    p = (carried * q + (1 - carried) * pi) @ transition
    told = jnp.take_along_axis(p, y[:, None], axis=1)
    return -jnp.mean(jnp.log(told + 1e-12)) + penalty * jnp.sum(table[:-1] ** 2)


_loss = jax.jit(jax.value_and_grad(_negative_log))
