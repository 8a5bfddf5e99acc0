"""AP of single queries, averaged over tasks and code lengths: what is published of them beside ``runs.csv``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.lab.experiments.results import Result
from channelhash.utils.files import atomic_path

# What a published mean stands for in the place of a task.
_ALL = "all tasks and code lengths"


class Place(NamedTuple):
    """Whose queries, and which retrieval set they search."""

    method: str
    seed: int
    view: str


def query_means(results: Iterable[Result]) -> dict[Place, NDArray[np.float16]]:
    """Average the AP of each query over a method's tasks and code lengths; last epoch, in half precision.

    Returns:
        ``(nq,)`` for each method, seed and retrieval set, NaN for queries without relevant items. What lacks runs that
        others have is left out: its mean would be of other tasks and lengths.

    >>> ap = {("last", "test", "image->text"): np.array([0.5]), ("last", "test", "text->image"): np.array([0.25])}
    >>> settings = {"train": {"seed": 0}}
    >>> query_means([Result("sch-k16-seed0", Path(), "SCH", settings, "finished", query_ap=ap)])
    {Place(method='SCH', seed=0, view='test'): array([0.375], dtype=float16)}
    """
    found: dict[Place, list[NDArray[np.float64]]] = {}
    for result in results:
        for (checkpoint, view, _), ap in result.query_ap.items():
            if checkpoint == "last":
                found.setdefault(Place(result.method, result.seed, view), []).append(ap)
    most = max(map(len, found.values()), default=0)
    whole = {place: each for place, each in found.items() if len(each) == most}
    return {place: np.asarray(np.mean(each, axis=0), dtype=np.float16) for place, each in whole.items()}


def write_query_means(results: Sequence[Result], path: Path) -> None:
    """Write `query_means` as an ``.npz``, an array named like ``SCH|0|test``; no file where no run has any."""
    means = {"|".join(map(str, place)): ap for place, ap in query_means(results).items()}
    if means:
        with atomic_path(path) as temporary, open(temporary, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **means)


def with_query_means(results: Sequence[Result], path: Path) -> list[Result]:
    """Return results as `score_files.read_runs` gives them, each with the means of its method and seed."""
    by_run: dict[tuple[str, int], Mapping[tuple[str, str, str], NDArray[np.float64]]] = {}
    with np.load(path) as arrays:
        for name in arrays.files:
            method, seed, view = name.rsplit("|", 2)
            own = by_run.get((method, int(seed)), {})
            by_run[method, int(seed)] = {**own, ("last", view, _ALL): arrays[name].astype(np.float64)}
    return [replace(result, query_ap=by_run.get((result.method, result.seed), {})) for result in results]
