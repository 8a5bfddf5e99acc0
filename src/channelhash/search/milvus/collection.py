"""Requests to one collection of Milvus: its address, how it is made, what it says of itself, its rows.

A row is an item's code of one modality, so that a collection has one field of vectors, which every Milvus from 2.3 on
takes, and any modality may come later. The item's metadata stand in each of its rows, where a filter looks for them;
all rows of an item are written in one request. ``first`` is true in one of them, by which items are counted.
"""

import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from channelhash.codes import PackedCodes
from channelhash.errors import InputError, JobError, check_address
from channelhash.search.items import Value, is_text
from channelhash.search.store import Item
from channelhash.utils.optional_imports import library

#: Where the token of a server is read from; an address ends up in logs, this does not.
_TOKEN_VARIABLE = "MILVUS_TOKEN"

_CONNECT_SECONDS = 10


class _MilvusAddress(NamedTuple):
    """A collection and where it is.

    Attributes:
        text: as it was given.
        uri: of the server.
        collection: its name.

    >>> parse_address("milvus+http://localhost:19530/photos").uri
    'http://localhost:19530'
    """

    text: str
    uri: str
    collection: str


_ADDRESS = re.compile(r"milvus\+(?P<uri>https?://[^/?#]+:\d+)/(?P<name>[^/?#]+)/?")


def parse_address(text: str) -> _MilvusAddress:
    """Parse the address of a collection, ``milvus+http://host:port/collection``.

    Raises:
        InputError: it has another form, or holds a password or token.

    >>> parse_address("milvus+http://localhost:19530/photos").collection
    'photos'
    """
    check_address(text)
    if not (parts := _ADDRESS.fullmatch(text)):
        raise InputError(f"{text}: write it as milvus+http://HOST:PORT/COLLECTION; in a file, use a store's folder")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,254}", parts["name"]):
        raise InputError(f"{text}: {parts['name']!r} is no name of a collection; up to 255 letters, digits and '_'")
    return _MilvusAddress(text, parts["uri"], parts["name"])


def connect(address: _MilvusAddress) -> Any:
    """Return a `pymilvus.MilvusClient`.

    Raises:
        InputError: pymilvus is missing, or nothing answers there.
    """
    pymilvus = library("pymilvus", "milvus")
    # Errors are raised as well, and told in one line; pymilvus would print a traceback before.
    logging.getLogger("pymilvus.decorators").setLevel(logging.CRITICAL)
    try:
        token = os.environ.get(_TOKEN_VARIABLE, "")
        return pymilvus.MilvusClient(uri=address.uri, token=token, timeout=_CONNECT_SECONDS)
    except pymilvus.MilvusException as error:
        hint = f"is the server there, and {_TOKEN_VARIABLE} right?"
        reason = " ".join(str(error.message).split())
        raise InputError(f"{address.text}: cannot be opened ({reason}); {hint}") from None


#: Every row has a text in ``keys``, so these hold for all rows, and for none.
ALL, NONE = 'keys != ""', 'keys == ""'


def quote(text: str) -> str:
    """Quote a string for Milvus's expressions, which know Go's escapes; JSON's are among them.

    >>> print(quote("sea"))
    "sea"
    """
    return json.dumps(text, ensure_ascii=False)


# https://milvus.io/docs/limitations.md
_MAX_STRING = 65_535
_MAX_LABELS = 4_096

Row = dict[str, Any]


def id_of(key: str) -> str:
    """Return the item of a row by its primary key.

    >>> id_of("image/a/b")
    'a/b'
    """
    return key.partition("/")[2]


