"""The store in a folder, and the same over a file of codes that is only read.

A store's codes lie in parts, see `snapshots`; the answers of the parts become one here.
"""

import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import CodeSet, PackedCodes, binarize, pack
from channelhash.errors import InputError, JobError
from channelhash.search.checks import check_ids, check_process
from channelhash.search.filters import Filter
from channelhash.search.index import Matches
from channelhash.search.items import Facts, NewItems
from channelhash.search.rank import ALL, FIRST, KeyedAnswers, Ranking, cosines, sure_distances
from channelhash.search.sqlite.database import ItemsDatabase, metadata_of
from channelhash.search.sqlite.folder import Manifest, StoreFolder
from channelhash.search.sqlite.guard import Guard
from channelhash.search.sqlite.snapshots import CodeLayers, Part, SortedCodes
from channelhash.search.store import Answers, Item, Listed, Scope, Store
from channelhash.utils.decode import check_exhausted
from channelhash.utils.files import write_text
from channelhash.utils.locks import locked
from channelhash.utils.seeds import generator

# Rows that are searched first where the ``k`` nearest and those as near are asked for: so many, or
# so many times k.
_FEW = 50
_TIMES = 5
_LISTED_AT_ONCE = 10_000  # items; between them, others may write
# How often a store that can only be read is opened or read again where others write to it, and
# seconds in which they open or close it.
_TRIES = 20
_PAUSE = 0.05
_ANY = Facts(0, "")
_Reply = TypeVar("_Reply")


class _Opened(NamedTuple):
    """The items of a store and how to get at them.

    Attributes:
        facts: what the codes have in common; None while the folder is empty.
        reader: the connection of reading calls.
        layers: the codes as they are searched, over the reader.
        writer: the connection of writing calls; the reader where nothing is written.
        guard: the hold on the folder's database; None in memory.
        process: the one that opened them.
    """

    facts: Facts | None
    reader: ItemsDatabase
    layers: CodeLayers
    writer: ItemsDatabase
    guard: Guard | None
    process: int

    @property
    def read_only(self) -> bool:
        """Whether its database can only be read."""
        return self.guard is not None and self.guard.read_only

    @property
    def stale(self) -> bool:
        """Whether a database that can only be read is to be opened again."""
        return self.guard is not None and self.guard.is_stale()

    def close(self) -> None:
        """Close the connections, and seal the database if nobody else has it open."""
        if os.getpid() != self.process:  # SQLite lets a forked process not even close them
            return
        writes = None
        try:
            writes = self.reader.state().writes if self.guard and not self.read_only else 0
        finally:
            self.reader.close()
            self.writer.close()
            if self.guard:
                self.guard.seal(writes)


