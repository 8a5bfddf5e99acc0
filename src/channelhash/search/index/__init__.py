"""Exact search over many codes, in memory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, check_packed
from channelhash.search.index import plain_scan
from channelhash.search.index.brute_force import Matches
from channelhash.search.index.deduplicate import DistinctCodes, Mask, check_distinct, code_words, distinct_codes
from channelhash.search.index.request import Search
from channelhash.search.index.tables import Tables, check_tables
from channelhash.utils.npy_files import read_npy

# Tables are worth their memory for at least so many distinct codes, of at most so many bits: the neighbours of longer
# codes are too many bits away.
_FEWEST, _LONGEST = 1 << 18, 64
# A search in the tables may look at one of so many codes before it is left to the scan.
_FRACTION = 8
_ALL = np.empty(0, dtype=np.bool_)
# What the names of a table's arrays begin with.
_TABLE = "table_"


# Words of codes that NumPy may still compare with queries in this process before the compiled loops are loaded: that
# takes about as long.
_left_to_numpy = 1 << 27


def compile_loops() -> None:
    """Load the compiled loops now, for a process that will search much; otherwise the first searches do without."""
    global _left_to_numpy
    _left_to_numpy = 0
    index = CodeIndex.build(np.zeros((2, 8), np.uint8), n_bits=64)
    index.nearest(np.zeros((1, 8), np.uint8), k=1)


class CodeIndex:
    """Codes by row, each distinct one kept once. Answers come nearest first, equal distances by row.

    Where there are tables, a search goes through them (`multi_index_hashing`) and falls back to a scan of all distinct
    codes (`linear_scan`) once that is cheaper. Both are compiled, and the first searches of a process use NumPy instead
    (`plain_scan`); the answers are the same. Several threads may search at the same time.

    >>> index = CodeIndex.build(np.array([[0], [7], [7]], np.uint8), n_bits=8)
    >>> [match.rows.tolist() for match in index.nearest(np.array([[6]], np.uint8), k=2)]
    [[1, 2]]
    >>> index.n_distinct
    2
    """

    def __init__(self, distinct: DistinctCodes, tables: Tables | None, n_bits: int) -> None:
        self.n_bits = n_bits
        self._distinct = distinct
        self._tables = tables
        # Kernels are compiled at first use, for arrays that cannot be written to, as those of files.
        for values in self._arrays().values():
            values.flags.writeable = False

    @classmethod
    def build(cls, packed: PackedCodes, n_bits: int, tables: bool | None = None) -> "CodeIndex":
        """Return the index of ``(n, ceil(n_bits / 8))`` packed codes, fewer than 2³² of them.

        Args:
            tables: whether to make tables, which multiply the memory; left out, for many codes of up to 64 bits.

        Raises:
            ValueError: the codes do not have ``n_bits`` bits, or are too many.
        """
        check_packed(packed, n_bits)
        distinct = distinct_codes(packed, n_bits)
        if tables is None:
            tables = distinct.codes.shape[1] >= _FEWEST and n_bits <= _LONGEST
        if not tables:
            return cls(distinct, None, n_bits)
        from channelhash.search.index.multi_index_hashing import build_tables  # compiled

        return cls(distinct, build_tables(distinct.codes, n_bits), n_bits)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "CodeIndex":
        """Return the index of `arrays`, whoever has written those: they are checked, so that no search leaves them.

        Raises:
            ValueError: an array is missing, of another type, or does not fit the others.

        O(n) for ``n`` rows, and as much for each table.

        >>> index = CodeIndex.build(np.array([[0], [7], [7]], np.uint8), n_bits=8)
        >>> len(CodeIndex.from_arrays(index.arrays()))
        3
        """
        try:
            n_bits, distinct = arrays["n_bits"], DistinctCodes(*(arrays[name] for name in DistinctCodes._fields))
            listed = [arrays[f"{_TABLE}{name}"] for name in Tables._fields] if f"{_TABLE}layout" in arrays else None
        except KeyError as error:
            raise ValueError(f"an index without {error.args[0]}") from None
        if n_bits.shape != () or n_bits.dtype.kind != "i":
            raise ValueError(f"n_bits is one number, not {n_bits.shape} {n_bits.dtype}")
        check_distinct(distinct, int(n_bits))
        tables = None if listed is None else Tables(*listed)
        if tables is not None:
            check_tables(tables, distinct.codes)
        return cls(distinct, tables, int(n_bits))

    def save(self, folder: Path) -> None:
        """Write the index into an existing folder; rename that when it is whole: the files are written in place."""
        for name, values in self.arrays().items():
            np.save(folder / f"{name}.npy", values)

    @classmethod
    def load(cls, folder: Path) -> "CodeIndex":
        """Read the index that `save` wrote; the arrays are checked as in `from_arrays`.

        Raises:
            ValueError: a file is missing or damaged, or does not fit the others.
            OSError: a file cannot be read.
        """
        return cls.from_arrays({path.stem: read_npy(path) for path in sorted(folder.glob("*.npy"))})

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

    def packed(self) -> PackedCodes:
        """Return the ``(n, ceil(n_bits / 8))`` packed codes, by row.

        >>> CodeIndex.build(np.array([[9], [7], [7]], np.uint8), n_bits=8).packed().tolist()
        [[9], [7], [7]]
        """
        codes, starts, rows = self._distinct
        of_bytes = codes.T.astype(codes.dtype.newbyteorder(">"), order="C").view(np.uint8)[:, : -(-self.n_bits // 8)]
        packed = np.empty((len(rows), of_bytes.shape[1]), dtype=np.uint8)
        packed[rows] = np.repeat(of_bytes, starts[1:] - starts[:-1], axis=0)
        return packed

    @property
    def nbytes(self) -> int:
        """Size of all arrays."""
        return sum(values.nbytes for values in self._arrays().values())

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
        """Return the first ``k`` rows within ``radius``, or all: from the tables, and what they leave from a scan."""
        check_packed(queries, self.n_bits)
        mask = self._mask(allowed)
        if not len(self) or not len(queries):
            return [Matches(*np.empty((2, 0), dtype=np.int64)) for _ in queries]
        words = code_words(queries, self.n_bits)
        count = len(self) if k is None else min(k, len(self))
        search = Search(words, *self._distinct, mask, count, radius, self.n_bits)
        if _can_numpy(search):
            return plain_scan.within(search) if k is None else plain_scan.nearest(search)
        return self._search_compiled(search, k)

    def _search_compiled(self, search: Search, k: int | None) -> list[Matches]:
        from channelhash.search.index import linear_scan as scan
        from channelhash.search.index import multi_index_hashing as multi_index

        matches: dict[int, Matches] = {}
        words, count = search.queries, search.k
        if self._tables is not None:
            budget = int(self.n_distinct / _FRACTION)
            if k is None:
                matches = multi_index.within(search, self._tables, budget)
            elif count < budget:
                matches = multi_index.nearest(search, self._tables, budget)
        rest = [q for q in range(len(words)) if q not in matches]
        if rest:
            if matches:
                search = search._replace(queries=words[rest])
            scanned = scan.within(search) if k is None else scan.nearest(search)
            matches.update(zip(rest, scanned, strict=True))
        return [matches[q] for q in range(len(words))]

    def _mask(self, allowed: NDArray[np.bool_] | None) -> Mask:
        if allowed is None:
            return _ALL
        if allowed.dtype != np.bool_ or allowed.shape != (len(self),):
            raise ValueError(f"a mask is ({len(self)},) bool, not {allowed.shape} {allowed.dtype}")
        return np.require(allowed, requirements=["C", "W"])

    def _arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return what is searched, by name."""
        tables = {} if self._tables is None else self._tables._asdict()
        return self._distinct._asdict() | {f"{_TABLE}{name}": values for name, values in tables.items()}


def _can_numpy(search: Search) -> bool:
    global _left_to_numpy
    _left_to_numpy -= len(search.queries) * search.codes.size
    return _left_to_numpy >= 0
