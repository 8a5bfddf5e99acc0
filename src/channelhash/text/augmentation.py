"""Changing token ids at random (the paper's future work; off unless asked for).

Each draw is a function of (seed, epoch, sample), as with pictures. Arrays are ``(n, m)`` int32 with 0 for padding; the
result is a new array.
"""

from collections.abc import Sequence

import numpy as np

from channelhash.text.tokens import TokenIds
from channelhash.utils.seeds import generator


def mask_tokens(
    tokens: TokenIds, samples: Sequence[int], seed: int, epoch: int, probability: float, mask_token: int
) -> TokenIds:
    """Each token becomes ``mask_token`` with ``probability``."""
    result = tokens.copy()
    for row, sample in enumerate(samples):
        hit = generator(seed, "mask tokens", epoch, sample).random(tokens.shape[1]) < probability
        result[row, hit & (tokens[row] != 0)] = mask_token
    return result


def replace_tokens(
    tokens: TokenIds, samples: Sequence[int], seed: int, epoch: int, probability: float, known: TokenIds
) -> TokenIds:
    """Each token becomes a random one of ``known`` ``(v,)``, each as likely, with ``probability``."""
    result = tokens.copy()
    for row, sample in enumerate(samples):
        random = generator(seed, "replace tokens", epoch, sample)
        hit = (random.random(tokens.shape[1]) < probability) & (tokens[row] != 0)
        if hit.any():
            drawn = np.asarray(random.integers(len(known), size=tokens.shape[1]))
            result[row, hit] = known[drawn[hit]]
    return result


def drop_tokens(tokens: TokenIds, samples: Sequence[int], seed: int, epoch: int, probability: float) -> TokenIds:
    """Each token is left out with ``probability``, the rest moves up; a text keeps at least one token."""
    result = np.zeros_like(tokens)
    for row, sample in enumerate(samples):
        random = generator(seed, "drop tokens", epoch, sample)
        real = tokens[row][tokens[row] != 0]
        kept = real[random.random(len(real)) >= probability]
        if not len(kept) and len(real):
            kept = np.array([real.tolist()[int(random.integers(len(real)))]])
        result[row, : len(kept)] = kept
    return result
