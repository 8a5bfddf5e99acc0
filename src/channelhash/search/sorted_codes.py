"""Codes of one modality in the order of their items' ids, in memory or memory-mapped from a folder."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from channelhash.search.code_index import CodeIndex
from channelhash.search.items_database import CodeRow

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
    """

    index: CodeIndex
    items: NDArray[np.int64]
    serials: NDArray[np.int64]
    names: NDArray[np.uint8]
    ends: NDArray[np.int64]

    @classmethod
    def build(cls, rows: Iterable[CodeRow], n_bits: int) -> "SortedCodes":
        """From rows in the order of their ids."""
        numbers: list[NDArray[np.int64]] = []
        codes, names = bytearray(), bytearray()
        for chunk in _chunks(rows):
            encoded = [row.id.encode() for row in chunk]
            numbers.append(
                np.array([(row.item, row.serial, len(name)) for row, name in zip(chunk, encoded, strict=True)])
            )
            codes += b"".join(row.code for row in chunk)
            names += b"".join(encoded)
        columns = np.concatenate(numbers) if numbers else np.zeros((0, 3), np.int64)
        packed = np.frombuffer(bytes(codes), np.uint8).reshape(len(columns), -(-n_bits // 8))
        return cls(
            CodeIndex.build(packed, n_bits),
            columns[:, 0].copy(),
            columns[:, 1].copy(),
            np.frombuffer(bytes(names), np.uint8),
            np.cumsum(columns[:, 2]),
        )

    def save(self, folder: Path) -> None:
        """Write a new folder that `load` reads."""
        self.index.save(folder / "index")
        for name in ("items", "serials", "names", "ends"):
            np.save(folder / f"{name}.npy", getattr(self, name))

    @classmethod
    def load(cls, folder: Path) -> "SortedCodes":
        """A saved folder; nothing is read before it is needed."""
        arrays = [np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("items", "serials", "names", "ends")]
        return cls(CodeIndex.load(folder / "index"), *arrays)

    def __len__(self) -> int:
        return len(self.items)

    def ids(self, rows: NDArray[np.int64]) -> list[str]:
        """The ids of some rows."""
        starts = np.where(rows > 0, self.ends[rows - 1], 0)
        return [
            self.names[start:end].tobytes().decode()
            for start, end in zip(starts.tolist(), self.ends[rows].tolist(), strict=True)
        ]


def _chunks(rows: Iterable[CodeRow]) -> Iterable[list[CodeRow]]:
    iterator = iter(rows)
    while chunk := list(islice(iterator, _CHUNK)):
        yield chunk
