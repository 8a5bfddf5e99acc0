"""Short codes of vectors that some encoder has made, fitted to a sample of these alone.

A code is the signs of an affine map, by which the nearest candidates are found exactly. A second
stage orders these: the vector itself in a few bits a number (`channelhash.codes.quantizer`), or
without one the question's real-valued outputs against the bits.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, pack
from channelhash.codes.quantizer import QuantizedRows, Quantizer
from channelhash.errors import InputError, argument
from channelhash.models.linear_maps import pca_itq, random_rotation
from channelhash.search.index import CodeIndex
from channelhash.search.rank import asymmetric_distances
from channelhash.utils.machine import usable_cores
from channelhash.utils.progress import Progress, no_progress
from channelhash.utils.seeds import generator

_Floats = NDArray[np.float32]

#: How the encoder means its vectors to be compared.
Similarity = Literal["cosine", "inner", "euclidean"]
#: How the map of the code is fitted: the leading components rotated by ITQ, or a random rotation.
Method = Literal["itq", "sign"]
#: Vectors that maps are fitted to at most, drawn by the seed.
_SAMPLE = 20_000
#: Vectors encoded at a time, which bounds memory.
_ROWS = 8192
#: Nearest codes that outputs of the question order, for each candidate of the second stage.
_CODES_A_CANDIDATE = 4


class Compressed(NamedTuple):
    """Vectors as codes.

    Attributes:
        codes: ``(n, ceil(n_bits / 8))`` packed bits.
        rows: ``(n, bytes)`` of the second stage; None without one.
    """

    codes: PackedCodes
    rows: QuantizedRows | None


@dataclass(frozen=True)
class Compressor:
    """What was fitted to vectors of one encoder.

    Attributes:
        mean: ``(d,)``, taken from a vector before its code is made.
        weights: ``(d, k)``; the signs of the products are the code.
        quantizer: the second stage; None without one.
        similarity: how vectors are compared.

    >>> vectors = np.random.default_rng(0).normal(size=(500, 32)).astype(np.float32)
    >>> compressor = Compressor.fit(vectors, n_bits=16, second=4)
    >>> compressor.n_bits, compressor.n_bytes
    (16, 20)
    >>> found = compressor.search(vectors[:2], compressor.encode(vectors), k=3)
    >>> found.rows[:, 0].tolist()
    [0, 1]
    """

    mean: _Floats
    weights: _Floats
    quantizer: Quantizer | None
    similarity: Similarity

    @classmethod
    def fit(
        cls,
        vectors: Any,
        n_bits: int = 128,
        second: float | None = 4,
        similarity: Similarity = "cosine",
        method: Method = "itq",
        seed: int = 0,
    ) -> "Compressor":
        """Fit codes to vectors ``(n, d)``, an array or `Vectors`; of more than 20,000 to a sample.

        Args:
            vectors: of one encoder.
            n_bits: code length k, at most d.
            second: bits a number of the second stage; None keeps no second stage.
            similarity: how the encoder means its vectors to be compared.
            method: how the map is fitted.
            seed: of the sample and of rotations.

        Raises:
            InputError: there are fewer than two different vectors, or more bits than numbers.
        """
        sample = sample_of(vectors, similarity, seed)
        d = sample.shape[1]
        if not 1 <= n_bits <= d:
            raise InputError(f"{argument('n_bits')} {n_bits}: vectors of {d} numbers have 1 to {d}")
        if (sample == sample[0]).all():
            raise InputError("all vectors are equal; codes need different ones")
        fit = pca_itq if method == "itq" else random_rotation
        fitted = fit(sample, n_bits, seed, "vector")
        quantizer = None if second is None else Quantizer.fit(sample, second, seed)
        mean = fitted.mean.astype(np.float32)
        return cls(mean, fitted.weights.astype(np.float32), quantizer, similarity)

    @property
    def n_bits(self) -> int:
        """Code length k."""
        return int(self.weights.shape[1])

    @property
    def n_bytes(self) -> int:
        """Bytes of a vector in both stages."""
        second = 0 if self.quantizer is None else self.quantizer.n_bytes
        return -(-self.n_bits // 8) + second

    def outputs(self, vectors: Any) -> _Floats:
        """Return real-valued outputs ``(n, k)`` of vectors ``(n, d)``."""
        rows = prepare(vectors, self.similarity)
        return np.asarray((rows - self.mean) @ self.weights, np.float32)

    def encode(self, vectors: Any, progress: Progress = no_progress) -> Compressed:
        """Encode vectors ``(n, d)``, an array or `Vectors`, in blocks on all cores."""
        codes = encode_blocks(vectors, self.similarity, self._codes, progress)
        if self.quantizer is None:
            return Compressed(codes, None)
        rows = encode_blocks(vectors, self.similarity, self.quantizer.encode, progress)
        return Compressed(codes, rows)

    def _codes(self, rows: _Floats) -> PackedCodes:
        return pack((rows - self.mean) @ self.weights >= 0)

    def search(
        self, questions: Any, compressed: Compressed, k: int = 10, first: int = 500
    ) -> "Found":
        """Search by a new index of the codes; see `Searcher.search`."""
        return Searcher(self, compressed).search(questions, k, first)


class Found(NamedTuple):
    """Answers of ``nq`` questions, best first.

    Attributes:
        rows: ``(nq, k)`` rows of the vectors.
        scores: ``(nq, k)`` estimated similarities, larger is nearer; without a second stage the
            negated distance of the question's outputs and the bits.
    """

    rows: NDArray[np.int64]
    scores: _Floats


class Searcher:
    """An index of compressed vectors.

    Args:
        compressor: what made them.
        compressed: the vectors.
    """

    def __init__(self, compressor: Compressor, compressed: Compressed) -> None:
        self.compressor = compressor
        self._compressed = compressed
        self._index = CodeIndex.build(compressed.codes, compressor.n_bits)

    def search(self, questions: Any, k: int = 10, first: int = 500, by_bits: bool = False) -> Found:
        """Find the k most similar vectors of each question ``(nq, d)``.

        Args:
            questions: vectors of the same encoder.
            k: number of answers.
            first: candidates that the second stage orders; four times as many nearest codes are
                compared with the question's outputs to find them.
            by_bits: order by the number of different bits alone.
        """
        vectors = prepare(questions, self.compressor.similarity)
        outputs = self.compressor.outputs(questions)
        n = len(self._compressed.codes)
        k = min(k, n)
        depth = k if by_bits else min(_CODES_A_CANDIDATE * max(first, k), n)
        matches = self._index.nearest(pack(outputs >= 0), depth)
        rows = np.empty((len(vectors), k), np.int64)
        scores = np.empty((len(vectors), k), np.float32)
        for place, match in enumerate(matches):
            if by_bits:
                found = -match.distances.astype(np.float32)
                near = match.rows
            else:
                near, found = self._order(vectors[place], outputs[place], match.rows, max(first, k))
            rows[place] = near[:k]
            scores[place] = found[:k]
        return Found(rows, scores)

    def _order(
        self, vector: _Floats, outputs: _Floats, rows: NDArray[np.int64], first: int
    ) -> tuple[NDArray[np.int64], _Floats]:
        """Order candidates by the question's outputs, then those first by the second stage."""
        scores = -asymmetric_distances(outputs, self._compressed.codes[rows])
        order = np.argsort(-scores, kind="stable")[:first]
        rows = rows[order]
        quantizer = self.compressor.quantizer
        if quantizer is None or self._compressed.rows is None:
            return rows, scores[order].astype(np.float32)
        stored = self._compressed.rows[rows]
        estimates = quantizer.inner_products(vector, stored)
        if self.compressor.similarity == "euclidean":
            estimates = 2 * estimates - np.square(quantizer.decode(stored)).sum(axis=1)
        order = np.argsort(-estimates, kind="stable")
        return rows[order], estimates[order]


