"""Images to measure with where the user gives none."""

from pathlib import Path

import numpy as np
from PIL import Image

from channelhash.utils.seeds import generator


def draw_images(folder: Path, n: int) -> list[Path]:
    """Draw JPEG files of smoothed noise, as large as MIRFLICKR's images and about as hard to decode."""
    paths = []
    for i in range(n):
        coarse = generator(0, "benchmark picture", i).integers(0, 256, (47, 63, 3), dtype=np.uint8)
        path = folder / f"{i}.jpg"
        Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC).save(path, quality=90)
        paths.append(path)
    return paths
