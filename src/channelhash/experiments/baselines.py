"""``experiment baselines``: every loss at its own learning rate, between floor and ceiling."""

from collections.abc import Sequence
from pathlib import Path

from channelhash.experiments.anchors import add_anchors
from channelhash.experiments.grid import Grid, GridRun, Say, run_grid
from channelhash.experiments.results import Result, read_grid
from channelhash.experiments.tuning import tuned_grid

#: Code length of the trials of learning rates, whatever lengths the grid has.
TRIAL_BITS = 32


def run_baselines(
    grid: Grid, trials: Sequence[GridRun], folder: Path, jobs: int, devices: Sequence[str], say: Say
) -> list[Result]:
    """Choose learning rates, run the grid with them, evaluate floor and ceiling. What is there is not done again.

    Args:
        grid: all methods at the base configuration's learning rate.
        trials: a run of each method at `TRIAL_BITS` bits with seed 0.
        folder: the grid's folder.
        jobs, devices, say: as in `grid.run_grid`.

    Returns:
        All results, those of floor and ceiling included.

    Raises:
        InputError: as `grid.run_grid`; or the runs are not validated.
        JobError: no trial of a method came to an end.
    """
    tuned = tuned_grid(grid, trials, folder, jobs, devices, say)
    run_grid(tuned, folder, jobs, devices, say)
    add_anchors(tuned, folder, say)
    return read_grid(folder)[1]
