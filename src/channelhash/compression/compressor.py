"""Short codes of vectors that some encoder has made, fitted to a sample of these alone.

A code is the signs of an affine map, by which the nearest candidates are found exactly. A second
stage orders these: the vector itself in a few bits a number (`channelhash.codes.quantizer`), or
without one the question's real-valued outputs against the bits.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, pack, unit_rows
from channelhash.codes.quantizer import QuantizedRows, Quantizer
from channelhash.codes.stage import Similarity, estimate
from channelhash.data.records import QUESTION
from channelhash.errors import InputError, argument
from channelhash.models.fitted import FittedModel
from channelhash.models.linear_maps import LinearMap, pca_itq
from channelhash.search.index import CodeIndex
from channelhash.search.rank import CANDIDATES, asymmetric_distances
from channelhash.utils.machine import usable_cores
from channelhash.utils.optional_imports import naming_extra
from channelhash.utils.progress import Progress, no_progress
from channelhash.utils.seeds import generator

if TYPE_CHECKING:
    from channelhash.compression.task import Pairs

_Floats = NDArray[np.float32]

#: How the map of the code is fitted: the leading components rotated by ITQ, or from these by the
#: vectors' own neighbours, which needs PyTorch.
Method = Literal["itq", "learned"]
#: Vectors that maps are fitted to at most, drawn by the seed.
_SAMPLE = 20_000
#: Vectors encoded at a time, which bounds memory.
_ROWS = 8192


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
        similarity: how vectors are compared; for "cosine" they get unit length first.
        centred: whether the second stage keeps and compares x − mean, for cosines of unit length,
            instead of x: the ranking is then another than the encoder's, for some data a better
            one. Distances stay the same.
        question_map: ``(d_q, d)``, learned from pairs: a question is asked as its product with it.
            None asks questions as they are.

    >>> vectors = np.random.default_rng(0).normal(size=(500, 32)).astype(np.float32)
    >>> compressor = Compressor.fit(vectors, n_bits=16, second=4)
    >>> compressor.n_bits, compressor.n_bytes
    (16, 22)
    >>> found = compressor.search(vectors[:2], compressor.encode(vectors), k=3)
    >>> found.rows[:, 0].tolist()
    [0, 1]
    """

    mean: _Floats
    weights: _Floats
    quantizer: Quantizer | None
    similarity: Similarity
    centred: bool = False
    question_map: _Floats | None = None

    @classmethod
    def fit(
        cls,
        vectors: Any,
        n_bits: int = 128,
        second: float | None = 4,
        similarity: Similarity = "cosine",
        method: Method = "itq",
        seed: int = 0,
        centred: bool = False,
    ) -> "Compressor":
        """Fit codes to vectors ``(n, d)``, an array or `Vectors`; of more than 20,000 to a sample,
        learned codes of more than 100,000.

        Args:
            vectors: of one encoder.
            n_bits: code length k, at most d.
            second: bits a number of the second stage; None keeps no second stage.
            similarity: how the encoder means its vectors to be compared.
            method: how the map is fitted.
            seed: of the sample and of rotations.
            centred: whether the second stage keeps vectors without their mean.

        Raises:
            InputError: there are fewer than two different vectors, or more bits than numbers; or
                PyTorch is missing, with which codes are learned.
        """
        sample = sample_of(vectors, similarity, seed)
        d = sample.shape[1]
        if not 1 <= n_bits <= d:
            raise InputError(f"{argument('n_bits')} {n_bits}: vectors of {d} numbers have 1 to {d}")
        if (sample == sample[0]).all():
            raise InputError("all vectors are equal; codes need different ones")
        fitted = pca_itq(sample, n_bits, seed, "vector")
        if method == "learned":
            fitted = _learn(vectors, fitted, similarity, seed)
        mean = fitted.mean.astype(np.float32)
        plain = cls(mean, fitted.weights.astype(np.float32), None, similarity)
        return plain if second is None else plain.with_second(sample, second, centred, seed)

    @classmethod
    def of_model(cls, model: FittedModel, modality: str) -> "Compressor":
        """Return what was fitted to a modality of a model: of the features of its encoder, it makes
        the same codes and the same second stage, to rounding.

        Codes that are compared alone (``cca-itq``) have no second stage; their similarity says only
        whether features get unit length first.

        Raises:
            InputError: the model has no map of the modality, or keeps directions of vectors whose
                lengths count in the code.

        >>> from channelhash.models.encoders import open_encoder
        >>> from channelhash.models.fitted import fit_codes
        >>> features = {"image": np.random.default_rng(0).normal(size=(50, 16))}
        >>> model = fit_codes(open_encoder("features", {"image": 16}), features, n_bits=8)
        >>> Compressor.of_model(model, "image").n_bits
        8
        """
        if modality not in model.maps or modality == QUESTION:
            raise InputError(f"{modality}: no map of it was fitted, so there is none to export")
        fitted = model.maps[modality]
        asked = model.maps.get(QUESTION)
        quantizer = model.stage.quantizers.get(modality)
        similarity = model.stage.similarity
        if similarity == "cosine" and not model.architecture["unit"]:
            if quantizer is not None:
                raise InputError(
                    f"{modality}: the map takes features as they are, and the second stage their "
                    "directions; fit the codes again"
                )
            similarity = "inner"
        return cls(
            fitted.mean.astype(np.float32),
            fitted.weights.astype(np.float32),
            quantizer,
            similarity,
            model.architecture.get("centred", False),  # older models keep no vectors
            asked.weights.astype(np.float32) if asked else None,
        )

    def with_second(
        self, sample: _Floats, bits: float, centred: bool = False, seed: int = 0
    ) -> "Compressor":
        """Return the same code with a second stage that is fitted to a sample of vectors, as
        `sample_of` gives it.
        """
        bare = replace(self, centred=centred)
        return replace(bare, quantizer=Quantizer.fit(bare._kept(sample), bits, seed))

    def _kept(self, rows: _Floats) -> _Floats:
        """Return what the second stage keeps of rows that `prepare` gave."""
        return prepare(rows - self.mean, self.similarity) if self.centred else rows

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
        return self._outputs(prepare(vectors, self.similarity))

    def _outputs(self, rows: _Floats) -> _Floats:
        return np.asarray((rows - self.mean) @ self.weights, np.float32)

    def encode(self, vectors: Any, progress: Progress = no_progress) -> Compressed:
        """Encode vectors ``(n, d)``, an array or `Vectors`, in blocks on all cores."""
        codes = encode_blocks(vectors, self.similarity, self._codes, progress)
        rows = None if self.quantizer is None else self.encode_second(vectors, progress)
        return Compressed(codes, rows)

    def encode_second(self, vectors: Any, progress: Progress = no_progress) -> QuantizedRows:
        """Encode the second stage alone."""
        quantizer = self.quantizer
        assert quantizer is not None

        def encode(rows: _Floats) -> QuantizedRows:
            return quantizer.encode(self._kept(rows))

        return encode_blocks(vectors, self.similarity, encode, progress)

    def similarities(self, question: _Floats, rows: QuantizedRows) -> _Floats:
        """Estimate the similarities ``(n,)`` of a question ``(d,)``, as `prepare` gives it, and
        rows of the second stage; see `estimate`.
        """
        assert self.quantizer is not None
        kept = self._kept(question[None])[0]
        return estimate(self.quantizer, self.similarity, kept, rows)

    def _codes(self, rows: _Floats) -> PackedCodes:
        return pack(self._outputs(rows) >= 0)

    def with_questions(
        self, questions: Any, vectors: Any, pairs: "Pairs", seed: int = 0
    ) -> "Compressor":
        """Return the same codes for questions ``(nq, d_q)`` that pairs with documents have taught
        how to ask; see `learn_question_map`.

        Args:
            questions: of the pairs; perhaps of another encoder than the vectors.
            vectors: ``(n, d)``, of the documents.
            pairs: rows of both.
            seed: of the batches.

        Raises:
            InputError: vectors are not compared by cosine, or PyTorch is missing.
        """
        if self.similarity != "cosine":
            raise InputError(f"{argument('similarity')} {self.similarity}: pairs teach cosines")
        with naming_extra("train"):
            from channelhash.compression.pairs import learn_question_map
        learned = learn_question_map(prepare(questions, "cosine"), vectors, pairs, seed)
        return replace(self, question_map=learned)

    def ask(self, questions: Any) -> _Floats:
        """Return questions ``(nq, d_q)`` as the vectors ``(nq, d)`` that documents are compared
        with.
        """
        rows = prepare(questions, self.similarity)
        if self.question_map is None:
            return rows
        return prepare(rows @ self.question_map, self.similarity)

    def search(
        self, questions: Any, compressed: Compressed, k: int = 10, first: int = 500
    ) -> "Found":
        """Search by a new index of the codes; see `Searcher.search`."""
        return Searcher(self, compressed).search(questions, k, first)

    def transform(self, vectors: Any) -> NDArray[np.uint8]:
        """Return both stages of vectors ``(n, d)`` side by side: ``(n, n_bytes)``, the code first.

        ``Compressor.fit(vectors).transform(vectors)`` reads as in scikit-learn; `fit` returns a new
        compressor, and changes none.

        >>> vectors = np.random.default_rng(0).normal(size=(50, 16)).astype(np.float32)
        >>> Compressor.fit(vectors, n_bits=16, second=2).transform(vectors).shape
        (50, 10)
        """
        codes, rows = self.encode(vectors)
        return codes if rows is None else np.hstack([codes, rows])

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write this compressor to a folder, as a saved model that ``channelhash encode`` and
        ``index create --encoder`` take, too.
        """
        from channelhash.compression.models import to_model

        to_model(self).save_pretrained(Path(folder))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Compressor":
        """Read a compressor that `save` wrote, or that of a store of vectors; it makes the same
        codes, bit for bit.

        Raises:
            InputError: there is none, or it is damaged.

        >>> import tempfile
        >>> vectors = np.random.default_rng(0).normal(size=(50, 16)).astype(np.float32)
        >>> compressor = Compressor.fit(vectors, n_bits=8)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     compressor.save(f"{folder}/codes")
        ...     loaded = Compressor.load(f"{folder}/codes")
        >>> bool((loaded.transform(vectors) == compressor.transform(vectors)).all())
        True
        """
        from channelhash.compression.models import load

        return load(folder)


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
            questions: vectors of the same encoder, or of that of `Compressor.question_map`.
            k: number of answers.
            first: candidates that the second stage orders; four times as many nearest codes are
                compared with the question's outputs to find them.
            by_bits: order by the number of different bits alone.
        """
        vectors = self.compressor.ask(questions)
        k = min(k, len(self._compressed.codes))
        rows = np.empty((len(vectors), k), np.int64)
        scores = np.empty((len(vectors), k), np.float32)
        for place, vector in enumerate(vectors):
            if by_bits:
                near, found = self.by_bits(vector, k)
            else:
                near, found = self.by_outputs(vector, max(first, k))
                near, found = self._by_second(vector, near, found)
            rows[place] = near[:k]
            scores[place] = found[:k]
        return Found(rows, scores)

    def by_bits(self, question: _Floats, k: int) -> tuple[NDArray[np.int64], _Floats]:
        """Return the ``k`` rows of fewest different bits, and their negated numbers of these.

        Args:
            question: ``(d,)``, as `prepare` gives it.
            k: number of rows.
        """
        (match,) = self._index.nearest(self.compressor._codes(question[None]), k)
        return match.rows, -match.distances.astype(np.float32)

    def by_outputs(self, question: _Floats, first: int) -> tuple[NDArray[np.int64], _Floats]:
        """Return the ``first`` rows nearest to the question's outputs among four times as many
        nearest codes, and their negated distances.
        """
        outputs = self.compressor._outputs(question)
        depth = min(CANDIDATES * first, len(self._compressed.codes))
        (match,) = self._index.nearest(pack(outputs[None] >= 0), depth)
        scores = -asymmetric_distances(outputs, self._compressed.codes[match.rows])
        order = np.argsort(-scores, kind="stable")[:first]
        return match.rows[order], scores[order].astype(np.float32)

    def _by_second(
        self, question: _Floats, rows: NDArray[np.int64], scores: _Floats
    ) -> tuple[NDArray[np.int64], _Floats]:
        """Order candidates by the second stage; without one they stay as they are."""
        if self._compressed.rows is None:
            return rows, scores
        estimates = self.compressor.similarities(question, self._compressed.rows[rows])
        order = np.argsort(-estimates, kind="stable")
        return rows[order], estimates[order]


