"""Blended images of a training, whichever source they come from, with the labels that belong to them."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from channelhash.augment.mixing import draw_mix, mix_inputs, mix_labels
from channelhash.config import TrainSettings
from channelhash.errors import InputError
from channelhash.models.image_encoders import unit_pixels
from channelhash.training.sources import Source

_IMAGE = "image"


class MixedImages:
    """A source whose images are blended with those of other training rows, as they are in the same epoch: augmented.

    Pixels are blended as floats in [0, 1], features as they are. Rows without labels are left alone, and nothing is
    blended with them: what their similarity to anything is, no label vector says.

    Args:
        source: of the images.
        labels: ``(n, c)`` bool of all training rows.
        settings: ``mix_images`` is the probability, ``mix_alpha`` the α of λ, ``augment_seed`` the seed.
    """

    def __init__(self, source: Source, labels: Tensor, settings: TrainSettings) -> None:
        self.source, self.known, self.settings = source, labels.cpu(), settings
        self._labelled = self.known.any(dim=1).tolist()

    def batches(self, epoch: int, batches: Sequence[Tensor]) -> Iterator[Tensor]:
        """See `Source`; ``(n, …)`` floats."""
        draws = [self.draws(epoch, rows) for rows in batches]
        # A batch and the partners of its blended rows are read together.
        blended = [shares < 1 for _, shares in draws]
        asked = [
            torch.cat([rows, partners[places]])
            for rows, (partners, _), places in zip(batches, draws, blended, strict=True)
        ]
        read = self.source.batches(epoch, asked)
        for rows, (_, shares), places, values in zip(batches, draws, blended, read, strict=True):
            values = unit_pixels(values)
            images, partners, where = values[: len(rows)].clone(), values[len(rows) :], places.to(values.device)
            images[where] = mix_inputs(images[where], partners, shares[places])
            yield images

    def draws(self, epoch: int, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Partners ``(n,)`` and shares λ ``(n,)`` of some rows in an epoch; a row left alone is its own partner."""
        partners, shares = rows.clone(), torch.ones(len(rows))
        settings = self.settings
        for place, row in enumerate(rows.tolist()):
            mix = draw_mix(settings.augment_seed, epoch, row, len(self.known), settings.mix_images, settings.mix_alpha)
            if mix and self._labelled[row] and self._labelled[mix.partner]:
                partners[place], shares[place] = mix
        return partners, shares

    def labels(self, epoch: int, rows: Tensor) -> Tensor:
        """What the images of some rows show in an epoch, ``(n, c)`` float32."""
        partners, shares = self.draws(epoch, rows)
        labels, places = self.known[rows].float(), shares < 1
        labels[places] = mix_labels(labels[places], self.known[partners[places]], shares[places])
        return labels


def mixed_images(sources: Mapping[str, Source], labels: Tensor, settings: TrainSettings) -> dict[str, Source]:
    """``sources`` with the images blended, if ``settings`` say so.

    Raises:
        InputError: there are no images.
    """
    if not settings.mix_images:
        return dict(sources)
    if _IMAGE not in sources:
        raise InputError(f"train.mix_images: there are no images to blend, only {', '.join(sources)}; set it to 0")
    return {**sources, _IMAGE: MixedImages(sources[_IMAGE], labels, settings)}


def labels_by_modality(
    sources: Mapping[str, Source], labels: Tensor, epoch: int, rows: Tensor
) -> Tensor | dict[str, Tensor]:
    """Labels of some rows in an epoch: ``(n, c)``, or by modality where a source changes what is to be seen.

    Args:
        sources: by modality.
        labels: ``(N, c)`` of all training rows, on the device that the result is for.
        epoch: from 0.
        rows: row numbers, ``(n,)``.
    """
    if not any(isinstance(source, MixedImages) for source in sources.values()):
        return labels[rows]
    return {
        modality: source.labels(epoch, rows).to(labels.device) if isinstance(source, MixedImages) else labels[rows]
        for modality, source in sources.items()
    }
