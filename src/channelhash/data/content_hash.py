"""Hash of a collection's items, whatever their files are called and wherever they lie."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from channelhash.data.records import Items
from channelhash.errors import InputError
from channelhash.utils.files import content_hash, write_text


def collection_hash(items: Items, memo: Path) -> str:
    """Hash the content of ``items`` in their order; 64 hex digits.

    Images are hashed by the bytes of their files. Reading 200,000 of them takes minutes, so the folder ``memo`` keeps
    the result under the paths, sizes and modification times of the files, until one of those differs.

    Raises:
        InputError: an image is missing.

    >>> collection_hash(("a dog", "a cat"), Path("memo")) == collection_hash(("a cat", "a dog"), Path("memo"))
    False
    """
    if isinstance(items, np.ndarray):
        return content_hash(str((items.shape, items.dtype)).encode(), np.ascontiguousarray(items).tobytes())
    paths = [item for item in items if isinstance(item, Path)]
    if len(paths) < len(items):
        return content_hash(*(str(item).encode() for item in items))
    kept_hash = memo / f"pictures-{_listing(paths)[:16]}.sha256"
    if not kept_hash.exists():
        write_text(kept_hash, content_hash(*(_digest(path) for path in paths)))
    return kept_hash.read_text(encoding="utf-8")


def _listing(paths: Sequence[Path]) -> str:
    lines = []
    for path in paths:
        try:
            stat = path.stat()
        except OSError:
            raise InputError(f"{path}: no such picture") from None
        lines.append(f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode())
    return content_hash(*lines)


def _digest(path: Path) -> bytes:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
