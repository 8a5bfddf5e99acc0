"""Fit a model to the training rows of a collection: the loop of the paper (``protocol.md`` § 6).

An epoch is its steps (`Steps`), the validation, a line in the log, and a checkpoint.
"""

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from channelhash.codes import CodeSet
from channelhash.config import TrainSettings
from channelhash.data.collection import Collection
from channelhash.data.records import Records
from channelhash.data.splits import RowNumbers, Splits
from channelhash.errors import InputError, JobError
from channelhash.losses.base import HashLoss
from channelhash.models import HashModel
from channelhash.models.backbones import load_weights, memory_advice, read_weights
from channelhash.models.heads import fit_scales, rotate_outputs
from channelhash.training import distributed, inputs
from channelhash.training.steps import Steps
from channelhash.training.validation import (
    LogEntry,
    read_log,
    recorder,
    selection_score,
    validator,
)
from channelhash.utils.progress import Progress, StageProgress, no_progress, note
from channelhash.utils.seeds import derive_seed

#: Advice where the memory of the device does not suffice.
_ADVICE = (
    "with train.batch_size {}; lower it (train.accumulate keeps the samples of a step), or give "
    "more processes"
)


def train(
    model: HashModel,
    loss: HashLoss,
    data: inputs.TrainingSet,
    settings: TrainSettings,
    folder: Path,
    validate: Callable[[], LogEntry] | None = None,
    progress: Progress = no_progress,
) -> list[LogEntry]:
    """Train ``model`` in place, and write ``log.jsonl``, ``checkpoints/`` and events of TensorBoard
    into ``folder``.

    A training that stopped goes on from ``checkpoints/last.pt``. On a CPU the result is
    bit-identical to an uninterrupted training, because draws are functions of (seed, epoch). Of
    several processes (`distributed`) each takes its shard of a batch; the first one validates and
    writes.
    """
    steps = Steps(model.train(), loss, data, settings)
    last = folder / "checkpoints" / "last.pt"
    best = folder / "checkpoints" / "best"
    start = steps.load(last) if last.exists() else 0
    log = read_log(folder / "log.jsonl")[:start]
    advice = memory_advice(_ADVICE.format(settings.batch_size))
    with recorder(folder, start) if _is_first() else nullcontext() as record, advice:
        for epoch in range(start, settings.epochs):
            if _is_over(log, epoch, settings):
                break
            began = time.perf_counter()
            entry = _train_epoch(steps, epoch, last)
            done = epoch + 1
            if validate and _is_validated(done, settings):
                entry |= _validate(steps, validate, log, best)
            entry["seconds"] = round(time.perf_counter() - began, 3)
            log.append(entry)
            if record:
                record(log)
                _save_if_due(steps, log, done, last)
            note(progress, f"loss {entry['loss']:.4g}")
            progress(done, settings.epochs)
    _keep(model, steps, best)
    return log


def _is_first() -> bool:
    """Return whether this process validates and writes."""
    return distributed.rank() == 0


def _train_epoch(steps: Steps, epoch: int, checkpoint: Path) -> LogEntry:
    """Take the steps of an epoch; return its entry of the log."""
    names = ("dropout", epoch) if _is_first() else ("dropout", epoch, distributed.rank())
    torch.manual_seed(derive_seed(steps.settings.seed, *names))
    losses = steps.run(steps.batches(epoch))
    _check_finite(losses, epoch, steps, checkpoint)
    return {"epoch": epoch, "loss": losses.mean().item(), "learning_rate": steps.rate}


def _check_finite(losses: Tensor, epoch: int, steps: Steps, checkpoint: Path) -> None:
    """Raise `JobError` at the first step whose loss is NaN or infinite."""
    if losses.isfinite().all():
        return
    step = int((~losses.isfinite()).nonzero()[0])
    advice = f"lower train.learning_rate (now {steps.rate:g})"
    if epoch == step == 0:
        name = type(steps.loss).__name__
        advice = f"nothing was learned yet, so look at {name} and at its inputs"
    found = "there is no checkpoint yet"
    if checkpoint.exists():
        found = f"the last good checkpoint is {checkpoint}"
    value = losses[step].item()
    raise JobError(f"epoch {epoch}, step {step}: the loss is {value}; {advice}; {found}")


def _is_validated(done: int, settings: TrainSettings) -> bool:
    """Return whether the model is validated after ``done`` epochs: every few, and after the
    last.
    """
    every = settings.validate_every
    return every > 0 and (done % every == 0 or done == settings.epochs)


def _validate(
    steps: Steps, validate: Callable[[], LogEntry], log: list[LogEntry], best: Path
) -> LogEntry:
    """Validate the weights that the training keeps: their average, if there is one. Save the model
    if it is better than all in the log.
    """
    with steps.average.in_place() if steps.average else nullcontext():
        entry: LogEntry = distributed.from_first(validate() if _is_first() else None)
        score = selection_score(entry["validation"])
        if _is_first() and score > max(_scores(log), default=-math.inf):
            steps.model.save_pretrained(best)
    return entry


