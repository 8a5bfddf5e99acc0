"""Estimate what a training takes: sizes, memory, and times measured on a few real batches."""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from channelhash.config import RunConfig, TrainSettings
from channelhash.data.collection import load_collection
from channelhash.data.records import Records
from channelhash.data.registry import make_splits
from channelhash.errors import InputError
from channelhash.losses import HashLoss
from channelhash.models import HashModel
from channelhash.runs.fit import check_pairs, create_loss, create_model, images_of_rows
from channelhash.training.batches import check_batch_size
from channelhash.training.distributed import local_device
from channelhash.training.feature_inputs import Mode, feature_mode, raw_source
from channelhash.training.mixup import mixed_images
from channelhash.training.sources import Held, Source
from channelhash.training.step import Steps, anchors_of, epoch_steps
from channelhash.utils.environment import peak_bytes, pick_device
from channelhash.utils.progress import Progress, StageProgress, no_progress, no_stage_progress

_MB = 1e6
#: What is measured takes about this long at most: each modality's encoder, and the steps.
_SECONDS = 10.0
_REPEATS = 3


class Cost(NamedTuple):
    """Seconds of one item, the median of those measured with ``items`` at a time.

    >>> Cost(0.5, items=8).items
    8
    """

    seconds: float
    items: int


def plan_run(config: RunConfig, progress: StageProgress = no_stage_progress) -> dict[str, Any]:
    """Return what `train.start_run` would take, without writing anything.

    Real training rows are read, encoded and trained on: more of them at a time, up to a batch, while that takes seconds
    (`measured_cost`); then the model is discarded.

    Args:
        config: of the training.
        progress: stage -> its callback.

    Returns:
        ``{"parameters": {"trainable": n, "frozen": n}, "steps": n, "epochs": n, "rows": {split: n}, "device": …,
        "features": online | cached | bank, "memory": {…_mb}, "measured": {part: items at a time}, "seconds": {"step":
        x, "features": x, "training": x, "total": x}}``. Times are of this machine
        as it is now, without reading the collection and without validation. ``features`` seconds fill cache and bank;
        they are saved where these exist already.

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
    building = progress("make the model")
    building(0, 1)  # a large one takes seconds
    model = create_model(config, train).to(local_device(pick_device(settings.device)))
    building(1, 1)
    mode = feature_mode(model, settings)
    batch = train.take(np.arange(settings.batch_size))
    costs = _encoding_costs(model, batch, mode, progress)
    loss = create_loss(config, batch.labels.shape[1])
    step = _step_cost(model, loss, batch, len(train), mode, settings, progress)
    draws = settings.epochs * len(train) if mode == "bank" else 0
    encoded = {modality: len(records) + (draws if modality == "image" else 0) for modality in costs}
    steps = len(list(epoch_steps(len(train), settings, 0, anchors_of(model, loss), images))) * settings.epochs
    features = sum(cost.seconds * encoded[modality] for modality, cost in costs.items())
    training = step.seconds * steps * settings.batch_size
    seconds = {"step": step.seconds * settings.batch_size, "features": features, "training": training}
    seconds["total"] = features + training
    parameters = list(model.parameters())
    return {
        "parameters": {
            "trainable": sum(p.numel() for p in parameters if p.requires_grad),
            "frozen": sum(p.numel() for p in parameters if not p.requires_grad),
        },
        "steps": steps,
        "epochs": settings.epochs,
        "rows": splits.counts(),
        "device": str(model.device),
        "features": mode,
        "memory": _memory(model, len(records), draws, settings.feature_dtype, model.device),
        "measured": {**{modality: cost.items for modality, cost in costs.items()}, "step": step.items},
        "seconds": {name: round(value, 4) for name, value in seconds.items()},
    }


def _encoding_costs(model: HashModel, batch: Records, mode: Mode, progress: StageProgress) -> dict[str, Cost]:
    """Return what a frozen encoder takes for an item, reading included; nothing where each step encodes."""
    costs = {}
    for modality in model.modalities if mode != "online" else ():
        if model.branch(modality).fixed:

            def encode(n: int, modality: str = modality) -> None:
                inputs = model.prepare(modality, batch.take(np.arange(n)).items[modality]).to(model.device)
                model.branch(modality).encoder(inputs)

            costs[modality] = measured_cost(encode, 1, len(batch), model.device, progress(f"measure {modality}s"))
    return costs


def _step_cost(
    model: HashModel,
    loss: HashLoss,
    batch: Records,
    n_rows: int,
    mode: Mode,
    settings: TrainSettings,
    progress: StageProgress,
) -> Cost:
    """Return what training takes for a row of a batch."""
    device = model.device
    trained = (model if mode == "online" else model.on_features()).to(device).train()
    steps = Steps(trained, loss, torch.from_numpy(batch.labels), settings, device)

    def train(n: int) -> None:
        rows = batch.take(np.arange(n))
        labels, own = torch.from_numpy(rows.labels), settings.model_copy(update={"batch_size": n})
        sources: dict[str, Source] = {}
        for modality in model.modalities:
            fixed = model.branch(modality).fixed
            sources[modality] = (
                Held(torch.randn(n, fixed.n_features), own)  # their values take no time
                if fixed and mode != "online"
                else raw_source(model, modality, rows, n_rows, own)
            )
        # One optimiser for all sizes: its memory is not filled anew.
        steps.labels, steps.settings = labels.to(device), own
        batches = steps.batches(mixed_images(sources, labels, own), settings.epochs // 2)
        for _ in range(max(1, len(steps.anchors))):
            steps.run([next(batches)])

    cost = measured_cost(train, min(2, len(batch)), len(batch), device, progress("measure steps"))
    return Cost(cost.seconds / max(1, len(steps.anchors)), cost.items)


def measured_cost(
    work: Callable[[int], object],
    first: int,
    last: int,
    device: torch.device,
    progress: Progress = no_progress,
    clock: Callable[[], float] = time.perf_counter,
) -> Cost:
    """Measure ``work(n)`` for n = ``first``, twice that, …, ``last``, as far as that takes some ten seconds.

    The first call, which warms up, does not count unless it is the only one. At ``last`` there are three.

    >>> now = iter([0.0, 9.0, 9.0, 13.0])
    >>> measured_cost(lambda n: None, 1, 64, torch.device("cpu"), clock=lambda: next(now))
    Cost(seconds=4.0, items=1)
    """
    measured: list[tuple[int, float]] = []
    n, spent = first, 0.0
    while True:
        began = clock()
        work(n)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        measured.append((n, clock() - began))
        spent += measured[-1][1]
        progress(n, last)
        warm = measured[1:]
        if warm and (n == last and len([size for size, _ in warm if size == last]) == _REPEATS):
            break
        larger = min(2 * n, last) if warm else n
        if spent + measured[-1][1] * larger / n > _SECONDS and (warm or spent > _SECONDS):
            break
        n = larger
    counted = measured[1:] or measured
    largest = counted[-1][0]
    return Cost(statistics.median(seconds / size for size, seconds in counted if size == largest), largest)


def _memory(model: HashModel, n: int, draws: int, dtype: str, device: torch.device) -> dict[str, float | None]:
    """Return megabytes: weights; gradients and Adam's two averages; the highest use so far; files of features."""
    weights = sum(values.nbytes for values in [*model.parameters(), *model.buffers()])
    trained = sum(values.nbytes for values in model.parameters() if values.requires_grad)
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak_bytes()
    size = 2 if dtype == "float16" else 4
    fixed = {modality: frozen for modality in model.modalities if (frozen := model.branch(modality).fixed)}
    cache = sum(n * size * frozen.n_features for frozen in fixed.values())
    bank = draws * size * fixed["image"].n_features if draws and "image" in fixed else 0
    sizes = {"model": weights, "gradients_and_optimizer": 3 * trained, "peak": peak, "cache": cache, "bank": bank}
    return {f"{name}_mb": None if size is None else round(size / _MB, 1) for name, size in sizes.items()}
