"""What a set of codes is like, whatever is searched with it: bits, buckets, and pairs against their
channels.
"""

from collections.abc import Callable, Iterator
from itertools import combinations_with_replacement, product
from typing import TYPE_CHECKING, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from channelhash.codes import CodeSet, PackedCodes, check_packed, unpack
from channelhash.metrics.count_distances import Counts, count_jointly

if TYPE_CHECKING:
    from torch import Tensor

Bounds = Callable[["Tensor"], tuple["Tensor", "Tensor"]]
#: S = 0, 0 < S < 1, S = 1: the sets that the losses part pairs into.
_Kind = Literal["dissimilar", "partly_similar", "identical_labels"]

#: Rows of codes that are unpacked at once.
_ROWS = 1 << 13
#: Rounding of bounds: a distance on the very edge of its channel is inside.
_EDGE = 1e-9


class _BitHealth(TypedDict):
    """Bits and buckets of the codes of one modality.

    Attributes:
        ones: share of ones of each bit, ``k`` numbers; 0.5 is balanced.
        entropy: entropy of each bit in bits, ``k`` numbers; 1 is balanced, 0 constant.
        constant: number of bits that are the same in every code.
        correlation_mean: mean of |Pearson correlation| over the pairs of bits that are not
            constant; None without one.
        correlation_max: the largest.
        distinct: share of distinct codes, number of buckets / number of items.
        alone: share of items that no other item shares its code with.
        largest_bucket: items of the most frequent code.

    >>> bit_health(np.array([[0], [255], [255]], np.uint8), n_bits=8)["largest_bucket"]
    2
    """

    ones: list[float]
    entropy: list[float]
    constant: int
    correlation_mean: float | None
    correlation_max: float | None
    distinct: float
    alone: float
    largest_bucket: int


class _ChannelHealth(TypedDict):
    """Pairs of one kind against their channels.

    Attributes:
        pairs: number of pairs.
        distances: number of pairs at distance 0 … k.
        inside: share of the pairs within their channel, ends included; None without pairs, likewise
            the next two.
        below: share of the pairs that are nearer than their channel.
        above: share of the pairs that are farther.

    >>> packed = np.array([[0], [255]], np.uint8)
    >>> codes = CodeSet(["a", "b"], {"image": packed}, np.eye(2), n_bits=8)
    >>> code_report(codes)["channels"]["image-image"]["dissimilar"]["distances"]
    [0, 0, 0, 0, 0, 0, 0, 0, 1]
    """

    pairs: int
    distances: list[int]
    inside: float | None
    below: float | None
    above: float | None


class CodeHealth(TypedDict):
    """``bits`` by modality, and ``channels`` by pair of modalities, e.g. ``"image-text"``, and
    kind.

    >>> packed = np.array([[0], [255]], np.uint8)
    >>> codes = CodeSet(["a", "b"], {"image": packed}, np.eye(2), n_bits=8)
    >>> list(code_report(codes)["bits"])
    ['image']
    """

    bits: dict[str, _BitHealth]
    channels: dict[str, dict[_Kind, _ChannelHealth]]


def code_report(codes: CodeSet, bounds: Bounds | None = None) -> CodeHealth:
    """Report bits, buckets and channels of every modality and pair of modalities of a code set.

    Args:
        codes: items with labels; at least one.
        bounds: similarity -> lower and upper end of the channel in bits, as in the losses;
            `channels.dsch_bounds` with its defaults if None.

    Raises:
        ValueError: the labels are missing, or there are no items.

    O(n²) for the channels, all pairs at the speed of `hamming_histogram`; the rest is O(n k²).

    >>> packed = np.array([[0], [255]], np.uint8)
    >>> codes = CodeSet(["a", "b"], {"image": packed}, np.eye(2), n_bits=8)
    >>> code_report(codes)["channels"]["image-image"]["dissimilar"]["distances"]
    [0, 0, 0, 0, 0, 0, 0, 0, 1]
    """
    if codes.labels is None:
        raise ValueError("channels go by label similarity; these codes have no labels")
    from channelhash.channels import dsch_bounds

    own_bounds = bounds or (lambda similarity: dsch_bounds(similarity, codes.n_bits))
    return {
        "bits": {
            modality: bit_health(packed, codes.n_bits) for modality, packed in codes.codes.items()
        },
        "channels": {
            f"{first}-{second}": channel_health(
                codes.codes[first],
                None if first == second else codes.codes[second],
                codes.labels,
                codes.n_bits,
                own_bounds,
            )
            for first, second in combinations_with_replacement(codes.codes, 2)
        },
    }


