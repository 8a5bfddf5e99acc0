"""Texts as token ids: words looked up in a vocabulary. Token 0 is padding.

Arrays are ``(n, m)`` int32 with 0 for padding. Each draw of a random change is a function of (seed, epoch, sample).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from channelhash.utils.seeds import generator

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

    >>> encode_vocabulary(["A dog!", "big cat"], Vocabulary(("dog", "cat")), max_tokens=2).tolist()
    [[1, 0], [2, 0]]
    """
    token = vocabulary.token
    return pad_tokens([[token[word] for word in split_words(text) if word in token] for text in texts], max_tokens)


def pad_tokens(tokens: Sequence[Sequence[int]], max_tokens: int) -> TokenIds:
    """Return lists of token ids as rows: the first ``max_tokens`` of each, padded with 0."""
    ids = np.zeros((len(tokens), max_tokens), dtype=np.int32)
    for row, several in enumerate(tokens):
        ids[row, : len(several)] = several[:max_tokens]
    return ids


def replace_tokens(
    tokens: TokenIds, samples: Sequence[int], seed: int, epoch: int, probability: float, known: TokenIds
) -> TokenIds:
    """Replace each token by a random one of ``known`` ``(v,)``, all equally likely, with ``probability``.

    >>> tokens, known = np.array([[5, 7, 0]], dtype=np.int32), np.array([3], dtype=np.int32)
    >>> replace_tokens(tokens, [0], seed=0, epoch=0, probability=1, known=known).tolist()
    [[3, 3, 0]]
    """
    result = tokens.copy()
    for row, sample in enumerate(samples):
        random = generator(seed, "replace tokens", epoch, sample)
        hit = (random.random(tokens.shape[1]) < probability) & (tokens[row] != 0)
        if hit.any():
            drawn = np.asarray(random.integers(len(known), size=tokens.shape[1]))
            result[row, hit] = known[drawn[hit]]
    return result


def drop_tokens(tokens: TokenIds, samples: Sequence[int], seed: int, epoch: int, probability: float) -> TokenIds:
    """Drop each token with ``probability`` and close the gaps; a text keeps at least one token.

    >>> tokens = np.array([[5, 7, 0]], dtype=np.int32)
    >>> int((drop_tokens(tokens, [0], seed=0, epoch=0, probability=1) > 0).sum())
    1
    """
    result = np.zeros_like(tokens)
    for row, sample in enumerate(samples):
        random = generator(seed, "drop tokens", epoch, sample)
        real = tokens[row][tokens[row] != 0]
        remaining = real[random.random(len(real)) >= probability]
        if not len(remaining) and len(real):
            remaining = np.array([real.tolist()[int(random.integers(len(real)))]])
        result[row, : len(remaining)] = remaining
    return result
