"""The store in a folder, and the same over a file of codes that is only read."""

import json
import shutil
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.codeset import CodeSet
from channelhash.errors import InputError
from channelhash.files import locked, write_text
from channelhash.search.checks import (
    check_codes,
    check_count,
    check_ids,
    check_metadata,
    codes_by_modality,
    searched_modality,
)
from channelhash.search.exact import Matches
from channelhash.search.filters import parse_filter
from channelhash.search.items_database import ItemsDatabase, State
from channelhash.search.sorted_codes import SortedCodes
from channelhash.search.store import Answers, Item, Metadata

_T = TypeVar("_T")

_FORMAT = "channelhash store 1"

# A snapshot is made again when the codes written and removed since are more than this, and more than this share of it.
_TAIL, _TAIL_SHARE = 10_000, 0.1
# Filters whose result is kept, each with one byte an item.
_MASKS = 16


@dataclass(frozen=True)
class Facts:
    """What all codes of a store have in common: code length and the fingerprint of their model."""

    n_bits: int
    model: str


@dataclass(frozen=True)
class _Part:
    """Codes that are searched together; ``alive`` leaves out those removed since."""

    codes: SortedCodes
    alive: NDArray[np.bool_] | None = None


@dataclass
class _View:
    """All codes as they were at one version: by modality a snapshot and what was written since. Never changed, but
    for the filters' results that are kept with it."""

    version: int
    snapshot: str
    parts: dict[str, list[_Part]]
    masks: dict[str, dict[str, list[NDArray[np.bool_]]]] = field(default_factory=dict)  # filter, modality, part


