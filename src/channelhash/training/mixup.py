"""Blend the images of a training, whichever source they come from, and their labels."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from channelhash.augment.mixing import draw_mix, mix_inputs, mix_labels
from channelhash.config import TrainSettings
from channelhash.errors import InputError
from channelhash.models.small import unit_pixels
from channelhash.training.sources import Source

_IMAGE = "image"


class MixedImages:
    """A source whose images are blended with those of other training rows, as these are augmented in the same epoch.

    Pixels are blended as floats in [0, 1], features as they are. Rows without labels are left alone, and nothing is
    blended with them, because no label vector states their similarity to anything.

    Args:
        source: source of the images.
        labels: ``(n, c)`` bool of all training rows.
        settings: ``mix_images`` is the probability, ``mix_alpha`` the α of λ, ``augment_seed`` the seed.
    """

    def __init__(self, source: Source, labels: Tensor, settings: TrainSettings) -> None:
        self.source, self.all_labels, self.settings = source, labels.cpu(), settings
        self._labelled = self.all_labels.any(dim=1).tolist()

    def batches(self, epoch: int, batches: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the blended images of each batch, ``(n, …)`` floats; see `Source`."""
        draws = [self.draws(epoch, rows) for rows in batches]
        # A batch and the partners of its blended rows are read together.
        together = [
            torch.cat([rows, partners[ratios < 1]]) for rows, (partners, ratios) in zip(batches, draws, strict=True)
        ]
        inputs = self.source.batches(epoch, together)
        for rows, (_, ratios), values in zip(batches, draws, inputs, strict=True):
            values, blended = unit_pixels(values), ratios < 1
            images, partners, where = values[: len(rows)].clone(), values[len(rows) :], blended.to(values.device)
            images[where] = mix_inputs(images[where], partners, ratios[blended])
            yield images

    def draws(self, epoch: int, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return partners ``(n,)`` and ratios λ ``(n,)`` of some rows; a row left alone is its own partner, λ = 1."""
        partners, ratios = rows.clone(), torch.ones(len(rows))
        settings = self.settings
        for place, row in enumerate(rows.tolist()):
            mix = draw_mix(
                settings.augment_seed, epoch, row, len(self.all_labels), settings.mix_images, settings.mix_alpha
            )
            if mix and self._labelled[row] and self._labelled[mix.partner]:
                partners[place], ratios[place] = mix
        return partners, ratios

    def labels(self, epoch: int, rows: Tensor) -> Tensor:
        """Return the blended labels of some rows in an epoch, ``(n, c)`` float32."""
        partners, ratios = self.draws(epoch, rows)
        labels, blended = self.all_labels[rows].float(), ratios < 1
        labels[blended] = mix_labels(labels[blended], self.all_labels[partners[blended]], ratios[blended])
        return labels


def mixed_images(sources: Mapping[str, Source], labels: Tensor, settings: TrainSettings) -> dict[str, Source]:
    """Return ``sources``, with the images blended if ``settings`` say so.

    Raises:
        InputError: there are no images.

    >>> mixed_images({}, torch.zeros(2, 1), TrainSettings())
    {}
    """
    if not settings.mix_images:
        return dict(sources)
    if _IMAGE not in sources:
        raise InputError(f"train.mix_images: there are no images to blend, only {', '.join(sources)}; set it to 0")
    return {**sources, _IMAGE: MixedImages(sources[_IMAGE], labels, settings)}


def labels_by_modality(
    sources: Mapping[str, Source], labels: Tensor, epoch: int, rows: Tensor
) -> Tensor | dict[str, Tensor]:
    """Return labels of some rows in an epoch: ``(n, c)``, or by modality where images are blended.

    Args:
        sources: by modality.
        labels: ``(N, c)`` of all training rows, on the device that the result is for.
        epoch: from 0.
        rows: row numbers, ``(n,)``.

    >>> labels_by_modality({}, torch.tensor([[True], [False]]), 0, torch.tensor([1])).tolist()
    [[False]]
    """
    if not any(isinstance(source, MixedImages) for source in sources.values()):
        return labels[rows]
    return {
        modality: source.labels(epoch, rows).to(labels.device) if isinstance(source, MixedImages) else labels[rows]
        for modality, source in sources.items()
    }
