"""The codes of a database in the form in which they are searched, kept up to date with its writes.

Codes lie in three layers: a snapshot in files, with nearly all of them; a layer in memory with what
was written since; and a small one, also in memory, with what was written since *that*. Each layer
is searched, and the answers are merged.

The database holds the truth. A missing or damaged snapshot is made again from it before any answer.
If it cannot be written, all codes are held in memory instead.

A snapshot's folder is named after the SHA-256 of its ``manifest.json``, which holds the SHA-256 of
every other file. The name thus vouches for each byte in the folder. Nothing of a snapshot is used
before it is checked.
"""

import hashlib
import io
import json
import mmap
import shutil
import uuid
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.codes.quantizer import QuantizedRows
from channelhash.errors import InputError, JobError
from channelhash.search.filters import Filter
from channelhash.search.index import CodeIndex
from channelhash.search.index.layout import Matches, check_array
from channelhash.search.sqlite.database import ItemsDatabase
from channelhash.search.sqlite.folder import State, StoreFolder, connect
from channelhash.search.sqlite.guard import Finding
from channelhash.utils.files import sync
from channelhash.utils.hashes import file_hash
from channelhash.utils.locks import locked

#: Arrays of `SortedCodes` besides those of its index.
_ARRAYS = ("items", "serials", "names", "ends", "projections")
#: Prefix of the names of the index's arrays.
_INDEX = "index/"

#: Changes beyond which a snapshot is made again, if they are also more than `_FRACTION` of it.
_LEAST_IN_SNAPSHOT = 10_000
#: Changes beyond which a layer in memory is made again, if they are also more than `_FRACTION` of
#: it.
_LEAST_IN_MEMORY = 1_000
#: Fraction of a layer that changes must exceed: layers grow geometrically, so each code is copied a
#: few times only.
_FRACTION = 0.1
#: Filters whose result is kept, each for one modality; each takes one byte a code.
_FILTERS = 32
#: The version of layers that were not read yet.
_NONE = -1


