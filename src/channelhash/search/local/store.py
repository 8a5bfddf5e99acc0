"""The store in a folder, and the same over a file of codes that is only read."""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.codes.code_set import CodeSet
from channelhash.errors import InputError
from channelhash.search.filters import parse_filter
from channelhash.search.index import CodeIndex
from channelhash.search.index.brute_force import Matches
from channelhash.search.local.database import ItemsDatabase
from channelhash.search.local.folder import Facts, StoreFolder, read_facts, write_facts
from channelhash.search.local.snapshots import CodeLayers, Part
from channelhash.search.store import Answers, Item, Metadata
from channelhash.search.validation import (
    check_codes,
    check_count,
    check_ids,
    check_metadata,
    codes_by_modality,
    is_text,
    searched_modality,
)
from channelhash.utils.files import locked

_T = TypeVar("_T")
_Ask = Callable[[CodeIndex, PackedCodes, NDArray[np.bool_] | None], list[Matches]]


class _Opened(NamedTuple):
    """The items of a store and how to get at them.

    Attributes:
        facts: what the codes have in common; None as long as there is nothing in the folder.
        reader: the connection of reading calls.
        layers: the codes as they are searched, over the reader.
        writer: the connection of writing calls; the reader where nothing is written.
    """

    facts: Facts | None
    reader: ItemsDatabase
    layers: CodeLayers
    writer: ItemsDatabase


