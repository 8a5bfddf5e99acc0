"""``experiment both``: codes that know labels and pairs, between the codes of labels alone and those of pairs alone.

The front is label mAP against Recall@10 of a query's own counterpart among all items of the collection.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from channelhash.codes.code_set import joined
from channelhash.lab.experiments.base import Sections
from channelhash.lab.experiments.experiment import Design, Experiment, GridRun, Result, Table
from channelhash.lab.experiments.plots.results import grid_plots
from channelhash.lab.experiments.tables.rendering import Cell
from channelhash.lab.experiments.tables.results import print_spread, spread
from channelhash.metrics.instances import instance_recall
from channelhash.runs.evaluate import run_codes
from channelhash.utils.files import write_text
from channelhash.utils.plotting import legend_below, line

#: Seeds of the splits; each has the seeds of weights that the command asks for.
SPLITS = (0, 1, 2)
#: Weights of the pairs beside DSCH.
WEIGHTS = (2.0, 5.0, 10.0, 20.0, 50.0)
LABELS, PAIRS = "labels alone", "pairs alone"

#: How DSCH is recommended, and how pairs are learned: wide, with much noise. Section -> key -> value.
_OF_LABELS: Sections = {
    "model": {"hidden": [512, 512], "dropout": 0.1},
    "train": {"epochs": 12, "batch_size": 128, "learning_rate": 3e-3},
}
_OF_PAIRS: Sections = {
    "model": {"hidden": [1024], "dropout": 0.5, "activation": "gelu", "noise": 0.3, "drop_features": 0.2},
    "train": {"epochs": 30, "batch_size": 512, "learning_rate": 3e-3},
}

#: Split of a run's folder -> task -> (label mAP, Recall@10 among all items).
Scores = Mapping[str, Mapping[str, tuple[float, float]]]


def _grid(design: Design) -> list[GridRun]:
    """Return labels alone, pairs alone, and DSCH with each weight of the pairs, on every split.

    >>> from channelhash.lab.experiments.base import DATASETS
    >>> base = {"data": {"kind": "features", "path": "f.npz"}, "model": {"name": "features"}}
    >>> [run.name for run in _grid(Design(base, [64], [0]))][:3]
    ['split0-labels-alone-k64-seed0', 'split0-pairs-alone-k64-seed0', 'split0-w-2-k64-seed0']
    """
    runs = []
    for split in SPLITS:
        for n_bits in design.bits:
            dsch = {"name": "dsch", "average_precision": n_bits / 4}
            methods: dict[str, tuple[Sections, Mapping[str, Any]]] = {
                LABELS: (_OF_LABELS, {**dsch, "kappa_q": 0.3}),
                PAIRS: (_OF_PAIRS, {"name": "contrastive"}),
            }
            for weight in WEIGHTS:
                methods[f"w = {weight:g}"] = _OF_PAIRS, {**dsch, "kappa_q": 0.0, "pairs": weight}
            for method, (recipe, loss) in methods.items():
                base = {**design.base, "data": {**design.base["data"], "seed": split}}
                if base["model"].get("name") == "features":  # whose heads the recipes describe
                    base |= {section: {**base.get(section, {}), **values} for section, values in recipe.items()}
                runs += replace(design, base=base, bits=[n_bits]).runs(method, loss, prefix=f"split{split}-")
    return runs


def front_scores(result: Result) -> Scores:
    """Return label mAP and Recall@10 of a finished run, on test and on validation.

    A query's counterpart is searched among queries and retrieval set together. The figures are kept in the run's
    ``both.json``.
    """
    path = result.folder / "both.json"
    if not path.exists():
        scores: dict[str, dict[str, tuple[float, float]]] = {}
        for split in [split for split in ("test", "validation") if split in result.epochs["last"]]:
            codes = run_codes(result.folder, split)
            found = instance_recall(codes.query, joined([codes.retrieval, codes.query]))
            scores[split] = {
                task: (result.score(task, view=split), recall["recall_at"]["10"]) for task, recall in found.items()
            }
        write_text(path, json.dumps(scores))
    kept: Scores = json.loads(path.read_text(encoding="utf-8"))
    return kept


def _cells(results: Sequence[Result], split: str) -> dict[tuple[int, str], np.ndarray]:
    """Return (code length, method) -> ``(runs, 2, 2)``: of image → text and text → image, label mAP and Recall@10."""
    cells: dict[tuple[int, str], list[list[tuple[float, float]]]] = {}
    for result in results:
        if result.status == "finished":
            of_tasks = front_scores(result).get(split, {})
            scores = [of_tasks[task] for task in ("image->text", "text->image") if task in of_tasks]
            cells.setdefault((result.n_bits, result.method), []).extend([scores] * (len(scores) == 2))
    return {cell: np.array(scores) for cell, scores in cells.items()}


def _tables(results: Sequence[Result]) -> list[Table]:
    """Return label mAP and Recall@10 by method, a block a code length, on test and on validation."""
    tables = []
    for split in ("test", "validation"):
        rows = [
            (Cell(f"k = {n_bits}"), Cell(method), *(Cell(print_spread(spread(scores[:, task, score].tolist())))
            for score in (0, 1) for task in (0, 1)))
            for (n_bits, method), scores in _cells(results, split).items()
            if len(scores)
        ]  # fmt: skip
        tables.append(
            Table(
                "both" if split == "test" else f"both-{split}",
                f"Codes of labels and pairs: tie-aware mAP and Recall@10, {split} queries, in percent",
                ("Bits", "Method", "mAP image → text", "text → image", "R@10 image → text", "text → image"),
                tuple(rows),
                f"Mean ± sample standard deviation over {len(SPLITS)} splits and their seeds. w: weight of the pairs "
                "beside DSCH. mAP on the retrieval set; Recall@10 among queries and retrieval set.",
            )
        )
    return tables


def _plots(results: Sequence[Result]) -> dict[str, Figure]:
    """Return the plots of every grid, and the front of each code length."""
    plots, cells = grid_plots(results), _cells(results, "test")
    for n_bits in dict.fromkeys(n_bits for n_bits, _ in cells):
        means = {method: 100 * scores.mean(axis=(0, 1)) for (k, method), scores in cells.items() if k == n_bits}
        figure = Figure(figsize=(6.4, 5.6), layout="constrained")
        axes = figure.subplots()
        front = np.array([mean for method, mean in means.items() if method not in (LABELS, PAIRS)]).reshape(-1, 2)
        line(axes, 0, front[:, 1], front[:, 0], "labels and pairs, by weight")
        for number, method in enumerate((LABELS, PAIRS), start=1):
            if method in means:
                line(axes, number, means[method][1:], means[method][:1], method)
        axes.set(
            xlabel="Recall@10 of the own counterpart, %", ylabel="label mAP, %", title=f"Labels and pairs, k = {n_bits}"
        )
        axes.grid(alpha=0.3)
        legend_below(figure, axes)
        plots[f"front-k{n_bits}"] = figure
    return plots


EXPERIMENT = Experiment(
    name="both", title="Codes of labels and pairs", bits=(64, 128), grid=_grid, tables=_tables, plots=_plots
)
