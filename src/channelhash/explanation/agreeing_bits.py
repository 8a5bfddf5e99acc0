"""Two codes compared bit by bit: which bits agree, how near each is to flipping, and its part in the agreement."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import binarize

Outputs = NDArray[np.float32]

# As in `channels.unit_rows`: below this norm outputs have no direction.
_SMALLEST_NORM = 1e-12


@dataclass(frozen=True)
class Bit:
    """One bit of a pair of codes.

    Attributes:
        number: its place in the code, counted from 1.
        values: the bit of the first and of the second code.
        strengths: for each code, |output| over the root mean square of all its outputs: a bit of strength 0 is about
            to flip, a bit of strength 1 is as sure as the item's bits are on average. None where only bits are known.
        share: the bit's summand of cos(a, b), in [−1, 1]; positive where the bits agree. The shares of all bits add up
            to the cosine, and the relaxed Hamming distance is k/2 (1 − cos), eq. (2) of the paper.

    >>> Bit(1, (True, False), (0.5, 1.5), share=-0.2).agrees
    False
    """

    number: int
    values: tuple[bool, bool]
    strengths: tuple[float | None, float | None]
    share: float

    @property
    def agrees(self) -> bool:
        """Return whether both codes have the same bit here."""
        return self.values[0] == self.values[1]


def compare_bits(first: Outputs, second: Outputs, real: tuple[bool, bool] = (True, True)) -> list[Bit]:
    """Compare two codes bit by bit.

    Args:
        first: ``(k,)`` outputs, or ±1 where only bits are known.
        second: the other item's.
        real: for each of them, whether they are a model's outputs and not ±1.

    >>> bits = compare_bits(np.array([1.0, -1.0]), np.array([1.0, 1.0]))
    >>> [(bit.number, bit.agrees, round(bit.share, 3)) for bit in bits]
    [(1, True, 0.5), (2, False, -0.5)]
    """
    values = binarize(np.stack([first, second])).tolist()
    strengths = [
        _strengths(row) if is_real else [None] * len(row) for row, is_real in zip((first, second), real, strict=True)
    ]
    shares = (_unit(first) * _unit(second)).tolist()
    return [
        Bit(j + 1, (values[0][j], values[1][j]), (strengths[0][j], strengths[1][j]), shares[j])
        for j in range(len(shares))
    ]


def _strengths(outputs: Outputs) -> list[float | None]:
    size = np.sqrt(np.mean(np.square(outputs, dtype=np.float64)))
    strengths: list[float | None] = (np.abs(outputs) / max(size, _SMALLEST_NORM)).tolist()
    return strengths


def _unit(outputs: Outputs) -> NDArray[np.float64]:
    norm = float(np.linalg.norm(outputs.astype(np.float64)))
    return outputs.astype(np.float64) / (norm if norm > _SMALLEST_NORM else 1.0)
