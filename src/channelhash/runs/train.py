"""From a configuration to a trained model in a run's folder. What becomes of it: `run_evaluation`."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from channelhash.config import ExtendSettings, RunConfig
from channelhash.data.collection import Collection, load_collection
from channelhash.data.splits import Splits
from channelhash.models import HashModel
from channelhash.runs.build import create_loss, create_model, draw_run_splits
from channelhash.runs.extend import (
    check_extension,
    describe_extension,
    extended_model,
    extension_loss,
    store_codes,
    stored_codes,
    training_rows,
)
from channelhash.runs.fit import fit, prepare
from channelhash.runs.folder import carry_out, describe_run, keep_splits
from channelhash.training.distributed import (
    rank,
    wait_for_all,
)
from channelhash.utils.progress import StageProgress, no_stage_progress


def start_run(
    config: RunConfig, folder: Path, resume: bool = False, progress: StageProgress = no_stage_progress
) -> dict[str, Any]:
    """Train what ``config`` says into ``folder`` and evaluate it on the validation partition.

    The folder gets ``config.yaml``, ``splits.json``, ``environment.json``, ``log.jsonl``, ``checkpoints/``, TensorBoard
    events and, at the end, ``model/`` (the last epoch's weights, the primary result of ``protocol.md`` § 6).

    Args:
        config: what to do.
        folder: a new folder, or with ``resume`` one that holds the same configuration.
        resume: go on with a run that was interrupted; a finished run is left as it is.
        progress: stage -> its callback.

    Returns:
        ``{"run": folder, "epochs": n, "loss": last epoch's mean, "validation": {task: mAP_T}, "problems": [lines]}``;
        the problems (rows left out or repaired) are in ``problems.txt`` too.

    Raises:
        InputError: the folder is in use or holds another run, or the data cannot be used.
        JobError: the loss became NaN.
    """
    return carry_out(config, folder, resume, lambda: _train(config, folder, resume, progress))


def _train(config: RunConfig, folder: Path, resume: bool, progress: StageProgress) -> HashModel:
    collection = load_collection(config.sources)
    records = collection.records
    settings = config.split.model_dump(mode="json")
    splits = keep_splits(folder, records, lambda: draw_run_splits(config, collection), settings, resume)
    describe_run(config, folder, records.problems)
    loss = create_loss(config, len(records.label_names))
    if config.extend is not None:
        return _extend(config, config.extend, folder, collection, splits, loss, resume, progress)
    labels = torch.from_numpy(records.labels[splits.train])
    train_records = records.take(splits.train)
    trainee = prepare(config.train, create_model(config, train_records), collection, splits.train, progress)
    return fit(config, folder, trainee, splits, loss, labels, resume, progress)


def _extend(
    config: RunConfig,
    extend: ExtendSettings,
    folder: Path,
    collection: Collection,
    splits: Splits,
    loss: nn.Module,
    resume: bool,
    progress: StageProgress,
) -> HashModel:
    """`_train` from the weights of another run on, whose codes stay valid; see `extension`."""
    check_extension(config, loss, collection.new)
    records, n_old = collection.records, collection.n_old
    rows = training_rows(splits, n_old, extend, config.train.seed)
    trainee = prepare(config.train, extended_model(extend), collection, rows, progress)
    feature_model, features = trainee.feature_model, trainee.features
    if rank() == 0:
        store_codes(config, folder, feature_model, records, features, splits, n_old, progress("encode old items"))
    wait_for_all()
    stored = stored_codes(folder)
    assert stored is not None
    loss = extension_loss(config, loss, feature_model.modalities, stored, records, splits, rows, n_old)
    labels = torch.from_numpy(records.labels[rows])
    model = fit(config, folder, trainee, splits, loss, labels, resume, progress, stored)
    if rank() == 0:
        describe_extension(config, folder, feature_model, collection, features, splits, rows)
    return model
