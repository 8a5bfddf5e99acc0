"""Vectors in a few bits a number, from which inner products can be estimated.

A vector x is stored by its principal components, each rounded to levels that are best for a normal
variable: x ≈ μ + s R (σ ĥ). Components that vary more get more bits (transform coding; Huang and
Schultheiss, "Block Quantization of Correlated Gaussian Random Variables", IEEE Trans. Commun. Syst.
1963), here for the error of inner products with vectors of the same kind instead of the error of x
itself. Components of equally many bits are rotated at random together, after which they are nearly
normal and vary alike. The scale s gives each vector its own length back, so that vectors of one
length keep it and each is the nearest one to itself.

A component takes 1, 2, 4 or 8 bits, those of most bits first, so that none lies in two bytes. An
inner product is then a sum of one table look-up a byte, as in product quantisation.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from math import erf, pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.errors import InputError, argument
from channelhash.utils.seeds import generator

_Floats = NDArray[np.float32]
#: The bits of the components of each vector, then its scale.
QuantizedRows = NDArray[np.uint8]

#: Numbers of bits that a component may have.
_STEPS = (0, 1, 2, 4, 8)
#: Power of a component's variance that says what its error costs: 1 would count the error of x, 2
#: that of an inner product of two vectors of one kind; questions vary less like the vectors.
_POWER = 1.5
#: Half precision would let a vector's neighbours come before itself.
_SCALE = np.dtype("<f4")
#: Attributes of a quantizer.
_ATTRIBUTES = ("mean", "rotation", "spread", "bits")
#: Distance of the levels where all components have 8 bits, which need no look-up: where 256 of them
#: round a standard normal variable with about the least squared error.
_EVEN_STEP = 0.0308
#: Vectors rounded at a time, which bounds memory.
_ROWS = 4096


@dataclass(frozen=True)
class Quantizer:
    """How vectors of one encoder are rounded.

    Attributes:
        mean: μ, ``(d,)``.
        rotation: R, ``(d, m)``: the components that are stored, those of most bits first.
        spread: σ, ``(m,)``, standard deviation of each component.
        bits: ``(m,)``, bits of each component: 1, 2, 4 or 8.

    >>> vectors = np.random.default_rng(0).normal(size=(100, 32)).astype(np.float32)
    >>> quantizer = Quantizer.fit(vectors, bits=4)
    >>> rows = quantizer.encode(vectors)
    >>> rows.shape, quantizer.n_bytes
    ((100, 20), 20)
    >>> error = quantizer.inner_products(vectors[0], rows) - vectors @ vectors[0]
    >>> bool(np.abs(error).max() < 4)
    True
    """

    mean: _Floats
    rotation: _Floats
    spread: _Floats
    bits: NDArray[np.uint8]

    @classmethod
    def fit(cls, vectors: NDArray[Any], bits: float, seed: int = 0) -> "Quantizer":
        """Fit components, their bits and spreads to a sample of vectors.

        The fewer the vectors, the more the components are taken to vary alike.

        Args:
            vectors: ``(n, d)``, one or more.
            bits: mean bits a number, above 0 and at most 8; ``bits · d`` bits are given out, in
                whole bytes.
            seed: of the rotations.

        Raises:
            InputError: ``bits`` is out of its range.
        """
        if not 0 < bits <= _STEPS[-1]:
            raise InputError(
                f"{argument('bits')} {bits}: a number takes more than 0 to {_STEPS[-1]} bits"
            )
        mean = np.asarray(vectors, np.float64).mean(axis=0)
        covariance = _shrunk_covariance(np.asarray(vectors, np.float64) - mean)
        variances, components = np.linalg.eigh(covariance)
        given = _give_bits(variances[::-1], 8 * max(round(bits * len(mean) / 8), 1))
        kept = given > 0
        rotation = _rotate_within(components[:, ::-1][:, kept], given[kept], seed)
        spread = np.sqrt(np.einsum("dm,de,em->m", rotation, covariance, rotation, optimize=True))
        return cls(
            mean.astype(np.float32),
            rotation.astype(np.float32),
            spread.astype(np.float32),
            np.sort(given[kept])[::-1].copy(),
        )

    @classmethod
    def plain(cls, width: int) -> "Quantizer":
        """Return a quantizer of 8 bits a number that is fitted to nothing, for vectors around 0
        whose numbers vary alike.

        >>> quantizer = Quantizer.plain(2)
        >>> quantizer.decode(quantizer.encode(np.array([[1.0, -0.5]]))).round(2).tolist()
        [[1.0, -0.5]]
        """
        zeros = np.zeros(width, np.float32)
        identity = np.eye(width, dtype=np.float32)
        return cls(zeros, identity, zeros + 1, np.full(width, _STEPS[-1], np.uint8))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "Quantizer":
        """Return the quantizer whose attributes are these arrays."""
        return cls(**{name: arrays[name] for name in _ATTRIBUTES})

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return its attributes as arrays by name, for `from_arrays`."""
        return {name: np.ascontiguousarray(getattr(self, name)) for name in _ATTRIBUTES}

    def tables(self) -> dict[str, NDArray[Any]]:
        """Return what other programs need to make rows and to compare them, by name.

        With y = Rᵀ(x − μ), component i has the number ``v`` of its ``edges`` ``(m, 255)`` below
        ``y[i] / ‖y‖``, and takes ``v << shifts[i]`` of byte ``places[i]``, whose first component is
        ``starts[places[i]]``. ``levels`` ``(m, 256)`` are the numbers σ ĥ by the value of a byte,
        ``slopes`` are Rᵀμ.
        """
        places, shifts = self._places
        usual = sqrt(float(np.square(self.spread).sum()))
        edges = np.full((len(self.bits), 255), np.inf, np.float32)
        for row, n_bits in enumerate(self.bits.tolist()):
            levels = self.levels_of(n_bits) * (self.spread[row] / usual)
            edges[row, : len(levels) - 1] = (levels[1:] + levels[:-1]) / 2
        return {
            "centre": self.mean,
            "rotation": self.rotation,
            "edges": edges,
            "levels": self._levels,
            "shifts": shifts,
            "places": places,
            "starts": np.unique(places, return_index=True)[1],
            "slopes": self.mean @ self.rotation,
        }

    @property
    def width(self) -> int:
        """Numbers of a vector, d."""
        return len(self.mean)

    @property
    def n_bytes(self) -> int:
        """Bytes of a vector, its scale included."""
        return self._n_code_bytes + _SCALE.itemsize

    @property
    def _n_code_bytes(self) -> int:
        return -(-int(self.bits.sum()) // 8)

    @cached_property
    def _is_even(self) -> bool:
        """Whether levels are evenly spaced: 256 of them lose nothing by that."""
        return bool((self.bits == _STEPS[-1]).all())

    def levels_of(self, n_bits: int) -> _Floats:
        """Return the levels of components of so many bits, in units of their spread."""
        if self._is_even:
            return np.asarray((np.arange(256) - 127.5) * _EVEN_STEP, np.float32)
        return normal_levels(n_bits)

    @cached_property
    def _places(self) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """The byte of each component, and how far its number is shifted to the left in it."""
        starts = np.cumsum(self.bits, dtype=np.int64) - self.bits
        return starts // 8, (8 - self.bits - starts % 8).astype(np.uint8)

    @cached_property
    def _levels(self) -> _Floats:
        """``(m, 256)``: the level of each component, times its spread, by the value of its byte."""
        _, shifts = self._places
        values = np.arange(256)[None] >> shifts[:, None]
        levels = np.empty(values.shape, np.float32)
        for n_bits in np.unique(self.bits).tolist():
            chosen = self.bits == n_bits
            levels[chosen] = self.levels_of(n_bits)[values[chosen] % 2**n_bits]
        return levels * self.spread[:, None]

    def encode(self, vectors: NDArray[Any]) -> QuantizedRows:
        """Round vectors ``(n, d)`` to rows ``(n, n_bytes)``."""
        parts = [
            self._encode_part(np.asarray(vectors[start : start + _ROWS], np.float32))
            for start in range(0, len(vectors), _ROWS)
        ]
        return np.concatenate([np.empty((0, self.n_bytes), np.uint8), *parts])

    def _encode_part(self, vectors: _Floats) -> QuantizedRows:
        components = np.asarray((vectors - self.mean) @ self.rotation, np.float32)
        lengths = np.sqrt(np.square(components).sum(axis=1, keepdims=True))
        usual = sqrt(float(np.square(self.spread).sum()))
        units = self.spread * np.maximum(lengths / usual, np.finfo(np.float32).tiny)
        numbers = np.empty(components.shape, np.uint8)
        rounded = np.empty(components.shape, np.float32)
        for n_bits in np.unique(self.bits).tolist():
            chosen = self.bits == n_bits
            levels = self.levels_of(n_bits)
            edges = (levels[1:] + levels[:-1]) / 2
            unit = units[:, chosen]  # zero where all vectors are equal
            shares = np.divide(components[:, chosen], unit, np.zeros_like(unit), where=unit > 0)
            numbers[:, chosen] = np.searchsorted(edges, shares)
            rounded[:, chosen] = levels[numbers[:, chosen]] * self.spread[chosen]
        scales = self._scales_for(vectors, components, rounded).astype(_SCALE)
        return np.hstack([self._pack(numbers), scales[:, None].view(np.uint8)])

    def _scales_for(self, vectors: _Floats, components: _Floats, rounded: _Floats) -> _Floats:
        """Return the scales s ``(n,)`` with ‖μ + s R σ ĥ‖ = ‖x‖: of the two, the one that is nearer
        to the least squared error; with no such scale, the one that is nearest to it.

        They solve a s² + 2 b s + c = 0.
        """
        a = np.einsum("ij,ij->i", rounded, rounded)
        b = rounded @ (self.mean @ self.rotation)
        c = self.mean @ self.mean - np.einsum("ij,ij->i", vectors, vectors)
        roots = np.sqrt(np.maximum(b**2 - a * c, 0))
        least = np.einsum("ij,ij->i", components, rounded)  # times a, where the error is least
        return np.asarray((np.copysign(roots, least + b) - b) / a, np.float32)

    def _pack(self, numbers: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Write the numbers of components ``(n, m)`` into bytes."""
        packed = np.zeros((len(numbers), self._n_code_bytes), np.uint8)
        places, shifts = self._places
        for shift in np.unique(shifts):  # at most one component of each byte
            chosen = shifts == shift
            packed[:, places[chosen]] |= numbers[:, chosen] << shift
        return packed

    def inner_products(self, question: NDArray[Any], rows: QuantizedRows) -> _Floats:
        """Estimate the inner products ``(n,)`` of a question ``(d,)`` and stored vectors; equal
        rows get bit-identical ones.

        ⟨q, x⟩ ≈ ⟨q, μ⟩ + s ⟨Rᵀq, σ ĥ⟩
        """
        vector = np.asarray(question, np.float32)
        components = vector @ self.rotation
        bytes_of_rows = rows[:, : self._n_code_bytes]
        if self._is_even:
            products = self._products_of_even_levels(components, bytes_of_rows)
        else:
            products = self._products_by_tables(components, bytes_of_rows)
        return np.asarray(products * _scales(rows) + np.float32(vector @ self.mean), np.float32)

    def _products_by_tables(
        self, components: _Floats, bytes_of_rows: NDArray[np.uint8]
    ) -> NDArray[np.floating[Any]]:
        """Return ⟨Rᵀq, σ ĥ⟩ ``(n,)`` by a table of sums for each byte."""
        places, _ = self._places
        shares = components[:, None] * self._levels
        tables = np.add.reduceat(shares, np.unique(places, return_index=True)[1])
        values = bytes_of_rows + 256 * np.arange(len(tables), dtype=np.int32)
        sums: NDArray[np.floating[Any]] = tables.ravel().take(values).sum(axis=1)
        return sums

    def _products_of_even_levels(
        self, components: _Floats, bytes_of_rows: NDArray[np.uint8]
    ) -> NDArray[np.floating[Any]]:
        """Return ⟨Rᵀq, σ ĥ⟩ ``(n,)`` where levels are evenly spaced."""
        weights = components * self.spread * np.float32(_EVEN_STEP)
        # In a matrix product, the order of additions would depend on the row.
        sums = np.einsum("ij,j->i", bytes_of_rows.astype(np.float32), weights)
        return np.asarray(sums - np.float32(127.5) * weights.sum())

    def decode(self, rows: QuantizedRows) -> _Floats:
        """Return the vectors ``(n, d)`` that rows stand for."""
        places, _ = self._places
        components = self._levels[np.arange(len(places)), rows[:, places]]
        scaled = components * _scales(rows)[:, None]
        return np.asarray(scaled @ self.rotation.T + self.mean, np.float32)


def _scales(rows: QuantizedRows) -> _Floats:
    stored = np.ascontiguousarray(rows[:, -_SCALE.itemsize :]).view(_SCALE)
    return stored[:, 0].astype(np.float32)


def _shrunk_covariance(centred: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the covariance ``(d, d)`` of centred rows, mixed with equal variances: d / (n + d) of
    the sum of variances is spread over all directions.

    >>> _shrunk_covariance(np.array([[1.0, 0.0], [-1.0, 0.0]])).tolist()
    [[0.75, 0.0], [0.0, 0.25]]
    """
    n, d = centred.shape
    covariance = centred.T @ centred / n
    variance = np.trace(covariance) / d
    if not variance:
        return np.eye(d)
    share = d / (n + d)
    return np.asarray((1 - share) * covariance + share * variance * np.eye(d))


def _give_bits(variances: NDArray[np.float64], total: int) -> NDArray[np.uint8]:
    """Give the bits to the components where each takes most from the weighted error.

    A rounded component has the squared error σ² D(b), which counts times σ^(2 · (power − 1)).

    >>> _give_bits(np.array([4.0, 2.0, 0.001]), total=4).tolist()
    [2, 2, 0]
    """
    errors = [_squared_error(n_bits) for n_bits in _STEPS]
    sizes = np.diff(_STEPS).tolist()
    gains = [(errors[step] - errors[step + 1]) / size for step, size in enumerate(sizes)]
    weights = np.maximum(variances, 0) ** _POWER
    steps = np.zeros(len(weights), np.int64)
    queue = [(-weight * gains[0], place) for place, weight in enumerate(weights)]
    heapq.heapify(queue)
    left = total
    while queue:
        _, place = heapq.heappop(queue)
        if sizes[steps[place]] > left:
            continue
        left -= sizes[steps[place]]
        steps[place] += 1
        if steps[place] < len(sizes):
            heapq.heappush(queue, (-weights[place] * gains[steps[place]], place))
    return np.array(_STEPS, np.uint8)[steps]


def _rotate_within(
    components: NDArray[np.float64], given: NDArray[np.uint8], seed: int
) -> NDArray[np.float64]:
    """Rotate the components of equally many bits at random among themselves, those of most bits
    first.
    """
    rotated = []
    for n_bits in sorted(set(given.tolist()), reverse=True):
        group = components[:, given == n_bits]
        drawn = generator(seed, "quantizer", n_bits).normal(size=(group.shape[1], group.shape[1]))
        rotated.append(group @ np.linalg.qr(drawn)[0])
    return np.hstack(rotated)


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
