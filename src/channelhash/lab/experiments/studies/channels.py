"""``experiment channels``: the losses of channels, each with weights and learning rate of its own, chosen alike."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from channelhash.lab.experiments.definitions import TUNED
from channelhash.lab.experiments.results import Result, read_grid
from channelhash.lab.experiments.runner import Grid, GridRun, Say, run_grid
from channelhash.lab.experiments.tuning import (
    RATE_FACTORS,
    RATE_TRIALS,
    Weights,
    at_best_rate,
    rate_trial,
    tuned_grid,
    weights_of,
)

#: Trials of each method: κ_q times weights of the direct AP term per bit of the code. The AP term is a share, the
#: channel's violations are bits. Codes of tanh are nearly binary without a quantisation error too.
KAPPA_Q: Mapping[str, tuple[float, ...]] = dict.fromkeys(TUNED, (0.03, 0.1, 0.3)) | {"RSCH, tuned": (0.0, 0.1, 0.3)}
AVERAGE_PRECISION_PER_BIT = (0.0, 0.25, 1.0)


def run_channels(
    grid: Grid, trials: Sequence[GridRun], folder: Path, jobs: int, devices: Sequence[str], say: Say
) -> list[Result]:
    """Choose the weights beside every channel, then every method's learning rate, and run the grid with them. What is
    there is not done again.

    Args:
        grid: as `definitions.channels` makes it.
        trials: a run of each method, whose code length and seed its trials have; those of `definitions.TUNED` get
            weights,
            all get a learning rate.
        folder: the grid's folder.
        jobs, devices, say: as in `runner.run_grid`.

    Raises:
        InputError: as `runner.run_grid`; or the runs are not validated.
        JobError: no trial of a method came to an end.
    """
    candidates = [_trial(run, weights) for run in trials if run.method in TUNED for weights in _choices(run.method)]
    both = replace(grid, runs=(*trials, *grid.runs))
    weighed = tuned_grid(both, candidates, _adopt, folder, jobs, devices, say).runs
    rates = [rate_trial(run, factor) for run in weighed[: len(trials)] for factor in RATE_FACTORS]
    grid = replace(grid, runs=weighed[len(trials) :])
    run_grid(tuned_grid(grid, rates, at_best_rate, folder, jobs, devices, say, RATE_TRIALS), folder, jobs, devices, say)
    return read_grid(folder)[1]


def _choices(method: str) -> list[Weights]:
    return [Weights(*values) for values in product(KAPPA_Q[method], AVERAGE_PRECISION_PER_BIT)]


def _trial(run: GridRun, weights: Weights) -> GridRun:
    return replace(_with(run, weights), name=f"{run.name}-q{weights.kappa_q:g}-ap{weights.per_bit:g}")


def _adopt(run: GridRun, best: Result) -> GridRun:
    return _with(run, weights_of(best))


def _with(run: GridRun, weights: Weights) -> GridRun:
    loss = run.config.loss.model_copy(update={"kappa_q": weights.kappa_q})
    terms = run.config.terms.model_copy(update={"average_precision": weights.per_bit * run.config.n_bits})
    return replace(run, config=replace(run.config, loss=loss, terms=terms))
