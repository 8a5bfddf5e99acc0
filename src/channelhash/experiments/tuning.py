"""Every method's own learning rate, chosen on validation with the same number of trials."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from channelhash.config import RunConfig
from channelhash.errors import InputError, JobError
from channelhash.experiments.grid import Grid, GridRun, Say, run_grid
from channelhash.experiments.results import Result
from channelhash.training.trainer import selection_score

#: Trials of each method: the base configuration's learning rate times these, a decade down and up in half decades.
RATE_FACTORS = (10**-1.0, 10**-0.5, 1.0, 10**0.5, 10**1.0)
#: Where the trials are below the grid's folder.
TRIALS = "tuning"


def tuned_grid(
    grid: Grid, trials: Sequence[GridRun], folder: Path, jobs: int, devices: Sequence[str], say: Say
) -> Grid:
    """``grid`` with the learning rate of every method that its ``trials`` show to be the best.

    The trials are a grid of their own in ``folder/tuning``: none runs twice either.

    Args:
        grid: all at the base configuration's learning rate.
        trials: one run of each method, whose code length and seed the trials have.
        folder: the grid's folder.
        jobs, devices, say: as in `grid.run_grid`.

    Raises:
        InputError: the runs are not validated; or as `grid.run_grid`.
        JobError: no trial of a method came to an end.
    """
    for run in trials:
        if not run.config.train.validate_every or run.config.split.validation_queries == 0:
            raise InputError(
                "learning rates are chosen on validation: train.validate_every and data.validation_queries "
                "have to be above 0"
            )
    runs = tuple(_trial(run, factor) for run in trials for factor in RATE_FACTORS)
    asked = Grid("learning-rates", f"{grid.title}: learning rates", grid.command, runs)
    rates = best_rates(run_grid(asked, folder / TRIALS, jobs, devices, say))
    return replace(grid, runs=tuple(_at(run, rates[run.method]) for run in grid.runs))


def best_rates(results: Sequence[Result]) -> dict[str, float]:
    """method -> the learning rate with the best score after the last epoch; the lower one of equals.

    Raises:
        JobError: no trial of a method came to an end.
    """
    rates = {}
    for method in dict.fromkeys(result.method for result in results):
        trials = [result for result in results if result.method == method]
        finished = sorted((result for result in trials if result.status == "finished"), key=rate_of)
        if not finished:
            raise JobError(f"{method}: no learning rate of {len(trials)} worked, the first: {trials[0].error}")
        rates[method] = rate_of(max(finished, key=validation_score))
    return rates


def validation_score(result: Result) -> float:
    """What the epoch is picked by too: mean mAP_T of the cross-modal tasks on validation, after the last epoch."""
    tasks = result.epochs["last"]["validation"]
    return selection_score({task: float(figures["map_tie_aware"]) for task, figures in tasks.items()})


def rate_of(result: Result) -> float:
    """The learning rate of a run."""
    return float(result.settings["train"]["learning_rate"])


def _trial(run: GridRun, factor: float) -> GridRun:
    rate = float(f"{factor * run.config.train.learning_rate:.3g}")
    return replace(_at(run, rate), name=f"{run.name}-lr{rate:g}")


def _at(run: GridRun, rate: float) -> GridRun:
    train = run.config.train.model_copy(update={"learning_rate": rate})
    config: RunConfig = replace(run.config, train=train)
    return replace(run, config=config)
