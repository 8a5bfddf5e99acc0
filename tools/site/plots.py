"""Draw the plots of the documentation from the published raw scores.

python tools/site/plots.py
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from raw_scores import read_runs

from channelhash.lab.experiments.results import Result
from channelhash.lab.experiments.studies.benchmark import _TUNED, _method_means
from channelhash.utils.files import atomic_path
from channelhash.utils.plotting import _RESOLUTION, COLORS

DOCS = Path(__file__).parents[2] / "docs"
SCORES = DOCS / "reference" / "results" / "tables" / "weights-coco17-runs.csv.gz"


#: Points of mAP that the plot shows below the lowest tuned mean.
_ROOM = 4.0


def tuning_plot(results: Sequence[Result]) -> Figure:
    """Draw the mean tie-aware mAP of each loss as published and tuned, a row a loss, the best tuned one on top.

    Args:
        results: finished runs of ``experiment weights``, tuned ones among them.

    Returns:
        A plot in percent, with the sample standard deviation over seeds as error bars.
    """
    means = {name: 100 * np.array(each) for name, each in _method_means(results, "leak_free", "map_tie_aware").items()}
    losses = sorted(
        {method.removesuffix(_TUNED) for method in means},
        key=lambda loss: means.get(loss + _TUNED, means.get(loss, np.zeros(1))).mean(),
    )
    figure = Figure(figsize=(7.2, 0.6 + 0.3 * len(losses)), layout="constrained")
    axes = figure.subplots()
    for form, label, color, filled in (
        ("", "as published", COLORS[1], False),
        (_TUNED, "tuned alike", COLORS[0], True),
    ):
        rows = [row for row, loss in enumerate(losses) if loss + form in means]
        scores = [means[losses[row] + form] for row in rows]
        axes.errorbar(
            [score.mean() for score in scores],
            rows,
            xerr=[score.std(ddof=1) if len(score) > 1 else 0.0 for score in scores],
            fmt="o",
            color=color,
            markerfacecolor=color if filled else "white",
            markersize=6,
            elinewidth=1.0,
            label=label,
        )
    left = min(float(score.mean()) for method, score in means.items() if method.endswith(_TUNED)) - _ROOM
    for row, loss in enumerate(losses):
        if loss in means and means[loss].mean() < left:  # a loss that fails as published would squeeze all others
            axes.annotate(f"◂ {means[loss].mean():.1f}", (left, row), color=COLORS[1], va="center", fontsize=9)
    axes.set_xlim(left=left)
    axes.set_yticks(range(len(losses)), losses)
    axes.set_xlabel("tie-aware mAP on items that nobody trained on, %")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="lower right")
    return figure


def main() -> None:
    """Write the plot of Which loss?"""
    figure = tuning_plot(read_runs(SCORES)[""])
    with atomic_path(DOCS / "images" / "which-loss.png") as path:
        figure.savefig(path, dpi=_RESOLUTION, format="png")


if __name__ == "__main__":
    main()
