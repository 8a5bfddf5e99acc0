"""The store in a collection of Milvus: a cluster, or the file of milvus-lite."""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.errors import InputError
from channelhash.search.filters import parse_filter
from channelhash.search.milvus import lite as milvus_lite
from channelhash.search.milvus.address import Index, MilvusAddress, connect, parse_address
from channelhash.search.milvus.collection import MAX_ANSWERS, ROWS, CollectionFacts, MilvusCollection
from channelhash.search.milvus.filters import ALL, known_keys, server_dialect, to_milvus
from channelhash.search.milvus.rows import MODALITIES, Row, is_storable, merged, to_item, to_row
from channelhash.search.store import Answers, Item, Metadata
from channelhash.search.validation import (
    DEFAULT_MODALITY,
    check_codes,
    check_count,
    check_ids,
    check_metadata,
    codes_by_modality,
    searched_modality,
)

# Answers of one request, over all its queries: some MB.
_ANSWERS_A_REQUEST = 200_000


class MilvusStore:
    """A `Store` in one collection of Milvus. See `milvus_rows` for how an item is kept.

    Every call reads what all earlier calls have written (consistency level "Strong"). What differs from the store in a
    folder, because Milvus has no transactions over several requests:

    * a call of `add`, `upsert` or `delete` with more than 1000 items (or 8 MB) is several requests. What is wrong with
      the input is found before the first of them, but where the server fails between two, the former ones stay; the
      error says so, and `upsert` or `delete` with the same items completes it;
    * two processes that add the same id, or metadata of the same item, at the same time may both succeed; the last one
      stays;
    * where more than ``k`` items tie at the last distance, Milvus chooses which of them it returns; what is returned is
      in order of distance and id.

    ``k``, and the items of one answer of `search_radius`, are at most 16,384. With the index BIN_IVF_FLAT searches are
    approximate.

    Args:
        address: which collection.
        client: a `pymilvus.MilvusClient`, which the store closes.
        n_bits: code length of a new collection; must be that of one that is there.
        model: fingerprint of the model whose codes go in.

    Raises:
        InputError: the collection is no store, or has another code length, model or index.
    """

    def __init__(self, address: MilvusAddress, client: Any, n_bits: int | None = None, model: str = "") -> None:
        self._address = address
        self._collection = MilvusCollection(address, client)
        self._n_bits = n_bits
        self._model = model
        self._fields: tuple[str, ...] = ()  # modalities that the collection has fields for; none before it is made
        self._in_use: tuple[str, ...] = ()  # modalities when last looked; asked for again where one is missing
        self._index = address.index or Index()
        self._stored_id = milvus_lite.stored_id if address.lite else str
        self._item_id = milvus_lite.item_id if address.lite else str
        self._lock = threading.RLock()
        self._look()

    @property
    def address(self) -> str:
        return self._address.text

    @property
    def n_bits(self) -> int | None:
        self._look()
        return self._n_bits

    @property
    def model(self) -> str:
        self._look()
        return self._model

    @property
    def model_folder(self) -> Path | None:
        return None

    @property
    def modalities(self) -> tuple[str, ...]:
        if not self._look():
            return ()
        return tuple(name for name in self._fields if self._collection.rows(f"has_{name} == true", ["id"], limit=1))

    @property
    def writable(self) -> bool:
        return True

    def __len__(self) -> int:
        return self._collection.count(ALL) if self._look() else 0

    def __contains__(self, item_id: object) -> bool:
        return isinstance(item_id, str) and bool(self._find([item_id], []))

    def add(
        self,
        ids: Sequence[str],
        codes: PackedCodes | Mapping[str, PackedCodes],
        modality: str | None = None,
        metadata: Sequence[Metadata] | None = None,
    ) -> None:
        """See `Store.add`, and `MilvusStore` for what cannot be promised."""
        self._write(ids, codes, modality, metadata, replace=False)

    def upsert(
        self,
        ids: Sequence[str],
        codes: PackedCodes | Mapping[str, PackedCodes],
        modality: str | None = None,
        metadata: Sequence[Metadata] | None = None,
    ) -> None:
        """See `Store.upsert`, and `MilvusStore` for what cannot be promised."""
        self._write(ids, codes, modality, metadata, replace=True)

    def delete(self, ids: Sequence[str]) -> int:
        """See `Store.delete`, and `MilvusStore` for what cannot be promised."""
        names = check_ids(ids)
        with self._lock:
            found = list(self._find(names, []))
            for start in range(0, len(found), ROWS):
                self._collection.delete(f"id in {self._collection.listed(found[start : start + ROWS])}")
            self._in_use = ()
        return len(found)

    def get(self, ids: Sequence[str]) -> list[Item]:
        """See `Store.get`."""
        found = self._items(ids)
        for name in ids:
            if name not in found:
                raise InputError(f"{self.address}: no item has the id {name!r}")
        return [found[name] for name in ids]

    def ids(self, where: str | None = None) -> list[str]:
        """See `Store.ids`."""
        expression = self._filter(where)
        if not self._look():
            return []
        return [self._item_id(row["id"]) for row in self._collection.walk(expression, ["id"])]

    def search(self, codes: PackedCodes, k: int = 10, modality: str | None = None, where: str | None = None) -> Answers:
        """See `Store.search`.

        Raises:
            InputError: ``k`` is more than 16,384, the most that Milvus returns.
        """
        return self._search(codes, self._check_answers(k, "k"), modality, where, {})

    def search_radius(
        self,
        codes: PackedCodes,
        radius: int,
        modality: str | None = None,
        where: str | None = None,
        limit: int | None = None,
    ) -> Answers:
        """See `Store.search_radius`.

        Raises:
            InputError: ``limit`` is more than 16,384, the most that Milvus returns; or there is none, and a query has
                that many items within ``radius``.
        """
        bits = check_count(radius, "radius", 0)
        count = MAX_ANSWERS if limit is None else self._check_answers(limit, "limit")
        # Milvus keeps what is nearer than its "radius".
        answers = self._search(codes, count, modality, where, {"radius": min(bits, self.n_bits or bits) + 1})
        if limit is None:
            for row, ids in enumerate(answers.ids):
                if len(ids) >= MAX_ANSWERS:
                    raise InputError(
                        f"{self.address}: query {row} has {MAX_ANSWERS:,} items or more within {radius} bits, the most"
                        f" that Milvus returns; ask for a smaller radius, or for the nearest with a limit"
                    )
        return answers

    def label_counts(self) -> dict[str, int]:
        """See `Store.label_counts`. Reads the labels of all items: Milvus does not count by value."""
        if not self._look():
            return {}
        counts = Counter(label for row in self._collection.walk(ALL, ["id", "labels"]) for label in set(row["labels"]))
        return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))

    def info(self) -> dict[str, Any]:
        """See `Store.info`; ``bytes`` of a milvus-lite file only."""
        return {
            "address": self.address,
            "items": len(self),
            "n_bits": self.n_bits,
            "model": self.model,
            "codes": {name: self._collection.count(f"has_{name} == true") for name in self.modalities},
            "index": self._index.kind,
            "bytes": Path(self._address.uri).stat().st_size if self._address.lite else None,
        }

    def close(self) -> None:
        """See `Store.close`. The server of a milvus-lite file ends with this process."""
        self._collection.close()

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
            by_modality, n_bits = codes_by_modality(codes, modality, len(names), self.n_bits)
            fields = self._fields or tuple(sorted({*MODALITIES, *by_modality}))
            for given in by_modality:
                if given not in fields:
                    raise InputError(
                        f"{self.address}: has fields for {' and '.join(fields)}, not for {given}; a collection's"
                        " modalities are settled when its first codes are added"
                    )
            former = self._items(names)
            rows = []
            for number, name in enumerate(names):
                old = former.get(name)
                for given in by_modality:
                    if not replace and old is not None and given in old.codes:
                        raise InputError(
                            f"{self.address}: {name!r} has a code for {given} already; replace it with upsert"
                        )
                own = {given: packed[number] for given, packed in by_modality.items()}
                item = merged(old, name, own, values[number] if values else {})
                rows.append(to_row(item, self._stored_id(name), fields, n_bits))
            if not self._look():
                facts = CollectionFacts(n_bits, self._model, self._index)
                self._collection.create(fields, facts)
                self._look()
            self._collection.upsert(rows)

    def _search(
        self, codes: PackedCodes, count: int, modality: str | None, where: str | None, radius: dict[str, int]
    ) -> Answers:
        n_bits = self.n_bits
        queries = np.asarray(codes) if n_bits is None else check_codes(codes, n_bits, "queries")
        expression = self._filter(where)
        if (modality or DEFAULT_MODALITY) not in self._in_use:
            self._in_use = self.modalities
        if not self._in_use:
            return Answers([[] for _ in queries], [np.zeros(0, np.int64) for _ in queries])
        searched = searched_modality(modality, self._in_use, self.address)
        chosen = f"has_{searched} == true" + ("" if where is None else f" and {expression}")
        params = radius if self._index.kind == "BIN_FLAT" else {**radius, "nprobe": self._index.n_probe}
        ids: list[list[str]] = []
        distances: list[NDArray[np.int64]] = []
        step = max(1, _ANSWERS_A_REQUEST // count)
        for start in range(0, len(queries), step):
            part = queries[start : start + step]
            for pairs in self._collection.nearest(searched, part, count, chosen, params):
                ids.append([self._item_id(stored) for _, stored in pairs])
                distances.append(np.array([distance for distance, _ in pairs], dtype=np.int64))
        return Answers(ids, distances)

    def _filter(self, where: str | None) -> str:
        """A filter as a Milvus expression."""
        if where is None:
            return ALL
        sets = self._key_sets() if self._look() else set()
        tree = parse_filter(where, known_keys(sets))
        if not self._address.lite:
            return to_milvus(tree, server_dialect(sets))
        if not sets:
            return ALL

        def passing(expression: str) -> list[str]:
            return [row["id"] for row in self._collection.walk(expression, ["id"])]

        def metadata() -> Iterator[tuple[str, Metadata]]:
            return ((row["id"], row["metadata"]) for row in self._collection.walk(ALL, ["id", "metadata"]))

        return to_milvus(tree, milvus_lite.dialect(sets, passing, metadata))

    def _key_sets(self) -> set[str]:
        """The different sets of metadata keys that items have: rows with others are asked for until there are none."""
        sets: set[str] = set()
        while True:
            unseen = f"keys not in {self._collection.listed(sorted(sets))}" if sets else ALL
            new = self._collection.rows(unseen, ["keys"])
            if not new:
                return sets
            sets |= {row["keys"] for row in new}

    def _items(self, ids: Sequence[str]) -> dict[str, Item]:
        """id -> item, of those that are there."""
        fields = [f"{kind}_{name}" for name in self._fields for kind in ("has", "code")]
        rows = self._find(ids, ["keys", "labels", "metadata", *fields])
        return {name: to_item(row, name) for name, row in ((self._item_id(key), row) for key, row in rows.items())}

    def _find(self, ids: Sequence[str], fields: Sequence[str]) -> dict[str, Row]:
        """Stored id -> its row, of those that are there."""
        if not self._look():
            return {}
        # An id that has no UTF-8 form is nowhere.
        stored = [self._stored_id(name) for name in ids if is_storable(name)]
        found = {}
        for start in range(0, len(stored), ROWS):
            chosen = f"id in {self._collection.listed(stored[start : start + ROWS])}"
            found.update({row["id"]: row for row in self._collection.rows(chosen, ["id", *fields])})
        return found

    def _look(self) -> bool:
        """Whether the collection is there; if so, what it says of itself is known afterwards."""
        if self._fields:
            return True
        with self._lock:
            description = self._collection.description()
            if description is None:
                return False
            facts, modalities = description
            if self._n_bits not in (None, facts.n_bits):
                raise InputError(f"{self.address}: holds codes of {facts.n_bits} bits, not {self._n_bits}")
            if self._model and self._model != facts.model:
                raise InputError(
                    f"{self.address}: holds codes of another model; codes of two models cannot be compared"
                )
            wanted = self._address.index
            if wanted and (wanted.kind, wanted.n_lists) != (facts.index.kind, facts.index.n_lists):
                raise InputError(
                    f"{self.address}: the collection is indexed by {facts.index.kind} with nlist={facts.index.n_lists};"
                    " leave the options out, or choose a new collection"
                )
            self._collection.load()
            self._n_bits, self._model, self._index = facts.n_bits, facts.model, wanted or facts.index
            self._fields = modalities
        return True

    def _check_answers(self, value: int, what: str) -> int:
        count = check_count(value, what, 1)
        if count > MAX_ANSWERS and len(self) > MAX_ANSWERS:
            raise InputError(f"{self.address}: {what} is {count:,}; Milvus returns at most {MAX_ANSWERS:,} items")
        return min(count, MAX_ANSWERS)


def open_milvus(address: str, n_bits: int | None, model: str) -> MilvusStore:
    """The store at an address that begins with ``milvus+``; the collection is made at the first `add`.

    Raises:
        InputError: the address has another form, nothing answers, or what is there is another store.
    """
    parsed = parse_address(address)
    return MilvusStore(parsed, connect(parsed), n_bits, model)
