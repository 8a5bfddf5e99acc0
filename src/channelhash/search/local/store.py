"""The store in a folder, and the same over a file of codes that is only read."""

import threading
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.codes.code_set import CodeSet
from channelhash.errors import InputError, JobError
from channelhash.search.filters import Filter
from channelhash.search.fusion import Ranking
from channelhash.search.items import IndexingRun
from channelhash.search.local.answering import nearest, scored, surest, within
from channelhash.search.local.database import ItemsDatabase
from channelhash.search.local.folder import Facts, StoreFolder, check_opened, read_facts, write_facts
from channelhash.search.local.indexing_run import read_run
from channelhash.search.local.opened import Opened, close_quietly, in_folder, in_memory
from channelhash.search.local.parts import count_codes, read_codes, sample_codes
from channelhash.search.local.row_values import metadata_of
from channelhash.search.local.snapshots import Part
from channelhash.search.projections import Scored
from channelhash.search.rerank import Surest
from channelhash.search.store import Answers, Item, Listed, Store
from channelhash.search.validation import Metadata, check_ids
from channelhash.utils.exhausted import check_exhausted
from channelhash.utils.files import locked
from channelhash.utils.forks import tell_of_fork

_LISTED_AT_ONCE = 10_000  # items; between them, others may write
_ANY = Facts(0, "")


