"""Fit a model to the training rows of a collection: the loop of the paper (``protocol.md`` § 6), validation."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from channelhash.codes.code_set import CodeSet
from channelhash.config import TrainSettings
from channelhash.data.collection import Collection
from channelhash.data.records import Records
from channelhash.data.splits import Rows, Splits
from channelhash.errors import InputError, JobError
from channelhash.losses import HashLoss
from channelhash.metrics import hamming_histogram
from channelhash.metrics.recall import instance_recall
from channelhash.models import HashModel
from channelhash.models.backbones import load_weights, memory_advice, read_weights
from channelhash.models.heads import fit_scales, rotate_outputs
from channelhash.training import inputs
from channelhash.training.distributed import from_first, local_device, rank, wait_for_all
from channelhash.training.step import Steps
from channelhash.utils.environment import pick_device
from channelhash.utils.files import reading, space_for, write_text
from channelhash.utils.progress import Progress, StageProgress, no_progress, note
from channelhash.utils.seeds import derive_seed

#: Scores of one validation: task name -> score by the validation's measure.
Validation = dict[str, float]
#: A line of ``log.jsonl``: one epoch.
_Entry = dict[str, Any]
#: Measure of a validation as in the reports of an evaluation -> its name for people.
MEASURES = {"map_tie_aware": "tie-aware mAP", "recall_at_10": "Recall@10"}


#: Validates the model as it is: ``validation``, scores of which the larger is the better, and their ``measure`` in an
#: entry of the log.
_Validator = Callable[[], _Entry]


def kept_validation(log: Sequence[Mapping[str, Any]], keep: str) -> Validation:
    """Return the validation of the model that a training kept, the ``last`` or the ``best``; empty without one.

    >>> log = [{"validation": {"text->image": score}} for score in (0.25, 0.5, 0.375)]
    >>> kept_validation(log, "last"), kept_validation(log, "best")
    ({'text->image': 0.375}, {'text->image': 0.5})
    """
    validations: list[Validation] = [entry["validation"] for entry in log if "validation" in entry]
    if not validations:
        return {}
    return max(validations, key=selection_score) if keep == "best" else validations[-1]


def measure_of(log: Sequence[Mapping[str, Any]]) -> str:
    """Return the measure of the validations in a log; those of mAP do not name it.

    >>> measure_of([{"epoch": 0, "validation": {"text->image": 0.5}}])
    'map_tie_aware'
    """
    return next((str(entry["measure"]) for entry in log if "measure" in entry), "map_tie_aware")


def train(
    model: HashModel,
    loss: HashLoss,
    data: inputs.TrainingSet,
    settings: TrainSettings,
    folder: Path,
    validate: _Validator | None = None,
    progress: Progress = no_progress,
) -> list[_Entry]:
    """Train ``model`` in place, and write ``log.jsonl``, ``checkpoints/`` and events of TensorBoard into ``folder``.

    It goes on from ``checkpoints/last.pt``, on a CPU to the bits of an uninterrupted training: draws are functions of
    (seed, epoch). Of several processes (`distributed`) each takes its shard of a batch, the first validates and writes.
    """
    steps = Steps(model.train(), loss, data.targets, settings, data.images)
    last, best = (folder / "checkpoints" / name for name in ("last.pt", "best"))
    start = steps.load(last) if last.exists() else 0
    log, first = read_log(folder / "log.jsonl")[:start], rank() == 0
    advice = memory_advice(_ADVICE.format(settings.batch_size))
    with _recorder(folder, start, first) as record, advice:
        for epoch in range(start, settings.epochs):
            if _waited_long_enough(log, settings.patience):
                break
            began, done = time.perf_counter(), epoch + 1
            torch.manual_seed(derive_seed(settings.seed, "dropout", epoch, *(() if first else (rank(),))))
            losses = steps.run(steps.batches(data.sources, epoch))
            _check_finite(losses, epoch, steps.rate, last)
            entry: _Entry = {"epoch": epoch, "loss": losses.mean().item(), "learning_rate": steps.rate}
            due = settings.validate_every and (done % settings.validate_every == 0 or done == settings.epochs)
            if validate and due:
                with steps.average.in_place() if steps.average else nullcontext():
                    entry |= from_first(validate() if first else None)
                    if first and selection_score(entry["validation"]) > max(_scores(log), default=-math.inf):
                        model.save_pretrained(best)
            entry["seconds"] = round(time.perf_counter() - began, 3)
            log.append(entry)
            record(log)
            ends = done == settings.epochs or _waited_long_enough(log, settings.patience)
            if first and (ends or done % settings.checkpoint_every == 0):
                steps.save(last, done)
            note(progress, f"loss {entry['loss']:.4g}")
            progress(done, settings.epochs)
    if settings.keep == "best":
        wait_for_all()  # the first process has written it
        file = best / "model.safetensors"
        load_weights(model.trained_state(), read_weights(file), str(file))
    elif steps.average:
        steps.average.swap()
    model.eval()
    return log


def selection_score(validation: Validation) -> float:
    """Return the score that picks the best epoch: mean of image->text and text->image, or of all tasks without those.

    >>> selection_score({"image->text": 0.5, "text->image": 0.75, "image->image": 1.0})
    0.625
    """
    cross = [validation[task] for task in ("image->text", "text->image") if task in validation]
    values = cross or list(validation.values())
    return sum(values) / len(values)


def read_log(path: Path) -> list[_Entry]:
    """Return the lines of ``log.jsonl``; an empty list if there is no such file.

    Raises:
        InputError: a line is not JSON, or lacks a number.

    >>> read_log(Path("no run/log.jsonl"))
    []
    """
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [_entry(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1)]


def _entry(line: bytes, place: str) -> _Entry:
    with reading(place, "no epoch of this version's log", "remove the line"):
        entry: _Entry = json.loads(line)
        numbers = [entry["epoch"], entry["loss"], entry.get("seconds", 0), *entry.get("validation", {}).values()]
        for number in numbers:
            math.isnan(number)  # a number that a float can hold, or an error
    return entry


_ADVICE = "with train.batch_size {}; lower it (train.accumulate keeps the samples of a step), or give more processes"


def _check_finite(losses: Tensor, epoch: int, rate: float, checkpoint: Path) -> None:
    if not losses.isfinite().all():
        step = int((~losses.isfinite()).nonzero()[0])
        raise JobError(
            f"epoch {epoch}, step {step}: the loss is {losses[step].item()}; lower train.learning_rate "
            f"(now {rate:g}); the last good checkpoint is {checkpoint if checkpoint.exists() else 'none yet'}"
        )


def _waited_long_enough(log: list[_Entry], patience: int) -> bool:
    """Return whether none of the last ``patience`` validations is better than the best before them."""
    scores = _scores(log)
    return 0 < patience < len(scores) and max(scores[-patience:]) <= max(scores[:-patience])


def _scores(log: list[_Entry]) -> list[float]:
    return [selection_score(entry["validation"]) for entry in log if "validation" in entry]


@contextmanager
def _recorder(folder: Path, start: int, writes: bool) -> Iterator[Callable[[list[_Entry]], None]]:
    """Yield a function that writes the log, and its last entry as events, if this process ``writes``."""
    if not writes:
        yield lambda log: None
        return
    from torch.utils.tensorboard import SummaryWriter  # a second of import that only training pays

    place = folder / "tensorboard"
    with space_for(place):
        events = SummaryWriter(str(place), purge_step=start)

    def record(log: list[_Entry]) -> None:
        write_text(folder / "log.jsonl", "".join(json.dumps(entry) + "\n" for entry in log))
        entry, name = log[-1], f"validation {measure_of(log)}"
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


# Training rows, evenly spaced, that the scales of features are taken from.
_SAMPLE = 20_000


@dataclass(frozen=True)
class Trainee:
    """A model with what it is trained and validated on.

    Attributes:
        model: the model that is trained. Unless its inputs come ``online`` it is ``feature_model``, so that the memory
            of the backbone is free again.
        feature_model: the same model without frozen backbones, which takes features; see `HashModel.on_features`.
        features: all rows of the collection, as ``feature_model`` takes them.
        sources: inputs of the training rows, as ``model`` takes them.
        images: ``(n,)`` which image each training row shows, for ``train.captions: one``.
        stored: codes that old items of the retrieval set keep, whatever the model makes of them now.
    """

    model: HashModel
    feature_model: HashModel
    features: Records
    sources: dict[str, inputs.Source]
    images: Tensor | None = None
    stored: CodeSet | None = None

    @classmethod
    def prepare(
        cls, model: HashModel, collection: Collection, rows: Rows, settings: TrainSettings, progress: StageProgress
    ) -> "Trainee":
        """Bring a model to its device, and compute or read the features that it is trained and validated on."""
        train_records = collection.records.take(rows)
        images = training_images(train_records, settings)
        model.to(local_device(pick_device(settings.device)))
        mode = inputs.feature_mode(model, settings)
        features = inputs.collection_features(model, collection, settings, progress)
        sources = inputs.training_sources(model, train_records, features.take(rows), mode, settings, progress)
        feature_model = model.on_features()
        return cls(model if mode == "online" else feature_model, feature_model, features, sources, images)

    def fit_scales(self, rows: Rows) -> None:
        """Fit the scales of the features to the training ``rows``, at most 20,000, of an untrained ``aligned`` one."""
        if self.feature_model.name == "aligned":
            fit_scales(self.feature_model, self._inputs(self.features.take(rows[:: -(-len(rows) // _SAMPLE)])))

    def fit(
        self,
        loss: HashLoss,
        targets: Tensor,
        splits: Splits,
        settings: TrainSettings,
        folder: Path,
        progress: StageProgress,
    ) -> HashModel:
        """Train the model, validate it on V_q and V_r (without labels on V_q alone), and return it."""
        validate = _validator(self, splits, settings, progress)
        if settings.keep == "best" and not (validate and settings.validate_every):
            raise InputError("train.keep is best, but nothing is validated; give validation rows, or keep the last")
        data = inputs.TrainingSet(self.sources, targets, self.images)
        train(self.model, loss, data, settings, folder, validate, progress("train"))
        if n_leading := self.feature_model.architecture.get("nested"):  # of a model ``aligned``: they are to be codes
            records = self.features.take(splits.train)
            images = _images_of_rows(records)
            rotate_outputs(self.feature_model, self._inputs(records), images, n_leading, settings.seed)
        return self.model

    def _inputs(self, records: Records) -> dict[str, Tensor]:
        model = self.feature_model
        return {modality: inputs.prepare_inputs(model, records, modality) for modality in model.modalities}


def training_images(train: Records, settings: TrainSettings) -> Tensor | None:
    """Return `_images_of_rows` for ``captions: one``, else None."""
    images = _images_of_rows(train) if settings.captions == "one" else None
    n = len(train) if images is None else int(images.max()) + 1
    if settings.batch_size > n:
        raise InputError(f"train.batch_size is {settings.batch_size}, but there are {n} training rows; choose 1 … {n}")
    return images


def _images_of_rows(records: Records) -> Tensor:
    """Return ``(n,)`` which of the images 0 … m − 1 each row shows, by `Records.pair_ids`.

    >>> _images_of_rows(Records(("b", "a", "b"), {"text": ("", "", "")}, np.zeros((3, 0), dtype=bool), ())).tolist()
    [1, 0, 1]
    """
    return torch.from_numpy(np.unique(np.asarray(records.pair_ids, dtype=str), return_inverse=True)[1])


def _validator(trainee: Trainee, splits: Splits, settings: TrainSettings, progress: StageProgress) -> _Validator | None:
    """Return the validation by tie-aware mAP on V_q and V_r, without labels by Recall@10 on V_q; None without rows."""
    if not len(splits.validation_query) or not len(splits.validation_retrieval):
        return None
    if not trainee.features.label_names:
        return _recall_validator(trainee, splits, settings, progress)
    model, stored = trainee.feature_model, trainee.stored
    query, database = (trainee.features.take(rows) for rows in (splits.validation_query, splits.validation_retrieval))
    if not relevant_pairs(query.labels, database.labels):
        raise InputError(
            f"none of the {len(query)} validation queries shares a label with the validation retrieval set; "
            "give more labelled rows, or set data.validation_queries to 0"
        )
    encode_query = inputs.encoder_of_rows(model, query, settings, progress)
    encode_database = inputs.encoder_of_rows(model, database, settings, progress)
    fixed = np.isin(splits.validation_retrieval, splits.retrieval[: len(stored) if stored else 0])
    stored_rows = np.searchsorted(splits.retrieval, splits.validation_retrieval[fixed])

    def validate() -> _Entry:
        query_codes, database_codes = encode_query(), encode_database()
        if stored:
            for modality in model.modalities:
                database_codes[modality][fixed] = stored.codes[modality][stored_rows]
        scores = {}
        for a in model.modalities:
            for b in model.modalities:
                pairs = query_codes[a], database_codes[b], query.labels, database.labels
                scores[f"{a}->{b}"] = hamming_histogram(*pairs, model.n_bits).mean_average_precision()
        return {"validation": scores}

    return validate


def _recall_validator(
    trainee: Trainee, splits: Splits, settings: TrainSettings, progress: StageProgress
) -> _Validator | None:
    """Return the validation by instance retrieval among V_q; None where the model has one modality."""
    model, query = trainee.feature_model, trainee.features.take(splits.validation_query)
    if len(model.modalities) < 2:
        return None
    encode, images = inputs.encoder_of_rows(model, query, settings, progress), query.display_values("image")

    def validate() -> _Entry:
        codes = CodeSet(query.ids, encode(), None, model.n_bits, images=images)
        scores = {task: report["recall_at"]["10"] for task, report in instance_recall(codes, codes).items()}
        return {"validation": scores, "measure": "recall_at_10"}

    return validate


def relevant_pairs(query_labels: NDArray[np.bool_], database_labels: NDArray[np.bool_]) -> bool:
    """Return whether any query shares a label with any database item.

    >>> labels = np.eye(2, dtype=bool)
    >>> relevant_pairs(labels, labels), relevant_pairs(labels[:1], labels[1:])
    (True, False)
    """
    return bool((query_labels.any(axis=0) & database_labels.any(axis=0)).any())
