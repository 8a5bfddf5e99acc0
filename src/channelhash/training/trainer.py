"""Fit a model to the training rows of a collection: the loop of the paper (``protocol.md`` § 6).

An epoch: its steps, the validation, a line in the log, a checkpoint.
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
from channelhash.training.validation import Entry, read_log, recorder, selection_score, validator
from channelhash.utils.progress import Progress, StageProgress, no_progress, note
from channelhash.utils.seeds import derive_seed

#: What to do where the memory of the device does not suffice.
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
    validate: Callable[[], Entry] | None = None,
    progress: Progress = no_progress,
) -> list[Entry]:
    """Train ``model`` in place, and write ``log.jsonl``, ``checkpoints/`` and events of TensorBoard
    into ``folder``.

    It goes on from ``checkpoints/last.pt``, on a CPU to the bits of an uninterrupted training:
    draws are functions of (seed, epoch). Of several processes (`distributed`) each takes its shard
    of a batch, the first validates and writes.
    """
    steps = Steps(model.train(), loss, data, settings)
    last = folder / "checkpoints" / "last.pt"
    best = folder / "checkpoints" / "best"
    start = steps.load(last) if last.exists() else 0
    log = read_log(folder / "log.jsonl")[:start]
    is_first = distributed.rank() == 0
    advice = memory_advice(_ADVICE.format(settings.batch_size))
    with recorder(folder, start) if is_first else nullcontext() as record, advice:
        for epoch in range(start, settings.epochs):
            if _is_over(log, epoch, settings):
                break
            began = time.perf_counter()
            entry = _train_epoch(steps, epoch, last)
            done = epoch + 1
            if validate and _is_validated(done, settings):
                # Where the weights are averaged, it is the average that is validated and kept.
                with steps.average.in_place() if steps.average else nullcontext():
                    entry |= distributed.from_first(validate() if is_first else None)
                    if is_first and _is_best(entry, log):
                        model.save_pretrained(best)
            entry["seconds"] = round(time.perf_counter() - began, 3)
            log.append(entry)
            if record:
                record(log)
                if done % settings.checkpoint_every == 0 or _is_over(log, done, settings):
                    steps.save(last, done)
            note(progress, f"loss {entry['loss']:.4g}")
            progress(done, settings.epochs)
    _keep(model, steps, best)
    return log


def _train_epoch(steps: Steps, epoch: int, checkpoint: Path) -> Entry:
    """Take the steps of an epoch; return its entry of the log."""
    rank = distributed.rank()
    names = ("dropout", epoch) if rank == 0 else ("dropout", epoch, rank)
    torch.manual_seed(derive_seed(steps.settings.seed, *names))
    losses = steps.run(steps.batches(epoch))
    _check_finite(losses, epoch, steps, checkpoint)
    return {"epoch": epoch, "loss": losses.mean().item(), "learning_rate": steps.rate}


def _check_finite(losses: Tensor, epoch: int, steps: Steps, checkpoint: Path) -> None:
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
    """Return whether the model is validated after so many epochs: every few, and after the last."""
    every = settings.validate_every
    return every > 0 and (done % every == 0 or done == settings.epochs)


def _is_best(entry: Entry, log: list[Entry]) -> bool:
    """Return whether a validation is better than all in a log."""
    return selection_score(entry["validation"]) > max(_scores(log), default=-math.inf)


def _is_over(log: list[Entry], done: int, settings: TrainSettings) -> bool:
    """Return whether a training ends after so many epochs: they were all, or none of the last
    ``patience`` validations is better than the best before them.
    """
    scores = _scores(log)
    patience = settings.patience
    if 0 < patience < len(scores) and max(scores[-patience:]) <= max(scores[:-patience]):
        return True
    return done == settings.epochs


def _scores(log: list[Entry]) -> list[float]:
    return [selection_score(entry["validation"]) for entry in log if "validation" in entry]


def _keep(model: HashModel, steps: Steps, best: Path) -> None:
    """Give a model the weights that its training keeps: the best, the average or the last."""
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
        stored: codes that old items of the retrieval set keep, whatever the model makes of them
            now.
    """

    model: HashModel
    feature_model: HashModel
    features: Records
    sources: dict[str, inputs.Source]
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
        """Bring a model to its device, and compute or read the features that it is trained and
        validated on.

        The scales of an ``aligned`` one are fitted to the training ``rows``, at most 20,000; an
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
        """Train the model, validate it on V_q and V_r (without labels on V_q alone), and return
        it.
        """
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
        # of a model ``aligned``: they are to be codes
        if n_leading := self.feature_model.architecture.get("nested"):
            records = self.features.take(splits.train)
            images = _images_of_rows(records)
            rotate_outputs(
                self.feature_model, self._inputs(records), images, n_leading, settings.seed
            )
        return self.model

    def _inputs(self, records: Records) -> dict[str, Tensor]:
        model = self.feature_model
        return {
            modality: inputs.prepare_inputs(model, records, modality)
            for modality in model.modalities
        }


def training_images(train: Records, settings: TrainSettings) -> Tensor | None:
    """Return `_images_of_rows` for ``captions: one``, else None."""
    images = _images_of_rows(train) if settings.captions == "one" else None
    n = len(train) if images is None else int(images.max()) + 1
    if settings.batch_size > n:
        raise InputError(
            f"train.batch_size is {settings.batch_size}, but there are {n} training rows; choose 1 "
            f"… {n}"
        )
    return images


def _images_of_rows(records: Records) -> Tensor:
    """Return ``(n,)`` which of the images 0 … m − 1 each row shows, by `Records.pair_ids`.

    >>> _images_of_rows(Records(("b", "a", "b"), {"text": ("", "", "")}, np.zeros((3, 0), dtype=bool), ())).tolist()
    [1, 0, 1]
    """
    return torch.from_numpy(
        np.unique(np.asarray(records.pair_ids, dtype=str), return_inverse=True)[1]
    )
