"""``experiment shapes``: channels whose targets follow the labels, with the same weights beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from channelhash.lab.experiments.experiment import Design, Experiment, GridRun, Result, Table
from channelhash.lab.experiments.plots.results import grid_plots
from channelhash.lab.experiments.tables.effects import all_option_effects, effects_plot, effects_tables
from channelhash.lab.experiments.tables.results import all_views, losses_table
from channelhash.losses import recommended_weights

#: The channels that are compared, SCH's first.
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "SCH": {"name": "sch"},
    "DSCH": {"name": "dsch"},
    "SCH, quantiles": {"name": "sch-shaped", "shape": "quantile"},
    "SCH, rare labels": {"name": "sch-shaped", "shape": "rarity"},
    "SCH, learned": {"name": "sch-shaped", "shape": "learned"},
}


def _grid(design: Design) -> list[GridRun]:
    """Return each channel of `SHAPES`, all with the same weights beside them.

    >>> from channelhash.lab.experiments.base import DATASETS
    >>> [run.name for run in _grid(Design(DATASETS["synthetic"], [32], [0]))][-2:]
    ['sch-rare-labels-k32-seed0', 'sch-learned-k32-seed0']
    """
    runs = []
    for method, loss in SHAPES.items():
        for n_bits in design.bits:
            runs += replace(design, bits=[n_bits]).runs(method, {**loss, **recommended_weights(n_bits)})
    return runs


def _tables(results: Sequence[Result]) -> list[Table]:
    """Return what each shape adds to SCH's, in tie-aware mAP and in graded NDCG, and scores by shape."""
    first = results[0].method
    title = f"Shapes minus {first}"
    graded = effects_tables(all_option_effects(results, first, "ndcg_graded"), score="graded NDCG", title=title)
    return [
        *effects_tables(all_option_effects(results, first), title=title),
        *(replace(table, name=f"ndcg-graded-{table.name}") for table in graded),
        *all_views(losses_table, results),
        losses_table(results, score="ndcg_graded"),
    ]


def _plots(results: Sequence[Result]) -> dict[str, Figure]:
    """Return the plots of every grid, and one of the effects."""
    plots = grid_plots(results)
    if effects := all_option_effects(results, results[0].method):
        title = f"What each shape adds to the channel of {results[0].method}, 95 % intervals over seeds"
        names = {effect.name: effect.name for effect in effects}
        plots["effects"] = effects_plot(effects, title, names, sideways=True)
    return plots


EXPERIMENT = Experiment(name="shapes", title="Shapes of the channel", grid=_grid, tables=_tables, plots=_plots)
