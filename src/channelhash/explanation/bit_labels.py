"""The labels that go with a bit.

No bit of a learned code is a label. What can be counted is how often the bit is 1 on items with a label and on items
without it: the phi coefficient, which is Pearson's (and the point-biserial) correlation of two binary variables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, unpack
from channelhash.explanation.agreeing_bits import Bit

Correlations = NDArray[np.float64]

#: Probability that any correlation is called clear when bits and labels are independent.
ALPHA = 0.05
#: Smallest |φ| that is called clear, however many rows there are; docs/how-to/explain.md gives the reason.
EFFECT = 0.2
# Rows unpacked at a time.
_ROWS = 1 << 16


def bit_label_correlation(packed: PackedCodes, n_bits: int, labels: NDArray[np.bool_]) -> Correlations:
    """Return the phi coefficient of every bit with every label.

    φ = (n n₁₁ − b l) / sqrt(b (n − b) l (n − l)), where of n items b have the bit, l the label and n₁₁ both.

    Args:
        packed: ``(n, ceil(n_bits / 8))`` packed codes.
        n_bits: code length k.
        labels: ``(n, c)`` bool.

    Returns:
        ``(k, c)`` in [−1, 1]; NaN for a bit or a label that is constant.

    >>> from channelhash.codes import pack
    >>> packed = pack(np.array([[True, False], [True, True], [False, True], [False, False]]))
    >>> bit_label_correlation(packed, 2, np.array([[True], [True], [False], [False]])).tolist()
    [[1.0], [0.0]]
    """
    both = np.zeros((n_bits, labels.shape[1]))
    with_bit = np.zeros(n_bits)
    for start in range(0, len(packed), _ROWS):
        bits = unpack(packed[start : start + _ROWS], n_bits).astype(np.float32)  # counts of a block are exact in it
        both += bits.T @ labels[start : start + _ROWS].astype(np.float32)
        with_bit += bits.sum(axis=0)
    n, with_label = float(len(packed)), labels.sum(axis=0, dtype=np.float64)
    scale = np.sqrt(np.outer(with_bit * (n - with_bit), with_label * (n - with_label)))
    numerator = n * both - np.outer(with_bit, with_label)
    correlation: Correlations = np.divide(numerator, scale, out=np.full(scale.shape, np.nan), where=scale > 0)
    return np.clip(correlation, -1, 1)


def clear_threshold(n_rows: int, n_tests: int) -> float:
    """Return the smallest |φ| that is clear: significant after Bonferroni's correction, and not a small effect.

    Without association n φ² is χ² with one degree of freedom, so √n φ is a standard normal variable.

    Args:
        n_rows: number of items counted.
        n_tests: number of correlations considered, k · c.

    >>> round(clear_threshold(100, 500), 3), clear_threshold(1_000_000, 500)
    (0.389, 0.2)
    """
    significant = -NormalDist().inv_cdf(ALPHA / (2 * max(n_tests, 1))) / np.sqrt(max(n_rows, 1))
    return max(EFFECT, float(significant))


@dataclass(frozen=True)
class BitLabels:
    """Correlations of a model's bits with labels.

    Attributes:
        label_names: c names.
        correlations: modality -> ``(k, c)``, for the codes of that modality.
        rows: modality -> number of items counted.

    >>> values = np.array([[0.6, -0.5], [0.1, 0.9]])
    >>> BitLabels(("dog", "cat"), {"image": values}, {"image": 10_000}).clear(["image"]).tolist()
    [[0.6, -0.5], [0.0, 0.9]]
    """

    label_names: tuple[str, ...]
    correlations: Mapping[str, Correlations]
    rows: Mapping[str, int]

    def clear(self, modalities: Sequence[str]) -> Correlations:
        """Return the clear correlations of the bits of a pair of codes: ``(k, c)``, 0 where unclear.

        A correlation is clear if it is so, with the same sign, for the codes of each of ``modalities``; the smallest
        of them is returned.
        """
        stack = []
        for modality in dict.fromkeys(modalities):
            values = np.nan_to_num(self.correlations[modality])
            stack.append(np.where(np.abs(values) >= clear_threshold(self.rows[modality], values.size), values, 0.0))
        clear = np.stack(stack)
        same_sign = (clear > 0).all(axis=0) | (clear < 0).all(axis=0)
        return np.where(same_sign, np.sign(clear[0]) * np.abs(clear).min(axis=0), 0.0)


def label_evidence(bits: Sequence[Bit], clear: Correlations) -> Correlations:
    """Return the evidence of the agreeing bits for each label: the mean of ±φ_jl weighted by share_j.

    The sign is + for a bit that is 1 and − for a bit that is 0.

    Args:
        bits: all k bits of a pair.
        clear: ``(k, c)``, from `BitLabels.clear`.

    Returns:
        ``(c,)`` in [−1, 1], positive for a label and negative against it: 1 if every agreeing bit is this label and
        nothing else, 0 if no bit agrees.

    >>> bits = [Bit(1, (True, True), (1.0, 1.0), 0.75), Bit(2, (False, False), (1.0, 1.0), 0.25)]
    >>> label_evidence(bits, np.array([[0.4], [0.8]])).round(6).tolist()
    [0.1]
    """
    shares = np.array([bit.share * bit.agrees for bit in bits])
    signs = np.array([1 if bit.values[0] else -1 for bit in bits])
    evidence: Correlations = (shares * signs) @ clear / (shares.sum() or 1.0)
    return evidence