def prepare(vectors: Any, similarity: Similarity) -> _Floats:
    """Return vectors as float32 rows, of unit length where their cosine counts."""
    rows = np.asarray(vectors[:] if not isinstance(vectors, np.ndarray) else vectors, np.float32)
    if similarity != "cosine":
        return rows
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1), np.float32)


def encode_blocks(
    vectors: Any,
    similarity: Similarity,
    encode: Callable[[_Floats], NDArray[np.uint8]],
    progress: Progress = no_progress,
) -> NDArray[np.uint8]:
    """Encode vectors ``(n, d)`` to rows of bytes, block by block on all cores."""
    n = len(vectors)

    def encode_block(start: int) -> NDArray[np.uint8]:
        return encode(prepare(vectors[start : start + _ROWS], similarity))

    blocks: list[NDArray[np.uint8]] = []
    with ThreadPoolExecutor(usable_cores()) as threads:
        for block in threads.map(encode_block, range(0, n, _ROWS)):
            blocks.append(block)
            progress(min(len(blocks) * _ROWS, n), n)
    return np.concatenate(blocks)


def sample_of(vectors: Any, similarity: Similarity, seed: int) -> _Floats:
    """Return the vectors that codes are fitted to, as `prepare` gives them: at most 20,000, drawn
    by the seed.
    """
    n = len(vectors)
    if n < 2:
        raise InputError(f"{n} vector: codes are fitted to two or more")
    rows = np.arange(n)
    if n > _SAMPLE:
        rows = np.sort(generator(seed, "sample of vectors").choice(n, _SAMPLE, replace=False))
    return prepare(vectors[rows], similarity)
