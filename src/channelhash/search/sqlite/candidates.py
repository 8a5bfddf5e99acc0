"""Candidates for answers: the rows that a query found in several parts of a store's codes, and
their one order.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.search.index.layout import Matches
from channelhash.search.sqlite.snapshots import LayerPart, SortedCodes


class Candidates(NamedTuple):
    """The ``m`` rows of several parts that one query found.

    Attributes:
        parts: of the store's codes.
        part: ``(m,)``, number of each row's part.
        rows: ``(m,)``, within the part.
        distances: ``(m,)``, to the query.
    """

    parts: list[LayerPart]
    part: NDArray[np.int64]
    rows: NDArray[np.int64]
    distances: NDArray[np.int64]

    @classmethod
    def of(cls, parts: list[LayerPart], matches: list[Matches]) -> "Candidates":
        """Return what all parts found for one query."""
        part = np.repeat(np.arange(len(parts)), [len(match.rows) for match in matches])
        rows, distances = np.concatenate([np.zeros((2, 0), np.int64), *matches], axis=1)
        return cls(parts, part, rows, distances)

    @classmethod
    def all(cls, parts: list[LayerPart]) -> "Candidates":
        """Return all rows that count, at a distance of 0."""
        return cls.of(
            parts, [Matches(rows, np.zeros_like(rows)) for rows in map(LayerPart.rows, parts)]
        )

    def take(self, places: NDArray[np.int64]) -> "Candidates":
        """Return some of the rows."""
        return self._replace(
            part=self.part[places], rows=self.rows[places], distances=self.distances[places]
        )

    def read(self, values: NDArray[Any], read: Callable[..., Any]) -> NDArray[Any]:
        """Fill ``values`` with ``read(codes, rows)`` of each part, and return them."""
        if len(self.parts) == 1:
            values[:] = read(self.parts[0].codes, self.rows)
            return values
        for number, part in enumerate(self.parts):
            inside = self.part == number
            values[inside] = read(part.codes, self.rows[inside])
        return values

    def names(self) -> list[str]:
        """Return the ids of the rows."""
        return list(self.read(np.empty(len(self.rows), object), SortedCodes.ids))

    def packed(self, n_bits: int) -> PackedCodes:
        """Return the codes of the rows."""
        codes = np.empty((len(self.rows), -(-n_bits // 8)), np.uint8)
        return self.read(codes, lambda part, rows: part.index.packed(rows))

    def answer(
        self, answers: tuple[list[Any], ...], places: NDArray[np.int64], *keys: NDArray[Any]
    ) -> None:
        """Append the ids, distances and keys of some of the rows to the columns of ``answers``."""
        columns = (self.distances, *keys)
        answers[0].append(self.take(places).names())
        for values, column in zip(answers[1:], columns, strict=True):
            values.append(column[places])

    def best(self, k: int | None, *keys: NDArray[Any]) -> NDArray[np.int64]:
        """Return the places of the ``k`` lowest keys, or of all. Ties are broken by further keys,
        then by id.
        """
        places = lowest(keys[0], k)
        columns = [key[places] for key in keys]
        if len(self.parts) == 1:  # rows are in the order of ids
            return places[np.lexsort((self.rows[places], *reversed(columns)))][:k]
        values = [column.tolist() for column in columns]
        order = sorted(zip(*values, self.take(places).names(), places.tolist(), strict=True))
        return np.array([place for *_, place in order[:k]], dtype=np.int64)


def lowest(keys: NDArray[Any], k: int | None) -> NDArray[np.int64]:
    """Return the places of the ``k`` lowest keys and of those equal to the last one; or of all.

    >>> lowest(np.array([3, 1, 2, 2]), 2).tolist()
    [1, 2, 3]
    """
    if k is None or k >= len(keys):
        return np.arange(len(keys))
    return np.flatnonzero(keys <= np.partition(keys, k - 1)[k - 1])
