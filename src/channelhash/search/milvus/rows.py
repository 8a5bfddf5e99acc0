"""Rows of a Milvus collection: one an item. What they can hold, and what they cannot.

Milvus wants every vector field filled in every row, so a row has a field ``has_<modality>`` beside each
``code_<modality>``; where it is False, the code is zeros and no search looks at it. (Vector fields that may be empty
came with later releases of 2.6, https://docs.zilliz.com/docs/nullable-fields; milvus-lite has none.) One row an item
keeps its metadata in one place, and an item's change in one write.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from channelhash.codes import PackedCodes
from channelhash.errors import InputError
from channelhash.search.store import Item
from channelhash.search.validation import Metadata, Value, is_text

#: Modalities that every collection has a field for.
MODALITIES = ("image", "text")

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


def to_row(item: Item, key: str, modalities: Sequence[str], n_bits: int) -> Row:
    """Return an item as a row of a collection with codes of ``modalities``; ``key`` is its id as it is stored.

    Raises:
        InputError: it is larger than Milvus takes.

    >>> row = to_row(Item("a", {"image": np.array([7], np.uint8)}), "a", ["image", "text"], n_bits=8)
    >>> row["has_image"], row["has_text"]
    (True, False)
    """
    _check_size(item.id, "id", key)
    metadata = dict(item.metadata)
    row: Row = {"id": key, "keys": keys_text(metadata)}
    labels = metadata.pop("labels", None) or []
    assert isinstance(labels, list)
    if len(labels) > MAX_LABELS:
        raise InputError(f"{item.id!r}: {len(labels):,} labels; Milvus takes {MAX_LABELS:,} an item")
    for label in labels:
        _check_size(item.id, f"label {label[:20]!r}", label)
    _check_size(item.id, "keys of metadata", row["keys"])
    size = len(json.dumps(metadata, ensure_ascii=False).encode())
    if size > MAX_METADATA:
        raise InputError(f"{item.id!r}: {size:,} bytes of metadata; Milvus takes {MAX_METADATA:,} an item")
    row |= {"labels": labels, "metadata": metadata}
    empty = bytes(-(-n_bits // 8))
    for modality in modalities:
        code = item.codes.get(modality)
        row[f"has_{modality}"] = code is not None
        row[f"code_{modality}"] = empty if code is None else code.tobytes()
    return row


def to_item(row: Mapping[str, Any], item_id: str) -> Item:
    """Return the item of a row as `pymilvus` gives it.

    >>> row = to_row(Item("a", {}, {"year": 2020}), "a", [], n_bits=8)
    >>> to_item(row, "a").metadata
    {'year': 2020}
    """
    codes: dict[str, PackedCodes] = {}
    for name, has in row.items():
        if name.startswith("has_") and has:
            modality = name.removeprefix("has_")
            codes[modality] = np.frombuffer(row[f"code_{modality}"][0], np.uint8)
    metadata: dict[str, Value] = dict(row["metadata"])
    if "labels" in json.loads(row["keys"]):
        metadata["labels"] = list(row["labels"])
    return Item(item_id, codes, metadata)


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
