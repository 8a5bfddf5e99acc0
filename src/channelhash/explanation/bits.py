"""The bits of a pair of codes, and the labels that go with them.

No bit of a learned code is a label. What can be counted, over a store's labelled items, is how
often the bit is 1 on items with a label and on items without it: the phi coefficient, which is
Pearson's (and the point-biserial) correlation of two binary variables.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import CodeSet, PackedCodes, binarize, unit_rows, unpack
from channelhash.data.records import labels_from_names
from channelhash.explanation.occlusion import Outputs
from channelhash.search import Address
from channelhash.search.store import Store

_Correlations = NDArray[np.float64]
_LabelledCodes = Mapping[str, tuple[PackedCodes, NDArray[np.bool_]]]
#: Probability that any correlation is called clear when bits and labels are independent.
_ALPHA = 0.05
#: Smallest |φ| that is called clear, however many rows there are; docs/how-to/explain.md gives the
#: reason.
_EFFECT = 0.2
#: Rows unpacked at a time, which keeps memory small.
_ROWS = 1 << 16
#: Largest number of a store's items that are counted; of a run all are.
_MAX_COUNTED = 20_000
#: Largest store whose ids are listed; of larger ones nothing is counted.
_MAX_ITEMS = 5_000_000


class Bit(NamedTuple):
    """One bit of a pair of codes.

    Attributes:
        number: its place in the code, counted from 1.
        values: the bit of the first and of the second code.
        strengths: for each code, |output| over the root mean square of all its outputs: a bit of
            strength 0 is about to flip, a bit of strength 1 is as sure as the item's bits are on
            average. None where only bits are known.
        share: the bit's summand of cos(a, b), in [−1, 1]; positive where the bits agree. The shares
            of all bits add up to the cosine, and the relaxed Hamming distance is k/2 (1 − cos), eq.
            (2) of the paper.

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
    def compare(
        cls, first: Outputs, second: Outputs, real: tuple[bool, bool] = (True, True)
    ) -> "list[Bit]":
        """Compare two codes bit by bit.

        >>> bits = Bit.compare(np.array([1.0, -1.0]), np.array([1.0, 1.0]))
        >>> [(bit.number, bit.agrees, round(bit.share, 3)) for bit in bits]
        [(1, True, 0.5), (2, False, -0.5)]
        """
        outputs = np.stack([first, second])
        unit = unit_rows(outputs)
        values = binarize(outputs).tolist()
        shares = (unit[0] * unit[1]).tolist()
        strengths = (np.abs(unit) * np.sqrt(unit.shape[1])).tolist()
        for side, is_real in enumerate(real):
            if not is_real:
                strengths[side] = [None] * len(shares)
        pairs = zip(zip(*values, strict=True), zip(*strengths, strict=True), shares, strict=True)
        return [cls(number, *pair) for number, pair in enumerate(pairs, start=1)]


def _bit_label_correlation(
    packed: PackedCodes, n_bits: int, labels: NDArray[np.bool_]
) -> _Correlations:
    """Return the phi coefficient of every bit with every label.

    φ = (n n₁₁ − b l) / sqrt(b (n − b) l (n − l)), where of n items b have the bit, l the label and
    n₁₁ both.

    >>> from channelhash.codes import pack
    >>> packed = pack(np.array([[True, False], [True, True], [False, True], [False, False]]))
    >>> _bit_label_correlation(packed, 2, np.array([[True], [True], [False], [False]])).tolist()
    [[1.0], [0.0]]
    """
    both = np.zeros((n_bits, labels.shape[1]))
    with_bit = np.zeros(n_bits)
    for start in range(0, len(packed), _ROWS):
        # counts of a block are exact in it
        bits = unpack(packed[start : start + _ROWS], n_bits).astype(np.float32)
        both += bits.T @ labels[start : start + _ROWS].astype(np.float32)
        with_bit += bits.sum(axis=0)
    n = float(len(packed))
    with_label = labels.sum(axis=0, dtype=np.float64)
    scale = np.sqrt(np.outer(with_bit * (n - with_bit), with_label * (n - with_label)))
    numerator = n * both - np.outer(with_bit, with_label)
    correlation: _Correlations = np.divide(
        numerator, scale, out=np.full(scale.shape, np.nan), where=scale > 0
    )
    return np.clip(correlation, -1, 1)


