"""``experiment both``: codes that know labels and pairs, between the codes of labels alone and those of pairs alone.

The front is label mAP against Recall@10 of a query's own counterpart among all items of the collection. The model
``both`` is trained once for each split, code length and seed; its bits are then shared out between its two parts anew
for each point of the front.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from channelhash.codes.code_set import CodeSet, joined
from channelhash.data.records import Records
from channelhash.data.splits import Splits
from channelhash.lab.experiments.base import Sections
from channelhash.lab.experiments.experiment import Design, Experiment, GridRun, Result, Table
from channelhash.lab.experiments.plots.results import grid_plots
from channelhash.lab.experiments.results import measured
from channelhash.lab.experiments.tables.rendering import Cell
from channelhash.lab.experiments.tables.results import print_spread, spread
from channelhash.losses import recommended_weights
from channelhash.metrics import hamming_histogram
from channelhash.metrics.instances import instance_recall
from channelhash.models import HashModel
from channelhash.models.both import fit_bits, part_outputs
from channelhash.models.encode_records import encode_records
from channelhash.runs.folder import open_run
from channelhash.training.batches import prepare_inputs
from channelhash.training.feature_inputs import collection_features
from channelhash.utils.plotting import legend_below, line
from channelhash.utils.progress import no_stage_progress

#: Seeds of the splits; each has the seeds of weights that the command asks for.
SPLITS = (0, 1, 2)
#: Shares of the bits that are the labels'. The ends are labels alone and pairs alone as the model ``both`` learns them.
SHARES = (0.0, 0.25, 0.5, 0.6, 0.6875, 0.8, 1.0)
LABELS, PAIRS, BOTH = "labels alone", "pairs alone", "both"

#: Section -> key -> value, of labels as DSCH is recommended (`docs/explanation/which-loss.md`), and of
#: ``configs/both.yaml``.
_OF_LABELS: Sections = {
    "model": {"hidden": [512, 512], "dropout": 0.1},
    "train": {"epochs": 12, "batch_size": 128, "learning_rate": 3e-3, "validate_every": 0},
}
_OF_BOTH: Sections = {
    "model": {"name": "both"},
    "train": {"epochs": 30, "batch_size": 512, "learning_rate": 3e-3, "validate_every": 0},
}

#: Method -> split -> task -> (label mAP, Recall@10 among all items).
Scores = Mapping[str, Mapping[str, Mapping[str, tuple[float, float]]]]


def _grid(design: Design) -> list[GridRun]:
    """Return labels alone and pairs alone, learned alike, and the model ``both``, on every split.

    ``both`` and the recipes are for precomputed features; other models are trained as the configuration says.

    >>> base = {"data": {"kind": "features", "path": "f.npz"}, "model": {"name": "features"}}
    >>> [run.name for run in _grid(Design(base, [64], [0]))][:3]
    ['split0-labels-alone-k64-seed0', 'split0-pairs-alone-k64-seed0', 'split0-both-k64-seed0']
    """
    runs, of_features = [], design.base["model"].get("name") == "features"
    for split, n_bits in product(SPLITS, design.bits):
        methods: dict[str, tuple[Sections, Mapping[str, Any]]] = {
            LABELS: (_OF_LABELS, {"name": "dsch", "recommended": True}),
            PAIRS: (_OF_LABELS, {"name": "contrastive"}),
        }
        if of_features:
            of_labels = recommended_weights(part_outputs(n_bits)) | {"kappa_q": 0.0}
            methods[BOTH] = _OF_BOTH, {"name": "dsch", **of_labels, "pairs": 1.0}
        for method, (recipe, loss) in methods.items():
            base = {**design.base, "data": {**design.base["data"], "seed": split}}
            if of_features:
                base |= {section: {**base.get(section, {}), **values} for section, values in recipe.items()}
            runs += replace(design, base=base, bits=[n_bits]).runs(method, loss, prefix=f"split{split}-")
    return runs


def front_scores(result: Result) -> Scores:
    """Return label mAP and Recall@10 of a finished run; of the model ``both`` for each of `SHARES`.

    Test queries search R, validation queries the rest of R, which has the training rows in it; a query's counterpart is
    searched among the queries too.
    """
    run = open_run(result.folder)
    records, splits = collection_features(run.model, run.collection, run.config.train, no_stage_progress), run.splits
    model = run.model.on_features()
    if result.method != BOTH:
        return {result.method: _scores(model, records, splits)}
    train, scores = records.take(splits.train), {}
    inputs = {modality: prepare_inputs(model, train, modality) for modality in model.modalities}
    for label_bits in dict.fromkeys(round(share * result.n_bits) for share in SHARES):
        fit_bits(model, inputs, label_bits)
        scores[f"{label_bits} + {result.n_bits - label_bits}"] = _scores(model, records, splits)
    return scores


def _scores(model: HashModel, records: Records, splits: Splits) -> dict[str, dict[str, tuple[float, float]]]:
    """Return split -> task -> (label mAP, Recall@10) of a model's codes."""
    query, known = (encode_records(model, records.take(rows)) for rows in (splits.query, splits.retrieval))
    asks = np.isin(splits.retrieval, splits.validation_query)
    parts = {"test": (query, known)}
    parts["validation"] = known.take(np.flatnonzero(asks)), known.take(np.flatnonzero(~asks))
    return {
        split: {
            task: (_mean_average_precision(queries, database, *task.split("->")), recall["recall_at"]["10"])
            for task, recall in instance_recall(queries, joined([database, queries])).items()
        }
        for split, (queries, database) in parts.items()
        if len(queries.ids)
    }


