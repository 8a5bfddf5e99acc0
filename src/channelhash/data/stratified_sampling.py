"""Row samples by label: iterative stratification, and the literature's fixed number per class."""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def stratified_sample(labels: NDArray[np.bool_], rows: Rows, count: int, random: np.random.Generator) -> Rows:
    """Draw ``count`` of ``rows`` with about the same share of each label: iterative stratification into two subsets
    (Sechidis, Tsoumakas and Vlahavas 2011, algorithm 1).

    Rows of the label with the fewest remaining rows are dealt out first, each to the subset that needs most of that
    label, ties to the subset that needs most rows, then at random. Rows without labels fill up.

    Args:
        labels: ``(n, c)`` bool, of the whole collection.
        rows: row numbers to draw from.
        count: number of rows to draw, at most ``len(rows)``.
        random: decides ties and the order of rows.

    Returns:
        Exactly ``count`` sorted row numbers. O(m c) for m rows.

    >>> labels = np.arange(8)[:, None] % 4 == 0  # one row in four has the label
    >>> rows = stratified_sample(labels, np.arange(8), 4, np.random.default_rng(0))
    >>> len(rows), int(labels[rows].sum())
    (4, 1)
    """
    rows = random.permutation(rows)
    row_labels = labels[rows]
    needed_rows = np.array([count, len(rows) - count], dtype=np.float64)
    remaining = row_labels.sum(axis=0)
    needed = (needed_rows / max(1, len(rows)))[:, None] * remaining  # (2, c): rows of each label that a subset needs
    subset = np.full(len(rows), -1)
    members = [np.flatnonzero(column).tolist() for column in row_labels.T]
    while (remaining > 0).any():
        label = int(np.where(remaining > 0, remaining, np.iinfo(remaining.dtype).max).argmin())
        for row in members[label]:
            if subset[row] >= 0:
                continue
            chosen = _neediest(needed[:, label], needed_rows, random)
            subset[row] = chosen
            needed[chosen] -= row_labels[row]
            needed_rows[chosen] -= 1
            remaining -= row_labels[row]
    drawn = np.flatnonzero(subset == 0)
    others = np.concatenate([np.flatnonzero(subset == 1), np.flatnonzero(subset == -1)])
    unlabelled = np.flatnonzero(subset == -1)
    # Subset sizes are exact only in expectation: rows without labels, else the last ones dealt, make up the difference.
    if len(drawn) < count:
        fill = np.concatenate([unlabelled, others[~np.isin(others, unlabelled)][::-1]])[: count - len(drawn)]
        drawn = np.concatenate([drawn, fill])
    return np.sort(rows[drawn[:count]])


def _neediest(needed: NDArray[np.float64], needed_rows: NDArray[np.float64], random: np.random.Generator) -> int:
    """Return the subset that needs most of a label; on a tie most rows; then either."""
    for needs in (needed, needed_rows):
        if needs[0] != needs[1]:
            return int(needs[1] > needs[0])
    return int(random.integers(2))


def per_class_sample(labels: NDArray[np.bool_], rows: Rows, n_per_class: int, random: np.random.Generator) -> Rows:
    """Draw ``n_per_class`` rows for every label, as much of the literature draws its queries.

    Labels are served in their order; a row drawn for one label is not drawn again for the next, so frequent labels
    end up with more than ``n_per_class`` (the paper's objection to it). A label with fewer rows left gives them all.

    Args:
        labels: ``(n, c)`` bool, of the whole collection.
        rows: row numbers to draw from.
        n_per_class: rows per label.
        random: decides which rows.

    >>> labels = np.array([[1, 0], [1, 1], [0, 1], [0, 0]], dtype=bool)
    >>> len(per_class_sample(labels, np.arange(4), 1, np.random.default_rng(0)))
    2
    """
    order = random.permutation(rows)
    taken = np.zeros(len(labels), dtype=bool)
    for label in range(labels.shape[1]):
        candidates = order[labels[order, label] & ~taken[order]]
        taken[candidates[:n_per_class]] = True
    return np.flatnonzero(taken).astype(np.int64)
