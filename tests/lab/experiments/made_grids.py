"""Grids of registered experiments."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from channelhash.lab.experiments.base import base_configuration
from channelhash.lab.experiments.experiment import load_experiment, make_grid
from channelhash.lab.experiments.runner import Grid


def named_grid(name: str, base: str | Path, folder: Path, overrides: Sequence[str] = (), **more: Any) -> Grid:
    """The grid of an experiment by its name; ``more`` are arguments of `make_grid`."""
    return make_grid(load_experiment(name), base_configuration(base, folder, overrides=overrides), **more)