def _clear_threshold(n_rows: int, n_tests: int) -> float:
    """Return the smallest |φ| that is clear: significant after Bonferroni's correction, and not a
    small effect.

    Without association n φ² is χ² with one degree of freedom, so √n φ is a standard normal
    variable: of 500 tests at 5 %, each is one at 1e-4 on two sides, so that |z| > 3.8906, and φ = z
    / √n.

    >>> round(_clear_threshold(100, 500), 3), _clear_threshold(1_000_000, 500)
    (0.389, 0.2)
    """
    significant = -NormalDist().inv_cdf(_ALPHA / (2 * max(n_tests, 1))) / np.sqrt(max(n_rows, 1))
    return max(_EFFECT, float(significant))


class BitLabels(NamedTuple):
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
    correlations: Mapping[str, _Correlations]
    rows: Mapping[str, int]

    def clear(self, modalities: Sequence[str]) -> _Correlations:
        """Return the clear correlations of the bits of a pair of codes: ``(k, c)``, 0 where
        unclear.

        A correlation is clear if it is so, with the same sign, for the codes of each of
        ``modalities``; the smallest of them is returned.
        """
        stack = []
        for modality in dict.fromkeys(modalities):
            values = np.nan_to_num(self.correlations[modality])
            threshold = _clear_threshold(self.rows[modality], values.size)
            stack.append(np.where(np.abs(values) >= threshold, values, 0.0))
        clear = np.stack(stack)
        same_sign = (clear > 0).all(axis=0) | (clear < 0).all(axis=0)
        return np.where(same_sign, np.sign(clear[0]) * np.abs(clear).min(axis=0), 0.0)

    @classmethod
    def load(cls, store: Store) -> "BitLabels | None":
        """Return the labels that go with the bits of a store's codes, or None if no item has
        labels.

        For a run, the whole retrieval set is counted, for a file of codes all codes. For any other
        store, 20,000 items are counted, evenly spaced in the order of ids; items without the key
        ``labels`` are skipped. The result is None for a store of more than 5 million items.
        """
        file = Address.parse(store.address).codes_file
        label_names, rows = _sample_items(store) if file is None else _read_items(file)
        if not label_names or store.n_bits is None:
            return None
        correlations: dict[str, _Correlations] = {}
        counts: dict[str, int] = {}
        for modality, (codes, labels) in rows.items():
            correlations[modality] = _bit_label_correlation(codes, store.n_bits, labels)
            counts[modality] = len(codes)
        return cls(tuple(label_names), correlations, counts)


def _read_items(file: Path) -> tuple[Sequence[str], _LabelledCodes]:
    """Return the label names of a file of codes, and each modality's codes with their labels."""
    codes = CodeSet.load(file)
    if codes.labels is None:
        return (), {}
    return codes.label_names, {name: (packed, codes.labels) for name, packed in codes.codes.items()}


def _sample_items(store: Store) -> tuple[Sequence[str], _LabelledCodes]:
    """Return the same as `_read_items` for the labelled items of a store, or an even sample of
    them.
    """
    if not 0 < len(store) <= _MAX_ITEMS:
        return (), {}
    ids = store.ids()
    places = np.linspace(0, len(ids) - 1, min(_MAX_COUNTED, len(ids))).astype(int)
    sample = [ids[place] for place in np.unique(places)]
    items = store.get(sample, missing_ok=True)  # others may delete meanwhile
    items = [item for item in items if isinstance(item.metadata.get("labels"), list)]
    names: list[Any] = [item.metadata["labels"] for item in items]
    labels, label_names = labels_from_names(names, None, store.address)
    rows = {}
    for modality in store.modalities:
        coded = np.array([modality in item.codes for item in items])
        if coded.any():
            codes = [item.codes[modality] for item in items if modality in item.codes]
            rows[modality] = np.stack(codes), labels[coded]
    return label_names, rows
