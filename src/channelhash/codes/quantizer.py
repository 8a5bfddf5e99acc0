"""Vectors in a few bits a number, from which inner products can be estimated.

A vector x is stored by its principal components, each rounded to levels that are best for a normal
variable: x ≈ μ + s R (σ ĥ). Components that vary more get more bits (transform coding; Huang and
Schultheiss, "Block Quantization of Correlated Gaussian Random Variables", IEEE Trans. Commun. Syst.
1963), here for the error of inner products with vectors of the same kind instead of the error of x
itself. Components of equally many bits are rotated at random together, after which they are nearly
normal and vary alike. The scale s of each vector gives back its length.
"""

import heapq
from dataclasses import dataclass
from functools import cache
from math import erf, pi, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.errors import InputError, argument
from channelhash.utils.seeds import generator

_Floats = NDArray[np.float32]
#: The bits of the components of each vector, then its scale.
QuantizedRows = NDArray[np.uint8]

#: Most bits of a component: 256 levels, as int8 has them.
_MOST_BITS = 8
#: A scale is near 1, so that half precision does.
_SCALE = np.dtype("<f2")
#: Vectors rounded at a time, which bounds memory.
_ROWS = 4096


class _Group(NamedTuple):
    """Components of equally many bits: their places, and the places of their bits."""

    n_bits: int
    components: slice
    bits: slice


