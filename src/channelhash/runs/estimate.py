"""Estimate what a training takes: sizes, memory, and times measured on a real batch."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from channelhash.config import RunConfig
from channelhash.data.collection import load_collection
from channelhash.data.registry import make_splits
from channelhash.errors import InputError
from channelhash.runs.fit import check_pairs, create_loss, create_model, training_images
from channelhash.training.distributed import local_device
from channelhash.training.feature_inputs import feature_mode, raw_source
from channelhash.training.sources import Held, Source
from channelhash.training.step import Steps, epoch_steps
from channelhash.utils.environment import peak_bytes, pick_device
from channelhash.utils.progress import Progress, StageProgress, no_progress, no_stage_progress

#: What is measured takes about this long at most: each modality's encoder, and the steps.
_SECONDS = 10.0


def plan_run(config: RunConfig, progress: StageProgress = no_stage_progress) -> dict[str, Any]:
    """Return what `train.start_run` would take, without writing anything.

    Real training rows are read, encoded and trained on, up to a batch at a time (`measured_cost`); then the model is
    discarded.

    Args:
        config: of the training.
        progress: stage -> its callback.

    Returns:
        ``{"parameters": {"trainable": n, "frozen": n}, "steps": n, "epochs": n, "rows": {split: n}, "device": …,
        "features": online | cached | bank, "memory": {"peak_mb", "cache_mb", "bank_mb"}, "measured": {part: items at a
        time}, "seconds": {"step": x, "features": x, "training": x, "total": x}}``. Times are of this machine as it is
        now, without reading the collection and without validation. ``features`` seconds fill cache and bank; they are
        saved where these exist already.

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
    mode, batch = feature_mode(model, settings), train.take(np.arange(settings.batch_size))
    fixed = {name: frozen for name in model.modalities if mode != "online" and (frozen := model.branch(name).fixed)}
    costs = {}
    for modality, frozen in fixed.items():

        def encode(n: int, modality: str = modality, encoder: torch.nn.Module = frozen) -> None:
            encoder(model.prepare(modality, batch.take(np.arange(n)).items[modality]).to(model.device))

        costs[modality] = measured_cost(encode, len(batch), model.device, progress(f"measure {modality}s"))
    trained = (model.on_features() if fixed else model).to(model.device).train()
    steps = Steps(trained, create_loss(config, batch.labels.shape[1]), torch.empty(0), settings, model.device)

    def step(n: int) -> None:
        rows, own = batch.take(np.arange(n)), settings.model_copy(update={"batch_size": n})
        sources: dict[str, Source] = {}
        for name in model.modalities:
            if name in fixed:  # their values take no time
                sources[name] = Held(torch.randn(n, fixed[name].n_features), own)
            else:
                sources[name] = raw_source(model, name, rows, len(train), own)
        # One optimiser for all sizes: its memory is not filled anew.
        steps.labels, steps.settings = torch.from_numpy(rows.labels).to(model.device), own
        steps.run(steps.batches(sources, settings.epochs // 2))

    seconds, n_measured = measured_cost(step, len(batch), model.device, progress("measure steps"))
    seconds *= settings.batch_size / max(1, len(steps.anchors))
    n_steps = len(list(epoch_steps(len(train), settings, 0, steps.anchors, images))) * settings.epochs
    draws = settings.epochs * len(train) if mode == "bank" and "image" in fixed else 0
    encoded = {name: len(records) + (draws if name == "image" else 0) for name in fixed}
    features, training = sum(costs[name][0] * encoded[name] for name in fixed), seconds * n_steps
    times = {"step": seconds, "features": features, "training": training, "total": features + training}
    size, parameters = np.dtype(settings.feature_dtype).itemsize, {"trainable": 0, "frozen": 0}
    for values in model.parameters():
        parameters["trainable" if values.requires_grad else "frozen"] += values.numel()
    memory = {
        "peak": torch.cuda.max_memory_allocated(model.device) if model.device.type == "cuda" else peak_bytes(),
        "cache": sum(len(records) * size * frozen.n_features for frozen in fixed.values()),
        "bank": draws * size * fixed["image"].n_features if draws else 0,
    }
    return {
        "parameters": parameters,
        "steps": n_steps,
        "epochs": settings.epochs,
        "rows": splits.counts(),
        "device": str(model.device),
        "features": mode,
        "memory": {f"{name}_mb": None if value is None else round(value / 1e6, 1) for name, value in memory.items()},
        "measured": {**{name: n for name, (_, n) in costs.items()}, "step": n_measured},
        "seconds": {name: round(value, 4) for name, value in times.items()},
    }


def measured_cost(
    work: Callable[[int], object],
    last: int,
    device: torch.device,
    progress: Progress = no_progress,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, int]:
    """Return seconds of ``work(n)`` for an item, and n: 1, 2, 4 … ``last``, as far as that takes some ten seconds.

    The first call warms up; it counts where it takes all that time.

    >>> now = iter([0.0, 4.0, 4.0, 9.0])
    >>> measured_cost(lambda n: None, 64, torch.device("cpu"), clock=lambda: next(now))
    (5.0, 1)
    """
    n, spent, warm = 1, 0.0, False
    while True:
        began = clock()
        work(n)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds = clock() - began
        spent += seconds
        progress(n, last)
        following = min(2 * n, last) if warm else n
        if (warm and n == last) or spent + seconds * following / n > _SECONDS:
            return seconds / n, n
        n, warm = following, True
