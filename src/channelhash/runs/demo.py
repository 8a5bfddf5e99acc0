"""Run the demo: from the embedded data set to codes, scores and search results."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from channelhash.codes.code_set import CodeSet
from channelhash.config import RunConfig, make_config
from channelhash.data.collection import load_collection
from channelhash.losses import RECOMMENDED
from channelhash.models import HashModel, load_model
from channelhash.models.photo_encoder import missing_packages
from channelhash.runs.evaluate import evaluate_run
from channelhash.runs.train import start_run
from channelhash.search.index.brute_force import nearest
from channelhash.search.result_grid import ANSWERS, answer_cell, answer_rows
from channelhash.utils.image_grid import Cell, write_contact_sheet
from channelhash.utils.progress import StageProgress

#: Losses of the demo, all with the same data, model, epochs and seed.
LOSSES = ("dsch", "sch", "tdsrdh")
#: Text queries of the demo -> labels of what they ask for: an answer fits if it has them all.
TEXT_QUERIES = {
    "sunset beach": ("sunset", "sea"),
    "dog": ("dog",),
    "city at night": ("structures", "night"),
    "flowers": ("flower",),
    "portrait of a woman": ("portrait", "female"),
}


class Fit(NamedTuple):
    """How well a text query was answered.

    Attributes:
        fitting: answers that fit.
        shown: answers on the sheet.
        chance: share of all items that fit.
    """

    fitting: int
    shown: int
    chance: float


@dataclass(frozen=True)
class DemoResult:
    """What the demo has written.

    Attributes:
        tasks: loss -> task -> scores.
        runs: loss -> the run's folder.
        sheets: modality of the queries -> contact sheet.
        fits: text query -> how well it was answered.
        rows: number of rows of each split.
        seconds: wall time of the demo.
    """

    tasks: dict[str, dict[str, Any]]
    runs: dict[str, Path]
    sheets: dict[str, Path]
    fits: dict[str, Fit]
    rows: dict[str, int]
    seconds: float


def demo_config(folder: Path, loss: str, quick: bool, seed: int = 0) -> RunConfig:
    """Return the demo's configuration of one loss: the recommendation, with small encoders from scratch where the
    networks of ``channelhash[photos]`` are not installed.

    >>> demo_config(Path("demo"), "dsch", quick=True).loss.kappa_q
    0.3
    """
    n_images, queries, train, epochs = (2000, 150, 1200, 15) if quick else (3000, 400, 1800, 30)
    networks = {"name": "aligned", "encoder": "photo-backbones"} if missing_packages() == [] else {"name": "small"}
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
            "model": {**networks, "n_bits": 64},
            "loss": {"name": loss, **({"recommended": True} if loss in RECOMMENDED else {})},
            "train": {
                "epochs": epochs,
                "batch_size": 128,
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
    if missing := missing_packages():
        notify(f"{missing[0]} is missing: small networks learn from scratch; pip install 'channelhash[photos]'")
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
    answers, fits = answer_texts(load_model(runs["dsch"]), database)
    write_contact_sheet(answers, sheets["text"])
    write_contact_sheet(answer_rows(query, database, "image->text"), sheets["image"])
    rows = {"query": len(query), "retrieval": len(database), "train": int(configs["dsch"].split.train or 0)}
    return DemoResult(tasks, runs, sheets, fits, rows, time.perf_counter() - began)


def answer_texts(model: HashModel, database: CodeSet) -> tuple[list[list[Cell]], dict[str, Fit]]:
    """Return one row a text query, the words and the nearest images, right or wrong; and how many of these fit."""
    assert database.labels is not None
    results = nearest(model.encode_texts(list(TEXT_QUERIES)), database.codes["image"], database.ids, ANSWERS)
    sheet, fits = [], {}
    for (text, wanted), result in zip(TEXT_QUERIES.items(), results, strict=True):
        right = np.all(database.labels[:, [database.label_names.index(label) for label in wanted]], axis=1)
        answers = zip(result.rows.tolist(), result.distances.tolist(), strict=True)
        sheet.append([Cell(None, text), *(answer_cell(database, row, d, bool(right[row])) for row, d in answers)])
        fits[text] = Fit(int(right[result.rows].sum()), len(result.rows), float(right.mean()))
    return sheet, fits
