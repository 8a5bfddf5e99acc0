"""Small JSON files that carry a checksum of themselves, so that a damaged one is not taken for another."""

import json
from typing import Any

from channelhash.utils.files import content_hash

_KEY = "checksum"


def dump_checked(values: dict[str, Any]) -> str:
    """Return JSON values as one line of text with their checksum.

    >>> dump_checked({"n_bits": 64})
    '{"n_bits": 64, "checksum": "5bc9206a79d29562"}\\n'
    """
    return json.dumps({**values, _KEY: _checksum(values)}) + "\n"


def load_checked(text: str) -> dict[str, Any]:
    """Return what `dump_checked` wrote, without the checksum.

    Raises:
        ValueError: the text is damaged, or has no checksum.

    >>> load_checked(dump_checked({"n_bits": 64}))
    {'n_bits': 64}
    """
    values = json.loads(text)
    if not isinstance(values, dict) or values.pop(_KEY, None) != _checksum(values):
        raise ValueError("the checksum is wrong")
    return values


def _checksum(values: dict[str, Any]) -> str:
    return content_hash(json.dumps(values, sort_keys=True).encode())[:16]
