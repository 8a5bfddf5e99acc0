"""The store in a folder, and a store of the same kind over a file of codes, which is only read."""

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
from channelhash.codes.stage import Stage
from channelhash.errors import InputError, JobError
from channelhash.search.checks import check_ids, check_process
from channelhash.search.filters import Filter
from channelhash.search.items import Facts, NewItems
from channelhash.search.rank import (
    ALL,
    CANDIDATES,
    FIRST,
    ORDERED,
    KeyedAnswers,
    Ranking,
    asymmetric_distances,
    sure_distances,
)
from channelhash.search.sqlite.candidates import Candidates
from channelhash.search.sqlite.database import ItemsDatabase, metadata_of
from channelhash.search.sqlite.folder import Manifest, StoreFolder
from channelhash.search.sqlite.guard import Guard
from channelhash.search.sqlite.snapshots import CodeLayers, LayerPart
from channelhash.search.sqlite.words import quote
from channelhash.search.store import Answers, Item, Listed, Scope, Score, Store
from channelhash.utils.decode import check_exhausted
from channelhash.utils.files import write_text
from channelhash.utils.locks import locked
from channelhash.utils.seeds import generator

#: Items that are listed at a time; in between, others may write.
_LISTED_AT_ONCE = 10_000
#: How often opening or reading a store that can only be read is tried while others write to it.
_TRIES = 20
#: Seconds between two tries, in which others open or close it.
_PAUSE = 0.05
#: The facts of a new store of which nothing is asked.
_ANY = Facts(0, "")
_Reply = TypeVar("_Reply")