def _learn(vectors: Any, start: LinearMap, similarity: Similarity, seed: int) -> LinearMap:
    """Return the map that the neighbours of a larger sample of the vectors teach."""
    with naming_extra("train"):
        from channelhash.compression import learning
    sample = sample_of(vectors, similarity, seed, learning.SAMPLE)
    return learning.learn_map(sample, start, similarity, seed)


def prepare(vectors: Any, similarity: Similarity) -> _Floats:
    """Return vectors as float32 rows, of unit length where their cosine counts."""
    rows = np.asarray(vectors[:] if not isinstance(vectors, np.ndarray) else vectors, np.float32)
    return np.asarray(unit_rows(rows), np.float32) if similarity == "cosine" else rows


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

    starts = range(0, n, _ROWS)
    n_bytes = encode(prepare(vectors[:0], similarity)).shape[1]
    encoded = np.empty((n, n_bytes), np.uint8)
    with ThreadPoolExecutor(usable_cores()) as threads:
        for start, block in zip(starts, threads.map(encode_block, starts), strict=True):
            encoded[start : start + len(block)] = block
            progress(min(start + _ROWS, n), n)
    return encoded


def sample_of(vectors: Any, similarity: Similarity, seed: int, most: int = _SAMPLE) -> _Floats:
    """Return the vectors that codes are fitted to, as `prepare` gives them: at most 20,000, drawn
    by the seed.
    """
    n = len(vectors)
    if n < 2:
        raise InputError(f"{n} vector: codes are fitted to two or more")
    rows = np.arange(n)
    if n > most:
        rows = np.sort(generator(seed, "sample of vectors").choice(n, most, replace=False))
    parts = [vectors[rows[start : start + _ROWS]] for start in range(0, len(rows), _ROWS)]
    return prepare(np.concatenate(parts), similarity)
