"""The passes over all query–item pairs in PyTorch, for GPUs: the same counts as the compiled ones, to the last item.

Distances come from products of ±1 codes and shared labels from products of label sets, in blocks of pairs; both are
whole numbers far below 2²⁴, so float32 holds them exactly whatever the order of the sums.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from channelhash.codes import PackedCodes, unpack
from channelhash.metrics.count_distances import DistanceCounts, Labels, by_label_count
from channelhash.metrics.graded_relevance import gain_lists, gain_units, label_gains

# Pairs of a block: their distances, shared labels and cells take 16 bytes a pair.
_PAIRS = 1 << 23
_QUERIES = 256


def count_distances(
    query_codes: PackedCodes,
    database_codes: PackedCodes,
    query_labels: Labels,
    database_labels: Labels,
    n_bits: int,
    device: str,
) -> DistanceCounts:
    """Count as `count_distances.count_distances` does, on a device of PyTorch; arguments and results are the same.

    O(nq · nd · (k + c)) time; the memory on the device is the codes and label sets in float32 and a block of pairs.

    >>> codes, labels = np.array([[0], [255]], np.uint8), np.eye(2) > 0
    >>> count_distances(codes, codes, labels, labels, n_bits=8, device="cpu").total[0].tolist()
    [1, 0, 0, 0, 0, 0, 0, 0, 1]
    """
    segments = by_label_count(database_labels.sum(axis=1))
    items = _signs(database_codes[segments.order], n_bits, device)
    sets = _sets(database_labels[segments.order], device)
    width, bins = int(query_labels.sum(axis=1).max(initial=0)) + 1, n_bits + 1
    units = gain_units(segments.sizes, width)
    worth = torch.from_numpy(units).to(device)
    total, relevant, gained = (np.zeros((len(query_codes), bins), dtype=np.int64) for _ in range(3))
    lists = []
    for rows, codes, labels in _queries(query_codes, query_labels, n_bits, device):
        counts = torch.zeros(3, len(codes), bins, dtype=torch.int64, device=device)
        shared = torch.zeros(len(codes), *units.shape, dtype=torch.int64, device=device)
        query_cells = torch.arange(len(codes), device=device)[:, None] * (width * bins)
        begin = 0
        for segment, end in enumerate(segments.ends.tolist()):
            cells = torch.zeros(len(codes) * width * bins, dtype=torch.int64, device=device)
            for start in range(begin, end, _PAIRS // _QUERIES):
                block = slice(start, min(end, start + _PAIRS // _QUERIES))
                distance = (0.5 * (n_bits - codes @ items[block].T)).long()
                pairs = query_cells + (labels @ sets[block].T).long() * bins + distance
                cells += torch.bincount(pairs.flatten(), minlength=len(cells))
            by_labels = cells.view(len(codes), width, bins)
            counts[0] += by_labels.sum(dim=1)
            counts[1] += by_labels[:, 1:].sum(dim=1)
            counts[2] += (by_labels * worth[segment][:, None]).sum(dim=1)
            shared[:, segment] = by_labels.sum(dim=2)
            begin = end
        total[rows], relevant[rows], gained[rows] = counts.cpu().numpy()
        lists.append(gain_lists(shared.cpu().numpy(), units, rows.start))
    return DistanceCounts(total, relevant, label_gains(gained, lists))


def precisions_in_order(
    query_codes: PackedCodes,
    database_codes: PackedCodes,
    query_labels: Labels,
    database_labels: Labels,
    n_bits: int,
    device: str,
) -> NDArray[np.float64]:
    """Sum as `count_distances.precisions_in_order` does, on a device of PyTorch, by sorting the whole database for some
    queries at a time.

    The memory on the device is the codes and label sets in float32 and a block of pairs, but at least one row of them.

    >>> codes, labels = np.array([[0], [255]], np.uint8), np.eye(2) > 0
    >>> precisions_in_order(codes, codes, labels, labels, n_bits=8, device="cpu").tolist()
    [1.0, 1.0]
    """
    items, sets = _signs(database_codes, n_bits, device), _sets(database_labels, device)
    ranks = torch.arange(1, len(items) + 1, dtype=torch.float64, device=device)
    sums = np.empty(len(query_codes))
    size = max(1, _PAIRS // len(items))
    for rows, codes, labels in _queries(query_codes, query_labels, n_bits, device, min(size, _QUERIES)):
        order = torch.argsort(n_bits - codes @ items.T, dim=1, stable=True)
        hits = (labels @ sets.T > 0).gather(1, order)
        sums[rows] = (hits * hits.cumsum(dim=1) / ranks).sum(dim=1).cpu().numpy()
    return sums


def _queries(
    packed: PackedCodes, labels: Labels, n_bits: int, device: str, size: int = _QUERIES
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield the rows, codes and label sets of ``size`` queries at a time."""
    for first in range(0, len(packed), size):
        rows = slice(first, min(first + size, len(packed)))
        yield rows, _signs(packed[rows], n_bits, device), _sets(labels[rows], device)


def _signs(packed: PackedCodes, n_bits: int, device: str) -> Tensor:
    """Return packed codes as ±1 in float32."""
    return torch.from_numpy(unpack(packed, n_bits)).to(device).float().mul_(2).sub_(1)


def _sets(labels: Labels, device: str) -> Tensor:
    """Return label sets as 0 and 1 in float32."""
    return torch.from_numpy(np.ascontiguousarray(labels)).to(device).float()
