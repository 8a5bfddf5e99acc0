"""Requests to one collection of Milvus: how it is made, what it says of itself, its rows."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from channelhash.codes import PackedCodes
from channelhash.errors import InputError, JobError
from channelhash.search.milvus.address import Index, MilvusAddress
from channelhash.search.milvus.filters import quote
from channelhash.search.milvus.rows import MAX_LABELS, MAX_STRING, Row
from channelhash.utils.optional_imports import library

_FORMAT = "channelhash milvus 2"

# Rows and bytes of one request; servers refuse requests of more than 64 MB.
ROWS = 1000
_BYTES = 8_000_000
#: Most rows that Milvus returns for a query or a search (https://milvus.io/docs/limitations.md).
MAX_ANSWERS = 16_384
_SECONDS = 60.0
# Every request reads what earlier ones have written.
_STRONG = {"consistency_level": "Strong", "timeout": _SECONDS}


@dataclass(frozen=True)
class CollectionFacts:
    """What all codes of a collection have in common; kept as its description.

    Attributes:
        n_bits: code length.
        model: fingerprint of their model, empty if unknown.
        index: how they are indexed.
    """

    n_bits: int
    model: str
    index: Index


class MilvusCollection:
    """One collection, there or not yet. What Milvus refuses is a `JobError` of one line.

    Args:
        address: where it is.
        client: a `pymilvus.MilvusClient`.
    """

    def __init__(self, address: MilvusAddress, client: Any) -> None:
        self._address = address
        self._name = address.collection
        self._client = client
        self._process = os.getpid()
        self._pymilvus = library("pymilvus", "milvus")
        self._grpc = library("grpc", "milvus")

    def description(self) -> CollectionFacts | None:
        """Return the facts of the collection; None if it is not there.

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
            written_as = stored["format"]
            facts = CollectionFacts(int(stored["n_bits"]), str(stored["model"]), Index(**stored["index"]))
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{address}: the collection was not made by channelhash; choose another one") from None
        if written_as != _FORMAT:
            raise InputError(f"{address}: written as {written_as!r}, this version reads {_FORMAT!r}; push it again")
        return facts

    def create(self, facts: CollectionFacts) -> None:
        """Make it, empty, for rows as `rows` describes them."""
        kinds = self._pymilvus.DataType
        description = json.dumps({"format": _FORMAT, **asdict(facts)})
        schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False, description=description)
        schema.add_field("key", kinds.VARCHAR, is_primary=True, max_length=MAX_STRING)
        for name in ("modality", "id", "keys"):
            schema.add_field(name, kinds.VARCHAR, max_length=MAX_STRING)
        schema.add_field("first", kinds.BOOL)
        schema.add_field(
            "labels", kinds.ARRAY, element_type=kinds.VARCHAR, max_capacity=MAX_LABELS, max_length=MAX_STRING
        )
        schema.add_field("metadata", kinds.JSON)
        # Milvus counts in whole bytes; the padding bits of packed codes are 0 and change no distance.
        schema.add_field("code", kinds.BINARY_VECTOR, dim=8 * -(-facts.n_bits // 8))
        index = self._client.prepare_index_params()
        build = {"nlist": facts.index.n_lists} if facts.index.kind == "BIN_IVF_FLAT" else {}
        index.add_index("code", index_type=facts.index.kind, metric_type="HAMMING", params=build)
        with self._asking("create"):
            self._client.create_collection(self._name, schema=schema, **_STRONG)
            self._client.create_index(self._name, index, sync=False)  # nothing to wait for without rows
            self._client.load_collection(self._name, timeout=_SECONDS)

    def load(self) -> None:
        """Bring it into the server's memory, where it is not there already."""
        with self._asking("load"):
            self._client.load_collection(self._name, timeout=_SECONDS)

    def rows(self, expression: str, fields: Sequence[str], limit: int = ROWS, **options: str) -> list[Row]:
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
        if part and (n_rows + len(rows) > ROWS or size + item_size > _BYTES):
            yield part
            part, size, n_rows = [], 0, 0
        part.append(rows)
        size += item_size
        n_rows += len(rows)
    if part:
        yield part
