"""Say what a run would do, before it is started: sizes, steps, time and memory."""

import timeit
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from channelhash.config import (
    RunConfig,
)
from channelhash.data.collection import Collection
from channelhash.data.records import Items
from channelhash.errors import InputError
from channelhash.runs.create import check_pairs, create_loss, create_model
from channelhash.runs.folder import (
    check_evaluable,
)
from channelhash.training.distributed import local_device
from channelhash.training.inputs import (
    Source,
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
            "--dry-run: plans a training from the start, this configuration extends a run; leave "
            "it out"
        )
    records = Collection.load(config.sources).records
    settings = config.train
    splits = config.split.draw(records)
    check_evaluable(records, splits)
    check_pairs(config, records)
    train = records.take(splits.train)
    images = training_images(train, settings)
    model = create_model(config, train).to(local_device(settings.device))
    parameters = {"trainable": 0, "frozen": 0}
    for values in model.parameters():
        parameters["trainable" if values.requires_grad else "frozen"] += values.numel()
    mode = feature_mode(model, settings)
    batch = train.take(np.arange(settings.batch_size))
    fixed = {
        name: frozen
        for name in model.modalities
        if mode != "online" and (frozen := model.branch(name).fixed)
    }
    features = 0.0
    sources = dict[str, Source]()
    for name in model.modalities:
        if name not in fixed:
            sources[name] = raw_source(model, name, batch, len(train), settings)
            continue
        # Few take long enough on a CPU; a GPU has to be busy.
        items = batch.items[name][: 64 if model.device.type == "cuda" else 8]

        def encode(name: str = name, items: Items = items) -> None:
            fixed[name](model.prepare(name, items).to(model.device))

        draws = settings.epochs * len(train) if mode == "bank" and name == "image" else 0
        features += _seconds(encode, model.device) / len(items) * (len(records) + draws)
        sources[name] = partial(
            memory_batches, torch.randn(len(batch), fixed[name].n_features), settings
        )
    trained = (model.on_features() if fixed else model).to(model.device).train()
    loss = create_loss(config, batch.labels.shape[1])
    steps = Steps(trained, loss, TrainingSet(sources, torch.from_numpy(batch.labels)), settings)
    epoch = settings.epochs // 2  # which is augmented, if any is
    step = _seconds(lambda: steps.run(steps.batches(epoch)), model.device) / max(
        1, len(steps.anchors)
    )
    n_steps = (
        len(list(epoch_steps(len(train), settings, 0, steps.anchors, images))) * settings.epochs
    )
    times = {
        "step": step,
        "features": features,
        "training": step * n_steps,
        "total": features + step * n_steps,
    }
    peak = (
        torch.cuda.max_memory_allocated(model.device)
        if model.device.type == "cuda"
        else peak_bytes()
    )
    return {
        "parameters": parameters,
        "steps": n_steps,
        "epochs": settings.epochs,
        "rows": splits.counts(),
        "device": str(model.device),
        "features": mode,
        "peak_mb": None if peak is None else round(peak / 1e6, 1),
        "seconds": {name: round(value, 4) for name, value in times.items()},
    }


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return how long ``work`` takes: the better one of two times, after one that warms up."""

    def finish() -> None:
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return min(timeit.repeat(finish, repeat=3, number=1)[1:])
