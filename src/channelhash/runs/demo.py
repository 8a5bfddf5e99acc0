"""Run the demo: from the embedded data set to codes, scores and search results."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from channelhash.codes.code_set import CodeSet
from channelhash.config import RunConfig, make_config
from channelhash.data.collection import load_collection
from channelhash.models import HashModel, load_model
from channelhash.runs.evaluate import evaluate_run
from channelhash.runs.train import start_run
from channelhash.search.index.brute_force import nearest
from channelhash.search.result_grid import ANSWERS, answer_cell, answer_rows
from channelhash.utils.image_grid import Cell, write_contact_sheet
from channelhash.utils.progress import StageProgress

#: Losses of the demo, all with the same data, model, epochs and seed.
LOSSES = ("dsch", "sch", "tdsrdh")
#: Text queries of the demo.
TEXT_QUERIES = ("sunset beach", "dog", "city at night", "flowers", "portrait of a woman")


@dataclass(frozen=True)
class DemoResult:
    """What the demo has written.

    Attributes:
        tasks: loss -> task -> scores.
        runs: loss -> the run's folder.
        sheets: modality of the queries -> contact sheet.
        rows: number of rows of each split.
        seconds: wall time of the demo.
    """

    tasks: dict[str, dict[str, Any]]
    runs: dict[str, Path]
    sheets: dict[str, Path]
    rows: dict[str, int]
    seconds: float


def demo_config(folder: Path, loss: str, quick: bool, seed: int = 0) -> RunConfig:
    """Return the demo's configuration of one loss.

    >>> demo_config(Path("demo"), "dsch", quick=True).train.epochs
    12
    """
    n_images, queries, train, epochs = (900, 150, 500, 12) if quick else (3000, 400, 1800, 30)
    return make_config(
        {
            "data": {
                "kind": "synthetic",
                "root": folder / f"data-{n_images}",
                "n_images": n_images,
                "queries": queries,
                "train": train,
                "validation_queries": queries // 2,
            },
            "model": {"name": "small", "n_bits": 32},
            "loss": {"name": loss},
            "train": {
                "epochs": epochs,
                "batch_size": 64,
                "learning_rate": 1e-3,
                "seed": seed,
                "validate_every": 10,
                "checkpoint_every": 10,
            },
        }
    )


def run_demo(folder: Path, quick: bool, progress: StageProgress, notify: Callable[[str], None]) -> DemoResult:
    """Draw the data, train and evaluate one model a loss, search with a few queries; finished parts are kept.

    Args:
        folder: folder for everything that is written.
        quick: use a smaller set and fewer epochs.
        progress: stage -> its callback.
        notify: called with a line before each step.
    """
    began = time.perf_counter()
    configs = {loss: demo_config(folder, loss, quick) for loss in LOSSES}
    notify(f"Drawing the embedded data set into {folder}")
    records = load_collection(configs["dsch"].sources, progress("draw pictures")).records
    notify(f"{len(records)} usable pictures of {records.found}, {len(records.label_names)} labels")
    runs, tasks = {}, {}
    for loss, config in configs.items():
        runs[loss] = folder / ("quick" if quick else "full") / loss
        notify(f"Training with {loss}: {config.train.epochs} epochs, {config.n_bits} bits")
        start_run(config, runs[loss], resume=True, progress=progress)
        tasks[loss] = evaluate_run(runs[loss], progress=progress)["tasks"]
    notify("Answering a few queries with the DSCH model")
    query, database = (CodeSet.load(runs["dsch"] / "codes" / f"test-{role}.parquet") for role in ("query", "retrieval"))
    sheets = {
        "text": runs["dsch"] / "plots" / "text-queries.png",
        "image": runs["dsch"] / "plots" / "image-queries.png",
    }
    write_contact_sheet(text_rows(load_model(runs["dsch"]), database), sheets["text"])
    write_contact_sheet(answer_rows(query, database, "image->text"), sheets["image"])
    rows = {"query": len(query), "retrieval": len(database), "train": int(configs["dsch"].split.train or 0)}
    return DemoResult(tasks, runs, sheets, rows, time.perf_counter() - began)


def text_rows(model: HashModel, database: CodeSet) -> list[list[Cell]]:
    """Return one row a text query: the words, then the nearest images with distance and labels."""
    results = nearest(model.encode_texts(TEXT_QUERIES), database.codes["image"], database.ids, ANSWERS)
    return [
        [
            Cell(None, text),
            *(answer_cell(database, int(row), int(d)) for row, d in zip(result.rows, result.distances, strict=True)),
        ]
        for text, result in zip(TEXT_QUERIES, results, strict=True)
    ]
