"""``experiment weights``: every loss as published, and with weights chosen by the same number of trials."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from channelhash.config import make_config
from channelhash.errors import InputError
from channelhash.lab.experiments.experiment import Design, Experiment, Table
from channelhash.lab.experiments.plots import grid_plots
from channelhash.lab.experiments.results import Result
from channelhash.lab.experiments.runner import Execution, Grid, GridRun, run_grid
from channelhash.lab.experiments.tables import all_views, losses_table
from channelhash.lab.experiments.weights_tables import (
    TUNED,
    best_trials,
    chosen_table,
    differences_tables,
    learning_rates_table,
    means_table,
    plain,
    rate_of,
    tuning_plot,
)
from channelhash.losses import PUBLISHED

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


#: Weights of the direct AP term, by bit of the code: it is a share, and other losses are of the order of bits.
_PER_BIT = (0.0, 0.25, 1.0)
#: What is chosen beside the learning rate: loss -> key -> values, nine combinations each, the published one among them.
#: ``average_precision`` is by bit of the code. ``proxies`` is the learning rate of ``train.rates``, which in the
#: published form is that of the model.
CHOICES: Mapping[str, Mapping[str, Sequence[float]]] = {
    "dsch": {"kappa_q": (0.01, 0.1, 0.3), "average_precision": _PER_BIT},
    "sch": {"kappa_q": (0.0, 0.1, 0.3), "average_precision": _PER_BIT},
    "bsch": {"kappa_q": (0.03, 0.1, 0.3), "average_precision": _PER_BIT},
    "rsch": {"kappa_q": (0.0, 0.1, 0.3), "average_precision": _PER_BIT},
    "sch-original": {"beta": (0.5, 1.0, 2.0), "average_precision": _PER_BIT},
    "tdsrdh": {"alpha": (0.015, 0.05, 0.15), "epsilon": (0.1, 0.3, 1.0)},
    "dcmh": {"gamma": (1.0, 10.0, 100.0), "average_precision": _PER_BIT},
    "hashnet": {"beta": (0.5, 1.0, 2.0), "average_precision": _PER_BIT},
    "idhn": {"lambda_q": (0.03, 0.1, 0.3), "average_precision": _PER_BIT},
    "csq": {"lambda_q": (0.01, 0.05, 0.25), "average_precision": _PER_BIT},
    "orthohash": {"s": (4.0, 8.0, 16.0), "average_precision": _PER_BIT},
    "greedyhash": {"alpha": (0.03, 0.1, 1.0), "average_precision": _PER_BIT},
    "hyp2": {"proxies": (0.0, 0.002, 0.02), "average_precision": _PER_BIT},
    "dnph": {"proxies": (0.0, 0.002, 0.02), "average_precision": _PER_BIT},
    "dcgh": {"proxies": (0.0, 0.002, 0.02), "average_precision": _PER_BIT},
    "talr": {"alpha": (0.5, 1.0, 2.0), "bin_width": (1, 2, 4)},
    "qsmi": {"average_precision": (0.0, 0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)},
}
#: The same for a loss of one's own.
_OTHER = {"average_precision": (0.0, 0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)}
#: The losses that are compared.
LOSSES: Mapping[str, Mapping[str, Any]] = {
    "DSCH": {"name": "dsch"},
    "SCH": {"name": "sch"},
    "SCH, authors' code": {"name": "sch-original"},
    "TDSRDH": {"name": "tdsrdh"},
    "RSCH": {"name": "rsch"},
    "BSCH": {"name": "bsch"},
    "TALR": {"name": "talr"},
    "CSQ": {"name": "csq"},
    "HyP² / DSPH": {"name": "hyp2"},
    "DCGH": {"name": "dcgh"},
    "DNPH": {"name": "dnph"},
    "DNpH (QSMI)": {"name": "qsmi"},
    "HashNet": {"name": "hashnet"},
    "IDHN": {"name": "idhn"},
    "OrthoHash": {"name": "orthohash"},
    "GreedyHash": {"name": "greedyhash"},
    "DCMH / DPSH": {"name": "dcmh"},
}
#: Folder of the trials of weights below the grid's; those of learning rates come before.
WEIGHT_TRIALS = "tuning-weights"


def _grid(design: Design) -> list[GridRun]:
    """Return each loss as published, if anybody else published it, and once more to be tuned.

    >>> from channelhash.lab.experiments.base import DATASETS
    >>> csq = {"CSQ": {"name": "csq"}}
    >>> [(run.method, run.config.loss.lambda_p) for run in _grid(Design(DATASETS["synthetic"], [32], [0], csq))]
    [('CSQ', 0.2), ('CSQ, tuned', 0.2)]
    """
    runs = []
    for method, loss in design.losses.items():
        published = {"published": True} if loss["name"] in PUBLISHED else {}
        for name in (method, method + TUNED):
            runs += design.runs(name, {**published, **loss})
    return runs


def run_weights(grid: Grid, folder: Path, execution: Execution) -> list[Result]:
    """Choose each loss's learning rate, with it the weights of its tuned form, and run the grid with both.

    Raises:
        InputError: as `run_trials`.
        JobError: likewise.
    """
    published = [run for run in grid.trials if not run.method.endswith(TUNED)]
    rates = [rate_trial(run, factor) for run in published for factor in RATE_FACTORS]
    best = run_trials(grid, rates, folder / TRIALS, execution)
    trials, runs = ([adopt_rate(run, best[plain(run.method)]) for run in each] for each in (grid.trials, grid.runs))
    weights = [trial for run in trials if run.method.endswith(TUNED) for trial in _weight_trials(run)]
    chosen = run_trials(grid, weights, folder / WEIGHT_TRIALS, execution)
    adopted = [_with_weights(run, _weights_of(chosen[run.method])) if run.method in chosen else run for run in runs]
    return run_grid(replace(grid, runs=tuple(adopted)), folder, execution)


def _weight_trials(run: GridRun) -> Iterator[GridRun]:
    """Yield a trial of each choice of weights."""
    choices = CHOICES.get(run.config.loss_name, _OTHER)
    for values in product(*choices.values()):
        weights = dict(zip(choices, values, strict=True))
        name = "-".join([run.name, *(f"{key}{value:g}" for key, value in weights.items())])
        yield replace(_with_weights(run, weights), name=name)


def _with_weights(run: GridRun, weights: Mapping[str, float]) -> GridRun:
    sections = run.config.sections()
    for key, value in weights.items():
        if key == "proxies":
            sections["train"]["rates"] = {"proxies": value}
        else:
            sections["loss"][key] = value * run.config.n_bits if key == "average_precision" else value
    return replace(run, config=make_config(sections))


def _weights_of(trial: Result) -> dict[str, float]:
    """Return what `_with_weights` gave a trial."""
    loss, rates = trial.settings["loss"], trial.settings["train"]["rates"]
    values = {**loss, **rates, "average_precision": loss["average_precision"] / trial.n_bits}
    return {key: values[key] for key in CHOICES.get(loss["name"], _OTHER)}


def _tables(results: Sequence[Result]) -> list[Table]:
    """Return each loss's means, the recommendation against all others, and every cell."""
    return [
        means_table(results),
        *differences_tables(results),
        *all_views(losses_table, results),
        losses_table(results, score="ndcg_graded"),
    ]


def _plots(results: Sequence[Result]) -> dict[str, Figure]:
    """Return the plots of every grid, and what tuning brings each loss."""
    tuned = any(result.method.endswith(TUNED) and result.status == "finished" for result in results)
    return {**grid_plots(results), **({"tuning": tuning_plot(results)} if tuned else {})}


def _chosen(trials: Sequence[Result]) -> Table:
    return chosen_table(trials, _weights_of)


EXPERIMENT = Experiment(
    name="weights",
    title="Losses as published and tuned alike",
    losses=LOSSES,
    grid=_grid,
    run=run_weights,
    tables=_tables,
    plots=_plots,
    trials={TRIALS: learning_rates_table, WEIGHT_TRIALS: _chosen},
    splits=True,
)