class EmbeddedStore(Store):
    """A `Store` in one process, over SQLite; `open_folder` and `open_codes` make it.

    Reading calls of several threads take turns on one connection, writing calls on another, and
    codes are searched outside both locks. Several processes may read and write one folder: a search
    sees all that was written before it began.

    >>> store = open_codes(CodeSet(["a"], {"image": np.array([[7]], np.uint8)}, None, n_bits=8))
    >>> len(store), store.writable
    (1, False)
    """

    def __init__(
        self,
        address: str,
        folder: StoreFolder | None,
        opened: _Opened,
        new: Facts,
        model_folder: Path | None = None,
    ) -> None:
        super().__init__(address)
        self._folder = folder
        self._opened = opened
        self._new = new
        self._model_folder = model_folder
        self._reading = threading.RLock()
        self._writing = threading.RLock()
        self._wrote = self._closed = False
        self._number = 0  # of the store in this place, 20 bits of its random name
        # key -> version, and `value_counts` of that
        self._counted: dict[str, tuple[int, dict[str, int]]] = {}
        # Also of a store that nobody closes, at the latest when the process ends: an unsealed one
        # is checked anew.
        self._finalizer = weakref.finalize(self, _close_quietly, opened)
        self._open()

    @property
    def modalities(self) -> tuple[str, ...]:
        return self._ask(ItemsDatabase.modalities)

    @property
    def model_folder(self) -> Path | None:
        if self._folder is not None and (self._folder.model / "config.json").exists():
            return self._folder.path
        return self._model_folder

    @property
    def writable(self) -> bool:
        opened_for_it = not self._opened.read_only
        return opened_for_it and self._folder is not None and self._folder.writable

    @property
    def version(self) -> int:
        """A number that grows with every write; another one of another store in the same place,
        which who may only read goes on with.
        """
        version = self._ask(ItemsDatabase.state).version
        return version + (self._number << 32) if self._opened.read_only else version

    def __len__(self) -> int:
        return self._ask(len)

    def label_counts(self) -> dict[str, int]:
        return self._ask(ItemsDatabase.label_counts)

    def value_counts(self, key: str) -> dict[str, int]:
        version = self.version  # counting reads all items, and each search in words may ask
        if self._counted.get(key, (-1, {}))[0] != version:
            self._counted[key] = version, self._ask(ItemsDatabase.value_counts, key)
        return self._counted[key][1]

    @property
    def has_words(self) -> bool:
        return self._open().reader.has_words

    def make(self) -> None:
        with self._hold(self._writing):
            self._created(self._new.n_bits)

    def make_snapshot(self) -> None:
        """Make a new snapshot of all codes now."""
        with self._hold(self._reading) as opened:
            opened.layers.make_snapshot(opened.reader.state().snapshot)

    def close(self) -> None:
        """Close the store. If anything was written, make the snapshot that the next search would
        make.
        """
        # another thread of the parent may hold the locks for ever
        if os.getpid() != self._opened.process:
            return
        with self._writing, self._reading:
            if self._closed:
                return
            self._closed = True
            try:
                if self._wrote:
                    self._opened.layers.settle()
            finally:
                self._finalizer.detach()
                self._opened.close()

    def _common(self) -> Facts:
        return self._open().facts or self._new

    def _keys(self) -> Collection[str]:
        return self._ask(ItemsDatabase.keys)

    def _ids(self, where: Filter | None) -> list[str]:
        return self._ask(ItemsDatabase.ids, where)

    def _get(self, ids: list[str]) -> Mapping[str, Item]:
        return self._ask(ItemsDatabase.get, ids)

    def listed(self) -> Iterator[Listed]:
        """Yield every item without its codes, in the order of adding."""
        last = -1
        while rows := self._ask(ItemsDatabase.listed, last, _LISTED_AT_ONCE):
            yield from (item for _, item in rows)
            last = rows[-1][0]

    def _write(self, new: NewItems) -> None:
        with self._hold(self._writing):
            items = self._created(new.n_bits).writer
            with items.writing():
                items.write(new)
            self._wrote = True

    def _delete(self, ids: list[str]) -> int:
        with self._hold(self._writing) as opened:
            with opened.writer.writing():
                n_deleted = opened.writer.delete(ids)
            self._wrote = True
            return n_deleted

    def _search(
        self, queries: PackedCodes, radius: int | None, limit: int | None, scope: Scope
    ) -> Answers:
        parts = self._parts(scope)
        matches = [part.nearest(queries, limit, radius) for part in parts]
        if len(parts) == 1:
            return Answers(
                [parts[0].codes.ids(match.rows) for match in matches[0]],
                [m.distances for m in matches[0]],
            )
        answers = Answers([], [])
        for query in range(len(queries)):
            found = _Candidates.of(parts, [of_part[query] for of_part in matches])
            found.answer(answers, found.best(limit, found.distances))
        return answers

    def _surest(
        self, outputs: NDArray[Any], k: int | None, radius: int | None, scope: Scope
    ) -> KeyedAnswers:
        """Read only the codes of items at the distance of the last answer, or at a smaller one."""
        answers = KeyedAnswers([], [], [])
        parts = self._parts(scope)
        most = k and max(k, FIRST)
        few = k and min(max(k, FIRST), max(_FEW, _TIMES * k))
        for matches, row in _first_candidates(parts, outputs, few, radius):
            matches = matches.take(_lowest(matches.distances, k))
            if few != most and len(matches.rows) == few:  # others may be as near
                matches, _ = next(_first_candidates(parts, row[None], most, radius))
                matches = matches.take(_lowest(matches.distances, k))
            keys = sure_distances(row, matches.packed(len(row)), matches.distances)
            matches.answer(answers, matches.best(k, keys), keys)
        return answers

    def _scored(
        self, outputs: NDArray[Any], k: int, first: int | None, scope: Scope
    ) -> KeyedAnswers:
        parts = self._parts(scope)
        if first is None:
            first = ALL if sum(map(len, parts)) <= ALL else max(k, FIRST)
        answers = KeyedAnswers([], [], [])
        for matches, row in _first_candidates(parts, outputs, first, None):
            projections = np.empty((len(matches.rows), len(row)), np.int8)
            scores = cosines(
                row, matches.read(projections, lambda codes, rows: codes.projections[rows])
            )
            matches.answer(answers, matches.best(k, -scores, matches.distances), scores)
        return answers

    def _all_codes(self, scope: Scope) -> tuple[list[str], PackedCodes]:
        return self._read_codes(_Candidates.all(self._parts(scope)))

    def count(self, modality: str) -> int | None:
        return sum(map(len, self._parts(Scope(modality, None))))

    def sample(self, n: int, modality: str) -> tuple[list[str], PackedCodes]:
        every = _Candidates.all(self._parts(Scope(modality, None)))
        total = len(every.rows)
        chosen = generator(0, "sample", total).choice(total, min(n, total), replace=False)
        return self._read_codes(every.take(np.sort(chosen)))

    def _read_codes(self, found: "_Candidates") -> tuple[list[str], PackedCodes]:
        """Return the ids, sorted, and codes of some rows."""
        ids = found.names()
        order = sorted(range(len(ids)), key=ids.__getitem__)
        return [ids[place] for place in order], found.packed(self.n_bits or 0)[order]

    def word_counts(self) -> dict[str, int]:
        return self._ask(ItemsDatabase.word_counts)

    def _search_words(
        self, text: str, without: Sequence[str], k: int, where: Filter | None, least: float
    ) -> Ranking:
        return self._ask(ItemsDatabase.search_words, text, without, k, where, least)

    def _facts(self) -> dict[str, Any]:
        """``distinct_codes`` leaves out modalities of which codes were written a short time ago."""
        codes = self._ask(ItemsDatabase.code_counts)
        distinct = {
            modality: parts[0].codes.index.n_distinct
            for modality in codes
            if len(parts := self._parts(Scope(modality, None))) == 1 and parts[0].allowed is None
        }
        n_bytes = self._folder.n_bytes() if self._folder else None
        return {"codes": codes, "distinct_codes": distinct, "bytes": n_bytes}

    def _parts(self, scope: Scope) -> list[Part]:
        """Return the codes to search."""
        return self._read_now(lambda opened: opened.layers.parts(*scope))

    def _ask(self, question: Callable[..., _Reply], *arguments: Any) -> _Reply:
        """Return what a question to the items as they are now gives."""

        def ask(opened: _Opened) -> _Reply:
            with opened.reader.reading():
                return question(opened.reader, *arguments)

        return self._read_now(ask)

    def _read_now(self, read: Callable[[_Opened], _Reply]) -> _Reply:
        """Return what is read of the items; once more where others wrote meanwhile to a store that
        this process can only read, without a lock.
        """
        for _ in range(_TRIES):
            with self._hold(self._reading) as opened:
                try:
                    reply = read(opened)
                except (InputError, JobError):
                    if not opened.stale:
                        raise
                else:
                    if not opened.stale:
                        return reply
        raise JobError(f"{self.address}: is written to all the time; try again later")

    @contextmanager
    def _hold(self, lock: threading.RLock) -> Iterator[_Opened]:
        """Yield the items, and keep out other threads that need the same lock."""
        check_process(self.address, self._opened.process)
        with lock:
            opened = self._open()
            if lock is self._writing and opened.read_only:
                raise InputError(
                    f"{self.address}: can only be read; copy the store to where it can be written to"
                )
            yield opened

    def _open(self) -> _Opened:
        """Return the items, also those of a store that another process has made since, or has
        written to while this one can only read it.
        """
        check_process(self.address, self._opened.process)
        if self._closed:
            raise ValueError(f"{self.address}: this store is closed")
        if self._opened.facts is not None and not self._opened.stale:
            return self._opened
        with self._reading:
            if self._opened.stale:
                self._finalizer()  # first: a process that closes a file ends its locks on it
            elif self._opened.facts is not None:
                return self._opened
            manifest = self._folder.find_manifest() if self._folder is not None else None
            if manifest is not None and self._folder is not None:
                manifest.facts.check(self.address, self._opened.facts or self._new)
                opened = _in_folder(self._folder, manifest)
                self._finalizer()
                self._opened = opened
                self._counted = {}
                self._number = int(manifest.store[:5], 16)
                self._finalizer = weakref.finalize(self, _close_quietly, opened)
            elif self._opened.facts is not None:
                raise JobError(f"{self.address}: the store was removed while it was open")
            return self._opened

    def _created(self, n_bits: int) -> _Opened:
        """Return the items; make the store if it is not there."""
        assert self._folder is not None
        if self._open().facts is None:
            with locked(self._folder.lock):
                if not self._folder.description.exists():
                    manifest = Manifest.new(self._new._replace(n_bits=n_bits))
                    ItemsDatabase(self._folder.database, manifest=manifest).close()
                    write_text(self._folder.description, manifest.to_json())
        self._common().check(self.address, self._new._replace(n_bits=n_bits))
        return self._opened


