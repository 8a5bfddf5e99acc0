"""``experiment bytes``: learned codes, codes in closed form and shortened vectors at 4 to 256 bytes an item.

Every method is measured with the same queries at each number of bytes, alone and with a second stage: the first answers
ordered anew by real values that are kept as bytes beside the code. The seed of a run draws its split too.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.config import RunConfig
from channelhash.data.collection import load_collection
from channelhash.errors import InputError
from channelhash.lab.experiments.compressed_items import (
    Compressed,
    Rows,
    SecondStage,
    Views,
    binary_codes,
    search_seconds,
    second_stage,
    two_stages,
)
from channelhash.lab.experiments.compressions import COMPRESSIONS, common_space
from channelhash.lab.experiments.experiment import Design, Execution, Experiment, Grid, GridRun, Result
from channelhash.lab.experiments.reference_points import ReferenceData, read_data, run_outputs
from channelhash.lab.experiments.results import measured, read_grid, read_result
from channelhash.lab.experiments.runner import Evaluated, Notify, run_grid, write_result
from channelhash.lab.experiments.tables.bytes import MEASURED, STAGES, bytes_plots, bytes_tables
from channelhash.metrics.real_valued import evaluate_similarities
from channelhash.metrics.recall import first_groups
from channelhash.models import load_model
from channelhash.utils.files import write_text
from channelhash.utils.python_names import trusting
from channelhash.utils.seeds import generator

#: Answers that the second stage orders anew.
N_FIRST = 500
#: Answers that Recall@K and the time of a search are of.
K = 10
#: Weight of the pairs, divided by the code length.
PAIRS_PER_BIT = 20 / 128
#: Learned codes -> section ``loss``, and the weight of the term ``pairs`` divided by the code length.
LEARNED: Mapping[str, tuple[Mapping[str, Any], float]] = {
    "labels (DSCH)": ({"name": "dsch", "recommended": True}, 0.0),
    "labels and pairs": ({"name": "dsch", "recommended": True}, PAIRS_PER_BIT),
    "pairs": ({"name": "contrastive"}, 0.0),
}


def _grid(design: Design) -> list[GridRun]:
    """Return the learned codes of each length; the seed draws the split too.

    >>> from channelhash.lab.experiments.base import DATASETS
    >>> runs = _grid(Design(DATASETS["synthetic"], [32], [0, 1]))
    >>> [run.name for run in runs][:2], runs[1].config.split.seed
    (['labels-dsch-k32-seed0', 'labels-dsch-k32-seed1'], 1)
    """
    runs = []
    for (method, (loss, pairs)), n_bits, seed in product(LEARNED.items(), design.bits, design.seeds):
        if n_bits % 8:
            raise InputError(f"--bits {n_bits}: this experiment compares whole bytes; take multiples of 8")
        base = {**design.base, "data": {**design.base["data"], "seed": seed}}
        runs += replace(design, base=base, bits=[n_bits], seeds=[seed]).runs(method, {**loss, "pairs": pairs * n_bits})
    return runs


def run_bytes(grid: Grid, folder: Path, execution: Execution) -> list[Result]:
    """Train the learned codes, and measure them and `COMPRESSIONS` at the same numbers of bytes.

    What was measured of a method is in ``bytes.json`` of its folder below ``runs/``; nothing is measured twice.

    Raises:
        InputError: as `run_grid`; the collection has no labels; FAISS is not installed.
    """
    if not load_collection(grid.runs[0].config.sources).records.labels.any():
        raise InputError("experiment bytes: it measures mAP by shared labels, and this collection has none")
    run_grid(grid, folder, execution)
    points: list[dict[str, Any]] = []
    for seed in dict.fromkeys(run.config.train.seed for run in grid.runs):
        runs = [run for run in grid.runs if run.config.train.seed == seed]
        data = read_data(runs[0].config)
        for run in runs:
            result = read_result(folder, run.name, run.method)
            if result.status == "finished":
                measured(result, MEASURED, partial(_measure_run, run, result.folder, data, execution.notify))
        vectors = common_space(data.features, data.splits.train)
        configs = {run.config.n_bits: run.config for run in runs}
        for method, config in product(COMPRESSIONS, configs.values()):
            name = f"{method.replace(' ', '-').lower()}-k{config.n_bits}-seed{seed}"
            if _measure_compression(method, config, vectors, data, folder / "runs" / name, execution.notify):
                settings = config.sections() | {"loss": {"name": method, "anchor": "floor"}}
                points.append({"name": name, "method": method, "settings": settings})
    index = json.loads((folder / "grid.json").read_text(encoding="utf-8"))
    write_text(folder / "grid.json", json.dumps({**index, "runs": index["runs"] + points}, indent=2))
    return read_grid(folder)[1]


def _measure_run(run: GridRun, place: Path, data: ReferenceData, notify: Notify) -> dict[str, Any]:
    """Measure the codes of a finished run; its second stage is its own real-valued outputs."""
    with trusting(run.config.python_names):
        outputs = run_outputs(load_model(place), run.config, data.records)
    figures, _ = measure(binary_codes(outputs, run.config.n_bits), second_stage(outputs), data, run.config.train.seed)
    notify(f"{run.name} measured")
    return figures


def _measure_compression(
    method: str, config: RunConfig, vectors: Views, data: ReferenceData, place: Path, notify: Notify
) -> bool:
    """Measure a method without training, whose second stage is the whole common space; return whether there is one."""
    if not (place / f"{MEASURED}.json").exists():
        compressed = COMPRESSIONS[method](vectors, data.splits.train, config.n_bits // 8, config.train.seed)
        if compressed is None:
            return False
        figures, tasks = measure(compressed, second_stage(vectors), data, config.train.seed)
        write_result(place, {"last": {"test": tasks}})
        write_text(place / f"{MEASURED}.json", json.dumps(figures))
        notify(f"{place.name} measured")
    return True


def measure(
    compressed: Compressed, stage: SecondStage, data: ReferenceData, seed: int
) -> tuple[dict[str, Any], dict[str, Evaluated]]:
    """Measure compressed items in the cross-modal tasks.

    Returns:
        What ``bytes.json`` holds: ``bytes`` and ``second_stage_bytes`` an item, and for ``code`` and ``two_stages``
        the tie-aware mAP over R, Recall@10 and median rank of a query's counterpart among all items, and the processor
        time of a search in seconds a query, each by task; then AP and scores of ``code`` by task.
    """
    query, retrieval, everything = data.splits.query, data.splits.retrieval, np.arange(len(data.records))
    figures: dict[str, Any] = {"bytes": compressed.n_bytes, "second_stage_bytes": stage.n_bytes}
    figures |= {name: {score: {} for score in ("map", "recall_at_10", "median_rank", "seconds")} for name in STAGES}
    tasks: dict[str, Evaluated] = {}
    labels = data.records.labels
    for asking, searched in permutations(data.features, 2):
        task = f"{asking}->{searched}"
        for name in STAGES:
            second = stage if name == "two_stages" else None
            ranked, among_all = (
                _ranking(compressed, second, asking, searched, query, items, seed) for items in (retrieval, everything)
            )
            evaluation = evaluate_similarities(ranked, labels[query], labels[retrieval])
            found = first_groups(among_all, (len(query), len(everything)), query).report([K])
            spent = search_seconds(partial(_search, compressed, second, asking, searched, query), len(query))
            scores = (evaluation.report["map_tie_aware"], found["recall_at"][str(K)], found["median_rank"], spent)
            for score, value in zip(figures[name], scores, strict=True):
                figures[name][score][task] = value
            if name == "code":
                tasks[task] = (evaluation.average_precision, evaluation.report)
    return figures, tasks


def _ranking(
    compressed: Compressed, stage: SecondStage | None, asking: str, searched: str, query: Rows, items: Rows, seed: int
) -> Callable[[slice], NDArray[np.int64]]:
    """Return the similarities of queries to ``items`` alone, by one stage or two."""
    random = generator(seed, "second stage", asking, searched)

    def similarities(rows: slice) -> NDArray[np.int64]:
        first = compressed.similarities(asking, searched, query[rows])[:, items]
        if stage is None:
            return first
        return two_stages(first, stage.similarities(asking, searched, query[rows], items), N_FIRST, random)

    return similarities


def _search(compressed: Compressed, stage: SecondStage | None, asking: str, searched: str, query: Rows) -> Rows:
    """Find the first ten among all items, as a search does it."""
    if stage is None:
        return compressed.nearest(asking, searched, query, K)
    candidates = compressed.nearest(asking, searched, query, N_FIRST)
    return stage.order(asking, searched, query, candidates)[:, :K]


EXPERIMENT = Experiment(
    name="bytes",
    title="Equal bytes an item",
    bits=(32, 64, 128, 256, 512, 1024, 2048),
    grid=_grid,
    run=run_bytes,
    tables=bytes_tables,
    plots=bytes_plots,
)
