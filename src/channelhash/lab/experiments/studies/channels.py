"""``experiment channels``: the losses of channels, each with weights and learning rate of its own, chosen alike."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from matplotlib.figure import Figure

from channelhash.lab.experiments import tuning
from channelhash.lab.experiments.base import METHODS
from channelhash.lab.experiments.experiment import Design, Execution, Experiment, Grid, GridRun, Result, Table
from channelhash.lab.experiments.plots.results import grid_plots
from channelhash.lab.experiments.runner import run_grid
from channelhash.lab.experiments.tables.baselines import learning_rates_table
from channelhash.lab.experiments.tables.channels import OWN, own_effects, own_effects_tables, trials_table
from channelhash.lab.experiments.tables.effects import effects_plot
from channelhash.lab.experiments.tables.results import all_views, losses_table
from channelhash.lab.experiments.tables.significance import significance_tables, wins_table

#: Losses whose weights are chosen here; the first three differ in their bounds alone.
TUNED = {f"{name.upper()}, tuned": {"name": name} for name in ("sch", "dsch", "bsch", "rsch")}
#: Trials of each method: κ_q times weights of the direct AP term per bit of the code. The AP term is a share, the
#: channel's violations are bits. Codes of tanh are nearly binary without a quantisation error too.
KAPPA_Q: Mapping[str, tuple[float, ...]] = dict.fromkeys(TUNED, (0.03, 0.1, 0.3)) | {"RSCH, tuned": (0.0, 0.1, 0.3)}
AVERAGE_PRECISION_PER_BIT = (0.0, 0.25, 1.0)


def _grid(design: Design) -> list[GridRun]:
    """Return DSCH as published, SCH with its quantisation term, and the losses of `TUNED`."""
    published = {"DSCH, as published": METHODS["DSCH"], "SCH + quantisation": METHODS["SCH + quantisation"]}
    return [run for method, loss in {**published, **TUNED}.items() for run in design.runs(method, loss)]


def run_channels(grid: Grid, folder: Path, execution: Execution) -> list[Result]:
    """Choose the weights of `TUNED`, then every method's learning rate, and run the grid with them; as `tune`."""
    candidates = [_weight_trial(run, weights) for run in grid.trials for weights in _choices(run.method)]
    both = replace(grid, runs=(*grid.trials, *grid.runs))
    weighted = tuning.tune(both, candidates, _adopt_weights, folder / tuning.TRIALS, execution).runs
    trials, runs = weighted[: len(grid.trials)], weighted[len(grid.trials) :]
    rates = [tuning.rate_trial(run, factor) for run in trials for factor in tuning.RATE_FACTORS]
    weighted_grid, rates_folder = replace(grid, runs=runs), folder / tuning.RATE_TRIALS
    tuned = tuning.tune(weighted_grid, rates, tuning.adopt_rate, rates_folder, execution)
    return run_grid(tuned, folder, execution)


def _choices(method: str) -> list[tuning.Weights]:
    if method not in TUNED:
        return []
    return [tuning.Weights(*values) for values in product(KAPPA_Q[method], AVERAGE_PRECISION_PER_BIT)]


def _weight_trial(run: GridRun, weights: tuning.Weights) -> GridRun:
    return replace(_with_weights(run, weights), name=f"{run.name}-q{weights.kappa_q:g}-ap{weights.per_bit:g}")


def _adopt_weights(run: GridRun, best: Result) -> GridRun:
    return _with_weights(run, tuning.weights_of(best))


def _with_weights(run: GridRun, weights: tuning.Weights) -> GridRun:
    loss = run.config.loss.model_copy(update={"kappa_q": weights.kappa_q})
    terms = run.config.terms.model_copy(update={"average_precision": weights.per_bit * run.config.n_bits})
    return replace(run, config=replace(run.config, loss=loss, terms=terms))


def _tables(results: Sequence[Result]) -> list[Table]:
    """Return mAP and graded NDCG by channel and code length, wins, and tests of `OWN` against the others."""
    methods = [method for method in dict.fromkeys(result.method for result in results) if method != OWN]
    return [
        *all_views(losses_table, results),
        losses_table(results, score="ndcg_graded"),
        *own_effects_tables(results),
        wins_table(results),
        *significance_tables(results, [(OWN, method) for method in methods]),
    ]


def _plots(results: Sequence[Result]) -> dict[str, Figure]:
    """Return the plots of every grid, and one of the effects."""
    plots = grid_plots(results)
    if effects := own_effects(results):
        names = {effect.name: effect.name.removeprefix(f"{OWN} − ") for effect in effects}
        title = f"{OWN}, minus the other channels, 95 % intervals over seeds"
        plots["effects"] = effects_plot(effects, title, names, sideways=True)
    return plots


EXPERIMENT = Experiment(
    name="channels",
    title="Losses of channels, tuned alike",
    grid=_grid,
    run=run_channels,
    tables=_tables,
    plots=_plots,
    trials={tuning.TRIALS: trials_table, tuning.RATE_TRIALS: learning_rates_table},
)
