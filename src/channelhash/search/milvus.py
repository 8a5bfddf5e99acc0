"""``milvus``: a collection of Milvus: milvus+http://host:19530/name

A row holds an item's code of one modality. So a collection has a single field of vectors, as Milvus
2.3 requires, and modalities can be added later. Each row of an item holds all its metadata, which
filters test; all rows of an item are written in one request. Items are counted by ``first``, which
is true in one row of each.
"""

import json
import logging
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from channelhash.codes import PackedCodes
from channelhash.errors import InputError, JobError
from channelhash.search.checks import check_format, check_process
from channelhash.search.filters import Condition, Filter, passes
from channelhash.search.items import Facts, NewItems, Value, by_count
from channelhash.search.milvus_filters import ALL, quote, to_milvus
from channelhash.search.store import Answers, Item, Scope, Store
from channelhash.utils.optional_imports import library

#: The environment variable with the token of a server; unlike an address, it stays out of logs.
_TOKEN_VARIABLE = "MILVUS_TOKEN"
#: What the description of a collection says of its form.
_FORMAT = "channelhash milvus 3"

#: Bytes of the longest string that Milvus takes, see https://milvus.io/docs/limitations.md.
_MAX_STRING = 65_535
#: Labels of an item; Milvus's own limit on the entries of an array.
_MAX_LABELS = 4_096
#: Rows that Milvus returns of one query or search.
_MAX_ANSWERS = 16_384
#: Rows, or ids, of one request.
_ROWS = 1000
#: Bytes of one request; servers refuse more than 64 MB.
_BYTES = 8_000_000
#: Answers of all queries in one request: some MB.
_ANSWERS = 200_000
#: Seconds after which a server counts as not there.
_CONNECT_SECONDS = 10
#: Seconds that a request may take.
_REQUEST_SECONDS = 60.0

#: Holds for one row of each item.
_FIRST = "first == true"

_Row = dict[str, Any]


