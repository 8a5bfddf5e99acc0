"""Read images from disk in worker processes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset


class ImageFiles(Dataset[Tensor]):
    """Images as a model wants them, by row number: ``(3, s, s)`` uint8.

    Args:
        paths: files of ``n`` rows.
        prepare: files to pixels ``(n, 3, s, s)`` uint8.
    """

    def __init__(self, paths: Sequence[Path], prepare: Callable[[Any], Tensor]) -> None:
        self.paths, self.prepare = list(paths), prepare

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> Tensor:
        return self.prepare([self.paths[row]])[0]


def image_batches(images: Dataset[Tensor], batches: Iterable[Sequence[Any]], workers: int) -> Iterator[Tensor]:
    """Yield the images of each batch, in order, ``(b, 3, s, s)``.

    Args:
        images: what is read.
        batches: the keys of each batch, as ``images`` takes them; drawn as they are needed.
        workers: processes that read; 0 stays in this process.
    """
    # An iterable is read while batches are worked on: batches may be drawn as they are needed.
    yield from DataLoader(
        images,
        batch_sampler=batches,  # type: ignore[arg-type]
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator(),  # or the loader draws from the generator that dropout draws from
    )
