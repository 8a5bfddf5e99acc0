"""Texts as token tensors: the ``prepare`` step of text branches."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from channelhash.text.tokens import Vocabulary, encode_hashed, encode_vocabulary

Prepare = Callable[[Sequence[str]], Tensor]


def hashed_tokens(n_buckets: int, max_tokens: int) -> Prepare:
    """Words hashed into ``n_buckets`` buckets; texts -> ``(n, max_tokens)`` int32, 0 is padding."""

    def prepare(texts: Sequence[str]) -> Tensor:
        return torch.from_numpy(encode_hashed(list(texts), n_buckets, max_tokens))

    return prepare


def vocabulary_tokens(words: Sequence[str], max_tokens: int) -> Prepare:
    """Words looked up in ``words``; texts -> ``(n, max_tokens)`` int32, 0 is padding."""
    vocabulary = Vocabulary(tuple(words))

    def prepare(texts: Sequence[str]) -> Tensor:
        return torch.from_numpy(encode_vocabulary(list(texts), vocabulary, max_tokens))

    return prepare
