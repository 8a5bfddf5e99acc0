"""Items in few bytes, of any kind: binary codes, and vectors that FAISS keeps in fewer bytes than floats.

Both rank by a similarity in whole numbers (equal is tied), so that all are scored by the same functions.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import binarize, hamming_distances, pack
from channelhash.metrics.real_valued import rounded_cosines, unit_rows
from channelhash.search.index import CodeIndex
from channelhash.utils.optional_imports import library

Rows = NDArray[np.int64]
#: modality -> ``(n, d)``.
Views = Mapping[str, NDArray[np.float64]]

# Similarities of real values that are told apart, between 0 and 1.
_STEPS = 1 << 22
# What is added to the similarities of the second stage: more than those of any first stage.
_AHEAD = 1 << 40
# Times that a search is repeated; the shortest counts.
_REPEATS = 3


class Compressed(NamedTuple):
    """Items of every modality in so many bytes each.

    Attributes:
        n_bytes: bytes an item and modality.
        similarities: (asking modality, searched modality, rows that ask) -> ``(nq, n)`` to all items.
        nearest: (asking modality, searched modality, rows that ask, k) -> rows of the first k items ``(nq, k)``.
    """

    n_bytes: int
    similarities: Callable[[str, str, Rows], NDArray[np.int64]]
    nearest: Callable[[str, str, Rows, int], Rows]


def binary_codes(outputs: Views, n_bits: int) -> Compressed:
    """Return the signs of ``outputs`` (n, k) as codes, ranked by Hamming distance.

    >>> codes = binary_codes({"image": np.array([[1.0, -1.0], [1.0, 1.0]])}, n_bits=2)
    >>> codes.n_bytes, codes.similarities("image", "image", np.array([0])).tolist()
    (1, [[0, -1]])
    """
    codes = {modality: pack(binarize(values)) for modality, values in outputs.items()}
    indexes = {modality: CodeIndex.build(packed, n_bits) for modality, packed in codes.items()}

    def nearest(asking: str, searched: str, rows: Rows, k: int) -> Rows:
        return np.stack([match.rows for match in indexes[searched].nearest(codes[asking][rows], k)]).astype(np.int64)

    return Compressed(
        -(-n_bits // 8),
        lambda asking, searched, rows: -hamming_distances(codes[asking][rows], codes[searched]),
        nearest,
    )


def faiss_vectors(vectors: Views, train: Rows, make_index: Callable[[Any], Any]) -> Compressed:
    """Return the directions of ``vectors`` (n, d) in an index of FAISS, ranked by inner product with the query's.

    Args:
        vectors: all modalities in one space.
        train: rows that the index is trained on, of all modalities together.
        make_index: the empty index, made of the module ``faiss``.

    Raises:
        InputError: FAISS is not installed.

    >>> items = {"image": np.eye(2), "text": np.eye(2)}
    >>> whole = faiss_vectors(items, np.array([0, 1]), lambda faiss: faiss.IndexFlatIP(2))
    >>> whole.n_bytes, whole.nearest("text", "image", np.array([1, 0]), 1).tolist()
    (8, [[1], [0]])
    """
    faiss = library("faiss", "faiss")
    directions = {modality: unit_rows(values).astype(np.float32) for modality, values in vectors.items()}
    empty = make_index(faiss)
    empty.train(np.concatenate([values[train] for values in directions.values()]))
    indexes = {modality: faiss.clone_index(empty) for modality in directions}
    for modality, values in directions.items():
        indexes[modality].add(values)

    def similarities(asking: str, searched: str, rows: Rows) -> NDArray[np.int64]:
        n = indexes[searched].ntotal
        products, items = indexes[searched].search(directions[asking][rows], n)
        found = np.empty((len(rows), n))
        np.put_along_axis(found, items, products, axis=1)
        rounded: NDArray[np.int64] = np.rint(found * _STEPS).astype(np.int64)
        return rounded

    def nearest(asking: str, searched: str, rows: Rows, k: int) -> Rows:
        found: Rows = indexes[searched].search(directions[asking][rows], k)[1]
        return found

    return Compressed(int(empty.sa_code_size()), similarities, nearest)


class SecondStage(NamedTuple):
    """Real values of every item as bytes, which order the first answers anew.

    Attributes:
        directions: modality -> ``(n, d)`` of length 1, those that ask.
        scales: modality -> ``(d,)`` value of a step.
        kept: modality -> ``(n, d)`` int8, those of the items.
    """

    directions: Views
    scales: Views
    kept: Mapping[str, NDArray[np.int8]]

    @property
    def n_bytes(self) -> int:
        """Bytes an item and modality."""
        return int(next(iter(self.kept.values())).shape[1])

    def similarities(self, asking: str, searched: str, rows: Rows, items: Rows) -> NDArray[np.int64]:
        """Compute the rounded cosines of rows that ask and items, ``(nq, nd)``."""
        stored = unit_rows(self.kept[searched][items] * self.scales[searched])
        return rounded_cosines(self.directions[asking][rows], stored).astype(np.int64)

    def order(self, asking: str, searched: str, rows: Rows, candidates: Rows) -> Rows:
        """Order each row's candidates ``(nq, n)`` by cosine, as a search does it: only those are read."""
        ordered = np.empty_like(candidates)
        weights = (self.directions[asking][rows] * self.scales[searched]).astype(np.float32)
        squares = np.square(self.scales[searched]).astype(np.float32)
        for place, (row, weight) in enumerate(zip(candidates, weights, strict=True)):
            values = self.kept[searched][row].astype(np.float32)
            scores = values @ weight / np.sqrt(np.maximum(np.square(values) @ squares, 1e-30))
            ordered[place] = row[np.argsort(-scores, kind="stable")]
        return ordered


