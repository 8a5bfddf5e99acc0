"""Every score of a grid's runs as CSV, a row a run, from which the tables can be made again."""

import csv
import gzip
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from channelhash.errors import InputError
from channelhash.lab.experiments.results import Result, Status
from channelhash.utils.files import content_hash, write_text
from channelhash.utils.reading import reading

# What a row of `write_runs` says of its run beside scores, `settings` and `measured`, which are JSON.
_OF_RUN = ("trials", "run", "method", "n_bits", "seed", "status", "error", "configuration", "data", "splits", "seconds")
# Hashes of 64 bits tell the runs of a grid apart.
_DIGITS = 16


def write_runs(results: Mapping[str, Sequence[Result]], path: Path) -> None:
    """Write one line for each run: hashes of its configuration, collection and splits, every score but curves, what
    `results.measured` keeps of it, and the configuration itself; paths are cut down to names.

    Columns of scores are named like ``last/test/image->text/map_tie_aware``.

    Args:
        results: folder of trials, ``""`` for the grid itself -> its results.
        path: the file.
    """
    runs = [(trials, result) for trials, each in results.items() for result in each]
    scores = [dict(_numbers(result.epochs)) for _, result in runs]
    names = list(dict.fromkeys(name for run in scores for name in run))
    rows = []
    for (trials, result), run in zip(runs, scores, strict=True):
        plain = _without_places(result.settings)
        sizes = [plain.get("model", {}).get("n_bits"), plain.get("train", {}).get("seed")]
        row = [trials, result.name, result.method, *sizes, result.status, result.error]
        row += [configuration_hash(result.settings), *_split_hashes(result.folder), result.seconds]
        row += [json.dumps(each, ensure_ascii=False) for each in (plain, _without_folders(result.measured))]
        rows.append([*row, *(run.get(name) for name in names)])
    _write(path, [*_OF_RUN, "settings", "measured", *names], rows)


def read_runs(path: Path) -> dict[str, list[Result]]:
    """Return what `write_runs` wrote into a ``.csv`` file, or one that was packed to ``.csv.gz`` since.

    The results have no AP of single queries, and settings without folders and devices.

    Raises:
        InputError: the file is another one.
    """
    content = path.read_bytes()
    rows = csv.DictReader(io.StringIO((gzip.decompress(content) if path.suffix == ".gz" else content).decode()))
    if missing := {*_OF_RUN, "settings"} - set(rows.fieldnames or ()):
        raise InputError(f"{path}: has no column {min(missing)}; give runs.csv or trials.csv of a grid")
    results: dict[str, list[Result]] = {}
    for row in rows:
        results.setdefault(row["trials"], []).append(_result(row))
    return results


def configuration_hash(settings: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a hash of a run's settings that does not depend on the device or on the folders that files lie in.

    >>> one, other = ({"data": {"path": f"/{place}/items.csv"}, "train": {"device": place}} for place in ("a", "b"))
    >>> configuration_hash(one) == configuration_hash(other)
    True
    """
    return content_hash(json.dumps(_without_places(settings), sort_keys=True).encode())[:_DIGITS]


def _without_places(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    kept = {section: dict(values) for section, values in settings.items()}
    kept.get("train", {}).pop("device", None)
    plain: dict[str, dict[str, Any]] = _without_folders(kept)
    return plain


def _without_folders(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_folders(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_folders(each) for each in value]
    return PurePath(value).name if isinstance(value, str) and PurePath(value).is_absolute() else value


def _split_hashes(run: Path) -> tuple[str, str]:
    """Return the hashes of a run's collection and of the rows of its splits; empty for what was not trained."""
    path = run / "splits.json"
    if not path.exists():
        return "", ""
    with reading(path, "no splits of this version", f"remove the folder {run} to run it again"):
        splits = json.loads(path.read_text(encoding="utf-8"))
        return splits["data_hash"][:_DIGITS], splits["rows_hash"][:_DIGITS]


def _numbers(scores: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield (path, value) of every number in nested scores; lists, which are curves, are left out."""
    for key, value in scores.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{key}/")
        elif isinstance(value, int | float):
            yield f"{prefix}{key}", value


def _result(row: Mapping[str, str]) -> Result:
    epochs: dict[str, Any] = {}
    for column, text in row.items():
        *folders, name = column.split("/")
        if folders and text:
            scores = epochs
            for key in folders:
                scores = scores.setdefault(key, {})
            scores[name] = float(text)
    status: Status = row["status"]  # type: ignore[assignment]  # as `write_runs` wrote it
    settings, measured = (json.loads(row.get(name) or "{}") for name in ("settings", "measured"))
    about = row["run"], Path(row["run"]), row["method"], settings, status, row["error"]
    return Result(*about, epochs, seconds=float(row["seconds"]), measured=measured)


def _write(path: Path, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_text(path, text.getvalue())
