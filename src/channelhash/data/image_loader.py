"""Read images from disk in worker processes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from channelhash.utils.processes import interrupts_held


class ImageFiles(Dataset[Tensor]):
    """Images prepared for a model, by row number: ``(3, s, s)`` uint8.

    Args:
        paths: files of ``n`` rows.
        prepare: files to pixels ``(n, 3, s, s)`` uint8.

    >>> images = ImageFiles([Path("a.jpg"), Path("b.jpg")], lambda paths: torch.zeros(len(paths), 3, 4, 4))
    >>> len(images), images[1].shape
    (2, torch.Size([3, 4, 4]))
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
        images: data set to read from.
        batches: keys of each batch, as ``images`` takes them; drawn as they are needed.
        workers: reading processes; 0 reads in this process.

    >>> images = ImageFiles([Path(f"{i}.jpg") for i in range(3)], lambda paths: torch.zeros(len(paths), 3, 4, 4))
    >>> [len(batch) for batch in image_batches(images, [[0, 1], [2]], workers=0)]
    [2, 1]
    """
    loader: DataLoader[Tensor] = DataLoader(
        images,
        batch_sampler=batches,  # type: ignore[arg-type]
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator(),  # or the loader draws from the generator that dropout draws from
    )
    with interrupts_held():
        loaded = iter(loader)
    yield from loaded
