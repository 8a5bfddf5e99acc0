"""Compute features of a frozen encoder once: of every item as it is, and of every augmented draw of a training.

The cache of a collection is shared by everything that encodes it. The bank of a training set is shared by all losses,
code lengths and training seeds, because the augmentation has a seed of its own.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from channelhash.augment.progressive import Progression, plan
from channelhash.config import TrainSettings
from channelhash.data.image_loader import ImageFiles, image_batches
from channelhash.data.records import Items, are_files
from channelhash.errors import InputError
from channelhash.models.backbones import memory_advice
from channelhash.models.hash_model import Branch
from channelhash.training.sources import AugmentedImages
from channelhash.utils.files import cache_folder, content_hash, write_text
from channelhash.utils.image_files import PREPROCESSING
from channelhash.utils.npy_files import DType, RowFile, Rows, row_file
from channelhash.utils.progress import Progress

_BATCH = 128  # rows that the encoder sees at a time
_BLOCK = 8 * _BATCH  # rows between two checkpoints of a build
_DRAWS = "augmentation 1"  # part of a bank's key: another number where a draw gives another image


def cached_features(
    branch: Branch,
    items: Items,
    device: torch.device,
    dtype: DType = "float32",
    workers: int = 0,
    progress: Progress | None = None,
) -> RowFile:
    """Return features of ``items`` as they are, one row each, checked against their checksums.

    Args:
        branch: its fixed encoder computes the features (see `Branch.fixed`).
        items: ``n`` image files or texts.
        device: where to compute missing features.
        dtype: type of the features on the disk.
        workers: processes that read images.
        progress: called with (rows done, n) while features are computed.
    """
    frozen = branch.fixed
    assert frozen is not None
    folder = cache_folder() / "features"
    key = {**frozen.identity(), "items": collection_hash(items, folder)}
    if are_files(items):
        key["preprocessing"] = str(PREPROCESSING)
    sizes = _parts(len(items), _BLOCK)

    def compute(first: int) -> Iterator[Rows]:
        start = sum(sizes[:first])
        batches = [
            range(start + low, start + low + size)
            for low, size in zip(range(0, len(items) - start, _BATCH), _parts(len(items) - start, _BATCH), strict=True)
        ]
        inputs = (
            _image_inputs(branch, items, batches, workers) if are_files(items) else _text_inputs(branch, items, batches)
        )
        return _blocks(_encoded(branch, inputs, device), sizes[first:])

    return row_file(folder / "features", key, sizes, frozen.n_features, dtype, compute, progress).check()


def augmented_features(
    branch: Branch,
    paths: Sequence[Path],
    plain: Rows,
    settings: TrainSettings,
    device: torch.device,
    workers: int = 0,
    progress: Progress | None = None,
) -> RowFile:
    """Return the bank: features of every (epoch, sample) draw of a training's progressive augmentation.

    Images that an epoch's draw leaves as they are take their features from ``plain``.

    Args:
        branch: its fixed encoder computes the features.
        paths: files of the ``n`` training rows.
        plain: ``(n, d)`` features of the same rows, not augmented.
        settings: the training: its epochs, ``augment_seed``, ``easy_weights`` and ``feature_dtype``.
        device: where to compute missing features.
        workers: processes that read and augment images.
        progress: called with (draws done, epochs · n).

    Returns:
        A file whose block ``e`` holds the features ``(n, d)`` of epoch e.
    """
    frozen = branch.fixed
    assert frozen is not None
    folder = cache_folder() / "features"
    n, epochs, seed = len(paths), settings.epochs, settings.augment_seed
    progression = Progression(seed, n, epochs, settings.easy_weights)
    key = {
        **frozen.identity(),
        "items": collection_hash(paths, folder),
        "preprocessing": str(PREPROCESSING),
        "draws": f"{_DRAWS}, seed {seed}, {epochs} epochs, {settings.easy_weights}",
    }

    @cache
    def changed(epoch: int) -> list[int]:
        return [row for row in range(n) if plan(progression, epoch, row)]

    def compute(first: int) -> Iterator[Rows]:
        # Drawn when they are needed, not before: 2,000,000 draws take a minute.
        draws = ((epoch, row) for epoch in range(first, epochs) for row in changed(epoch))
        batches = iter(lambda: list(islice(draws, _BATCH)), [])
        images = AugmentedImages(ImageFiles(paths, branch.prepare), seed, epochs, settings.easy_weights)
        encoded = _encoded(branch, image_batches(images, batches, workers), device)
        features = _blocks(encoded, (len(changed(epoch)) for epoch in range(first, epochs)))
        for epoch, values in zip(range(first, epochs), features, strict=True):
            block = np.array(plain, dtype=np.float32)
            if rows := changed(epoch):
                block[rows] = values
            yield block

    return row_file(folder / "bank", key, [n] * epochs, frozen.n_features, settings.feature_dtype, compute, progress)


def _parts(n: int, size: int) -> list[int]:
    return [min(size, n - start) for start in range(0, n, size)]


def _image_inputs(branch: Branch, items: Any, batches: Sequence[range], workers: int) -> Iterator[Tensor]:
    return image_batches(ImageFiles(items, branch.prepare), batches, workers)


def _text_inputs(branch: Branch, items: Any, batches: Sequence[range]) -> Iterator[Tensor]:
    for rows in batches:
        yield branch.prepare(items[rows.start : rows.stop])


def _encoded(branch: Branch, batches: Iterator[Tensor], device: torch.device) -> Iterator[Rows]:
    """Yield features of each batch. On a GPU a batch is sent off before the previous one's features are fetched."""
    waiting: Tensor | None = None
    advice = (
        f"in the backbone with {_BATCH} items at a time; use a smaller model.backbone, train.precision bfloat16, or "
        "another train.device"
    )
    for inputs in batches:
        with memory_advice(advice):
            features = branch.encoder(inputs.to(device, non_blocking=True))
        if waiting is not None:
            yield waiting.cpu().numpy()
        waiting = features
    if waiting is not None:
        yield waiting.cpu().numpy()


