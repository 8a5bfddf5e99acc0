"""One batch of prepared inputs, changed at random where the settings ask for it."""

import torch
from torch import Tensor

from channelhash.augment.progressive import augment_batch
from channelhash.config import TrainSettings
from channelhash.models.image_encoders import unit_pixels
from channelhash.text.augmentation import drop_tokens, mask_tokens, replace_tokens


def batch_inputs(inputs: dict[str, Tensor], rows: Tensor, epoch: int, settings: TrainSettings) -> dict[str, Tensor]:
    """The inputs of some rows in an epoch.

    Pictures (uint8 pixels) are augmented progressively, and token ids (int32) masked, replaced and dropped, with the
    settings' probabilities; features are taken as they are. Every draw is a function of (seed, epoch, row).

    Args:
        inputs: modality -> prepared inputs of all training rows.
        rows: row numbers of the batch.
        epoch: 0 … ``settings.epochs`` − 1.
        settings: see `TrainSettings`.
    """
    batch = {modality: values[rows] for modality, values in inputs.items()}
    for modality, values in inputs.items():
        if values.dtype == torch.uint8 and settings.augment == "progressive":
            batch[modality] = _augmented_pixels(values, rows, epoch, settings)
        elif values.dtype == torch.int32:
            batch[modality] = _changed_tokens(values, rows, epoch, settings)
    return batch


def _augmented_pixels(pixels: Tensor, rows: Tensor, epoch: int, settings: TrainSettings) -> Tensor:
    return augment_batch(
        unit_pixels(pixels[rows]),
        rows.tolist(),
        epoch,
        settings.seed,
        len(pixels),
        lambda other: unit_pixels(pixels[other]),
        settings.epochs,
        settings.easy_weights,
    )


def _changed_tokens(values: Tensor, rows: Tensor, epoch: int, settings: TrainSettings) -> Tensor:
    if not (settings.mask_tokens or settings.replace_tokens or settings.drop_tokens):
        return values[rows]
    tokens, samples, seed = values[rows].cpu().numpy(), rows.tolist(), settings.seed
    if settings.replace_tokens:
        tokens = replace_tokens(tokens, samples, seed, epoch, settings.replace_tokens, int(values.max()))
    if settings.mask_tokens:
        # Hidden in its place: 0 is what padding is, which no encoder reads.
        tokens = mask_tokens(tokens, samples, seed, epoch, settings.mask_tokens, mask_token=0)
    if settings.drop_tokens:
        tokens = drop_tokens(tokens, samples, seed, epoch, settings.drop_tokens)
    return torch.from_numpy(tokens).to(values.device)
