"""Codes of one modality in the order of their items' ids, in memory or memory-mapped from a folder."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from channelhash.search.index import CodeIndex
from channelhash.search.local.database import CodeRow

# Rows held as Python objects at a time while codes are read.
_CHUNK = 1 << 16


@dataclass(frozen=True)
class SortedCodes:
    """What a search needs of ``n`` codes. Row order is id order, so equal distances by row are equal distances by id.

    Attributes:
        index: the codes.
        items: ``(n,)`` int64 item numbers.
        serials: ``(n,)`` int64 serials of the codes.
        names: the ids as UTF-8, one behind the other, uint8.
        ends: ``(n,)`` int64, where each id ends in ``names``.

    >>> codes = SortedCodes.build([("a", 1, 1, bytes([7])), ("b", 2, 2, bytes([0]))], n_bits=8)
    >>> codes.ids(np.array([1]))
    ['b']
    """

    index: CodeIndex
    items: NDArray[np.int64]
    serials: NDArray[np.int64]
    names: NDArray[np.uint8]
    ends: NDArray[np.int64]

    @classmethod
    def build(cls, rows: Iterable[CodeRow], n_bits: int) -> "SortedCodes":
        """Build from rows in the order of their ids."""
        numbers: list[NDArray[np.int64]] = []
        codes, names = bytearray(), bytearray()
        iterator = iter(rows)
        while chunk := list(islice(iterator, _CHUNK)):
            ids, items, serials, packed = zip(*chunk, strict=True)
            encoded = [name.encode() for name in ids]
            numbers.append(np.array((items, serials, list(map(len, encoded))), dtype=np.int64))
            codes += b"".join(packed)
            names += b"".join(encoded)
        items, serials, lengths = np.concatenate([np.zeros((3, 0), np.int64), *numbers], axis=1)
        shape = (len(items), -(-n_bits // 8))
        return cls(
            CodeIndex.build(np.frombuffer(bytes(codes), np.uint8).reshape(shape), n_bits),
            items,
            serials,
            np.frombuffer(bytes(names), np.uint8),
            np.cumsum(lengths),
        )

    def save(self, folder: Path) -> None:
        """Write a new folder that `load` reads; it is on the disk when this returns."""
        (folder / "index").mkdir(parents=True)
        self.index.save(folder / "index")
        for name in ("items", "serials", "names", "ends"):
            np.save(folder / f"{name}.npy", getattr(self, name))
        for file in folder.rglob("*.npy"):
            with open(file, "rb") as written:
                os.fsync(written.fileno())

    @classmethod
    def load(cls, folder: Path) -> "SortedCodes":
        """Open a saved folder; nothing is read before it is needed."""
        arrays = [np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("items", "serials", "names", "ends")]
        return cls(CodeIndex.load(folder / "index"), *arrays)

    def __len__(self) -> int:
        return len(self.items)

    def ids(self, rows: NDArray[np.int64]) -> list[str]:
        """Return the ids of some rows."""
        starts = np.where(rows > 0, self.ends[rows - 1], 0)
        return [
            self.names[start:end].tobytes().decode()
            for start, end in zip(starts.tolist(), self.ends[rows].tolist(), strict=True)
        ]