def second_stage(vectors: Views) -> SecondStage:
    """Keep the direction of each row of ``vectors`` (n, d) as int8, with a scale a dimension.

    >>> stage = second_stage({"image": np.array([[2.0, 0.0], [0.0, 1.0]])})
    >>> stage.kept["image"].tolist()
    [[127, 0], [0, 127]]
    """
    directions = {modality: unit_rows(values) for modality, values in vectors.items()}
    scales = {name: np.maximum(np.abs(values).max(axis=0), 1e-30) / 127 for name, values in directions.items()}
    kept = {name: np.rint(values / scales[name]).astype(np.int8) for name, values in directions.items()}
    return SecondStage(directions, scales, kept)


def two_stages(
    first: NDArray[np.int64], exact: NDArray[np.int64], n_first: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """Return similarities that rank the first ``n_first`` items by ``exact``, and the others behind them by ``first``.

    Where the cut falls into tied items, they are drawn.

    Args:
        first: ``(nq, nd)``.
        exact: ``(nq, nd)``.
        n_first: number of items that are ordered anew.
        random: draws among tied items.

    >>> first, exact = np.array([[3, 2, 1]]), np.array([[-5, 5, 9]])
    >>> np.argsort(-two_stages(first, exact, 2, np.random.default_rng(0))).tolist()
    [[1, 0, 2]]
    """
    n = min(n_first, first.shape[1])
    drawn = first + random.random(first.shape)
    kept = np.argpartition(-drawn, n - 1, axis=1)[:, :n]
    ranked = first.copy()
    np.put_along_axis(ranked, kept, _AHEAD + np.take_along_axis(exact, kept, axis=1), axis=1)
    return ranked


def search_seconds(search: Callable[[], Any], n_queries: int) -> float:
    """Return the processor time of a search of ``n_queries`` together, in seconds a query: the least of three.

    >>> 0 <= search_seconds(lambda: sum(range(100)), 10) < 1
    True
    """
    times = []
    for _ in range(_REPEATS):
        start = time.process_time()
        search()
        times.append(time.process_time() - start)
    return min(times) / n_queries
