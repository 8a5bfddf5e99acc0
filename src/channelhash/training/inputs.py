"""Choose the inputs of a training: raw items, cached features of frozen encoders, or a bank of
augmented features.

The cache of a collection is shared by everything that encodes it. The bank of a training set is
shared by all losses, code lengths and training seeds, because the augmentation has a seed of its
own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from channelhash.augment.progressive import Progression
from channelhash.codes import PackedCodes
from channelhash.config import TrainSettings
from channelhash.data.collection import Collection
from channelhash.data.images import ImageFiles, image_batches
from channelhash.data.records import RawItems, Records, are_files, items_hash
from channelhash.errors import InputError
from channelhash.models.backbones import memory_advice, unit_pixels
from channelhash.models.hash_model import Branch, HashModel, encode_items
from channelhash.utils.array_files import SparseRows
from channelhash.utils.files import cache_folder
from channelhash.utils.image_files import PREPROCESSING
from channelhash.utils.machine import usable_cores
from channelhash.utils.progress import Progress, StageProgress, no_progress
from channelhash.utils.row_file import RowFile, StoredRows, row_file
from channelhash.utils.seeds import generator


class _AugmentedImages(Dataset[Tensor]):
    """Images by (epoch, sample), decoded, resized and augmented: ``(3, s, s)`` floats in [0, 1].

    A worker needs only those two numbers: every draw is a function of (seed, epoch, sample).
    """

    def __init__(self, images: ImageFiles | Tensor, settings: TrainSettings) -> None:
        self.images = images
        self.progression = Progression(
            settings.augment_seed, len(images), settings.epochs, settings.easy_weights
        )

    def __getitem__(self, draw: tuple[int, int]) -> Tensor:
        return self.progression.augment(lambda sample: unit_pixels(self.images[sample]), *draw)


#: (epoch, row numbers of each batch) -> the inputs of one modality for each batch, in order. Every
#: random change is a function of (seed, epoch, row).
BatchSource = Callable[[int, Sequence[Tensor]], Iterator[Tensor]]


class TrainingSet(NamedTuple):
    """What a model is trained on, row by row.

    Attributes:
        sources: modality -> where the inputs of ``n`` rows come from.
        targets: ``(n, …)`` what the loss compares the outputs of those rows with: labels, or a
            teacher's outputs.
        images: ``(n,)`` which of the images 0 … m − 1 each row shows; None where each row shows its
            own.

    >>> features = torch.tensor([[0.5, 1.0], [1.5, 2.0]])
    >>> source = partial(memory_batches, features, TrainSettings())
    >>> data = TrainingSet({"text": source}, torch.tensor([[True], [False]]))
    >>> len(data.targets)
    2
    """

    sources: Mapping[str, BatchSource]
    targets: Tensor
    images: Tensor | None = None


def memory_batches(
    values: Tensor, settings: TrainSettings, epoch: int, batches: Sequence[Tensor]
) -> Iterator[Tensor]:
    """Yield batches of inputs that are in memory for all rows: pixels (uint8), token ids (int32),
    or features.

    Pixels are augmented progressively if the settings say so; other inputs are never changed.

    >>> values = torch.tensor([[1.0], [2.0], [3.0]])
    >>> batches = memory_batches(values, TrainSettings(), 0, [torch.tensor([2, 0])])
    >>> [inputs.tolist() for inputs in batches]
    [[[3.0], [1.0]]]
    """
    if values.dtype == torch.uint8 and settings.augment == "progressive":
        augmented = _AugmentedImages(values, settings)
        for rows in batches:
            yield torch.stack([augmented[epoch, row] for row in rows.tolist()])
    else:
        yield from (values[rows] for rows in batches)


def _dense_batches(
    model: HashModel, modality: str, values: SparseRows, epoch: int, batches: Sequence[Tensor]
) -> Iterator[Tensor]:
    """Yield batches of sparse features, each made dense when it is needed."""
    for rows in batches:
        yield model.prepare(modality, values[rows.cpu().numpy()]).to(model.device)


def _disk_batches(
    images: ImageFiles, settings: TrainSettings, epoch: int, batches: Sequence[Tensor]
) -> Iterator[Tensor]:
    """Yield batches of images that worker processes read from their files, with the same draws as
    `memory_batches`.
    """
    if settings.augment == "none":
        return image_batches(images, [rows.tolist() for rows in batches], _n_workers(settings))
    draws = []
    for rows in batches:
        draws.append([(epoch, row) for row in rows.tolist()])
    return image_batches(_AugmentedImages(images, settings), draws, _n_workers(settings))


def _bank_batches(
    file: RowFile, device: torch.device, epoch: int, batches: Sequence[Tensor]
) -> Iterator[Tensor]:
    """Yield batches from a bank, which has a block of features for each epoch; only the block of
    this epoch is on ``device``.
    """
    values = torch.from_numpy(file.block(epoch)).float().to(device)
    yield from (values[rows] for rows in batches)


def epoch_steps(
    n: int,
    settings: TrainSettings,
    epoch: int,
    anchors: tuple[str, ...],
    images: Tensor | None = None,
) -> Iterator[tuple[Tensor, str | None]]:
    """Yield the (rows, anchor) of every batch of an epoch.

    Without anchors an epoch is one pass over the rows. With anchors it is a pass for each in turn,
    or one pass in which each batch serves all of them. For ``images`` see `_epoch_batches`.

    >>> settings = TrainSettings(batch_size=2)
    >>> [(rows.tolist(), anchor) for rows, anchor in epoch_steps(2, settings, 0, ("image", "text"))]
    [([0, 1], 'image'), ([0, 1], 'text')]
    """
    batches = partial(_epoch_batches, n, images, settings.batch_size, settings.seed)
    if anchors and settings.alternate == "epoch":
        for anchor in anchors:
            for rows in batches(epoch, anchor):
                yield rows, anchor
    else:
        for rows in batches(epoch):
            yield from ((rows, anchor) for anchor in anchors or (None,))


def _epoch_batches(
    n: int, images: Tensor | None, batch_size: int, seed: int, *names: str | int
) -> Iterator[Tensor]:
    """Yield row numbers of each batch of one pass over ``n`` rows, or with one row of each of the
    ``images``.

    Order and rows are drawn from (``seed``, ``names``). The last partial batch is dropped (§ 6):
    the loss is divided by n², so a small batch would weigh differently. Of fewer rows than a batch
    has, all are the one batch.

    >>> [rows.tolist() for rows in _epoch_batches(5, None, 2, 0, "epoch", 0)]
    [[0, 3], [2, 4]]
    >>> images = torch.tensor([0, 0, 0, 1, 2])
    >>> [rows.tolist() for rows in _epoch_batches(5, images, 2, 0, "epoch", 0)]
    [[1, 4]]
    """
    rows: NDArray[np.int64] = np.arange(n)
    if images is not None:
        shuffled = generator(seed, "captions", *names).permutation(n)
        _, first = np.unique(images.numpy()[shuffled], return_index=True)
        rows = shuffled[first]  # the first row that shows each image
    order = generator(seed, "batches", *names).permutation(len(rows))
    batch_size = min(batch_size, len(rows))
    for start in range(0, len(rows) - batch_size + 1, batch_size):
        yield torch.from_numpy(np.sort(rows[order[start : start + batch_size]]))


def _n_workers(settings: TrainSettings) -> int:
    """Return the number of processes that read images.

    >>> _n_workers(TrainSettings(workers=2))
    2
    """
    return usable_cores() if settings.workers is None else settings.workers


_Mode = Literal["online", "cached", "bank"]

#: Decoded images of a split up to this size stay in memory; more are read from disk each time.
_HELD_BYTES = 2 << 30
# Rows prepared at a time, so that progress shows and decoded images are short-lived.
_CHUNK = 512


def prepare_inputs(
    model: HashModel, records: Records, modality: str, progress: Progress = no_progress
) -> Tensor:
    """Return the model's inputs for a modality of ``records``, in memory: pixels, token ids or
    features.

    >>> from channelhash.models import MODELS
    >>> records = Records(("a", "b"), {"text": np.eye(2)}, np.ones((2, 1), dtype=bool), ("label",))
    >>> model = MODELS["features"].create(records, 8, hidden=[4])
    >>> prepare_inputs(model, records, "text").tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    items = records.items[modality]
    prepare_collection = model.branch(modality).prepare_collection
    if prepare_collection:
        return prepare_collection(items, progress)
    chunks = []
    for start in range(0, len(items), _CHUNK):
        chunks.append(model.prepare(modality, items[start : start + _CHUNK]))
        progress(min(start + _CHUNK, len(items)), len(items))
    return torch.cat(chunks)