@dataclass(frozen=True)
class SortedCodes:
    """What a search needs of ``n`` codes. Rows are in the order of ids, so that ties broken by row
    are broken by id.

    Attributes:
        index: the codes.
        items: ``(n,)`` int64 item numbers.
        serials: ``(n,)`` int64 serials of the codes.
        names: the ids in UTF-8, one after the other, uint8.
        ends: ``(n,)`` int64, where each id ends in ``names``.
        projections: ``(n, projection_bytes)`` uint8, if the store keeps them.

    >>> rows = [("a", 1, 1, bytes([7]), None), ("b", 2, 2, bytes([0]), None)]
    >>> codes = SortedCodes.build(rows, n_bits=8)
    >>> codes.ids(np.array([1]))
    ['b']
    """

    index: CodeIndex
    items: NDArray[np.int64]
    serials: NDArray[np.int64]
    names: NDArray[np.uint8]
    ends: NDArray[np.int64]
    projections: QuantizedRows | None = None

    @classmethod
    def build(
        cls, rows: Iterable[tuple[str, int, int, bytes, bytes | None]], n_bits: int
    ) -> "SortedCodes":
        """Return the codes of rows as from `ItemsDatabase.codes`."""
        numbers = array("q")  # item, serial and end of the id of each row
        codes = bytearray()
        names = bytearray()
        projections = bytearray()
        for name, item, serial, code, projection in rows:
            codes += code
            names += name.encode()
            projections += projection or b""
            numbers.extend((item, serial, len(names)))
        items, serials, ends = np.array(numbers, np.int64).reshape(-1, 3).T.copy()
        packed = np.frombuffer(codes, np.uint8).reshape(len(items), -(-n_bits // 8))
        return cls(
            CodeIndex.build(packed, n_bits),
            items,
            serials,
            np.frombuffer(names, np.uint8),
            ends,
            np.frombuffer(projections, np.uint8).reshape(len(items), -1) if projections else None,
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by name, those of the index as ``index/…``, for `from_arrays`."""
        own = {name: getattr(self, name) for name in _ARRAYS if getattr(self, name) is not None}
        return own | {f"{_INDEX}{name}": values for name, values in self.index.arrays().items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "SortedCodes":
        """Return the codes of `arrays`, which are checked as in `CodeIndex.from_arrays`.

        >>> codes = SortedCodes.build([("a", 1, 1, bytes([7]), None)], n_bits=8)
        >>> len(SortedCodes.from_arrays(codes.arrays()))
        1
        """
        of_index = {
            name.removeprefix(_INDEX): values
            for name, values in arrays.items()
            if name.startswith(_INDEX)
        }
        index = CodeIndex.from_arrays(of_index)
        try:
            items, serials, names, ends = (arrays[name] for name in _ARRAYS[:4])
        except KeyError as error:
            raise ValueError(f"sorted codes without {error.args[0]}") from None
        projections = arrays.get("projections")
        for name in ("items", "serials", "ends"):
            check_array(arrays[name], name, np.int64, (len(index),))
        check_array(names, "names", np.uint8, (names.size,))
        if projections is not None:
            check_array(projections, "projections", np.uint8, (len(index), projections.shape[-1]))
        _check_names(names, ends)
        return cls(index, items, serials, names, ends, projections)

    def __len__(self) -> int:
        return len(self.items)

    def ids(self, rows: NDArray[np.int64]) -> list[str]:
        """Return the ids of some rows."""
        starts = np.where(rows > 0, self.ends[rows - 1], 0)
        places = zip(starts.tolist(), self.ends[rows].tolist(), strict=True)
        names = self.names.data
        return [str(names[start:end], "utf-8") for start, end in places]


@dataclass(frozen=True)
class LayerPart:
    """A layer's codes of one modality.

    Attributes:
        codes: of the layer.
        allowed: which of them count; all if None.

    >>> rows = [("a", 1, 1, bytes([7]), None), ("b", 2, 2, bytes([0]), None)]
    >>> len(LayerPart(SortedCodes.build(rows, n_bits=8), allowed=np.array([True, False])))
    1
    """

    codes: SortedCodes
    allowed: NDArray[np.bool_] | None

    def __len__(self) -> int:
        return len(self.codes) if self.allowed is None else int(np.count_nonzero(self.allowed))

    def rows(self) -> NDArray[np.int64]:
        """Return the rows that count."""
        return np.arange(len(self.codes)) if self.allowed is None else np.flatnonzero(self.allowed)

    def nearest(self, queries: PackedCodes, k: int | None, radius: int | None) -> list[Matches]:
        """Return the ``k`` nearest rows of each query, or all if k is None; with a radius, only
        those within it.
        """
        index = self.codes.index
        return index.within(queries, index.n_bits if radius is None else radius, self.allowed, k)


@dataclass(frozen=True)
class _Layer:
    """The codes, by modality, with serials up to ``last`` that are in no lower layer.

    >>> rows = [("a", 1, 1, bytes([7]), None), ("b", 2, 2, bytes([0]), None)]
    >>> len(_Layer({"image": SortedCodes.build(rows, n_bits=8)}, last=2))
    2
    """

    codes: Mapping[str, SortedCodes]
    last: int

    def __len__(self) -> int:
        return sum(map(len, self.codes.values()))


class CodeLayers:
    """All codes of a database, as of one version. They are for one thread at a time: the caller
    holds a lock.
    """

    def __init__(self, database: ItemsDatabase, n_bits: int, folder: StoreFolder | None) -> None:
        self._database = database
        self._n_bits = n_bits
        self._folder = folder
        self._snapshot_name = ""
        self._snapshot = self._middle = self._newest = _Layer({}, 0)
        self._removed = np.empty(0, np.int64)  # serials of codes that are gone
        # (filter, modality) -> parts, of the last searches
        self._searched: dict[tuple[str, str], list[LayerPart]] = {}
        self._version = _NONE

    def parts(self, modality: str, where: Filter | None) -> list[LayerPart]:
        """Return the current codes of a modality, of the items that pass a filter."""
        while True:
            with self._database.reading():
                state = self._database.state()
                try:
                    if self._update(state):
                        return self._parts(modality, where)
                except _DamagedSnapshotError:
                    self._version = _NONE
                    if state.snapshot != self._snapshot_name:
                        continue  # another process has replaced it by a new one
            self._make_or_do_without(state)

    def settle(self) -> None:
        """Make a new snapshot now if the next search would make one."""
        with self._database.reading():
            state = self._database.state()
            is_due = self._snapshot_due(state)
        if is_due:
            self._make_or_do_without(state)

    def make_snapshot(self, in_place_of: str) -> None:
        """Write a snapshot of all codes in place of another, unless another process has done so.

        A snapshot counts once the database names it. A process that is killed before leaves a
        folder, which the next snapshot removes.
        """
        assert self._folder is not None
        if not self._folder.writable:
            raise PermissionError(f"{self._folder.path}: can only be read")
        with locked(self._folder.lock):
            self._database.check_presence()  # else these are the files of another store
            with self._database.reading():
                state = self._database.state()
                if state.snapshot != in_place_of:
                    return
                removed = self._database.removed()
                layer = self._read_layer(0, state)
            current = in_place_of
            try:
                name = _write_snapshot(self._folder.path, layer.codes)
                with self._database.writing():
                    self._database.set_snapshot(name, layer.last, len(layer), removed)
                current = name
            finally:
                _remove_others(self._folder.path, current)
        self._version = _NONE
        if not self._folder.mapped:  # else its files are opened, and memory is freed
            self._snapshot_name = name
            self._snapshot = layer
            self._middle = _Layer({}, layer.last)

    def _update(self, state: State) -> bool:
        """Update the layers to ``state``. Return False if that needs a new snapshot."""
        if state.version == self._version:
            return True
        if self._snapshot_due(state):
            return False
        if self._folder is not None and state.snapshot != self._snapshot_name:
            self._snapshot_name = state.snapshot
            self._snapshot = _Layer({}, 0)
            if state.snapshot:
                path = self._folder.path / state.snapshot
                self._snapshot = _Layer(_Snapshot(path, self._folder.mapped), state.snapshot_serial)
            self._middle = _Layer({}, self._snapshot.last)
        n_new, _ = self._database.count_changes(self._middle.last)
        if n_new > max(_LEAST_IN_MEMORY, _FRACTION * len(self._middle)):
            self._middle = self._read_layer(self._snapshot.last, state)
        self._newest = self._read_layer(self._middle.last, state)
        self._removed = self._database.removed()
        self._searched = {}
        self._version = state.version
        return True

    def _parts(self, modality: str, where: Filter | None) -> list[LayerPart]:
        """Return the parts of all layers, in which only items that pass the filter count. The
        snapshot is read if need be.
        """
        cache = self._searched
        key = (repr(where), modality)  # not the filter itself: to Python, 1 == True
        if key not in cache:
            if where is None:
                cache[key] = self._whole_parts(modality)
            else:
                cache[key] = self._filtered(self._parts(modality, None), where)
            if len(cache) > _FILTERS:
                del cache[next(iter(cache))]
        return cache[key]

    def _whole_parts(self, modality: str) -> list[LayerPart]:
        parts = []
        for layer in (self._snapshot, self._middle, self._newest):
            if modality in layer.codes:
                codes = layer.codes[modality]
                removed = np.isin(codes.serials, self._removed)
                parts.append(LayerPart(codes, ~removed if removed.any() else None))
        return parts

    def _filtered(self, parts: Sequence[LayerPart], where: Filter) -> list[LayerPart]:
        numbers = self._database.numbers(where)
        filtered = []
        for part in parts:
            passing = np.isin(part.codes.items, numbers)
            if part.allowed is not None:
                passing &= part.allowed
            filtered.append(LayerPart(part.codes, passing))
        return filtered

    def _snapshot_due(self, state: State) -> bool:
        if self._folder is None:
            return False
        changes = sum(self._database.count_changes(state.snapshot_serial))
        return changes > max(_LEAST_IN_SNAPSHOT, _FRACTION * state.snapshot_size)

    def _read_layer(self, after: int, state: State) -> _Layer:
        """Return the codes written after a serial, up to ``state``."""
        read = self._database.codes
        codes = {
            name: SortedCodes.build(read(name, after), self._n_bits)
            for name in self._database.modalities()
        }
        return _Layer({name: codes[name] for name in codes if len(codes[name])}, state.last_serial)

    def _make_or_do_without(self, old: State) -> None:
        """Make a snapshot, or hold all codes in memory from now on if it cannot be written."""
        try:
            self.make_snapshot(old.snapshot)
        except (OSError, InputError, JobError):
            # If the database is at fault, the next read says so.
            self._folder = None
            self._snapshot = self._middle = _Layer({}, 0)
            self._version = _NONE


def check_snapshot(folder: StoreFolder) -> list[Finding]:
    """Return what is wrong with the snapshot of a whole database; the next search replaces it."""
    with closing(connect(folder.database, read_only=not folder.writable)) as connection:
        name = State.read(connection).snapshot
        try:
            if name:
                list(_Snapshot(folder.path / name).values())
        except _DamagedSnapshotError as error:
            return [Finding("snapshot", str(error))]
    return []


def _check_names(names: NDArray[Any], ends: NDArray[np.int64]) -> None:
    """Raise ``ValueError`` unless ids that lie one after the other can be taken apart."""
    starts = np.concatenate([np.zeros(1, np.int64), ends])
    if starts[-1] != len(names) or (starts[1:] < starts[:-1]).any():
        raise ValueError(f"ends do not ascend to the {len(names)} bytes of the names")
    if (names & 0x80).any():
        names.tobytes().decode()
        inside = starts[starts < len(names)]
        if ((names[inside] & 0xC0) == 0x80).any():
            raise ValueError("a name ends within a character")


# The files of a snapshot.

#: Prefix of the names of snapshots' folders.
_PREFIX = "snapshot-"
_MANIFEST = "manifest.json"
#: Files that are read at the same time: SHA-256 takes 0.6 s a gigabyte, without the interpreter's
#: lock.
_THREADS = 4
#: Bytes of an array's file that hold its header, at most.
_HEADER = 1 << 16


class _DamagedSnapshotError(Exception):
    """A snapshot is missing, or not as it was written; it can be made again."""


class _Snapshot(Mapping[str, SortedCodes]):
    """A snapshot, as modality -> codes. The manifest is checked at once, the codes of a modality
    when they are first asked for.
    """

    def __init__(self, path: Path, mapped: bool = False) -> None:
        self._path = path
        self._mapped = mapped
        self._read: dict[str, SortedCodes] = {}
        with _damage_noticed(path, _MANIFEST):
            content = (path / _MANIFEST).read_bytes()
            if path.name != f"{_PREFIX}{hashlib.sha256(content).hexdigest()}":
                raise ValueError("has changed since it was written")
            #: Modality -> name of an array -> SHA-256 of its file.
            self._files: dict[str, dict[str, str]] = json.loads(content)["files"]

    def __getitem__(self, modality: str) -> SortedCodes:
        """Return the codes of a modality. The bytes that are searched are those that were
        checked.
        """
        if modality not in self._read:
            files = self._files[modality]
            paths = [f"{modality}/{name}.npy" for name in files]
            with ThreadPoolExecutor(_THREADS) as pool:
                contents = pool.map(self._read_file, paths, files.values())
                arrays = dict(zip(files, map(_array_from_npy, contents), strict=True))
            with _damage_noticed(self._path, modality):
                self._read[modality] = SortedCodes.from_arrays(arrays)
        return self._read[modality]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def _read_file(self, name: str, sha256: str) -> bytes | mmap.mmap:
        content: bytes | mmap.mmap
        with _damage_noticed(self._path, name), open(self._path / name, "rb") as file:
            if self._mapped:
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            else:
                content = file.read()
            if hashlib.sha256(content).hexdigest() != sha256:
                raise ValueError("has changed since it was written")
        return content


@contextmanager
def _damage_noticed(path: Path, name: str) -> Iterator[None]:
    """Raise `_DamagedSnapshotError` for what is wrong with a file of a snapshot."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = "is missing" if isinstance(error, FileNotFoundError) else error
        raise _DamagedSnapshotError(f"{path.name}/{name}: {reason}") from None


def _write_snapshot(store: Path, codes: Mapping[str, SortedCodes]) -> str:
    """Write a snapshot into a store's folder, and return its name. It is on the disk when this
    returns. If this fails, `_remove_others` removes what was written.
    """
    temporary = store / f"{_PREFIX}{uuid.uuid4().hex}.tmp"
    files: dict[str, dict[str, str]] = {modality: {} for modality in codes}
    temporary.mkdir()
    for modality, sorted_codes in codes.items():
        for name, values in sorted_codes.arrays().items():
            path = temporary / modality / f"{name}.npy"
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, values)
            sync(path)
            files[modality][name] = file_hash(path)
    # The id gives a snapshot of the same codes another name.
    content = json.dumps({"id": uuid.uuid4().hex, "files": files}, indent=1).encode()
    (temporary / _MANIFEST).write_bytes(content)
    sync(temporary / _MANIFEST)
    name = f"{_PREFIX}{hashlib.sha256(content).hexdigest()}"
    temporary.rename(store / name)
    return name


def _remove_others(store: Path, name: str) -> None:
    """Remove all snapshots but one, and what killed processes left. The caller holds the store's
    lock.
    """
    for folder in store.glob(f"{_PREFIX}*"):
        if folder.name != name:
            shutil.rmtree(folder, ignore_errors=True)


def _array_from_npy(content: bytes | mmap.mmap) -> NDArray[Any]:
    """Return the array in a file's content, read-only and without a copy. Nothing is unpickled.

    Raise ``ValueError`` unless it holds plain numbers, row by row and in this machine's byte order,
    as `numpy.save` writes them.
    """
    file = io.BytesIO(content[:_HEADER])
    try:
        np.lib.format.read_magic(file)
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
        values = np.frombuffer(content, dtype, offset=file.tell()).reshape(shape)
    except Exception as error:
        # A header is parsed as Python, which fails in many ways.
        raise ValueError(f"not an array's file ({' '.join(str(error).split())[:100]})") from None
    as_written = values.shape == shape and not by_columns and values.flags.aligned
    if dtype.kind not in "biuf" or not dtype.isnative or not as_written:
        raise ValueError(f"an array of {dtype} of another layout than is written")
    return values