class EmbeddedStore:
    """A `Store` in one process, over SQLite; `open_folder` and `open_codes` make it.

    Safe to call from several threads: reading calls take turns on one connection, writing calls on another, and codes
    are searched outside both locks. Several processes may read and write one folder: a search sees all that was
    written before it began.

    Args:
        address: what `open_store` was given.
        folder: where the store lies or will lie; None if it is only read.
        opened: the items; of a folder's store, none.
        n_bits, model: what a new store will have, and one that is there must have.
        model_folder: where the model is, if not in ``folder``.
    """

    def __init__(
        self,
        address: str,
        folder: StoreFolder | None,
        opened: _Opened,
        n_bits: int | None = None,
        model: str = "",
        model_folder: Path | None = None,
    ) -> None:
        self._address = address
        self._folder = folder
        self._opened = opened
        self._n_bits = n_bits
        self._model = model
        self._model_folder = model_folder
        self._reading = threading.RLock()
        self._writing = threading.RLock()
        self._wrote = self._closed = False
        self._open()

    @property
    def address(self) -> str:
        """See `Store.address`."""
        return self._address

    @property
    def n_bits(self) -> int | None:
        """See `Store.n_bits`."""
        facts = self._open().facts
        return facts.n_bits if facts else self._n_bits

    @property
    def model(self) -> str:
        """See `Store.model`."""
        facts = self._open().facts
        return facts.model if facts else self._model

    @property
    def model_folder(self) -> Path | None:
        """See `Store.model_folder`."""
        if self._folder is not None and (self._folder.model / "config.json").exists():
            return self._folder.path
        return self._model_folder

    @property
    def modalities(self) -> tuple[str, ...]:
        """See `Store.modalities`."""
        return self._ask(ItemsDatabase.modalities)

    @property
    def writable(self) -> bool:
        """See `Store.writable`."""
        return self._folder is not None

    def __len__(self) -> int:
        return self._ask(len)

    def __contains__(self, item_id: object) -> bool:
        return is_text(item_id) and self._ask(lambda items: items.contains(str(item_id)))

    def add(
        self,
        ids: Sequence[str],
        codes: PackedCodes | Mapping[str, PackedCodes],
        modality: str | None = None,
        metadata: Sequence[Metadata] | None = None,
    ) -> None:
        """See `Store.add`."""
        self._write(ids, codes, modality, metadata, replace=False)

    def upsert(
        self,
        ids: Sequence[str],
        codes: PackedCodes | Mapping[str, PackedCodes],
        modality: str | None = None,
        metadata: Sequence[Metadata] | None = None,
    ) -> None:
        """See `Store.upsert`."""
        self._write(ids, codes, modality, metadata, replace=True)

    def delete(self, ids: Sequence[str]) -> int:
        """See `Store.delete`."""
        names = check_ids(ids)
        with self._writing:
            self._check_writable()
            items = self._open().writer
            self._wrote = True
            with items.writing():
                return items.delete(names)

    def get(self, ids: Sequence[str]) -> list[Item]:
        """See `Store.get`."""
        names = list(ids)
        found = self._ask(lambda items: [items.get(name) if is_text(name) else None for name in names])
        for name, item in zip(names, found, strict=True):
            if item is None:
                raise InputError(f"{self._address}: no item has the id {name!r}")
        return [item for item in found if item]

    def ids(self, where: str | None = None) -> list[str]:
        """See `Store.ids`."""

        def passing(items: ItemsDatabase) -> list[str]:
            return items.ids(None if where is None else parse_filter(where, items.keys()))

        return self._ask(passing)

    def search(self, codes: PackedCodes, k: int = 10, modality: str | None = None, where: str | None = None) -> Answers:
        """See `Store.search`."""
        limit = check_count(k, "k", 1)
        return self._search(
            lambda index, queries, allowed: index.nearest(queries, min(limit, len(index)), allowed),
            codes,
            modality,
            where,
            limit,
        )

    def search_radius(
        self,
        codes: PackedCodes,
        radius: int,
        modality: str | None = None,
        where: str | None = None,
        limit: int | None = None,
    ) -> Answers:
        """See `Store.search_radius`."""
        bits = check_count(radius, "radius", 0)
        most = None if limit is None else check_count(limit, "limit", 1)
        return self._search(
            lambda index, queries, allowed: index.within(queries, bits, allowed, most and min(most, len(index))),
            codes,
            modality,
            where,
            most,
        )

    def label_counts(self) -> dict[str, int]:
        """See `Store.label_counts`."""
        return self._ask(ItemsDatabase.label_counts)

    def info(self) -> dict[str, Any]:
        """See `Store.info`. ``distinct_codes`` leaves out modalities of which codes were written a short time ago."""
        distinct = {
            modality: parts[0].codes.index.n_distinct
            for modality, parts in self._parts(None).items()
            if len(parts) == 1 and parts[0].allowed is None
        }
        return {
            "address": self._address,
            "items": len(self),
            "n_bits": self.n_bits,
            "model": self.model,
            "codes": self._ask(ItemsDatabase.code_counts),
            "distinct_codes": distinct,
            "bytes": self._folder.n_bytes() if self._folder else None,
        }

    def close(self) -> None:
        """See `Store.close`. If anything was written, the snapshot is made that the next search would make."""
        with self._writing, self._reading:
            if self._closed:
                return
            self._closed = True
            try:
                if self._wrote:
                    self._opened.layers.settle()
            finally:
                self._opened.reader.close()
                self._opened.writer.close()

    def _write(
        self,
        ids: Sequence[str],
        codes: PackedCodes | Mapping[str, PackedCodes],
        modality: str | None,
        metadata: Sequence[Metadata] | None,
        replace: bool,
    ) -> None:
        names = check_ids(ids)
        values = check_metadata(metadata, names)
        with self._writing:
            self._check_writable()
            by_modality, n_bits = codes_by_modality(codes, modality, len(names), self.n_bits)
            items = self._created(n_bits).writer
            self._wrote = True
            with items.writing():
                items.write(names, by_modality, values, replace)

    def _search(
        self, ask: _Ask, codes: PackedCodes, modality: str | None, where: str | None, limit: int | None
    ) -> Answers:
        n_bits = self.n_bits
        queries = np.asarray(codes) if n_bits is None else check_codes(codes, n_bits, "queries")
        parts = self._parts(where)
        if not parts:
            return Answers([[] for _ in queries], [np.zeros(0, np.int64) for _ in queries])
        searched = parts[searched_modality(modality, list(parts), self._address)]
        found = []
        for part in searched:
            matches = ask(part.codes.index, queries, part.allowed)
            ids = [part.codes.ids(match.rows) for match in matches]
            found.append(Answers(ids, [match.distances for match in matches]))
        return _merged(found, len(queries), limit)

    def _parts(self, where: str | None) -> dict[str, list[Part]]:
        """modality -> the codes to search, of the items that pass a filter."""
        with self._reading:
            return self._open().layers.parts(where)

    def _ask(self, question: Callable[[ItemsDatabase], _T]) -> _T:
        """What the items say to a question."""
        with self._reading:
            items = self._open().reader
            with items.reading():
                return question(items)

    def _open(self) -> _Opened:
        """The items, also those of a store that another process has made since."""
        with self._reading:
            if self._closed:
                raise ValueError(f"{self._address}: this store is closed")
            if self._opened.facts is None and self._folder is not None and self._folder.description.exists():
                facts = read_facts(self._folder)
                facts.check_wanted(self._address, self._n_bits, self._model)
                reader, writer = ItemsDatabase(self._folder.database), ItemsDatabase(self._folder.database)
                self._opened = _Opened(facts, reader, CodeLayers(reader, facts.n_bits, self._folder), writer)
            return self._opened

    def _created(self, n_bits: int) -> _Opened:
        """The items; the store is made if it is not there."""
        assert self._folder is not None
        if self._open().facts is None:
            with locked(self._folder.lock):
                if not self._folder.description.exists():
                    ItemsDatabase(self._folder.database).close()
                    write_facts(self._folder, Facts(n_bits, self._model))
        opened = self._open()
        assert opened.facts is not None
        opened.facts.check_wanted(self._address, n_bits, self._model)
        return opened

    def _check_writable(self) -> None:
        if not self.writable:
            raise InputError(f"{self._address}: can only be read; add items to a store's folder")