class EmbeddedStore:
    """A `Store` in a folder: ``items.sqlite`` is the record of truth, ``snapshot-…`` the codes as they are searched.

    Safe to call from several threads: one connection, which a lock gives to one of them at a time; codes are searched
    outside the lock. Several processes may read and write one folder: a search sees all that was written before it.

    Args:
        address: what `open_store` was given.
        folder: the store's folder, made at the first `add`; None for codes that are only read.
        facts: code length and model where they are known.
        database: the items, None as long as there are none.
        model_folder: where the model is.
    """

    def __init__(
        self,
        address: str,
        folder: Path | None,
        facts: Facts | None,
        database: ItemsDatabase | None,
        model: str = "",
        model_folder: Path | None = None,
    ) -> None:
        self._address = address
        self._folder = folder
        self._facts = facts
        self._database = database
        self._model = model
        self._model_folder = model_folder
        self._lock = threading.RLock()
        self._view = _View(-1, "", {})

    @property
    def address(self) -> str:
        return self._address

    @property
    def n_bits(self) -> int | None:
        self._look()
        return self._facts.n_bits if self._facts else None

    @property
    def model(self) -> str:
        self._look()
        return self._facts.model if self._facts else self._model

    @property
    def model_folder(self) -> Path | None:
        if self._folder is not None and (self._folder / "model" / "config.json").exists():
            return self._folder
        return self._model_folder

    @property
    def modalities(self) -> tuple[str, ...]:
        return self._read(lambda database: database.modalities(), ())

    @property
    def writable(self) -> bool:
        return self._folder is not None

    def __len__(self) -> int:
        return self._read(len, 0)

    def __contains__(self, item_id: object) -> bool:
        return isinstance(item_id, str) and self._read(lambda database: database.contains(item_id), False)

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
        with self._lock:
            self._check_writable()
            database = self._look()
            if database is None:
                return 0
            with database.writing():
                return database.delete(names)

    def get(self, ids: Sequence[str]) -> list[Item]:
        """See `Store.get`."""

        def items(database: ItemsDatabase) -> list[Item]:
            return [item for name in ids if (item := database.get(name))]

        found = self._read(items, [])
        there = {item.id for item in found}
        for name in ids:
            if name not in there:
                raise InputError(f"{self._address}: no item has the id {name!r}")
        return found

    def ids(self, where: str | None = None) -> list[str]:
        """See `Store.ids`."""

        def names(database: ItemsDatabase) -> list[str]:
            return database.ids(None if where is None else parse_filter(where, database.keys()))

        if where is not None and self._look() is None:
            parse_filter(where, ())
        return self._read(names, [])

    def search(self, codes: PackedCodes, k: int = 10, modality: str | None = None, where: str | None = None) -> Answers:
        """See `Store.search`."""
        count = check_count(k, "k", 1)

        def ask(part: SortedCodes, queries: PackedCodes, allowed: NDArray[np.bool_] | None) -> list[Matches]:
            return part.index.nearest(queries, min(count, len(part)), allowed)

        return self._search(ask, codes, modality, where, count)

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
        count = None if limit is None else check_count(limit, "limit", 1)

        def ask(part: SortedCodes, queries: PackedCodes, allowed: NDArray[np.bool_] | None) -> list[Matches]:
            return part.index.within(queries, bits, allowed, count)

        return self._search(ask, codes, modality, where, count)

    def label_counts(self) -> dict[str, int]:
        """See `Store.label_counts`."""
        return self._read(lambda database: database.label_counts(), {})

    def info(self) -> dict[str, Any]:
        """See `Store.info`."""
        with self._lock:
            view = self._current_view()
            whole = {m: parts[0].codes for m, parts in view.parts.items() if len(parts) == 1 and parts[0].alive is None}
            return {
                "address": self._address,
                "items": len(self),
                "n_bits": self.n_bits,
                "model": self.model,
                "codes": self._read(lambda database: database.code_counts(), {}),
                "distinct_codes": {modality: codes.index.n_distinct for modality, codes in whole.items()},
                "bytes": self._bytes(),
            }

    def close(self) -> None:
        """See `Store.close`. What was written is made quick to search for whoever opens the store next."""
        with self._lock:
            if self._database is not None:
                self._current_view()
                self._database.close()
                self._database, self._view = None, _View(-1, "", {})

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
        with self._lock:
            self._check_writable()
            self._look()
            by_modality, n_bits = codes_by_modality(codes, modality, len(names), self.n_bits)
            database = self._database or self._create(n_bits)
            with database.writing():
                database.write(names, by_modality, values, replace)

    def _search(
        self,
        ask: Callable[[SortedCodes, PackedCodes, NDArray[np.bool_] | None], list[Matches]],
        codes: PackedCodes,
        modality: str | None,
        where: str | None,
        limit: int | None,
    ) -> Answers:
        n_bits = self.n_bits
        queries = np.asarray(codes) if n_bits is None else check_codes(codes, n_bits, "queries")
        with self._lock:
            view = self._current_view(where)
            if not view.parts:
                return Answers([[] for _ in queries], [np.zeros(0, np.int64) for _ in queries])
            searched = searched_modality(modality, list(view.parts), self._address)
            parts = view.parts[searched]
            masks = [part.alive for part in parts] if where is None else view.masks[where][searched]
        found = [_named(part.codes, ask(part.codes, queries, mask)) for part, mask in zip(parts, masks, strict=True)]
        return _merged(found, len(queries), limit)

    def _current_view(self, where: str | None = None) -> _View:
        """The codes as they are now, with the result of a filter."""
        database = self._look()
        if database is None:
            if where is not None:
                parse_filter(where, ())
            return _View(0, "", {})
        while True:
            with database.reading() as state:
                if state.version == self._view.version or self._renew_view(database, state):
                    if where is not None and where not in self._view.masks:
                        self._add_masks(database, where)
                    return self._view
            self._make_snapshot(database, state.snapshot)

    def _renew_view(self, database: ItemsDatabase, state: State) -> bool:
        """Bring the view to ``state``. Returns False if that takes a new snapshot."""
        removed = database.removed()
        snapshot = {}
        if self._folder is not None:
            try:
                snapshot = self._load_snapshot(state.snapshot)
            except (OSError, ValueError):
                return False  # it was replaced by another process, or thrown away
            held = max(map(len, snapshot.values()), default=0)
            if database.tail_length(state.snapshot_serial) + len(removed) > max(_TAIL, _TAIL_SHARE * held):
                return False
        assert self._facts is not None
        parts: dict[str, list[_Part]] = {}
        for modality in database.modalities():
            tail = SortedCodes.build(database.codes(modality, state.snapshot_serial), self._facts.n_bits)
            parts[modality] = [_Part(tail)] if len(tail) else []
            if modality in snapshot:
                codes = snapshot[modality]
                gone = np.isin(codes.serials, removed) if len(removed) else np.zeros(0, bool)
                parts[modality].insert(0, _Part(codes, ~gone if gone.any() else None))
        self._view = _View(state.version, state.snapshot, parts)
        return True

    def _load_snapshot(self, name: str) -> dict[str, SortedCodes]:
        """modality -> its codes."""
        assert self._folder is not None
        if not name:
            return {}
        if name == self._view.snapshot:
            return {modality: parts[0].codes for modality, parts in self._view.parts.items()}
        return {folder.name: SortedCodes.load(folder) for folder in (self._folder / name).iterdir()}

    def _make_snapshot(self, database: ItemsDatabase, old: str) -> None:
        """Replace the snapshot ``old``, unless another process has done so."""
        assert self._folder is not None
        assert self._facts is not None
        with locked(self._folder / ".snapshot.lock"):
            name = f"snapshot-{uuid.uuid4().hex}"
            with database.reading() as state:
                if state.snapshot != old:
                    return
                removed, last = database.removed(), database.last_serial()
                for modality in database.modalities():
                    SortedCodes.build(database.codes(modality), self._facts.n_bits).save(self._folder / name / modality)
            with database.writing():
                database.set_snapshot(name, last)
                database.forget_removed(removed)
            for folder in self._folder.glob("snapshot-*"):
                if folder.name != name:
                    shutil.rmtree(folder)

    def _add_masks(self, database: ItemsDatabase, where: str) -> None:
        numbers = database.numbers(parse_filter(where, database.keys()))

        def mask(part: _Part) -> NDArray[np.bool_]:
            passing = np.isin(part.codes.items, numbers)
            return passing if part.alive is None else passing & part.alive

        masks = self._view.masks
        masks[where] = {modality: [mask(part) for part in parts] for modality, parts in self._view.parts.items()}
        while len(masks) > _MASKS:
            del masks[next(iter(masks))]

    def _look(self) -> ItemsDatabase | None:
        """The database, opened if another process has made the store meanwhile."""
        with self._lock:
            if self._database is None and self._folder is not None and (self._folder / "store.json").exists():
                self._facts = _read_facts(self._folder, self._facts, self._model)
                path = self._folder / "items.sqlite"
                if not path.exists():
                    raise InputError(f"{path}: is missing; restore it, or remove the folder and add the items again")
                self._database = ItemsDatabase(path)
            return self._database

    def _create(self, n_bits: int) -> ItemsDatabase:
        assert self._folder is not None
        with locked(self._folder / ".lock"):
            if self._look() is None:
                ItemsDatabase(self._folder / "items.sqlite").close()
                facts = {"format": _FORMAT, "n_bits": n_bits, "model": self._model}
                write_text(self._folder / "store.json", json.dumps(facts) + "\n")
        database = self._look()
        assert database is not None
        return database

    def _check_writable(self) -> None:
        if not self.writable:
            raise InputError(f"{self._address}: can only be read; make a store with `channelhash index create`")

    def _read(self, ask: Callable[[ItemsDatabase], _T], empty: _T) -> _T:
        """What the database says, or ``empty`` where there is none yet."""
        with self._lock:
            database = self._look()
            if database is None:
                return empty
            with database.reading():
                return ask(database)

    def _bytes(self) -> int:
        if self._folder is None or not self._folder.exists():
            return 0
        own = [entry for entry in self._folder.iterdir() if entry.name != "model"]
        files = [file for entry in own for file in (entry.rglob("*") if entry.is_dir() else [entry])]
        return sum(file.stat().st_size for file in files if file.is_file())