class EmbeddedStore(Store):
    """A `Store` in one process, over SQLite; `open_folder` and `open_codes` make it.

    Reading calls of several threads take turns on one connection, writing calls on another, and codes are searched
    outside both locks. Several processes may read and write one folder: a search sees all that was written before it
    began.

    Args:
        address: what `open_store` was given.
        folder: where the store lies or will lie; None if it is only read.
        opened: the items; of a folder's store, none.
        new: what a new store will have, and one that is there must have; of length 0 where any will do.
        model_folder: where the model is, if not in ``folder``.

    >>> store = open_codes(CodeSet(["a"], {"image": np.array([[7]], np.uint8)}, None, n_bits=8))
    >>> len(store), store.writable
    (1, False)
    """

    def __init__(
        self,
        address: str,
        folder: StoreFolder | None,
        opened: Opened,
        new: Facts = _ANY,
        model_folder: Path | None = None,
    ) -> None:
        super().__init__(address)
        self._folder = folder
        self._opened: Opened | None = opened  # None in a forked child until its next call
        self._new = new
        self._model_folder = model_folder
        self._reading = threading.RLock()
        self._writing = threading.RLock()
        self._wrote = self._closed = False
        # Also of a store that nobody closes, at the latest when the process ends: an unsealed one is checked anew.
        self._finalizer = weakref.finalize(self, close_quietly, opened)
        self._problem = ""
        self._open()
        tell_of_fork(self)

    @property
    def n_bits(self) -> int | None:
        facts = self._open().facts
        return facts.n_bits if facts else self._new.n_bits or None

    @property
    def model(self) -> str:
        facts = self._open().facts
        return facts.model if facts else self._new.model

    @property
    def projected(self) -> bool:
        return (self._open().facts or self._new).projected

    @property
    def modalities(self) -> tuple[str, ...]:
        with self._items() as items:
            return items.modalities()

    @property
    def model_folder(self) -> Path | None:
        if self._folder is not None and (self._folder.model / "config.json").exists():
            return self._folder.path
        return self._model_folder

    @property
    def writable(self) -> bool:
        return self._folder is not None and self._folder.writable

    @property
    def version(self) -> int:
        """A number that grows with every write."""
        with self._reading, self._open().reader.reading() as state:
            return state.version

    def __len__(self) -> int:
        with self._items() as items:
            return len(items)

    def indexing_run(self) -> IndexingRun | None:
        return read_run(self._folder.path) if self._folder else None

    def label_counts(self) -> dict[str, int]:
        with self._items() as items:
            return items.label_counts()

    @property
    def has_words(self) -> bool:
        return self._open().reader.has_words

    def make(self) -> None:
        with self._writing:
            self._created(self._new.n_bits)

    def make_snapshot(self) -> None:
        """Make a new snapshot of all codes now."""
        with self._reading:
            opened = self._open()
            with opened.reader.reading() as state:
                pass
            opened.layers.make_snapshot(state.snapshot)

    def close(self) -> None:
        """Close the store. If anything was written, make the snapshot that the next search would make."""
        with self._writing, self._reading:
            if self._closed:
                return
            self._closed = True
            try:
                if self._wrote and self._opened:
                    self._opened.layers.settle()
            finally:
                self._finalizer.detach()
                if self._opened:
                    self._opened.close()

    def after_fork(self) -> None:
        """Give a forked child connections of its own, at its next call, and locks that no thread holds.

        Not before: a thread may have been inside SQLite, whose own locks then stay held in the child for ever.
        """
        was_idle = self._reading.acquire(blocking=False)
        self._reading, self._writing, self._wrote = threading.RLock(), threading.RLock(), False
        if self._folder is not None:
            self._finalizer.detach()
            if self._opened:
                self._opened.abandon()
            self._opened = None
        elif not was_idle:
            self._problem = "another thread searched in it when this process was forked; open it again"

    def _keys(self) -> Collection[str]:
        with self._items() as items:
            return items.keys()

    def _ids(self, where: Filter | None) -> list[str]:
        with self._items() as items:
            return items.ids(where)

    def _get(self, ids: list[str]) -> Mapping[str, Item]:
        with self._items() as items:
            return items.get(ids)

    def _listed(self) -> Iterator[Listed]:
        last = -1
        while True:
            with self._items() as items:
                found = items.listed(last, _LISTED_AT_ONCE)
            if not found:
                return
            yield from (item for _, item in found)
            last = found[-1][0]

    def metadata(self, keys: Sequence[str]) -> Iterator[tuple[str, Metadata]]:
        last = -1
        while True:
            with self._items() as items:
                found = items.metadata(keys, last, _LISTED_AT_ONCE)
            if not found:
                return
            yield from ((name, values) for _, name, values in found)
            last = found[-1][0]

    def _write(
        self,
        ids: list[str],
        codes: dict[str, PackedCodes],
        n_bits: int,
        metadata: list[Metadata] | None,
        replace: bool,
        projections: dict[str, NDArray[np.int8]] | None = None,
    ) -> None:
        with self._writing:
            items = self._created(n_bits).writer
            with items.writing():
                items.write(ids, codes, metadata, replace, projections)
            self._wrote = True

    def _delete(self, ids: list[str]) -> int:
        with self._writing:
            items = self._open().writer
            with items.writing():
                n_deleted = items.delete(ids)
            self._wrote = True
            return n_deleted

    def _nearest(self, queries: PackedCodes, k: int, modality: str, where: Filter | None) -> Answers:
        return nearest(self._parts(modality, where), queries, k)

    def _within(
        self, queries: PackedCodes, radius: int, limit: int | None, modality: str, where: Filter | None
    ) -> Answers:
        return within(self._parts(modality, where), queries, radius, limit)

    def _surest(
        self,
        outputs: NDArray[Any],
        k: int | None,
        first: int | None,
        radius: int | None,
        modality: str,
        where: Filter | None,
    ) -> Surest:
        return surest(self._parts(modality, where), outputs, k, first, radius)

    def _scored(self, outputs: NDArray[Any], k: int, first: int | None, modality: str, where: Filter | None) -> Scored:
        return scored(self._parts(modality, where), outputs, k, first)

    def _all_codes(self, modality: str, where: Filter | None) -> tuple[list[str], PackedCodes]:
        return read_codes(self._parts(modality, where), self.n_bits or 0)

    def count(self, modality: str) -> int | None:
        return count_codes(self._parts(modality, None))

    def sample(self, n: int, modality: str) -> tuple[list[str], PackedCodes]:
        return sample_codes(self._parts(modality, None), self.n_bits or 0, n)

    def _search_words(self, text: str, without: Sequence[str], k: int, where: Filter | None, least: float) -> Ranking:
        with self._items() as items:
            return items.search_words(text, without, k, where, least)

    def _facts(self) -> dict[str, Any]:
        """``distinct_codes`` leaves out modalities of which codes were written a short time ago."""
        with self._items() as items:
            codes = items.code_counts()
        distinct = {
            modality: parts[0].codes.index.n_distinct
            for modality in codes
            if len(parts := self._parts(modality, None)) == 1 and parts[0].allowed is None
        }
        facts: dict[str, Any] = {"codes": codes, "distinct_codes": distinct}
        stem = (self._open().facts or self._new).stem
        return {**facts, "bytes": self._folder.n_bytes() if self._folder else None, **({"stem": stem} if stem else {})}

    def _parts(self, modality: str, where: Filter | None) -> list[Part]:
        """Return the codes of a modality to search, of the items that pass a filter."""
        with self._reading:
            return self._open().layers.parts(modality, where)

    @contextmanager
    def _items(self) -> Iterator[ItemsDatabase]:
        """Yield the items as they are now."""
        with self._reading:
            items = self._open().reader
            with items.reading():
                yield items

    def _open(self) -> Opened:
        """Return the items, also those of a store that another process has made since."""
        with self._reading:
            if self._closed:
                raise ValueError(f"{self.address}: this store is closed")
            if self._problem:
                raise JobError(f"{self.address}: {self._problem}")
            if self._opened is None:
                self._opened = in_memory(None)
                self._finalizer = weakref.finalize(self, close_quietly, self._opened)
            if self._opened.facts is None and self._folder is not None and self._folder.description.exists():
                facts = read_facts(self._folder)
                check_opened(self.address, facts, self._new)
                self._opened = in_folder(self._folder, facts)
                self._finalizer()
                self._finalizer = weakref.finalize(self, close_quietly, self._opened)
                self._opened.layers.remove_leftovers()
            return self._opened

    def _created(self, n_bits: int) -> Opened:
        """Return the items; make the store if it is not there."""
        assert self._folder is not None
        if self._open().facts is None:
            with locked(self._folder.lock):
                if not self._folder.description.exists():
                    _check_empty(self._folder)
                    ItemsDatabase(self._folder.database, stem=self._new.stem).close()
                    write_facts(self._folder, self._new._replace(n_bits=n_bits))
        opened = self._open()
        assert opened.facts is not None
        check_opened(self.address, opened.facts, self._new._replace(n_bits=n_bits))
        return opened


