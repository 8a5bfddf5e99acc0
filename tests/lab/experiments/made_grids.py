"""Grids of registered experiments."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from channelhash.lab.experiments.base import base_configuration
from channelhash.lab.experiments.experiment import load_experiment, make_grid
from channelhash.lab.experiments.query_means import with_query_means
from channelhash.lab.experiments.runner import Grid
from channelhash.lab.experiments.score_files import read_runs
from channelhash.lab.experiments.tables.rendering import to_markdown


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
