"""Prepare training inputs."""

import torch
from torch import Tensor

from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.models.hash_model import HashModel
from channelhash.utils.progress import Progress

# Rows prepared at a time, so that progress shows and decoded images are short-lived.
_CHUNK = 512


def prepare_inputs(model: HashModel, records: Records, modality: str, progress: Progress | None = None) -> Tensor:
    """Return the model's inputs for a modality of ``records``, in memory.

    Args:
        model: its branch prepares the items.
        records: ``n`` samples.
        modality: ``"image"`` or ``"text"``.
        progress: called with (done, n).

    Returns:
        ``n`` rows: pixels as uint8, token ids as int32 (OpenCLIP's as int64), features as float32.

    >>> import numpy as np
    >>> from channelhash.models import MODELS
    >>> records = Records(("a", "b"), {"text": np.eye(2)}, np.ones((2, 1), dtype=bool), ("label",))
    >>> model = MODELS["features"].create(records, 8, hidden=[4])
    >>> prepare_inputs(model, records, "text").tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    items = records.items[modality]
    if collection := model.branch(modality).prepare_collection:
        return collection(items, progress)
    chunks = []
    for start in range(0, len(items), _CHUNK):
        chunks.append(model.prepare(modality, items[start : start + _CHUNK]))
        if progress:
            progress(min(start + _CHUNK, len(items)), len(items))
    return torch.cat(chunks)


def check_batch_size(n: int, batch_size: int) -> None:
    """Check that ``n`` training rows, or images where a row of each is taken, fill one batch.

    Raises:
        InputError: they do not.

    >>> check_batch_size(100, 32)
    """
    if not 1 <= batch_size <= n:
        raise InputError(f"train.batch_size is {batch_size}, but there are {n} training rows; choose 1 … {n}")
