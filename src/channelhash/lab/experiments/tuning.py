"""Settings of each method, chosen on validation with the same number of trials."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from channelhash.errors import InputError, JobError
from channelhash.lab.experiments.results import Result
from channelhash.lab.experiments.runner import Execution, Grid, GridRun, run_grid
from channelhash.training.trainer import selection_score

#: Folder of the trials of learning rates below the grid's.
TRIALS = "tuning"
#: Learning rates to try first, as factors of the base configuration's: a decade down and up in half decades.
RATE_FACTORS: tuple[float, ...] = (10**-1.0, 10**-0.5, 1.0, 10**0.5, 10**1.0)


def run_trials(grid: Grid, trials: Sequence[GridRun], folder: Path, execution: Execution) -> dict[str, Result]:
    """Carry out ``trials`` as a grid of their own, in which none runs twice, and return each method's best.

    Raises:
        InputError: the runs are not validated; or as `run_grid`.
        JobError: no trial of a method finished.
    """
    for run in trials:
        if not run.config.train.validate_every or run.config.split.validation_queries == 0:
            raise InputError(
                "settings are chosen on validation: train.validate_every and data.validation_queries have to be above 0"
            )
    trial_grid = Grid("trials", f"{grid.title}: trials on validation", grid.command, tuple(trials))
    return best_trials(run_grid(trial_grid, folder, execution))


def best_trials(results: Sequence[Result]) -> dict[str, Result]:
    """Return the trial of each method with the best score after the last epoch; the first one of equals.

    Raises:
        JobError: no trial of a method finished.
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
    """Return the score that epochs are chosen by too: mean mAP_T of the cross-modal tasks on validation, last epoch."""
    tasks = result.epochs["last"]["validation"]
    return selection_score({task: float(scores["map_tie_aware"]) for task, scores in tasks.items()})


def rate_of(result: Result) -> float:
    """Return the learning rate of a run."""
    return float(result.settings["train"]["learning_rate"])


def rate_trial(run: GridRun, factor: float) -> GridRun:
    """Return a trial of ``run`` at ``factor`` times its learning rate.

    >>> from channelhash.lab.experiments.base import DATASETS
    >>> from channelhash.lab.experiments.experiment import Design
    >>> (run,) = Design(DATASETS["synthetic"], [32], [0]).runs("DSCH", {"name": "dsch"})
    >>> rate_trial(run, 10**0.5).name
    'dsch-k32-seed0-lr0.00316'
    """
    rate = float(f"{factor * run.config.train.learning_rate:.3g}")
    return replace(_with_rate(run, rate), name=f"{run.name}-lr{rate:g}")


def adopt_rate(run: GridRun, best: Result) -> GridRun:
    """Return the same run at the learning rate of its method's best trial."""
    return _with_rate(run, rate_of(best))


def _with_rate(run: GridRun, rate: float) -> GridRun:
    train = run.config.train.model_copy(update={"learning_rate": rate})
    return replace(run, config=replace(run.config, train=train))
