"""Cache of the token ids of a collection's texts; never of dense vectors (``protocol.md`` § 2)."""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from channelhash.errors import InputError
from channelhash.text.tokens import TokenIds
from channelhash.utils.files import atomic_path, content_hash, write_text
from channelhash.utils.progress import Progress

_CHUNK = 2048


def cached_tokens(
    texts: Sequence[str],
    encode: Callable[[Sequence[str]], TokenIds],
    vocabulary_hash: str,
    cache: Path,
    progress: Progress | None = None,
) -> TokenIds:
    """Return token ids ``(n, m)`` int32 of ``texts``, memory-mapped from a cache that is built if missing.

    The name of the cache is a hash of the texts and of ``vocabulary_hash``, so that another vocabulary, filter or
    setting has another file. The cache is built in chunks, each written in one step; an interrupted build goes on with
    the first missing chunk.

    Args:
        texts: ``n`` texts.
        encode: texts to ``(len, m)`` token ids; called for missing chunks.
        vocabulary_hash: identifies all that ``encode`` depends on: vocabulary, reader, longest text.
        cache: folder of caches.
        progress: called with (texts done, n).

    Raises:
        InputError: the cache is damaged.
    """
    key = content_hash(vocabulary_hash.encode(), *(text.encode() for text in texts))
    path, meta_path, parts = (cache / f"tokens-{key[:16]}{ending}" for ending in (".npy", ".json", ".parts"))
    if not path.exists():
        _build(texts, encode, key, path, meta_path, parts, progress)
    try:
        if json.loads(meta_path.read_text(encoding="utf-8")) != {"key": key, "file": _file_hash(path)}:
            raise ValueError("content differs from what was built")
        tokens: TokenIds = np.load(path, mmap_mode="r")
        return tokens
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: damaged token cache ({error}); remove it to build it again") from None


def _build(
    texts: Sequence[str],
    encode: Callable[[Sequence[str]], TokenIds],
    key: str,
    path: Path,
    meta_path: Path,
    parts: Path,
    progress: Progress | None,
) -> None:
    chunks = []
    for start in range(0, len(texts), _CHUNK):
        chunk = parts / f"{start}-{min(start + _CHUNK, len(texts))}.npy"
        if not chunk.exists():
            with atomic_path(chunk) as temporary, open(temporary, "wb") as file:
                np.save(file, encode(texts[start : start + _CHUNK]))
        chunks.append(np.load(chunk))
        if progress:
            progress(min(start + _CHUNK, len(texts)), len(texts))
    tokens = np.concatenate(chunks) if chunks else encode([])
    with atomic_path(path) as temporary:  # last: the file exists only when complete
        with open(temporary, "wb") as file:
            np.save(file, tokens)
        write_text(meta_path, json.dumps({"key": key, "file": _file_hash(temporary)}))
    shutil.rmtree(parts, ignore_errors=True)


def _file_hash(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