class _Opened(NamedTuple):
    """An opened database and what reads and writes it.

    Attributes:
        facts: what the codes have in common; None while the folder is empty.
        reader: the connection of reading calls.
        layers: the codes in the form in which they are searched, read through the reader.
        writer: the connection of writing calls; the reader if nothing can be written.
        guard: the hold on the folder's database; None in memory.
        process: id of the process that opened it.
    """

    facts: Facts | None
    reader: ItemsDatabase
    layers: CodeLayers
    writer: ItemsDatabase
    guard: Guard | None
    process: int

    @property
    def read_only(self) -> bool:
        """Whether the database can only be read."""
        return self.guard is not None and self.guard.read_only

    @property
    def stale(self) -> bool:
        """Whether a database that can only be read must be opened again."""
        return self.guard is not None and self.guard.is_stale()

    def close(self) -> None:
        """Close the connections, and seal the database if nobody else has it open."""
        if os.getpid() != self.process:  # a forked process must not even close them
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
    """A `Store` within this process, over SQLite, from `open_folder` or `open_codes`.

    Reading calls of several threads take turns on one connection, writing calls on another. Codes
    are searched outside both locks. Several processes may read and write one folder: a search sees
    all that was written before it began.

    >>> store = open_codes(CodeSet(["a"], {"image": np.array([[7]], np.uint8)}, None, n_bits=8))
    >>> len(store), store.writable
    (1, False)
    """

    keeps_projections = True

    def __init__(
        self,
        address: str,
        folder: StoreFolder | None,
        opened: _Opened,
        new: Facts,
        model_folder: Path | None = None,
    ) -> None:
        super().__init__(address, new)
        self._folder = folder
        self._opened = opened
        self._model_folder = model_folder
        self._reading = threading.RLock()
        self._writing = threading.RLock()
        self._wrote = self._closed = False
        self._number = 0  # of the store in this folder: 20 bits of its random name
        # key -> version, and `value_counts` of that version
        self._counted: dict[str, tuple[int, dict[str, int]]] = {}
        # This also seals a store that nobody closes, at the latest when the process ends: the next
        # opening would check an unsealed one.
        self._finalizer = weakref.finalize(self, _close_quietly, opened)
        self._open()

    @property
    def modalities(self) -> tuple[str, ...]:
        return self._ask(ItemsDatabase.modalities)

    @property
    def folder(self) -> Path | None:
        return None if self._folder is None else self._folder.path

    @property
    def model_folder(self) -> Path | None:
        if self._folder is not None and (self._folder.model / "config.json").exists():
            return self._folder.path
        return self._model_folder

    @property
    def writable(self) -> bool:
        return not self._opened.read_only and self._folder is not None and self._folder.writable

    @property
    def version(self) -> int:
        """A number that grows with every write. If the store can only be read, it also differs when
        another store takes its place.
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

    def successor(self) -> "EmbeddedStore | None":
        guard = self._opened.guard
        if guard is None or not guard.keeps_reading():
            return None
        store = EmbeddedStore(self.address, self._folder, _in_memory(None), self._common())
        return store if store._opened.facts else None  # it may be gone by now

    def close(self) -> None:
        """Close the store. If anything was written, make the snapshot that the next search would
        make.
        """
        # In a forked process, the locks may be held by a thread that is not there.
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
            found = Candidates.of(parts, [of_part[query] for of_part in matches])
            found.answer(answers, found.best(limit, found.distances))
        return answers

    def _by_outputs(
        self, outputs: NDArray[Any], k: int | None, radius: int | None, scope: Scope
    ) -> KeyedAnswers:
        answers = KeyedAnswers([], [], [])
        depth = k and CANDIDATES * max(k, ORDERED)
        for matches, row in _near_outputs(self._parts(scope), outputs, depth, radius):
            keys = asymmetric_distances(row, matches.packed(len(row)))
            if radius is not None:
                keys = sure_distances(row, keys, matches.distances)
            matches.answer(answers, matches.best(k, keys, matches.distances), keys)
        return answers

    def _read_stage(self) -> Stage:
        opened = self._open()
        if opened.facts is None:
            assert self.new_stage is not None
            return self.new_stage
        with self._reading:
            return opened.reader.read_stage(opened.facts.stage)

    def _scored(
        self,
        outputs: NDArray[Any],
        scores: Sequence[Score],
        k: int,
        first: int | None,
        scope: Scope,
    ) -> KeyedAnswers:
        parts = self._parts(scope)
        if first is None:
            first = ALL if sum(map(len, parts)) <= ALL else max(k, FIRST)
        answers = KeyedAnswers([], [], [])
        width = self._common().projection_bytes
        found = _near_outputs(parts, outputs, CANDIDATES * first)
        for (matches, row), score in zip(found, scores, strict=True):
            if len(matches.rows) > first:
                keys = asymmetric_distances(row, matches.packed(len(row)))
                matches = matches.take(matches.best(first, keys, matches.distances))
            projections = np.empty((len(matches.rows), width), np.uint8)
            values = score(matches.read(projections, lambda part, rows: part.projections[rows]))
            matches.answer(answers, matches.best(k, -values, matches.distances), values)
        return answers

    def _all_codes(self, scope: Scope) -> tuple[list[str], PackedCodes]:
        return self._read_codes(Candidates.all(self._parts(scope)))

    def count(self, modality: str) -> int | None:
        return sum(map(len, self._parts(Scope(modality, None))))

    def sample(self, n: int, modality: str) -> tuple[list[str], PackedCodes]:
        every = Candidates.all(self._parts(Scope(modality, None)))
        total = len(every.rows)
        chosen = generator(0, "sample", total).choice(total, min(n, total), replace=False)
        return self._read_codes(every.take(np.sort(chosen)))

    def _read_codes(self, found: "Candidates") -> tuple[list[str], PackedCodes]:
        """Return the ids of some rows, sorted, and their codes."""
        ids = found.names()
        order = sorted(range(len(ids)), key=ids.__getitem__)
        return [ids[place] for place in order], found.packed(self.n_bits or 0)[order]

    def word_counts(self) -> dict[str, int]:
        return self._ask(ItemsDatabase.word_counts)

    def _search_words(
        self, text: str, without: Sequence[str], k: int, where: Filter | None, least: float
    ) -> Ranking:
        return self._ask(ItemsDatabase.search_words, text, without, k, where, least)

    def quote(self, item: Item, question: str) -> str:
        return quote(str(item.metadata.get("ocr") or ""), question)

    def _facts(self) -> dict[str, Any]:
        """Return facts. ``distinct_codes`` lacks modalities whose codes changed lately."""
        codes = self._ask(ItemsDatabase.code_counts)
        distinct = {}
        for modality in codes:
            parts = self._parts(Scope(modality, None))
            if len(parts) == 1 and parts[0].allowed is None:
                distinct[modality] = parts[0].codes.index.n_distinct
        n_bytes = self._folder.n_bytes() if self._folder else None
        return {"codes": codes, "distinct_codes": distinct, "bytes": n_bytes}

    def _parts(self, scope: Scope) -> list[LayerPart]:
        """Return the codes to search."""
        return self._read_now(lambda opened: opened.layers.parts(*scope))

    def _ask(self, question: Callable[..., _Reply], *arguments: Any) -> _Reply:
        """Return the answer of the current items to a question."""

        def ask(opened: _Opened) -> _Reply:
            with opened.reader.reading():
                return question(opened.reader, *arguments)

        return self._read_now(ask)

    def _read_now(self, read: Callable[[_Opened], _Reply]) -> _Reply:
        """Return what ``read`` reads. A process that can only read the store takes no lock; if
        others wrote meanwhile, it reads again.
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
        """Yield the opened database, and keep out other threads that need the same lock."""
        check_process(self.address, self._opened.process)
        with lock:
            opened = self._open()
            if lock is self._writing and opened.read_only:
                line = "can only be read; copy the store to where it can be written to"
                raise InputError(f"{self.address}: {line}")
            yield opened

    def _open(self) -> _Opened:
        """Return the opened database. Open that of the folder if another process has created it by
        now; open it again if this process can only read it and others have written.
        """
        check_process(self.address, self._opened.process)
        if self._closed:
            raise ValueError(f"{self.address}: this store is closed")
        if self._opened.facts is None or self._opened.stale:
            with self._reading:
                self._open_current()
        return self._opened

    def _open_current(self) -> None:
        """Open the folder's database, unless another thread was quicker."""
        if self._opened.stale:
            self._finalizer()  # first: a process that closes a file ends its locks on it
        elif self._opened.facts is not None:
            return
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

    def _created(self, n_bits: int) -> _Opened:
        """Return the opened database; create the store if it does not exist."""
        assert self._folder is not None
        if self._open().facts is None:
            with locked(self._folder.lock):
                if not self._folder.description.exists():
                    manifest = Manifest.new(self._new._replace(n_bits=n_bits))
                    path = self._folder.database
                    ItemsDatabase(path, manifest=manifest, stage=self.new_stage).close()
                    write_text(self._folder.description, manifest.to_json())
        self._common().check(self.address, self._new._replace(n_bits=n_bits))
        return self._opened


