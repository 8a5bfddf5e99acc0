"""The codes of an items database in the form that is searched, kept up to date with what is written.

They lie in layers: a snapshot in mapped files, which holds nearly all of them; what was written since, in memory; and
what was written since *that*. Each layer is searched, and the answers are merged.
"""

import os
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from channelhash.search.filters import Filter
from channelhash.search.index import CodeIndex
from channelhash.search.local.database import CodeRow, ItemsDatabase, State
from channelhash.search.local.folder import StoreFolder
from channelhash.utils.files import locked

# A layer is made again when the changes since are more than this, and more than this fraction of it.
_LEAST_IN_SNAPSHOT, _LEAST_IN_MEMORY, _FRACTION = 10_000, 1_000, 0.1
# Filters whose result is kept; each takes one byte a code.
_FILTERS = 16

_PREFIX = "snapshot-"
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


@dataclass(frozen=True)
class Layer:
    """The codes with serials up to ``last`` that are in no lower layer: modality -> codes.

    >>> rows = [("a", 1, 1, bytes([7])), ("b", 2, 2, bytes([0]))]
    >>> len(Layer({"image": SortedCodes.build(rows, n_bits=8)}, last=2))
    2
    """

    codes: dict[str, SortedCodes]
    last: int

    def __len__(self) -> int:
        return sum(map(len, self.codes.values()))


@dataclass(frozen=True)
class Part:
    """A layer's codes of one modality, and which of them count: all, or those that are ``True``.

    >>> codes = SortedCodes.build([("a", 1, 1, bytes([7])), ("b", 2, 2, bytes([0]))], n_bits=8)
    >>> len(Part(codes, allowed=np.array([True, False])).codes)
    2
    """

    codes: SortedCodes
    allowed: NDArray[np.bool_] | None


@dataclass(frozen=True)
class View:
    """All codes as they were at one version of the database: by modality, and by filter and modality.

    >>> View(version=3, parts={}).filtered
    {}
    """

    version: int
    parts: dict[str, list[Part]]
    filtered: dict[str, dict[str, list[Part]]] = field(default_factory=dict)


class CodeLayers:
    """Views of one database. It is not for several threads at once: the caller holds a lock.

    Args:
        database: read, and told of new snapshots.
        n_bits: code length.
        folder: where snapshots lie; None if everything stays in memory.
    """

    def __init__(self, database: ItemsDatabase, n_bits: int, folder: StoreFolder | None) -> None:
        self._database = database
        self._n_bits = n_bits
        self._folder = folder
        self._snapshot_name = ""
        self._snapshot = Layer({}, 0)
        self._middle = Layer({}, 0)
        self._view = View(-1, {})

    def parts(self, where: Filter | None) -> dict[str, list[Part]]:
        """Return modality -> the codes to search of the items that pass a filter, as of now."""
        while True:
            with self._database.reading() as state:
                if state.version == self._view.version or self._renew(state):
                    return self._view.parts if where is None else self._filtered(where)
            self._make_snapshot(state)

    def settle(self) -> None:
        """Make the snapshot that the next search would make."""
        with self._database.reading() as state:
            due = self._snapshot_due(state)
        if due:
            self._make_snapshot(state)

    def _renew(self, state: State) -> bool:
        """Bring the view to ``state``. Returns False if that takes a new snapshot."""
        if self._snapshot_due(state):
            return False
        if state.snapshot != self._snapshot_name:
            try:
                self._snapshot = self._load(state)
            except (OSError, ValueError):  # thrown away: by another process that has made a new one, or by hand
                return False
            self._snapshot_name = state.snapshot
            self._middle = Layer({}, self._snapshot.last)
        if self._database.count_after(self._middle.last) > max(_LEAST_IN_MEMORY, _FRACTION * len(self._middle)):
            self._middle = self._read_layer(self._snapshot.last, state)
        layers = (self._snapshot, self._middle, self._read_layer(self._middle.last, state))
        removed = self._database.removed()
        parts = {
            modality: [_part(layer.codes[modality], removed) for layer in layers if modality in layer.codes]
            for modality in self._database.modalities()
        }
        self._view = View(state.version, parts)
        return True

    def _filtered(self, where: Filter) -> dict[str, list[Part]]:
        """Return the parts of the view, where the items that do not pass the filter do not count."""
        filtered, key = self._view.filtered, repr(where)  # equal filters are not the same: to Python, 1 == True
        if key not in filtered:
            numbers = self._database.numbers(where)
            filtered[key] = {
                modality: [_passing(part, numbers) for part in parts] for modality, parts in self._view.parts.items()
            }
            if len(filtered) > _FILTERS:
                del filtered[next(iter(filtered))]
        return filtered[key]

    def _snapshot_due(self, state: State) -> bool:
        if self._folder is None:
            return False
        changes = self._database.count_after(state.snapshot_serial) + self._database.count_removed()
        return changes > max(_LEAST_IN_SNAPSHOT, _FRACTION * state.snapshot_size)

    def _read_layer(self, after: int, state: State) -> Layer:
        """Return the codes written after a serial, until now."""
        database = self._database
        codes = {
            modality: SortedCodes.build(database.codes(modality, after), self._n_bits)
            for modality in database.modalities()
        }
        return Layer({modality: codes[modality] for modality in codes if len(codes[modality])}, state.last_serial)

    def _load(self, state: State) -> Layer:
        """Return the snapshot that ``state`` names."""
        if not state.snapshot:
            return Layer({}, 0)
        assert self._folder is not None
        folders = (self._folder.path / state.snapshot).iterdir()
        return Layer({folder.name: SortedCodes.load(folder) for folder in folders}, state.snapshot_serial)

    def _make_snapshot(self, old: State) -> None:
        """Write a snapshot of all codes in the place of that which ``old`` names, unless another process has done so.

        A snapshot counts from the moment the database names it, so one that is killed before leaves but a folder, which
        the next one removes. Who still searches in the former one goes on: a removed file lasts while it is mapped.
        """
        assert self._folder is not None
        with locked(self._folder.lock):
            name = f"{_PREFIX}{uuid.uuid4().hex}"
            with self._database.reading() as state:
                if state.snapshot != old.snapshot:
                    return
                removed, layer = self._database.removed(), self._read_layer(0, state)
            for modality, codes in layer.codes.items():
                codes.save(self._folder.path / name / modality)
            with self._database.writing():
                self._database.set_snapshot(name, layer.last, len(layer))
                self._database.forget_removed(removed)
            for folder in self._folder.path.glob(f"{_PREFIX}*"):
                if folder.name != name:
                    shutil.rmtree(folder)


def _part(codes: SortedCodes, removed: NDArray[np.int64]) -> Part:
    gone = np.isin(codes.serials, removed)
    return Part(codes, ~gone if gone.any() else None)


def _passing(part: Part, numbers: NDArray[np.int64]) -> Part:
    passing = np.isin(part.codes.items, numbers)
    return Part(part.codes, passing if part.allowed is None else passing & part.allowed)
