"""Prepare training inputs, and cut them into batches in a seeded order."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.models.hash_model import HashModel
from channelhash.utils.progress import Progress
from channelhash.utils.seeds import generator

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


def epoch_batches(n: int, batch_size: int, seed: int, *names: str | int) -> Iterator[Tensor]:
    """Yield row numbers of each batch of one pass over ``n`` rows, in an order drawn from (``seed``, ``names``).

    The last partial batch is dropped (§ 6): the loss is divided by n², so a small batch would weigh differently.

    >>> [rows.tolist() for rows in epoch_batches(5, 2, 0, "epoch", 0)]
    [[0, 3], [2, 4]]
    """
    order: NDArray[Any] = generator(seed, "batches", *names).permutation(n)
    for start in range(0, n - batch_size + 1, batch_size):
        yield torch.from_numpy(np.sort(order[start : start + batch_size]))


def check_batch_size(n: int, batch_size: int) -> None:
    """Check that ``n`` training rows fill one batch.

    Raises:
        InputError: they do not.

    >>> check_batch_size(100, 32)
    """
    if not 1 <= batch_size <= n:
        raise InputError(f"train.batch_size is {batch_size}, but there are {n} training rows; choose 1 … {n}")