def feature_mode(model: HashModel, settings: TrainSettings) -> _Mode:
    """Return where the inputs of frozen encoders come from, with ``auto`` resolved.

    >>> from channelhash.models import MODELS
    >>> records = Records(("a", "b"), {"text": np.eye(2)}, np.ones((2, 1), dtype=bool), ("label",))
    >>> model = MODELS["features"].create(records, 8, hidden=[4])
    >>> feature_mode(model, TrainSettings())
    'online'
    """
    fixed = any(model.branch(modality).fixed for modality in model.modalities)
    augmented = settings.augment == "progressive"
    if settings.features == "auto":
        if not fixed:
            return "online"
        return "bank" if augmented else "cached"
    _check_features(settings, model.name, fixed, augmented)
    return settings.features


def _check_features(settings: TrainSettings, name: str, fixed: bool, augmented: bool) -> None:
    """Raise `InputError` unless ``train.features`` fits the model ``name`` and the augmentation."""
    if settings.features == "online":
        return
    if not fixed:
        raise InputError(
            f"train.features is {settings.features}, but model {name!r} has no frozen "
            "backbone whose features stay the same; use online, or freeze it "
            "(model.freeze_backbone, model.frozen_batchnorm: eval)"
        )
    if settings.features == "cached" and augmented:
        raise InputError(
            "train.features: cached features are not augmented; use bank, or set train.augment to "
            "none"
        )
    if settings.features == "bank" and not augmented:
        raise InputError(
            "train.features: a bank holds augmented features; set train.augment, or use cached"
        )


