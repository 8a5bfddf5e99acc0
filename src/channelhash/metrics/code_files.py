"""From two code sets to scores and plots, and the same from code files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from channelhash.codes.code_set import CodeSet
from channelhash.codes.foreign_files import read_export
from channelhash.errors import InputError
from channelhash.metrics import HammingHistogram, TaskReport
from channelhash.metrics.report import DEFAULT_CUTOFFS, evaluate_tasks
from channelhash.utils.files import write_text
from channelhash.utils.optional_imports import naming_extra
from channelhash.utils.remote_paths import Place


def evaluate_sets(
    query: CodeSet,
    database: CodeSet,
    where: str,
    cutoffs: Sequence[int] = DEFAULT_CUTOFFS,
    conventions: Sequence[str] = (),
) -> tuple[dict[str, TaskReport], dict[str, HammingHistogram]]:
    """Compute the scores of every task, and the counts that they and the plots are made from.

    Args:
        query: queries; without labels there are no counts.
        database: what is searched.
        where: what was evaluated, for messages.
        cutoffs: z of mAP@z and P@z.
        conventions: as in `metrics.evaluate`.

    Raises:
        InputError: the sets do not fit together, or there is nothing to average; see `metrics.evaluate`.

    >>> import numpy as np
    >>> codes = CodeSet(["a", "b"], {"image": np.array([[0], [255]], np.uint8)}, np.ones((2, 1)), n_bits=8)
    >>> scores, histograms = evaluate_sets(codes, codes, "toy codes")
    >>> scores["image->image"]["map_tie_aware"]
    1.0
    """
    try:
        evaluations = evaluate_tasks(query, database, cutoffs, conventions=conventions)
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None
    tasks, histograms = {}, {}
    for task, (histogram, report) in evaluations.items():
        tasks[task] = report
        if histogram is not None:
            histograms[task] = histogram
    return tasks, histograms


def evaluate_code_files(
    query: Place, database: Place, out: Path | None = None, conventions: Sequence[str] = ()
) -> dict[str, Any]:
    """Compute all scores of two Parquet files of codes (`CodeSet.save`, ``channelhash encode``).

    Args:
        query: codes of the queries.
        database: codes of what is searched, likewise.
        out: folder for ``metrics.json`` and ``plots/``; None writes nothing.
        conventions: as in `metrics.evaluate`.

    Returns:
        ``{"n_bits": k, "query": file, "database": file, "tasks": {task: scores}}``.

    Raises:
        InputError: a file cannot be read or is empty, or the two do not fit together.
    """
    sets = {path: CodeSet.load(path) for path in (query, database)}
    for path, codes in sets.items():
        if not len(codes):
            raise InputError(f"{path}: is empty; evaluation takes at least one code")
    where = f"{query} and {database}"
    tasks, histograms = evaluate_sets(sets[query], sets[database], where, conventions=conventions)
    result = {"n_bits": sets[query].n_bits, "query": str(query), "database": str(database), "tasks": tasks}
    save_scores(result, histograms, out, f"{query.name} → {database.name}")
    return result


def evaluate_export(
    export: Path,
    names: Mapping[str, str] | None = None,
    task: str | None = None,
    out: Path | None = None,
    conventions: Sequence[str] = (),
) -> dict[str, Any]:
    """Compute all scores of another toolbox's export; for the first arguments see `foreign_files.read_export`.

    Args:
        out: folder for ``metrics.json`` and ``plots/``; None writes nothing.
        conventions: as in `metrics.evaluate`.

    Returns:
        ``{"n_bits": k, "codes": file, "tasks": {task: scores}}``.

    Raises:
        InputError: as `read_export`, or no query has a relevant item.
    """
    query, database = read_export(export, names, task)
    tasks, histograms = evaluate_sets(query, database, str(export), conventions=conventions)
    result = {"n_bits": query.n_bits, "codes": str(export), "tasks": tasks}
    save_scores(result, histograms, out, export.name)
    return result


def save_scores(result: dict[str, Any], histograms: dict[str, HammingHistogram], out: Path | None, title: str) -> None:
    """Write ``metrics.json`` and ``plots/`` into the folder ``out``; None writes nothing."""
    if out is None:
        return
    write_text(out / "metrics.json", json.dumps(result, indent=2))
    if histograms:
        with naming_extra():
            from channelhash.metrics.plots import write_plots  # matplotlib: nothing else here needs it
        write_plots(histograms, out / "plots", title)
