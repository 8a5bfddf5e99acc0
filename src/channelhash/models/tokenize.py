"""Texts as token tensors: the ``prepare`` step of text branches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from channelhash.text.tokens import PUNCTUATION, Vocabulary, encode_hashed, encode_vocabulary

_WORDS = (
    "lower-case the text and split it at white space (Unicode's)",
    "strip the characters of `punctuation` from both ends of every word; leave out words of which nothing is left",
)
_PADDED = "keep the first max_tokens tokens, fill up with padding"


@dataclass(frozen=True)
class HashedTokens:
    """Hash words into ``n_buckets`` buckets; texts -> ``(n, max_tokens)`` int32, 0 is padding.

    >>> HashedTokens(n_buckets=100, max_tokens=3)(["a dog"]).shape
    torch.Size([1, 3])
    """

    n_buckets: int
    max_tokens: int

    def __call__(self, texts: Sequence[str]) -> Tensor:
        return torch.from_numpy(encode_hashed(list(texts), self.n_buckets, self.max_tokens))

    def recipe(self) -> dict[str, Any]:
        """Describe, JSON-able, how to do the same without this package."""
        bucket = "BLAKE2b with a digest of 8 bytes of its UTF-8, read as a little-endian unsigned integer"
        token = f"a word's token is {bucket}, modulo n_buckets, plus 1"
        return _recipe("hashed", self.max_tokens, token, n_buckets=self.n_buckets)


@dataclass(frozen=True)
class VocabularyTokens:
    """Look up words in ``vocabulary``; texts -> ``(n, max_tokens)`` int32, 0 is padding.

    >>> VocabularyTokens(Vocabulary(("dog", "cat")), max_tokens=3)(["a cat"]).tolist()
    [[2, 0, 0]]
    """

    vocabulary: Vocabulary
    max_tokens: int

    def __call__(self, texts: Sequence[str]) -> Tensor:
        return torch.from_numpy(encode_vocabulary(list(texts), self.vocabulary, self.max_tokens))

    def recipe(self) -> dict[str, Any]:
        """Describe, JSON-able, how to do the same without this package."""
        token = "the token of words[i] is i + 1; leave out words that are not there"
        return _recipe("vocabulary", self.max_tokens, token, words=list(self.vocabulary.words))


def _recipe(kind: str, max_tokens: int, token: str, **more: Any) -> dict[str, Any]:
    steps = [*_WORDS, token, _PADDED]
    return dict(kind=kind, steps=steps, punctuation=PUNCTUATION, max_tokens=max_tokens, padding=0) | more
