"""Two codes bit by bit: which agree, how near each is to flipping, and how much of the pair's agreement is its."""

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
        values: the first's and the second's.
        strengths: of each, |output| over the root mean square of all its outputs: 0 is about to flip, 1 as sure as the
            bits of this item are on the whole. None where only bits are known.
        share: its summand of cos(a, b), in [−1, 1]; positive where the bits agree. The shares of all bits sum up to the
            cosine, and the relaxed Hamming distance is k/2 (1 − cos), eq. (2) of the paper.
    """

    number: int
    values: tuple[bool, bool]
    strengths: tuple[float | None, float | None]
    share: float

    @property
    def agrees(self) -> bool:
        """Whether both codes have the same bit here."""
        return self.values[0] == self.values[1]


def compare_bits(first: Outputs, second: Outputs, real: tuple[bool, bool] = (True, True)) -> list[Bit]:
    """All bits of a pair.

    Args:
        first: ``(k,)`` outputs, or ±1 where only bits are known.
        second: the same of the other.
        real: whether each of them are a model's outputs, and not ±1.
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