@dataclass(frozen=True)
class Quantizer:
    """How vectors of one encoder are rounded.

    Attributes:
        mean: μ, ``(d,)``.
        rotation: R, ``(d, m)``: the components that are stored, those of most bits first.
        spread: σ, ``(m,)``, standard deviation of each component.
        bits: ``(m,)``, bits of each component.

    >>> vectors = np.random.default_rng(0).normal(size=(100, 32)).astype(np.float32)
    >>> quantizer = Quantizer.fit(vectors, bits=4)
    >>> rows = quantizer.encode(vectors)
    >>> rows.shape, quantizer.n_bytes
    ((100, 18), 18)
    >>> error = quantizer.inner_products(vectors[:1], rows) - vectors[:1] @ vectors.T
    >>> bool(np.abs(error).max() < 3)
    True
    """

    mean: _Floats
    rotation: _Floats
    spread: _Floats
    bits: NDArray[np.uint8]

    @classmethod
    def fit(cls, vectors: NDArray[Any], bits: float, seed: int = 0) -> "Quantizer":
        """Fit components, their bits and spreads to a sample of vectors.

        Args:
            vectors: ``(n, d)``, two or more.
            bits: mean bits a number, above 0 and at most 8; ``bits · d`` bits are given out.
            seed: of the rotations.

        Raises:
            InputError: ``bits`` is out of its range.
        """
        if not 0 < bits <= _MOST_BITS:
            raise InputError(f"{argument('bits')} {bits}: a number takes more than 0 to 8 bits")
        values = np.asarray(vectors, np.float64)
        mean = values.mean(axis=0)
        variances, components = np.linalg.eigh(np.cov(values, rowvar=False).reshape(len(mean), -1))
        variances = np.maximum(variances[::-1], 0)
        given = _give_bits(variances, max(round(bits * len(mean)), 1))
        rotation = _rotate_within(components[:, ::-1][:, given > 0], given[given > 0], seed)
        spread = ((values - mean) @ rotation).std(axis=0)
        return cls(
            mean.astype(np.float32),
            rotation.astype(np.float32),
            spread.astype(np.float32),
            given[given > 0],
        )

    @property
    def n_bytes(self) -> int:
        """Bytes of a vector, its scale included."""
        return -(-int(self.bits.sum()) // 8) + _SCALE.itemsize

    def encode(self, vectors: NDArray[Any]) -> QuantizedRows:
        """Round vectors ``(n, d)`` to rows ``(n, n_bytes)``."""
        parts = [
            self._encode_part(np.asarray(vectors[start : start + _ROWS], np.float32))
            for start in range(0, len(vectors), _ROWS)
        ]
        return np.concatenate([np.empty((0, self.n_bytes), np.uint8), *parts])

    def _encode_part(self, vectors: _Floats) -> QuantizedRows:
        components = (vectors - self.mean) @ self.rotation
        lengths = np.sqrt(np.square(components).sum(axis=1, keepdims=True))
        usual = sqrt(float(np.square(self.spread).sum()))
        unit = self.spread * np.maximum(lengths / usual, np.finfo(np.float32).tiny)
        rounded = np.empty_like(components)
        bits = np.empty((len(vectors), int(self.bits.sum())), np.uint8)
        for group in self._groups():
            levels = normal_levels(group.n_bits)
            edges = (levels[1:] + levels[:-1]) / 2
            part = components[:, group.components] / unit[:, group.components]
            numbers = np.searchsorted(edges, part).astype(np.uint8)
            rounded[:, group.components] = levels[numbers] * self.spread[group.components]
            bits[:, group.bits] = _bits_of(numbers, group.n_bits)
        shared = np.einsum("ij,ij->i", components, rounded)
        scale = shared / np.einsum("ij,ij->i", rounded, rounded)
        packed_scale = scale.astype(_SCALE)[:, None].view(np.uint8)
        return np.hstack([np.packbits(bits, axis=1), packed_scale])

    def inner_products(self, questions: NDArray[Any], rows: QuantizedRows) -> _Floats:
        """Estimate the inner products ``(nq, n)`` of questions ``(nq, d)`` and stored vectors.

        ⟨q, x⟩ ≈ ⟨q, μ⟩ + s ⟨Rᵀq, σ ĥ⟩
        """
        questions = np.asarray(questions, np.float32)
        products = (questions @ self.rotation) @ self._components(rows).T
        return np.asarray(products + (questions @ self.mean)[:, None], np.float32)

    def decode(self, rows: QuantizedRows) -> _Floats:
        """Return the vectors ``(n, d)`` that rows stand for."""
        return np.asarray(self._components(rows) @ self.rotation.T + self.mean, np.float32)

    def _components(self, rows: QuantizedRows) -> _Floats:
        """Return the rounded components ``(n, m)``."""
        bits = np.unpackbits(rows[:, : -_SCALE.itemsize], axis=1)
        components = np.empty((len(rows), len(self.bits)), np.float32)
        for group in self._groups():
            numbers = _numbers_of(bits[:, group.bits], group.n_bits)
            components[:, group.components] = normal_levels(group.n_bits)[numbers]
        scale = np.ascontiguousarray(rows[:, -_SCALE.itemsize :]).view(_SCALE).astype(np.float32)
        return components * self.spread * scale

    def _groups(self) -> list[_Group]:
        groups = []
        start = 0
        start_bit = 0
        while start < len(self.bits):
            n_bits = int(self.bits[start])
            end = start + int((self.bits == n_bits).sum())
            end_bit = start_bit + n_bits * (end - start)
            groups.append(_Group(n_bits, slice(start, end), slice(start_bit, end_bit)))
            start = end
            start_bit = end_bit
        return groups


def _give_bits(variances: NDArray[np.float64], total: int) -> NDArray[np.uint8]:
    """Give each bit to the component where it takes most from the error of inner products.

    The product of two vectors of the same kind has from each component the error σ² · σ² D(b),
    where D is the squared error of a rounded normal variable.

    >>> _give_bits(np.array([4.0, 2.0, 0.0]), total=3).tolist()
    [2, 1, 0]
    """
    errors = [_squared_error(n_bits) for n_bits in range(_MOST_BITS + 1)]
    gains = -np.diff(errors)
    given = np.zeros(len(variances), np.uint8)
    weights = variances**2
    queue = [(-weight * gains[0], place) for place, weight in enumerate(weights) if weight > 0]
    heapq.heapify(queue)
    for _ in range(total):
        if not queue:
            break
        _, place = heapq.heappop(queue)
        given[place] += 1
        if given[place] < _MOST_BITS:
            heapq.heappush(queue, (-weights[place] * gains[given[place]], place))
    return given


def _rotate_within(
    components: NDArray[np.float64], given: NDArray[np.uint8], seed: int
) -> NDArray[np.float64]:
    """Rotate the components of equally many bits at random among themselves."""
    rotated = components.copy()
    for n_bits in np.unique(given).tolist():
        chosen = np.flatnonzero(given == n_bits)
        drawn = generator(seed, "quantizer", n_bits).normal(size=(len(chosen), len(chosen)))
        rotation, _ = np.linalg.qr(drawn)
        rotated[:, chosen] = components[:, chosen] @ rotation
    return rotated


@cache
def normal_levels(n_bits: int) -> _Floats:
    """Return the 2^b levels that round a standard normal variable with the least squared error
    (Lloyd, "Least Squares Quantization in PCM", IEEE Trans. Inf. Theory 1982; Max, 1960).

    Each level is the mean of the variable between the edges of its cell, and each edge lies midway
    between two levels.

    >>> normal_levels(1).round(4).tolist(), normal_levels(2).round(4).tolist()
    ([-0.7979, 0.7979], [-1.5104, -0.4528, 0.4528, 1.5104])
    """
    levels = np.linspace(-1, 1, 2**n_bits) * sqrt(n_bits) * 2
    for _ in range(2000):
        means, _ = _cells(levels)
        if np.abs(means - levels).max() < 1e-7:
            break
        levels = means
    return np.asarray(levels, np.float32)


def _cells(levels: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and probability of a standard normal variable in the cell of each level."""
    edges = np.concatenate([[-np.inf], (levels[1:] + levels[:-1]) / 2, [np.inf]])
    density = np.exp(-(edges**2) / 2) / sqrt(2 * pi)
    below = np.array([0.5 * (1 + erf(edge / sqrt(2))) for edge in edges])
    shares = np.maximum(np.diff(below), 1e-300)
    return -np.diff(density) / shares, shares


@cache
def _squared_error(n_bits: int) -> float:
    """Return the mean squared error of a standard normal variable that is rounded to its levels."""
    if n_bits == 0:
        return 1.0
    means, shares = _cells(normal_levels(n_bits).astype(np.float64))
    return float(1 - (shares * means**2).sum())


def _bits_of(numbers: NDArray[np.uint8], n_bits: int) -> NDArray[np.uint8]:
    """Return the bits ``(n, m · b)`` of numbers ``(n, m)``, the highest first.

    >>> _bits_of(np.array([[2, 1]], np.uint8), 2).tolist()
    [[1, 0, 0, 1]]
    """
    bits = np.unpackbits(numbers[:, :, None], axis=2)[:, :, 8 - n_bits :]
    return bits.reshape(len(numbers), -1)


def _numbers_of(bits: NDArray[np.uint8], n_bits: int) -> NDArray[np.uint8]:
    """Return the numbers that `_bits_of` took apart."""
    values = np.left_shift(1, np.arange(n_bits)[::-1]).astype(np.uint8)
    return np.asarray(bits.reshape(len(bits), -1, n_bits) @ values, np.uint8)
