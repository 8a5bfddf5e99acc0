"""Exact search over codes in a fixed order (a plain scan)."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, hamming_distances
from channelhash.search.exact import Matches


class CodeIndex:
    """Codes in a fixed order; equal distances go by row."""

    def __init__(self, packed: PackedCodes, n_bits: int) -> None:
        self._packed = packed
        self.n_bits = n_bits

    @classmethod
    def build(cls, packed: PackedCodes, n_bits: int) -> "CodeIndex":
        """An index in memory."""
        return cls(packed, n_bits)

    def save(self, folder: Path) -> None:
        """Write the index into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / "codes.npy", self._packed)
        (folder / "n_bits").write_text(str(self.n_bits))

    @classmethod
    def load(cls, folder: Path) -> "CodeIndex":
        """A saved index, memory-mapped."""
        return cls(np.load(folder / "codes.npy", mmap_mode="r"), int((folder / "n_bits").read_text()))

    def __len__(self) -> int:
        return len(self._packed)

    @property
    def n_distinct(self) -> int:
        """Number of different codes."""
        return len(np.unique(self._packed, axis=0))

    @property
    def nbytes(self) -> int:
        """Size."""
        return self._packed.nbytes

    def nearest(self, queries: PackedCodes, k: int, allowed: NDArray[np.bool_] | None = None) -> list[Matches]:
        """The ``k`` nearest rows of every query."""
        return [self._first(query, k, None, allowed) for query in queries]

    def within(
        self, queries: PackedCodes, radius: int, allowed: NDArray[np.bool_] | None = None, limit: int | None = None
    ) -> list[Matches]:
        """All rows within ``radius``."""
        return [self._first(query, limit, radius, allowed) for query in queries]

    def _first(
        self, query: PackedCodes, k: int | None, radius: int | None, allowed: NDArray[np.bool_] | None
    ) -> Matches:
        distances = hamming_distances(query[None], np.asarray(self._packed))[0]
        rows = np.arange(len(distances)) if allowed is None else np.flatnonzero(allowed)
        if radius is not None:
            rows = rows[distances[rows] <= radius]
        rows = rows[np.argsort(distances[rows], kind="stable")][:k]
        return Matches(rows, distances[rows])
