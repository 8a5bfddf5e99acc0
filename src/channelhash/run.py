"""From a configuration to a trained model in a run's folder. What becomes of it: `run_evaluation`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from channelhash.config import ExtendSettings, RunConfig
from channelhash.data.joining import join_records
from channelhash.data.records import Records
from channelhash.data.splits import Splits
from channelhash.extension import (
    check_extension,
    describe_extension,
    extended_model,
    extension_loss,
    store_codes,
    stored_codes,
    training_rows,
)
from channelhash.fitting import fit, prepare
from channelhash.models import HashModel
from channelhash.run_folder import carry_out, describe_run, keep_splits
from channelhash.run_inputs import create_loss, create_model, draw_run_splits, load_parts
from channelhash.training.distributed import (
    rank,
    wait_for_all,
)
from channelhash.training.frozen_features import (
    Stages,
    silent,
)


def start_run(config: RunConfig, folder: Path, resume: bool = False, stages: Stages = silent) -> dict[str, Any]:
    """Train what ``config`` says into ``folder`` and evaluate it on the validation partition.

    The folder gets ``config.yaml``, ``splits.json``, ``environment.json``, ``log.jsonl``, ``checkpoints/``, TensorBoard
    events and, at the end, ``model/`` (the last epoch's weights, the primary result of ``protocol.md`` § 6).

    Args:
        config: what to do.
        folder: a new folder, or with ``resume`` one that holds the same configuration.
        resume: go on with a run that was interrupted; a finished run is left as it is.
        stages: where progress goes.

    Returns:
        ``{"run": folder, "epochs": n, "loss": last epoch's mean, "validation": {task: mAP_T}, "problems": [lines]}``;
        the problems (rows left out or repaired) are in ``problems.txt`` too.

    Raises:
        InputError: the folder is in use or holds another run, or the data cannot be used.
        JobError: the loss became NaN.
    """
    return carry_out(config, folder, resume, lambda: _train(config, folder, resume, stages))


def _train(config: RunConfig, folder: Path, resume: bool, stages: Stages) -> HashModel:
    parts = load_parts(config)
    records = join_records(parts)
    settings = config.split.model_dump(mode="json")
    splits = keep_splits(folder, records, lambda: draw_run_splits(config, parts), settings, resume)
    describe_run(config, folder, records.problems)
    loss = create_loss(config, len(records.label_names))
    if config.extend is not None:
        return _extend(config, config.extend, folder, parts, records, splits, loss, resume, stages)
    labels = torch.from_numpy(records.labels[splits.train])
    train_records = records.take(splits.train)
    trainee = prepare(config, create_model(config, train_records), parts, records, splits.train, stages)
    return fit(config, folder, trainee, splits, loss, labels, resume, stages)


def _extend(
    config: RunConfig,
    extend: ExtendSettings,
    folder: Path,
    parts: Sequence[Records],
    records: Records,
    splits: Splits,
    loss: nn.Module,
    resume: bool,
    stages: Stages,
) -> HashModel:
    """`_train` from the weights of another run on, whose codes stay valid; see `extension`."""
    check_extension(config, loss, parts)
    n_old = sum(len(part) for part in parts[:-1])
    rows = training_rows(splits, n_old, extend, config.train.seed)
    trainee = prepare(config, extended_model(extend), parts, records, rows, stages)
    light, features = trainee.light, trainee.features
    if rank() == 0:
        store_codes(config, folder, light, records, features, splits, n_old, stages("encode old items"))
    wait_for_all()
    stored = stored_codes(folder)
    assert stored is not None
    loss = extension_loss(config, loss, light.modalities, stored, records, splits, rows, n_old)
    labels = torch.from_numpy(records.labels[rows])
    model = fit(config, folder, trainee, splits, loss, labels, resume, stages, stored)
    if rank() == 0:
        describe_extension(config, folder, light, parts, features, splits, rows)
    return model
