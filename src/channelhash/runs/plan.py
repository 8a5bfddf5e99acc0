"""Estimate what a training would take: parameters, steps, time and memory."""

import timeit
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from channelhash.config import RunConfig
from channelhash.data.collection import Collection
from channelhash.data.records import RawItems
from channelhash.errors import InputError, argument
from channelhash.models import HashModel
from channelhash.runs.create import check_pairs, create_loss, create_model, list_doubts
from channelhash.runs.folder import check_evaluable
from channelhash.training.distributed import local_device
from channelhash.training.inputs import (
    BatchSource,
    TrainingSet,
    epoch_steps,
    feature_mode,
    memory_batches,
    raw_source,
)
from channelhash.training.steps import Steps
from channelhash.training.trainer import training_images
from channelhash.utils.machine import peak_bytes


def plan_run(config: RunConfig) -> dict[str, Any]:
    """Return what `train.start_run` would take, without writing anything.

    A model encodes a few real training rows and takes two steps on a batch of them; then it is
    discarded.
    """
    if config.extend is not None:
        raise InputError(
            f"{argument('dry_run')}: plans a training from the start, this configuration extends a "
            "run; leave it out"
        )
    settings = config.train
    records = Collection.load(config.sources).records
    splits = config.split.draw(records)
    check_evaluable(records, splits)
    check_pairs(config, records)
    train = records.take(splits.train)
    images = training_images(train, settings)
    model = create_model(config, train).to(local_device(settings.device))
    parameters = _count_parameters(model)
    mode = feature_mode(model, settings)
    batch = train.take(np.arange(min(settings.batch_size, len(train))))
    features = 0.0
    sources = dict[str, BatchSource]()
    for name in model.modalities:
        frozen = model.branch(name).fixed
        if mode == "online" or frozen is None:
            sources[name] = raw_source(model, name, batch, len(train), settings)
            continue
        draws = settings.epochs * len(train) if mode == "bank" and name == "image" else 0
        features += _encoding_seconds(model, name, batch.items[name]) * (len(records) + draws)
        values = torch.randn(len(batch), frozen.n_features)
        sources[name] = partial(memory_batches, values, settings)
    trained = (model if mode == "online" else model.on_features()).to(model.device).train()
    loss = create_loss(config, batch.labels.shape[1])
    steps = Steps(trained, loss, TrainingSet(sources, torch.from_numpy(batch.labels)), settings)
    step = _step_seconds(steps)
    an_epoch = epoch_steps(len(train), settings, 0, steps.anchors, images)
    n_steps = settings.epochs * len(list(an_epoch))
    times = {
        "step": step,
        "features": features,
        "training": step * n_steps,
        "total": features + step * n_steps,
    }
    return {
        "parameters": parameters,
        "steps": n_steps,
        "epochs": settings.epochs,
        "rows": splits.counts(),
        "device": str(model.device),
        "features": mode,
        "peak_mb": _peak_megabytes(model.device),
        "seconds": {name: round(value, 4) for name, value in times.items()},
        "problems": list_doubts(config, records, splits.train),
    }


def _count_parameters(model: HashModel) -> dict[str, int]:
    counts = {"trainable": 0, "frozen": 0}
    for values in model.parameters():
        counts["trainable" if values.requires_grad else "frozen"] += values.numel()
    return counts


def _encoding_seconds(model: HashModel, modality: str, items: RawItems) -> float:
    """Return how long a frozen encoder takes for an item."""
    frozen = model.branch(modality).fixed
    assert frozen is not None
    # A few items take long enough on a CPU; a GPU has to be busy.
    few = items[: 64 if model.device.type == "cuda" else 8]
    seconds = _seconds(lambda: frozen(model.prepare(modality, few).to(model.device)), model.device)
    return seconds / len(few)


def _step_seconds(steps: Steps) -> float:
    """Return how long a step takes, in the middle epoch: some epochs are not augmented."""
    epoch = steps.settings.epochs // 2
    a_pass = _seconds(lambda: steps.run(steps.batches(epoch)), steps.device)
    return a_pass / max(1, len(steps.anchors))


def _peak_megabytes(device: torch.device) -> float | None:
    on_gpu = device.type == "cuda"
    peak = torch.cuda.max_memory_allocated(device) if on_gpu else peak_bytes()
    return None if peak is None else round(peak / 1e6, 1)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return how long ``work`` takes: the better of two times, after a run that warms up."""

    def finish() -> None:
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return min(timeit.repeat(finish, repeat=3, number=1)[1:])
