"""Token ids of a collection's texts, computed once: never dense vectors (``protocol.md`` § 2)."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from channelhash.errors import InputError
from channelhash.files import atomic_path, content_hash, write_text
from channelhash.text.tokens import TokenIds

_CHUNK = 2048

Progress = Callable[[int, int], None]


def cached_tokens(
    texts: Sequence[str],
    encode: Callable[[Sequence[str]], TokenIds],
    vocabulary_hash: str,
    cache: Path,
    progress: Progress | None = None,
) -> TokenIds:
    """Token ids ``(n, m)`` int32 of ``texts``, memory-mapped from a cache that is built where it is missing.

    The cache's name is a hash of the texts and of ``vocabulary_hash``, so that a cache of another vocabulary, filter
    or setting is another file. It is built in chunks, each written in one step; an interrupted build goes on with the
    first chunk that is missing.

    Args:
        texts: ``n`` texts.
        encode: texts to ``(len, m)`` token ids; called for the chunks that are missing.
        vocabulary_hash: identifies whatever ``encode`` depends on: vocabulary, reader, longest text.
        cache: folder of caches.
        progress: called with (texts done, n).

    Raises:
        InputError: the cache is damaged.
    """
    key = content_hash("\x1e".join(texts).encode(), vocabulary_hash.encode())
    path, meta_path, parts = (cache / f"tokens-{key[:16]}{ending}" for ending in (".npy", ".json", ".parts"))
    if not path.exists():
        _build(texts, encode, key, path, meta_path, parts, progress)
    try:
        tokens: TokenIds = np.load(path, mmap_mode="r")
        meta = json.loads(meta_path.read_text())
        if meta != {"key": key, "shape": list(tokens.shape), "sum": int(tokens.sum(dtype=np.int64))}:
            raise ValueError("content differs from what was built")
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
        chunk = parts / f"{start}.npy"
        if not chunk.exists():
            with atomic_path(chunk) as temporary, open(temporary, "wb") as file:
                np.save(file, encode(texts[start : start + _CHUNK]))
        chunks.append(np.load(chunk))
        if progress:
            progress(min(start + _CHUNK, len(texts)), len(texts))
    tokens = np.concatenate(chunks) if chunks else encode([])
    description = {"key": key, "shape": list(tokens.shape), "sum": int(tokens.sum(dtype=np.int64))}
    write_text(meta_path, json.dumps(description))
    with atomic_path(path) as temporary, open(temporary, "wb") as file:  # last: its being there means it is complete
        np.save(file, tokens)
    shutil.rmtree(parts, ignore_errors=True)
