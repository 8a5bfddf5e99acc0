"""Choose the inputs of a training: raw items, cached features of frozen encoders, or a bank of augmented features."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from channelhash.codes import PackedCodes
from channelhash.config import TrainSettings
from channelhash.data.collection import Collection
from channelhash.data.image_loader import ImageFiles
from channelhash.data.records import Items, Records, are_files
from channelhash.errors import InputError
from channelhash.models.hash_model import HashModel, encode_items
from channelhash.training.batches import prepare_inputs
from channelhash.training.feature_cache import augmented_features, cached_features
from channelhash.training.mixup import mixed_images
from channelhash.training.sources import Bank, FromDisk, Held, Source, n_workers
from channelhash.utils.progress import Progress, StageProgress

Mode = Literal["online", "cached", "bank"]

#: Decoded images of a split up to this size stay in memory; more are read from disk each time.
_HELD_BYTES = 2 << 30


def feature_mode(model: HashModel, settings: TrainSettings) -> Mode:
    """Return where the inputs of frozen encoders come from, with ``auto`` resolved.

    Raises:
        InputError: the settings contradict one another, the model has no encoder whose features could be kept, or it
            reads no text whose tokens could be changed.

    >>> import numpy as np
    >>> from channelhash.models import MODELS
    >>> records = Records(("a", "b"), {"text": np.eye(2)}, np.ones((2, 1), dtype=bool), ("label",))
    >>> model = MODELS["features"].create(records, 8, hidden=[4])
    >>> feature_mode(model, TrainSettings())
    'online'
    """
    if settings.changes_tokens and "text" not in model.modalities:
        raise InputError("train: mask_tokens, replace_tokens and drop_tokens: the data has no texts; set them to 0")
    fixed = any(model.branch(modality).fixed for modality in model.modalities)
    augmented = settings.augment == "progressive"
    if settings.features == "auto":
        return "online" if not fixed else "bank" if augmented else "cached"
    if settings.features == "online":
        return "online"
    if not fixed:
        raise InputError(
            f"train.features is {settings.features}, but model {model.name!r} has no frozen backbone whose features "
            "stay the same; use online, or freeze it (model.freeze_backbone, model.frozen_batchnorm: eval)"
        )
    if settings.features == "cached" and augmented:
        raise InputError("train.features: cached features are not augmented; use bank, or set train.augment to none")
    if settings.features == "bank" and not augmented:
        raise InputError("train.features: a bank holds augmented features; set train.augment, or use cached")
    return settings.features


def feature_records(model: HashModel, records: Records, settings: TrainSettings, progress: StageProgress) -> Records:
    """Return ``records`` with features, memory-mapped from the cache, in place of what frozen encoders would read.

    An image that several rows show is read once; its features are then in memory, one row for each.

    The result goes with `HashModel.on_features`. The model has to be on the device that computes what is missing.
    """
    items: dict[str, Items] = dict(records.items)
    display = dict(records.display)
    for modality in model.modalities:
        branch = model.branch(modality)
        if branch.fixed and modality in items and len(records):
            distinct, rows = _distinct_files(items[modality])
            file = cached_features(
                branch,
                distinct,
                model.device,
                settings.feature_dtype,
                n_workers(settings),
                progress(f"{modality} features"),
            )
            items[modality] = file.rows if len(distinct) == len(rows) else file.rows[rows]
            if (values := records.display_values(modality)) is not None:
                display[modality] = values
    return replace(records, items=items, display=display)


def _distinct_files(items: Items) -> tuple[Items, NDArray[np.int64]]:
    """Return the items without repeated files, and which of those each item is."""
    if not are_files(items):
        return items, np.arange(len(items))
    number = {path: row for row, path in enumerate(dict.fromkeys(items))}
    return tuple(number), np.array([number[path] for path in items])


def collection_features(
    model: HashModel, collection: Collection, settings: TrainSettings, progress: StageProgress
) -> Records:
    """Return the `feature_records` of a collection, whose parts have a cache each."""
    return collection.map_parts(lambda part: feature_records(model, part, settings, progress))


def training_sources(
    model: HashModel,
    train: Records,
    features: Records,
    mode: Mode,
    settings: TrainSettings,
    progress: StageProgress,
) -> dict[str, Source]:
    """Return the source of each modality's training inputs.

    Args:
        model: complete, with its backbones, on its device.
        train: the training rows as they were loaded.
        features: the same rows after `feature_records`.
        mode: see `feature_mode`.
        settings: see `TrainSettings`.
        progress: stage -> its callback.
    """
    sources: dict[str, Source] = {}
    feature_model = model.on_features()
    for modality in model.modalities:
        branch, raw = model.branch(modality), train.items[modality]
        if branch.fixed and mode == "bank" and are_files(raw):
            paths: Any = raw
            rows: Any = features.items[modality]
            bank = augmented_features(
                branch, paths, rows, settings, model.device, n_workers(settings), progress("augmented features")
            )
            sources[modality] = Bank(bank, model.device)
        elif branch.fixed and mode != "online":
            sources[modality] = Held(
                feature_model.prepare(modality, features.items[modality]).to(model.device), settings
            )
        else:
            sources[modality] = raw_source(model, modality, train, len(train), settings, progress("read training rows"))
    return mixed_images(sources, torch.from_numpy(train.labels), settings)


def raw_source(
    model: HashModel,
    modality: str,
    train: Records,
    n_rows: int,
    settings: TrainSettings,
    progress: Progress | None = None,
) -> Source:
    """Return a source of raw items: in memory, or image files on the disk if ``n_rows`` are too many to hold."""
    raw = train.items[modality]
    if are_files(raw) and not _fits(model, modality, raw, n_rows):
        return FromDisk(ImageFiles(raw, model.branch(modality).prepare), settings)  # type: ignore[arg-type]
    return Held(prepare_inputs(model, train, modality, progress).to(model.device), settings)


def encoder_of_rows(
    model: HashModel, records: Records, settings: TrainSettings, progress: StageProgress
) -> Callable[[], dict[str, PackedCodes]]:
    """Return a function that encodes ``records`` as ``model`` is at the time; inputs that fit stay in memory."""
    held = {
        modality: prepare_inputs(model, records, modality, progress("read validation rows"))
        for modality in model.modalities
        if not are_files(records.items[modality]) or _fits(model, modality, records.items[modality], len(records))
    }

    def encode() -> dict[str, PackedCodes]:
        codes = model.encode_prepared(held)
        for modality in set(model.modalities) - set(held):
            codes[modality] = encode_items(model, modality, records.items[modality], n_workers(settings))
        return codes

    return encode


def _fits(model: HashModel, modality: str, items: Items, n_rows: int) -> bool:
    """Return whether the inputs of ``n_rows`` items like the first of ``items`` may stay in memory."""
    first: Tensor = model.prepare(modality, items[:1])
    return first.nbytes * n_rows <= _HELD_BYTES
