"""Texts as token ids: words hashed into buckets, or looked up in a vocabulary. Token 0 is padding."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

TokenIds = NDArray[np.int32]

#: Characters stripped from both ends of a word.
PUNCTUATION = "#.,;:!?\"'()[]{}…“”„’"


def split_words(text: str) -> list[str]:
    """Split a text at white space into lower-case words without a leading ``#`` and enclosing punctuation.

    >>> split_words('#BlueSky, "two  dogs".')
    ['bluesky', 'two', 'dogs']
    """
    words = (word.strip(PUNCTUATION) for word in text.lower().split())
    return [word for word in words if word]


@dataclass(frozen=True)
class Vocabulary:
    """Known words; the token of ``words[i]`` is ``i + 1``.

    >>> Vocabulary.from_texts(["a dog", "dog and cat"], min_count=1).token["dog"]
    1
    """

    words: tuple[str, ...]

    @classmethod
    def from_texts(cls, texts: Iterable[str], min_count: int = 2) -> "Vocabulary":
        """Collect the words that occur at least ``min_count`` times, most frequent first, ties by alphabet."""
        counts = Counter(word for text in texts for word in split_words(text))
        frequent = [word for word, count in counts.items() if count >= min_count]
        return cls(tuple(sorted(frequent, key=lambda word: (-counts[word], word))))

    @cached_property
    def token(self) -> dict[str, int]:
        """Tokens by word."""
        return {word: i + 1 for i, word in enumerate(self.words)}


def encode_vocabulary(texts: Sequence[str], vocabulary: Vocabulary, max_tokens: int) -> TokenIds:
    """Look up the token ids of the known words of each text.

    Returns:
        ``(n, max_tokens)`` int32; longer texts are cut, shorter ones padded with 0, unknown words left out.

    >>> encode_vocabulary(["A dog!", "big cat"], Vocabulary(("dog", "cat")), max_tokens=2).tolist()
    [[1, 0], [2, 0]]
    """
    token = vocabulary.token
    return _padded(texts, max_tokens, lambda word: token.get(word, 0))


def encode_hashed(texts: Sequence[str], n_buckets: int, max_tokens: int) -> TokenIds:
    """Hash the words of each text to token ids 1 … ``n_buckets``, the same in every process.

    Returns:
        ``(n, max_tokens)`` int32; longer texts are cut, shorter ones padded with 0.

    >>> encode_hashed(["dog dog", ""], n_buckets=100, max_tokens=3).tolist()
    [[66, 66, 0], [0, 0, 0]]
    """
    return _padded(texts, max_tokens, lambda word: hash_word(word, n_buckets))


def hash_word(word: str, n_buckets: int) -> int:
    """Return the bucket of a word, 1 … ``n_buckets``.

    >>> hash_word("dog", n_buckets=100)
    66
    """
    digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % n_buckets + 1


def _padded(texts: Sequence[str], max_tokens: int, token: Callable[[str], int]) -> TokenIds:
    ids = np.zeros((len(texts), max_tokens), dtype=np.int32)
    for row, text in enumerate(texts):
        tokens = [number for number in map(token, split_words(text)) if number][:max_tokens]
        ids[row, : len(tokens)] = tokens
    return ids
