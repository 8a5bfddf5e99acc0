"""Exact search over many codes, in memory.

An index keeps each distinct code once, with the rows that have it, and clusters of codes. The first
searches of a process compare codes with NumPy alone, so that nothing has to be compiled for them.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, check_packed
from channelhash.search.index.layout import (
    Clusters,
    CodeSearch,
    DistinctCodes,
    Matches,
    RowNumbers,
    Words,
    check_array,
    check_clusters,
    check_distinct,
    code_words,
    find_distinct,
)
from channelhash.utils.optional_imports import has_loops
from channelhash.utils.seeds import generator

#: Number of distinct codes from which clusters may be quicker than a scan.
_FEWEST_CLUSTERED = 1 << 16
#: Searches that are tried to see whether clusters are worth it.
_TRIALS = 256
#: Answers of each of these searches.
_TRIED_FIRST = 10
#: What a word that is read in clusters costs, in words that a scan reads.
_READ = 4
#: What each pivot costs a search in clusters.
_PIVOT = 14
#: What a search in clusters costs besides.
_START = 20_000
#: Queries that are searched at once: each takes some kilobytes.
_AT_ONCE = 1 << 12
#: The mask of a search in which all rows count.
_ALL = np.empty(0, dtype=np.bool_)
#: Prefix of the names of the clusters' arrays.
_CLUSTER = "cluster_"

#: Words of codes that NumPy may still compare with queries in this process. Loading the compiled
#: loops takes about as long as comparing all of them.
_left_to_numpy = 1 << 27
#: Words of an index that `compile_loops` leaves to NumPy for good: a search takes a millisecond.
_FEW_WORDS = 1 << 19
#: Words of the largest index that NumPy searches without counting.
_uncounted = 0


def _scan_nearest(search: CodeSearch) -> list[Matches]:
    """Find the first ``k`` rows of each query within the radius with NumPy alone.

    >>> codes = find_distinct(np.array([[0], [7]], np.uint8), n_bits=8)
    >>> query = np.zeros((1, 1), np.uint32)
    >>> search = CodeSearch(query, *codes, np.empty(0, np.bool_), k=1, radius=8, n_bits=8)
    >>> _scan_nearest(search)[0].rows.tolist()
    [0]
    """
    # The number of rows that count, by code; None if each code has one.
    sizes: NDArray[np.int64] | None = None
    if len(search.allowed):
        sizes = np.add.reduceat(search.allowed[search.rows], search.starts[:-1], dtype=np.int64)
    elif len(search.rows) > search.codes.shape[1]:
        sizes = search.starts[1:].astype(np.int64) - search.starts[:-1]
    found = []
    for query in search.queries:
        distances = np.zeros(search.codes.shape[1], np.uint16)
        for word, column in zip(query, search.codes, strict=True):
            distances += np.bitwise_count(column ^ word)
        # All rows up to the distance at which k are met are candidates.
        met = np.cumsum(np.bincount(distances, sizes, minlength=search.n_bits + 1))
        limit = min(int(np.searchsorted(met, search.k)), search.radius)
        found.append(_rows(search, distances, limit))
    return found


def _rows(search: CodeSearch, distances: NDArray[np.uint16], limit: int) -> Matches:
    """Return the first ``k`` rows that count, of codes within the limit. Ties are broken by row."""
    near = np.flatnonzero(distances <= limit)
    starts = search.starts[near].astype(np.int64)
    sizes = search.starts[near + 1] - starts
    # The rows of a code stand side by side, from its start on.
    places = np.repeat(starts - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
    rows = search.rows[places].astype(np.int64)
    far = np.repeat(distances[near].astype(np.int64), sizes)
    if len(search.allowed):
        counts = search.allowed[rows]
        rows = rows[counts]
        far = far[counts]
    order = np.lexsort((rows, far))[: search.k]
    return Matches(rows[order], far[order])


def compile_loops(n_words: int = _FEW_WORDS + 1, on_one_core: int = 0) -> None:
    """Load the compiled loops now, for a process that will search much. Otherwise the first
    searches do without them.

    If there are only a few words of codes, the loops are not loaded until there are more. Scans of
    fewer than ``on_one_core`` words run on one core: waking threads would take longer, and the
    other cores may have other work.
    """
    global _left_to_numpy, _uncounted
    if n_words <= _FEW_WORDS:
        _uncounted = _FEW_WORDS
        return
    if not has_loops(is_much=True):
        return
    _left_to_numpy = 0
    if on_one_core:
        from channelhash.search.index import scans

        scans.few_words = on_one_core
    # So many codes that clusters are searched.
    codes = np.arange(64, dtype=np.uint64).view(np.uint8).reshape(64, 8)
    for clusters in (False, True):
        CodeIndex.build(codes, n_bits=64, clusters=clusters).nearest(codes[:1], k=1)


def _is_left_to_numpy(search: CodeSearch) -> bool:
    """Return whether NumPy does a search, and count its words."""
    global _left_to_numpy
    if search.codes.size > _uncounted:
        _left_to_numpy -= len(search.queries) * search.codes.size
    return _left_to_numpy >= 0 or not has_loops(is_much=True)


class CodeIndex:
    """Codes by row, each distinct one kept once. Answers come nearest first; ties are broken by
    row.

    With clusters, a search goes through these unless a scan of all distinct codes is cheaper. Both
    are compiled (`clusters`, `scans`). The first searches of a process use NumPy instead
    (`_scan_nearest`), with the same answers. Several threads may search at the same time.

    >>> index = CodeIndex.build(np.array([[0], [7], [7]], np.uint8), n_bits=8)
    >>> [match.rows.tolist() for match in index.nearest(np.array([[6]], np.uint8), k=2)]
    [[1, 2]]
    >>> index.n_distinct
    2
    """

    def __init__(self, distinct: DistinctCodes, clusters: Clusters | None, n_bits: int) -> None:
        self.n_bits = n_bits
        self._distinct = distinct
        self._clusters = clusters
        # Loops are compiled for read-only arrays, as those of files are, so all must be.
        for values in self.arrays().values():
            values.flags.writeable = False

    @classmethod
    def build(cls, packed: PackedCodes, n_bits: int, clusters: bool | None = None) -> "CodeIndex":
        """Return the index of ``(n, ceil(n_bits / 8))`` packed codes, fewer than 2³² of them."""
        check_packed(packed, n_bits)
        plain = cls(find_distinct(packed, n_bits), None, n_bits)
        if clusters is None and (
            plain.n_distinct < _FEWEST_CLUSTERED or not has_loops(is_much=False)
        ):
            clusters = False
        if clusters is False or not plain.n_distinct:
            return plain
        from channelhash.search.index.clusters import cluster  # compiled

        distinct, found = cluster(plain._distinct)
        clustered = cls(distinct, found, n_bits)
        cost = clustered._cost(found)
        if not clusters and cost >= distinct.codes.size:
            return plain
        return cls(distinct, found._replace(cost=np.array([cost])), n_bits)

    def _cost(self, clusters: Clusters) -> int:
        """Return what a search in the clusters costs, on average of a sample of the codes."""
        sample = generator(0, "trials", self.n_distinct).choice(self.n_distinct, _TRIALS)
        queries = np.ascontiguousarray(self._distinct.codes[:, sample].T)
        n_words = self._distinct.codes.size * self._share_read(queries, _TRIED_FIRST)
        return int(_START + _PIVOT * clusters.pivots.shape[1] + _READ * n_words)

    def share_read(self, queries: PackedCodes, k: int) -> float:
        """Return what share of the words of all codes the compiled loops read to find the ``k``
        nearest rows of a query, on average: 0 to 1. Pivots do not count.

        >>> index = CodeIndex.build(np.array([[0], [7], [7]], np.uint8), n_bits=8)
        >>> index.share_read(np.array([[6]], np.uint8), k=2)
        1.0
        """
        return self._share_read(code_words(queries, self.n_bits), k)

    def _share_read(self, query_words: Words, k: int) -> float:
        search = CodeSearch(
            query_words, *self._distinct, _ALL, min(k, len(self)), self.n_bits, self.n_bits
        )
        states = self._search_compiled(search)[1]
        return float(states[:, :, -1].sum() / (len(query_words) * self._distinct.codes.size))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "CodeIndex":
        """Return the index of `arrays`. They are checked, so that no search can leave them, in O(n)
        for ``n`` rows.

        >>> index = CodeIndex.build(np.array([[0], [7], [7]], np.uint8), n_bits=8)
        >>> len(CodeIndex.from_arrays(index.arrays()))
        3
        """
        try:
            n_bits = arrays["n_bits"]
            distinct = DistinctCodes(*(arrays[name] for name in DistinctCodes._fields))
            clusters = None
            if f"{_CLUSTER}chunks" in arrays:
                clusters = Clusters(*(arrays[f"{_CLUSTER}{name}"] for name in Clusters._fields))
        except KeyError as error:
            raise ValueError(f"an index without {error.args[0]}") from None
        check_array(n_bits, "n_bits", np.int64, ())
        check_distinct(distinct, int(n_bits))
        if clusters is not None:
            check_clusters(clusters, distinct.codes)
        return cls(distinct, clusters, int(n_bits))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by name, ``n_bits`` among them, for `from_arrays`."""
        clusters = {} if self._clusters is None else self._clusters._asdict()
        named = {f"{_CLUSTER}{name}": values for name, values in clusters.items()}
        return {"n_bits": np.array(self.n_bits, np.int64), **self._distinct._asdict(), **named}

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._distinct.rows)

    @property
    def n_distinct(self) -> int:
        """Number of distinct codes."""
        return int(self._distinct.codes.shape[1])

    def packed(self, rows: NDArray[np.int64] | None = None) -> PackedCodes:
        """Return the ``(n, ceil(n_bits / 8))`` packed codes, by row, or those of some rows.

        The first call keeps 4 bytes a row.

        >>> index = CodeIndex.build(np.array([[9], [7], [7]], np.uint8), n_bits=8)
        >>> index.packed().tolist(), index.packed(np.array([2, 0])).tolist()
        ([[9], [7], [7]], [[7], [9]])
        """
        places = self._places if rows is None else self._places[rows]
        codes = self._distinct.codes[:, places]
        big_endian = codes.T.astype(codes.dtype.newbyteorder(">"), order="C")
        return big_endian.view(np.uint8)[:, : -(-self.n_bits // 8)]

    @cached_property
    def _places(self) -> RowNumbers:
        """Place of each row's code among the distinct ones."""
        codes, starts, rows = self._distinct
        places = np.empty(len(rows), np.uint32)
        places[rows] = np.repeat(
            np.arange(codes.shape[1], dtype=np.uint32), starts[1:] - starts[:-1]
        )
        return places

    def nearest(
        self, queries: PackedCodes, k: int, allowed: NDArray[np.bool_] | None = None
    ) -> list[Matches]:
        """Return the ``k`` nearest rows of every query, or all if there are fewer."""
        if k < 1:
            raise ValueError(f"k is {k}; at least 1 item can be asked for")
        return self._search(queries, k, self.n_bits, allowed)

    def within(
        self,
        queries: PackedCodes,
        radius: int,
        allowed: NDArray[np.bool_] | None = None,
        limit: int | None = None,
    ) -> list[Matches]:
        """Return the rows within ``radius`` bits of every query, or the first ``limit`` of them."""
        if radius < 0:
            raise ValueError(f"radius is {radius}; a distance is at least 0")
        if limit is not None and limit < 1:
            raise ValueError(f"limit is {limit}; at least 1 item can be asked for")
        return self._search(queries, limit, min(radius, self.n_bits), allowed)

    def _search(
        self, queries: PackedCodes, k: int | None, radius: int, allowed: NDArray[np.bool_] | None
    ) -> list[Matches]:
        """Return the first ``k`` rows within ``radius``, or all if k is None."""
        check_packed(queries, self.n_bits)
        mask = self._mask(allowed)
        if not len(self):
            return [Matches(*np.empty((2, 0), dtype=np.int64)) for _ in queries]
        query_words = code_words(queries, self.n_bits)
        count = len(self) if k is None else min(k, len(self))
        search = CodeSearch(query_words, *self._distinct, mask, count, radius, self.n_bits)
        if _is_left_to_numpy(search):
            return _scan_nearest(search)
        # All rows of one query need no memory until they are written.
        at_once = 1 if k is None else _AT_ONCE
        found = []
        for first in range(0, len(query_words), at_once):
            part = search._replace(queries=query_words[first : first + at_once])
            found += self._search_compiled(part)[0]
            if k is None:
                found[-1] = Matches(*map(np.copy, found[-1]))
        return found

    def _mask(self, allowed: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        if allowed is None:
            return _ALL
        if allowed.dtype != np.bool_ or allowed.shape != (len(self),):
            raise ValueError(f"a mask is ({len(self)},) bool, not {allowed.shape} {allowed.dtype}")
        return np.require(allowed, requirements=["C", "W"])

    def _search_compiled(self, search: CodeSearch) -> tuple[list[Matches], NDArray[np.int64]]:
        """Return the answers, and the states of `scans`, of which the last are the words read."""
        from channelhash.search.index import clusters, scans

        if self._clusters is None:
            return scans.search_all(search)
        return clusters.search_clusters(search, self._clusters)