def open_folder(path: Path, new: Facts = _ANY, mapped: bool = False) -> EmbeddedStore:
    """Open the store in a folder, which may not be there yet; `StoreFolder` names its files.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_folder(Path(folder) / "photos.store", Facts(n_bits=8, model=""))
    ...     len(store), store.writable
    (0, True)
    """
    folder = StoreFolder(path, mapped)
    try:
        folder.check_content()
        return EmbeddedStore(str(path), folder, _in_memory(None), new)
    except OSError as error:
        check_exhausted(error, path)
        raise


def open_codes(
    codes: CodeSet,
    address: str = "codes",
    model_folder: Path | None = None,
    n_bits: int | None = None,
    model: str = "",
) -> EmbeddedStore:
    """Open the items of a code set as a store in memory that is only read.

    >>> store = open_codes(CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, None, n_bits=8))
    >>> store.search(np.array([[6]], np.uint8), k=1).ids
    [['b']]
    """
    facts = Facts(codes.n_bits, codes.model)
    facts.check(address, Facts(n_bits or 0, model))
    opened = _in_memory(facts)
    ids = check_ids(codes.ids, f"{address}: ids")
    with opened.writer.writing():
        opened.writer.write(NewItems(ids, codes.codes, codes.n_bits, metadata_of(codes)))
    return EmbeddedStore(address, None, opened, _ANY, model_folder)