def _save_if_due(steps: Steps, log: list[LogEntry], done: int, checkpoint: Path) -> None:
    """Write the checkpoint every few epochs, and after the last."""
    if done % steps.settings.checkpoint_every == 0 or _is_over(log, done, steps.settings):
        steps.save(checkpoint, done)


def _is_over(log: list[LogEntry], done: int, settings: TrainSettings) -> bool:
    """Return whether the training ends after ``done`` epochs: they are all, or none of the last
    ``patience`` validations is better than the best before them.
    """
    scores = _scores(log)
    patience = settings.patience
    if 0 < patience < len(scores) and max(scores[-patience:]) <= max(scores[:-patience]):
        return True
    return done == settings.epochs


def _scores(log: list[LogEntry]) -> list[float]:
    return [selection_score(entry["validation"]) for entry in log if "validation" in entry]


def _keep(model: HashModel, steps: Steps, best: Path) -> None:
    """Give the model the weights of ``train.keep``: the best, the average or the last."""
    if steps.settings.keep == "best":
        distributed.wait_for_all()  # the first process has written it
        file = best / "model.safetensors"
        load_weights(model.trained_state(), read_weights(file), str(file))
    elif steps.average:
        steps.average.swap()
    model.eval()


class Trainee(NamedTuple):
    """A model with what it is trained and validated on.

    Attributes:
        model: the model that is trained. Unless its inputs come ``online`` it is ``feature_model``,
            so that the memory of the backbone is free again.
        feature_model: the same model without frozen backbones, which takes features; see
            `HashModel.on_features`.
        features: all rows of the collection, as ``feature_model`` takes them.
        sources: inputs of the training rows, as ``model`` takes them.
        settings: how it is trained.
        images: ``(n,)`` which image each training row shows, for ``train.captions: one``.
        stored: codes that old items of the retrieval set keep, whatever this model computes for
            them.
    """

    model: HashModel
    feature_model: HashModel
    features: Records
    sources: dict[str, inputs.BatchSource]
    settings: TrainSettings
    images: Tensor | None = None
    stored: CodeSet | None = None

    @classmethod
    def prepare(
        cls,
        model: HashModel,
        collection: Collection,
        rows: RowNumbers,
        settings: TrainSettings,
        progress: StageProgress,
    ) -> "Trainee":
        """Move a model to its device, and compute or read the features for training and
        validation.

        The scales of a model ``aligned`` are fitted to the training ``rows``, at most 20,000; an
        extension keeps them.
        """
        train_records = collection.records.take(rows)
        images = training_images(train_records, settings)
        model.to(distributed.local_device(settings.device))
        mode = inputs.feature_mode(model, settings)
        features = inputs.collection_features(model, collection, settings, progress)
        sources = inputs.training_sources(
            model, train_records, features.take(rows), mode, settings, progress
        )
        feature_model = model.on_features()
        trained = model if mode == "online" else feature_model
        trainee = cls(trained, feature_model, features, sources, settings, images)
        if feature_model.name == "aligned" and not feature_model.extends:
            evenly_spaced = rows[:: math.ceil(len(rows) / 20_000)]
            fit_scales(feature_model, trainee._inputs(features.take(evenly_spaced)))
        return trainee

    def fit(
        self, loss: HashLoss, targets: Tensor, splits: Splits, folder: Path, progress: StageProgress
    ) -> HashModel:
        """Train the model, validated on V_q and V_r (without labels on V_q alone); return it."""
        settings = self.settings
        validate = validator(
            self.feature_model, self.features, self.stored, splits, settings, progress
        )
        if settings.keep == "best" and not (validate and settings.validate_every):
            raise InputError(
                "train.keep is best, but nothing is validated; give validation rows, or keep the "
                "last"
            )
        data = inputs.TrainingSet(self.sources, targets, self.images)
        train(self.model, loss, data, settings, folder, validate, progress("train"))
        # Only a model ``aligned`` has them: numbers of leading outputs that become codes.
        n_leading = self.feature_model.architecture.get("nested")
        if n_leading:
            records = self.features.take(splits.train)
            images = _images_of_rows(records)
            rotate_outputs(
                self.feature_model, self._inputs(records), images, n_leading, settings.seed
            )
        return self.model

    def _inputs(self, records: Records) -> dict[str, Tensor]:
        """Return the inputs of the feature model, in memory."""
        model = self.feature_model
        return {
            modality: inputs.prepare_inputs(model, records, modality)
            for modality in model.modalities
        }


def training_images(train: Records, settings: TrainSettings) -> Tensor | None:
    """Return which image each row shows, for ``captions: one``; else None."""
    return _images_of_rows(train) if settings.captions == "one" else None


def _images_of_rows(records: Records) -> Tensor:
    """Return ``(n,)`` which of the images 0 … m − 1 each row shows, by `Records.pair_ids`.

    >>> texts = {"text": ("", "", "")}
    >>> records = Records(("b", "a", "b"), texts, np.zeros((3, 0), dtype=bool), ())
    >>> _images_of_rows(records).tolist()
    [1, 0, 1]
    """
    ids = np.asarray(records.pair_ids, dtype=str)
    return torch.from_numpy(np.unique(ids, return_inverse=True)[1])
