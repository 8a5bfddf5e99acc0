"""Codes and metadata as a row of the items database holds them."""

import json
from typing import Any

from numpy.typing import NDArray

from channelhash.search.validation import Metadata

# One for all items: `json.dumps` would make an encoder for each.
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def as_bytes(rows: NDArray[Any]) -> list[bytes]:
    """Return each of ``(n, b)`` values of one byte as bytes.

    >>> import numpy as np
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
