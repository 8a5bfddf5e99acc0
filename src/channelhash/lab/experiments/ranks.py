"""Ranks of methods over collections, and how far apart mean ranks have to be."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from channelhash.lab.experiments.comparisons import print_p
from channelhash.lab.experiments.tables import Cell, Table


def _mean_ranks(scores: ArrayLike) -> NDArray[np.float64]:
    """Return the mean rank of each method over collections, 1 for the best; equal scores share their ranks.

    Args:
        scores: ``(collections, methods)``, higher is better.

    >>> _mean_ranks([[0.9, 0.5, 0.5], [0.8, 0.9, 0.1]]).tolist()
    [1.5, 1.75, 2.75]
    """
    return np.asarray(stats.rankdata(-np.asarray(scores, dtype=np.float64), axis=1).mean(axis=0))


def _friedman_p(scores: ArrayLike) -> float:
    """Return the p-value of Friedman's test that all methods are alike, in the F form of Iman and Davenport (Demšar
    2006, "Statistical comparisons of classifiers over multiple data sets", § 3.2.2).

    >>> round(_friedman_p([[3, 2, 1], [3, 1, 2], [3, 2, 1], [2, 3, 1]]), 3)
    0.084
    """
    n, k = np.shape(scores)
    chi_squared = 12 * n / (k * (k + 1)) * float(np.square(_mean_ranks(scores) - (k + 1) / 2).sum())
    if chi_squared >= n * (k - 1):  # all collections agree
        return 0.0
    f = (n - 1) * chi_squared / (n * (k - 1) - chi_squared)
    return float(stats.f.sf(f, k - 1, (k - 1) * (n - 1)))


def _critical_difference(methods: int, collections: int) -> float:
    """Return Nemenyi's critical difference of mean ranks, q_α √(k (k + 1) / 6 N) (Demšar 2006, § 3.2.2).

    Two of k methods whose mean ranks over N collections are closer are not told apart.

    >>> round(_critical_difference(4, 14), 2)
    1.25
    """
    q = stats.studentized_range.ppf(0.95, methods, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(methods * (methods + 1) / (6 * collections)))


def ranks_table(scores: Mapping[tuple[str, str], Mapping[str, float]], form: str) -> Table:
    """Tabulate losses by their mean rank over collections in the first view, the raw scores beside it.

    Args:
        scores: collection and view -> loss -> score in [0, 1].
        form: of the losses, in words.
    """
    collections, views = (list(dict.fromkeys(names)) for names in zip(*scores, strict=True))
    every = list(dict.fromkeys(loss for each in scores.values() for loss in each))
    losses = [loss for loss in every if all(loss in each for each in scores.values())]
    columns = {place: np.array([each[loss] for loss in losses]) for place, each in scores.items()}
    by_view = {view: np.stack([columns[collection, view] for collection in collections]) for view in views}
    ranks = {view: _mean_ranks(each) for view, each in by_view.items()}
    rows = []
    for row in np.argsort(ranks[views[0]], kind="stable"):
        cells = [Cell(f"{ranks[view][row]:.1f}", ranks[view][row] == ranks[view].min()) for view in views]
        cells += [Cell(f"{100 * each[row]:.2f}", each[row] == each.max()) for each in columns.values()]
        rows.append((Cell(losses[row]), *cells))
    tests = ", ".join(f"{print_p(_friedman_p(each))} on {view}" for view, each in by_view.items())
    missing = ", ".join(loss for loss in every if loss not in losses)
    return Table(
        f"ranks-{form.replace(' ', '-')}",
        f"Losses {form}, by their mean rank over {len(collections)} collections",
        ("Loss", *(f"Mean rank, {view}" for view in views), *(f"{name}, {view}" for name, view in columns)),
        tuple(rows),
        "Ranks by the mean tie-aware mAP of all tasks, code lengths and seeds, which stands beside them in percent. "
        f"Friedman's test that all losses are alike: p = {tests}. Mean ranks that differ by less than "
        f"{_critical_difference(len(losses), len(collections)):.1f} are not told apart (Nemenyi, 5 %)."
        + (f" Not finished everywhere: {missing}." if missing else ""),
        labels=1,
    )
