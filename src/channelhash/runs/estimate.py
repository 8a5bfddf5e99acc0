"""Estimate what a training takes: sizes, memory, and times measured on a real batch."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from channelhash.config import RunConfig
from channelhash.data.collection import load_collection
from channelhash.data.records import Items
from channelhash.data.registry import make_splits
from channelhash.errors import InputError
from channelhash.runs.fit import check_pairs, create_loss, create_model, training_images
from channelhash.training.distributed import local_device
from channelhash.training.feature_inputs import feature_mode, raw_source
from channelhash.training.sources import Held, Source
from channelhash.training.step import Steps, epoch_steps
from channelhash.utils.environment import peak_bytes, pick_device

#: Items that frozen encoders are timed with on a CPU, where they take long enough, and on a GPU, which has to be busy.
_FEW = {"cpu": 8, "cuda": 64}


def plan_run(config: RunConfig) -> dict[str, Any]:
    """Return what `train.start_run` would take, without writing anything.

    A model encodes a few real training rows and takes two steps on a batch of them; then it is discarded.

    Returns:
        ``{"parameters": {"trainable": n, "frozen": n}, "steps": n, "epochs": n, "rows": {split: n}, "device": …,
        "features": online | cached | bank, "peak_mb": x, "seconds": {"step": x, "features": x, "training": x,
        "total": x}}``. Times are of this machine as it is now, without reading the collection and without validation.
        ``features`` seconds fill cache and bank; they are saved where these exist already.

    Raises:
        InputError: the configuration extends a run, or the data cannot be used.
    """
    if config.extend is not None:
        raise InputError("--dry-run: plans a training from the start, this configuration extends a run; leave it out")
    records, settings = load_collection(config.sources).records, config.train
    splits = make_splits(config.split, records)
    check_pairs(config, records)
    train = records.take(splits.train)
    images = training_images(train, settings)
    model = create_model(config, train).to(local_device(pick_device(settings.device)))
    parameters = {"trainable": 0, "frozen": 0}
    for values in model.parameters():
        parameters["trainable" if values.requires_grad else "frozen"] += values.numel()
    mode, batch = feature_mode(model, settings), train.take(np.arange(settings.batch_size))
    fixed = {name: frozen for name in model.modalities if mode != "online" and (frozen := model.branch(name).fixed)}
    features, sources = 0.0, dict[str, Source]()
    for name in model.modalities:
        if name not in fixed:
            sources[name] = raw_source(model, name, batch, len(train), settings)
            continue
        items = batch.items[name][: _FEW.get(model.device.type, 8)]

        def encode(name: str = name, items: Items = items) -> None:
            fixed[name](model.prepare(name, items).to(model.device))

        draws = settings.epochs * len(train) if mode == "bank" and name == "image" else 0
        features += _seconds(encode, model.device) / len(items) * (len(records) + draws)
        sources[name] = Held(torch.randn(len(batch), fixed[name].n_features), settings)
    trained = (model.on_features() if fixed else model).to(model.device).train()
    loss = create_loss(config, batch.labels.shape[1])
    steps = Steps(trained, loss, torch.from_numpy(batch.labels), settings, model.device)
    epoch = settings.epochs // 2  # which is augmented, if any is
    step = _seconds(lambda: steps.run(steps.batches(sources, epoch)), model.device) / max(1, len(steps.anchors))
    n_steps = len(list(epoch_steps(len(train), settings, 0, steps.anchors, images))) * settings.epochs
    times = {"step": step, "features": features, "training": step * n_steps, "total": features + step * n_steps}
    peak = torch.cuda.max_memory_allocated(model.device) if model.device.type == "cuda" else peak_bytes()
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
    """Return how long ``work`` takes the second time."""
    for _ in range(2):
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds = time.perf_counter() - began
    return seconds
