"""Preview of what an augmentation level does to images."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from channelhash.augment.progressive import Progression, Step, apply, plan
from channelhash.augment.tables import Level
from channelhash.data.images import load_pixels
from channelhash.utils.image_grid import Cell, write_contact_sheet

_SIZE = 224
#: Room for the longest plan: a flip, colour jitter with its four parameters in two lines, and two more.
_CAPTION_LINES = 5


def write_preview(images: Sequence[Path], level: Level, out: Path, seed: int = 0, variants: int = 7) -> None:
    """Write a PNG with a row for each image: its square, then ``variants`` draws of the level with their operations.

    Args:
        images: files; each is also a partner that others mix in.
        level: hardness level.
        out: PNG to write.
        seed: of the draws.
        variants: draws per image.
    """
    pixels = load_pixels(images, _SIZE).float() / 255
    progression = Progression(seed, len(images), level=level)
    rows = []
    for sample, path in enumerate(images):
        cells = [Cell(to_image(pixels[sample]), path.name)]
        for epoch in range(variants):
            steps = plan(progression, epoch, sample)
            image = apply(pixels[sample], steps, lambda other: pixels[other])
            cells.append(Cell(to_image(image), "\n".join(describe(step) for step in steps) or "unchanged"))
        rows.append(cells)
    write_contact_sheet(rows, out, _CAPTION_LINES)


def describe(step: Step) -> str:
    """Describe an operation with its parameters, without places, ratios and seeds.

    >>> describe(Step("rotate", {"angle": 45.0}))
    'rotate 45'
    """
    parameters = [f"{value:.2g}" for name, value in step.parameters.items() if name not in ("x", "y", "seed", "ratio")]
    return " ".join([step.name.replace("_", " "), *parameters])


def to_image(image: Tensor) -> Image.Image:
    """Convert a ``(3, h, w)`` tensor in [0, 1] to an image.

    >>> to_image(torch.zeros(3, 4, 6)).size
    (6, 4)
    """
    values = (image * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(np.ascontiguousarray(values))
