"""Estimate what a training takes: sizes, memory, and times measured on a few real batches."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from channelhash.config import RunConfig, TrainSettings
from channelhash.data.collection import load_collection
from channelhash.data.records import Records
from channelhash.data.settings import make_splits
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
from channelhash.utils.device import pick_device
from channelhash.utils.memory import peak_bytes
from channelhash.utils.progress import Progress, StageProgress, no_progress, no_stage_progress

_MB = 1e6
#: What is measured takes about this long at most: each modality's encoder, and the steps.
_SECONDS = 10.0
_REPEATS = 3
#: Parameters that are updated while steps are measured on a CPU: the gradients and Adam's two averages of a thousand
#: million are 12 GB, and to fill those takes longer than all that is measured.
_UPDATED = 100_000_000


class Cost(NamedTuple):
    """Seconds of one item: the median, the least and the most that were measured with ``items`` at a time.

    >>> Cost(0.5, 0.4, 0.6, items=8).items
    8
    """

    seconds: float
    least: float
    most: float
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
        x, "features": x, "training": x, "total": x, "total_least": x, "total_most": x}}``. Times are of this machine
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
    step, left_out = _step_cost(model, loss, batch, len(train), mode, settings, progress)
    draws = settings.epochs * len(train) if mode == "bank" else 0
    encoded = {modality: len(records) + (draws if modality == "image" else 0) for modality in costs}
    steps = len(list(epoch_steps(len(train), settings, 0, anchors_of(model, loss), images))) * settings.epochs
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
        "memory": _memory(model, len(records), draws, settings.feature_dtype, model.device, 3 * left_out),
        "measured": {**{modality: cost.items for modality, cost in costs.items()}, "step": step.items},
        "seconds": _seconds(step, steps * settings.batch_size, costs, encoded, settings.batch_size),
    }


def _seconds(
    step: Cost, trained: int, costs: Mapping[str, Cost], encoded: Mapping[str, int], batch_size: int
) -> dict[str, float]:
    """Add up times of ``trained`` rows in steps, and of the items of each modality that are ``encoded``."""

    def total(which: str) -> tuple[float, float]:
        features = sum(getattr(cost, which) * encoded[modality] for modality, cost in costs.items())
        return features, getattr(step, which) * trained

    features, training = total("seconds")
    seconds = {
        "step": step.seconds * batch_size,
        "features": features,
        "training": training,
        "total": features + training,
        "total_least": sum(total("least")),
        "total_most": sum(total("most")),
    }
    return {name: round(value, 4) for name, value in seconds.items()}


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
) -> tuple[Cost, int]:
    """Return what training takes for a row of a batch, and the bytes of parameters that no step updated meanwhile."""
    device = model.device
    trained = (model if mode == "online" else model.on_features()).to(device).train()
    steps = Steps(trained, loss, torch.from_numpy(batch.labels), settings, device)
    left_out = update_fewer(steps.optimizer, _UPDATED) if device.type == "cpu" else 0

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
    share = 1 / max(1, len(steps.anchors))
    rest = _seconds_of_the_rest(steps.optimizer, left_out) / len(batch)
    seconds, least, most = (share * part + rest for part in (cost.seconds, cost.least, cost.most))
    return Cost(seconds, least, most, cost.items), left_out


def update_fewer(optimizer: torch.optim.Optimizer, most: int) -> int:
    """Leave out parameters beyond ``most``: they are not updated, and their gradients go as soon as they are made.

    The first parameter of each group stays. Returns the bytes of those that are left out.

    >>> layers = [torch.nn.Linear(10, 10, bias=False) for _ in range(3)]
    >>> update_fewer(torch.optim.Adam([layer.weight for layer in layers]), 200)
    400
    """

    def drop_gradient(values: torch.Tensor) -> None:
        values.grad = None

    room, left_out = most, 0
    for group in optimizer.param_groups:
        kept: list[torch.Tensor] = []
        for values in group["params"]:
            if values.numel() <= room or not kept:
                kept.append(values)
                room -= values.numel()
            else:
                values.register_post_accumulate_grad_hook(drop_gradient)
                left_out += values.nbytes
        group["params"] = kept
    return left_out


def _seconds_of_the_rest(optimizer: torch.optim.Optimizer, left_out: int) -> float:
    """Return what an update of ``left_out`` bytes of parameters takes, by what one of the others takes."""
    if not left_out:
        return 0.0
    updated: int = sum(values.nbytes for group in optimizer.param_groups for values in group["params"])
    times = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        optimizer.step()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * left_out / updated


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
    Cost(seconds=4.0, least=4.0, most=4.0, items=1)
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
    return _cost(measured)


def _cost(measured: Sequence[tuple[int, float]]) -> Cost:
    """Return the cost by the largest number of items of (items, seconds), in the order in which they were measured.

    >>> _cost([(2, 9.0), (2, 3.0), (4, 5.0), (4, 6.0)])
    Cost(seconds=1.375, least=1.25, most=1.5, items=4)
    """
    counted = measured[1:] or measured
    largest = counted[-1][0]
    found = [seconds / items for items, seconds in counted if items == largest]
    return Cost(statistics.median(found), min(found), max(found), largest)


def _memory(
    model: HashModel, n: int, draws: int, dtype: str, device: torch.device, saved: int
) -> dict[str, float | None]:
    """Return megabytes: weights; gradients and Adam's two averages; the highest use; files of features.

    The highest use is that of the process so far, with the bytes of gradients and averages that were ``saved``.
    """
    weights = sum(values.nbytes for values in [*model.parameters(), *model.buffers()])
    trained = sum(values.nbytes for values in model.parameters() if values.requires_grad)
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak_bytes()
    peak = None if peak is None else peak + saved
    size = 2 if dtype == "float16" else 4
    fixed = {modality: frozen for modality in model.modalities if (frozen := model.branch(modality).fixed)}
    cache = sum(n * size * frozen.n_features for frozen in fixed.values())
    bank = draws * size * fixed["image"].n_features if draws and "image" in fixed else 0
    sizes = {"model": weights, "gradients_and_optimizer": 3 * trained, "peak": peak, "cache": cache, "bank": bank}
    return {f"{name}_mb": None if size is None else round(size / _MB, 1) for name, size in sizes.items()}
