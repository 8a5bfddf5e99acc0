"""The bits of a pair, and the labels that go with a bit, counted over a store's labelled items.

No bit of a learned code is a label. What can be counted is how often the bit is 1 on items with a label and on items
without it: the phi coefficient, which is Pearson's (and the point-biserial) correlation of two binary variables.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, binarize, unit_rows, unpack
from channelhash.codes.code_set import CodeSet
from channelhash.data.records import labels_from_names
from channelhash.search import codes_at
from channelhash.search.store import Store

Outputs = NDArray[np.float32]

_Correlations = NDArray[np.float64]


class Bit(NamedTuple):
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

    @classmethod
    def compare(cls, first: Outputs, second: Outputs, real: tuple[bool, bool] = (True, True)) -> "list[Bit]":
        """Compare two codes bit by bit.

        >>> bits = Bit.compare(np.array([1.0, -1.0]), np.array([1.0, 1.0]))
        >>> [(bit.number, bit.agrees, round(bit.share, 3)) for bit in bits]
        [(1, True, 0.5), (2, False, -0.5)]
        """
        outputs = np.stack([first, second])
        unit = unit_rows(outputs)
        values, shares = binarize(outputs).tolist(), (unit[0] * unit[1]).tolist()
        strengths = (np.abs(unit) * np.sqrt(unit.shape[1])).tolist()
        rows = [row if is_real else [None] * len(row) for row, is_real in zip(strengths, real, strict=True)]
        pairs = zip(zip(*values, strict=True), zip(*rows, strict=True), shares, strict=True)
        return [cls(number, *pair) for number, pair in enumerate(pairs, start=1)]


#: Probability that any correlation is called clear when bits and labels are independent.
_ALPHA = 0.05
#: Smallest |φ| that is called clear, however many rows there are; docs/how-to/explain.md gives the reason.
_EFFECT = 0.2
# Rows unpacked at a time.
_ROWS = 1 << 16
#: Largest number of a store's items that are counted; of a run all are.
_MAX_COUNTED = 20_000
#: Largest store whose ids are listed; of larger ones nothing is counted.
_MAX_ITEMS = 5_000_000
_BLOCK = 1000


def _bit_label_correlation(packed: PackedCodes, n_bits: int, labels: NDArray[np.bool_]) -> _Correlations:
    """Return the phi coefficient of every bit with every label.

    φ = (n n₁₁ − b l) / sqrt(b (n − b) l (n − l)), where of n items b have the bit, l the label and n₁₁ both.

    >>> from channelhash.codes import pack
    >>> packed = pack(np.array([[True, False], [True, True], [False, True], [False, False]]))
    >>> _bit_label_correlation(packed, 2, np.array([[True], [True], [False], [False]])).tolist()
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
    correlation: _Correlations = np.divide(numerator, scale, out=np.full(scale.shape, np.nan), where=scale > 0)
    return np.clip(correlation, -1, 1)


def _clear_threshold(n_rows: int, n_tests: int) -> float:
    """Return the smallest |φ| that is clear: significant after Bonferroni's correction, and not a small effect.

    Without association n φ² is χ² with one degree of freedom, so √n φ is a standard normal variable: of 500 tests at
    5 %, each is one at 1e-4 on two sides, so that |z| > 3.8906, and φ = z / √n.

    >>> round(_clear_threshold(100, 500), 3), _clear_threshold(1_000_000, 500)
    (0.389, 0.2)
    """
    significant = -NormalDist().inv_cdf(_ALPHA / (2 * max(n_tests, 1))) / np.sqrt(max(n_rows, 1))
    return max(_EFFECT, float(significant))


class BitLabels(NamedTuple):
    """_Correlations of a model's bits with labels.

    Attributes:
        label_names: c names.
        correlations: modality -> ``(k, c)``, for the codes of that modality.
        rows: modality -> number of items counted.

    >>> values = np.array([[0.6, -0.5], [0.1, 0.9]])
    >>> BitLabels(("dog", "cat"), {"image": values}, {"image": 10_000}).clear(["image"]).tolist()
    [[0.6, -0.5], [0.0, 0.9]]
    """

    label_names: tuple[str, ...]
    correlations: Mapping[str, _Correlations]
    rows: Mapping[str, int]

    def clear(self, modalities: Sequence[str]) -> _Correlations:
        """Return the clear correlations of the bits of a pair of codes: ``(k, c)``, 0 where unclear.

        A correlation is clear if it is so, with the same sign, for the codes of each of ``modalities``; the smallest
        of them is returned.
        """
        stack = []
        for modality in dict.fromkeys(modalities):
            values = np.nan_to_num(self.correlations[modality])
            stack.append(np.where(np.abs(values) >= _clear_threshold(self.rows[modality], values.size), values, 0.0))
        clear = np.stack(stack)
        same_sign = (clear > 0).all(axis=0) | (clear < 0).all(axis=0)
        return np.where(same_sign, np.sign(clear[0]) * np.abs(clear).min(axis=0), 0.0)

    @classmethod
    def load(cls, store: Store) -> "BitLabels | None":
        """Return the labels that go with the bits of a store's codes, or None if no item has labels.

        For a run, the whole retrieval set is counted, for a file of codes all codes. For any other store, 20,000 items
        are counted, evenly spaced in the order of ids; items without the key ``labels`` are skipped. The result is None
        for a store of more than 5 million items.
        """
        if (file := codes_at(Path(store.address))) is None:
            return _count_items(store)
        codes = CodeSet.load(file)
        if codes.labels is None or not codes.label_names:
            return None
        rows = {name: (packed, codes.labels) for name, packed in codes.codes.items()}
        return _correlate(codes.label_names, codes.n_bits, rows)


def _correlate(
    label_names: Sequence[str], n_bits: int, rows: Mapping[str, tuple[PackedCodes, NDArray[np.bool_]]]
) -> BitLabels:
    """Correlate the codes of each modality with the labels of their items.

    >>> dog = {"image": (np.array([[128], [0]], np.uint8), np.eye(2, 1, dtype=bool))}
    >>> _correlate(["dog"], 1, dog).correlations["image"].tolist()
    [[1.0]]
    """
    correlations = {name: _bit_label_correlation(codes, n_bits, labels) for name, (codes, labels) in rows.items()}
    return BitLabels(tuple(label_names), correlations, {name: len(codes) for name, (codes, _) in rows.items()})


def _count_items(store: Store) -> BitLabels | None:
    if not 0 < len(store) <= _MAX_ITEMS:
        return None
    ids = store.ids()
    sample = [ids[i] for i in np.unique(np.linspace(0, len(ids) - 1, min(_MAX_COUNTED, len(ids))).astype(int))]
    pairs: dict[str, list[tuple[PackedCodes, list[str]]]] = {}
    for start in range(0, len(sample), _BLOCK):
        for item in store.get(sample[start : start + _BLOCK]):
            if isinstance(labels := item.metadata.get("labels"), list):
                for modality, code in item.codes.items():
                    pairs.setdefault(modality, []).append((code, labels))
    label_names = sorted({label for rows in pairs.values() for _, labels in rows for label in labels})
    if not label_names or store.n_bits is None:
        return None
    rows = {}
    for modality, items in pairs.items():
        names = [labels for _, labels in items]
        rows[modality] = np.stack([code for code, _ in items]), labels_from_names(names, label_names, store.address)[0]
    return _correlate(label_names, store.n_bits, rows)
