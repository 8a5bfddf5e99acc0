"""The plot of ``experiment weights``: what tuning brings each loss."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from channelhash.lab.experiments.results import Result
from channelhash.lab.experiments.tables.weights import TUNED, method_means, plain
from channelhash.utils.plotting import COLORS

#: Points of mAP that the plot shows below the lowest tuned mean.
_ROOM = 4.0


def tuning_plot(results: Sequence[Result], view: str = "leak_free") -> Figure:
    """Draw the mean tie-aware mAP of each loss as published and tuned, a row a loss, the best tuned one on top.

    Args:
        results: finished runs of ``experiment weights``, tuned ones among them.
        view: the retrieval set, ``test`` or ``leak_free``.

    Returns:
        A plot in percent, with the sample standard deviation over seeds as error bars.
    """
    means = {
        method: 100 * np.array(list(seeds.values()))
        for method, seeds in method_means(results, view, "map_tie_aware").items()
    }
    losses = sorted(
        {plain(method) for method in means},
        key=lambda loss: means.get(loss + TUNED, means.get(loss, np.zeros(1))).mean(),
    )
    figure = Figure(figsize=(7.2, 0.6 + 0.3 * len(losses)), layout="constrained")
    axes = figure.subplots()
    for form, label, color, filled in (("", "as published", COLORS[1], False), (TUNED, "tuned alike", COLORS[0], True)):
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
    left = min(float(score.mean()) for method, score in means.items() if method.endswith(TUNED)) - _ROOM
    for row, loss in enumerate(losses):
        if loss in means and means[loss].mean() < left:  # a loss that fails as published would squeeze all others
            axes.annotate(f"◂ {means[loss].mean():.1f}", (left, row), color=COLORS[1], va="center", fontsize=9)
    axes.set_xlim(left=left)
    axes.set_yticks(range(len(losses)), losses)
    axes.set_xlabel("tie-aware mAP on items that nobody trained on, %" if view == "leak_free" else "tie-aware mAP, %")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="lower right")
    return figure
