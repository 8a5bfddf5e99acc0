"""Estimate what a training takes: sizes, memory, and times measured on a few real batches."""

import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from channelhash.config import RunConfig, TrainSettings
from channelhash.data.collection import load_collection
from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.models import HashModel
from channelhash.runs.build import check_pairs, create_loss, create_model, make_splits
from channelhash.runs.fit import images_of_rows
from channelhash.training.batches import check_batch_size
from channelhash.training.distributed import local_device
from channelhash.training.feature_inputs import Mode, feature_mode, raw_source
from channelhash.training.mixup import mixed_images
from channelhash.training.sources import Held, Source
from channelhash.training.step import Steps, anchors_of, epoch_steps
from channelhash.utils.device import pick_device

_MB = 1e6
_REPEATS = 3


def plan_run(config: RunConfig) -> dict[str, Any]:
    """Return what `train.start_run` would take, without writing anything.

    One batch of real training rows is read, encoded and trained on a few times; then the model is discarded.

    Returns:
        ``{"parameters": {"trainable": n, "frozen": n}, "steps": n, "epochs": n, "rows": {split: n}, "device": …,
        "features": online | cached | bank, "memory": {…_mb}, "seconds": {"step": x, "features": x, "training": x,
        "total": x}}``. Times are of this machine as it is now, without reading the collection and without validation.
        ``features`` seconds fill cache and bank; they are saved where these exist already.

    Raises:
        InputError: the configuration extends a run, or the data cannot be used.
    """
    if config.extend is not None:
        raise InputError("--dry-run: plans a training from the start, this configuration extends a run; leave it out")
    records = load_collection(config.sources).records
    splits = make_splits(config.split, records)
    check_pairs(config, records)
    settings = config.train
    train = records.take(splits.train)
    images = images_of_rows(train) if settings.captions == "one" else None
    check_batch_size(len(train) if images is None else int(images.max()) + 1, settings.batch_size)
    device = local_device(pick_device(settings.device))
    model = create_model(config, train).to(device)
    mode = feature_mode(model, settings)
    batch = train.take(np.arange(settings.batch_size))
    sources, per_item = _sources(model, len(train), batch, mode, settings)
    loss = create_loss(config, batch.labels.shape[1])
    trained = (model if mode == "online" else model.on_features()).to(device).train()
    steps = Steps(trained, loss, torch.from_numpy(batch.labels), settings, device)
    step = _measured(lambda: steps.run(steps.batches(sources, settings.epochs // 2)), device)
    per_epoch = len(list(epoch_steps(len(train), settings, 0, anchors_of(model, loss), images)))
    in_sample = len(list(epoch_steps(len(batch), settings, 0, steps.anchors)))
    seconds = {"step": step / in_sample}
    draws = settings.epochs * len(train) if mode == "bank" else 0
    seconds["features"] = sum(
        cost * (len(records) + (draws if modality == "image" else 0)) for modality, cost in per_item.items()
    )
    seconds["training"] = seconds["step"] * per_epoch * settings.epochs
    seconds["total"] = seconds["features"] + seconds["training"]
    parameters = list(model.parameters())
    return {
        "parameters": {
            "trainable": sum(p.numel() for p in parameters if p.requires_grad),
            "frozen": sum(p.numel() for p in parameters if not p.requires_grad),
        },
        "steps": per_epoch * settings.epochs,
        "epochs": settings.epochs,
        "rows": splits.counts(),
        "device": str(device),
        "features": mode,
        "memory": _memory(model, len(records), draws, settings.feature_dtype, device),
        "seconds": {name: round(value, 4) for name, value in seconds.items()},
    }


def _sources(
    model: HashModel, n_rows: int, batch: Records, mode: Mode, settings: TrainSettings
) -> tuple[dict[str, Source], dict[str, float]]:
    """Return sources of one batch, and the seconds that a frozen encoder takes for an item, reading included."""
    sources: dict[str, Source] = {}
    per_item: dict[str, float] = {}
    for modality in model.modalities:
        branch, items = model.branch(modality), batch.items[modality]
        if not branch.fixed or mode == "online":
            sources[modality] = raw_source(model, modality, batch, n_rows, settings)
            continue

        def encode(modality: str = modality, items: Any = items) -> torch.Tensor:
            inputs = model.prepare(modality, items).to(model.device)
            features: torch.Tensor = model.branch(modality).encoder(inputs)
            return features

        per_item[modality] = _measured(encode, model.device, repeats=1) / len(batch)
        sources[modality] = Held(encode(), settings)
    return mixed_images(sources, torch.from_numpy(batch.labels), settings), per_item


def _measured(work: Callable[[], object], device: torch.device, repeats: int = _REPEATS) -> float:
    """Return the median seconds of ``work`` after a warm-up."""
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def _memory(model: HashModel, n: int, draws: int, dtype: str, device: torch.device) -> dict[str, float]:
    """Return megabytes: weights; gradients and Adam's two averages; the highest use so far; files of features."""
    weights = sum(values.nbytes for values in [*model.parameters(), *model.buffers()])
    trained = sum(values.nbytes for values in model.parameters() if values.requires_grad)
    peak = (
        torch.cuda.max_memory_allocated(device)
        if device.type == "cuda"
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    )
    size = 2 if dtype == "float16" else 4
    fixed = {modality: frozen for modality in model.modalities if (frozen := model.branch(modality).fixed)}
    cache = sum(n * size * frozen.n_features for frozen in fixed.values())
    bank = draws * size * fixed["image"].n_features if draws and "image" in fixed else 0
    sizes = {"model": weights, "gradients_and_optimizer": 3 * trained, "peak": peak, "cache": cache, "bank": bank}
    return {f"{name}_mb": round(size / _MB, 1) for name, size in sizes.items()}
