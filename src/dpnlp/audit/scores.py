"""What tells the outputs of two inputs apart: scores that are larger where the first input is the likelier one.

The best score of all is the ratio of the likelihoods, which a black box does not show (Bichsel et al. 2021, DP-Sniper,
learn it by a classifier). These stand in for it, each for outputs of some kind, and each is learned from outputs that
are then no longer used. Any function of an output is a valid score: a poor one finds less, but nothing wrong.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Outputs = Sequence[Any] | npt.NDArray[Any]
Numbers = npt.NDArray[np.float64]
Bins = npt.NDArray[np.int64]
"""[width, outputs]"""

Score = Callable[[Outputs], npt.ArrayLike]
"""One number for each output: [outputs] -> the same."""

_BINS, _IN_A_BIN = 32, 50
"""An entry's numbers are put into at most so many bins, each with so many outputs or more when it is learned."""

_LARGEST = 1e100
"""Numbers are clamped to this before they are multiplied."""

_PLACES = 256
"""Places of a last binary digit that are told apart, from 2^−181 to 2^73; the last one of them is for 0."""


def learned(first: Outputs, second: Outputs) -> dict[str, Score]:
    """Scores by name, from outputs of the first and of the second input: all those that suit outputs of their kind."""
    scores: dict[str, Score] = {}
    if all(isinstance(output, str) for outputs in (first, second) for output in outputs):
        scores["words"] = _by_words(first, second)
    elif width := _width([*first, *second]):
        one, other = _rows(first, width), _rows(second, width)
        scores["projection"] = _by_projection(one, other)
        scores["distance"] = _by_distance(one, other)
        scores["entries"] = _by_entries(one, other)
        scores["last digit"] = _by_last_digit(one, other)
    keys = [*map(_key, first)], [*map(_key, second)]
    if not scores or len({*keys[0], *keys[1]}) < len(keys[0]) + len(keys[1]):
        scores["value"] = _by_value(*keys)
    return scores


# Outputs as such


def _by_value(first: Iterable[Any], second: Iterable[Any]) -> Score:
    """The log-ratio of how often an output came, for outputs that come again; 0 for one that is new."""
    ratios = _log_ratios(first, second)
    return lambda outputs: np.array([ratios.get(_key(output), 0.0) for output in outputs])


def _key(output: Any) -> Any:
    """Equal for outputs that nobody could tell apart: −0.0 is not 0.0, and NaN is itself."""
    numeric = getattr(output, "dtype", None) is not None and output.dtype.kind != "O"
    return output.tobytes() if numeric else repr(output)


def _log_ratios(first: Iterable[Any], second: Iterable[Any]) -> dict[Any, float]:
    """ln((a + ½)/(b + ½)) for what came a times of the first input and b times of the second."""
    a, b = Counter(first), Counter(second)
    return {each: float(np.log((a[each] + 0.5) / (b[each] + 0.5))) for each in {*a, *b}}


# Texts


def _by_words(first: Outputs, second: Outputs) -> Score:
    """Naive Bayes: the sum of the log-ratios of the words that are in a text, and of its length."""
    ratios = _log_ratios(*([part for text in texts for part in _parts(text)] for texts in (first, second)))
    return lambda outputs: np.array([sum(ratios.get(part, 0.0) for part in _parts(text)) for text in outputs])


def _parts(text: Any) -> set[str | int]:
    words = str(text).split()
    return {*words, len(words)}


# Numbers and vectors


def _by_projection(first: Numbers, second: Numbers) -> Score:
    """⟨y, μ − μ'⟩, along the difference of the means: the likelihood ratio of Gaussian noise, but for a constant."""
    towards = _mean(first) - _mean(second)
    return lambda outputs: np.sum(_finite(_rows(outputs, len(towards))) * towards, axis=1)


def _by_distance(first: Numbers, second: Numbers) -> Score:
    """‖y − μ'‖ − ‖y − μ‖: the likelihood ratio of noise of density ∝ exp(−η‖z‖)."""
    one, other = _mean(first), _mean(second)

    def score(outputs: Outputs) -> Numbers:
        rows = _finite(_rows(outputs, len(one)))
        return np.asarray(np.linalg.norm(rows - other, axis=1) - np.linalg.norm(rows - one, axis=1))

    return score


def _by_entries(first: Numbers, second: Numbers) -> Score:
    """Naive Bayes by the size of each entry: the bin between two quantiles that it is in; NaN is a bin of its own."""
    many = len(first) + len(second)
    shares = np.linspace(0, 1, max(2, min(_BINS, many // _IN_A_BIN)) + 1)[1:-1]
    edges = np.quantile(_finite(np.concatenate((first, second))), shares, axis=0)  # [bins − 1, width]

    def bins(rows: Numbers) -> Bins:
        places = [np.searchsorted(edge, column, side="right") for edge, column in zip(edges.T, rows.T, strict=True)]
        return np.where(np.isnan(rows.T), len(edges) + 1, places)

    return _naive_bayes(first, second, bins, len(edges) + 2)


def _by_last_digit(first: Numbers, second: Numbers) -> Score:
    """Naive Bayes by the place of each entry's last binary digit that is not 0.

    A sum in floating point is rounded by the larger one of answer and noise, which leaves gaps in what can come out
    (Mironov 2012). What is on a grid of its own, as our noise is, has no such gaps.
    """

    def places(rows: Numbers) -> Bins:
        digits, exponents = np.frexp(_finite(rows.T))
        whole = np.ldexp(digits, 53).astype(np.int64)
        last = exponents + np.log2(np.maximum(whole & -whole, 1)).astype(np.int64)
        return np.asarray(np.where(whole == 0, _PLACES - 1, np.clip(last + _PLACES // 2, 0, _PLACES - 2)))

    return _naive_bayes(first, second, places, _PLACES)


def _naive_bayes(first: Numbers, second: Numbers, bins: Callable[[Numbers], Bins], many: int) -> Score:
    """The sum over entries of the log-ratio of the bin that an entry is in, one of so many."""

    def counts(rows: Numbers) -> Numbers:
        return np.array([np.bincount(column, minlength=many) for column in bins(rows)], np.float64)

    ratios = np.log((counts(first) + 0.5) / (counts(second) + 0.5))  # [width, bins]
    return lambda outputs: np.take_along_axis(ratios, bins(_rows(outputs, len(ratios))), axis=1).sum(axis=0)


def _width(outputs: Sequence[Any]) -> int:
    """How many numbers most of the outputs have; 0 where most are no numbers."""
    (width, times), *_ = Counter(map(_size, outputs)).most_common(1)
    return width if 2 * times > len(outputs) else 0


def _size(output: Any) -> int:
    try:
        array = np.asarray(output)
    except ValueError:  # lists of different lengths
        return 0
    return array.size if array.dtype.kind in "biuf" else 0


def _rows(outputs: Outputs, width: int) -> Numbers:
    """[outputs, width]; an output that is not so many numbers is a row of NaN."""
    if isinstance(outputs, np.ndarray) and outputs.dtype.kind in "biuf" and outputs.size == len(outputs) * width:
        return outputs.reshape(len(outputs), width).astype(np.float64)
    missing = np.full(width, np.nan)
    return np.array([np.ravel(output) if _size(output) == width else missing for output in outputs], np.float64)


def _finite(rows: Numbers) -> Numbers:
    """With 0 for what is no finite number, and none so large that its square is not finite."""
    return np.clip(np.where(np.isfinite(rows), rows, 0.0), -_LARGEST, _LARGEST)


def _mean(rows: Numbers) -> Numbers:
    return np.asarray(_finite(rows).mean(axis=0))
