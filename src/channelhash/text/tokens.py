"""Texts as token ids: words hashed into buckets, or looked up in a vocabulary. Token 0 is padding."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

TokenIds = NDArray[np.int32]

#: What is taken off both ends of a word.
PUNCTUATION = "#.,;:!?\"'()[]{}…“”„’"


def split_words(text: str) -> list[str]:
    """The lower-case words of a text: separated by white space, without a leading ``#`` and enclosing punctuation.

    >>> split_words('#BlueSky, "two  dogs".')
    ['bluesky', 'two', 'dogs']
    """
    words = (word.strip(PUNCTUATION) for word in text.lower().split())
    return [word for word in words if word]


@dataclass(frozen=True)
class Vocabulary:
    """Known words; the token of ``words[i]`` is ``i + 1``."""

    words: tuple[str, ...]

    @classmethod
    def from_texts(cls, texts: Iterable[str], min_count: int = 2) -> "Vocabulary":
        """The words that occur at least ``min_count`` times, the most frequent first, ties in alphabetical order."""
        counts = Counter(word for text in texts for word in split_words(text))
        frequent = [word for word, count in counts.items() if count >= min_count]
        return cls(tuple(sorted(frequent, key=lambda word: (-counts[word], word))))

    @cached_property
    def token(self) -> dict[str, int]:
        """word -> token."""
        return {word: i + 1 for i, word in enumerate(self.words)}


def encode_vocabulary(texts: Sequence[str], vocabulary: Vocabulary, max_tokens: int) -> TokenIds:
    """Token ids of the known words of each text.

    Returns:
        ``(n, max_tokens)`` int32; longer texts are cut, shorter ones padded with 0, unknown words left out.
    """
    token = vocabulary.token
    return _padded(texts, max_tokens, lambda word: token.get(word, 0))


def encode_hashed(texts: Sequence[str], n_buckets: int, max_tokens: int) -> TokenIds:
    """Token ids 1 … ``n_buckets`` of the hashed words of each text, the same in every process.

    Returns:
        ``(n, max_tokens)`` int32; longer texts are cut, shorter ones padded with 0.
    """
    return _padded(texts, max_tokens, lambda word: hash_word(word, n_buckets))


def hash_word(word: str, n_buckets: int) -> int:
    """The bucket of a word, 1 … ``n_buckets``."""
    digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % n_buckets + 1


def _padded(texts: Sequence[str], max_tokens: int, token: Callable[[str], int]) -> TokenIds:
    ids = np.zeros((len(texts), max_tokens), dtype=np.int32)
    for row, text in enumerate(texts):
        known = [number for number in map(token, split_words(text)) if number][:max_tokens]
        ids[row, : len(known)] = known
    return ids