class MilvusStore(Store):
    """A `Store` in one collection of Milvus.

    Every call reads what all earlier calls have written (consistency level "Strong"). Milvus has no
    transactions over several requests, so it differs from the store in a folder:

    * A call of `add`, `upsert` or `delete` with more than 1000 items or 8 MB sends several
      requests. Wrong input is found before the first of them. If the server fails between two, the
      earlier ones stay; the error says so, and repeating the call as `upsert` or `delete` completes
      it.
    * Two processes that add the same id, or metadata of the same item, at the same time may both
      succeed; the last one wins.
    * If more than ``k`` items tie at the last distance, Milvus chooses which of them it returns.
      What it returns is in order of distance and id.

    In a collection of more than 16,384 items, ``k`` and the answers of `search_radius` to one query
    are limited to that many.
    """

    def __init__(self, address: str, new: Facts) -> None:
        super().__init__(address, new)
        uri, self._name = _parse_address(address)
        self._client = _connect(uri, address)
        self._process = os.getpid()
        self._stored: Facts | None = None
        # Read by `_keys`, with which every call with a filter begins.
        self._key_sets: set[str] = set()
        self._lock = threading.RLock()
        self._look()

    @property
    def modalities(self) -> tuple[str, ...]:
        return tuple(sorted(self._distinct("modality")))

    def __len__(self) -> int:
        return self._count(_FIRST)

    def label_counts(self) -> dict[str, int]:
        """Count the labels of all items, which are read: Milvus does not count by value."""
        counts = Counter[str]()
        for row in self._walk(_FIRST, ["key", "labels"]):
            counts.update(set(row["labels"]))
        return by_count(counts)

    def close(self) -> None:
        """Close the connection, if it is this process's."""
        if os.getpid() == self._process:
            self._client.close()

    def _common(self) -> Facts:
        return self._look() or self._new

    def _keys(self) -> Collection[str]:
        self._key_sets = self._distinct("keys")
        return set(chain.from_iterable(map(json.loads, self._key_sets)))

    def _ids(self, where: Filter | None) -> list[str]:
        rows = self._walk(f"{_FIRST} and {self._expression(where)}", ["key"])
        return sorted(_item_id(row["key"]) for row in rows)

    def _get(self, ids: list[str]) -> Mapping[str, Item]:
        items: dict[str, Item] = {}
        for row in self._rows_of(ids, ["modality", "keys", "labels", "metadata", "code"]):
            metadata: dict[str, Value] = dict(row["metadata"])
            if "labels" in json.loads(row["keys"]):
                metadata["labels"] = list(row["labels"])
            name = _item_id(row["key"])
            item = items.setdefault(name, Item(name, {}, metadata))
            item.codes[row["modality"]] = np.frombuffer(row["code"][0], np.uint8)
        return items

    def _write(self, new: NewItems) -> None:
        with self._alone():
            rows = [_to_rows(item) for item in new.merge(self._get(new.ids), self.address)]
            if not self._look():
                self._create(new.n_bits)
                self._look()
            sent = 0
            for part in _requests(rows):
                action = f"upsert, after {sent:,} of {len(rows):,} items were written"
                self._ask(action, self._client.upsert, data=list(chain.from_iterable(part)))
                sent += len(part)

    def _delete(self, ids: list[str]) -> int:
        with self._alone():
            names = sorted({_item_id(row["key"]) for row in self._rows_of(ids, [])})
            for start in range(0, len(names), _ROWS):
                among = f"id in {quote(names[start : start + _ROWS])}"
                self._ask("delete", self._client.delete, filter=among)
        return len(names)

    def _search(
        self, queries: PackedCodes, radius: int | None, limit: int | None, scope: Scope
    ) -> Answers:
        count = limit or _MAX_ANSWERS
        if count > _MAX_ANSWERS:
            self._check_items("k" if radius is None else "limit", count)
            count = _MAX_ANSWERS
        options = self._search_options(radius, count, scope)
        answers = Answers([], [])
        step = max(1, _ANSWERS // count)
        for start in range(0, len(queries), step):
            data = [query.tobytes() for query in queries[start : start + step]]
            for hits in self._ask("search", self._client.search, data=data, **options):
                if limit is None and len(hits) >= _MAX_ANSWERS:
                    most = f"{_MAX_ANSWERS:,} items or more within {radius} bits"
                    raise InputError(
                        f"{self.address}: query {len(answers.ids)} has {most}; set a limit"
                    )
                _add_answer(answers, hits)
        return answers

    def _search_options(self, radius: int | None, count: int, scope: Scope) -> dict[str, Any]:
        params = {}
        if radius is not None:
            # Milvus returns what is nearer than its "radius".
            params["radius"] = min(radius, self.n_bits or radius) + 1
        return {
            "anns_field": "code",
            "limit": count,
            "filter": f"modality == {quote(scope.modality)} and {self._expression(scope.where)}",
            "search_params": {"metric_type": "HAMMING", "params": params},
            "consistency_level": "Strong",
        }

    def _check_items(self, argument: str, count: int) -> None:
        """Raise `InputError` if a search asks for more items than Milvus returns."""
        if len(self) > _MAX_ANSWERS:
            problem = f"{argument} is {count:,}; Milvus returns at most {_MAX_ANSWERS:,}"
            raise InputError(f"{self.address}: {problem}")

    def _facts(self) -> dict[str, Any]:
        codes = {name: self._count(f"modality == {quote(name)}") for name in self.modalities}
        return {"codes": codes, "index": "BIN_FLAT", "bytes": None}

    def _expression(self, where: Filter | None) -> str:
        """Translate a filter into a Milvus expression."""
        return to_milvus(where, self._key_sets, self._ids_passing) if where else ALL

    def _ids_passing(self, condition: Condition) -> list[str]:
        """Return the ids of the items that pass a condition that Milvus cannot test; read all."""
        ids: list[str] = []
        for row in self._walk(_FIRST, ["key", "labels", "metadata"]):
            name = _item_id(row["key"])
            if passes(condition, name, {**row["metadata"], "labels": row["labels"]}):
                ids.append(name)
        return ids

    def _distinct(self, field: str) -> set[str]:
        """Return the values of a field, by asking for rows with others until there are none."""
        known: set[str] = set()
        unseen = ALL
        while rows := self._query("query", unseen, [field], limit=_ROWS):
            known |= {row[field] for row in rows}
            unseen = f"{field} not in {quote(sorted(known))}"
        return known

    def _rows_of(self, ids: Sequence[str], fields: Sequence[str]) -> Iterator[_Row]:
        """Yield all rows of the items that the collection has of these ids."""
        names = [name for name in ids if len(name.encode()) <= _MAX_STRING]
        for start in range(0, len(names), _ROWS):
            yield from self._walk(f"id in {quote(names[start : start + _ROWS])}", ["key", *fields])

    def _walk(self, expression: str, fields: Sequence[str]) -> Iterator[_Row]:
        """Yield all rows that pass, in the order of their keys; ``fields`` must contain ``key``.

        pymilvus's own `query_iterator` does not escape quotes in ids.
        """
        as_iterator = {"limit": _ROWS, "iterator": "True", "reduce_stop_for_best": "True"}
        chosen = expression
        while page := self._query("query", chosen, fields, **as_iterator):
            yield from page
            chosen = f"key > {quote(page[-1]['key'])} and ({expression})"

    def _count(self, expression: str) -> int:
        return sum(int(row["count(*)"]) for row in self._query("count", expression, ["count(*)"]))

    def _query(
        self, action: str, expression: str, fields: Sequence[str], **options: Any
    ) -> list[_Row]:
        """Return the rows that pass, as all earlier requests have left them; none without a
        collection.
        """
        if not self._look():
            return []
        options |= {
            "filter": expression,
            "output_fields": list(fields),
            "consistency_level": "Strong",
        }
        return list(self._ask(action, self._client.query, **options))

    def _look(self) -> Facts | None:
        """Load the collection and return its facts; None if it does not exist."""
        if self._stored is not None:
            return self._stored
        with self._alone():  # not while another thread creates it
            if not self._ask("describe", self._client.has_collection):
                return None
            described = self._ask("describe", self._client.describe_collection)
            facts = self._read_facts(described["description"])
            facts.check(self.address, self._new)
            self._ask("load", self._client.load_collection)
            self._stored = facts
        return facts

    def _read_facts(self, text: str) -> Facts:
        """Read the description that `_create` wrote."""
        try:
            stored = json.loads(text)
            check_format(self.address, stored["format"], _FORMAT, "push it again")
            return Facts(int(stored["n_bits"]), str(stored["model"]))
        except (ValueError, KeyError, TypeError):
            problem = "the collection was not made by channelhash; choose another one"
            raise InputError(f"{self.address}: {problem}") from None

    def _create(self, n_bits: int) -> None:
        """Create the collection, for the rows of `_to_rows`."""
        kinds = library("pymilvus", "milvus").DataType
        description = json.dumps({"format": _FORMAT, "n_bits": n_bits, "model": self._new.model})
        schema = self._client.create_schema(
            auto_id=False, enable_dynamic_field=False, description=description
        )
        schema.add_field("key", kinds.VARCHAR, is_primary=True, max_length=_MAX_STRING)
        for name in ("modality", "id", "keys"):
            schema.add_field(name, kinds.VARCHAR, max_length=_MAX_STRING)
        schema.add_field("first", kinds.BOOL)
        texts = {"element_type": kinds.VARCHAR, "max_length": _MAX_STRING}
        schema.add_field("labels", kinds.ARRAY, max_capacity=_MAX_LABELS, **texts)
        schema.add_field("metadata", kinds.JSON)
        # Milvus takes whole bytes; the padding bits of packed codes are 0 and change no distance.
        schema.add_field("code", kinds.BINARY_VECTOR, dim=8 * -(-n_bits // 8))
        index = self._client.prepare_index_params()
        # Exact: every code is compared.
        index.add_index("code", index_type="BIN_FLAT", metric_type="HAMMING")
        self._ask(
            "create", self._client.create_collection, schema=schema, consistency_level="Strong"
        )
        # Without rows there is nothing to wait for.
        self._ask("create", self._client.create_index, index_params=index, sync=False)

    def _alone(self) -> threading.RLock:
        """Return the lock of this process's threads. A forked child may never get it."""
        check_process(self.address, self._process)
        return self._lock

    def _ask(self, action: str, request: Callable[..., Any], **options: Any) -> Any:
        """Send a request about the collection; raise `JobError` if Milvus refuses it."""
        check_process(self.address, self._process)  # gRPC hangs in a forked one
        try:
            return request(self._name, timeout=_REQUEST_SECONDS, **options)
        except library("pymilvus", "milvus").MilvusException as error:
            reason = " ".join(str(error.message).split())
            raise JobError(f"{self.address}: {action}: Milvus says: {reason[:300]}") from None
        except library("grpc", "milvus").RpcError as error:
            # pymilvus passes on, for example, that there was no answer in time.
            raise JobError(
                f"{self.address}: {action}: no answer ({error.code().name}); try again"
            ) from None


def _parse_address(text: str) -> tuple[str, str]:
    """Return server and collection of ``milvus+http://host:port/collection``.

    >>> _parse_address("milvus+http://localhost:19530/photos")
    ('http://localhost:19530', 'photos')
    """
    parts = re.fullmatch(r"milvus\+(https?://[^/?#]+:\d+)/([^/?#]+)/?", text)
    if parts is None:
        raise InputError(
            f"{text}: write it as milvus+http://HOST:PORT/COLLECTION; in a file, use a store's "
            "folder"
        )
    uri, name = parts.groups()
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,254}", name):
        raise InputError(
            f"{text}: {name!r} is no name of a collection; up to 255 letters, digits and '_'"
        )
    return uri, name


def _connect(uri: str, address: str) -> Any:
    """Return a `pymilvus.MilvusClient`."""
    pymilvus = library("pymilvus", "milvus")
    # pymilvus would print a traceback before it raises an error.
    logging.getLogger("pymilvus.decorators").setLevel(logging.CRITICAL)
    try:
        token = os.environ.get(_TOKEN_VARIABLE, "")
        return pymilvus.MilvusClient(uri=uri, token=token, timeout=_CONNECT_SECONDS)
    except pymilvus.MilvusException as error:
        hint = f"is the server there, and {_TOKEN_VARIABLE} right?"
        reason = " ".join(str(error.message).split())
        raise InputError(f"{address}: cannot be opened ({reason}); {hint}") from None


def _item_id(key: str) -> str:
    """Return the id of the item of a row with this key, such as ``image/ID``."""
    return key.partition("/")[2]


def _add_answer(answers: Answers, hits: Sequence[Mapping[str, Any]]) -> None:
    """Add what Milvus returned for one query, by distance and id."""
    pairs = sorted((round(hit["distance"]), hit["id"]) for hit in hits)
    answers.ids.append([_item_id(key) for _, key in pairs])
    answers.distances.append(np.array([distance for distance, _ in pairs], dtype=np.int64))


def _to_rows(item: Item) -> list[_Row]:
    """Return the rows of an item, one for each of its codes.

    >>> [row["key"] for row in _to_rows(Item("a", {"image": np.array([7], np.uint8)}))]
    ['image/a']
    """
    metadata = dict(item.metadata)
    keys = json.dumps(sorted(metadata), ensure_ascii=False)
    labels = metadata.pop("labels", None) or []
    assert isinstance(labels, list)
    if len(labels) > _MAX_LABELS:
        raise InputError(
            f"{item.id!r}: {len(labels):,} labels; Milvus takes {_MAX_LABELS:,} an item"
        )
    for label in labels:
        _check_size(item, f"label {label[:20]!r}", label)
    _check_size(item, "id", f"{max(item.codes, key=len)}/{item.id}")
    _check_size(item, "keys of metadata", keys)
    _check_size(item, "metadata", json.dumps(metadata, ensure_ascii=False))
    common = {"id": item.id, "keys": keys, "labels": labels, "metadata": metadata}
    return [
        {
            "key": f"{name}/{item.id}",
            "modality": name,
            "first": not number,
            "code": code.tobytes(),
            **common,
        }
        for number, (name, code) in enumerate(sorted(item.codes.items()))
    ]


def _check_size(item: Item, name: str, text: str) -> None:
    size = len(text.encode())
    if size > _MAX_STRING:
        raise InputError(
            f"{item.id[:40]!r}: {name} of {size:,} bytes; Milvus takes {_MAX_STRING:,}"
        )


def _requests(items: Sequence[list[_Row]]) -> Collection[list[list[_Row]]]:
    """Divide items, as their rows, into requests."""
    requests: dict[tuple[int, int], list[list[_Row]]] = {}
    n_rows = n_bytes = 0
    for rows in items:
        requests.setdefault((n_rows // _ROWS, n_bytes // _BYTES), []).append(rows)
        n_rows += len(rows)
        values = chain.from_iterable(row.values() for row in rows)
        n_bytes += sum(len(str(value).encode()) for value in values)
    return requests.values()
