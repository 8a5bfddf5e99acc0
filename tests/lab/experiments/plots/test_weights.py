"""The plot of ``experiment weights`` shows the means and spreads of its runs."""

import numpy as np
import pytest

from channelhash.lab.experiments.weights_tables import tuning_plot
from lab.experiments.made_results import made_result


def test_each_loss_has_its_mean_and_spread_in_both_forms():
    shares = {
        "A": (0.58, 0.6),
        "A, tuned": (0.6, 0.64),
        "B": (0.2, 0.2),
        "B, tuned": (0.7, 0.7),
        "C, tuned": (0.65, 0.65),
    }
    results = [
        made_result(method, seed, share, views=("leak_free",))
        for method, values in shares.items()
        for seed, share in enumerate(values)
    ]
    (axes,) = tuning_plot(results).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["A", "C", "B"]
    published, tuned = axes.containers
    assert list(published.lines[0].get_xdata()) == pytest.approx([59, 20])
    assert list(published.lines[0].get_ydata()) == [0, 2]
    assert list(tuned.lines[0].get_xdata()) == pytest.approx([62, 65, 70])
    (bar, *_) = tuned.lines[2][0].get_segments()
    assert bar[1, 0] - bar[0, 0] == pytest.approx(2 * np.std([60, 64], ddof=1))
    assert [text.get_text() for text in axes.texts] == ["◂ 20.0"]  # off the axis, with its number
