"""Pictures from disk to augmented batches in worker processes."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from channelhash.augment.progressive import apply, plan
from channelhash.augment.tables import TABLE_EPOCHS, Level
from channelhash.data.pictures import load_pixels


class AugmentedPictures(Dataset[Tensor]):
    """Picture ``i`` of one epoch, decoded, resized and augmented: ``(3, size, size)`` floats in [0, 1].

    A worker needs nothing but its row number: every draw is a function of (seed, epoch, sample).

    Args:
        paths: files of the ``n`` training rows.
        size: side in pixels.
        seed: of the augmentation.
        epoch: 0 … ``n_epochs`` − 1.
        n_epochs: length of the training.
        level: this hardness for every picture instead of the epoch's mixture.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        size: int,
        seed: int,
        epoch: int,
        n_epochs: int = TABLE_EPOCHS,
        level: Level | None = None,
    ) -> None:
        self.paths, self.size, self.seed = list(paths), size, seed
        self.epoch, self.n_epochs, self.level = epoch, n_epochs, level

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, sample: int) -> Tensor:
        steps = plan(self.seed, self.epoch, sample, len(self.paths), self.n_epochs, level=self.level)
        return apply(self._pixels(sample), steps, self._pixels)

    def _pixels(self, sample: int) -> Tensor:
        return load_pixels([self.paths[sample]], self.size)[0].float() / 255


def picture_batches(pictures: AugmentedPictures, batches: Sequence[Tensor], workers: int) -> Iterator[Tensor]:
    """The pictures of each batch of row numbers, in order, ``(b, 3, size, size)``; 0 workers stay in this process."""
    loader = DataLoader(pictures, batch_sampler=[rows.tolist() for rows in batches], num_workers=workers)
    yield from loader
