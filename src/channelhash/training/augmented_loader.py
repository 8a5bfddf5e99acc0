"""Read augmented images from disk, in worker processes."""

from torch import Tensor
from torch.utils.data import Dataset

from channelhash.augment.progressive import TABLE_EPOCHS, EasyWeights, Level, Progression, apply, plan
from channelhash.data.image_loader import ImageFiles
from channelhash.models.small import unit_pixels

#: (epoch, sample): which draw of which image.
Draw = tuple[int, int]


class AugmentedImages(Dataset[Tensor]):
    """Images by (epoch, sample), decoded, resized and augmented: ``(3, s, s)`` floats in [0, 1].

    A worker needs only those two numbers: every draw is a function of (seed, epoch, sample).

    Args:
        images: files of the training rows.
        seed: seed of the augmentation.
        n_epochs: length of the training.
        easy_weights: see `augment.progressive.Progression`.
        level: hardness of every image, instead of the epoch's mixture.
    """

    def __init__(
        self,
        images: ImageFiles,
        seed: int,
        n_epochs: int = TABLE_EPOCHS,
        easy_weights: EasyWeights = "kinds",
        level: Level | None = None,
    ) -> None:
        self.images = images
        self.progression = Progression(seed, len(images), n_epochs, easy_weights, level)

    def __len__(self) -> int:
        return len(self.images) * self.progression.n_epochs

    def __getitem__(self, draw: Draw) -> Tensor:
        epoch, sample = draw
        return apply(self._pixels(sample), plan(self.progression, epoch, sample), self._pixels)

    def _pixels(self, sample: int) -> Tensor:
        return unit_pixels(self.images[sample])
