"""``experiment incremental``: what codes that stay as they are cost when new labels come.

Some labels, and all items that have one, are held out of a first training; then they come. Compared over the joint
collection, where old items have the codes of the first model in all but the last:

* the first model encodes everything;
* an extension (`losses.extension`), old codes kept;
* fine-tuning on the same rows by the loss itself, old codes kept;
* a training on everything from scratch, everything encoded again: the ceiling.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from channelhash.codes.code_set import CodeSet
from channelhash.config import ExtendSettings, RunConfig, SplitSettings, read_run_config
from channelhash.data.collection import load_collection
from channelhash.data.concat import choose_by_labels
from channelhash.data.records import Records
from channelhash.data.splits import Splits, load_splits, save_splits
from channelhash.errors import InputError
from channelhash.lab.experiments.results import Result
from channelhash.lab.experiments.runner import Grid, GridRun, Say, run_grid
from channelhash.lab.experiments.tables.rendering import Cell, Table
from channelhash.lab.experiments.tables.results import arrow, difference_cell, print_spread, spread
from channelhash.metrics import hamming_histogram
from channelhash.models import load_model
from channelhash.models.encode_records import encode_records
from channelhash.runs.build import draw_run_splits
from channelhash.runs.evaluate import run_codes
from channelhash.runs.stored_codes import database_codes, stored_codes
from channelhash.training.feature_inputs import collection_features
from channelhash.utils.files import write_text
from channelhash.utils.progress import no_stage_progress

#: Folder of the first trainings below the grid's.
FIRST = "first"
#: Methods in the order of the tables.
UNCHANGED, EXTENDED, TUNED, RETRAINED = "old model", "extension", "fine-tuning", "retrained, re-encoded"
METHODS = (UNCHANGED, EXTENDED, TUNED, RETRAINED)
#: Which queries, and which labels make an item relevant to them.
GROUPS = ("old queries", "new queries", "new queries, by new labels alone")

#: Group -> task -> tie-aware mAP.
Figures = dict[str, dict[str, float]]


def run_incremental(
    grid: Grid, labels: Sequence[str], folder: Path, jobs: int, devices: Sequence[str], say: Say
) -> list[Result]:
    """Train on the items without ``labels``, extend and fine-tune by those that have one, and train on all anew.

    Args:
        grid: trainings on the whole collection, one for each code length and seed.
        labels: the labels that come later.
        folder: the grid's folder.
        jobs, devices, say: as in `runner.run_grid`.

    Returns:
        Results of all but the first trainings, whose figures are none of the joint collection.

    Raises:
        InputError: as `runner.run_grid`; or there is no such label, or no item without them.
    """
    if not labels:
        raise InputError("experiment incremental: name the labels that come later, --new-labels cat,dog")
    records = load_collection(grid.runs[0].config.sources).records
    held_out = [records.label_names.index(name) for name in labels if name in records.label_names]
    choose_by_labels(records, without=labels)  # says what is wrong with them
    share = float(records.labels[:, held_out].any(axis=1).mean())
    first = [
        replace(
            run,
            name=run.name.replace("retrained-re-encoded", "first"),
            method="old items",
            config=replace(run.config, split=_part(run.config.split, 1 - share, without_labels=list(labels))),
        )
        for run in grid.runs
    ]
    for result in run_grid(replace(grid, runs=tuple(first)), folder / FIRST, jobs, devices, say):
        if result.status != "finished":
            raise InputError(f"{result.name} failed: {result.error}")
    later: list[GridRun] = []
    for run, before in zip(grid.runs, first, strict=True):
        base = ExtendSettings(run=(folder / FIRST / "runs" / before.name).resolve())
        split = _part(run.config.split, share, only_labels=list(labels))
        free = base.model_copy(update={"stored": 0.0, "keep": 0.0, "pairs": "all"})
        for method, extend in ((EXTENDED, base), (TUNED, free)):
            name = run.name.replace("retrained-re-encoded", method)
            later.append(GridRun(name, method, replace(run.config, split=split, extend=extend)))
    path = (folder / "splits.json").resolve()
    if not path.exists():
        save_splits(_joint_splits(later[0].config, records), records, path, {"new labels": list(labels)})
    anew = [
        replace(run, config=replace(run.config, split=run.config.split.model_copy(update={"splits": path})))
        for run in grid.runs
    ]
    return run_grid(replace(grid, runs=(*later, *anew)), folder, jobs, devices, say)


def _part(split: SplitSettings, share: float, **labels: list[str]) -> SplitSettings:
    """The partitions of a share of the collection: as many of its rows as of the whole."""
    sizes = {name: getattr(split, name) for name in ("queries", "train", "validation_queries")}
    scaled = {name: None if size is None else round(share * size) for name, size in sizes.items()}
    return split.model_copy(update={**scaled, **labels})


def _joint_splits(config: RunConfig, records: Records) -> Splits:
    """The partitions of an extension, as rows of the whole collection."""
    collection = load_collection(config.sources)
    splits, place = draw_run_splits(config, collection), {name: row for row, name in enumerate(records.ids)}
    rows = np.array([place[name] for name in collection.records.ids])
    return Splits(**{name: np.sort(rows[part]) for name, part in vars(splits).items()})


def _codes_of_old_model(folder: Path) -> tuple[CodeSet, CodeSet]:
    """Queries and retrieval set of an extension, as the run that it extends encodes them."""
    config = read_run_config(folder)
    assert config.extend is not None
    collection, model = load_collection(config.sources), load_model(config.extend.run)
    features = collection_features(model, collection, config.train, no_stage_progress)
    splits = load_splits(folder / "splits.json", collection.records)
    feature_model, made_by = model.on_features(), model.fingerprint()

    def encode(rows: NDArray[np.int64]) -> CodeSet:
        return encode_records(feature_model, features.take(rows), fingerprint=made_by)

    retrieval = database_codes(stored_codes(folder), splits.retrieval, splits.retrieval, encode)
    return encode(splits.query), retrieval


def _codes_of_run(folder: Path) -> tuple[CodeSet, CodeSet]:
    codes = run_codes(folder)
    return codes.query, codes.retrieval


def _figures(folder: Path, file: str, new: Sequence[str], codes: Callable[[Path], tuple[CodeSet, CodeSet]]) -> Figures:
    """Tie-aware mAP of each group and task; kept in the run's folder, which no longer changes."""
    path = folder / file
    if not path.exists():
        query, database = codes(folder)
        assert query.labels is not None  # a run's codes have them
        assert database.labels is not None
        columns = [query.label_names.index(name) for name in new]
        is_new = query.labels[:, columns].any(axis=1)
        every = list(range(len(query.label_names)))
        groups = zip(GROUPS, (~is_new, is_new, is_new), (every, every, columns), strict=True)
        found = {
            group: {
                f"{asked}->{searched}": hamming_histogram(
                    query.codes[asked][rows],
                    database.codes[searched],
                    query.labels[rows][:, counted],
                    database.labels[:, counted],
                    n_bits=query.n_bits,
                ).mean_average_precision()
                for asked in query.codes
                for searched in database.codes
            }
            for group, rows, counted in groups
        }
        write_text(path, json.dumps(found))
    figures: Figures = json.loads(path.read_text(encoding="utf-8"))
    return figures