def _in_memory(facts: Facts | None) -> _Opened:
    """Make a database in memory, without items."""
    items = ItemsDatabase(None)
    layers = CodeLayers(items, facts.n_bits if facts else 0, None)
    return _Opened(facts, items, layers, items, None, os.getpid())


def _in_folder(folder: StoreFolder, manifest: Manifest) -> _Opened:
    """Open the database of a store that is there, checked as `Guard` does; another time where its
    owner writes, opens or closes it meanwhile, and nothing holds them up.
    """
    for _ in range(_TRIES):
        seen = folder.look()
        try:
            opened = _open_database(folder, manifest)
        except (InputError, JobError):
            if folder.writable:
                raise
            time.sleep(_PAUSE)
            if folder.look() == seen:
                raise
        else:
            if not opened.stale:
                return opened
            opened.close()
    raise JobError(f"{folder.path}: is written to all the time; try again later")


def _open_database(folder: StoreFolder, manifest: Manifest) -> _Opened:
    guard = Guard(folder, manifest.facts)
    with ExitStack() as stack:
        stack.callback(guard.seal, None)
        reader = ItemsDatabase(folder.database, guard)
        stack.callback(reader.close)
        writer = reader if guard.read_only else ItemsDatabase(folder.database, guard)
        stack.pop_all()
    layers = CodeLayers(reader, manifest.facts.n_bits, folder)
    return _Opened(manifest.facts, reader, layers, writer, guard, os.getpid())


