"""Encode records into sets of codes."""

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.codes.code_set import CodeSet
from channelhash.data.image_loader import ImageFiles, image_batches
from channelhash.data.records import Items, Records, are_files
from channelhash.models.hash_model import HashModel
from channelhash.utils.environment import usable_cores
from channelhash.utils.progress import Progress

# Images read by worker processes are encoded so many at a time.
_BATCH = 128


def encode_records(
    model: HashModel,
    records: Records,
    progress: Progress | None = None,
    fingerprint: str | None = None,
) -> CodeSet:
    """Return codes of every modality that both the model and the records have, with labels, texts and image paths.

    Args:
        model: encodes.
        records: the items, as the model takes them: raw, or features.
        progress: called with (done, n) for each modality in turn.
        fingerprint: the model's, where it is known.
    """
    items = {modality: records.items[modality] for modality in model.modalities if modality in records.items}
    return CodeSet(
        records.ids,
        {name: encode_items(model, name, values, usable_cores(), progress) for name, values in items.items()},
        records.labels if records.label_names else None,
        model.n_bits,
        label_names=records.label_names,
        texts=records.display_values("text"),
        images=records.display_values("image"),
        model=model.fingerprint() if fingerprint is None else fingerprint,
    )


def encode_items(
    model: HashModel, modality: str, items: Items, workers: int, progress: Progress | None = None
) -> PackedCodes:
    """Return packed codes as `HashModel.encode` does, with image files read by worker processes."""
    if not are_files(items) or not workers:
        return model.encode(modality, items, progress)
    images = ImageFiles(items, model.branch(modality).prepare)  # type: ignore[arg-type]
    batches = [range(start, min(start + _BATCH, len(items))) for start in range(0, len(items), _BATCH)]
    codes = []
    for rows, pixels in zip(batches, image_batches(images, batches, workers), strict=True):
        codes.append(model.encode_prepared({modality: pixels})[modality])
        if progress:
            progress(rows.stop, len(items))
    joined: NDArray[np.uint8] = np.concatenate(codes)
    return joined
