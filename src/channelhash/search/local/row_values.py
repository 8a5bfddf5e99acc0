"""Codes and metadata as a row of the items database holds them."""

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes.code_set import CodeSet
from channelhash.search.validation import Metadata

# One for all items: `json.dumps` would make an encoder for each.
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def as_bytes(rows: NDArray[Any]) -> list[bytes]:
    """Return each of ``(n, b)`` values of one byte as bytes.

    >>> as_bytes(np.array([[1, 2], [3, 4]], np.uint8))
    [b'\\x01\\x02', b'\\x03\\x04']
    """
    data, width = rows.tobytes(), rows.shape[1]
    return [data[start : start + width] for start in range(0, len(data), width)]


def as_json(values: Metadata) -> str:
    """Return metadata without the keys that are taken away.

    >>> as_json({"year": 2020, "text": None})
    '{"year":2020}'
    """
    if not values:
        return "{}"
    return _encoder.encode({key: value for key, value in values.items() if value is not None})


def read_metadata(
    connection: sqlite3.Connection, keys: Sequence[str], after: int, count: int
) -> list[tuple[int, str, Metadata]]:
    """Return number, id and the metadata of some keys of the first ``count`` items of a number above ``after``."""
    paths = [f'$."{key}"' for key in (*keys, *keys[:1])]  # of two or more, SQLite makes an array
    sql = f"SELECT number, id, json_extract(metadata{', ?' * len(paths)}) FROM items WHERE number > ? ORDER BY number"
    rows = connection.execute(f"{sql} LIMIT ?", (*paths, after, count)).fetchall()
    return [(number, name, _known(keys, json.loads(values))) for number, name, values in rows]


def write_labels(connection: sqlite3.Connection, numbers: Sequence[int], metadata: Sequence[Metadata]) -> None:
    """Set the labels of those items whose metadata has any, and note every key of it."""
    execute = connection.executemany
    keys = {key for values in metadata for key, value in values.items() if value is not None}
    execute("INSERT OR IGNORE INTO keys VALUES (?)", zip(keys))
    given = {number: of["labels"] for number, of in zip(numbers, metadata, strict=True) if "labels" in of}
    execute("DELETE FROM labels WHERE item = ?", zip(given))
    rows = ((label, number) for number, labels in given.items() if isinstance(labels, list) for label in labels)
    execute("INSERT OR IGNORE INTO labels VALUES (?, ?)", rows)


def _known(keys: Sequence[str], values: list[Any]) -> Metadata:
    return {key: value for key, value in zip(keys, values, strict=False) if value is not None}


def metadata_of(codes: CodeSet) -> list[Metadata] | None:
    """Return what a file of codes knows of its items; an empty text or path is an unknown one."""
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
