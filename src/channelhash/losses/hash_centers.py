"""Binary centres of labels, far apart: rows of a Hadamard matrix."""

import numpy as np
import torch
from torch import Tensor

from channelhash.utils.seeds import generator


def hash_centres(n_labels: int, n_bits: int, seed: int) -> Tensor:
    """Return a code for each label, ``(c, k)`` of ±1 (CSQ, algorithm 1).

    The first c rows of Hadamard's matrix H and of −H: k/2 bits apart from one another, or k from its opposite. Where k
    is no power of two (Sylvester's construction has no other), or c > 2k: bits drawn with probability ½.

    >>> hash_centres(3, 4, seed=0)
    tensor([[ 1.,  1.,  1.,  1.],
            [ 1., -1.,  1., -1.],
            [ 1.,  1., -1., -1.]])
    """
    if n_bits & (n_bits - 1) or n_labels > 2 * n_bits:
        return random_signs((n_labels, n_bits), seed, "hash centres")
    hadamard = np.ones((1, 1), dtype=np.float32)
    while len(hadamard) < n_bits:
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    return torch.from_numpy(np.concatenate([hadamard, -hadamard])[:n_labels])


def random_signs(shape: tuple[int, ...], seed: int, *names: str) -> Tensor:
    """Draw ±1 with probability ½ each, from a named seed.

    >>> random_signs((2, 3), 0, "example").abs().tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    return torch.from_numpy(generator(seed, *names).choice(np.array([-1, 1], dtype=np.float32), size=shape))
