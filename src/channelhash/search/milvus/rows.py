"""Rows of a Milvus collection: one a code. What they can hold, and what they cannot.

A row is an item's code of one modality, so that a collection has one field of vectors, which every Milvus from 2.3 on
takes, and any modality may come later. The item's metadata stand in each of its rows, where a filter looks for them;
all rows of an item are written in one request. ``first`` is true in one of them, by which items are counted.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from channelhash.errors import InputError
from channelhash.search.store import Item
from channelhash.search.validation import Metadata, Value, is_text

# https://milvus.io/docs/limitations.md
MAX_STRING = 65_535
MAX_METADATA = 65_535
MAX_LABELS = 4_096

Row = dict[str, Any]


def keys_text(metadata: Metadata) -> str:
    """Return the set of an item's metadata keys as one string, as the field ``keys`` holds it.

    >>> keys_text({"year": 2020, "text": "sea"})
    '["text", "year"]'
    """
    return json.dumps(sorted(metadata), ensure_ascii=False)


def key_of(modality: str, item_id: str) -> str:
    """Return the primary key of a row.

    >>> key_of("image", "a/b")
    'image/a/b'
    """
    return f"{modality}/{item_id}"


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
    _check_size(item.id, "id", key_of(max(item.codes, key=len), item.id))
    metadata, keys = dict(item.metadata), keys_text(item.metadata)
    labels = metadata.pop("labels", None) or []
    assert isinstance(labels, list)
    if len(labels) > MAX_LABELS:
        raise InputError(f"{item.id!r}: {len(labels):,} labels; Milvus takes {MAX_LABELS:,} an item")
    for label in labels:
        _check_size(item.id, f"label {label[:20]!r}", label)
    _check_size(item.id, "keys of metadata", keys)
    size = len(json.dumps(metadata, ensure_ascii=False).encode())
    if size > MAX_METADATA:
        raise InputError(f"{item.id!r}: {size:,} bytes of metadata; Milvus takes {MAX_METADATA:,} an item")
    common = {"id": item.id, "keys": keys, "labels": labels, "metadata": metadata}
    return [
        {"key": key_of(modality, item.id), "modality": modality, "first": not number, "code": code.tobytes(), **common}
        for number, (modality, code) in enumerate(sorted(item.codes.items()))
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


def _check_size(item_id: str, what: str, text: str) -> None:
    size = len(text.encode())
    if size > MAX_STRING:
        raise InputError(f"{item_id[:40]!r}: {what} of {size:,} bytes; Milvus takes {MAX_STRING:,}")


def is_storable(item_id: str) -> bool:
    """Return whether an item can have this id: it has a UTF-8 form, which is not too long.

    >>> is_storable("a"), is_storable(chr(0xD800)), is_storable(70_000 * "a")
    (True, False, False)
    """
    return is_text(item_id) and len(item_id.encode()) <= MAX_STRING
