"""Sources of training inputs, one a modality."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.data import Dataset

from channelhash.augment.progressive import TABLE_EPOCHS, EasyWeights, Progression, apply, augment_batch, plan
from channelhash.config import TrainSettings
from channelhash.data.image_loader import ImageFiles, image_batches
from channelhash.models.small import unit_pixels
from channelhash.utils.environment import usable_cores
from channelhash.utils.npy_files import RowFile

#: (epoch, sample): which draw of which image.
_Draw = tuple[int, int]


class AugmentedImages(Dataset[Tensor]):
    """Images by (epoch, sample), decoded, resized and augmented: ``(3, s, s)`` floats in [0, 1].

    A worker needs only those two numbers: every draw is a function of (seed, epoch, sample).

    Args:
        images: files of the training rows.
        seed: seed of the augmentation.
        n_epochs: length of the training.
        easy_weights: see `augment.progressive.Progression`.
    """

    def __init__(
        self,
        images: ImageFiles,
        seed: int,
        n_epochs: int = TABLE_EPOCHS,
        easy_weights: EasyWeights = "kinds",
    ) -> None:
        self.images = images
        self.progression = Progression(seed, len(images), n_epochs, easy_weights)

    def __len__(self) -> int:
        return len(self.images) * self.progression.n_epochs

    def __getitem__(self, draw: _Draw) -> Tensor:
        epoch, sample = draw
        return apply(self._pixels(sample), plan(self.progression, epoch, sample), self._pixels)

    def _pixels(self, sample: int) -> Tensor:
        return unit_pixels(self.images[sample])


class Source(Protocol):
    """The inputs of one modality. Every random change is a function of (seed, epoch, row)."""

    def batches(self, epoch: int, batches: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the inputs of each batch of row numbers in an epoch, in order."""


class TrainingSet(NamedTuple):
    """What a model is trained on, row by row.

    Attributes:
        sources: modality -> where the inputs of ``n`` rows come from.
        targets: ``(n, …)`` what the loss compares the outputs of those rows with: labels, or a teacher's outputs.
        images: ``(n,)`` which of the images 0 … m − 1 each row shows; None where each row shows its own.

    >>> features = torch.tensor([[0.5, 1.0], [1.5, 2.0]])
    >>> data = TrainingSet({"text": Held(features, TrainSettings())}, torch.tensor([[True], [False]]))
    >>> len(data.targets)
    2
    """

    sources: Mapping[str, Source]
    targets: Tensor
    images: Tensor | None = None


class Held:
    """Inputs of all rows in memory: pixels (uint8), token ids (int32), or features.

    Pixels are augmented progressively if the settings say so; all else is taken as it is.

    >>> source = Held(torch.tensor([[1.0], [2.0], [3.0]]), TrainSettings())
    >>> [inputs.tolist() for inputs in source.batches(0, [torch.tensor([2, 0])])]
    [[[3.0], [1.0]]]
    """

    def __init__(self, values: Tensor, settings: TrainSettings) -> None:
        self.values, self.settings = values, settings

    def batches(self, epoch: int, batches: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the inputs of each batch, see `Source`."""
        for rows in batches:
            yield self.batch(epoch, rows)

    def batch(self, epoch: int, rows: Tensor) -> Tensor:
        """Return the inputs of some rows in an epoch."""
        if self.values.dtype == torch.uint8 and self.settings.augment == "progressive":
            return self._augmented_pixels(epoch, rows)
        return self.values[rows]

    def _augmented_pixels(self, epoch: int, rows: Tensor) -> Tensor:
        settings = self.settings
        progression = Progression(settings.augment_seed, len(self.values), settings.epochs, settings.easy_weights)
        images = unit_pixels(self.values[rows])
        return augment_batch(images, rows.tolist(), epoch, progression, lambda row: unit_pixels(self.values[row]))


class FromDisk:
    """Images read from their files in every epoch, by worker processes, with the same draws as `Held`."""

    def __init__(self, images: ImageFiles, settings: TrainSettings) -> None:
        self.images, self.settings = images, settings

    def batches(self, epoch: int, batches: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the inputs of each batch, see `Source`."""
        settings = self.settings
        if settings.augment == "none":
            return image_batches(self.images, [rows.tolist() for rows in batches], n_workers(settings))
        augmented = AugmentedImages(self.images, settings.augment_seed, settings.epochs, settings.easy_weights)
        draws = [[(epoch, row) for row in rows.tolist()] for rows in batches]
        return image_batches(augmented, draws, n_workers(settings))


class Bank:
    """Features of every augmented draw, a block an epoch; those of the current epoch are on ``device``."""

    def __init__(self, file: RowFile, device: torch.device) -> None:
        self.file, self.device = file, device
        self._epoch, self._values = -1, torch.empty(0)

    def batches(self, epoch: int, batches: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the inputs of each batch, see `Source`."""
        if epoch != self._epoch:
            self._epoch, self._values = epoch, torch.from_numpy(self.file.block(epoch)).float().to(self.device)
        for rows in batches:
            yield self._values[rows]


def n_workers(settings: TrainSettings) -> int:
    """Return the number of processes that read images.

    >>> n_workers(TrainSettings(workers=2))
    2
    """
    return usable_cores() if settings.workers is None else settings.workers
