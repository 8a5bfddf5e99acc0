"""Texts as rows of word vectors: read, encoded once, and cached (``protocol.md`` § 2)."""

from collections.abc import Sequence
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np

from channelhash.text.hashtag_reader import TextReader
from channelhash.text.token_cache import cached_tokens
from channelhash.text.tokens import TokenIds
from channelhash.text.word_vectors import WordVectors
from channelhash.utils.files import content_hash
from channelhash.utils.progress import Progress

#: Number of most frequent words of word vectors that help the segmentation. The protocol names all of them, but
#: SymSpell keeps about 1.2 kB for each: 3.6 GB for 3,000,000.
SEGMENTATION_WORDS = 100_000

_READING = "reading 2"  # part of a cache's key: raise the number when texts are read differently


def vector_reader(vectors: WordVectors, segmentation_words: int = SEGMENTATION_WORDS) -> TextReader:
    """Make a reader that knows the words of ``vectors``; the ``segmentation_words`` most frequent help to segment."""
    return TextReader(
        lambda word: vectors.row(word) is not None,
        islice((vectors.word(row) for row in range(len(vectors))), segmentation_words),
    )


def encode_vectors(texts: Sequence[str], reader: TextReader, vectors: WordVectors, max_tokens: int = 128) -> TokenIds:
    """Encode the known words of each text; token ``t`` is row ``t − 1`` of ``vectors``.

    Returns:
        ``(n, max_tokens)`` int32; longer texts are cut, shorter ones padded with 0, unknown words left out.
    """
    ids = np.zeros((len(texts), max_tokens), dtype=np.int32)
    for row, text in enumerate(texts):
        places = (vectors.row(word) for word in reader.tokens(text, max_tokens))
        tokens = [place + 1 for place in places if place is not None]
        ids[row, : len(tokens)] = tokens
    return ids


def cached_vector_tokens(
    texts: Sequence[str],
    vectors: WordVectors,
    folder: Path,
    segmentation_words: int = SEGMENTATION_WORDS,
    max_tokens: int = 128,
    progress: Progress | None = None,
) -> TokenIds:
    """Apply `encode_vectors` to a collection through `cached_tokens`; load SymSpell only if a chunk is missing.

    Args:
        texts: ``n`` texts.
        vectors: known words.
        folder: folder of caches.
        segmentation_words: see `vector_reader`.
        max_tokens: length of the longest text.
        progress: called with (texts done, n).

    Returns:
        ``(n, max_tokens)`` int32, memory-mapped.
    """
    reader = cache(lambda: vector_reader(vectors, segmentation_words))
    key = content_hash(*(str(part).encode() for part in (_READING, vectors.hash, segmentation_words, max_tokens)))
    return cached_tokens(texts, lambda some: encode_vectors(some, reader(), vectors, max_tokens), key, folder, progress)
