"""What a bit tends to mean: the labels that go with it.

A bit of a learned code is nobody's label. What can be said is how often it is 1 on items with a label and on items
without: the phi coefficient, which is Pearson's (and the point-biserial) correlation of two binary variables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from channelhash.codes import PackedCodes, unpack
from channelhash.explanation.agreeing_bits import Bit

Correlations = NDArray[np.float64]

#: Chance that any label of any bit is called clear where no bit has to do with any label.
ALPHA = 0.05
#: Smallest |φ| that is called clear however many rows there are; why this much is in docs/explain.md.
EFFECT = 0.2
# Rows unpacked at a time.
_ROWS = 1 << 16


def bit_label_correlation(packed: PackedCodes, n_bits: int, labels: NDArray[np.bool_]) -> Correlations:
    """Phi coefficient of every bit with every label.

    φ = (n n₁₁ − b l) / sqrt(b (n − b) l (n − l)) with n items, b of them with the bit, l with the label, n₁₁ with both.

    Args:
        packed: ``(n, ceil(n_bits / 8))`` packed codes.
        n_bits: code length k.
        labels: ``(n, c)`` bool.

    Returns:
        ``(k, c)`` in [−1, 1]; NaN for a bit or a label that is constant.
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


def clear_from(rows: int, tests: int) -> float:
    """Smallest |φ| that counts: significant after Bonferroni's correction, and no small effect.

    Without association n φ² is χ² with one degree of freedom, so that √n φ is a standard normal variable.

    Args:
        rows: items n that were counted.
        tests: correlations that are looked at, k · c.
    """
    significant = float(norm.isf(ALPHA / (2 * max(tests, 1)))) / np.sqrt(max(rows, 1))
    return max(EFFECT, float(significant))


@dataclass(frozen=True)
class Meanings:
    """Correlations of a model's bits with labels.

    Attributes:
        label_names: c names.
        correlations: modality -> ``(k, c)``, of the codes of that modality.
        rows: modality -> items that were counted.
    """

    label_names: tuple[str, ...]
    correlations: Mapping[str, Correlations]
    rows: Mapping[str, int]

    def clear(self, modalities: Sequence[str]) -> Correlations:
        """The clear correlations of bits in a pair of codes.

        A label means something there if its correlation is clear in the codes of each of ``modalities``, with the same
        sign; the smallest of them is what counts.

        Returns:
            ``(k, c)``, 0 where there is none.
        """
        stack = []
        for modality in dict.fromkeys(modalities):
            values = np.nan_to_num(self.correlations[modality])
            stack.append(np.where(np.abs(values) >= clear_from(self.rows[modality], values.size), values, 0.0))
        found = np.stack(stack)
        same_sign = (found > 0).all(axis=0) | (found < 0).all(axis=0)
        return np.where(same_sign, np.sign(found[0]) * np.abs(found).min(axis=0), 0.0)


def spoken_for(bits: Sequence[Bit], clear: Correlations) -> Correlations:
    """What the agreeing bits say together: the mean of ±φ_jl weighted by share_j, + for a bit that is 1, − for 0.

    Args:
        bits: all k bits of a pair.
        clear: ``(k, c)``, from `Meanings.clear`.

    Returns:
        ``(c,)`` in [−1, 1]: what speaks for a label (positive) or against it. 1 would be agreeing bits that are all
        this label and nothing else; 0 where no bit agrees.
    """
    shares = np.array([bit.share * bit.agrees for bit in bits])
    signs = np.array([1 if bit.values[0] else -1 for bit in bits])
    spoken: Correlations = (shares * signs) @ clear / (shares.sum() or 1.0)
    return spoken
