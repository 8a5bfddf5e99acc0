"""``experiment incremental``: what codes that stay as they are cost when new labels come.

Some labels, and all items that have one, are held out of a first training; then they come. Compared over the joint
collection, where old items have the codes of the first model in all but the last:

* the first model encodes everything;
* an extension (`losses.extension`), old codes kept;
* fine-tuning on the same rows by the loss itself, old codes kept;
* a training on everything from scratch, everything encoded again: the ceiling.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from channelhash.codes.code_set import CodeSet
from channelhash.config import ExtendSettings, RunConfig, read_run_config
from channelhash.data.collection import load_collection
from channelhash.data.concat import choose_by_labels
from channelhash.data.records import Records
from channelhash.data.settings import SplitSettings
from channelhash.data.splits import Splits, load_splits, save_splits
from channelhash.errors import InputError
from channelhash.lab.experiments.base import METHODS
from channelhash.lab.experiments.experiment import Design, Execution, Experiment, Grid, GridRun, Result, Table
from channelhash.lab.experiments.results import measured
from channelhash.lab.experiments.runner import run_grid
from channelhash.lab.experiments.tables.rendering import Cell
from channelhash.lab.experiments.tables.results import difference_cell, print_spread, spread
from channelhash.metrics import hamming_histogram
from channelhash.models import load_model
from channelhash.models.encode_records import encode_records
from channelhash.runs.evaluate import run_codes
from channelhash.runs.splits import draw_run_splits
from channelhash.runs.stored_codes import database_codes, stored_codes
from channelhash.training.feature_inputs import collection_features
from channelhash.utils.plotting import arrow
from channelhash.utils.progress import no_stage_progress

#: Folder of the first trainings below the grid's.
FIRST = "first"
#: Methods in the order of the tables.
UNCHANGED, EXTENDED, TUNED, RETRAINED = "old model", "extension", "fine-tuning", "retrained, re-encoded"
ALL_METHODS = (UNCHANGED, EXTENDED, TUNED, RETRAINED)
#: Which queries, and which labels make an item relevant to them.
GROUPS = ("old queries", "new queries", "new queries, by new labels alone")

#: Group -> task -> tie-aware mAP.
Scores = dict[str, dict[str, float]]


def _grid(design: Design) -> list[GridRun]:
    """Return trainings on the whole collection, by the base configuration's loss or DSCH.

    `run_incremental` derives the others from them.
    """
    return design.runs(RETRAINED, design.base.get("loss", METHODS["DSCH"]))


def run_incremental(grid: Grid, folder: Path, execution: Execution) -> list[Result]:
    """Train without the items that have a new label, extend and fine-tune by those that have one, and train anew.

    The new labels are ``grid.options["new_labels"]``, separated by commas.

    Returns:
        Results of all but the first trainings, whose scores are not of the joint collection.

    Raises:
        InputError: as `run_grid`; or there is no such label, or no item without them.
    """
    new = [label.strip() for label in grid.options.get("new_labels", "").split(",") if label.strip()]
    if not new:
        raise InputError("experiment incremental: name the labels that come later, --new-labels cat,dog")
    records = load_collection(grid.runs[0].config.sources).records
    columns = [records.label_names.index(name) for name in new if name in records.label_names]
    choose_by_labels(records, without=new)  # refuses labels that do not fit
    fraction = float(records.labels[:, columns].any(axis=1).mean())
    first = [_first_run(run, 1 - fraction, new) for run in grid.runs]
    for result in run_grid(replace(grid, runs=tuple(first)), folder / FIRST, execution):
        if result.status != "finished":
            raise InputError(f"{result.name} failed: {result.error}")
    later: list[GridRun] = []
    for run, before in zip(grid.runs, first, strict=True):
        extension = ExtendSettings(run=(folder / FIRST / "runs" / before.name).resolve())
        split = _part(run.config.split, fraction, only_labels=new)
        fine_tuning = extension.model_copy(update={"stored": 0.0, "keep": 0.0, "pairs": "all"})
        for method, extend in ((EXTENDED, extension), (TUNED, fine_tuning)):
            name = run.name.replace("retrained-re-encoded", method)
            later.append(GridRun(name, method, replace(run.config, split=split, extend=extend)))
    path = (folder / "splits.json").resolve()
    if not path.exists():
        save_splits(_joint_splits(later[0].config, records), records, path, {"new labels": new})
    anew = [
        replace(run, config=replace(run.config, split=run.config.split.model_copy(update={"splits": path})))
        for run in grid.runs
    ]
    return run_grid(replace(grid, runs=(*later, *anew)), folder, execution)


def _first_run(run: GridRun, fraction: float, new: Sequence[str]) -> GridRun:
    split = _part(run.config.split, fraction, without_labels=list(new))
    name = run.name.replace("retrained-re-encoded", "first")
    return replace(run, name=name, method="old items", config=replace(run.config, split=split))


def _part(split: SplitSettings, fraction: float, **labels: list[str]) -> SplitSettings:
    """Return the splits of a fraction of the collection, whose sizes are that fraction of the whole's."""
    sizes = {name: getattr(split, name) for name in ("queries", "train", "validation_queries")}
    scaled = {name: None if size is None else round(fraction * size) for name, size in sizes.items()}
    return split.model_copy(update={**scaled, **labels})


def _joint_splits(config: RunConfig, records: Records) -> Splits:
    """Return the splits of an extension, as rows of the whole collection."""
    collection = load_collection(config.sources)
    splits, row_of = draw_run_splits(config, collection), {name: row for row, name in enumerate(records.ids)}
    rows = np.array([row_of[name] for name in collection.records.ids])
    return Splits(**{name: np.sort(rows[part]) for name, part in vars(splits).items()})


