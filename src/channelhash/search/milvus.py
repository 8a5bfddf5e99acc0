"""``milvus``: a collection of Milvus: milvus+http://host:19530/name

A row is an item's code of one modality, so that a collection has one field of vectors, which every
Milvus from 2.3 on takes, and any modality may come later. The item's metadata stand in each of its
rows, where a filter looks for them; all rows of an item are written in one request. ``first`` is
true in one of them, by which items are counted.
"""

import json
import logging
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from channelhash.codes import PackedCodes
from channelhash.errors import InputError, JobError
from channelhash.search.checks import check_format, check_process
from channelhash.search.filters import Condition, Filter, Literal, passes
from channelhash.search.items import Facts, NewItems, Value
from channelhash.search.store import Answers, Item, Scope, Store
from channelhash.utils.optional_imports import library

#: Where the token of a server is read from; an address ends up in logs, this does not.
_TOKEN_VARIABLE = "MILVUS_TOKEN"

_FORMAT = "channelhash milvus 3"

# https://milvus.io/docs/limitations.md; the answers are rows of a query or a search.
_MAX_STRING = 65_535
_MAX_LABELS = 4_096
_MAX_ANSWERS = 16_384
# Rows, or ids, and bytes of one request; servers refuse requests of more than 64 MB.
_ROWS = 1000
_BYTES = 8_000_000

_CONNECT_SECONDS = 10

#: Every row has a text in ``keys``, so these hold for all rows, and for none.
_ALL = 'keys != ""'
_NONE = 'keys == ""'
# True of one row of each item.
_FIRST = "first == true"

_Row = dict[str, Any]


