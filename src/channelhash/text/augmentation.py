"""Random changes of token ids (the paper's future work; off by default).

Each draw is a function of (seed, epoch, sample), as with images. Arrays are ``(n, m)`` int32 with 0 for padding; the
result is a new array.
"""

from collections.abc import Sequence

import numpy as np

from channelhash.text.tokens import TokenIds
from channelhash.utils.seeds import generator


def mask_tokens(
    tokens: TokenIds, samples: Sequence[int], seed: int, epoch: int, probability: float, mask_token: int
) -> TokenIds:
    """Replace each token by ``mask_token`` with ``probability``.

    >>> mask_tokens(np.array([[5, 7, 0]], dtype=np.int32), [0], seed=0, epoch=0, probability=1, mask_token=9).tolist()
    [[9, 9, 0]]
    """
    result = tokens.copy()
    for row, sample in enumerate(samples):
        hit = generator(seed, "mask tokens", epoch, sample).random(tokens.shape[1]) < probability
        result[row, hit & (tokens[row] != 0)] = mask_token
    return result


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
        kept = real[random.random(len(real)) >= probability]
        if not len(kept) and len(real):
            kept = np.array([real.tolist()[int(random.integers(len(real)))]])
        result[row, : len(kept)] = kept
    return result
