"""Run the demo: from the embedded data set to codes, scores and search results."""

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from channelhash.codes import CodeSet
from channelhash.config import RunConfig, make_config, read_sections
from channelhash.data.collection import Collection
from channelhash.lab.brute_force import answer_some, nearest
from channelhash.losses import RECOMMENDED
from channelhash.models import HashModel, load_hash_model
from channelhash.models.photo import missing_packages
from channelhash.presets import preset_path
from channelhash.runs.evaluate import evaluate_run
from channelhash.runs.train import start_run
from channelhash.utils.contact_sheet import SheetCell, bits, write_contact_sheet
from channelhash.utils.progress import StageProgress

#: Losses of the demo, all with the same data, model, epochs and seed.
_LOSSES = ("dsch", "sch", "tdsrdh")
#: Images that are queries.
_IMAGE_QUERIES = 5
#: Answers in a row of a contact sheet.
_ANSWERS = 7
#: Text queries of the demo -> labels of what they ask for: an answer fits if it has them all.
_TEXT_QUERIES = {
    "sunset beach": ("sunset", "sea"),
    "dog": ("dog",),
    "city at night": ("structures", "night"),
    "flowers": ("flower",),
    "portrait of a woman": ("portrait", "female"),
}


def demo_config(folder: Path, loss: str, quick: bool) -> RunConfig:
    """Return the demo's configuration of one loss: the recommendation, with small encoders from
    scratch where the networks of ``channelhash[photos]`` are not installed.

    >>> demo_config(Path("demo"), "dsch", quick=True).loss.kappa_q
    0.3
    """
    sections = read_sections(preset_path("demo"))
    if quick:
        sections["data"] |= {
            "n_images": 2000,
            "queries": 150,
            "train": 1200,
            "validation_queries": 75,
        }
        sections["train"]["epochs"] = 15
    sections["data"]["root"] = folder / f"data-{sections['data']['n_images']}"
    sections["loss"] = {"name": loss, **({"recommended": True} if loss in RECOMMENDED else {})}
    if missing_packages():
        sections["model"] = {"name": "small", "n_bits": 64}
    return make_config(sections)


def run_demo(
    folder: Path, quick: bool, progress: StageProgress, notify: Callable[[str], None]
) -> dict[str, Any]:
    """Draw the data, train and evaluate one model a loss, and search with a few queries. A demo
    that was interrupted goes on where it was.
    """
    began = time.perf_counter()
    configs = {loss: demo_config(folder, loss, quick) for loss in _LOSSES}
    notify(
        f"Draw, train three losses, compare, search: about {'2 minutes' if quick else '4 minutes'}"
    )
    missing = missing_packages()
    if missing:
        notify(
            f"{missing[0]} is missing: small networks learn from scratch; pip install "
            "'channelhash[photos]'"
        )
    steps = itertools.count(1)

    def begin(step: str) -> None:
        notify(
            f"{next(steps)}/{len(_LOSSES) + 2} after {time.perf_counter() - began:.0f} s: {step}"
        )

    begin(f"draw the embedded data set into {folder}")
    records = Collection.load(configs["dsch"].sources, progress("draw pictures")).records
    notify(f"{len(records)} usable pictures of {records.found}, {len(records.label_names)} labels")
    tasks = {}
    runs = {loss: folder / ("quick" if quick else "full") / loss for loss in _LOSSES}
    for loss, config in configs.items():
        begin(
            f"train with {loss} ({config.train.epochs} epochs, {config.n_bits} bits) and evaluate"
        )
        start_run(config, runs[loss], resume=True, progress=progress)
        tasks[loss] = evaluate_run(runs[loss], progress=progress)["tasks"]
    begin("answer a few queries with the DSCH model")
    run = runs["dsch"]
    query = CodeSet.load(run / "codes" / "test-query.parquet")
    database = CodeSet.load(run / "codes" / "test-retrieval.parquet")
    answers, texts = _answer_texts(load_hash_model(run), database)
    sheets = {"text": answers, "image": _answer_rows(query, database)}
    paths = {side: run / "plots" / f"{side}-queries.png" for side in sheets}
    for side, sheet in sheets.items():
        write_contact_sheet(sheet, paths[side])
    return {
        "losses": tasks,
        "runs": {loss: str(run) for loss, run in runs.items()},
        "sheets": {side: str(path) for side, path in paths.items()},
        "texts": texts,
        "rows": {
            "query": len(query),
            "retrieval": len(database),
            "train": int(configs["dsch"].split.train or 0),
        },
        "seconds": round(time.perf_counter() - began, 1),
    }


def _answer_texts(
    model: HashModel, database: CodeSet
) -> tuple[list[list[SheetCell]], dict[str, dict[str, float]]]:
    """Return one row a text query, the words and the nearest images, right or wrong; and how many
    of these fit.

    ``fitting`` of the ``shown`` answers have all labels that the words ask for; an answer by chance
    has them with probability ``chance``.
    """
    assert database.labels is not None
    codes = model.encode_texts(list(_TEXT_QUERIES))
    results = nearest(codes, database.codes["image"], database.ids, _ANSWERS)
    sheet = []
    fits = {}
    for (text, expected), result in zip(_TEXT_QUERIES.items(), results, strict=True):
        columns = [database.label_names.index(label) for label in expected]
        right = np.all(database.labels[:, columns], axis=1)
        cells = [SheetCell(None, text)]
        for row, distance in zip(result.rows.tolist(), result.distances.tolist(), strict=True):
            cells.append(_answer_cell(database, row, distance, bool(right[row])))
        sheet.append(cells)
        fitting = int(right[result.rows].sum())
        chance = float(right.mean())
        fits[text] = {"fitting": fitting, "shown": len(result.rows), "chance": chance}
    return sheet, fits


def _answer_rows(query: CodeSet, database: CodeSet) -> list[list[SheetCell]]:
    """Make one row a query, an image: itself, then the items with the nearest texts, right if they
    share a label.

    >>> packed = np.array([[0], [7]], np.uint8)
    >>> codes = CodeSet(["a", "b"], {"image": packed, "text": packed}, np.eye(2), n_bits=8)
    >>> [cell.right for cell in _answer_rows(codes, codes)[0]]
    [None, True, False]
    """
    rows = []
    found = answer_some(query, database, "image->text", _IMAGE_QUERIES, _ANSWERS)
    for row, answers in found.items():
        image = _image(query, row)
        caption = ", ".join(query.names_of(row)) if image else _words(query, row)
        cells = [_answer_cell(database, *answer) for answer in answers]
        rows.append([SheetCell(image, caption), *cells])
    return rows


def _answer_cell(database: CodeSet, row: int, distance: int, right: bool | None) -> SheetCell:
    """Return the cell of an answer: its distance, and its image and text or what else is known of
    it.
    """
    return SheetCell(_image(database, row), f"{bits(distance)}: {_words(database, row)}", right)


def _words(codes: CodeSet, row: int) -> str:
    text = codes.texts[row] if codes.texts else ", ".join(codes.names_of(row))
    return text or str(codes.ids[row])


def _image(codes: CodeSet, row: int) -> Path | None:
    return Path(codes.images[row]) if codes.images and codes.images[row] else None
