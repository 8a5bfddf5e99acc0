"""Draw the plots of the documentation from the published raw scores.

python tools/site/plots.py
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from raw_scores import read_runs

from channelhash.lab.experiments.results import Result
from channelhash.lab.experiments.studies.benchmark import (
    _across_tables,
    _method_means,
    _unseen,
)
from channelhash.lab.experiments.studies.tuning import ONE_SETTING, TUNED
from channelhash.metrics.plots import _RESOLUTION, COLORS
from channelhash.utils.files import atomic_path

DOCS = Path(__file__).parents[2] / "docs"
SCORES = DOCS / "reference" / "results" / "tables" / "benchmark-runs.csv.gz"


#: Collection of the file -> title of its panel.
TITLES = {
    "wikipedia": "Wikipedia",
    "features": "COCO-17",
    "nuswide-tags": "NUS-WIDE tags",
    "mirflickr-tags": "MIRFLICKR tags",
    "coco80-words": "COCO words",
}
#: Form of a loss -> its name in the legend, color and filling.
FORMS = {
    TUNED: ("tuned on the collection", COLORS[1], "white"),
    ONE_SETTING: ("one setting for all", COLORS[0], COLORS[0]),
}


def benchmark_plot(results: Mapping[str, Sequence[Result]]) -> Figure:
    """Draw the mean tie-aware mAP of each loss in both forms, a panel a collection.

    Args:
        results: runs of ``experiment benchmark`` of each collection.

    Returns:
        A plot in percent, a row a loss, the best mean rank with one setting on top; bars are
        sample standard deviations over seeds.
    """
    ranks = {table.name: table for table in _across_tables(results)}["ranks-one-setting"]
    losses = [row[0].text for row in ranks.rows][::-1]
    figure = Figure(figsize=(12.5, 0.9 + 0.27 * len(losses)), layout="constrained")
    panels = figure.subplots(1, len(results), sharey=True, squeeze=False)[0]
    for axes, (place, runs) in zip(panels, results.items(), strict=True):
        means = _method_means(runs, _unseen(runs), "map_tie_aware")
        for form, (label, color, filling) in FORMS.items():
            scores = [100 * np.array(means[loss + form]) for loss in losses]
            axes.errorbar(
                [each.mean() for each in scores],
                range(len(losses)),
                xerr=[each.std(ddof=1) for each in scores],
                fmt="o",
                markersize=5,
                elinewidth=1.0,
                color=color,
                markerfacecolor=filling,
                label=label,
            )
        axes.set_title(TITLES[place], fontsize=10)
        axes.grid(axis="x", alpha=0.3)
    panels[0].set_yticks(range(len(losses)), losses)
    figure.supxlabel("tie-aware mAP on items that no model was trained on, %", fontsize=10)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


def main() -> None:
    """Write the plot of the benchmark."""
    figure = benchmark_plot(read_runs(SCORES))
    with atomic_path(DOCS / "images" / "benchmark.png") as path:
        figure.savefig(path, dpi=_RESOLUTION, format="png")


if __name__ == "__main__":
    main()
