"""Answers of the parts in which a store's codes lie, as one: by distance, or in two stages."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, binarize, pack
from channelhash.search.index.brute_force import Matches
from channelhash.search.local.parts import count_codes, merged
from channelhash.search.local.snapshots import Part
from channelhash.search.projections import ALL, FIRST, Scored, cosines
from channelhash.search.rerank import Surest, sure_distances
from channelhash.search.store import Answers


def nearest(parts: list[Part], queries: PackedCodes, k: int) -> Answers:
    """Find the ``k`` items nearest to every query, by distance, then by id."""
    return merged(parts, _nearest_rows(parts, queries, k), len(queries), k)


def within(parts: list[Part], queries: PackedCodes, radius: int, limit: int | None) -> Answers:
    """Find the items within ``radius`` bits of every query, at most the first ``limit``, by distance, then by id."""
    return merged(parts, _rows_within(parts, queries, radius, limit), len(queries), limit)


def scored(parts: list[Part], outputs: NDArray[Any], k: int, first: int | None) -> Scored:
    """Find items in two stages, see `Store.search_projections`."""
    if first is None:
        first = ALL if count_codes(parts) <= ALL else max(k, FIRST)
    matches = _nearest_rows(parts, pack(binarize(outputs)), first)
    answers = Scored([], [], [])
    for query, row in enumerate(outputs):
        found = _Found.of(parts, [of_part[query] for of_part in matches])
        found = found.take(found.best(first, found.distances))
        scores = found.cosines(row)
        order = found.best(k, -scores, found.distances)
        answers.ids.append(found.names(order))
        answers.distances.append(found.distances[order])
        answers.scores.append(scores[order])
    return answers


def surest(parts: list[Part], outputs: NDArray[Any], k: int | None, first: int | None, radius: int | None) -> Surest:
    """Find items by distance and by how sure the model was, see `Store.search_surest`; ``first`` of them are looked at.

    Only the codes of items at the distance of the last answer, or at a smaller one, are read.
    """
    queries = pack(binarize(outputs))
    if radius is None:
        matches = _nearest_rows(parts, queries, first or FIRST)
    else:
        matches = _rows_within(parts, queries, radius, first)
    answers = Surest([], [], [])
    for query, row in enumerate(outputs):
        found = _Found.of(parts, [of_part[query] for of_part in matches])
        if first is not None and first < len(found.rows):
            found = found.take(found.best(first, found.distances))
        if k is not None and k < len(found.rows):
            found = found.take(np.flatnonzero(found.distances <= np.partition(found.distances, k - 1)[k - 1]))
        keys = sure_distances(row, found.codes(queries.shape[1]), found.distances)
        order = found.best(len(keys) if k is None else k, keys)
        answers.ids.append(found.names(order))
        answers.distances.append(found.distances[order])
        answers.keys.append(keys[order])
    return answers


class _Found(NamedTuple):
    """Rows of several parts that one query found.

    Attributes:
        parts: ``p`` of them.
        part: ``(m,)``, the number of a row's part.
        rows, distances: ``(m,)``.
    """

    parts: list[Part]
    part: NDArray[np.int64]
    rows: NDArray[np.int64]
    distances: NDArray[np.int64]

    @classmethod
    def of(cls, parts: list[Part], matches: list[Matches]) -> "_Found":
        """Put matches of the parts one behind the other."""
        empty = [np.zeros(0, np.int64)]
        part = np.repeat(np.arange(len(parts)), [len(match.rows) for match in matches])
        rows, distances = [match.rows for match in matches], [match.distances for match in matches]
        return cls(parts, part, np.concatenate(empty + rows), np.concatenate(empty + distances))

    def take(self, places: NDArray[np.int64]) -> "_Found":
        """Return some of the rows."""
        return self._replace(part=self.part[places], rows=self.rows[places], distances=self.distances[places])

    def names(self, places: NDArray[np.int64]) -> list[str]:
        """Return the ids of some of the rows."""
        names = np.empty(len(places), object)
        for number, part in enumerate(self.parts):
            inside = self.part[places] == number
            names[inside] = part.codes.ids(self.rows[places[inside]])
        return list(names)

    def best(self, count: int, *keys: NDArray[Any]) -> NDArray[np.int64]:
        """Return the places of the ``count`` lowest by these keys, then by id; ids are read where they may decide."""
        places = np.arange(len(self.rows))
        if count < len(places):
            places = np.flatnonzero(keys[0] <= np.partition(keys[0], count - 1)[count - 1])
        if len(self.parts) == 1:  # rows are in the order of ids
            return places[np.lexsort((self.rows[places], *(key[places] for key in reversed(keys))))][:count]
        columns = [key[places].tolist() for key in keys]
        pairs = sorted(zip(*columns, self.names(places), places.tolist(), strict=True))
        return np.array([place for *_, place in pairs[:count]], dtype=np.int64)

    def codes(self, n_bytes: int) -> PackedCodes:
        """Return the packed code of each row."""
        codes = np.empty((len(self.rows), n_bytes), np.uint8)
        for number, part in enumerate(self.parts):
            inside = self.part == number
            codes[inside] = part.codes.index.packed(self.rows[inside])
        return codes

    def cosines(self, outputs: NDArray[Any]) -> NDArray[np.float32]:
        """Return the score of each row."""
        scores = np.zeros(len(self.rows), np.float32)
        for number, part in enumerate(self.parts):
            inside, projections = self.part == number, part.codes.projections
            assert projections is not None
            scores[inside] = cosines(outputs, projections[self.rows[inside]])
        return scores


def _nearest_rows(parts: list[Part], queries: PackedCodes, k: int) -> list[list[Matches]]:
    """Return of each part, of each query, the nearest rows."""
    return [part.codes.index.nearest(queries, min(k, len(part.codes)), part.allowed) for part in parts]


def _rows_within(parts: list[Part], queries: PackedCodes, radius: int, limit: int | None) -> list[list[Matches]]:
    """Return of each part, of each query, the rows within a radius, at most the first ``limit``."""
    return [
        part.codes.index.within(queries, radius, part.allowed, limit and min(limit, len(part.codes))) for part in parts
    ]
