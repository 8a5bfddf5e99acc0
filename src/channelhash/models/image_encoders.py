"""Image encoders: pixels to features."""

import torch
from torch import Tensor, nn


class SmallConvNet(nn.Module):
    """Four strided convolution blocks trained from scratch, for the embedded data set and small collections.

    ``(n, 3, s, s)`` pixels (uint8, or floats in [0, 1]) to ``(n, n_features)``. Group normalisation rather than batch
    normalisation: a code depends on its own image alone, in training too.

    >>> SmallConvNet(width=8)(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape
    torch.Size([2, 128])
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
        maps: Tensor = self.blocks((unit_pixels(pixels) - 0.5) / 0.25)
        pooled: Tensor = _quarters(maps) if torch.onnx.is_in_onnx_export() else self.pool(maps)
        return pooled.flatten(1)


def _quarters(maps: Tensor) -> Tensor:
    """Compute ``AdaptiveAvgPool2d(2)`` of square maps ``(n, c, s, s)`` as ``(n, c, 4)``.

    ONNX has no such pooling for odd sides, whose quarters overlap in the middle.
    """
    side = int(maps.shape[-1])
    halves = (slice(0, (side + 1) // 2), slice(side // 2, side))
    return torch.stack([maps[:, :, rows, columns].mean((2, 3)) for rows in halves for columns in halves], dim=2)


def unit_pixels(pixels: Tensor) -> Tensor:
    """Convert pixels to floats in [0, 1]: divide uint8 by 255, return floats unchanged.

    >>> unit_pixels(torch.tensor([0, 255], dtype=torch.uint8)).tolist()
    [0.0, 1.0]
    """
    return pixels.float() / 255 if pixels.dtype == torch.uint8 else pixels