def _blocks(parts: Iterator[Rows], sizes: Iterable[int]) -> Iterator[Rows]:
    """Yield the rows of ``parts``, cut anew into blocks of ``sizes``."""
    rows = (row for part in parts for row in part)
    for size in sizes:
        yield np.array(list(islice(rows, size)), dtype=np.float32)


def collection_hash(items: Items, memo: Path) -> str:
    """Hash the content of ``items`` in their order; 64 hex digits.

    Images are hashed by the bytes of their files. Reading 200,000 of them takes minutes, so the folder ``memo`` keeps
    the result under the paths, sizes and modification times of the files, until one of those differs.

    Raises:
        InputError: an image is missing.

    >>> collection_hash(("a dog", "a cat"), Path("memo")) == collection_hash(("a cat", "a dog"), Path("memo"))
    False
    """
    if isinstance(items, np.ndarray):
        return content_hash(str((items.shape, items.dtype)).encode(), np.ascontiguousarray(items).tobytes())
    paths = [item for item in items if isinstance(item, Path)]
    if len(paths) < len(items):
        return content_hash(*(str(item).encode() for item in items))
    kept_hash = memo / f"pictures-{_listing(paths)[:16]}.sha256"
    if not kept_hash.exists():
        write_text(kept_hash, content_hash(*(_digest(path) for path in paths)))
    return kept_hash.read_text(encoding="utf-8")


def _listing(paths: Sequence[Path]) -> str:
    lines = []
    for path in paths:
        try:
            stat = path.stat()
        except OSError:
            raise InputError(f"{path}: no such picture") from None
        lines.append(f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode())
    return content_hash(*lines)


def _digest(path: Path) -> bytes:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