def _codes_of_old_model(old_run: Path, folder: Path) -> tuple[CodeSet, CodeSet]:
    """Return queries and retrieval set of an extension, as the run that it extends encodes them."""
    config = read_run_config(folder)
    collection, model = load_collection(config.sources), load_model(old_run)
    features = collection_features(model, collection, config.train, no_stage_progress)
    splits = load_splits(folder / "splits.json", collection.records)
    feature_model, fingerprint = model.on_features(), model.fingerprint()

    def encode(rows: NDArray[np.int64]) -> CodeSet:
        return encode_records(feature_model, features.take(rows), fingerprint=fingerprint)

    retrieval = database_codes(stored_codes(folder), splits.retrieval, splits.retrieval, encode)
    return encode(splits.query), retrieval


def _codes_of_run(folder: Path) -> tuple[CodeSet, CodeSet]:
    codes = run_codes(folder)
    return codes.query, codes.retrieval


def _scores(codes: Callable[[Path], tuple[CodeSet, CodeSet]], folder: Path, new: Sequence[str]) -> Scores:
    """Return tie-aware mAP of each group and task, of the queries and retrieval set that ``codes`` gives of a run."""
    query, database = codes(folder)
    assert query.labels is not None  # a run's codes have them
    assert database.labels is not None
    new_columns = [query.label_names.index(name) for name in new]
    is_new = query.labels[:, new_columns].any(axis=1)
    every = list(range(len(query.label_names)))
    scores: Scores = {}
    for group, rows, columns in zip(GROUPS, (~is_new, is_new, is_new), (every, every, new_columns), strict=True):
        relevance = query.labels[rows][:, columns], database.labels[:, columns]
        scores[group] = {
            f"{asking}->{searched}": hamming_histogram(
                query.codes[asking][rows], database.codes[searched], *relevance, n_bits=query.n_bits
            ).mean_average_precision()
            for asking in query.codes
            for searched in database.codes
        }
    return scores


def _tables(results: Sequence[Result]) -> list[Table]:
    """Return scores of each method, and what each loses against training anew; of cells whose runs all finished."""
    finished = {(r.method, r.n_bits, r.seed): r for r in results if r.status == "finished"}
    cells = sorted({(r.n_bits, r.seed) for r in results})
    whole = [cell for cell in cells if all((method, *cell) in finished for method in ALL_METHODS[1:])]
    new: list[str] = []
    by_cell: dict[tuple[str, int, int], Scores] = {}
    for n_bits, seed in whole:
        extension = finished[EXTENDED, n_bits, seed]
        new = list(extension.settings["data"]["only_labels"])
        codes = partial(_codes_of_old_model, Path(extension.settings["extend"]["run"]))
        of_old_model = partial(_scores, codes, extension.folder, new)
        by_cell[UNCHANGED, n_bits, seed] = measured(extension, "old-model", of_old_model)
        for method in ALL_METHODS[1:]:
            run = finished[method, n_bits, seed]
            of_run = partial(_scores, _codes_of_run, run.folder, new)
            by_cell[method, n_bits, seed] = measured(run, "incremental", of_run)
    tasks = list(next(iter(by_cell.values()), {}).get(GROUPS[0], ()))
    tasks.sort(key=lambda task: task.split("->")[0] == task.split("->")[1])
    score_rows, loss_rows = _rows(by_cell, whole, tasks)
    missing = len(cells) - len(whole)
    caption = (
        f"New labels: {', '.join(new)}. Whole ranking of R, old and new items, last epoch, "
        f"{len({seed for _, seed in whole})} seeds" + f"; {missing} not finished" * bool(missing)
    )
    header = ("Queries", "Method", *map(arrow, tasks))
    title = "New labels, old codes kept: tie-aware mAP in percent"
    behind = "Difference to training anew and encoding everything again, in points of tie-aware mAP"
    interval = "paired by seed: mean with Student's 95 % interval, bold where it leaves zero out."
    return [
        Table("incremental", title, header, tuple(score_rows), f"{caption}: mean ± sample standard deviation."),
        Table("incremental-loss", behind, header, tuple(loss_rows), f"{caption}; {interval}"),
    ]


_Rows = list[tuple[Cell, ...]]


def _rows(
    by_cell: Mapping[tuple[str, int, int], Scores], cells: Sequence[tuple[int, int]], tasks: Sequence[str]
) -> tuple[_Rows, _Rows]:
    """Return the rows of scores and those of differences to `RETRAINED`, a block a code length and group."""
    score_rows: _Rows = []
    loss_rows: _Rows = []
    for n_bits, group in product(dict.fromkeys(n_bits for n_bits, _ in cells), GROUPS):
        block = Cell(f"{group}, k = {n_bits}")
        seeds = [seed for length, seed in cells if length == n_bits]
        values = {
            method: np.array([[by_cell[method, n_bits, seed][group][task] for task in tasks] for seed in seeds])
            for method in ALL_METHODS
        }
        for method in ALL_METHODS:
            columns = (Cell(print_spread(spread(column.tolist()))) for column in values[method].T)
            score_rows.append((block, Cell(method), *columns))
            if method != RETRAINED:
                differences = 100 * (values[method] - values[RETRAINED])
                loss_rows.append((block, Cell(method), *map(difference_cell, differences.T)))
    return score_rows, loss_rows


EXPERIMENT = Experiment(
    name="incremental",
    title="New labels, old codes kept",
    bits=(32,),
    grid=_grid,
    run=run_incremental,
    tables=_tables,
    options=("new_labels",),
)