def feature_records(
    model: HashModel, records: Records, settings: TrainSettings, progress: StageProgress
) -> Records:
    """Return ``records`` with features in place of the raw items that frozen encoders read; the
    features are memory-mapped from the cache.

    An image that several rows show is read once; its features are then in memory, one row for each.
    The result is for `HashModel.on_features`. Missing features are computed on the model's device.
    """
    items: dict[str, RawItems] = dict(records.items)
    display = dict(records.display)
    for modality in model.modalities:
        branch = model.branch(modality)
        if branch.fixed and modality in items and len(records):
            distinct, rows = _distinct_files(items[modality])
            file = _cached_features(branch, distinct, settings, progress(f"{modality} features"))
            items[modality] = file.rows if len(distinct) == len(rows) else file.rows[rows]
            shown = records.display_values(modality)
            if shown is not None:
                display[modality] = shown
    return replace(records, items=items, display=display)


def _distinct_files(items: RawItems) -> tuple[RawItems, NDArray[np.int64]]:
    """Return the items without repeated files, and for each item its place among them."""
    if not are_files(items):
        return items, np.arange(len(items))
    number = {path: row for row, path in enumerate(dict.fromkeys(items))}
    return tuple(number), np.array([number[path] for path in items])


def collection_features(
    model: HashModel, collection: Collection, settings: TrainSettings, progress: StageProgress
) -> Records:
    """Return the `feature_records` of a collection, whose parts have a cache each."""
    parts = [feature_records(model, part, settings, progress) for part in collection.parts]
    return Collection(tuple(parts)).records


def training_sources(
    model: HashModel,
    train: Records,
    features: Records,
    mode: _Mode,
    settings: TrainSettings,
    progress: StageProgress,
) -> dict[str, BatchSource]:
    """Return the source of each modality's training inputs."""
    sources: dict[str, BatchSource] = {}
    feature_model = model.on_features()
    device = model.device
    for modality in model.modalities:
        branch = model.branch(modality)
        raw = train.items[modality]
        rows: Any = features.items[modality]
        if branch.fixed and mode == "bank" and are_files(raw):
            bank = _augmented_features(branch, raw, rows, settings, progress("augmented features"))
            sources[modality] = partial(_bank_batches, bank, device)
        elif branch.fixed and mode != "online":
            sources[modality] = partial(
                memory_batches, feature_model.prepare(modality, rows).to(device), settings
            )
        else:
            sources[modality] = raw_source(
                model, modality, train, len(train), settings, progress("read training rows")
            )
    return sources


def raw_source(
    model: HashModel,
    modality: str,
    train: Records,
    n: int,
    settings: TrainSettings,
    progress: Progress = no_progress,
) -> BatchSource:
    """Return a source of raw items: in memory, or image files on the disk if ``n`` rows are too
    many to hold.
    """
    raw = train.items[modality]
    if isinstance(raw, SparseRows):
        return partial(_dense_batches, model, modality, raw)
    if are_files(raw) and not _fits(model, modality, raw, n):
        return partial(_disk_batches, ImageFiles(raw, model.branch(modality).prepare), settings)
    held = prepare_inputs(model, train, modality, progress).to(model.device)
    return partial(memory_batches, held, settings)


def encoder_of_rows(
    model: HashModel, records: Records, settings: TrainSettings, progress: StageProgress
) -> Callable[[], dict[str, PackedCodes]]:
    """Return a function that encodes ``records`` by the present state of ``model``; inputs that fit
    stay in memory.
    """
    inputs = {}
    for modality in model.modalities:
        if _fits(model, modality, records.items[modality], len(records)):
            report = progress("read validation rows")
            inputs[modality] = prepare_inputs(model, records, modality, report)

    def encode() -> dict[str, PackedCodes]:
        codes = model.encode_prepared(inputs)
        for modality in set(model.modalities) - set(inputs):
            items = records.items[modality]
            codes[modality] = encode_items(model, modality, items, _n_workers(settings))
        return codes

    return encode


