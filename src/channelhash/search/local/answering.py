"""Codes as they are searched, and the answers of the parts in which a store's codes lie, as one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, binarize, pack
from channelhash.search.index import CodeIndex
from channelhash.search.index.brute_force import Matches
from channelhash.search.local.database import CodeRow
from channelhash.search.rank import ALL, FIRST, Scored, Surest, cosines, sure_distances
from channelhash.search.store import Answers
from channelhash.utils.seeds import generator

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
        packed_codes = np.frombuffer(bytes(codes), np.uint8).reshape(len(items), -(-n_bits // 8))
        index = CodeIndex.build(packed_codes, n_bits)
        beside = np.frombuffer(projections, np.int8).reshape(len(items), n_bits) if projections else None
        return cls(index, items, serials, np.frombuffer(bytes(names), np.uint8), np.cumsum(lengths), beside)

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


@dataclass(frozen=True)
class Part:
    """A layer's codes of one modality, and which of them count: all, or those that are ``True``.

    >>> codes = SortedCodes.build([("a", 1, 1, bytes([7]), None), ("b", 2, 2, bytes([0]), None)], n_bits=8)
    >>> len(Part(codes, allowed=np.array([True, False])).codes)
    2
    """

    codes: SortedCodes
    allowed: NDArray[np.bool_] | None


def count_codes(parts: Sequence[Part]) -> int:
    """Count the rows that count."""
    return sum(len(part.codes) if part.allowed is None else int(np.count_nonzero(part.allowed)) for part in parts)


def read_codes(
    parts: Sequence[Part], n_bits: int, chosen: Sequence[NDArray[np.int64]] | None = None
) -> tuple[list[str], PackedCodes]:
    """Return ids, sorted, and codes of the rows that count, or of those of them at the ``chosen`` places."""
    ids: list[str] = []
    codes = [np.zeros((0, -(-n_bits // 8)), np.uint8)]
    for number, part in enumerate(parts):
        rows = np.arange(len(part.codes)) if part.allowed is None else np.flatnonzero(part.allowed)
        if chosen is not None:
            rows = rows[chosen[number]]
        ids += part.codes.ids(rows)
        codes.append(part.codes.index.packed()[rows])
    order = sorted(range(len(ids)), key=ids.__getitem__)
    return [ids[place] for place in order], np.concatenate(codes)[order]


def sample_codes(parts: Sequence[Part], n_bits: int, n: int) -> tuple[list[str], PackedCodes]:
    """Return ids and codes of ``n`` random rows that count, or of all."""
    sizes = [count_codes([part]) for part in parts]
    total = sum(sizes)
    rows = np.sort(generator(0, "sample", total).choice(total, min(n, total), replace=False))
    ends = np.cumsum([0, *sizes])
    return read_codes(parts, n_bits, [rows[(rows >= a) & (rows < b)] - a for a, b in pairwise(ends.tolist())])


def nearest(parts: list[Part], queries: PackedCodes, k: int) -> Answers:
    """Find the ``k`` items nearest to every query, by distance, then by id."""
    return _answers(parts, _nearest_rows(parts, queries, k), len(queries), k)


def within(parts: list[Part], queries: PackedCodes, radius: int, limit: int | None) -> Answers:
    """Find the items within ``radius`` bits of every query, at most the first ``limit``, by distance, then by id."""
    return _answers(parts, _rows_within(parts, queries, radius, limit), len(queries), limit)


def _answers(parts: list[Part], matches: list[list[Matches]], n_queries: int, limit: int | None) -> Answers:
    if len(parts) == 1:
        return Answers([parts[0].codes.ids(match.rows) for match in matches[0]], [m.distances for m in matches[0]])
    answers = Answers([], [])
    for query in range(n_queries):
        found = _Found.of(parts, matches, query)
        order = found.best(limit, found.distances)
        answers.ids.append(found.names(order))
        answers.distances.append(found.distances[order])
    return answers


def scored(parts: list[Part], outputs: NDArray[Any], k: int, first: int | None) -> Scored:
    """Find items in two stages, see `Store.search_projections`."""
    if first is None:
        first = ALL if count_codes(parts) <= ALL else max(k, FIRST)
    matches = _nearest_rows(parts, pack(binarize(outputs)), first)
    answers = Scored([], [], [])
    for query, row in enumerate(outputs):
        found = _Found.of(parts, matches, query)
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
        found = _Found.of(parts, matches, query)
        found = found.take(found.best(first, found.distances))
        if k is not None and k < len(found.rows):
            found = found.take(np.flatnonzero(found.distances <= np.partition(found.distances, k - 1)[k - 1]))
        keys = sure_distances(row, found.codes(queries.shape[1]), found.distances)
        order = found.best(k, keys)
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
    def of(cls, parts: list[Part], matches: list[list[Matches]], query: int) -> "_Found":
        """Put what the parts have for one query one behind the other."""
        found = [of_part[query] for of_part in matches]
        part = np.repeat(np.arange(len(parts)), [len(match.rows) for match in found])
        rows, distances = (
            np.concatenate([np.zeros(0, np.int64), *(getattr(match, name) for match in found)])
            for name in ("rows", "distances")
        )
        return cls(parts, part, rows, distances)

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

    def best(self, count: int | None, *keys: NDArray[Any]) -> NDArray[np.int64]:
        """Return the places of the ``count`` lowest by these keys, then by id, or of all."""
        places = np.arange(len(self.rows))
        if count is not None and count < len(places):
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