def open_folder(path: Path, new: Facts = _ANY, mapped: bool = False) -> EmbeddedStore:
    """Open the store in a folder, which may not exist yet; `StoreFolder` names its files.

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
    """Open the items of a code set as a read-only store in memory.

    >>> codes = {"image": np.array([[0], [7]], np.uint8)}
    >>> store = open_codes(CodeSet(["a", "b"], codes, None, n_bits=8))
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
    """Create an empty database in memory."""
    items = ItemsDatabase(None)
    layers = CodeLayers(items, facts.n_bits if facts else 0, None)
    return _Opened(facts, items, layers, items, None, os.getpid())


def _in_folder(folder: StoreFolder, manifest: Manifest) -> _Opened:
    """Open the database of a store, checked as `Guard` says. No lock holds up the owner of a store
    that can only be read: if it writes, opens or closes the store meanwhile, try again.
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
    """Close a database when nobody can be told of an error. If it is not sealed, the next opening
    checks it.
    """
    with suppress(InputError, JobError):
        opened.close()


def _near_outputs(
    parts: list[LayerPart], outputs: NDArray[Any], k: int | None, radius: int | None = None
) -> Iterator[tuple[Candidates, NDArray[Any]]]:
    """Yield the ``k`` rows nearest to the code of each query, or all, and its outputs."""
    matches = [part.nearest(pack(binarize(outputs)), k, radius) for part in parts]
    for query, row in enumerate(outputs):
        candidates = Candidates.of(parts, [of_part[query] for of_part in matches])
        if k is not None and k < len(candidates.rows):
            candidates = candidates.take(candidates.best(k, candidates.distances))
        yield candidates, row