def open_folder(path: Path, new: Facts = _ANY, mapped: bool = False) -> EmbeddedStore:
    """Open the store in a folder, which may not be there yet; `StoreFolder` names its files.

    Args:
        path: the folder.
        new: as of `EmbeddedStore`.
        mapped: as of `StoreFolder`.

    Raises:
        InputError: the folder holds something else, is damaged, or was made otherwise.
        JobError: too many files are open.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_folder(Path(folder) / "photos.store", Facts(n_bits=8, model=""))
    ...     len(store), store.writable
    (0, True)
    """
    folder = StoreFolder(path, mapped)
    try:
        folder.check_own()
        _check_empty(folder)
        return EmbeddedStore(str(path), folder, in_memory(None), new)
    except OSError as error:
        check_exhausted(error, path)
        raise


def open_codes(
    codes: CodeSet, address: str = "codes", model_folder: Path | None = None, n_bits: int | None = None, model: str = ""
) -> EmbeddedStore:
    """Open the items of a code set as a store in memory that is only read.

    Raises:
        InputError: an id occurs twice, or the codes have another length or model.

    >>> store = open_codes(CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, None, n_bits=8))
    >>> store.search(np.array([[6]], np.uint8), k=1).ids
    [['b']]
    """
    facts = Facts(codes.n_bits, codes.model)
    check_opened(address, facts, Facts(n_bits or 0, model))
    opened = in_memory(facts)
    try:
        ids = check_ids(codes.ids)
    except InputError as error:
        raise InputError(f"{address}: {error}") from None
    with opened.writer.writing():
        opened.writer.write(ids, codes.codes, metadata_of(codes), replace=False)
    return EmbeddedStore(address, None, opened, model_folder=model_folder)


def _check_empty(folder: StoreFolder) -> None:
    """Raise `InputError` if the database holds items although the description is missing."""
    if folder.description.exists() or not folder.database.exists():
        return
    items = ItemsDatabase(folder.database)
    try:
        with items.reading() as state:
            if state.version and not folder.description.exists():
                raise folder.damaged("is missing")
    finally:
        items.close()
