"""Every score of a grid's runs as CSV: a row a task, and a row a run."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from channelhash.lab.experiments.results import Result
from channelhash.utils.files import atomic_path, content_hash
from channelhash.utils.reading import reading

# Columns of figures.csv.
_SCORES = ("map_tie_aware", "map_lower", "map_upper", "ndcg", "ndcg_graded", "roc_auc_micro", "roc_auc_macro", "chance")
# Hashes of 64 bits tell the runs of a grid apart.
_DIGITS = 16


def write_figures(results: Sequence[Result], path: Path) -> None:
    """Write one line for each run, checkpoint, view and task, with the main scores."""
    rows = []
    for result in results:
        for checkpoint, views in result.epochs.items():
            for view, tasks in views.items():
                for task, scores in tasks.items():
                    row = [result.name, result.method, result.n_bits, result.seed, checkpoint, view, task]
                    # Rankings by cosine have no graded NDCG.
                    rows.append([*row, *(scores.get(name) for name in _SCORES)])
    _write(path, ["run", "method", "n_bits", "seed", "checkpoint", "view", "task", *_SCORES], rows)


def write_runs(results: Sequence[Result], path: Path) -> None:
    """Write one line for each run: hashes of its configuration, collection and splits, and every score but curves.

    Columns of scores are named like ``last/test/image->text/map_tie_aware``.
    """
    scores = [dict(_numbers(result.epochs)) for result in results]
    names = list(dict.fromkeys(name for run in scores for name in run))
    rows = []
    for result, run in zip(results, scores, strict=True):
        row = [result.name, result.method, result.n_bits, result.seed, result.status]
        row += [configuration_hash(result.settings), *_split_hashes(result.folder), result.seconds]
        rows.append([*row, *(run.get(name) for name in names)])
    columns = ["run", "method", "n_bits", "seed", "status", "configuration", "data", "splits", "seconds"]
    _write(path, [*columns, *names], rows)


def configuration_hash(settings: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a hash of a run's settings that does not depend on the device or on the folders that files lie in.

    >>> one, other = ({"data": {"path": f"/{place}/items.csv"}, "train": {"device": place}} for place in ("a", "b"))
    >>> configuration_hash(one) == configuration_hash(other)
    True
    """
    plain = {
        section: {key: _without_folder(value) for key, value in values.items() if (section, key) != ("train", "device")}
        for section, values in settings.items()
    }
    return content_hash(json.dumps(plain, sort_keys=True).encode())[:_DIGITS]


def _without_folder(value: Any) -> Any:
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def _split_hashes(run: Path) -> tuple[str, str]:
    """Return the hashes of a run's collection and of the rows of its splits; empty for what was not trained."""
    path = run / "splits.json"
    if not path.exists():
        return "", ""
    with reading(path, "no splits of this version", f"remove the folder {run} to run it again"):
        splits = json.loads(path.read_text(encoding="utf-8"))
        return splits["data_hash"][:_DIGITS], splits["rows_hash"][:_DIGITS]


def _numbers(scores: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float | None]]:
    """Yield (path, value) of every number in nested scores; lists, which are curves, are left out."""
    for key, value in scores.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{key}/")
        elif not isinstance(value, list):
            yield f"{prefix}{key}", value


def _write(path: Path, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with atomic_path(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