def to_rows(item: Item) -> list[Row]:
    """Return an item as rows, one for each of its codes.

    Raises:
        InputError: it is larger than Milvus takes.

    >>> [row["key"] for row in to_rows(Item("a", {"image": np.array([7], np.uint8)}))]
    ['image/a']
    """
    metadata, keys = dict(item.metadata), json.dumps(sorted(item.metadata), ensure_ascii=False)
    labels = metadata.pop("labels", None) or []
    assert isinstance(labels, list)
    if len(labels) > _MAX_LABELS:
        raise InputError(f"{item.id!r}: {len(labels):,} labels; Milvus takes {_MAX_LABELS:,} an item")
    texts = {f"label {label[:20]!r}": label for label in labels} | {
        "id": f"{max(item.codes, key=len)}/{item.id}",
        "keys of metadata": keys,
        "metadata": json.dumps(metadata, ensure_ascii=False),
    }
    for what, text in texts.items():
        if (size := len(text.encode())) > _MAX_STRING:
            raise InputError(f"{item.id[:40]!r}: {what} of {size:,} bytes; Milvus takes {_MAX_STRING:,}")
    common = {"id": item.id, "keys": keys, "labels": labels, "metadata": metadata}
    return [
        {"key": f"{name}/{item.id}", "modality": name, "first": not number, "code": code.tobytes(), **common}
        for number, (name, code) in enumerate(sorted(item.codes.items()))
    ]


def to_items(rows: Iterable[Mapping[str, Any]]) -> dict[str, Item]:
    """Return id -> item of the rows that `pymilvus` gives.

    >>> row = to_rows(Item("a", {"image": np.array([7], np.uint8)}, {"year": 2020}))[0]
    >>> to_items([row | {"code": [row["code"]]}])["a"].metadata
    {'year': 2020}
    """
    items: dict[str, Item] = {}
    for row in rows:
        metadata: dict[str, Value] = dict(row["metadata"])
        if "labels" in json.loads(row["keys"]):
            metadata["labels"] = list(row["labels"])
        item = items.setdefault(row["id"], Item(row["id"], {}, metadata))
        item.codes[row["modality"]] = np.frombuffer(row["code"][0], np.uint8)
    return items


def is_storable(item_id: str) -> bool:
    """Return whether an item can have this id: it has a UTF-8 form, which is not too long.

    >>> is_storable("a"), is_storable(chr(0xD800)), is_storable(70_000 * "a")
    (True, False, False)
    """
    return is_text(item_id) and len(item_id.encode()) <= _MAX_STRING


_FORMAT = "channelhash milvus 3"

# Rows and bytes of one request; servers refuse requests of more than 64 MB.
_ROWS = 1000
_BYTES = 8_000_000
#: Most rows that Milvus returns for a query or a search (https://milvus.io/docs/limitations.md).
MAX_ANSWERS = 16_384
_SECONDS = 60.0
# Every request reads what earlier ones have written.
_STRONG = {"consistency_level": "Strong", "timeout": _SECONDS}