def bit_health(packed: PackedCodes, n_bits: int) -> _BitHealth:
    """Report bits and buckets of packed codes ``(n, ceil(k / 8))``.

    Raises:
        ValueError: there are no codes, or they do not fit ``n_bits``.

    >>> bit_health(np.array([[0], [255]], np.uint8), n_bits=8)["entropy"][0]
    1.0
    """
    _check_some(packed, n_bits)
    together = np.zeros((n_bits, n_bits))
    for start in range(0, len(packed), _ROWS):
        # counts of a block are exact in it
        block = unpack(packed[start : start + _ROWS], n_bits).astype(np.float32)
        together += block.T @ block
    ones = np.diag(together) / len(packed)
    varied = np.flatnonzero((ones > 0) & (ones < 1))
    covariance = (together / len(packed) - np.outer(ones, ones))[np.ix_(varied, varied)]
    spread = np.sqrt(ones * (1 - ones))[varied]
    pairs = np.abs(covariance / np.outer(spread, spread))[np.triu_indices(len(varied), 1)]
    rows = np.ascontiguousarray(packed).view(f"V{packed.shape[1]}").ravel()
    sizes = np.unique(rows, return_counts=True)[1]  # items of each bucket
    return {
        "ones": ones.tolist(),
        "entropy": stats.entropy([ones, 1 - ones], base=2).tolist(),
        "constant": n_bits - len(varied),
        "correlation_mean": float(pairs.mean()) if len(pairs) else None,
        "correlation_max": float(pairs.max()) if len(pairs) else None,
        "distinct": len(sizes) / len(packed),
        "alone": int((sizes == 1).sum()) / len(packed),
        "largest_bucket": int(sizes.max()),
    }


def channel_health(
    first: PackedCodes,
    second: PackedCodes | None,
    labels: NDArray[np.bool_],
    n_bits: int,
    bounds: Bounds,
) -> dict[_Kind, _ChannelHealth]:
    """Compare the distances of all pairs of items with the channel that the similarity of their
    labels gives them.

    Args:
        first: ``(n, b)`` packed codes.
        second: those of another modality of the same items: all n² pairs count, an item with itself
            having S = 1. None for pairs within ``first``: each of the n (n − 1) / 2 pairs of
            different items counts once.
        labels: ``(n, c)`` bool.
        n_bits: code length k.
        bounds: as in `code_report`.

    O(n²) time on all cores. Pairs are counted by distance and by how many labels each item has and
    both share, which decides their similarity: no array of pairs is built.

    >>> from channelhash.channels import dsch_bounds
    >>> codes, labels = np.array([[0], [255]], np.uint8), np.eye(2) > 0
    >>> channel_health(codes, None, labels, 8, lambda s: dsch_bounds(s, 8))["dissimilar"]["pairs"]
    1
    """
    _check_some(first, n_bits)
    import torch

    nothing = np.zeros(n_bits + 1, dtype=np.int64)
    # there is one row even for a single item, which has no pairs
    by_similarity: dict[float, Counts] = {0.0: nothing}
    for similarity, pairs in _pairs_by_sizes(first, second, labels, n_bits):
        by_similarity[similarity] = by_similarity.get(similarity, nothing) + pairs
    similarities = np.array(list(by_similarity))
    counts = np.stack(list(by_similarity.values()))
    lower, upper = (end.numpy()[:, None] for end in bounds(torch.from_numpy(similarities)))
    distances = np.arange(n_bits + 1)
    below = distances < lower - _EDGE
    above = distances > upper + _EDGE
    kinds: dict[_Kind, NDArray[np.bool_]] = {
        "dissimilar": similarities == 0,
        "partly_similar": (similarities > 0) & (similarities < 1),
        "identical_labels": similarities == 1,
    }
    return {
        kind: _channel_report(counts[rows], below[rows], above[rows])
        for kind, rows in kinds.items()
    }


def _pairs_by_sizes(
    first: PackedCodes, second: PackedCodes | None, labels: NDArray[np.bool_], n_bits: int
) -> Iterator[tuple[float, Counts]]:
    """Yield similarity and number of pairs at each distance, for each number of labels of one item,
    of the other and in common.
    """
    n_labels = labels.sum(axis=1)
    groups = [(size, np.flatnonzero(n_labels == size)) for size in np.unique(n_labels).tolist()]
    pairs = combinations_with_replacement(groups, 2) if second is None else product(groups, groups)
    other = first if second is None else second
    for (own_size, own_rows), (size, rows) in pairs:
        counts = count_jointly(
            (first[own_rows], other[rows], labels[own_rows], labels[rows]), n_bits
        )
        if own_size == size:
            # An item and itself: not a pair within a modality, and S = 1 across modalities even
            # without labels.
            distances = np.bitwise_count(first[rows] ^ other[rows]).sum(axis=1, dtype=np.int64)
            selves = np.bincount(distances, minlength=n_bits + 1)
            counts[:, size] -= selves
            if second is None:
                counts //= 2
            else:
                yield 1.0, selves
        for shared in np.flatnonzero(counts.any(axis=0)).tolist():
            yield shared / float(np.sqrt(max(1, own_size * size))), counts[:, shared]


def _channel_report(
    counts: Counts, below: NDArray[np.bool_], above: NDArray[np.bool_]
) -> _ChannelHealth:
    """Return the pairs of one kind: their numbers by similarity and distance, and which of those
    cells lie outside.
    """
    pairs = int(counts.sum())

    def share(cells: NDArray[np.bool_]) -> float | None:
        return int(counts[cells].sum()) / pairs if pairs else None

    return {
        "pairs": pairs,
        "distances": counts.sum(axis=0).tolist(),
        "inside": share(~below & ~above),
        "below": share(below),
        "above": share(above),
    }


def _check_some(packed: PackedCodes, n_bits: int) -> None:
    check_packed(packed, n_bits)
    if len(packed) == 0:
        raise ValueError("there are no codes to judge")
