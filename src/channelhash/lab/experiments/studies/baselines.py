"""``experiment baselines``: the losses of the literature, each at its own learning rate, between floor and ceiling."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from channelhash.lab.experiments import tuning
from channelhash.lab.experiments.base import METHODS
from channelhash.lab.experiments.experiment import Execution, Experiment, Grid, Result, Table
from channelhash.lab.experiments.reference_points import add_reference_points
from channelhash.lab.experiments.results import read_grid
from channelhash.lab.experiments.runner import run_grid
from channelhash.lab.experiments.tables.baselines import (
    baselines_plot,
    baselines_table,
    learning_rates_table,
    shares_table,
    trained,
)
from channelhash.lab.experiments.tables.results import all_views, losses_table

#: The losses that are compared, each with its defaults; ``docs/reference/baselines.md`` says how those differ from
#: its authors'.
BASELINES: Mapping[str, Mapping[str, Any]] = {
    "DCMH / DPSH": {"name": "dcmh"},
    "HashNet": {"name": "hashnet"},
    "GreedyHash": {"name": "greedyhash"},
    "TALR": {"name": "talr"},
    "CSQ": {"name": "csq"},
    "IDHN": {"name": "idhn"},
    "OrthoHash": {"name": "orthohash"},
    "HyP² / DSPH": {"name": "hyp2"},
    "DNPH": {"name": "dnph"},
    "DNpH (QSMI)": {"name": "qsmi"},
    "DCGH": {"name": "dcgh"},
    "SCH, authors' code": {"name": "sch-original"},
    **METHODS,
    "BSCH": {"name": "bsch"},
    "RSCH": {"name": "rsch"},
}
#: Trials of each method at most: while some best lies at an end of the range, all methods get one more there.
MOST_TRIALS = 9


def run_baselines(grid: Grid, folder: Path, execution: Execution) -> list[Result]:
    """Choose learning rates, run the grid with them, and evaluate floor and ceiling.

    Returns:
        All results, those of floor and ceiling included.

    Raises:
        InputError, JobError: as `tune`.
    """
    factors = tuning.RATE_FACTORS
    while True:
        trials = [tuning.rate_trial(run, factor) for run in grid.trials for factor in factors]
        tuned = tuning.tune(grid, trials, tuning.adopt_rate, folder / tuning.TRIALS, execution)
        wider = _widen(factors, read_grid(folder / tuning.TRIALS)[1])
        if len(wider) == len(factors) or len(wider) > MOST_TRIALS:
            break
        factors = wider
    run_grid(tuned, folder, execution)
    add_reference_points(tuned, folder, execution.notify)
    return read_grid(folder)[1]


def _widen(factors: tuple[float, ...], trials: Sequence[Result]) -> tuple[float, ...]:
    """Return the factors, and half a decade more at an end where a method's best trial lies; the upper end first."""
    ends = [tuning.rate_of(run) for run in (trials[0], trials[len(factors) - 1])]
    best = {tuning.rate_of(run) for run in tuning.best_trials(trials).values()}
    if ends[1] in best:
        return (*factors, factors[-1] * 10**0.5)
    return (factors[0] * 10**-0.5, *factors) if ends[0] in best else factors


def _tables(results: Sequence[Result]) -> list[Table]:
    """Return the losses between floor and ceiling, how far each goes, and the losses alone in every view."""
    return [baselines_table(results), shares_table(results), *all_views(losses_table, trained(results))]


def _plots(results: Sequence[Result]) -> dict[str, Figure]:
    """Return a plot of the losses between floor and ceiling for each code length."""
    lengths = sorted({result.n_bits for result in trained(results) if result.status == "finished"})
    return {f"baselines-k{n_bits}": baselines_plot(results, n_bits) for n_bits in lengths}


EXPERIMENT = Experiment(
    name="baselines",
    title="Losses of the literature under one protocol",
    losses=BASELINES,
    run=run_baselines,
    tables=_tables,
    plots=_plots,
    trials={tuning.TRIALS: learning_rates_table},
)
