"""Exact search over many codes, in memory."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, check_packed
from channelhash.search.index import brute_force
from channelhash.search.index.brute_force import Clusters, DistinctCodes, Matches, Search, scan_nearest, scan_within
from channelhash.utils.seeds import generator

#: From so many distinct codes on, clusters may be quicker than a scan.
FEWEST_CLUSTERED = 1 << 16
# A search for more answers than one of so many codes is left to the scan; so is one that would look at more than so
# many times as many, which lie side by side.
_FRACTION, _SIDE_BY_SIDE = 16, 4
# Codes that are searched for to see whether clusters are worth it, answers of each, and the share of such searches that
# they must not leave to the scan.
_TRIALS, _TRIED_FIRST, _WORTH = 256, 10, 0.75
_ALL = np.empty(0, dtype=np.bool_)
# What the names of the clusters' arrays begin with.
_CLUSTER = "cluster_"


# Words of codes that NumPy may still compare with queries in this process before the compiled loops are loaded: that
# takes about as long.
_left_to_numpy = 1 << 27


def compile_loops() -> None:
    """Load the compiled loops now, for a process that will search much; otherwise the first searches do without."""
    global _left_to_numpy
    _left_to_numpy = 0
    codes = np.zeros((2, 8), np.uint8)
    for clusters in (False, True):
        CodeIndex.build(codes, n_bits=64, clusters=clusters).nearest(codes, k=1)


class CodeIndex:
    """Codes by row, each distinct one kept once. Answers come nearest first, equal distances by row.

    Where there are clusters (`clustered_scan`), a search goes through them and is left to a scan of all distinct codes
    (`linear_scan`) where that is cheaper. Both are compiled, and the first searches of a process use NumPy instead
    (`brute_force`); the answers are the same. Several threads may search at the same time.

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
        # Kernels are compiled at first use, for arrays that cannot be written to, as those of files.
        for values in self._arrays().values():
            values.flags.writeable = False

    @classmethod
    def build(cls, packed: PackedCodes, n_bits: int, clusters: bool | None = None) -> "CodeIndex":
        """Return the index of ``(n, ceil(n_bits / 8))`` packed codes, fewer than 2³² of them.

        Args:
            packed: the codes.
            n_bits: code length.
            clusters: whether to put codes in clusters; left out, many codes are if clusters answer most of a sample of
                them.

        Raises:
            ValueError: the codes do not have ``n_bits`` bits, or are too many.
        """
        check_packed(packed, n_bits)
        plain = cls(brute_force.distinct_codes(packed, n_bits), None, n_bits)
        if not plain.n_distinct or clusters is False or (clusters is None and plain.n_distinct < FEWEST_CLUSTERED):
            return plain
        from channelhash.search.index.clustered_scan import cluster  # compiled

        clustered = cls(*cluster(plain._distinct), n_bits)
        return clustered if clusters or clustered._is_worth_it() else plain

    def _is_worth_it(self) -> bool:
        """Return whether most searches for a sample of the codes are not left to the scan."""
        from channelhash.search.index import clustered_scan

        assert self._clusters is not None
        sample = generator(0, "trials", self.n_distinct).choice(self.n_distinct, _TRIALS)
        words = np.ascontiguousarray(self._distinct.codes[:, sample].T)
        search = Search(words, *self._distinct, _ALL, min(len(self), _TRIED_FIRST), self.n_bits, self.n_bits)
        return len(clustered_scan.nearest(search, self._clusters, self._budget)) >= _WORTH * _TRIALS

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "CodeIndex":
        """Return the index of `arrays`, whoever has written those: they are checked, so that no search leaves them.

        Raises:
            ValueError: an array is missing, of another type, or does not fit the others.

        O(n) for ``n`` rows.

        >>> index = CodeIndex.build(np.array([[0], [7], [7]], np.uint8), n_bits=8)
        >>> len(CodeIndex.from_arrays(index.arrays()))
        3
        """
        try:
            n_bits, distinct = arrays["n_bits"], DistinctCodes(*(arrays[name] for name in DistinctCodes._fields))
            clusters = None
            if f"{_CLUSTER}pivots" in arrays:
                clusters = Clusters(*(arrays[f"{_CLUSTER}{name}"] for name in Clusters._fields))
        except KeyError as error:
            raise ValueError(f"an index without {error.args[0]}") from None
        if n_bits.shape != () or n_bits.dtype.kind != "i":
            raise ValueError(f"n_bits is one number, not {n_bits.shape} {n_bits.dtype}")
        brute_force.check_distinct(distinct, int(n_bits))
        if clusters is not None:
            brute_force.check_clusters(clusters, distinct.codes)
        return cls(distinct, clusters, int(n_bits))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by name, ``n_bits`` among them, for `from_arrays`."""
        return {"n_bits": np.array(self.n_bits), **self._arrays()}

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._distinct.rows)

    @property
    def n_distinct(self) -> int:
        """Number of distinct codes."""
        return int(self._distinct.codes.shape[1])

    def packed(self, rows: NDArray[np.int64] | None = None) -> PackedCodes:
        """Return the ``(n, ceil(n_bits / 8))`` packed codes, by row, or those of some rows.

        The first call with ``rows`` keeps 4 bytes a row.

        >>> index = CodeIndex.build(np.array([[9], [7], [7]], np.uint8), n_bits=8)
        >>> index.packed().tolist(), index.packed(np.array([2, 0])).tolist()
        ([[9], [7], [7]], [[7], [9]])
        """
        if rows is not None:
            return _bytes_of(self._distinct.codes[:, self._places[rows]], self.n_bits)
        codes, starts, rows_of_codes = self._distinct
        of_bytes = _bytes_of(codes, self.n_bits)
        packed = np.empty((len(rows_of_codes), of_bytes.shape[1]), dtype=np.uint8)
        packed[rows_of_codes] = np.repeat(of_bytes, starts[1:] - starts[:-1], axis=0)
        return packed

    @cached_property
    def _places(self) -> brute_force.Rows:
        """Where among the distinct codes that of each row is."""
        codes, starts, rows = self._distinct
        places = np.empty(len(rows), np.uint32)
        places[rows] = np.repeat(np.arange(codes.shape[1], dtype=np.uint32), starts[1:] - starts[:-1])
        return places

    def nearest(self, queries: PackedCodes, k: int, allowed: NDArray[np.bool_] | None = None) -> list[Matches]:
        """Return the ``k`` nearest rows of every query, or all where there are fewer.

        Args:
            queries: ``(nq, ceil(n_bits / 8))`` packed codes.
            k: at least 1.
            allowed: ``(n,)``, the rows that count; all if left out.

        Raises:
            ValueError: ``k`` is below 1, or an array does not fit the index.
        """
        if k < 1:
            raise ValueError(f"k is {k}; at least 1 item can be asked for")
        return self._search(queries, k, self.n_bits, allowed)

    def within(
        self, queries: PackedCodes, radius: int, allowed: NDArray[np.bool_] | None = None, limit: int | None = None
    ) -> list[Matches]:
        """Return all rows at distance <= ``radius`` of every query, at most the first ``limit`` of them.

        Args and errors otherwise as in `nearest`.
        """
        if radius < 0:
            raise ValueError(f"radius is {radius}; a distance is at least 0")
        if limit is not None and limit < 1:
            raise ValueError(f"limit is {limit}; at least 1 item can be asked for")
        return self._search(queries, limit, min(radius, self.n_bits), allowed)

    def _search(
        self, queries: PackedCodes, k: int | None, radius: int, allowed: NDArray[np.bool_] | None
    ) -> list[Matches]:
        """Return the first ``k`` rows within ``radius``, or all: from clusters, and what they leave from a scan."""
        check_packed(queries, self.n_bits)
        mask = self._mask(allowed)
        if not len(self) or not len(queries):
            return [Matches(*np.empty((2, 0), dtype=np.int64)) for _ in queries]
        words = brute_force.code_words(queries, self.n_bits)
        count = len(self) if k is None else min(k, len(self))
        search = Search(words, *self._distinct, mask, count, radius, self.n_bits)
        global _left_to_numpy
        _left_to_numpy -= len(queries) * search.codes.size
        if _left_to_numpy >= 0:
            return scan_within(search) if k is None else scan_nearest(search)
        if k is not None:
            return self._search_compiled(search)
        found = []
        for q in range(len(words)):
            # Memory that nothing is written to is not taken: room for all rows costs nothing.
            (match,) = self._search_compiled(search._replace(queries=words[q : q + 1]))
            found.append(Matches(match.rows.copy(), match.distances.copy()))
        return found

    def _search_compiled(self, search: Search) -> list[Matches]:
        from channelhash.search.index import clustered_scan, linear_scan

        matches: dict[int, Matches] = {}
        every = search.k == len(self) and search.radius < self.n_bits
        if self._clusters is not None and (every or search.k < self.n_distinct / _FRACTION):
            matches = clustered_scan.nearest(search, self._clusters, self._budget)
        rest = [q for q in range(len(search.queries)) if q not in matches]
        if rest:
            search = search._replace(queries=search.queries[rest]) if matches else search
            matches.update(zip(rest, linear_scan.nearest(search), strict=True))
        return [matches[q] for q in range(len(matches))]

    @property
    def _budget(self) -> int:
        """How many codes a search in clusters may look at."""
        return _SIDE_BY_SIDE * int(self.n_distinct / _FRACTION)

    def _mask(self, allowed: NDArray[np.bool_] | None) -> brute_force.Mask:
        if allowed is None:
            return _ALL
        if allowed.dtype != np.bool_ or allowed.shape != (len(self),):
            raise ValueError(f"a mask is ({len(self)},) bool, not {allowed.shape} {allowed.dtype}")
        return np.require(allowed, requirements=["C", "W"])

    def _arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return what is searched, by name."""
        clusters = {} if self._clusters is None else self._clusters._asdict()
        return self._distinct._asdict() | {f"{_CLUSTER}{name}": values for name, values in clusters.items()}


def _bytes_of(codes: brute_force.Words, n_bits: int) -> PackedCodes:
    """Return words ``(words, m)`` of codes as ``(m, ceil(n_bits / 8))`` packed codes."""
    return codes.T.astype(codes.dtype.newbyteorder(">"), order="C").view(np.uint8)[:, : -(-n_bits // 8)]
