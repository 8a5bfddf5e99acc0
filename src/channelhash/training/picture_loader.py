"""Pictures from disk, augmented or as they are, in worker processes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from channelhash.augment.progressive import EasyWeights, apply, plan
from channelhash.augment.tables import TABLE_EPOCHS, Level
from channelhash.models.image_encoders import unit_pixels

#: (epoch, sample): which draw of which picture.
Draw = tuple[int, int]


class Pictures(Dataset[Tensor]):
    """Pictures as a model wants them, by row number: ``(3, s, s)`` uint8.

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


class AugmentedPictures(Dataset[Tensor]):
    """Pictures by (epoch, sample), decoded, resized and augmented: ``(3, s, s)`` floats in [0, 1].

    A worker needs nothing but those two numbers: every draw is a function of (seed, epoch, sample).

    Args:
        pictures: the training rows.
        seed: of the augmentation.
        n_epochs: length of the training.
        easy_weights: see `augment.progressive.plan`.
        level: this hardness for every picture instead of the epoch's mixture.
    """

    def __init__(
        self,
        pictures: Pictures,
        seed: int,
        n_epochs: int = TABLE_EPOCHS,
        easy_weights: EasyWeights = "kinds",
        level: Level | None = None,
    ) -> None:
        self.pictures, self.seed, self.n_epochs = pictures, seed, n_epochs
        self.easy_weights, self.level = easy_weights, level

    def __len__(self) -> int:
        return len(self.pictures) * self.n_epochs

    def __getitem__(self, draw: Draw) -> Tensor:
        epoch, sample = draw
        steps = plan(self.seed, epoch, sample, len(self.pictures), self.n_epochs, self.easy_weights, self.level)
        return apply(self._pixels(sample), steps, self._pixels)

    def _pixels(self, sample: int) -> Tensor:
        return unit_pixels(self.pictures[sample])


def picture_batches(
    pictures: Pictures | AugmentedPictures, batches: Iterable[Sequence[int]] | Iterable[Sequence[Draw]], workers: int
) -> Iterator[Tensor]:
    """The pictures of each batch, in order, ``(b, 3, s, s)``; 0 workers stay in this process."""
    # An iterable is read while batches are worked on: batches may be drawn as they are needed.
    yield from DataLoader(
        pictures,
        batch_sampler=batches,  # type: ignore[arg-type]
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator(),  # or the loader draws from the generator that dropout draws from
    )
