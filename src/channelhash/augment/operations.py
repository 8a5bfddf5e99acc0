"""Image augmentations as pure functions of the pixels and drawn parameters.

Images are ``(3, h, w)`` float tensors in [0, 1] on any device; every result has the same shape and range. Parameters
are relative to the image's size, so that they can be drawn before the image is read.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from channelhash.utils.torchvision_compat import InterpolationMode
from channelhash.utils.torchvision_compat import functional as F

_BILINEAR = InterpolationMode.BILINEAR


def flip_horizontally(image: Tensor) -> Tensor:
    """Mirror left and right.

    >>> flip_horizontally(torch.tensor([[[0.0, 1.0]]])).tolist()
    [[[1.0, 0.0]]]
    """
    return image.flip(-1)


def flip_vertically(image: Tensor) -> Tensor:
    """Mirror top and bottom.

    >>> flip_vertically(torch.tensor([[[0.0], [1.0]]])).tolist()
    [[[1.0], [0.0]]]
    """
    return image.flip(-2)


def rotate(image: Tensor, angle: float) -> Tensor:
    """Rotate by ``angle`` degrees counter-clockwise about the centre; uncovered corners are black.

    >>> rotate(torch.eye(2).expand(3, 2, 2), 90)[0].round().tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    turned: Tensor = F.rotate(image, angle, interpolation=_BILINEAR, fill=[0.0])
    return turned.clamp(0, 1)


def grayscale(image: Tensor) -> Tensor:
    """Convert to luma (ITU-R BT.601) in all three channels.

    >>> red = torch.tensor([1.0, 0.0, 0.0])[:, None, None]
    >>> [round(value, 2) for value in grayscale(red).flatten().tolist()]
    [0.3, 0.3, 0.3]
    """
    gray: Tensor = F.rgb_to_grayscale(image, num_output_channels=3)
    return gray


def crop(image: Tensor, scale: float, ratio: float, x: float, y: float) -> Tensor:
    """Cut out a window and resize it to the size of the image.

    Args:
        image: the image.
        scale: area of the window as a share of the image's; a window that exceeds the image becomes all of it.
        ratio: width / height of the window.
        x: place between leftmost (0) and rightmost (1).
        y: place between top (0) and bottom (1).

    >>> left = torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(3, 4, 4)
    >>> crop(left, scale=0.25, ratio=1, x=0, y=0).max().item()
    0.0
    """
    full_height, full_width = image.shape[-2:]
    height, width = _window(image, scale, ratio)
    if height > full_height or width > full_width:
        height, width = full_height, full_width
    top, left = _corner(image, height, width, x, y)
    cut: Tensor = F.resized_crop(image, top, left, height, width, [full_height, full_width], _BILINEAR, antialias=True)
    return cut.clamp(0, 1)


def erase(image: Tensor, scale: float, ratio: float, x: float, y: float) -> Tensor:
    """Black out a window; arguments as in `crop`, but a side longer than the image's is cut, so that a narrow image
    does not vanish.

    >>> erase(torch.ones(3, 4, 4), scale=0.25, ratio=1, x=0, y=0)[0].sum().item()
    12.0
    """
    height, width = _window(image, scale, ratio)
    height, width = min(height, image.shape[-2]), min(width, image.shape[-1])
    top, left = _corner(image, height, width, x, y)
    result = image.clone()
    result[:, top : top + height, left : left + width] = 0
    return result


def color_jitter(image: Tensor, brightness: float, contrast: float, saturation: float, hue: float) -> Tensor:
    """Change brightness, contrast and saturation by factors, and hue by a share of the colour circle.

    >>> color_jitter(torch.full((3, 2, 2), 0.5), brightness=0.5, contrast=1, saturation=1, hue=0).unique().tolist()
    [0.25]
    """
    image = F.adjust_brightness(image, brightness)
    image = F.adjust_contrast(image, contrast)
    image = F.adjust_saturation(image, saturation)
    changed: Tensor = F.adjust_hue(image, hue)
    return changed.clamp(0, 1)


