"""The composition theorems in closed form: what (ε, δ) guarantees add up to, and what they mean for a group.

They hold for any mechanism of which only (ε, δ) is known. Where the noise itself is known, `pld` gives less.
"""

import math
from collections.abc import Iterable

from dpnlp import checks
from dpnlp.guarantee import Adjacency


def basic(parts: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Basic composition: ε and δ of answers on the same data add up (Dwork and Roth 2014, Theorem 3.16)."""
    epsilons, deltas = zip(*parts, strict=True)
    return math.fsum(epsilons), math.fsum(deltas)


def parallel(parts: Iterable[tuple[float, float]], adjacency: Adjacency) -> tuple[float, float]:
    """Parallel composition: each answer saw its own disjoint part of the data (McSherry 2009, Theorem 4).

    A record that is added, removed or blanked out touches one part, so the worst part counts. A record that is
    replaced may leave one part and enter another: the two worst count.
    """
    touched = 2 if adjacency is Adjacency.REPLACE else 1
    epsilons, deltas = (sorted(values, reverse=True)[:touched] for values in zip(*parts, strict=True))
    return math.fsum(epsilons), math.fsum(deltas)


def left(delta: float, failure: float) -> float:
    """δ' of δ = f + (1 − f) δ', where all is lost with probability f; not above 0 where f uses δ up.

    f is a sum of thousands of chances in float64, and is taken for more than it can have lost.
    """
    return (delta - failure * (1 + 1e-12)) / (1 - failure)


def advanced(epsilon: float, delta: float, count: int, slack: float) -> tuple[float, float]:
    """Advanced composition of `count` answers, each (ε, δ), for a freely chosen slack δ' > 0.

    ε' = ε√(2k ln(1/δ')) + kε(e^ε − 1), and the total δ is kδ + δ' (Dwork, Rothblum and Vadhan 2010, Theorem III.3).
    """
    k = checks.count("count", count)
    checks.probability("slack", slack)
    total = epsilon * math.sqrt(2 * k * math.log(1 / slack)) + k * epsilon * math.expm1(epsilon)
    return total, k * delta + slack


def group(epsilon: float, delta: float, size: int) -> tuple[float, float]:
    """Group privacy: what one record's (ε, δ) means for `size` records that change together.

    ε' = kε and δ' = δ (e^{kε} − 1)/(e^ε − 1), the k-fold use of the definition (Vadhan 2017, Lemma 2.2).
    """
    k = checks.count("size", size)
    if epsilon == 0:
        return 0.0, k * delta
    if k * epsilon > 700:
        return k * epsilon, 0.0 if delta == 0 else 1.0
    return k * epsilon, min(1.0, delta * math.expm1(k * epsilon) / math.expm1(epsilon))
