"""Run the demo: from the embedded data set to codes, scores and search results."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def run_demo(folder: Path, quick: bool, progress: StageProgress, notify: Callable[[str], None]) -> dict[str, Any]:
    """Draw the data, train and evaluate one model a loss, search with a few queries; finished parts are kept.

    Args:
        folder: folder for everything that is written.
        quick: use a smaller set and fewer epochs.
        progress: stage -> its callback.
        notify: called with a line before each step.

    Returns:
        ``{"losses": {loss: {task: scores}}, "runs": {loss: folder}, "sheets": {modality of the queries: contact sheet},
        "texts": {text query: its fit, see `answer_texts`}, "rows": {split: n}, "seconds": wall time}``.
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
    sheets = {side: runs["dsch"] / "plots" / f"{side}-queries.png" for side in ("text", "image")}
    answers, texts = answer_texts(load_model(runs["dsch"]), database)
    write_contact_sheet(answers, sheets["text"])
    write_contact_sheet(answer_rows(query, database, "image->text"), sheets["image"])
    return {
        "losses": tasks,
        "runs": {loss: str(run) for loss, run in runs.items()},
        "sheets": {side: str(path) for side, path in sheets.items()},
        "texts": texts,
        "rows": {"query": len(query), "retrieval": len(database), "train": int(configs["dsch"].split.train or 0)},
        "seconds": round(time.perf_counter() - began, 1),
    }


def answer_texts(model: HashModel, database: CodeSet) -> tuple[list[list[Cell]], dict[str, dict[str, float]]]:
    """Return one row a text query, the words and the nearest images, right or wrong; and how many of these fit.

    ``fitting`` of the ``shown`` answers have all labels that the words ask for, by ``chance`` this share would.
    """
    assert database.labels is not None
    results = nearest(model.encode_texts(list(TEXT_QUERIES)), database.codes["image"], database.ids, ANSWERS)
    sheet, fits = [], {}
    for (text, wanted), result in zip(TEXT_QUERIES.items(), results, strict=True):
        right = np.all(database.labels[:, [database.label_names.index(label) for label in wanted]], axis=1)
        answers = zip(result.rows.tolist(), result.distances.tolist(), strict=True)
        sheet.append([Cell(None, text), *(answer_cell(database, row, d, bool(right[row])) for row, d in answers)])
        fitting, chance = int(right[result.rows].sum()), float(right.mean())
        fits[text] = {"fitting": fitting, "shown": len(result.rows), "chance": chance}
    return sheet, fits
