"""Codes of one modality as they are searched: with their items, in the order of ids."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.search.index import CodeIndex
from channelhash.search.local.database import CodeRow
from channelhash.utils.reading import reading

# Rows held as Python objects at a time while codes are read.
_CHUNK = 1 << 16
_ARRAYS = ("items", "serials", "names", "ends")
_INDEX = "index/"
_PROJECTIONS = "projections"


@dataclass(frozen=True)
class SortedCodes:
    """What a search needs of ``n`` codes. Row order is id order, so equal distances by row are equal distances by id.

    Attributes:
        index: the codes.
        items: ``(n,)`` int64 item numbers.
        serials: ``(n,)`` int64 serials of the codes.
        names: the ids as UTF-8, one behind the other, uint8.
        ends: ``(n,)`` int64, where each id ends in ``names``.
        projections: ``(n, n_bits)`` int8, if the store keeps them.

    >>> codes = SortedCodes.build([("a", 1, 1, bytes([7]), None), ("b", 2, 2, bytes([0]), None)], n_bits=8)
    >>> codes.ids(np.array([1]))
    ['b']
    """

    index: CodeIndex
    items: NDArray[np.int64]
    serials: NDArray[np.int64]
    names: NDArray[np.uint8]
    ends: NDArray[np.int64]
    projections: NDArray[np.int8] | None = None

    @classmethod
    def build(cls, rows: Iterable[CodeRow], n_bits: int) -> "SortedCodes":
        """Build from rows in the order of their ids."""
        numbers: list[NDArray[np.int64]] = []
        codes, names, projections = bytearray(), bytearray(), bytearray()
        iterator = iter(rows)
        while chunk := list(islice(iterator, _CHUNK)):
            ids, items, serials, packed, projected = zip(*chunk, strict=True)
            encoded = [name.encode() for name in ids]
            numbers.append(np.array((items, serials, list(map(len, encoded))), dtype=np.int64))
            codes += b"".join(packed)
            names += b"".join(encoded)
            projections += b"".join(row for row in projected if row is not None)
        items, serials, lengths = np.concatenate([np.zeros((3, 0), np.int64), *numbers], axis=1)
        shape = (len(items), -(-n_bits // 8))
        with reading(
            "the store's codes", f"not {len(items)} codes of {n_bits} bits", "its files are damaged, restore them"
        ):
            index = CodeIndex.build(np.frombuffer(bytes(codes), np.uint8).reshape(shape), n_bits)
            rows_of_projections = (
                np.frombuffer(projections, np.int8).reshape(len(items), n_bits) if projections else None
            )
        return cls(
            index,
            items,
            serials,
            np.frombuffer(bytes(names), np.uint8),
            np.cumsum(lengths),
            rows_of_projections,
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by name, for `from_arrays`; those of the index as ``index/…``."""
        own = {name: getattr(self, name) for name in _ARRAYS}
        if self.projections is not None:
            own[_PROJECTIONS] = self.projections
        return own | {f"{_INDEX}{name}": values for name, values in self.index.arrays().items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "SortedCodes":
        """Return the codes of `arrays`, whoever has written those: they are checked as in `CodeIndex.from_arrays`.

        Raises:
            ValueError: an array is missing, of another type, or does not fit the others.

        >>> codes = SortedCodes.build([("a", 1, 1, bytes([7]), None), ("b", 2, 2, bytes([0]), None)], n_bits=8)
        >>> len(SortedCodes.from_arrays(codes.arrays()))
        2
        """
        index = CodeIndex.from_arrays(
            {name.removeprefix(_INDEX): values for name, values in arrays.items() if name.startswith(_INDEX)}
        )
        try:
            items, serials, names, ends = (arrays[name] for name in _ARRAYS)
        except KeyError as error:
            raise ValueError(f"sorted codes without {error.args[0]}") from None
        for numbers in (items, serials, ends):
            if numbers.dtype != np.int64 or numbers.shape != (len(index),):
                raise ValueError(f"{len(index)} codes with numbers {numbers.shape} {numbers.dtype}")
        _check_names(names, ends)
        projections = arrays.get(_PROJECTIONS)
        expected = (len(index), index.n_bits)
        if projections is not None and (projections.dtype != np.int8 or projections.shape != expected):
            raise ValueError(f"{expected} codes with projections {projections.shape} {projections.dtype}")
        return cls(index, items, serials, names, ends, projections)

    def __len__(self) -> int:
        return len(self.items)

    def ids(self, rows: NDArray[np.int64]) -> list[str]:
        """Return the ids of some rows."""
        starts = np.where(rows > 0, self.ends[rows - 1], 0)
        return [
            self.names[start:end].tobytes().decode()
            for start, end in zip(starts.tolist(), self.ends[rows].tolist(), strict=True)
        ]


def _check_names(names: NDArray[Any], ends: NDArray[np.int64]) -> None:
    """Raise ``ValueError`` unless the ids, one behind the other, can be taken apart."""
    if names.dtype != np.uint8 or names.ndim != 1:
        raise ValueError(f"names are {names.shape} {names.dtype}")
    starts = np.concatenate([np.zeros(1, np.int64), ends])
    if starts[-1] != len(names) or (starts[1:] < starts[:-1]).any():
        raise ValueError(f"ends do not ascend to the {len(names)} bytes of the names")
    if (names & 0x80).any():
        names.tobytes().decode()
        inside = starts[starts < len(names)]
        if ((names[inside] & 0xC0) == 0x80).any():
            raise ValueError("a name ends within a character")