def _fits(model: HashModel, modality: str, items: RawItems, n_rows: int) -> bool:
    """Return whether inputs stay in memory: of few images, and of all dense features and texts."""
    if isinstance(items, SparseRows):
        return False
    if not are_files(items):
        return True
    return model.prepare(modality, items[:1]).nbytes * n_rows <= _HELD_BYTES


#: Rows that a frozen encoder takes at a time.
_BATCH = 128
#: Rows between two checkpoints of a build.
_BLOCK = 8 * _BATCH
#: Part of a bank's key: another number where a draw gives another image.
_DRAWS = "augmentation 1"


def _cached_features(
    branch: Branch, items: RawItems, settings: TrainSettings, progress: Progress = no_progress
) -> RowFile:
    """Return features of ``items`` as they are, one row each, checked against their checksums."""
    n = len(items)
    sizes = [min(_BLOCK, n - start) for start in range(0, n, _BLOCK)]

    def compute(first: int) -> Iterator[StoredRows]:
        batches = [
            range(start, min(start + _BATCH, n)) for start in range(first * _BLOCK, n, _BATCH)
        ]
        if are_files(items):
            inputs = image_batches(ImageFiles(items, branch.prepare), batches, _n_workers(settings))
        else:
            inputs = (branch.prepare(items[rows.start : rows.stop]) for rows in batches)
        return _blocks(_encoded(branch, inputs), sizes[first:])

    return _feature_file("features", branch, items, {}, sizes, compute, settings, progress).check()


def _augmented_features(
    branch: Branch,
    paths: Sequence[Path],
    plain: StoredRows,
    settings: TrainSettings,
    progress: Progress = no_progress,
) -> RowFile:
    """Return the bank: features of every (epoch, sample) draw of a training's progressive
    augmentation.

    Images that an epoch's draw leaves as they are take their features from ``plain``.
    """
    n = len(paths)
    epochs = settings.epochs
    images = _AugmentedImages(ImageFiles(paths, branch.prepare), settings)
    draw = {
        "draws": f"{_DRAWS}, seed {settings.augment_seed}, {epochs} epochs, {settings.easy_weights}"
    }

    @cache
    def changed(epoch: int) -> list[int]:
        return [row for row in range(n) if images.progression.plan(epoch, row)]

    def changed_from(first: int) -> Iterator[tuple[int, int]]:
        # Drawn when they are needed, not before: 2,000,000 draws take a minute.
        for epoch in range(first, epochs):
            for row in changed(epoch):
                yield epoch, row

    def compute(first: int) -> Iterator[StoredRows]:
        draws = changed_from(first)
        batches = iter(lambda: list(islice(draws, _BATCH)), [])
        encoded = _encoded(branch, image_batches(images, batches, _n_workers(settings)))
        features = _blocks(encoded, (len(changed(epoch)) for epoch in range(first, epochs)))
        for epoch, values in zip(range(first, epochs), features, strict=True):
            block = np.array(plain, dtype=np.float32)
            if changed(epoch):
                block[changed(epoch)] = values
            yield block

    return _feature_file("bank", branch, paths, draw, [n] * epochs, compute, settings, progress)


def _feature_file(
    name: str,
    branch: Branch,
    items: RawItems,
    draw: Mapping[str, str],
    sizes: Sequence[int],
    compute: Callable[[int], Iterator[StoredRows]],
    settings: TrainSettings,
    progress: Progress,
) -> RowFile:
    """Return the file of features that a frozen encoder makes of a ``draw`` of ``items``, see
    `row_file`.
    """
    frozen = branch.fixed
    assert frozen is not None
    folder = cache_folder() / "features"
    key = {**frozen.identity(), "items": items_hash(items), **draw}
    if are_files(items):
        key["preprocessing"] = str(PREPROCESSING)
    return row_file(
        folder / name, key, sizes, frozen.n_features, settings.feature_dtype, compute, progress
    )


def _encoded(branch: Branch, batches: Iterator[Tensor]) -> Iterator[StoredRows]:
    """Yield features of each batch."""
    device = next(branch.parameters()).device
    advice = (
        f"in the backbone with {_BATCH} items at a time; use a smaller model.backbone, "
        "train.precision bfloat16, or another train.device"
    )
    for inputs in batches:
        with memory_advice(advice):
            features = branch.encoder(inputs.to(device, non_blocking=True)).cpu()
        yield features.numpy()


def _blocks(parts: Iterator[StoredRows], sizes: Iterable[int]) -> Iterator[StoredRows]:
    """Cut the rows of ``parts`` into blocks of other ``sizes``."""
    rows = chain.from_iterable(parts)
    for size in sizes:
        yield np.array(list(islice(rows, size)), dtype=np.float32)
