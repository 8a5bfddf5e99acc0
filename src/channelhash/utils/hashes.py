"""Hashes of contents and files, and JSON with its checksum."""

import hashlib
import json
from pathlib import Path
from typing import Any

_KEY = "checksum"


def content_hash(*parts: bytes | memoryview) -> str:
    """Return the SHA-256 of ``parts`` as 64 hex digits; each part is preceded by its length, so
    that no lists collide.

    >>> content_hash(b"ab", b"c") == content_hash(b"a", b"bc")
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def dump_checked(values: dict[str, Any]) -> str:
    """Return JSON values as one line of text with their checksum.

    >>> dump_checked({"n_bits": 64})
    '{"n_bits": 64, "checksum": "5bc9206a79d29562"}\\n'
    """
    return json.dumps({**values, _KEY: _checksum(values)}) + "\n"


def load_checked(text: str) -> dict[str, Any]:
    """Return what `dump_checked` wrote, without the checksum; ValueError if it is damaged.

    >>> load_checked(dump_checked({"n_bits": 64}))
    {'n_bits': 64}
    """
    values = json.loads(text)
    if not isinstance(values, dict) or values.pop(_KEY, None) != _checksum(values):
        raise ValueError("the checksum is wrong")
    return values


def _checksum(values: dict[str, Any]) -> str:
    return content_hash(json.dumps(values, sort_keys=True).encode())[:16]
