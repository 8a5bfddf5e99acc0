"""Vectors in a few bits a number, from which inner products can be estimated.

A vector x is stored as its deviation from the mean μ, rotated at random and rounded to 2^b levels:
x ≈ μ + s R ĥ. After a random rotation the numbers of a vector are nearly normal, whatever the
encoder, so that one set of levels, the best for a normal variable, serves all. The scale s of each
vector makes the estimate of an inner product unbiased over rotations, as in RaBitQ (Gao and Long,
"RaBitQ: Quantizing High-Dimensional Vectors with a Theoretical Error Bound", SIGMOD 2024), of which
b = 1 is the case.
"""

from dataclasses import dataclass
from functools import cache
from math import erf, pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.errors import InputError, argument
from channelhash.utils.seeds import generator

_Floats = NDArray[np.float32]
#: A level for each number of a vector, several in a byte; its scale in the last four bytes.
QuantizedRows = NDArray[np.uint8]

#: Bits a number that can be chosen: those that fill bytes.
BITS = (1, 2, 4, 8)
#: Bytes of the scale of a vector.
_SCALE = 4
#: Steps in which level and scale of a vector follow each other; more gain nothing.
_STEPS = 3
#: Vectors rotated at a time, which bounds memory.
_ROWS = 8192


@dataclass(frozen=True)
class Quantizer:
    """How vectors of one encoder are rounded.

    Attributes:
        bits: bits b a number, one of `BITS`.
        mean: μ, ``(d,)``.
        rotation: R, ``(d, d)``, orthonormal.

    >>> vectors = np.random.default_rng(0).normal(size=(100, 32)).astype(np.float32)
    >>> quantizer = Quantizer.fit(vectors, bits=4)
    >>> rows = quantizer.encode(vectors)
    >>> rows.shape, quantizer.n_bytes
    ((100, 20), 20)
    >>> error = quantizer.inner_products(vectors[:1], rows) - vectors[:1] @ vectors.T
    >>> bool(np.abs(error).max() < 3)
    True
    """

    bits: int
    mean: _Floats
    rotation: _Floats

    @classmethod
    def fit(cls, vectors: NDArray[Any], bits: int, seed: int = 0) -> "Quantizer":
        """Take the mean of a sample of vectors ``(n, d)``, and draw the rotation.

        Raises:
            InputError: ``bits`` is not one of `BITS`.
        """
        if bits not in BITS:
            listed = ", ".join(map(str, BITS))
            raise InputError(f"{argument('bits')} {bits}: a number takes one of {listed} bits")
        d = vectors.shape[1]
        drawn = generator(seed, "quantizer", d).normal(size=(d, d))
        rotation, _ = np.linalg.qr(drawn)
        mean = np.asarray(vectors, np.float32).mean(axis=0)
        return cls(bits, mean, rotation.astype(np.float32))

    @property
    def n_bytes(self) -> int:
        """Bytes of a vector, its scale included."""
        return -(-len(self.mean) * self.bits // 8) + _SCALE

    def encode(self, vectors: NDArray[Any]) -> QuantizedRows:
        """Round vectors ``(n, d)`` to rows ``(n, n_bytes)``."""
        parts = [
            self._encode_part(np.asarray(vectors[start : start + _ROWS], np.float32))
            for start in range(0, len(vectors), _ROWS)
        ]
        return np.concatenate([np.empty((0, self.n_bytes), np.uint8), *parts])

    def _encode_part(self, vectors: _Floats) -> QuantizedRows:
        rotated = (vectors - self.mean) @ self.rotation
        lengths = np.linalg.norm(rotated, axis=1, keepdims=True)
        levels = normal_levels(self.bits)
        edges = (levels[1:] + levels[:-1]) / 2
        step = lengths / sqrt(rotated.shape[1])
        for _ in range(_STEPS):
            numbers = np.searchsorted(edges, rotated / np.where(step > 0, step, 1)).astype(np.uint8)
            rounded = levels[numbers]
            shared = np.einsum("ij,ij->i", rotated, rounded)
            step = (shared / np.einsum("ij,ij->i", rounded, rounded))[:, None]
        squares = lengths[:, 0] ** 2
        scale = np.divide(squares, shared, out=np.zeros_like(squares), where=shared > 0)
        return np.hstack([_pack(numbers, self.bits), scale.astype("<f4")[:, None].view(np.uint8)])

    def inner_products(self, questions: NDArray[Any], rows: QuantizedRows) -> _Floats:
        """Estimate the inner products ``(nq, n)`` of questions ``(nq, d)`` and stored vectors.

        ⟨q, x⟩ ≈ ⟨q, μ⟩ + s ⟨Rᵀq, ĥ⟩
        """
        questions = np.asarray(questions, np.float32)
        rounded, scale = self._levels_and_scales(rows)
        products = (questions @ self.rotation) @ rounded.T
        return np.asarray(products * scale + (questions @ self.mean)[:, None], np.float32)

    def decode(self, rows: QuantizedRows) -> _Floats:
        """Return the vectors ``(n, d)`` that rows stand for."""
        rounded, scale = self._levels_and_scales(rows)
        return np.asarray((rounded * scale[:, None]) @ self.rotation.T + self.mean, np.float32)

    def _levels_and_scales(self, rows: QuantizedRows) -> tuple[_Floats, _Floats]:
        numbers = _unpack(rows[:, :-_SCALE], self.bits, len(self.mean))
        scale = np.ascontiguousarray(rows[:, -_SCALE:]).view("<f4")[:, 0]
        return normal_levels(self.bits)[numbers], scale


@cache
def normal_levels(bits: int) -> _Floats:
    """Return the 2^bits levels that round a standard normal variable with the least squared error
    (Lloyd, "Least Squares Quantization in PCM", 1957/1982; Max, 1960).

    Each level is the mean of the variable between the edges of its cell, and each edge lies midway
    between two levels.

    >>> normal_levels(1).round(4).tolist(), normal_levels(2).round(4).tolist()
    ([-0.7979, 0.7979], [-1.5104, -0.4528, 0.4528, 1.5104])
    """
    n = 2**bits
    levels = np.linspace(-1, 1, n) * sqrt(bits) * 2
    for _ in range(2000):
        edges = np.concatenate([[-np.inf], (levels[1:] + levels[:-1]) / 2, [np.inf]])
        density = np.exp(-(edges**2) / 2) / sqrt(2 * pi)
        below = np.array([0.5 * (1 + erf(edge / sqrt(2))) for edge in edges])
        means = (density[:-1] - density[1:]) / np.maximum(below[1:] - below[:-1], 1e-300)
        if np.abs(means - levels).max() < 1e-7:
            break
        levels = means
    return np.asarray(levels, np.float32)


def _pack(numbers: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Put ``8 / bits`` numbers into a byte, the first into the highest bits."""
    a_byte = 8 // bits
    missing = -numbers.shape[1] % a_byte
    groups = np.pad(numbers, ((0, 0), (0, missing))).reshape(len(numbers), -1, a_byte)
    packed = np.zeros(groups.shape[:2], np.uint8)
    for place in range(a_byte):
        packed |= groups[:, :, place] << np.uint8(8 - bits * (place + 1))
    return packed


def _unpack(packed: NDArray[np.uint8], bits: int, d: int) -> NDArray[np.uint8]:
    """Return the numbers ``(n, d)`` that `_pack` put into bytes."""
    shifts = np.arange(8 - bits, -1, -bits, dtype=np.uint8)
    numbers = (packed[:, :, None] >> shifts) & np.uint8(2**bits - 1)
    return np.asarray(numbers.reshape(len(packed), -1)[:, :d])