class MilvusCollection:
    """One collection, there or not yet. What Milvus refuses is a `JobError` of one line.

    Args:
        address: where it is.
        client: a `pymilvus.MilvusClient`.
    """

    def __init__(self, address: _MilvusAddress, client: Any) -> None:
        self._address = address
        self._name = address.collection
        self._client = client
        self._process = os.getpid()
        self._pymilvus = library("pymilvus", "milvus")
        self._grpc = library("grpc", "milvus")

    def description(self) -> tuple[int, str] | None:
        """Return the code length and the fingerprint of the model (empty if unknown); None if it is not there.

        Raises:
            InputError: it was not made by `create`, or by another version of it.
        """
        with self._asking("describe"):
            if not self._client.has_collection(self._name, timeout=_SECONDS):
                return None
            described = self._client.describe_collection(self._name, timeout=_SECONDS)
        address = self._address.text
        try:
            stored = json.loads(described["description"])
            written_as = stored.pop("format")
            if written_as == _FORMAT:
                return int(stored["n_bits"]), str(stored["model"])
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"{address}: the collection was not made by channelhash; choose another one") from None
        raise InputError(f"{address}: written as {written_as!r}, this version reads {_FORMAT!r}; push it again")

    def create(self, n_bits: int, model: str) -> None:
        """Make it, empty, for rows as `rows` describes them."""
        kinds = self._pymilvus.DataType
        description = json.dumps({"format": _FORMAT, "n_bits": n_bits, "model": model})
        schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False, description=description)
        schema.add_field("key", kinds.VARCHAR, is_primary=True, max_length=_MAX_STRING)
        for name in ("modality", "id", "keys"):
            schema.add_field(name, kinds.VARCHAR, max_length=_MAX_STRING)
        schema.add_field("first", kinds.BOOL)
        schema.add_field(
            "labels", kinds.ARRAY, element_type=kinds.VARCHAR, max_capacity=_MAX_LABELS, max_length=_MAX_STRING
        )
        schema.add_field("metadata", kinds.JSON)
        # Milvus counts in whole bytes; the padding bits of packed codes are 0 and change no distance.
        schema.add_field("code", kinds.BINARY_VECTOR, dim=8 * -(-n_bits // 8))
        index = self._client.prepare_index_params()
        index.add_index("code", index_type="BIN_FLAT", metric_type="HAMMING")  # every code is compared: exact
        with self._asking("create"):
            self._client.create_collection(self._name, schema=schema, **_STRONG)
            self._client.create_index(self._name, index, sync=False)  # nothing to wait for without rows

    def load(self) -> None:
        """Bring it into the server's memory, where it is not there already."""
        with self._asking("load"):
            self._client.load_collection(self._name, timeout=_SECONDS)

    def rows(self, expression: str, fields: Sequence[str], limit: int = _ROWS, **options: str) -> list[Row]:
        """Return at most ``limit`` rows that pass."""
        with self._asking("query"):
            results = self._client.query(
                self._name, filter=expression, output_fields=list(fields), limit=limit, **options, **_STRONG
            )
            return list(results)

    def walk(self, expression: str, fields: Sequence[str]) -> Iterator[Row]:
        """Return all rows that pass, in the order of their keys; ``fields`` holds ``key``.

        As pymilvus's `query_iterator` does it, which cannot be used: it writes ids with quotes unescaped.
        """
        chosen = expression
        while page := self.rows(chosen, fields, iterator="True", reduce_stop_for_best="True"):
            yield from page
            chosen = f"key > {quote(page[-1]['key'])} and ({expression})"

    def count(self, expression: str) -> int:
        """Return the number of rows that pass."""
        with self._asking("count"):
            rows = self._client.query(self._name, filter=expression, output_fields=["count(*)"], **_STRONG)
        return int(rows[0]["count(*)"])

    def nearest(
        self, queries: PackedCodes, limit: int, expression: str, params: dict[str, int]
    ) -> list[list[tuple[int, str]]]:
        """Of every query, the distances and keys of at most ``limit`` nearest rows that pass, in that order."""
        with self._asking("search"):
            results = self._client.search(
                self._name,
                data=[query.tobytes() for query in queries],
                anns_field="code",
                limit=limit,
                filter=expression,
                search_params={"metric_type": "HAMMING", "params": params},
                **_STRONG,
            )
        return [sorted((round(hit["distance"]), hit["id"]) for hit in hits) for hits in results]

    def upsert(self, items: Sequence[list[Row]]) -> None:
        """Write the rows of items over those of the same keys, in requests that a server takes."""
        sent = 0
        for part in _requests(items):
            with self._asking(f"upsert, after {sent:,} of {len(items):,} items were written"):
                self._client.upsert(self._name, [row for rows in part for row in rows], timeout=_SECONDS)
            sent += len(part)

    def delete(self, expression: str) -> None:
        """Remove all rows that pass."""
        with self._asking("delete"):
            self._client.delete(self._name, filter=expression, timeout=_SECONDS)

    def close(self) -> None:
        """Give the connection back, if it is this process's."""
        if os.getpid() == self._process:
            self._client.close()

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        if os.getpid() != self._process:  # gRPC hangs
            raise JobError(f"{self._address.text}: was opened before this process was forked; open it again here")
        try:
            yield
        except self._pymilvus.MilvusException as error:
            reason = " ".join(str(error.message).split())
            raise JobError(f"{self._address.text}: {what}: Milvus says: {reason[:300]}") from None
        except self._grpc.RpcError as error:  # such as no answer in time, which pymilvus hands on as it is
            raise JobError(f"{self._address.text}: {what}: no answer ({error.code().name}); try again") from None


def _requests(items: Sequence[list[Row]]) -> Iterator[list[list[Row]]]:
    """Yield items, all rows of an item together."""
    part: list[list[Row]] = []
    size = n_rows = 0
    for rows in items:
        item_size = sum(len(str(value).encode()) for row in rows for value in row.values())
        if part and (n_rows + len(rows) > _ROWS or size + item_size > _BYTES):
            yield part
            part, size, n_rows = [], 0, 0
        part.append(rows)
        size, n_rows = size + item_size, n_rows + len(rows)
    if part:
        yield part