def open_folder(folder: Path, n_bits: int | None, model: str) -> EmbeddedStore:
    """The store in a folder, which may not be there yet.

    Raises:
        InputError: the folder holds something else, is damaged, or was made with another code length or model.
    """
    if folder.is_file():
        raise InputError(f"{folder}: is a file, not a store's folder")
    if folder.is_dir() and not (folder / "store.json").exists():
        foreign = [
            entry.name for entry in folder.iterdir() if not entry.name.startswith((".", "items.sqlite", "model"))
        ]
        if foreign:
            raise InputError(f"{folder}: holds {sorted(foreign)[0]}, but no store; choose a new folder")
    store = EmbeddedStore(str(folder), folder, Facts(n_bits, model) if n_bits else None, None, model)
    _ = store.n_bits  # opens what is there, so that errors come now
    return store


def open_codes(address: str, codes: CodeSet, model_folder: Path | None) -> EmbeddedStore:
    """A store of the items of a file of codes, to be read only.

    Raises:
        InputError: an id occurs twice.
    """
    ids = check_ids(codes.ids)
    metadata: list[Metadata] = []
    for row in range(len(ids)):
        values: dict[str, Any] = {}
        if codes.texts is not None:
            values["text"] = codes.texts[row]
        if codes.images is not None:
            values["image"] = codes.images[row]
        if codes.label_names:
            values["labels"] = codes.names_of(row)
        metadata.append(values)
    database = ItemsDatabase(None)
    with database.writing():
        database.write(ids, codes.codes, metadata if any(metadata) else None, replace=False)
    return EmbeddedStore(address, None, Facts(codes.n_bits, codes.model), database, codes.model, model_folder)


def _read_facts(folder: Path, wanted: Facts | None, model: str) -> Facts:
    """The facts of ``store.json``, if they are what is wanted."""
    path = folder / "store.json"
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        written_as = described["format"]
        facts = Facts(int(described["n_bits"]), str(described["model"]))
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path}: is damaged; restore it, or remove the folder and add the items again") from None
    if written_as != _FORMAT:
        raise InputError(f"{path}: written as {written_as!r}, this version reads {_FORMAT!r}; add the items again")
    if wanted is not None and wanted.n_bits != facts.n_bits:
        raise InputError(f"{folder}: holds codes of {facts.n_bits} bits, not {wanted.n_bits}")
    if model and model != facts.model:
        raise InputError(f"{folder}: holds codes of another model; codes of two models cannot be compared")
    return facts


def _named(codes: SortedCodes, found: list[Matches]) -> Answers:
    return Answers([codes.ids(match.rows) for match in found], [match.distances for match in found])


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
