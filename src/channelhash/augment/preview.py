"""A picture of what an augmentation level does, to look at."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from channelhash.augment.progressive import Step, apply, plan
from channelhash.augment.tables import Level
from channelhash.data.images import load_pixels
from channelhash.utils.image_grid import Cell, write_contact_sheet

_SIZE = 224
#: Room for the longest plan: a flip, colour jitter with its four parameters in two lines, and two more.
_CAPTION_LINES = 5


def write_preview(pictures: Sequence[Path], level: Level, out: Path, seed: int = 0, variants: int = 7) -> None:
    """Write a PNG with a row for each picture: its square, then ``variants`` draws of the level with their
    operations.

    Args:
        pictures: files to show; each is also the partner that others mix in.
        level: hardness level.
        out: PNG to write.
        seed: of the draws.
        variants: draws a picture.
    """
    pixels = load_pixels(pictures, _SIZE).float() / 255
    rows = []
    for sample, path in enumerate(pictures):
        cells = [Cell(to_image(pixels[sample]), path.name)]
        for epoch in range(variants):
            steps = plan(seed, epoch, sample, len(pictures), level=level)
            image = apply(pixels[sample], steps, lambda other: pixels[other])
            cells.append(Cell(to_image(image), "\n".join(describe(step) for step in steps) or "unchanged"))
        rows.append(cells)
    write_contact_sheet(rows, out, _CAPTION_LINES)


def describe(step: Step) -> str:
    """An operation and its parameters, but for places, ratios and seeds, e.g. ``rotate 45``."""
    shown = [f"{value:.2g}" for name, value in step.parameters.items() if name not in ("x", "y", "seed", "ratio")]
    return " ".join([step.name.replace("_", " "), *shown])


def to_image(image: Tensor) -> Image.Image:
    """A ``(3, h, w)`` tensor in [0, 1] as a picture."""
    values = (image * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(np.ascontiguousarray(values))
