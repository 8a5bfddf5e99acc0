"""Codes as they are searched, and the answers of the parts in which a store's codes lie, as one."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, binarize, pack
from channelhash.search.index import CodeIndex, Matches
from channelhash.search.rank import ALL, FIRST, Scored, Surest, cosines, sure_distances
from channelhash.search.sqlite.database import CodeRow
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
        projections, n = arrays.get(_PROJECTIONS), len(index)
        for name, kind, shape in (
            *((name, np.int64, (n,)) for name in ("items", "serials", "ends")),
            ("names", np.uint8, (names.size,)),
            *([] if projections is None else [(_PROJECTIONS, np.int8, (n, index.n_bits))]),
        ):
            if arrays[name].dtype != kind or arrays[name].shape != shape:
                raise ValueError(f"{name} of {n} codes are {arrays[name].shape} {arrays[name].dtype}")
        _check_names(names, ends)
        return cls(index, items, serials, names, ends, projections)

    def __len__(self) -> int:
        return len(self.items)

    def cosines(self, rows: NDArray[np.int64], outputs: NDArray[Any]) -> NDArray[np.float32]:
        """Return the score of some rows."""
        assert self.projections is not None
        return cosines(outputs, self.projections[rows])

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


def nearest(parts: list[Part], queries: PackedCodes, count: int | None, radius: int | None = None) -> Answers:
    """Find the ``count`` items nearest to every query, or of those within a radius, by distance, then by id."""
    matches = _matches(parts, queries, count, radius)
    if len(parts) == 1:
        return Answers([parts[0].codes.ids(match.rows) for match in matches[0]], [m.distances for m in matches[0]])
    answers = Answers([], [])
    for query in range(len(queries)):
        found = _Found.of(parts, matches, query)
        order = found.best(count, found.distances)
        answers.ids.append(found.names(order))
        answers.distances.append(found.distances[order])
    return answers


def scored(parts: list[Part], outputs: NDArray[Any], k: int, first: int | None) -> Scored:
    """Find items in two stages, see `Store.search_projections`."""
    if first is None:
        first = ALL if count_codes(parts) <= ALL else max(k, FIRST)
    answers = Scored([], [], [])
    for found, row in _found(parts, outputs, first, None):
        scores = found.read(np.zeros(len(found.rows), np.float32), partial(SortedCodes.cosines, outputs=row))
        found.answer(answers, scores, found.best(k, -scores, found.distances))
    return answers


def surest(parts: list[Part], outputs: NDArray[Any], k: int | None, radius: int | None) -> Surest:
    """Find items by distance and by how sure the model was, see `Store.search_surest`.

    Only the codes of items at the distance of the last answer, or at a smaller one, are read.
    """
    answers = Surest([], [], [])
    for found, row in _found(parts, outputs, k and max(k, FIRST), radius):
        if k is not None and k < len(found.rows):
            found = found.take(np.flatnonzero(found.distances <= np.partition(found.distances, k - 1)[k - 1]))
        packed = np.empty((len(found.rows), -(-len(row) // 8)), np.uint8)
        found.read(packed, lambda codes, rows: codes.index.packed(rows))
        keys = sure_distances(row, packed, found.distances)
        found.answer(answers, keys, found.best(k, keys))
    return answers


def _found(
    parts: list[Part], outputs: NDArray[Any], first: int | None, radius: int | None
) -> Iterator[tuple["_Found", NDArray[Any]]]:
    """Yield the ``first`` rows that each question finds by distance, and its outputs."""
    matches = _matches(parts, pack(binarize(outputs)), first, radius)
    for query, row in enumerate(outputs):
        found = _Found.of(parts, matches, query)
        if first is not None and first < len(found.rows):
            found = found.take(found.best(first, found.distances))
        yield found, row


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

    def read(self, values: NDArray[Any], read: Callable[[SortedCodes, NDArray[np.int64]], Any]) -> NDArray[Any]:
        """Write what is read of each row of a part to ``values``, and return these."""
        for number, part in enumerate(self.parts):
            inside = self.part == number
            values[inside] = read(part.codes, self.rows[inside])
        return values

    def names(self, places: NDArray[np.int64]) -> list[str]:
        """Return the ids of some of the rows."""
        return list(self.take(places).read(np.empty(len(places), object), SortedCodes.ids))

    def answer(self, answers: tuple[list[Any], ...], keys: NDArray[Any], places: NDArray[np.int64]) -> None:
        """Add some of the rows, and their keys, to the answers."""
        for values, more in zip(answers, (self.names(places), self.distances[places], keys[places]), strict=True):
            values.append(more)

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


def _matches(
    parts: list[Part], queries: PackedCodes, count: int | None, radius: int | None = None
) -> list[list[Matches]]:
    """Return of each part, of each query, the nearest rows; of those within a radius, the first ``count`` or all."""
    matches = []
    for part in parts:
        index = part.codes.index
        limit = None if count is None else min(count, len(index))
        matches.append(index.within(queries, index.n_bits if radius is None else radius, part.allowed, limit))
    return matches


def _check_names(names: NDArray[Any], ends: NDArray[np.int64]) -> None:
    """Raise ``ValueError`` unless the ids, one behind the other, can be taken apart."""
    starts = np.concatenate([np.zeros(1, np.int64), ends])
    if starts[-1] != len(names) or (starts[1:] < starts[:-1]).any():
        raise ValueError(f"ends do not ascend to the {len(names)} bytes of the names")
    if (names & 0x80).any():
        names.tobytes().decode()
        inside = starts[starts < len(names)]
        if ((names[inside] & 0xC0) == 0x80).any():
            raise ValueError("a name ends within a character")
