"""``experiment gamma-w``: the paper's sweep of DSCH's γ_w."""

from collections.abc import Sequence

from channelhash.lab.experiments.base import METHODS
from channelhash.lab.experiments.experiment import Design, Experiment, GridRun, Result, Table
from channelhash.lab.experiments.paper import comparison_table
from channelhash.lab.experiments.tables import all_views, gamma_w_table

#: γ_w of the paper's sweep.
PAPER_GAMMA_W = (2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0)


def _grid(design: Design) -> list[GridRun]:
    """Return DSCH with each γ_w.

    >>> from channelhash.lab.experiments.base import DATASETS
    >>> [run.config.loss.gamma_w for run in _grid(Design(DATASETS["synthetic"], [32], [0]))]
    [2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]
    """
    return [
        run for value in PAPER_GAMMA_W for run in design.runs(f"γ_w = {value:g}", {**METHODS["DSCH"], "gamma_w": value})
    ]


def _tables(results: Sequence[Result]) -> list[Table]:
    """Return mAP and ROC-AUC by γ_w, and the paper's numbers beside them."""
    return [*all_views(gamma_w_table, results, "validation"), *filter(None, [comparison_table(results, "gamma_w")])]


EXPERIMENT = Experiment(name="gamma-w", title="DSCH by γ_w", bits=(32,), grid=_grid, tables=_tables)
