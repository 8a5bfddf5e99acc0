"""Image encoders: pixels to features."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from channelhash.errors import InputError


class SmallConvNet(nn.Module):
    """Four strided convolution blocks trained from scratch, for the embedded data set and small collections.

    ``(n, 3, s, s)`` pixels (uint8, or floats in [0, 1]) to ``(n, n_features)``. Group normalisation rather than batch
    normalisation: a code depends on its own picture alone, in training too.
    """

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width, 4 * width]
        blocks: list[nn.Module] = []
        for n_in, n_out in zip([3, *widths[:-1]], widths, strict=True):
            blocks += [
                nn.Conv2d(n_in, n_out, 3, stride=2, padding=1),
                nn.GroupNorm(8, n_out),
                nn.ReLU(),
            ]
        self.blocks = nn.Sequential(*blocks)
        # A 2 × 2 grid keeps "above" and "below": sky over sea is not sea over sky.
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.n_features = 4 * widths[-1]

    def forward(self, pixels: Tensor) -> Tensor:
        features: Tensor = self.pool(self.blocks((unit_pixels(pixels) - 0.5) / 0.25)).flatten(1)
        return features


def unit_pixels(pixels: Tensor) -> Tensor:
    """Pixels as floats in [0, 1]: uint8 is divided by 255, floats are taken as they are."""
    return pixels.float() / 255 if pixels.dtype == torch.uint8 else pixels


def load_pixels(pictures: Sequence[Path | str | Image.Image], size: int) -> Tensor:
    """Pictures as RGB, short side resized to ``size`` (bilinear, antialiased), centre-cropped to a square.

    Args:
        pictures: files or opened pictures.
        size: side in pixels.

    Returns:
        ``(n, 3, size, size)`` uint8.

    Raises:
        InputError: a file is missing or cannot be decoded; the message names it.
    """
    batch = np.empty((len(pictures), size, size, 3), dtype=np.uint8)
    for i, picture in enumerate(pictures):
        if isinstance(picture, Image.Image):
            batch[i] = _square(picture, size)
            continue
        try:
            with Image.open(picture) as opened:
                batch[i] = _square(opened, size)
        except FileNotFoundError:
            raise InputError(f"{picture}: no such picture") from None
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise InputError(f"{picture}: not a readable picture ({error})") from None
    return torch.from_numpy(batch).permute(0, 3, 1, 2).contiguous()


def _square(picture: Image.Image, size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    picture.draft("RGB", (2 * size, 2 * size))  # JPEG decodes straight to a nearby smaller size
    width, height = picture.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    square = picture.convert("RGB").resize(
        (size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side)
    )
    return np.asarray(square)