def uniform_noise(image: Tensor, blending: float, seed: int) -> Tensor:
    """Compute (1 − b) · x + b · u with u uniform in [0, 1].

    >>> uniform_noise(torch.ones(3, 2, 2), blending=0.5, seed=0).min().item() >= 0.5
    True
    """
    noise = torch.rand(image.shape, generator=torch.Generator().manual_seed(seed)).to(image)
    return (1 - blending) * image + blending * noise


def elastic(image: Tensor, alpha: float, sigma: float, seed: int) -> Tensor:
    """Move pixels along a smooth random field (Simard et al. 2003).

    The field is uniform in [-1, 1], blurred with ``sigma`` pixels and scaled by ``alpha`` / 2 pixels, as in
    torchvision's elastic transform, whose defaults the table has. Pixels from outside are black.

    >>> elastic(torch.ones(3, 8, 8), alpha=50, sigma=5, seed=0).shape
    torch.Size([3, 8, 8])
    """
    height, width = image.shape[-2:]
    field = 2 * torch.rand((2, 1, height, width), generator=torch.Generator().manual_seed(seed)) - 1
    across, down = (min(int(8 * sigma) + 1 | 1, 2 * side - 1) for side in (width, height))  # mirrored at the border
    # One axis after the other: the blur of the full square kernel at a fraction of its cost.
    field = F.gaussian_blur(F.gaussian_blur(field, [across, 1], [sigma, sigma]), [1, down], [sigma, sigma])[:, 0]
    shift = torch.stack([field[0] * alpha / width, field[1] * alpha / height], dim=-1)
    moved: Tensor = F.elastic(image, shift[None].to(image.device), interpolation=_BILINEAR, fill=[0.0])
    return moved.clamp(0, 1)


def blend(image: Tensor, partner: Tensor, blending: float) -> Tensor:
    """Compute (1 − b) · x + b · partner over the full frame.

    >>> blend(torch.ones(3, 1, 1), torch.zeros(3, 1, 1), blending=0.25).flatten().tolist()
    [0.75, 0.75, 0.75]
    """
    return (1 - blending) * image + blending * partner


def picture_in_picture(image: Tensor, partner: Tensor, scale: float, x: float, y: float) -> Tensor:
    """Lay the partner, its sides scaled by ``scale``, over the image at (x, y) as in `crop`.

    >>> picture_in_picture(torch.zeros(3, 4, 4), torch.ones(3, 4, 4), scale=0.5, x=1, y=1)[0].tolist()[3]
    [0.0, 0.0, 1.0, 1.0]
    """
    height, width = (max(1, round(scale * side)) for side in image.shape[-2:])
    small = F.resize(partner, [height, width], _BILINEAR, antialias=True).clamp(0, 1)
    top, left = _corner(image, height, width, x, y)
    result = image.clone()
    result[:, top : top + height, left : left + width] = small
    return result


def _window(image: Tensor, scale: float, ratio: float) -> tuple[int, int]:
    """Return (height, width) in pixels of a window of ``scale`` of the area, at least 1; may exceed the image."""
    area = scale * image.shape[-2] * image.shape[-1]
    return max(1, round(math.sqrt(area / ratio))), max(1, round(math.sqrt(area * ratio)))


def _corner(image: Tensor, height: int, width: int, x: float, y: float) -> tuple[int, int]:
    """Return (top, left) in pixels of a window at (x, y)."""
    return round(y * (image.shape[-2] - height)), round(x * (image.shape[-1] - width))


_BY_PIXELS = (flip_horizontally, flip_vertically, rotate, grayscale, crop, erase, color_jitter, uniform_noise, elastic)
#: name in the table -> operation.
OPERATIONS: dict[str, Callable[..., Tensor]] = {
    operation.__name__: operation for operation in (*_BY_PIXELS, blend, picture_in_picture)
}
#: Operations with draws in addition to those of their rows: places in [0, 1], a seed, a partner.
PLACED = frozenset({"crop", "erase", "picture_in_picture"})
SEEDED = frozenset({"uniform_noise", "elastic"})
PARTNERED = frozenset({"blend", "picture_in_picture"})
