"""Reading picture files, and whether they can be used."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from channelhash.errors import InputError


def picture_problem(path: Path, decode: bool = True) -> str | None:
    """What is wrong with a picture file in a few words that name it, or None.

    Args:
        path: the file.
        decode: decode all of it, a JPEG file at the smallest size; otherwise only look whether it has content.
    """
    if not path.is_file():
        return f"no such picture {path}"
    if path.stat().st_size == 0:
        return f"empty picture {path}"
    if not decode:
        return None
    try:
        with Image.open(path) as picture:
            picture.draft("RGB", (1, 1))  # still reads to the end, in half the time
            picture.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        return f"unreadable picture {path} ({error})"
    return None


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
