"""Codes and metadata as a row of the items database holds them."""

import json

from channelhash.codes import PackedCodes
from channelhash.search.validation import Metadata

# One for all items: `json.dumps` would make an encoder for each.
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def as_bytes(packed: PackedCodes) -> list[bytes]:
    """Return each of the codes ``(n, b)`` as bytes."""
    data, width = packed.tobytes(), packed.shape[1]
    return [data[start : start + width] for start in range(0, len(data), width)]


def as_json(values: Metadata) -> str:
    """Return metadata without the keys that are taken away.

    >>> as_json({"year": 2020, "text": None})
    '{"year":2020}'
    """
    if not values:
        return "{}"
    return _encoder.encode({key: value for key, value in values.items() if value is not None})