def incremental_tables(results: Sequence[Result]) -> list[Table]:
    """Figures of each method, and what each loses against training anew; of cells whose runs are all there."""
    finished = {(r.method, r.n_bits, r.seed): r for r in results if r.status == "finished"}
    cells = sorted({(r.n_bits, r.seed) for r in results})
    whole = [cell for cell in cells if all((method, *cell) in finished for method in METHODS[1:])]
    by_cell: dict[tuple[str, int, int], Figures] = {}
    new: list[str] = []
    for n_bits, seed in whole:
        extension = finished[EXTENDED, n_bits, seed]
        new = list(extension.settings["data"]["only_labels"])
        by_cell[UNCHANGED, n_bits, seed] = _figures(extension.folder, "old-model.json", new, _codes_of_old_model)
        for method in METHODS[1:]:
            folder = finished[method, n_bits, seed].folder
            by_cell[method, n_bits, seed] = _figures(folder, "incremental.json", new, _codes_of_run)
    figures, losses, tasks = [], [], list(next(iter(by_cell.values()), {}).get(GROUPS[0], ()))
    tasks.sort(key=lambda task: task.split("->")[0] == task.split("->")[1])
    for n_bits in dict.fromkeys(n_bits for n_bits, _ in whole):
        seeds = [seed for length, seed in whole if length == n_bits]
        for group in GROUPS:
            block = Cell(f"{group}, k = {n_bits}")
            shares = {
                method: np.array([[by_cell[method, n_bits, seed][group][task] for task in tasks] for seed in seeds])
                for method in METHODS
            }
            for method, values in shares.items():
                row = (Cell(print_spread(spread(column.tolist()))) for column in values.T)
                figures.append((block, Cell(method), *row))
                if method != RETRAINED:
                    differences = 100 * (values - shares[RETRAINED])
                    losses.append((block, Cell(method), *map(difference_cell, differences.T)))
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
        Table("incremental", title, header, tuple(figures), f"{caption}: mean ± sample standard deviation."),
        Table("incremental-loss", behind, header, tuple(losses), f"{caption}; {interval}"),
    ]