class MilvusStore(Store):
    """A `Store` in one collection of Milvus.

    Every call reads what all earlier calls have written (consistency level "Strong"). What differs
    from the store in a folder, because Milvus has no transactions over several requests:

    * a call of `add`, `upsert` or `delete` with more than 1000 items (or 8 MB) is several requests.
      What is wrong with the input is found before the first of them, but where the server fails
      between two, the former ones stay; the error says so, and `upsert` or `delete` with the same
      items completes it;
    * two processes that add the same id, or metadata of the same item, at the same time may both
      succeed; the last one stays;
    * where more than ``k`` items tie at the last distance, Milvus chooses which of them it returns;
      what is returned is in order of distance and id.

    ``k``, and the items of one answer of `search_radius`, are at most 16,384 where the collection
    has more.
    """

    def __init__(self, address: str, new: Facts) -> None:
        super().__init__(address, new)
        uri, self._name = _parse_address(address)
        self._client = _connect(uri, address)
        self._process = os.getpid()
        self._stored: Facts | None = None
        # read by `_keys`, which every call with a filter begins with
        self._key_sets: set[str] = set()
        self._lock = threading.RLock()
        self._look()

    @property
    def modalities(self) -> tuple[str, ...]:
        return tuple(sorted(self._different("modality")))

    def __len__(self) -> int:
        return self._count(_FIRST)

    def label_counts(self) -> dict[str, int]:
        """Read the labels of all items: Milvus does not count by value."""
        rows = self._walk(_FIRST, ["key", "labels"])
        counts = Counter(label for row in rows for label in set(row["labels"]))
        return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))

    def close(self) -> None:
        """Close the connection, if it is this process's."""
        if os.getpid() == self._process:
            self._client.close()

    def _common(self) -> Facts:
        return self._look() or self._new

    def _keys(self) -> Collection[str]:
        self._key_sets = self._different("keys")
        return {key for text in self._key_sets for key in json.loads(text)}

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
                self._ask(
                    action, self._client.upsert, data=[row for of_item in part for row in of_item]
                )
                sent += len(part)

    def _delete(self, ids: list[str]) -> int:
        with self._alone():
            names = sorted({_item_id(row["key"]) for row in self._rows_of(ids, [])})
            for start in range(0, len(names), _ROWS):
                among = f"id in {_quote(names[start : start + _ROWS])}"
                self._ask("delete", self._client.delete, filter=among)
        return len(names)

    def _search(
        self, queries: PackedCodes, radius: int | None, limit: int | None, scope: Scope
    ) -> Answers:
        if limit is not None and limit > _MAX_ANSWERS and len(self) > _MAX_ANSWERS:
            number = f"{'k' if radius is None else 'limit'} is {limit:,}"
            raise InputError(f"{self.address}: {number}; Milvus returns at most {_MAX_ANSWERS:,}")
        count = min(limit or _MAX_ANSWERS, _MAX_ANSWERS)
        # Milvus returns what is nearer than its "radius".
        params = {} if radius is None else {"radius": min(radius, self.n_bits or radius) + 1}
        options = {
            "anns_field": "code",
            "limit": count,
            "filter": f"modality == {_quote(scope.modality)} and {self._expression(scope.where)}",
            "search_params": {"metric_type": "HAMMING", "params": params},
            "consistency_level": "Strong",
        }
        answers = Answers([], [])
        step = max(1, 200_000 // count)  # queries of one request: their answers are some MB
        for start in range(0, len(queries), step):
            data = [query.tobytes() for query in queries[start : start + step]]
            for hits in self._ask("search", self._client.search, data=data, **options):
                if limit is None and len(hits) >= _MAX_ANSWERS:
                    most = f"{_MAX_ANSWERS:,} items or more within {radius} bits"
                    raise InputError(
                        f"{self.address}: query {len(answers.ids)} has {most}; set a limit"
                    )
                pairs = sorted((round(hit["distance"]), hit["id"]) for hit in hits)
                answers.ids.append([_item_id(key) for _, key in pairs])
                answers.distances.append(
                    np.array([distance for distance, _ in pairs], dtype=np.int64)
                )
        return answers

    def _facts(self) -> dict[str, Any]:
        codes = {name: self._count(f"modality == {_quote(name)}") for name in self.modalities}
        return {"codes": codes, "index": "BIN_FLAT", "bytes": None}

    def _expression(self, where: Filter | None) -> str:
        """Translate a filter into a Milvus expression."""
        return _to_milvus(where, self._key_sets, self._passing) if where else _ALL

    def _passing(self, condition: Condition) -> list[str]:
        """Return the ids of the items that pass a condition which Milvus cannot be asked; this
        reads all items.
        """
        rows = self._walk(_FIRST, ["key", "labels", "metadata"])
        items = (
            (_item_id(row["key"]), {**row["metadata"], "labels": row["labels"]}) for row in rows
        )
        return [name for name, metadata in items if passes(condition, name, metadata)]

    def _different(self, field: str) -> set[str]:
        """Return the values of a field, by asking for rows with others than are known until there
        are none.
        """
        known: set[str] = set()
        unseen = _ALL
        while rows := self._query("query", unseen, [field], limit=_ROWS):
            known |= {row[field] for row in rows}
            unseen = f"{field} not in {_quote(sorted(known))}"
        return known

    def _rows_of(self, ids: Sequence[str], fields: Sequence[str]) -> Iterator[_Row]:
        """Yield all rows of those of ``ids`` that the collection has."""
        names = [name for name in ids if len(name.encode()) <= _MAX_STRING]
        for start in range(0, len(names), _ROWS):
            yield from self._walk(f"id in {_quote(names[start : start + _ROWS])}", ["key", *fields])

    def _walk(self, expression: str, fields: Sequence[str]) -> Iterator[_Row]:
        """Yield all rows that pass, in the order of their keys; ``fields`` holds ``key``.

        As pymilvus's `query_iterator` does it, which cannot be used: it writes ids with quotes
        unescaped.
        """
        as_iterator = {"limit": _ROWS, "iterator": "True", "reduce_stop_for_best": "True"}
        chosen = expression
        while page := self._query("query", chosen, fields, **as_iterator):
            yield from page
            chosen = f"key > {_quote(page[-1]['key'])} and ({expression})"

    def _count(self, expression: str) -> int:
        return sum(int(row["count(*)"]) for row in self._query("count", expression, ["count(*)"]))

    def _query(
        self, action: str, expression: str, fields: Sequence[str], **options: Any
    ) -> list[_Row]:
        """Return rows that pass, also those that earlier requests have written; none while there is
        no collection.
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
        """Return what the collection says of itself, None if it is not there; load it where it is
        not.
        """
        if self._stored is None:
            with self._alone():  # not while another thread makes it
                if self._ask("describe", self._client.has_collection):
                    facts = self._description(
                        self._ask("describe", self._client.describe_collection)["description"]
                    )
                    facts.check(self.address, self._new)
                    self._ask("load", self._client.load_collection)
                    self._stored = facts
        return self._stored

    def _description(self, text: str) -> Facts:
        """Parse what `_create` wrote."""
        try:
            stored = json.loads(text)
            check_format(self.address, stored["format"], _FORMAT, "push it again")
            return Facts(int(stored["n_bits"]), str(stored["model"]))
        except (ValueError, KeyError, TypeError):
            problem = "the collection was not made by channelhash; choose another one"
            raise InputError(f"{self.address}: {problem}") from None

    def _create(self, n_bits: int) -> None:
        """Make the collection, for rows as `_to_rows` makes them."""
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
        # Milvus counts in whole bytes; the padding bits of packed codes are 0 and change no
        # distance.
        schema.add_field("code", kinds.BINARY_VECTOR, dim=8 * -(-n_bits // 8))
        index = self._client.prepare_index_params()
        # every code is compared: exact
        index.add_index("code", index_type="BIN_FLAT", metric_type="HAMMING")
        self._ask(
            "create", self._client.create_collection, schema=schema, consistency_level="Strong"
        )
        # Without rows there is nothing to wait for.
        self._ask("create", self._client.create_index, index_params=index, sync=False)

    def _alone(self) -> threading.RLock:
        """Return the lock of this process's threads, which in a forked child another thread may
        hold for ever.
        """
        check_process(self.address, self._process)
        return self._lock

    def _ask(self, action: str, request: Callable[..., Any], **options: Any) -> Any:
        """Send a request about the collection; what Milvus refuses is a `JobError` of one line."""
        check_process(self.address, self._process)  # in which gRPC hangs
        try:
            return request(self._name, timeout=60.0, **options)  # seconds
        except library("pymilvus", "milvus").MilvusException as error:
            reason = " ".join(str(error.message).split())
            raise JobError(f"{self.address}: {action}: Milvus says: {reason[:300]}") from None
        except library("grpc", "milvus").RpcError as error:
            # such as no answer in time, which pymilvus hands on
            raise JobError(
                f"{self.address}: {action}: no answer ({error.code().name}); try again"
            ) from None


def _parse_address(text: str) -> tuple[str, str]:
    """Return server and collection of ``milvus+http://host:port/collection``.

    >>> _parse_address("milvus+http://localhost:19530/photos")
    ('http://localhost:19530', 'photos')
    """
    if not (parts := re.fullmatch(r"milvus\+(https?://[^/?#]+:\d+)/([^/?#]+)/?", text)):
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
    # Errors are raised as well, and told in one line; pymilvus would print a traceback before.
    logging.getLogger("pymilvus.decorators").setLevel(logging.CRITICAL)
    try:
        token = os.environ.get(_TOKEN_VARIABLE, "")
        return pymilvus.MilvusClient(uri=uri, token=token, timeout=_CONNECT_SECONDS)
    except pymilvus.MilvusException as error:
        hint = f"is the server there, and {_TOKEN_VARIABLE} right?"
        reason = " ".join(str(error.message).split())
        raise InputError(f"{address}: cannot be opened ({reason}); {hint}") from None


def _item_id(key: str) -> str:
    """Return the id of a row's item, of which the row's key is ``image/ID``."""
    return key.partition("/")[2]


def _to_rows(item: Item) -> list[_Row]:
    """Return an item as rows, one for each of its codes.

    >>> [row["key"] for row in _to_rows(Item("a", {"image": np.array([7], np.uint8)}))]
    ['image/a']
    """
    metadata, keys = dict(item.metadata), json.dumps(sorted(item.metadata), ensure_ascii=False)
    labels = metadata.pop("labels", None) or []
    assert isinstance(labels, list)
    if len(labels) > _MAX_LABELS:
        raise InputError(
            f"{item.id!r}: {len(labels):,} labels; Milvus takes {_MAX_LABELS:,} an item"
        )
    texts = {f"label {label[:20]!r}": label for label in labels} | {
        "id": f"{max(item.codes, key=len)}/{item.id}",
        "keys of metadata": keys,
        "metadata": json.dumps(metadata, ensure_ascii=False),
    }
    for name, text in texts.items():
        if (size := len(text.encode())) > _MAX_STRING:
            raise InputError(
                f"{item.id[:40]!r}: {name} of {size:,} bytes; Milvus takes {_MAX_STRING:,}"
            )
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


def _requests(items: Sequence[list[_Row]]) -> Collection[list[list[_Row]]]:
    """Divide items into requests; all rows of an item are in the one in which they begin."""
    requests: dict[tuple[int, int], list[list[_Row]]] = {}
    n_rows = n_bytes = 0
    for rows in items:
        requests.setdefault((n_rows // _ROWS, n_bytes // _BYTES), []).append(rows)
        n_rows += len(rows)
        n_bytes += sum(len(str(value).encode()) for row in rows for value in row.values())
    return requests.values()


def _quote(text: str | list[str]) -> str:
    """Quote a string, or a list of them, for Milvus's expressions, which know Go's escapes; JSON's
    are among them.
    """
    return json.dumps(text, ensure_ascii=False)


def _to_milvus(
    tree: Filter, key_sets: Collection[str], passing: Callable[[Condition], list[str]]
) -> str:
    """Translate a filter into a Milvus expression over the fields ``id``, ``labels``, ``keys`` and
    ``metadata``.

    What it cannot say is asked of ``passing``, which returns the ids of items.

    >>> _to_milvus(Condition("year", ">", (2000,)), set(), lambda condition: [])
    '(metadata["year"] > 2000)'
    """
    if isinstance(tree, Condition):
        return f"({_condition(tree, key_sets, passing)})"
    word = f" {tree.word.lower()} "
    return f"({word.join(_to_milvus(part, key_sets, passing) for part in tree.parts)})"


def _condition(
    condition: Condition, key_sets: Collection[str], passing: Callable[[Condition], list[str]]
) -> str:
    key = condition.key
    test = condition.test
    literals = condition.literals
    negated = condition.negated
    # Before 2.4 Milvus finds strings by their beginning alone, and what it makes of ``_`` and of
    # backslashes differs. It compares whole numbers with others as floats, which tell them apart up
    # to 2⁵³.
    is_inexact = test == "LIKE" or any(
        not isinstance(it, str) and abs(it) >= 2**53 for it in literals
    )
    if is_inexact or (key == "label" and test not in ("=", "IN", "IS NOT NULL")):
        names = passing(condition)
        return f"id in {_quote(names)}" if names else _NONE
    if key == "label":
        having = (
            " or ".join(f"array_contains(labels, {_quote(str(label))})" for label in literals)
            or 'labels[0] >= ""'
        )
        return f"not ({having})" if negated else having
    if test == "IS NOT NULL":
        chosen = [
            text for text in sorted(key_sets) if (key in ("id", *json.loads(text))) != negated
        ]
        return f"keys in {_quote(chosen)}" if chosen else _NONE
    path = f'metadata["{key}"]' if key != "id" else key
    operators = {"IN": ["="] * len(literals), "BETWEEN": [">=", "<="]}.get(test, [test])
    if negated:
        operators = [_OPPOSITE[operator] for operator in operators]
    word = " and " if (test == "BETWEEN") != negated else " or "
    return word.join(_compare(path, *pair) for pair in zip(operators, literals, strict=True))


_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def _compare(path: str, operator: str, value: Literal) -> str:
    """Require that a value that is there and of the literal's kind compares so.

    Milvus lets an absent value pass ``!=``, ``not in`` and ``not``, but never ``<``, ``>`` or
    ``==``; so what is negated is said with those, which at the same time asks for the kind.
    """
    if isinstance(value, bool):
        return f"{path} == {'true' if value == (operator == '=') else 'false'}"
    literal = _quote(value) if isinstance(value, str) else repr(value)
    if operator == "!=":
        return f"({path} < {literal} or {path} > {literal})"
    return f"{path} {'==' if operator == '=' else operator} {literal}"
