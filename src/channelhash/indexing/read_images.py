"""Read the image files of a source in worker processes: model inputs, each with its file's state, date and size."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from channelhash.data.images import image_problem
from channelhash.errors import InputError
from channelhash.indexing.source import Source
from channelhash.indexing.state import state_of_file
from channelhash.models import HashModel
from channelhash.search.catalogue import file_date
from channelhash.search.items import Value
from channelhash.utils.environment import usable_cores
from channelhash.utils.image_files import date_taken, open_image, upright_size
from channelhash.utils.processes import interrupts_held


class Images(NamedTuple):
    """Images of some rows as they were read.

    Attributes:
        rows: ``n`` row numbers of the images that can be used.
        inputs: their inputs to the model, ``n`` rows; None if there are none.
        states: their states, see `state.STATE`.
        headers: metadata that each image's file gives it: ``taken`` or ``date``, ``width`` and ``height``.
        problems: a line for each image that cannot be used.
    """

    rows: list[int]
    inputs: Tensor | None
    states: list[str]
    headers: list[dict[str, Value]]
    problems: list[str]


class _Files(Dataset[Any]):
    """Batches of images; an error that is not the file's fault is returned, as a worker would wrap it in others."""

    def __init__(self, source: Source, model: HashModel, batches: Sequence[Sequence[int]]) -> None:
        self._paths = source.records.items["image"]
        self._prepare = model.branch("image").prepare
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, number: int) -> Images | InputError:
        images, inputs = Images([], None, [], [], []), list[Tensor]()
        for row in self._batches[number]:
            try:
                reading = self._read(Path(self._paths[row]))
            except InputError as error:
                return error
            if isinstance(reading, str):
                images.problems.append(reading)
                continue
            images.rows.append(row)
            inputs.append(reading[0])
            images.states.append(reading[1])
            images.headers.append(reading[2])
        return images._replace(inputs=torch.stack(inputs)) if inputs else images

    def _read(self, path: Path) -> tuple[Tensor, str, dict[str, Value]] | str:
        """Return input, state and header of an image, or what is wrong with it."""
        state = ""
        try:
            state = state_of_file(path)
            inputs = self._prepare([path])[0]
            return inputs, state, _header(path, int(state.split()[1]))
        except (InputError, OSError) as error:
            if problem := image_problem(path):
                return problem
            if isinstance(error, OSError) or not _is_still(path, state):
                return f"{path}: changed while it was read; index it again"
            raise


def read_images(source: Source, model: HashModel, batches: Sequence[Sequence[int]]) -> Iterator[Images]:
    """Yield the images of each batch of rows in order, read ahead in worker processes where there are several batches.

    Raises:
        InputError: an image cannot be prepared for another reason than the file itself.
    """
    workers = min(usable_cores(), len(batches) - 1) if batches else 0
    loader: DataLoader[Any] = DataLoader(
        _Files(source, model, batches),
        batch_size=None,
        num_workers=workers,
        collate_fn=_as_read,
        generator=torch.Generator(),
    )
    with interrupts_held():
        loaded = iter(loader)
    for images in loaded:
        if isinstance(images, InputError):
            raise images
        yield images


def _as_read(images: Any) -> Any:
    return images


def _header(path: Path, changed_ns: int) -> dict[str, Value]:
    """Return when an image was taken, or else when its file was changed, and its upright size, without decoding it."""
    with open_image(path) as opened:
        width, height = upright_size(opened)
        taken = date_taken(opened)
    return {"taken": taken, "date": None if taken else file_date(changed_ns), "width": width, "height": height}


def _is_still(path: Path, state: str) -> bool:
    try:
        return state_of_file(path) == state
    except OSError:
        return False