def _mean_average_precision(queries: CodeSet, database: CodeSet, asked: str, answered: str) -> float:
    """Return tie-aware mAP of a task by shared labels."""
    labels = [part.labels if part.labels is not None else np.empty((len(part.ids), 0)) for part in (queries, database)]
    codes = queries.codes[asked], database.codes[answered]
    return hamming_histogram(*codes, labels[0], labels[1], n_bits=queries.n_bits).mean_average_precision()


def _cells(results: Sequence[Result], split: str) -> dict[tuple[int, str], np.ndarray]:
    """Return (code length, method) -> ``(runs, 2, 2)``: of image → text and text → image, label mAP and Recall@10."""
    cells: dict[tuple[int, str], list[list[tuple[float, float]]]] = {}
    for result in results:
        if result.status == "finished":
            front: Scores = measured(result, "both", partial(front_scores, result))
            for method, of_splits in front.items():
                of_tasks = of_splits.get(split, {})
                scores = [of_tasks[task] for task in ("image->text", "text->image") if task in of_tasks]
                cells.setdefault((result.n_bits, method), []).extend([scores] * (len(scores) == 2))
    return {cell: np.array(scores) for cell, scores in cells.items() if scores}


def _tables(results: Sequence[Result]) -> list[Table]:
    """Return label mAP and Recall@10 by method, a block a code length, on test and on validation."""
    header = ("Bits", "Method", "mAP image → text", "mAP text → image", "R@10 image → text", "R@10 text → image")
    tables = []
    for split in ("test", "validation"):
        rows = []
        for (n_bits, method), scores in _cells(results, split).items():
            columns = [scores[:, task, score] for score in (0, 1) for task in (0, 1)] + [*scores.mean(axis=1).T]
            spreads = [print_spread(spread(values.tolist())) for values in columns]
            rows.append((Cell(f"k = {n_bits}"), Cell(method), *map(Cell, spreads)))
        tables.append(
            Table(
                "both" if split == "test" else f"both-{split}",
                f"Codes of labels and pairs: tie-aware mAP and Recall@10, {split} queries, in percent",
                (*header, "mean mAP", "mean R@10"),
                tuple(rows),
                f"Mean ± sample standard deviation over {len(SPLITS)} splits and their seeds. A + B: the model `both` "
                "with A bits of labels beside B of pairs. mAP on R, for validation queries on the rest of R; Recall@10 "
                "among R and the queries.",
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
        front = {method: mean for method, mean in means.items() if method not in (LABELS, PAIRS)}
        values = np.array(list(front.values())).reshape(-1, 2)
        line(axes, 0, values[:, 1], values[:, 0], "both: bits of labels + bits of pairs")
        for method, (average_precision, recall) in front.items():
            axes.annotate(method, (recall, average_precision), xytext=(6, 3), textcoords="offset points", fontsize=8)
        for number, method in enumerate((LABELS, PAIRS), start=1):
            if method in means:
                line(axes, number, means[method][1:], means[method][:1], method)
        axes.set(
            xlabel="Recall@10 of the own counterpart, %", ylabel="label mAP, %", title=f"Labels and pairs, k = {n_bits}"
        )
        axes.margins(x=0.12)
        axes.grid(alpha=0.3)
        legend_below(figure, axes)
        plots[f"front-k{n_bits}"] = figure
    return plots


EXPERIMENT = Experiment(
    name="both", title="Codes of labels and pairs", bits=(64, 128), grid=_grid, tables=_tables, plots=_plots
)
