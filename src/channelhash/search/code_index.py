"""Exact search over many codes, in memory or in mapped files."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, check_packed
from channelhash.search import scan
from channelhash.search.distinct import DistinctCodes, code_words, distinct_codes
from channelhash.search.exact import Matches

_NO_MASK = np.empty(0, dtype=np.bool_)


class CodeIndex:
    """Codes by row, each distinct one kept once. Answers come nearest first, equal distances by row.

    Several threads may search at the same time.
    """

    def __init__(self, distinct: DistinctCodes, n_bits: int) -> None:
        self.n_bits = n_bits
        self._distinct = distinct

    @classmethod
    def build(cls, packed: PackedCodes, n_bits: int) -> "CodeIndex":
        """The index of ``(n, ceil(n_bits / 8))`` packed codes, fewer than 2³² of them.

        Raises:
            ValueError: the codes do not have ``n_bits`` bits, or are too many.
        """
        check_packed(packed, n_bits)
        return cls(distinct_codes(packed, n_bits), n_bits)

    def save(self, folder: Path) -> None:
        """Write the index into an existing folder. The files are written in place: rename the folder when it is whole."""
        np.save(folder / "n_bits.npy", self.n_bits)
        for name, values in self._distinct._asdict().items():
            np.save(folder / f"{name}.npy", values)

    @classmethod
    def load(cls, folder: Path) -> "CodeIndex":
        """The index that `save` wrote, in mapped files: memory is taken as it is read."""
        arrays = (np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r")) for name in DistinctCodes._fields)
        return cls(DistinctCodes(*arrays), int(np.load(folder / "n_bits.npy")))

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._distinct.rows)

    @property
    def n_distinct(self) -> int:
        """Number of distinct codes."""
        return int(self._distinct.codes.shape[1])

    @property
    def nbytes(self) -> int:
        """Size of all arrays."""
        return sum(values.nbytes for values in self._distinct)

    def nearest(self, queries: PackedCodes, k: int, allowed: NDArray[np.bool_] | None = None) -> list[Matches]:
        """The ``k`` nearest rows of every query, or all where there are fewer.

        Args:
            queries: ``(nq, ceil(n_bits / 8))`` packed codes.
            k: at least 1.
            allowed: ``(n,)``, the rows that count; all if left out.

        Raises:
            ValueError: ``k`` is below 1, or an array does not fit the index.
        """
        if k < 1:
            raise ValueError(f"k is {k}; at least 1 item can be asked for")
        return self._nearest(self._words(queries), k, self.n_bits, self._mask(allowed))

    def within(
        self, queries: PackedCodes, radius: int, allowed: NDArray[np.bool_] | None = None, limit: int | None = None
    ) -> list[Matches]:
        """All rows at distance <= ``radius`` of every query, at most the first ``limit`` of them.

        Args and errors otherwise as in `nearest`.
        """
        if radius < 0:
            raise ValueError(f"radius is {radius}; a distance is at least 0")
        if limit is not None and limit < 1:
            raise ValueError(f"limit is {limit}; at least 1 item can be asked for")
        words, mask, radius = self._words(queries), self._mask(allowed), min(radius, self.n_bits)
        if limit is not None:
            return self._nearest(words, limit, radius, mask)
        return [Matches(*scan.within(query, self._distinct, radius, mask)) for query in words]

    def _nearest(self, queries: NDArray[np.uint64], k: int, radius: int, allowed: NDArray[np.bool_]) -> list[Matches]:
        rows, distances, counts = scan.nearest(queries, self._distinct, k, radius, allowed)
        return [Matches(rows[q, :n], distances[q, :n]) for q, n in enumerate(counts)]

    def _words(self, queries: PackedCodes) -> NDArray[np.uint64]:
        check_packed(queries, self.n_bits)
        return code_words(queries, self.n_bits)

    def _mask(self, allowed: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        if allowed is None:
            return _NO_MASK
        if allowed.dtype != np.bool_ or allowed.shape != (len(self),):
            raise ValueError(f"a mask is ({len(self)},) bool, not {allowed.shape} {allowed.dtype}")
        return np.ascontiguousarray(allowed)
