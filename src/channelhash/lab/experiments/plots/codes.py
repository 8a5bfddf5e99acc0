"""Plots of runs from their codes: precision and recall, distances against channels, queries with their answers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from channelhash.codes.code_set import CodeSet
from channelhash.errors import InputError
from channelhash.lab.experiments.landscape import ChannelLoss, channel
from channelhash.metrics import HammingHistogram, hamming_histogram
from channelhash.metrics.plots import precision_recall_plot
from channelhash.search.result_grid import answer_rows
from channelhash.utils.image_grid import write_contact_sheet
from channelhash.utils.plotting import COLORS, arrow, legend_below

#: Pair of modalities -> kind of pair -> its distances against its channel, as `metrics.code_report` gives them.
Channels = Mapping[str, Mapping[Any, Any]]

#: Kind of pair, as `metrics.code_health` names it -> in words.
PAIR_KINDS = {
    "dissimilar": "no label shared (S = 0)",
    "partly_similar": "some labels shared (0 < S < 1)",
    "identical_labels": "same labels (S = 1)",
}


def runs_precision_recall_plot(runs: Mapping[str, Path], task: str) -> Figure:
    """Draw precision against recall of several evaluated runs in one task.

    Args:
        runs: label -> the run's folder; all of one data set and split.
        task: e.g. ``"image->text"``.

    Raises:
        InputError: a run has no codes, or the runs are of different data.
    """
    histograms = {label: _histogram(folder, task) for label, folder in runs.items()}
    sizes = {(len(counts.total), int(counts.total.sum()), int(counts.relevant.sum())) for counts in histograms.values()}
    if len(sizes) > 1:
        raise InputError(
            "these runs were evaluated on different data; draw precision and recall of each data set alone"
        )
    figure = precision_recall_plot(histograms)
    figure.axes[0].set_title(f"Precision and recall by radius, {arrow(task)}")
    return figure


def channel_distances_plot(channels: Channels, loss: ChannelLoss) -> Figure:
    """Draw distances of pairs against their channels, a row a pair of modalities and a column a kind of pair.

    Args:
        channels: of the codes of one model.
        loss: gives the channels of S = 0 and S = 1; those in between depend on S, so only shares are printed.
    """
    figure = Figure(figsize=(4 * len(PAIR_KINDS), 2.9 * len(channels) + 0.8), layout="constrained")
    panels = figure.subplots(len(channels), len(PAIR_KINDS), sharex=True, squeeze=False)
    edges = np.arange(loss.n_bits + 2) - 0.5
    for row, (modalities, kinds) in zip(panels, channels.items(), strict=True):
        for axes, (kind, words) in zip(row, PAIR_KINDS.items(), strict=True):
            counts = np.array(kinds[kind]["distances"])
            axes.stairs(
                100 * counts / max(1, counts.sum()), edges, fill=True, facecolor=(COLORS[0], 0.35),
                edgecolor=COLORS[0], linewidth=1.5, label="pairs",
            )  # fmt: skip
            if kind != "partly_similar":
                lower, upper = channel(loss, 0.0 if kind == "dissimilar" else 1.0)
                axes.axvspan(
                    max(0, float(lower)) - 0.5, float(upper) + 0.5, facecolor="none", edgecolor=COLORS[1], hatch="///",
                    alpha=0.55, label="channel",
                )  # fmt: skip
            axes.set_title(f"{modalities.replace('-', ' – ')}: {words}\n{_shares(kinds[kind])}", fontsize=9)
            axes.set_ylim(bottom=0)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.grid(alpha=0.3)
        row[0].set_ylabel("share of pairs, %")
    for axes in panels[-1]:
        axes.set_xlabel("Hamming distance, bits")
    legend_below(figure, panels[0, 0])
    return figure


def write_retrieval_sheet(run: Path, path: Path, task: str = "image->text", count: int = 5) -> None:
    """Draw queries of an evaluated run with their nearest items as a PNG, right and wrong ones marked.

    Args:
        run: a run's folder.
        path: PNG to write.
        task: modalities of the query and of the searched codes.
        count: number of queries.

    Raises:
        InputError: the run has no codes, or none of these modalities.
    """
    write_contact_sheet(answer_rows(*_codes(run, task), task, count), path)


def _histogram(run: Path, task: str) -> HammingHistogram:
    query, database = _codes(run, task)
    query_modality, searched = task.split("->")
    if query.labels is None or database.labels is None:
        raise InputError(f"{run}: its codes have no labels; precision and recall need them")
    return hamming_histogram(
        query.codes[query_modality], database.codes[searched], query.labels, database.labels, n_bits=query.n_bits
    )


def _codes(run: Path, task: str) -> tuple[CodeSet, CodeSet]:
    """Load query and retrieval codes of the test split."""
    paths = [run / "codes" / f"test-{role}.parquet" for role in ("query", "retrieval")]
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: is not there; write it with `channelhash evaluate {run}`")
    query, database = (CodeSet.load(path) for path in paths)
    query_modality, _, searched = task.partition("->")
    if query_modality not in query.codes or searched not in database.codes:
        raise InputError(f'{task}: {run} has codes of {" and ".join(query.codes)}; name a task such as "image->text"')
    return query, database


def _shares(health: Mapping[str, Any]) -> str:
    if not health["pairs"]:
        return "no such pairs"
    shares = ", ".join(f"{100 * health[name]:.0f} % {name}" for name in ("inside", "below", "above"))
    return f"{health['pairs']:,} pairs: {shares}"
