"""Read the published raw scores, from which the site's tables and plots are made again."""

import csv
import gzip
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from channelhash.lab.experiments.results import Result, _Status


def read_runs(path: Path) -> dict[str, list[Result]]:
    """Return what `results.write_runs` wrote into a ``.csv`` file, or one that was packed to
    ``.csv.gz`` since.

    The results have no AP of single queries, and settings without folders and devices.
    """
    content = path.read_bytes()
    rows = csv.DictReader(
        io.StringIO((gzip.decompress(content) if path.suffix == ".gz" else content).decode())
    )
    results: dict[str, list[Result]] = {}
    for row in rows:
        results.setdefault(row["trials"], []).append(_result(row))
    return results


def _result(row: Mapping[str, str]) -> Result:
    epochs: dict[str, Any] = {}
    for column, text in row.items():
        *folders, name = column.split("/")
        if folders and text:
            scores = epochs
            for key in folders:
                scores = scores.setdefault(key, {})
            scores[name] = float(text)
    status: _Status = row["status"]  # type: ignore[assignment]  # as `write_runs` wrote it
    settings, measured = (json.loads(row.get(name) or "{}") for name in ("settings", "measured"))
    about = row["run"], Path(row["run"]), row["method"], settings, status, row["error"]
    return Result(*about, epochs, seconds=float(row["seconds"]), measured=measured)
