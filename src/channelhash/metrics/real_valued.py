"""Cosines of real-valued vectors, rounded so that what is equal is tied.

Items are tied where their cosines round to the same multiple of 2⁻²²: duplicates in a collection do, which rounding
errors would part.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Cosines that are told apart, between 0 and 1.
_STEPS = 1 << 22


def unit_rows(values: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return rows of length 1; zero rows stay, at cosine 0 to everything.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    rows = np.asarray(values, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: NDArray[np.float64] = rows / np.where(lengths > 0, lengths, 1)
    return unit


def rounded_cosines(query: NDArray[np.float64], database: NDArray[np.float64]) -> NDArray[np.int32]:
    """Return the cosines of `unit_rows` as multiples of 2⁻²², ``(nq, nd)``: what is equal is tied.

    >>> rounded_cosines(np.array([[1.0, 0.0]]), np.array([[0.6, 0.8]])).tolist()
    [[2516582]]
    """
    return np.rint((query @ database.T) * _STEPS).astype(np.int32)
