"""Every method's own settings, chosen on validation with the same number of trials."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from channelhash.errors import InputError, JobError
from channelhash.experiments.grid import Grid, GridRun, Say, run_grid
from channelhash.experiments.results import Result
from channelhash.training.trainer import selection_score

#: Where the trials are below the grid's folder.
TRIALS = "tuning"
#: Code length of the trials, whatever lengths the grid has; their seed is 0.
TRIAL_BITS = 32


def tuned_grid(
    grid: Grid,
    trials: Sequence[GridRun],
    adopt: Callable[[GridRun, Result], GridRun],
    folder: Path,
    jobs: int,
    devices: Sequence[str],
    say: Say,
) -> Grid:
    """``grid`` with every method's settings taken from the best of its ``trials``; one without trials stays as it is.

    The trials are a grid of their own in ``folder/tuning``: none runs twice either.

    Args:
        grid: what is tuned.
        trials: several of each method, with different settings; of equals the first one is the best.
        adopt: a run of the grid and its method's best trial -> the run with that trial's settings.
        folder: the grid's folder.
        jobs, devices, say: as in `grid.run_grid`.

    Raises:
        InputError: the runs are not validated; or as `grid.run_grid`.
        JobError: no trial of a method came to an end.
    """
    for run in trials:
        if not run.config.train.validate_every or run.config.split.validation_queries == 0:
            raise InputError(
                "settings are chosen on validation: train.validate_every and data.validation_queries have to be above 0"
            )
    asked = Grid("trials", f"{grid.title}: trials on validation", grid.command, tuple(trials))
    best = best_trials(run_grid(asked, folder / TRIALS, jobs, devices, say))
    return replace(grid, runs=tuple(adopt(run, best[run.method]) if run.method in best else run for run in grid.runs))


def best_trials(results: Sequence[Result]) -> dict[str, Result]:
    """method -> the trial with the best score after the last epoch; the first one of equals.

    Raises:
        JobError: no trial of a method came to an end.
    """
    best = {}
    for method in dict.fromkeys(result.method for result in results):
        trials = [result for result in results if result.method == method]
        finished = [result for result in trials if result.status == "finished"]
        if not finished:
            raise JobError(f"{method}: none of {len(trials)} trials worked, the first: {trials[0].error}")
        best[method] = max(finished, key=validation_score)
    return best


def validation_score(result: Result) -> float:
    """What the epoch is picked by too: mean mAP_T of the cross-modal tasks on validation, after the last epoch."""
    tasks = result.epochs["last"]["validation"]
    return selection_score({task: float(figures["map_tie_aware"]) for task, figures in tasks.items()})
