"""Drawing rows by their labels: iterative stratification, and the literature's "so many per class"."""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def stratified_sample(labels: NDArray[np.bool_], rows: Rows, count: int, random: np.random.Generator) -> Rows:
    """``count`` of ``rows`` with the label shares of all of them: iterative stratification into two subsets
    (Sechidis, Tsoumakas and Vlahavas 2011, algorithm 1).

    The label with the fewest remaining rows is dealt out first, each of its rows to the subset that still wants most
    of that label, ties to the subset that wants most rows, then at random. Rows without labels fill up.

    Args:
        labels: ``(n, c)`` bool, of the whole collection.
        rows: row numbers to draw from.
        count: how many, at most ``len(rows)``.
        random: decides ties and the order of rows.

    Returns:
        Row numbers, exactly ``count`` of them. O(m c) for m rows.
    """
    rows = random.permutation(rows)
    own = labels[rows]
    share = np.array([count, len(rows) - count]) / max(1, len(rows))
    wanted_rows = np.array([count, len(rows) - count], dtype=np.float64)
    wanted = share[:, None] * own.sum(axis=0)  # (2, c): how many of each label each subset still wants
    subset = np.full(len(rows), -1)
    left = own.sum(axis=0)
    members = [np.flatnonzero(own[:, label]).tolist() for label in range(own.shape[1])]
    while (left > 0).any():
        label = int(np.where(left > 0, left, np.iinfo(left.dtype).max).argmin())
        for row in members[label]:
            if subset[row] >= 0:
                continue
            chosen = _neediest(wanted[:, label], wanted_rows, random)
            subset[row] = chosen
            wanted[chosen] -= own[row]
            wanted_rows[chosen] -= 1
            left -= own[row]
    drawn = np.flatnonzero(subset == 0)
    others = np.concatenate([np.flatnonzero(subset == 1), np.flatnonzero(subset == -1)])
    unlabelled = np.flatnonzero(subset == -1)
    # Subset sizes are exact only in expectation: rows without labels, else the last ones dealt, make up the difference.
    if len(drawn) < count:
        fill = np.concatenate([unlabelled, others[~np.isin(others, unlabelled)][::-1]])[: count - len(drawn)]
        drawn = np.concatenate([drawn, fill])
    return np.sort(rows[drawn[:count]])


def _neediest(wanted: NDArray[np.float64], wanted_rows: NDArray[np.float64], random: np.random.Generator) -> int:
    """The subset that wants most of a label, then most rows, then either."""
    for needs in (wanted, wanted_rows):
        if needs[0] != needs[1]:
            return int(needs[1] > needs[0])
    return int(random.integers(2))


def per_class_sample(labels: NDArray[np.bool_], rows: Rows, n_per_class: int, random: np.random.Generator) -> Rows:
    """``n_per_class`` rows for every label, as much of the literature draws its queries.

    Labels are served in their order; a row drawn for one label is not drawn again for the next, so frequent labels
    end up with more than ``n_per_class`` (the paper's objection to it). A label with fewer rows left gives them all.

    Args:
        labels: ``(n, c)`` bool, of the whole collection.
        rows: row numbers to draw from.
        n_per_class: rows a label.
        random: decides which.
    """
    order = random.permutation(rows)
    taken = np.zeros(len(labels), dtype=bool)
    for label in range(labels.shape[1]):
        candidates = order[labels[order, label] & ~taken[order]]
        taken[candidates[:n_per_class]] = True
    return np.flatnonzero(taken).astype(np.int64)
