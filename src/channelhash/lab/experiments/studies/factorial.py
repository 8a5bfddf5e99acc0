"""``experiment factorial``: which part of DSCH's gain is the channel's, which the quantisation term's."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from matplotlib.figure import Figure

from channelhash.lab.experiments.experiment import Design, Experiment, GridRun, Result, Table
from channelhash.lab.experiments.plots.results import grid_plots
from channelhash.lab.experiments.tables.effects import all_effects, effects_plot, effects_tables
from channelhash.lab.experiments.tables.results import all_views, losses_table


def _grid(design: Design) -> list[GridRun]:
    """Return the bounds of SCH and DSCH, each with κ_q of 0, 0.01 and 0.03; DSCH at 32 bits also with γ_w = 2.

    >>> from channelhash.lab.experiments.base import DATASETS
    >>> [run.name for run in _grid(Design(DATASETS["synthetic"], [32], [0]))][-2:]
    ['dsch-kappa_q-0.03-k32-seed0', 'dsch-gamma_w-2-kappa_q-0.03-k32-seed0']
    """
    runs = []
    for channel, kappa_q in product(("sch", "dsch"), (0.0, 0.01, 0.03)):
        loss = {"name": channel, "kappa_q": kappa_q}
        runs += design.runs(f"{channel.upper()}, κ_q = {kappa_q:g}", loss)
        if channel == "dsch" and 32 in design.bits:
            at_32_bits = replace(design, bits=[32])
            runs += at_32_bits.runs(f"DSCH, γ_w = 2, κ_q = {kappa_q:g}", {**loss, "gamma_w": 2.0})
    return runs


def _tables(results: Sequence[Result]) -> list[Table]:
    """Return scores by channel and κ_q, and the effects of both."""
    return [*all_views(losses_table, results), *effects_tables(all_effects(results))]


def _plots(results: Sequence[Result]) -> dict[str, Figure]:
    """Return the plots of every grid, and one of the effects."""
    plots = grid_plots(results)
    if effects := all_effects(results):
        title = "Where does DSCH's gain come from? Parts of the published comparison, 95 % intervals"
        plots["effects"] = effects_plot(effects, title)
    return plots


EXPERIMENT = Experiment(
    name="factorial", title="Channel and quantisation term", bits=(16, 32, 64), grid=_grid, tables=_tables, plots=_plots
)
