"""``experiment channels``: the shapes of the channel, each with the same terms beside it, tuned alike."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from channelhash.experiments.grid import Grid, GridRun, Say, run_grid
from channelhash.experiments.grids import TUNED
from channelhash.experiments.results import Result, read_grid
from channelhash.experiments.tuning import tuned_grid

#: Trials of each channel: weights of the quantisation error, and of the direct AP term per bit of the code. The AP term
#: is a share, the channel's violations are bits.
KAPPA_Q = (0.03, 0.1, 0.3)
AVERAGE_PRECISION_PER_BIT = (0.0, 0.25, 1.0)


def run_channels(
    grid: Grid, trials: Sequence[GridRun], folder: Path, jobs: int, devices: Sequence[str], say: Say
) -> list[Result]:
    """Choose the weights beside every channel, then run the grid with them. What is there is not done again.

    Args:
        grid: as `grids.channels` makes it.
        trials: a run of each method, whose code length and seed its trials have; those of `grids.TUNED` are tuned.
        folder: the grid's folder.
        jobs, devices, say: as in `grid.run_grid`.

    Raises:
        InputError: as `grid.run_grid`; or the runs are not validated.
        JobError: no trial of a method came to an end.
    """
    asked = [run for run in trials if run.method in TUNED]
    candidates = [_trial(run, *weights) for run in asked for weights in product(KAPPA_Q, AVERAGE_PRECISION_PER_BIT)]
    run_grid(tuned_grid(grid, candidates, _adopt, folder, jobs, devices, say), folder, jobs, devices, say)
    return read_grid(folder)[1]


def weights_of(result: Result) -> tuple[float, float]:
    """κ_q, and the weight of the AP term per bit, of a run."""
    loss = result.settings["loss"]
    return float(loss["kappa_q"]), float(loss["average_precision"]) / result.n_bits


def _trial(run: GridRun, kappa_q: float, per_bit: float) -> GridRun:
    return replace(_with(run, kappa_q, per_bit), name=f"{run.name}-q{kappa_q:g}-ap{per_bit:g}")


def _adopt(run: GridRun, best: Result) -> GridRun:
    return _with(run, *weights_of(best))


def _with(run: GridRun, kappa_q: float, per_bit: float) -> GridRun:
    loss = run.config.loss.model_copy(update={"kappa_q": kappa_q})
    terms = run.config.terms.model_copy(update={"average_precision": per_bit * run.config.n_bits})
    return replace(run, config=replace(run.config, loss=loss, terms=terms))
