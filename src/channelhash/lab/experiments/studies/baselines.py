"""``experiment baselines``: every loss at its own learning rate, between floor and ceiling."""

from collections.abc import Sequence
from pathlib import Path

from channelhash.lab.experiments.reference_points import add_anchors
from channelhash.lab.experiments.results import Result, read_grid
from channelhash.lab.experiments.runner import Grid, GridRun, Say, run_grid
from channelhash.lab.experiments.tuning import (
    RATE_FACTORS,
    TRIALS,
    at_best_rate,
    best_trials,
    rate_of,
    rate_trial,
    tuned_grid,
)

#: Trials of each method at most: while some best lies at an end of the range, all methods get one more there.
MOST_TRIALS = 9


def run_baselines(
    grid: Grid, trials: Sequence[GridRun], folder: Path, jobs: int, devices: Sequence[str], say: Say
) -> list[Result]:
    """Choose learning rates, run the grid with them, evaluate floor and ceiling. What is there is not done again.

    Args:
        grid: all methods at the base configuration's learning rate.
        trials: a run of each method, whose code length and seed its trials have.
        folder: the grid's folder.
        jobs, devices, say: as in `runner.run_grid`.

    Returns:
        All results, those of floor and ceiling included.

    Raises:
        InputError: as `runner.run_grid`; or the runs are not validated.
        JobError: no trial of a method came to an end.
    """
    factors = RATE_FACTORS
    while True:
        rates = [rate_trial(run, factor) for run in trials for factor in factors]
        tuned = tuned_grid(grid, rates, at_best_rate, folder, jobs, devices, say)
        wider = _wider(factors, read_grid(folder / TRIALS)[1])
        if len(wider) == len(factors) or len(wider) > MOST_TRIALS:
            break
        factors = wider
    run_grid(tuned, folder, jobs, devices, say)
    add_anchors(tuned, folder, say)
    return read_grid(folder)[1]


def _wider(factors: tuple[float, ...], trials: Sequence[Result]) -> tuple[float, ...]:
    """The factors, and half a decade more at an end where a method's best trial lies; the upper end first."""
    ends = [rate_of(run) for run in (trials[0], trials[len(factors) - 1])]
    best = {rate_of(run) for run in best_trials(trials).values()}
    if ends[1] in best:
        return (*factors, factors[-1] * 10**0.5)
    return (factors[0] * 10**-0.5, *factors) if ends[0] in best else factors
