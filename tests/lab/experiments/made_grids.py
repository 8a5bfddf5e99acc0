"""Grids of registered experiments."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from channelhash.lab.experiments.base import base_configuration
from channelhash.lab.experiments.experiment import load_experiment, make_grid
from channelhash.lab.experiments.rendering import to_markdown
from channelhash.lab.experiments.results import read_runs
from channelhash.lab.experiments.runner import Grid


def named_grid(name: str, base: str | Path, folder: Path, overrides: Sequence[str] = (), **more: Any) -> Grid:
    """The grid of an experiment by its name; ``more`` are arguments of `make_grid`."""
    return make_grid(load_experiment(name), base_configuration(base, folder, overrides=overrides), **more)


def assert_made_again(name: str, folder: Path) -> None:
    """All tables of a grid are made again from its raw scores, but for tests over single queries."""
    study, tables = load_experiment(name), []
    for file in ("runs.csv", "trials.csv"):
        for trials, results in read_runs(folder / file).items() if (folder / file).exists() else ():
            if trials:
                tables.append(study.trials[trials](results))
            else:
                tables += study.tables(with_query_means(results, folder / "queries.npz"))
    written = {path.stem: path.read_text() for path in (folder / "tables").glob("*.md")}
    tested = {table for table in written if table.startswith("significance")}
    assert {table.name: to_markdown(table) for table in tables} == {
        table: text for table, text in written.items() if table not in tested
    }


def with_query_means(results, path: Path):
    """Results as `read_runs` gives them, each with the means of its method and seed, as if they were of one task."""
    by_run: dict[tuple[str, int], dict] = {}
    with np.load(path) as arrays:
        for name in arrays.files:
            method, seed, view = name.rsplit("|", 2)
            by_run.setdefault((method, int(seed)), {})["last", view, "all"] = arrays[name].astype(np.float64)
    return [replace(result, query_ap=by_run.get((result.method, result.seed), {})) for result in results]
