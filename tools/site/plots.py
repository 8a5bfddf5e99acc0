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
)
from channelhash.lab.experiments.studies.tuning import RECOMMENDED, TUNED
from channelhash.metrics.plots import _RESOLUTION, COLORS
from channelhash.utils.files import atomic_path

DOCS = Path(__file__).parents[2] / "docs"
SCORES = DOCS / "reference" / "results" / "tables" / "benchmark-runs.csv.gz"


#: Collection of the file -> title of its panel.
TITLES = {"features": "COCO-17", "wikipedia": "Wikipedia"}
TITLES |= {"nuswide-tags": "NUS-WIDE tags", "mirflickr-tags": "MIRFLICKR tags"}
#: Points of mAP that a panel shows below its lowest tuned mean.
_ROOM = 2.0


def benchmark_plot(results: Mapping[str, Sequence[Result]]) -> Figure:
    """Draw the mean tie-aware mAP of each loss, as published, tuned and with our weights, a panel a
    collection.

    Args:
        results: runs of ``experiment benchmark`` of each collection.

    Returns:
        A plot in percent, a row a loss, the best mean rank on top; bars are sample standard
        deviations over seeds.
    """
    means = {
        place: {
            name: 100 * np.array(each)
            for name, each in _method_means(runs, "leak_free", "map_tie_aware").items()
        }
        for place, runs in results.items()
    }
    losses = [row[0].text for row in _across_tables(results)[0].rows][::-1]
    figure = Figure(figsize=(10.0, 0.9 + 0.27 * len(losses)), layout="constrained")
    panels = figure.subplots(1, len(means), sharey=True, squeeze=False)[0]
    forms = {
        "": ("as published", COLORS[1], "white"),
        TUNED: ("tuned alike", COLORS[0], COLORS[0]),
    }
    forms[RECOMMENDED] = ("our weights, untuned", COLORS[2], COLORS[2])
    for axes, (place, scores) in zip(panels, means.items(), strict=True):
        for form, (label, color, filling) in forms.items():
            rows = [row for row, loss in enumerate(losses) if loss + form in scores]
            values = [scores[losses[row] + form] for row in rows]
            bars = {
                "xerr": [each.std(ddof=1) for each in values],
                "fmt": "o",
                "markersize": 5,
                "elinewidth": 1.0,
            }
            axes.errorbar(
                [each.mean() for each in values],
                rows,
                color=color,
                markerfacecolor=filling,
                label=label,
                **bars,
            )
        left = (
            min(float(each.mean()) for method, each in scores.items() if method.endswith(TUNED))
            - _ROOM
        )
        for row, loss in enumerate(losses):
            # a loss that fails as published would squeeze all others
            if scores[loss].mean() < left:
                note = f"◂ {scores[loss].mean():.1f}"
                axes.annotate(note, (left, row), color=COLORS[1], va="center", fontsize=8)
        axes.set_xlim(left=left)
        axes.set_title(TITLES[place], fontsize=10)
        axes.grid(axis="x", alpha=0.3)
    panels[0].set_yticks(range(len(losses)), losses)
    figure.supxlabel("tie-aware mAP on items that no model was trained on, %", fontsize=10)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


def main() -> None:
    """Write the plot of the benchmark."""
    figure = benchmark_plot(read_runs(SCORES))
    with atomic_path(DOCS / "images" / "benchmark.png") as path:
        figure.savefig(path, dpi=_RESOLUTION, format="png")


if __name__ == "__main__":
    main()