def open_folder(path: Path, n_bits: int | None, model: str) -> EmbeddedStore:
    """The store in a folder, which may not be there yet; its files are those of `store_folder`.

    Raises:
        InputError: the folder holds something else, is damaged, or was made with another code length or model.
    """
    folder = StoreFolder(path)
    folder.check_own()
    return EmbeddedStore(str(path), folder, _in_memory(None), n_bits, model)


def open_codes(
    codes: CodeSet, address: str = "codes", model_folder: Path | None = None, n_bits: int | None = None, model: str = ""
) -> EmbeddedStore:
    """Open the items of a code set as a store in memory that is only read.

    Raises:
        InputError: an id occurs twice, or the codes have another length or model.
    """
    facts = Facts(codes.n_bits, codes.model)
    facts.check_wanted(address, n_bits, model)
    opened = _in_memory(facts)
    try:
        ids = check_ids(codes.ids)
    except InputError as error:
        raise InputError(f"{address}: {error}") from None
    with opened.writer.writing():
        opened.writer.write(ids, codes.codes, _metadata(codes), replace=False)
    return EmbeddedStore(address, None, opened, model_folder=model_folder)


def _in_memory(facts: Facts | None) -> _Opened:
    items = ItemsDatabase(None)
    return _Opened(facts, items, CodeLayers(items, facts.n_bits if facts else 0, None), items)


def _metadata(codes: CodeSet) -> list[Metadata] | None:
    """What a file of codes knows of its items; an empty text or path is an unknown one."""
    if codes.texts is None and codes.images is None and not codes.label_names:
        return None
    metadata: list[dict[str, Any]] = [{} for _ in codes.ids]
    for key, column in (("text", codes.texts), ("image", codes.images)):
        for values, value in zip(metadata, column or (), strict=False):
            if value:
                values[key] = value
    if codes.labels is not None and codes.label_names:
        for row, label in np.argwhere(codes.labels).tolist():
            metadata[row].setdefault("labels", []).append(codes.label_names[label])
    return list(metadata)


def _merged(found: list[Answers], n_queries: int, limit: int | None) -> Answers:
    """The answers of several parts as one, by distance, then by id."""
    if len(found) == 1:
        return found[0]
    ids: list[list[str]] = []
    distances = []
    for query in range(n_queries):
        pairs = sorted(
            pair for part in found for pair in zip(part.distances[query].tolist(), part.ids[query], strict=True)
        )[:limit]
        ids.append([name for _, name in pairs])
        distances.append(np.array([distance for distance, _ in pairs], dtype=np.int64))
    return Answers(ids, distances)
