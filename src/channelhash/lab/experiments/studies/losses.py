"""``experiment losses``: the paper's main table, each loss at each code length."""

from collections.abc import Sequence

from channelhash.lab.experiments.base import METHODS
from channelhash.lab.experiments.comparisons import significance_tables, wins_table
from channelhash.lab.experiments.experiment import Experiment, Result, Table
from channelhash.lab.experiments.paper import comparison_table
from channelhash.lab.experiments.tables import all_views, losses_table


def _tables(results: Sequence[Result]) -> list[Table]:
    """Return scores by method and code length, tests of every pair, wins, and the paper's numbers beside them."""
    return [
        *all_views(losses_table, results),
        *significance_tables(results),
        wins_table(results),
        *filter(None, [comparison_table(results, "losses")]),
    ]


EXPERIMENT = Experiment(name="losses", title="Losses by code length", losses=METHODS, tables=_tables)
