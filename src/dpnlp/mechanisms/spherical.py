"""Noise of density ∝ exp(−‖z‖) on a grid, as exact as if it were computed with infinitely many digits.

A direction is that of d normals (Box and Muller 1958), uniform on the sphere; the radius is Gamma(d, 1), a sum of d
exponentials (Feyisetan et al. 2020). All of it is a function of uniform numbers, of which the first 52 random bits are
drawn, and a bound on how far float64 is off says to which places of the grid a vector is rounded, whatever the other
bits are. Where it cannot say so, for one vector in millions, these are drawn too, and intervals are computed with until
all places are certain. So what comes out has the exact distribution.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpnlp.mechanisms.randomness import Integers, Source

Rows = npt.NDArray[np.float64]
"""[vectors, d]"""

_BITS, _MORE = 52, 128
_UNIT = 2.0**-52


class Near(NamedTuple):
    """Vectors, and how far each entry may be from the exact one."""

    vectors: Rows
    doubt: Rows


def rounded(source: Source, count: int, d: int, scale: float) -> Integers:
    """scale · z, rounded to whole numbers: [count, d]."""
    words = _drawn(source, count, d)
    vectors, doubt = (scale * part for part in near(words, d))
    to_edge = np.abs(vectors - np.floor(vectors) - 0.5)
    steps = np.rint(vectors).astype(np.int64)
    for row in np.flatnonzero(~np.all(to_edge > doubt, axis=1)):
        steps[row] = _exactly(words[row].tolist(), d, scale, source)
    return steps


def near(words: Integers, d: int) -> Near:
    """z by float64, for numbers whose first 52 bits are known: [vectors, words] -> [vectors, d] each.

    Where u is off by half of 2⁻⁵², log u is by about as much over u. Each bound is twice what analysis gives or more.
    """
    u = (words + 0.5) * _UNIT
    logs, off = np.log(u[:, : d + _pairs(d)]), _UNIT / u[:, : d + _pairs(d)]
    sizes, angles = np.sqrt(-2 * logs[:, d:]), 2 * np.pi * u[:, d + _pairs(d) :]
    sizes_off = sizes * (off[:, d:] / np.abs(logs[:, d:]) + 16 * _UNIT + 64 * _UNIT)  # with that of sine and cosine
    normals = np.concatenate((sizes * np.cos(angles), sizes * np.sin(angles)), axis=1)[:, :d]
    normals_off = np.concatenate((sizes_off, sizes_off), axis=1)[:, :d]
    radius, length = -np.sum(logs[:, :d], axis=1, keepdims=True), np.linalg.norm(normals, axis=1, keepdims=True)
    relative = 2 * np.sum(off[:, :d], axis=1, keepdims=True) / radius
    relative = relative + 2 * np.linalg.norm(normals_off, axis=1, keepdims=True) / length + 8 * (d + 8) * _UNIT
    found = radius * normals / length
    return Near(found, np.abs(found) * relative + 2 * radius / length * normals_off)


def _exactly(words: list[int], d: int, scale: float, source: Source) -> list[int]:
    """The same for one vector, by intervals, with as many more random bits as it takes."""
    from mpmath import iv
    from mpmath.libmp import to_int

    bits, before = _BITS, iv.prec
    try:
        while True:
            more = source.bytes(_MORE // 8 * len(words))
            parts = (more[start:][: _MORE // 8] for start in range(0, len(more), _MORE // 8))
            words = [(word << _MORE) | int.from_bytes(part) for word, part in zip(words, parts, strict=True)]
            bits += _MORE
            iv.prec = bits + 64
            u = [iv.mpf([word, word + 1]) / 2**bits for word in words]
            logs = [iv.log(one) for one in u[: d + _pairs(d)]]
            sizes = [iv.sqrt(-2 * one) for one in logs[d:]]
            angles = [2 * iv.pi * one for one in u[d + _pairs(d) :]]
            normals = [size * iv.cos(angle) for size, angle in zip(sizes, angles, strict=True)]
            normals = (normals + [size * iv.sin(angle) for size, angle in zip(sizes, angles, strict=True)])[:d]
            factor = iv.mpf(scale) * -sum(logs[:d]) / iv.sqrt(sum(one * one for one in normals))
            ends = [(factor * one + iv.mpf(0.5))._mpi_ for one in normals]
            low, high = ([to_int(end[side], "f") for end in ends] for side in (0, 1))
            if low == high:
                return low
    finally:
        iv.prec = before


def _drawn(source: Source, count: int, d: int) -> Integers:
    """The first 52 bits of each uniform number: [count, words]."""
    words = np.frombuffer(source.bytes(8 * count * (d + 2 * _pairs(d))), dtype="<u8").reshape(count, -1)
    return (words >> 12).astype(np.int64)


def _pairs(d: int) -> int:
    return -(-d // 2)
