"""Evaluate over a database of any size: counts of its shards add up, and every score is computed from their sum."""

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from channelhash.codes.code_set import CodeSet
from channelhash.errors import InputError, JobError
from channelhash.metrics import HammingHistogram
from channelhash.metrics.report import add_conventions, count_tasks, report_tasks, save_scores
from channelhash.scale.job import LOCAL, Workers, shard_files
from channelhash.utils.addresses import Place, star_expression
from channelhash.utils.progress import Progress, no_progress

# Codes read at once.
_ROWS = 1 << 17
# Tasks of a worker at most, each of several files whose counts it adds up: what reaches the driver, and goes through
# Ray's object stores, does not grow with the number of files. In this process, where nothing moves, steps of progress.
_TASKS, _STEPS = 8, 1024


class _Counted(NamedTuple):
    """Counts by task of some files of codes, the number of their items, and the number of files.

    >>> _Counted(0, {}).items
    0
    """

    items: int
    counts: dict[str, HammingHistogram]
    files: int = 0


def evaluate_shards(
    query: Place,
    database: Place,
    workers: Workers = LOCAL,
    out: Path | None = None,
    progress: Progress = no_progress,
    conventions: Sequence[str] = (),
) -> dict[str, Any]:
    """Compute all scores of queries that search files of codes, read part by part.

    The scores equal those of `metrics.evaluate` over all items at once bit by bit, for any kind and number of workers,
    because counts are whole numbers. Only ``map_in_order`` is None: it depends on the order of the items, which counts
    do not know. The driver holds the counts of one task after another, whatever the size of the database.

    Args:
        query: a file of codes with labels.
        database: a file of codes, a folder of them, or a pattern with ``*`` in its last part.
        workers: this process, or workers on Ray.
        out: folder for ``metrics.json`` and ``plots/``; None writes nothing.
        progress: called with the numbers (done, total) of files.
        conventions: as in `metrics.evaluate`; their ``in_order`` is None, too.

    Returns:
        ``{"n_bits": k, "query": …, "database": …, "items": n, "shards": n, "tasks": {task: scores}}``.

    Raises:
        InputError: a file cannot be read, the files do not fit together, or there is nothing to average.
        JobError: a worker raises it, or there are too many items for graded NDCG.
    """
    queries = CodeSet.load(query)
    if not len(queries):
        raise InputError(f"{query}: is empty; evaluation takes at least one code")
    files = [file.resolve() for file in _files(database)]
    done, total = 0, _Counted(0, {})
    tasks = partial(_parts, files, _STEPS if workers.engine == "local" else _TASKS)
    with closing(workers.run(partial(_ShardCounter, queries), tasks)) as results:
        for counted in results:
            total, done = _sum(total, counted, database), done + counted.files
            progress(done, len(files))
    if not total.items:
        raise InputError(f"{database}: is empty; evaluation takes at least one code")
    _check_gains(total.counts, database)
    try:
        reports = report_tasks(total.counts, total.items)
    except ValueError as error:
        raise InputError(f"{query} and {database}: {error}") from None
    add_conventions(reports, conventions, total.counts)
    result = {
        "n_bits": queries.n_bits,
        "query": str(query),
        "database": str(database),
        "items": total.items,
        "shards": len(files),
        "tasks": reports,
    }
    save_scores(result, total.counts, out, f"{query.name} → {database.name}")
    return result


class _ShardCounter:
    """Counter of the items of files of codes by their distance to each query."""

    def __init__(self, query: CodeSet) -> None:
        self._query = query

    def __call__(self, files: list[Place]) -> _Counted:
        """Return the counts of all items of ``files``."""
        total = _Counted(0, {})
        for file in files:
            for part in CodeSet.stream(file, _ROWS):
                try:
                    counted = _Counted(len(part), count_tasks(self._query, part))
                except ValueError as error:
                    raise InputError(f"{file}: {error}") from None
                total = _sum(total, counted, file)
        return total._replace(files=len(files))


def _parts(files: Sequence[Place], parts_of_worker: int, workers: int) -> list[list[Place]]:
    """Cut a list into parts of neighbours, as equal as possible: so many for each worker, or one for each file."""
    n = min(len(files), parts_of_worker * workers)
    return [list(files[len(files) * part // n : len(files) * (part + 1) // n]) for part in range(n)]


def _files(database: Place) -> Sequence[Place]:
    if "*" not in database.name:
        return shard_files(database) if database.is_dir() else [database]
    matches = star_expression(database.name).fullmatch
    files: list[Place] = sorted((file for file in database.parent.glob("*") if matches(file.name)), key=str)
    if not files:
        raise InputError(f"{database}: no file has such a name")
    return files


def _sum(first: _Counted, second: _Counted, where: Place) -> _Counted:
    if not first.items or not second.items:
        return second if second.items else first
    if first.counts.keys() != second.counts.keys():
        raise InputError(f"{where}: its shards are of different modalities; evaluate them by themselves")
    counts = {task: first.counts[task] + second.counts[task] for task in first.counts}
    return _Counted(first.items + second.items, counts)


def _check_gains(counts: dict[str, HammingHistogram], where: Place) -> None:
    """Raise `JobError` where a sum of gains, a 64-bit multiple of 2⁻³², may overflow: about 2³¹ relevant items."""
    for histogram in counts.values():
        gains = histogram.gains
        if gains is not None and int(histogram.relevant.max()) * int(gains.gain.max(initial=0)) >= 1 << 63:
            raise JobError(f"{where}: over 2 billion relevant items at one distance; evaluate a part of the shards")
