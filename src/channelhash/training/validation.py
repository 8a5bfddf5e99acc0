"""Validate a model while it is trained, and keep the log of its epochs."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from channelhash.codes import CodeSet
from channelhash.config import TrainSettings
from channelhash.data.records import Records
from channelhash.data.splits import Splits
from channelhash.errors import InputError
from channelhash.metrics import hamming_histogram
from channelhash.metrics.recall import instance_recall
from channelhash.models import HashModel
from channelhash.training.inputs import encoder_of_rows
from channelhash.utils.decode import reading
from channelhash.utils.files import space_for, write_text
from channelhash.utils.progress import StageProgress

#: A line of ``log.jsonl``: one epoch.
LogEntry = dict[str, Any]
#: Measure of a validation, named as in the reports of an evaluation -> its name for people.
MEASURES = {"map_tie_aware": "tie-aware mAP", "recall_at_10": "Recall@10"}


def selection_score(validation: dict[str, float]) -> float:
    """Return the score that picks the best epoch: mean of image->text and text->image, or of all
    tasks without those.

    >>> selection_score({"image->text": 0.5, "text->image": 0.75, "image->image": 1.0})
    0.625
    """
    cross = [validation[task] for task in ("image->text", "text->image") if task in validation]
    values = cross or list(validation.values())
    return sum(values) / len(values)


def read_log(path: Path) -> list[LogEntry]:
    """Return the lines of ``log.jsonl``; an empty list if there is no such file.

    Raises:
        InputError: a line is not JSON, or lacks a number.

    >>> read_log(Path("no run/log.jsonl"))
    []
    """
    log: list[LogEntry] = []
    lines = path.read_bytes().splitlines() if path.exists() else []
    for number, line in enumerate(lines, start=1):
        with reading(f"{path}, line {number}", "no epoch of this version's log", "remove the line"):
            entry: LogEntry = json.loads(line)
            for value in (
                entry["epoch"],
                entry["loss"],
                entry.get("seconds", 0),
                *entry.get("validation", {}).values(),
            ):
                math.isnan(value)  # a number that a float can hold, or an error
            log.append(entry)
    return log


def measure_of(log: Sequence[Mapping[str, Any]]) -> str:
    """Return the measure of the validations in a log; those of mAP do not name it.

    >>> measure_of([{"epoch": 0, "validation": {"text->image": 0.5}}])
    'map_tie_aware'
    """
    return next((str(entry["measure"]) for entry in log if "measure" in entry), "map_tie_aware")


@contextmanager
def recorder(folder: Path, start: int) -> Iterator[Callable[[list[LogEntry]], None]]:
    """Yield a function that writes the log, and its last entry as events."""
    from torch.utils.tensorboard import SummaryWriter  # a second of import that only training pays

    place = folder / "tensorboard"
    with space_for(place):
        events = SummaryWriter(str(place), purge_step=start)

    def record(log: list[LogEntry]) -> None:
        write_text(folder / "log.jsonl", "".join(json.dumps(entry) + "\n" for entry in log))
        entry = log[-1]
        name = f"validation {measure_of(log)}"
        scalars = {"loss": entry["loss"], "learning_rate": entry["learning_rate"]}
        scalars |= {f"{name}/{task}": value for task, value in entry.get("validation", {}).items()}
        with space_for(place):
            for name, value in scalars.items():
                events.add_scalar(name, value, entry["epoch"])

    try:
        yield record
    finally:
        with space_for(place):
            events.close()


def validator(
    model: HashModel,
    features: Records,
    stored: CodeSet | None,
    splits: Splits,
    settings: TrainSettings,
    progress: StageProgress,
) -> Callable[[], LogEntry] | None:
    """Return the function that validates a model: by tie-aware mAP on V_q and V_r, or by Recall@10
    on V_q if there are no labels.

    Each call validates the model in its present state. It returns ``validation`` (task -> score,
    where more is better) and their ``measure`` for the log. None stands for no validation: there
    are no rows for it, or neither labels nor a second modality. See `Trainee` for the arguments.
    """
    if not len(splits.validation_query) or not len(splits.validation_retrieval):
        return None
    query = features.take(splits.validation_query)
    database = features.take(splits.validation_retrieval)
    if not features.label_names:
        if len(model.modalities) == 1:
            return None
        return _recall_validator(model, query, settings, progress)
    if not (query.labels.any(0) & database.labels.any(0)).any():
        raise InputError(
            f"none of the {len(query)} validation queries shares a label with the validation "
            "retrieval set; give more labelled rows, or set data.validation_queries to 0"
        )
    encode_query = encoder_of_rows(model, query, settings, progress)
    encode_database = encoder_of_rows(model, database, settings, progress)
    fixed = np.isin(splits.validation_retrieval, splits.retrieval[: len(stored) if stored else 0])
    stored_rows = np.searchsorted(splits.retrieval, splits.validation_retrieval[fixed])

    def validate() -> LogEntry:
        query_codes = encode_query()
        database_codes = encode_database()
        if stored:
            for modality in model.modalities:
                database_codes[modality][fixed] = stored.codes[modality][stored_rows]
        scores = {}
        for a in model.modalities:
            for b in model.modalities:
                pairs = query_codes[a], database_codes[b], query.labels, database.labels
                histogram = hamming_histogram(*pairs, model.n_bits)
                scores[f"{a}->{b}"] = histogram.mean_average_precision()
        return {"validation": scores}

    return validate


def _recall_validator(
    model: HashModel, query: Records, settings: TrainSettings, progress: StageProgress
) -> Callable[[], LogEntry]:
    """Return the validation by instance retrieval among V_q."""
    encode = encoder_of_rows(model, query, settings, progress)
    images = query.display_values("image")

    def validate() -> LogEntry:
        codes = CodeSet(query.ids, encode(), None, model.n_bits, images=images)
        scores = {
            task: report["recall_at"]["10"]
            for task, report in instance_recall(codes, codes).items()
        }
        return {"validation": scores, "measure": "recall_at_10"}

    return validate