def _close_quietly(opened: _Opened) -> None:
    """Close where nobody can be told of an error; a database that is not sealed is checked when it
    is opened.
    """
    with suppress(InputError, JobError):
        opened.close()


class _Candidates(NamedTuple):
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
    def of(cls, parts: list[Part], matches: list[Matches]) -> "_Candidates":
        """Put what the parts have for one query one behind the other."""
        part = np.repeat(np.arange(len(parts)), [len(match.rows) for match in matches])
        rows, distances = np.concatenate([np.zeros((2, 0), np.int64), *matches], axis=1)
        return cls(parts, part, rows, distances)

    @classmethod
    def all(cls, parts: list[Part]) -> "_Candidates":
        """Return all rows that count, as if no bit of them differed."""
        return cls.of(parts, [Matches(rows, np.zeros_like(rows)) for rows in map(Part.rows, parts)])

    def take(self, places: NDArray[np.int64]) -> "_Candidates":
        """Return some of the rows."""
        return self._replace(
            part=self.part[places], rows=self.rows[places], distances=self.distances[places]
        )

    def read(self, values: NDArray[Any], read: Callable[..., Any]) -> NDArray[Any]:
        """Write what ``read(codes, rows)`` gives for the rows of each part to ``values``, and
        return these.
        """
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
        """Add some of the rows, and their keys, to the answers."""
        columns = (
            self.take(places).names(),
            self.distances[places],
            *(key[places] for key in keys),
        )
        for values, more in zip(answers, columns, strict=True):
            values.append(more)

    def best(self, count: int | None, *keys: NDArray[Any]) -> NDArray[np.int64]:
        """Return the places of the ``count`` lowest by these keys, then by id, or of all."""
        places = _lowest(keys[0], count)
        if len(self.parts) == 1:  # rows are in the order of ids
            return places[
                np.lexsort((self.rows[places], *(key[places] for key in reversed(keys))))
            ][:count]
        columns = [key[places].tolist() for key in keys]
        pairs = sorted(zip(*columns, self.take(places).names(), places.tolist(), strict=True))
        return np.array([place for *_, place in pairs[:count]], dtype=np.int64)


def _lowest(keys: NDArray[Any], count: int | None) -> NDArray[np.int64]:
    """Return the places of the ``count`` lowest keys and of what equals the last of them, or of
    all.
    """
    if count is None or count >= len(keys):
        return np.arange(len(keys))
    return np.flatnonzero(keys <= np.partition(keys, count - 1)[count - 1])


def _first_candidates(
    parts: list[Part], outputs: NDArray[Any], first: int | None, radius: int | None
) -> Iterator[tuple[_Candidates, NDArray[Any]]]:
    """Yield the ``first`` rows that each question finds by distance, and its outputs."""
    matches = [part.nearest(pack(binarize(outputs)), first, radius) for part in parts]
    for query, row in enumerate(outputs):
        candidates = _Candidates.of(parts, [of_part[query] for of_part in matches])
        if first is not None and first < len(candidates.rows):
            candidates = candidates.take(candidates.best(first, candidates.distances))
        yield candidates, row
