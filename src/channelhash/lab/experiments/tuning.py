"""Every method's own settings, chosen on validation with the same number of trials."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from channelhash.errors import InputError, JobError
from channelhash.lab.experiments.results import Result
from channelhash.lab.experiments.runner import Grid, GridRun, Say, run_grid
from channelhash.training.trainer import selection_score

#: Where trials are below the grid's folder: of a method's only or first settings, and of learning rates after those.
TRIALS, RATE_TRIALS = "tuning", "tuning-rates"
#: Code length of the trials, whatever lengths the grid has; their seed is 0.
TRIAL_BITS = 32
#: Learning rates that are tried first: the base configuration's times these, a decade down and up in half decades.
RATE_FACTORS: tuple[float, ...] = (10**-1.0, 10**-0.5, 1.0, 10**0.5, 10**1.0)


class Weights(NamedTuple):
    """Weights of a loss's terms: κ_q, and the direct AP term's weight divided by the code length."""

    kappa_q: float
    per_bit: float


def tuned_grid(
    grid: Grid,
    trials: Sequence[GridRun],
    adopt: Callable[[GridRun, Result], GridRun],
    folder: Path,
    jobs: int,
    devices: Sequence[str],
    say: Say,
    where: str = TRIALS,
) -> Grid:
    """``grid`` with every method's settings taken from the best of its ``trials``; one without trials stays as it is.

    The trials are a grid of their own below ``folder``: none runs twice either.

    Args:
        grid: what is tuned.
        trials: several of each method, with different settings; of equals the first one is the best.
        adopt: a run of the grid and its method's best trial -> the run with that trial's settings.
        folder: the grid's folder.
        jobs, devices, say: as in `runner.run_grid`.
        where: name of the trials' folder.

    Raises:
        InputError: the runs are not validated; or as `runner.run_grid`.
        JobError: no trial of a method came to an end.
    """
    for run in trials:
        if not run.config.train.validate_every or run.config.split.validation_queries == 0:
            raise InputError(
                "settings are chosen on validation: train.validate_every and data.validation_queries have to be above 0"
            )
    asked = Grid("trials", f"{grid.title}: trials on validation", grid.command, tuple(trials))
    best = best_trials(run_grid(asked, folder / where, jobs, devices, say))
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


def rate_of(result: Result) -> float:
    """The learning rate of a run."""
    return float(result.settings["train"]["learning_rate"])


def weights_of(result: Result) -> Weights:
    """Return the weights that a run was trained with."""
    loss = result.settings["loss"]
    return Weights(float(loss["kappa_q"]), float(loss["average_precision"]) / result.n_bits)


def rate_trial(run: GridRun, factor: float) -> GridRun:
    """A trial of ``run`` at ``factor`` times its learning rate."""
    rate = float(f"{factor * run.config.train.learning_rate:.3g}")
    return replace(at_rate(run, rate), name=f"{run.name}-lr{rate:g}")


def at_rate(run: GridRun, rate: float) -> GridRun:
    """The same run at another learning rate."""
    train = run.config.train.model_copy(update={"learning_rate": rate})
    return replace(run, config=replace(run.config, train=train))


def at_best_rate(run: GridRun, best: Result) -> GridRun:
    """The same run at the learning rate of its method's best trial."""
    return at_rate(run, rate_of(best))
